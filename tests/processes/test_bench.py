"""The new parts of the benchmark on real servers, with tiny sizes: each ends, and its rows are there."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import creates, one_server, s2_lite
from benchmarks.bucket import Scratch
from benchmarks.combining import FAR, NEAR, Combining
from benchmarks.figures import Row
from benchmarks.on_bucket import S3Bench
from fenceline.settings import Settings
from fenceline_cli.stores import prepare
from fenceline_http import wiring
from tests.servers.install import CannotInstall
from tests.servers.proxy import proxied
from tests.servers.run import CREDENTIALS, dynamodb_local, versitygw

pytestmark = [pytest.mark.slow, pytest.mark.prove]

SETTINGS = Settings(objects="s3://fenceline-bench/test", items="dynamodb://fenceline-bench")


@pytest.fixture(scope="module")
def slow_endpoint() -> Iterator[str]:
    """Lend the URL of the S3 server that is 30 ms away. The environment names the near ones, with the stores made."""
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            versitygw() as objects,
            dynamodb_local() as items,
            proxied(objects, request_delay_s=0.03) as far,
        ):
            endpoints = {"AWS_ENDPOINT_URL_S3": objects, "AWS_ENDPOINT_URL_DYNAMODB": items}
            for name, value in {**CREDENTIALS, **endpoints}.items():
                patch.setenv(name, value)
            prepare(SETTINGS, is_create=True)
            yield far.url
    except CannotInstall as error:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(f"not run on real servers: {error}")


@pytest.fixture
def scratch(slow_endpoint: str) -> Iterator[Scratch]:
    with Scratch(SETTINGS) as made:
        yield made


def values(rows: list[Row]) -> dict[str, float]:
    return {row.what: row.value for row in rows}


def test_processes_on_one_partition_are_measured_near_and_far(scratch: Scratch, slow_endpoint: str) -> None:
    races = Combining(scratch, 0.5, slow_endpoint, processes=(1, 2), rounds=1)
    rows, latencies = races.measure(lambda _: None)
    found = values(rows)
    for where in (NEAR, FAR):
        assert found[f"appends, 1 process, {where}"] > 0
        assert found[f"S3 creates per append, 1 process, {where}"] == 1
        assert f"fairness, Jain's index of appends, 2 processes, {where}" in found
    assert min(latencies[f"1 process, {FAR}"]) >= 30
    assert min(latencies[f"1 process, {NEAR}"]) < 30


def test_an_append_is_compared_with_a_bare_create_near_and_far(scratch: Scratch, slow_endpoint: str) -> None:
    """A create far away takes the 30 ms of its proxy each time; one near is seen below that, also on a busy machine."""
    sizes = ("1 KiB", "64 KiB", "1 MiB")
    quickest = dict.fromkeys(sizes, math.inf)
    for where, endpoint in ((FAR, slow_endpoint), *[(NEAR, None)] * 10):
        found = values(creates.measure(scratch, where, endpoint, rounds_max=1))
        for size in sizes:
            assert found[f"append ÷ bare obstore create, {size}, {where}"] > 0
            create_ms = found[f"bare obstore create, {size}, {where}"]
            if where == FAR:
                assert create_ms >= 30
            else:
                quickest[size] = min(quickest[size], create_ms)
        if max(quickest.values()) < 30:
            break
    assert max(quickest.values()) < 30


def test_clients_of_one_server_are_measured(scratch: Scratch) -> None:
    found = values(one_server.measure(scratch, seconds=0.5, rounds=1))
    for clients in ("1 client", "8 clients"):
        assert found[f"acknowledged appends, {clients} of one server, 1 KiB"] > 0
        assert found[f"acknowledged, {clients} of one server, 1 MiB"] > 0


def test_a_run_of_one_part_removes_its_topics(slow_endpoint: str) -> None:
    bench = S3Bench(SETTINGS)
    reported: list[str] = []
    bench.run(["requests"], on_part=reported.append)
    assert reported == ["requests"]
    assert values(bench.rows)["creates per append"] == 1
    with closing(wiring.service_of(SETTINGS)) as service:
        assert service.log.topics.list(prefix=bench.scratch.name) == ([], False)


def test_s2_lite_is_measured_where_it_is_named(tmp_path: Path) -> None:
    command = shlex.split(os.environ.get(s2_lite.VARIABLE, ""))
    if not command:
        pytest.skip(s2_lite.NOT_MEASURED)
    found = values(s2_lite.measure(command, 0.5, 1))
    for clients in ("1 client", "8 clients"):
        for size in ("1 KiB", "1 MiB"):
            assert found[f"fenceline ÷ s2-lite, {clients}, {size}"] > 0
