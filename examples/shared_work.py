"""Four workers share the partitions of a topic, while they are killed, frozen and started at random.

The workers are one consumer group. No program says which partitions are theirs: the group shares the partitions
out, and shares them out again whenever a worker comes or goes. A worker handles a record, and then commits it:

- A worker that is killed (kill -9) says nothing. When its lease is over, the others get its partitions, from the last
  commit on.

- A worker that is frozen (SIGSTOP) beyond its lease does not know that its partitions are another worker's by now. When
  it goes on, the service refuses its commit, and it joins again.

At the end the driver compares what every worker did and committed: each record was handled, a worker began where the
one before it had committed, and no commit of a worker took effect after another one had its partition.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.table import Table
from stage import Child, ComparisonError, Event, check, commands, console, say, serving, show_result

from fenceline import Client, Record, TopicPartition, errors
from fenceline.errors import FencelineError

GROUP = "workers"
RECORDS = 6_000
WORKERS = 4
PARTITIONS = 12
WORK_S = 0.004  # for each record
LEASE_MS = 6_000
BEYOND_LEASE_S = LEASE_MS / 1_000 + 3
STALLED_S = 60


class Begun(NamedTuple):
    """A worker got a partition, with a fencing token, at a time of this machine's clock."""

    worker: str
    partition: int
    token: int
    at: float


class Done(NamedTuple):
    """A worker handled a record, under the token of its partition."""

    worker: str
    partition: int
    offset: int
    token: int


class Committed(NamedTuple):
    """The service took a commit of a worker, which was sent at ``at``: the group reads on at ``offset``."""

    worker: str
    partition: int
    offset: int
    token: int
    at: float


# A worker


# --8<-- [start:work]
def work(client: Client, topic: str) -> None:
    """Handle the records of whatever partitions the group gives this worker."""
    with client.consumer(
        topic,
        group=GROUP,
        start="earliest",
        commit="manual",
        session_timeout_ms=LEASE_MS,
        on_assigned=lambda partitions: say_begun(consumer.token, partitions),
        on_lost=lambda partitions: say(event="lost", partitions=[one.partition for one in partitions]),
        on_revoked=lambda partitions: say(event="gave up", partitions=[one.partition for one in partitions]),
    ) as consumer:
        for _, partition, record in consumer:
            try:
                token = consumer.token(topic, partition)
                time.sleep(WORK_S)  # the work itself
                say(event="did", partition=partition, offset=record.offset, token=token)
                freeze_if_told()
                at = time.monotonic()
                consumer.commit(topic, partition, record.offset + 1)
            except errors.StaleMemberEpochError:
                say(event="refused", partition=partition, offset=record.offset)
            else:
                say(event="committed", partition=partition, offset=record.offset + 1, token=token, at=at)


# --8<-- [end:work]


def say_begun(token_of: Callable[[str, int], int], partitions: Sequence[TopicPartition]) -> None:
    tokens = {}
    for one in partitions:
        with suppress(errors.StaleMemberEpochError):  # lost at once; `on_lost` says so
            tokens[one.partition] = token_of(one.topic, one.partition)
    say(event="begun", tokens=tokens, at=time.monotonic())


def be_a_worker(given: argparse.Namespace) -> int:
    threading.Thread(target=wait_for_the_driver, daemon=True).start()
    try:
        with Client(given.url, client_name=f"worker {given.worker}") as client:
            work(client, given.topic)
    except KeyboardInterrupt:
        pass
    return 0


def wait_for_the_driver() -> None:
    for _ in commands():
        is_to_freeze.set()
    os.kill(os.getpid(), signal.SIGINT)  # leaves the group, as Ctrl-C does


def freeze_if_told() -> None:
    """Freeze this process at the worst moment, after the work and before its commit, if the driver said so."""
    if is_to_freeze.is_set():
        is_to_freeze.clear()
        say(event="freezes")
        os.kill(os.getpid(), signal.SIGSTOP)


is_to_freeze = threading.Event()


# The driver


@dataclass
class Story:
    """What all workers said, in the order in which the driver heard it."""

    begun: list[Begun] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    gave_up: Counter[str] = field(default_factory=Counter)
    holders: dict[int, tuple[int, str]] = field(default_factory=dict)  # by partition: its highest token, and whose

    def hear(self, worker: str, event: Event) -> None:
        match event:
            case {"event": "begun", "tokens": tokens, "at": at}:
                for partition, token in tokens.items():
                    self.begun.append(Begun(worker, int(partition), token, at))
                    highest = self.holders.get(int(partition), (-1, ""))
                    self.holders[int(partition)] = max(highest, (token, worker))
            case {"event": "did", "partition": partition, "offset": offset, "token": token}:
                self.done.append(Done(worker, partition, offset, token))
            case {"event": "committed", "partition": partition, "offset": offset, "token": token, "at": at}:
                self.committed.append(Committed(worker, partition, offset, token, at))
            case {"event": "refused"}:
                self.refused[worker] += 1
            case {"event": "lost", "partitions": partitions}:
                self.lost[worker] += len(partitions)
            case {"event": "gave up", "partitions": partitions}:
                self.gave_up[worker] += len(partitions)

    @property
    def handled(self) -> int:
        return len({(one.partition, one.offset) for one in self.done})


