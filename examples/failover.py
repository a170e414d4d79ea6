"""Three regions on this machine, and one of them is killed: its consumer goes on in another region, and loses nothing.

Each region is a ``fenceline dev`` of its own, with its own directory. A writer in each region writes into the same
topic, and each region takes the records of the other two. One consumer reads all of them, in region a:

- a is killed with kill -9, amid the traffic. After 10 s without an answer the consumer goes on in b, and does not show
  again what it had acknowledged in a.

- a comes back on its directory. It takes the records that it missed, and the others take those that a had not passed
  on.

- An operator sets the active region to a, and the consumer goes back at once.

At the end the driver compares. Every record that was acknowledged to a writer must have come to the consumer, and the
regions must keep the same records of each origin.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from stage import ComparisonError, check, console, show_result

from fenceline import Client, FailoverSubscriber, subscribe_with_failover
from fenceline.errors import FencelineError
from fenceline_cli.dev_server.process import ServerProcess

TOPIC = "orders"
SUBSCRIPTION = "billing"
REGIONS = ("a", "b", "c")
PARTITIONS = 2
PER_STEP = 20  # records of one writer, at most
STEP_S = 0.1
LEVEL = 100  # records that are on their way at any time
CATCH_UP_S = 8  # that the operator waits before the consumer is moved back
PATIENCE_S = 60
IDLE_S = 20


class Region:
    """A region: its server, the clients that speak to it, and what the last look at it said."""

    def __init__(self, name: str, directory: Path, ports: Mapping[str, int]) -> None:
        self.name = name
        self.directory = directory / name
        self.url = f"http://127.0.0.1:{ports[name]}"
        self.client = Client(self.url)
        self.lag = "?"
        peers = ",".join(f"{one}=http://127.0.0.1:{port}" for one, port in ports.items() if one != name)
        options = ["--region", name, "--peers", peers]
        self._messages = (directory / f"{name}.txt").open("w")
        self._server = ServerProcess(self.directory, port=ports[name], options=options, messages=self._messages)
        self.is_up = False

    def start(self) -> None:
        self._server.__enter__()
        self.is_up = True

    def kill(self) -> None:
        """End the server in the middle of whatever it does."""
        self._server.kill()
        self.is_up, self.lag = False, "?"

    def close(self) -> None:
        if self.is_up:
            self._server.__exit__(None, None, None)
        self._messages.close()
        self.client.close()

    @property
    def is_level(self) -> bool:
        """Return True if the region lacks little of what each other region has."""
        return self.lag.isdecimal() and int(self.lag) < LEVEL

    def look(self, is_over: threading.Event) -> None:
        """Ask for the region's lag twice a second."""
        with Client(self.url, retry_ms=0, timeout_ms=2_000) as client:
            while not is_over.wait(0.5):
                try:
                    lags = [one.lag_records for one in client.replication(TOPIC).regions]
                except FencelineError:
                    self.lag = "?"
                else:
                    known = sum(lag for lag in lags if lag is not None)
                    self.lag = str(known) if None not in lags else f"{known}+?"


class Writer:
    """A thread that writes into one region until ``end``. Its producer sends again what was not answered."""

    def __init__(self, region: Region, seed: str) -> None:
        self.values: list[str] = []
        self.failure: FencelineError | None = None
        self._region = region
        self._chance = random.Random(seed)
        self._is_over = threading.Event()
        self._producer = region.client.producer(TOPIC)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """Return how many records are acknowledged."""
        return self._producer.acknowledged

    def _run(self) -> None:
        try:
            while not self._is_over.wait(STEP_S):
                for _ in range(self._chance.randrange(PER_STEP + 1)):
                    value = f"{self._region.name}-{len(self.values)}"
                    self._producer.send(value=value.encode(), partition=self._chance.randrange(PARTITIONS))
                    self.values.append(value)
            self._producer.close()
        except FencelineError as error:
            self.failure = error

    def end(self) -> None:
        """Stop writing, and wait until all is acknowledged.

        Raises:
            FencelineError: A record was not written.
        """
        self._is_over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


