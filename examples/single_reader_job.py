"""A job with one reader and one writer, owned in a group by generation: Kafka's Single Reader/Writer use case.

The job reads every reading, keeps a total per sensor, and writes each total out. It may be started twice. It may be
stopped, and continued long after another start has taken its place. Still each reading is in the output once, in order:

- Each start owns the input for the group, so that no other process may read or commit as the group, and the output for
  writing. It owns both with its generation.

- A higher generation severs the previous owner, wherever it is in its work; a lower one is refused.

- Each output record carries the offset of its reading. Because the owner of the output sees all that can ever be in it,
  the last output record says where to go on, and nothing has to be committed in two places at once.

The driver starts generation 1, and severs it by generation 2 in the middle of its work. It stops generation 2 with
SIGSTOP, and starts generation 3. It then continues generation 2, and starts generation 1 once more.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from rich.table import Table
from stage import Child, ComparisonError, Event, check, console, say, serving, show_result

from fenceline import Client, CommittedOffset, ReadRecord, Record, Session, errors
from fenceline.errors import FencelineError
from fenceline.format.batch import StoredRecord

GROUP = "totals-job"
READINGS = 6_000
SENSORS = 7
PER_STEP = 20  # readings between two commits
LEASE_MS = 10_000


# The job


def work(client: Client, source: str, target: str, generation: int, end: int) -> None:
    """Do the work of a start: own both ends, go on where the output ends, and work up to ``end``.

    Raises:
        StaleGenerationError: A later start came before this one.
        SessionSeveredError, OwnerFencedError, ProducerFencedError: A later start came in the middle of the work.
    """
    with (
        client.session(lease_ms=LEASE_MS) as session,
        # Severing is one write, so that once the first of these is answered, the old reader cannot write either.
        client.own(f"{source}/0", group=GROUP, generation=generation, session=session),
        client.own(f"{target}/0", generation=generation, session=session) as writing,
        client.producer(target, owner=writing, linger_ms=0) as producer,
    ):
        totals, position = _resume(client, target)
        say(event="began", generation=generation, position=position)
        for readings in _readings(client, source, position, end, session):
            for reading in readings:
                sensor, amount = (reading.key or b"").decode(), int(reading.value or b"")
                totals[sensor] += amount
                said = {"total": totals[sensor], "reading": reading.offset, "generation": generation}
                producer.send(key=reading.key, value=json.dumps(said).encode())
            producer.flush()
            position = readings[-1].offset + 1
            committed = CommittedOffset(source, 0, position, f"generation {generation}")
            client.commit_offsets(GROUP, [committed], session_id=session.session_id)
            say(event="worked", generation=generation, position=position)


def _resume(client: Client, target: str) -> tuple[dict[str, int], int]:
    """Return the totals, and the reading to go on with, from the output.

    A job with more output would read its last record only, and keep its totals on a compacted topic.
    """
    totals: dict[str, int] = defaultdict(int)
    position = 0
    with client.reader(target, [0]) as reader:
        for _, record in reader:
            said = json.loads(record.value or b"")
            totals[(record.key or b"").decode()] = said["total"]
            position = said["reading"] + 1
    return totals, position


def _readings(client: Client, source: str, position: int, end: int, session: Session) -> Iterator[list[ReadRecord]]:
    """Yield the readings from ``position`` up to ``end``, a step at a time, as the owner of the group's reading."""
    while position < end:
        page = client.read(
            source, 0, offset=position, max_records=PER_STEP, wait_ms=1_000, group=GROUP, session_id=session.session_id
        )
        position = page.position
        if page.records:
            yield list(page.records)


# The driver


class Job:
    """The starts of the job, and the events of each."""

    def __init__(self, url: str, source: str, target: str) -> None:
        self._arguments = ["--url", url, "--source", source, "--target", target]
        self._changed = threading.Condition()
        self.said: dict[str, list[Event]] = defaultdict(list)
        self.children: dict[str, Child] = {}

    def start(self, name: str, generation: int) -> Child:
        arguments = ["--generation", str(generation), *self._arguments]
        self.children[name] = Child(__file__, arguments, lambda _, event: self._hear(name, event))
        return self.children[name]

    def wait_for(self, name: str, what: str, position: int = 0) -> Event:
        """Wait for a start's event ``what``, at ``position`` or later, and return it."""

        def found() -> Event | None:
            of_kind = (one for one in self.said[name] if one["event"] == what)
            return next((one for one in of_kind if one.get("position", position) >= position), None)

        with self._changed:
            event = self._changed.wait_for(found, timeout=60)
        if event is None:
            raise ComparisonError(
                f"{name} did not report '{what}' at {position} within 60 s; its last event: {self.said[name][-1:]}"
            )
        return event

    def close(self) -> None:
        for child in self.children.values():
            child.close()

    def _hear(self, name: str, event: Event) -> None:
        with self._changed:
            self.said[name].append(event)
            self._changed.notify_all()