class Crew:
    """The workers' processes, by letter: which run, and what was done to them."""

    def __init__(self, url: str, topic: str) -> None:
        self._arguments = ["--url", url, "--topic", topic]
        self._lock = threading.Lock()
        self._running: dict[str, Child] = {}
        self._frozen: dict[str, float] = {}  # until when
        self._missing: dict[str, float] = {}  # until when
        self.story = Story()
        self.starts: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.frozen: Counter[str] = Counter()

    def start(self, worker: str) -> None:
        self.starts[worker] += 1
        self._running[worker] = Child(
            __file__, [*self._arguments, "--worker", worker], lambda _, event: self._hear(worker, event)
        )

    def miss(self, worker: str, for_s: float) -> None:
        """Let a worker be started later."""
        self._missing[worker] = time.monotonic() + for_s

    def kill(self, worker: str) -> None:
        self.killed[worker] += 1
        self._frozen.pop(worker, None)
        self._running.pop(worker).kill()

    def freeze(self, worker: str, for_s: float) -> None:
        """Freeze a worker wherever it is; for longer than its lease, between a record's work and its commit."""
        self.frozen[worker] += 1
        if for_s < BEYOND_LEASE_S:
            self._frozen[worker] = time.monotonic() + for_s
            self._running[worker].stop()
        else:
            self._frozen[worker] = math.inf  # until it says that it freezes
            self._running[worker].send(do="freeze")

    def tend(self) -> None:
        """Start those whose time has come, and let those go on that were frozen for long enough."""
        now = time.monotonic()
        for worker in [one for one, until in self._missing.items() if until <= now]:
            del self._missing[worker]
            self.start(worker)
        for worker in [one for one, until in self._frozen.items() if until <= now]:
            del self._frozen[worker]
            self._running[worker].go_on()

    @property
    def awake(self) -> Sequence[str]:
        return sorted(self._running.keys() - self._frozen.keys())

    @property
    def is_whole(self) -> bool:
        return not self._missing and all(
            until == math.inf for until in self._frozen.values()
        )  # inf: had no record more

    def state_of(self, worker: str) -> str:
        if worker in self._frozen:
            return "[cyan]frozen[/]"
        return "" if worker in self._running else "[red]dead[/]"

    def close(self) -> None:
        for child in self._running.values():
            child.close()

    def _hear(self, worker: str, event: Event) -> None:
        with self._lock:
            if event == {"event": "freezes"}:
                self._frozen[worker] = time.monotonic() + BEYOND_LEASE_S
            self.story.hear(worker, event)


def drive(url: str, topic: str, records: int, seed: int) -> None:
    chance = random.Random(seed)
    with Client(url, retry_ms=2_000) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        console.print(
            f"{records:,} records come into {topic} at {url}, which has {PARTITIONS} partitions; {WORKERS} workers "
            f"share them (seed {seed})"
        )
        crew = Crew(url, topic)
        for worker in "ABCD"[:WORKERS]:
            crew.miss(worker, chance.random() * 2)
        began = time.monotonic()
        try:
            play(client, topic, crew, records, chance)
        finally:
            crew.close()
        report(client, topic, crew, time.monotonic() - began)


def play(client: Client, topic: str, crew: Crew, records: int, chance: random.Random) -> None:
    """Produce the records little by little, and disturb the workers, until all records are handled and committed."""
    story, disturbances = crew.story, disturbances_of(records, chance)
    began = shown = moved = time.monotonic()
    given, handled = 0, -1
    with client.producer(topic) as producer:
        while True:
            crew.tend()
            ahead = min(records, story.handled + 40 * WORKERS)
            producer.send_many(Record(b"%d" % n, key=b"%d" % n) for n in range(given, ahead))
            given = max(given, ahead)
            if disturbances and story.handled >= disturbances[0][0] and crew.awake:
                disturb(crew, disturbances.pop(0)[1], chance)
            now = time.monotonic()
            if story.handled != handled:
                handled, moved = story.handled, now
            check(now - moved < STALLED_S, f"no record was handled for {STALLED_S} s: {handled:,} of {records:,}")
            if now - shown >= 1:
                shown = now
                console.print(line(now - began, handled, records, crew))
            if handled == records and crew.is_whole and not disturbances:
                producer.flush()
                if is_all_committed(client, topic):
                    return
            time.sleep(0.02)


