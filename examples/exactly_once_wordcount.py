"""A word count by three workers, each killed with kill -9 again and again: still each word is counted exactly once.

The workers share a topic of words as one group, and each has some of its partitions. A worker repeats one transaction,
in which it reads some words, writes each word's new total, and moves the group's offsets past the words. Totals and
offsets show together or not at all:

- A worker that starts has the transactional id of its predecessor, so that its first request fences the predecessor,
  and aborts the transaction that it left open.

- It owns its partitions for the group with the number of its start, which severs the owner before it.

- Then it goes on at the group's committed offsets, and with the totals that are committed.

The driver kills workers at random, in the middle of whatever they do, and starts them again. Sometimes it starts a
worker a second time while the first one still runs, which must then be fenced.

At the end the driver counts: each word must have exactly one committed total, and each total must be right.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from stage import Child, ComparisonError, Event, check, console, say, serving, show_result

from fenceline import (
    Client,
    CommitOutcomeUnknownError,
    CommittedOffset,
    Isolation,
    OpenTransaction,
    Owner,
    ReadRecord,
    Record,
    TransactionAbortedError,
    errors,
)
from fenceline.errors import FencelineError
from fenceline.format.batch import StoredRecord

GROUP = "word-count"
INPUTS = 5_000
WORKERS = 3
PARTITIONS = 6
PER_TRANSACTION = 24  # words
PER_DISTURBANCE = 250  # words that are counted between two of them, on average
LEASE_MS = 10_000
STALLED_S = 60
WORDS = ["log", "topic", "offset", "segment", "writer", "reader", "cloud", "item", "lease", "fence", "epoch", "session"]
WORDS += ["group", "commit", "abort", "marker", "batch", "record", "key", "value", "once", "twice", "never", "always"]

By = Mapping[int, Sequence[StoredRecord]]  # by partition


# A worker


class Worker:
    """A start of a worker, and what it knows of its partitions: where to go on, and the totals so far."""

    def __init__(self, client: Client, source: str, target: str, partitions: Sequence[int]) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._partitions = partitions
        self._positions: dict[int, int] = {}
        self._totals: Counter[bytes] = Counter()

    def work(self, transactional_id: str, generation: int, is_over: threading.Event) -> None:
        """Count the words of the partitions, until ``is_over``.

        Raises:
            ProducerFencedError: A later start has the transactional id.
            SessionSeveredError, OwnerFencedError: A later start owns the partitions.
            CommitOutcomeUnknownError: A commit was not answered. The next start goes on from what became of it.
        """
        # --8<-- [start:work]
        owned = [f"{self._source}/{partition}" for partition in self._partitions]
        with (
            # The order matters: once the producer exists, the worker before this one can commit nothing more.
            self._client.transactional_producer(transactional_id) as producer,
            self._client.own(owned, group=GROUP, generation=generation, lease_ms=LEASE_MS) as owner,
        ):
            self._go_back()
            while not is_over.is_set():
                words = self._read(owner)
                if not any(words.values()):
                    is_over.wait(0.02)
                    continue
                try:
                    with producer.transaction() as txn:
                        self._count(txn, words, generation)
                        offsets = [CommittedOffset(self._source, n, offset) for n, offset in self._positions.items()]
                        txn.send_offsets(GROUP, offsets, session=owner)
                except TransactionAbortedError as error:
                    say(event="aborted", code=getattr(error.reason, "code", type(error.reason).__name__))
                    self._go_back()
        # --8<-- [end:work]

    def _read(self, owner: Owner) -> dict[int, Sequence[ReadRecord]]:
        """Return the next words of each partition, as the owner of the group's reading."""
        words: dict[int, Sequence[ReadRecord]] = {}
        for partition in self._partitions:
            page = self._client.read(
                self._source,
                partition,
                offset=self._positions[partition],
                max_records=PER_TRANSACTION // len(self._partitions),
                isolation="read_committed",
                group=GROUP,
                session_id=owner.session_id,
            )
            words[partition], self._positions[partition] = page.records, page.position
        return words

    # --8<-- [start:count]
    def _count(self, txn: OpenTransaction, words: dict[int, Sequence[ReadRecord]], generation: int) -> None:
        for partition, some in words.items():
            for word in some:
                key = word.key or b""
                self._totals[key] += 1
                total = {"total": self._totals[key], "word": word.offset, "by": generation}
                txn.send(self._target, key=key, value=json.dumps(total).encode(), partition=partition)

    # --8<-- [end:count]

    def _go_back(self) -> None:
        """Go on where the last committed transaction ended."""
        committed = self._client.committed_offsets(GROUP, topic=self._source, require_stable=True)
        self._positions = dict.fromkeys(self._partitions, 0)
        self._positions |= {one.partition: one.offset for one in committed if one.partition in self._positions}
        self._totals.clear()
        with self._client.reader(self._target, self._partitions, isolation="read_committed") as reader:
            for _, record in reader:
                self._totals[record.key or b""] = json.loads(record.value or b"")["total"]