def drive(url: str, run: str) -> None:
    source, target = f"readings-{run}", f"totals-{run}"
    with Client(url, retry_ms=2_000) as client:
        client.create_topic(source)
        client.create_topic(target)
        console.print(f"{READINGS:,} readings come into {source} at {url}; the job writes {target}")
        job = Job(url, source, target)
        try:
            ends = play(job, lambda start, end: give(client, source, start, end))
        finally:
            job.close()
        by_generation = compare(records_of(client, source), records_of(client, target))
        committed = client.committed_offsets(GROUP, topic=source, partition=0)
    check([one.offset for one in committed] == [READINGS], f"the group's offset is not at the end: {committed}")
    console.print()
    show_result("the output", f"{READINGS:,} totals, each reading once, in order, each total right")
    show_result("the group's offset", f"{committed[0].offset:,}, committed by {committed[0].metadata}")
    table = Table("start", "wrote", "ended by", title="The starts", title_justify="left")
    for name, end in ends.items():
        generation = int(name.split()[1])
        wrote = f"{by_generation[generation]:,}" if "again" not in name else "0"
        table.add_row(name, wrote, end)
    console.print()
    console.print(table)


def give(client: Client, source: str, start: int, end: int) -> None:
    with client.producer(source) as producer:
        producer.send_many(Record(b"%d" % (n % 13), key=b"sensor-%d" % (n % SENSORS)) for n in range(start, end))


def play(job: Job, give: Callable[[int, int], None]) -> dict[str, str]:
    """Start, sever, stop and continue; return the end of each start.

    The readings come by halves and quarters, so that no start reaches the end before the next has begun.
    """
    third = READINGS // 3
    give(0, READINGS // 2)
    job.start("generation 1", 1)
    job.wait_for("generation 1", "worked", third)
    second = job.start("generation 2", 2)
    began = job.wait_for("generation 2", "began")
    severed = job.wait_for("generation 1", "ended by")
    console.print(f"  generation 2 began at {began['position']:,} and severed generation 1: {severed['code']}")
    give(READINGS // 2, READINGS * 3 // 4)
    job.wait_for("generation 2", "worked", 2 * third)
    second.stop()
    job.start("generation 3", 3)
    began = job.wait_for("generation 3", "began")
    console.print(f"  generation 2 was stopped (SIGSTOP); generation 3 began at {began['position']:,}")
    give(READINGS * 3 // 4, READINGS)
    job.wait_for("generation 3", "worked", began["position"] + PER_STEP)
    second.go_on()
    late = job.wait_for("generation 2", "ended by")
    console.print(f"  generation 2 was continued, and met {late['code']}")
    job.wait_for("generation 3", "ended by")
    job.start("generation 1 again", 1)
    stale = job.wait_for("generation 1 again", "ended by")
    console.print(f"  generation 1 was started again, and met {stale['code']}")
    return {name: job.wait_for(name, "ended by")["code"] for name in job.children}


def records_of(client: Client, topic: str) -> list[StoredRecord]:
    with client.reader(topic, [0]) as reader:
        return [record for _, record in reader]


def compare(readings: Sequence[StoredRecord], totals: Sequence[StoredRecord]) -> Counter[int]:
    """Compare the output with that of a single undisturbed run; return how many records each generation wrote."""
    by_generation: Counter[int] = Counter()
    expected: dict[str, int] = defaultdict(int)
    seen = [json.loads(record.value or b"")["reading"] for record in totals]
    doubled = [reading for reading, count in Counter(seen).items() if count > 1]
    check(not doubled, f"readings are in the output twice: {doubled[:10]}")
    is_whole = seen == [record.offset for record in readings]
    check(is_whole, f"the output lacks readings, or has them out of order: {len(seen)}")
    for reading, record in zip(readings, totals, strict=True):
        sensor, said = (reading.key or b"").decode(), json.loads(record.value or b"")
        expected[sensor] += int(reading.value or b"")
        check(said["total"] == expected[sensor], f"a total is wrong: reading={reading.offset} total={said['total']}")
        by_generation[said["generation"]] += 1
    generations = [json.loads(record.value or b"")["generation"] for record in totals]
    check(generations == sorted(generations), "a generation wrote after a later one")
    return by_generation


def main() -> int:
    parser = argparse.ArgumentParser(description="A job with one reader and one writer, however often it is started.")
    parser.add_argument("--url", help="A running fenceline service; left out, one is started.")
    for name in ("--source", "--target", "--generation"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.generation is not None:
        return be_a_start(given)
    try:
        with serving(given.url) as url:
            drive(url, str(time.time_ns()))
    except (ComparisonError, RuntimeError, OSError) as error:
        console.print(f"[red]✗[/] {error}", style="bold")
        return 1
    except FencelineError as error:
        console.print(f"[red]✗[/] {error.code}: {error.detail}", style="bold")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def be_a_start(given: argparse.Namespace) -> int:
    with Client(given.url) as client:
        try:
            work(client, given.source, given.target, int(given.generation), READINGS)
        except (
            errors.StaleGenerationError,
            errors.SessionSeveredError,
            errors.SessionExpiredError,
            errors.OwnerFencedError,
            errors.ProducerFencedError,
        ) as error:
            say(event="ended by", code=error.code)
            return 3
    say(event="ended by", code="the end of its work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