def disturbances_of(records: int, chance: random.Random) -> list[tuple[int, str]]:
    """Return what is done to the workers, each after so many records: one of each kind at least."""
    kinds = ["freeze", "kill", "nap", *chance.choices(["freeze", "kill", "nap"], k=max(records // 1_000 - 2, 0))]
    points = sorted(chance.sample(range(records // 10, records * 9 // 10), len(kinds)))
    return list(zip(points, kinds, strict=True))


def disturb(crew: Crew, kind: str, chance: random.Random) -> None:
    worker = chance.choice(crew.awake)
    match kind:
        case "kill":
            crew.kill(worker)
            crew.miss(worker, chance.random() * 3)
        case "freeze":
            crew.freeze(worker, BEYOND_LEASE_S)
        case _:
            crew.freeze(worker, chance.random() * 2)  # its lease goes on


def line(seconds: float, handled: int, records: int, crew: Crew) -> str:
    held = "".join(crew.story.holders.get(partition, (0, "·"))[1] for partition in range(PARTITIONS))
    states = [f"{worker} {state}" for worker in "ABCD"[:WORKERS] if (state := crew.state_of(worker))]
    return f"  {seconds:3.0f} s: {handled:5,} of {records:,}   partitions {held}   {', '.join(states)}".rstrip()


def is_all_committed(client: Client, topic: str) -> bool:
    committed = {one.partition: one.offset for one in client.committed_offsets(GROUP, topic=topic)}
    ends = {partition: at.next_offset for partition, at in client.topic_offsets(topic).items()}
    return committed == {partition: end for partition, end in ends.items() if end}


def report(client: Client, topic: str, crew: Crew, seconds: float) -> None:
    story = crew.story
    ends = {partition: at.next_offset for partition, at in client.topic_offsets(topic).items()}
    twice = compare(ends, story.begun, story.done, story.committed)
    table = Table("worker", "starts", "killed", "frozen", "got", "gave up", "lost", "records", "commits refused")
    for worker in "ABCD"[:WORKERS]:
        got = sum(one.worker == worker for one in story.begun)
        did = sum(one.worker == worker for one in story.done)
        counts = (crew.starts, crew.killed, crew.frozen), (story.gave_up, story.lost), (story.refused,)
        before, moved, refused = ([str(count[worker]) for count in some] for some in counts)
        table.add_row(worker, *before, str(got), *moved, f"{did:,}", *refused)
    console.print()
    console.print(table)
    show_result(
        "handled", f"{sum(ends.values()):,} records, each at least once, {twice:,} of them again, in {seconds:.0f} s"
    )
    show_result("each start of a partition", f"{len(story.begun)} times, never before what was committed by then")
    show_result("commits of removed workers", f"{sum(story.refused.values())} refused, none took effect")
    show_result("the group's offsets", "at the end of each partition")


def compare(
    ends: Mapping[int, int], begun: Sequence[Begun], done: Sequence[Done], committed: Sequence[Committed]
) -> int:
    """Compare what the workers did with what a group promises; return how many records were handled again."""
    times = Counter((one.partition, one.offset) for one in done)
    lost = [
        (partition, offset) for partition, end in ends.items() for offset in range(end) if not times[partition, offset]
    ]
    check(not lost, f"records were not handled: {lost[:10]}")
    tenures: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in done:
        tenures[one.partition, one.token].append(one.offset)
    for (partition, token), offsets in tenures.items():
        where = f"partition={partition} token={token}"
        check(
            offsets == list(range(offsets[0], offsets[0] + len(offsets))), f"records were handled out of order: {where}"
        )
        before = max((one.offset for one in committed if one.partition == partition and one.token < token), default=0)
        check(offsets[0] >= before, f"a worker began before what was committed: {where} offset={offsets[0]} < {before}")
    for owner in (begun, done):
        holders = defaultdict(set)
        for one in owner:
            holders[one.partition, one.token].add(one.worker)
        doubled = sorted(place for place, workers in holders.items() if len(workers) > 1)
        check(not doubled, f"two workers had a partition under one token: {doubled[:10]}")
    first_at = {(one.partition, one.token): one.at for one in reversed(begun)}
    for commit in committed:
        later = [at for (n, token), at in first_at.items() if n == commit.partition and token > commit.token]
        check(
            not later or commit.at <= min(later),
            f"a removed worker's commit took effect: partition={commit.partition} offset={commit.offset} "
            f"worker={commit.worker} token={commit.token}",
        )
    return sum(count - 1 for count in times.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Workers of a group that are killed and frozen, and lose no record.")
    parser.add_argument("--url", help="A running fenceline service; left out, one is started.")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"How many there are; {RECORDS} if left out.")
    parser.add_argument("--seed", type=int, default=1, help="Decides what is done to which worker, and when.")
    for name in ("--topic", "--worker"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        return be_a_worker(given)
    try:
        with serving(given.url) as url:
            drive(url, f"work-{time.time_ns()}", given.records, given.seed)
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
