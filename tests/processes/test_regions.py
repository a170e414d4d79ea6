"""Three regions under load, of which each in turn is killed, or stopped and continued, while a consumer moves between.

Rule: whatever happens to a region, no acknowledged record is lost, and none is stored twice. In the end the regions
keep the same records of each origin. The consumer gets every record, wherever it reads.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fenceline.client import Client
from tests.support.patience import wait_until

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SILENT_MS = 1_000  # until the consumer leaves a region
PER_STEP = 20  # records of each writer that must come to the consumer before the next blow


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example's regions, writers and consumer; the consumer is less patient here."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import failover

    monkeypatch.setattr(
        failover, "subscribe_with_failover", partial(failover.subscribe_with_failover, silent_ms=SILENT_MS)
    )
    return failover


def kill(region: Any, meanwhile: Callable[[], None]) -> None:
    region.kill()
    meanwhile()
    region.start()


def stop(region: Any, meanwhile: Callable[[], None]) -> None:
    region._server.send(signal.SIGSTOP)
    try:
        meanwhile()
    finally:
        region._server.send(signal.SIGCONT)


FATES = [("a", kill), ("b", stop), ("c", kill), ("a", stop)]


def await_progress(stage: Any, names: list[str]) -> None:
    """Wait until records that writers of these regions write from now on have come to the consumer."""
    ends = {name: len(stage.writers[name].values) + PER_STEP for name in names}
    seen = stage.consumer.times

    def has_come() -> bool:
        failures = [one.failure for one in (stage.consumer, *stage.writers.values()) if one.failure is not None]
        assert not failures, failures
        return all(f"{name}-{end}" in seen for name, end in ends.items())

    wait_until(has_come)


def move_to(stage: Any, name: str) -> None:
    """Let the consumer go on in a region, as an operator does who sets the active region everywhere."""
    for region in stage.regions.values():
        region.client.set_active_region("orders", "billing", name)
    wait_until(lambda: stage.consumer.subscriber.region == name)


def strike_each(stage: Any, chance: random.Random) -> None:
    """End or stop each region while the consumer reads there, and see that the others go on without it."""
    fates = list(FATES)
    chance.shuffle(fates)
    for name, strike in fates:
        move_to(stage, name)
        await_progress(stage, list(stage.regions))
        others = [other for other in stage.regions if other != name]

        def meanwhile(name: str = name, others: list[str] = others) -> None:
            wait_until(lambda: stage.consumer.subscriber.region in others)
            await_progress(stage, others)

        strike(stage.regions[name], meanwhile)
        await_progress(stage, list(stage.regions))


def finish(stage: Any) -> list[str]:
    """End the writers, wait until every record is everywhere, and return what was acknowledged to them."""
    for writer in stage.writers.values():
        writer.end()
    given = [value for writer in stage.writers.values() for value in writer.values]
    wait_until(lambda: len(stage.consumer.times) >= len(given))
    for region in stage.regions.values():
        wait_until(lambda client=region.client: has_all(client, len(given)))
    return given


def has_all(client: Client, records: int) -> bool:
    """Return whether a region has so many records. A lag of 0 alone does not say so: it may be two seconds old."""
    return (
        all(one.lag_records == 0 for one in client.replication("orders").regions) and stored(client).total() >= records
    )


def stored(client: Client) -> Counter[str]:
    """Return how often a region stores each value."""
    found: Counter[str] = Counter()
    for partition in range(client.topic("orders").partitions):
        position, end = 0, client.offsets("orders", partition).next_offset
        while position < end:
            page = client.read("orders", partition, offset=position, max_records=10_000)
            found.update((record.value or b"").decode() for record in page.records)
            position = page.position
    return found


def test_regions_that_are_killed_and_stopped_in_turn_lose_no_record_and_end_equal(example: Any) -> None:
    """I17 to I25: four blows, in an order by chance; the consumer is moved into the region that each one hits."""
    with example.three_regions() as regions:
        stage = example.Stage(regions, seed=17)
        try:
            strike_each(stage, random.Random(17))
            given = finish(stage)
        finally:
            stage.close()
        written = {name: len(writer.values) for name, writer in stage.writers.items()}
        assert (
            Counter(given) == stored(regions["a"].client) == stored(regions["b"].client) == stored(regions["c"].client)
        )
        example.check_none_lost(given, stage.consumer.times)
        assert stage.consumer.subscriber.moves >= 2 * len(FATES) - 1
        assert stage.consumer.subscriber.repeated == stage.consumer.repeated
        with ThreadPoolExecutor(2) as pool:
            pairs = [(regions[here], regions[there]) for here, there in combinations(regions, 2)]
            for (here, there), found in zip(pairs, pool.map(lambda pair: example.verify(*pair), pairs), strict=True):
                assert found, (here.name, there.name)
                example.check_equal(found, written)
            list(pool.map(verify_log, regions.values()))


def verify_log(region: Any) -> None:
    command = [sys.executable, "-m", "fenceline_cli.main", "verify"]
    command += ["--data", str(region.directory), "--region", region.name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