class Consumer:
    """A thread that consumes all records, and counts how often each one came."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.times: Counter[str] = Counter()
        self.longest_s = 0.0
        self.failure: FencelineError | None = None
        self._last: float | None = None
        self.subscriber: FailoverSubscriber = subscribe_with_failover(TOPIC, SUBSCRIPTION, regions=clients)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def repeated(self) -> int:
        return self.times.total() - len(self.times)

    @property
    def is_idle(self) -> bool:
        """Return True if nothing came for so long that nothing more will."""
        return self._last is not None and time.monotonic() - self._last > IDLE_S

    def _run(self) -> None:
        try:
            for partition, records in self.subscriber.pages():
                now = time.monotonic()
                self.longest_s, self._last = max(self.longest_s, now - (self._last or now)), now
                for record in records:
                    self.times[(record.value or b"").decode()] += 1
                self.subscriber.acknowledge(partition, records[-1])
        except FencelineError as error:
            self.failure = error

    def end(self) -> None:
        self.subscriber.close()
        self._thread.join()


class Stage:
    """The regions, their writers and the consumer, shown with a line a second while the driver waits."""

    def __init__(self, regions: Mapping[str, Region], seed: int) -> None:
        for region in regions.values():
            region.client.create_topic(TOPIC, partitions=PARTITIONS, regions=REGIONS)
        self.regions = regions
        self.consumer = Consumer([region.client for region in regions.values()])
        self.writers = {name: Writer(region, f"{seed} {name}") for name, region in regions.items()}
        self._is_over = threading.Event()
        for region in regions.values():
            threading.Thread(target=region.look, args=(self._is_over,), daemon=True).start()
        self._began = self._shown = time.monotonic()

    def close(self) -> None:
        self._is_over.set()
        self.consumer.end()

    def go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end, "the time passes")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for ``condition``, and show the stage meanwhile.

        Raises:
            ComparisonError: It did not come true. ``what`` says what should have happened.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for one in (self.consumer, *self.writers.values()):
                if one.failure is not None:
                    raise one.failure
            now = time.monotonic()
            check(now < deadline, f"this did not happen within {PATIENCE_S} s: {what}")
            if now - self._shown >= 1:
                self._shown += 1
                self.show()
            time.sleep(0.02)

    def tell(self, what: str) -> None:
        console.print(f"[bold]{time.monotonic() - self._began:4.0f} s: {what}[/]")

    def show(self) -> None:
        shown = [
            f"{name} {self.writers[name].written:,} written, " + (f"lag {region.lag}" if region.is_up else "down")
            for name, region in self.regions.items()
        ]
        consumer = self.consumer
        where = consumer.subscriber.region or "nowhere"
        shown.append(f"consumer in {where}: {len(consumer.times):,} done, {consumer.repeated:,} repeated")
        console.print(f"{time.monotonic() - self._began:4.0f} s: " + " | ".join(shown))


def play(stage: Stage, chance: random.Random) -> None:
    """Kill a amid the traffic, bring it back, and move the consumer back to it."""
    a, consumer = stage.regions["a"], stage.consumer
    stage.go_on(chance.uniform(4, 6))
    check(consumer.subscriber.region == "a", f"the consumer began in {consumer.subscriber.region}")
    stage.tell("a is killed (kill -9)")
    a.kill()
    stage.wait(lambda: consumer.subscriber.region == "b", "the consumer goes on in b")
    stage.tell("the consumer goes on in b, by itself")
    stage.go_on(chance.uniform(1, 2.5))
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(a.start)
        stage.wait(starting.done, "a starts")
        starting.result()
    stage.tell("a comes back")
    back = time.monotonic()
    stage.wait(lambda: a.is_level or time.monotonic() - back > CATCH_UP_S, "a catches up")
    stage.go_on(chance.uniform(0, 1))
    for region in stage.regions.values():
        region.client.set_active_region(TOPIC, SUBSCRIPTION, "a")
    stage.tell("the active region is set to a")
    stage.wait(lambda: consumer.subscriber.region == "a", "the consumer goes back to a")
    stage.tell("the consumer goes on in a")
    stage.go_on(chance.uniform(2, 3))
    for writer in stage.writers.values():
        writer.end()
    stage.tell("the writers end")
    count = sum(len(writer.values) for writer in stage.writers.values())
    stage.wait(lambda: len(consumer.times) >= count or consumer.is_idle, "the consumer comes to the end")
    stage.wait(lambda: all(region.lag == "0" for region in stage.regions.values()), "every region has every record")
    stage.show()


def report(stage: Stage, differences: Sequence[Mapping[str, Any]]) -> None:
    consumer, subscriber = stage.consumer, stage.consumer.subscriber
    given = [value for writer in stage.writers.values() for value in writer.values]
    written = {name: len(writer.values) for name, writer in stage.writers.items()}
    by_region = ", ".join(f"{name} {count:,}" for name, count in written.items())
    console.print()
    show_result("written", f"{len(given):,} records: {by_region}")
    check_none_lost(given, consumer.times)
    show_result("lost", "0")
    check(subscriber.repeated == consumer.repeated, f"the subscriber counted other repeats: {subscriber.repeated}")
    show_result("repeated", f"{consumer.repeated:,}; dropped by the client: {subscriber.dropped:,}")
    show_result("the consumer's longest silence", f"{consumer.longest_s:.1f} s")
    check_equal(differences, written)
    show_result("verify --peer", "b and c equal a for each origin")


def check_none_lost(given: Iterable[str], times: Mapping[str, int]) -> None:
    lost = [value for value in given if not times.get(value)]
    check(not lost, f"{len(lost):,} records are lost: {', '.join(lost[:10])}")
    made_up = set(times) - set(given)
    check(not made_up, f"records came that were never written: {', '.join(sorted(made_up)[:10])}")


def verify(here: Region, peer: Region) -> list[dict[str, Any]]:
    """Return the output of ``fenceline verify --peer`` for two regions: an entry for each partition and origin."""
    command = [sys.executable, "-m", "fenceline_cli.main", "verify", TOPIC, "--url", here.url]
    command += ["--peer", f"{peer.name}={peer.url}", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    check(ended.returncode in (0, 1) and ended.stdout.startswith("["), f"verify failed: {ended.stdout}{ended.stderr}")
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return [{**entry, "peer": peer.name} for entry in found]


def check_equal(found: Sequence[Mapping[str, Any]], written: Mapping[str, int]) -> None:
    """Check that each peer keeps the same records of each origin, and as many as were written there."""
    for entry in found:
        where = f"peer={entry['peer']} partition={entry['partition']} origin={entry.get('origin')}"
        check(entry["differs_at"] is None, f"regions differ: {where} {entry['problem']} number={entry['differs_at']}")
        check(not entry["problem"], f"regions were not compared: {where} {entry['problem']}")
    for peer in {entry["peer"] for entry in found} or {"none"}:
        for origin, count in written.items():
            records = sum(one["records"] for one in found if (one["peer"], one["origin"]) == (peer, origin))
            check(records == count, f"a peer keeps {records:,} of {count:,} records: peer={peer} origin={origin}")


@contextmanager
def three_regions() -> Iterator[Mapping[str, Region]]:
    """Yield regions that run on a fresh directory, which end and are removed with the stage."""
    with tempfile.TemporaryDirectory(prefix="fenceline-") as directory, ExitStack() as stack:
        ports = dict(zip(REGIONS, free_ports(len(REGIONS)), strict=True))
        regions = {name: Region(name, Path(directory), ports) for name in REGIONS}
        pool = stack.enter_context(ThreadPoolExecutor())
        stack.callback(lambda: list(pool.map(Region.close, regions.values())))
        list(pool.map(Region.start, regions.values()))
        yield regions


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens. Each region must know the others' before any of them starts."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def drive(seed: int) -> None:
    with three_regions() as regions:
        console.print(f"three regions, a writer in each, a consumer of all in a (seed {seed})")
        stage = Stage(regions, seed)
        try:
            play(stage, random.Random(seed))
            with ThreadPoolExecutor() as pool:
                found = pool.map(verify, [regions["a"]] * 2, [regions["b"], regions["c"]])
                differences = [entry for entries in found for entry in entries]
        finally:
            stage.close()
        report(stage, differences)


def main() -> int:
    parser = argparse.ArgumentParser(description="Three regions of which one is killed, and a consumer that moves.")
    parser.add_argument("--seed", type=int, default=1, help="Decides what is written, and when a is killed.")
    given = parser.parse_args()
    try:
        drive(given.seed)
    except (ComparisonError, RuntimeError, OSError) as error:
        console.print(f"[red]✗[/] {error}", style="bold")
        return 1
    except FencelineError as error:
        console.print(f"[red]✗[/] {error.code}: {error.detail}", style="bold")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