def be_a_worker(given: argparse.Namespace) -> int:
    is_over = threading.Event()
    threading.Thread(target=wait_for_the_driver, args=(is_over,), daemon=True).start()
    number, generation = int(given.worker), int(given.generation)
    with Client(given.url) as client:
        worker = Worker(client, given.source, given.target, range(number, PARTITIONS, WORKERS))
        try:
            worker.work(f"{given.source}-worker-{number}", generation, is_over)
        except (
            CommitOutcomeUnknownError,
            errors.OwnerFencedError,
            errors.ProducerFencedError,
            errors.SessionExpiredError,
            errors.SessionSeveredError,
            errors.StaleGenerationError,
        ) as error:
            say(event="ended by", code=error.code)
            return 3
    return 0


def wait_for_the_driver(is_over: threading.Event) -> None:
    sys.stdin.read()  # until the driver closes it
    is_over.set()


# The driver


class Crew:
    """The workers' processes: which run, how often each was started, and what ended them."""

    def __init__(self, url: str, source: str, target: str) -> None:
        self._arguments = ["--url", url, "--source", source, "--target", target]
        self._lock = threading.Lock()
        self._starts: Counter[int] = Counter()
        self._running: dict[int, Child] = {}  # by worker: its last start
        self._all: list[Child] = []
        self.killed = 0
        self.doubled = 0
        self.ended_by: Counter[str] = Counter()

    def start(self, number: int) -> None:
        self._starts[number] += 1
        of_start = ["--worker", str(number), "--generation", str(self._starts[number])]
        with self._lock:  # before its first event
            child = Child(__file__, [*self._arguments, *of_start], lambda it, event: self._hear(number, it, event))
            self._running[number] = child
        self._all.append(child)

    def start_missing(self) -> None:
        for number in range(WORKERS):
            if number not in self._running:
                self.start(number)

    def disturb(self, chance: random.Random) -> None:
        """Kill a worker with kill -9, or start it a second time."""
        number = chance.randrange(WORKERS)
        if self.killed and chance.random() < 0.2:
            self.doubled += 1
            self.start(number)
            return
        with self._lock:
            child = self._running.pop(number, None)
        if child is not None:
            self.killed += 1
            child.kill()

    def close(self) -> None:
        for child in self._all:
            child.close()

    def _hear(self, number: int, child: Child, event: Event) -> None:
        with self._lock:
            match event:
                case {"event": "ended by" | "aborted", "code": code}:
                    self.ended_by[code] += 1
                case {"event": "ended"} if self._running.get(number) is child:
                    del self._running[number]


class Progress:
    """The number of totals that a reader of what is committed has seen by now, counted by a thread."""

    def __init__(self, client: Client, target: str) -> None:
        self.committed = 0
        self._is_over = False
        self._reader = client.reader(target, follow=True, isolation="read_committed")
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        try:
            for _, records in self._reader.pages():
                self.committed += len(records)
        except (FencelineError, RuntimeError):  # a reader that is closed shows nothing more
            if not self._is_over:
                raise

    def close(self) -> None:
        self._is_over = True
        self._reader.close()


def drive(url: str, run: str, inputs: int, seed: int) -> None:
    source, target = f"words-{run}", f"totals-{run}"
    chance = random.Random(seed)
    with Client(url, retry_ms=2_000) as client:
        for topic in (source, target):
            client.create_topic(topic, partitions=PARTITIONS)
        console.print(f"{inputs:,} words come into {source} at {url}; {WORKERS} workers count them (seed {seed})")
        crew, progress = Crew(url, source, target), Progress(client, target)
        try:
            play(client, source, crew, progress, inputs, chance)
        finally:
            crew.close()
            progress.close()
        report(client, crew, source, target, inputs)


def play(client: Client, source: str, crew: Crew, progress: Progress, inputs: int, chance: random.Random) -> None:
    """Give the words, keep the workers running, and disturb them whenever the count has come so far.

    The words come a few steps ahead of the count, so that no speed lets the workers escape a disturbance.
    """
    disturbances = max(inputs // PER_DISTURBANCE, min(6, inputs))
    points = sorted(chance.sample(range(inputs), disturbances))
    given = 0
    began = shown = moved = time.monotonic()
    committed = -1
    with client.producer(source) as producer:
        while committed < inputs:
            ahead = points[2] if len(points) > 2 else inputs
            producer.send_many(Record(None, key=chance.choice(WORDS).encode()) for _ in range(given, ahead))
            given = max(given, ahead)
            crew.start_missing()
            if points and progress.committed >= points[0]:
                points.pop(0)
                time.sleep(chance.random() * 0.2)  # into the middle of whatever they do
                crew.disturb(chance)
            now = time.monotonic()
            if progress.committed != committed:
                committed, moved = progress.committed, now
            check(now - moved < STALLED_S, f"no word was counted for {STALLED_S} s: {committed:,} of {inputs:,}")
            if now - shown >= 1:
                shown = now
                console.print(
                    f"  {now - began:3.0f} s: {committed:,} of {inputs:,} counted, {crew.killed} killed, "
                    f"{crew.doubled} started twice"
                )
            time.sleep(0.01)


def report(client: Client, crew: Crew, source: str, target: str, inputs: int) -> None:
    words, totals = records_of(client, source), records_of(client, target)
    counts = compare(words, totals)
    effects = sum(map(len, totals.values()))
    check(effects == inputs, f"the committed effects are not as many as the words: {effects}")
    committed = client.committed_offsets(GROUP, topic=source, require_stable=True)
    offsets = {one.partition: one.offset for one in committed}
    ends = {partition: at.next_offset for partition, at in client.topic_offsets(source).items()}
    check(offsets == {n: end for n, end in ends.items() if end}, f"the group's offsets are not at the ends: {offsets}")
    written = sum(map(len, records_of(client, target, isolation="read_uncommitted").values()))
    refused = ", ".join(f"{code} {count}" for code, count in sorted(crew.ended_by.items())) or "none"
    top = ", ".join(f"{word.decode()} {count}" for word, count in counts.most_common(5))
    console.print()
    show_result("committed effects", f"{effects:,} of {inputs:,} words, each exactly once, in order, each total right")
    show_result("the group's offsets", "at the end of each partition")
    show_result("the workers", f"{crew.killed} killed (kill -9), {crew.doubled} started twice; refusals: {refused}")
    show_result("records of aborted transactions", f"{written - effects:,}, which no reader of committed ones saw")
    show_result("the count", f"{len(counts)} words: {top}, …")


def records_of(client: Client, topic: str, *, isolation: Isolation = "read_committed") -> By:
    records: dict[int, list[StoredRecord]] = {partition: [] for partition in range(PARTITIONS)}
    with client.reader(topic, isolation=isolation) as reader:
        for partition, some in reader.pages():
            records[partition] += some
    return records


def compare(words: By, totals: By) -> Counter[bytes]:
    """Compare the totals with those of a single undisturbed count; return how often each word was counted."""
    counts: Counter[bytes] = Counter()
    for partition, given in words.items():
        said = [(record, json.loads(record.value or b"")) for record in totals[partition]]
        seen = Counter(one["word"] for _, one in said)
        doubled = sorted(offset for offset, count in seen.items() if count > 1)
        check(not doubled, f"words were counted twice: partition={partition} offsets={doubled[:10]}")
        lost = sorted({record.offset for record in given} - set(seen))
        check(not lost, f"words were not counted: partition={partition} offsets={lost[:10]}")
        check(len(said) == len(given), f"words were counted that are not there: partition={partition}")
        expected: dict[bytes | None, int] = defaultdict(int)
        for word, (record, one) in zip(given, said, strict=True):
            expected[word.key] += 1
            where = f"partition={partition} offset={record.offset} word={one['word']}"
            check(word.offset == one["word"], f"words were counted out of order: {where}")
            check((word.key, expected[word.key]) == (record.key, one["total"]), f"a total is wrong: {where}")
        by = [one["by"] for _, one in said]
        check(by == sorted(by), f"a worker wrote after a later start: partition={partition}")
        counts.update({key or b"": count for key, count in expected.items()})
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description="A word count whose workers are killed, and which is still exact.")
    parser.add_argument("--url", help="A running fenceline service; left out, one is started.")
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"How many words there are; {INPUTS} if left out.")
    parser.add_argument("--seed", type=int, default=1, help="Decides the words, and when which worker is killed.")
    for name in ("--source", "--target", "--worker", "--generation"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        return be_a_worker(given)
    try:
        with serving(given.url) as url:
            drive(url, str(time.time_ns()), given.inputs, given.seed)
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
