"""The main job, from end to end: real events through the HTTP API into a partitioned log, and back, byte for byte.

The demo starts a server on a fresh directory, loads every event, lets writers race, and sends a batch twice. Then it
reads everything back, compares it with the input, verifies what is stored, and reports.

The directory stays; the report says how to look around in it. If anything is not as promised, the exit code is 1, and
the last line says why.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import hashlib
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from fenceline import Client, ProducerRef, Record, errors
from fenceline.errors import FencelineError
from fenceline.format.batch import StoredRecord
from fenceline.format.partitioner import partition_of
from fenceline.model.results import SegmentEntry
from fenceline_cli.dev_server.process import ServerProcess

FENCELINE = ".venv/bin/fenceline"
DATA = Path(__file__).parent / "data"
REVIEWS, LINES, RACE, RESENT = "reviews", "access-log", "race", "resent"
PARTITIONS = 8
WRITERS = 4
RACED_OFFSETS = 200
RESENT_RECORDS = 1_000
STEP = 20_000  # records between two moves of a progress bar
PAGE_BYTES = 4 * 1024 * 1024
STEPS = 10
INTRODUCTION = f"""\
The main job, in {STEPS} steps and about 15 s. A server starts on a fresh directory, and 588,805 real events go through
its HTTP API into a partitioned log. {WRITERS} writers race for each offset, and a batch is sent twice. Everything is
read back, compared with the input byte for byte, and verified where it is stored.
"""

# Through a pipe, lines are not wrapped at the terminal's width.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


class ComparisonError(Exception):
    """A difference between what came back and what went in."""


@dataclass
class Report:
    """The measurements, one on each line."""

    rows: list[tuple[str, str]] = field(default_factory=list)

    def add(self, what: str, result: str) -> None:
        self.rows.append((what, result))
        console.print(f"[green]✓[/] {len(self.rows)}/{STEPS} {what}: {result}")

    def add_rate(self, what: str, count: int, seconds: float) -> None:
        self.add(what, f"{count:,} in {seconds:.1f} s, {count / seconds:,.0f}/s")


def main() -> int:
    started = time.monotonic()
    console.print(INTRODUCTION)
    directory = fresh_directory()
    report = Report()
    try:
        with ServerProcess(directory) as server, Client(server.url) as client:
            console.print(f"serving {directory} at {server.url}")
            with console.status("unpacking the input"):
                events, lines = read_input(report)
            load_reviews(client, events, report)
            load_lines(client, lines, report)
            with console.status("racing"):
                race(client, report)
            resend(client, events[:RESENT_RECORDS], report)
            compare_reviews(client, events, report)
            compare_lines(client, lines, report)
            report_sizes(client, report)
        verify(directory, report)
    except ComparisonError as error:
        return failed(f"the comparison failed: {error}")
    except FencelineError as error:
        return failed(f"{error.code}: {error.detail}")
    except (RuntimeError, OSError) as error:
        return failed(str(error))
    except KeyboardInterrupt:
        return 130
    show(report, directory, time.monotonic() - started)
    return 0


def failed(why: str) -> int:
    console.print(f"[red]✗[/] {why}", style="bold")
    return 1


def fresh_directory() -> Path:
    """Return the first of ``demo-data``, ``demo-data-2``, … that does not exist yet."""
    number = 1
    while (directory := Path("demo-data" if number == 1 else f"demo-data-{number}")).exists():
        number += 1
    return directory


@contextmanager
def bar(what: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress, progress.add_task(what, total=total)


def read_input(report: Report) -> tuple[list[Record], list[Record]]:
    """Read both files, measured apart from the rest, because unpacking bzip2 is not the log's work."""
    started = time.monotonic()
    reviews = bz2.decompress((DATA / "anonreviews.csv.bz2").read_bytes()).split(b"\r\n")[1:-1]
    events = [Record(line, key=line[: line.index(b",")], timestamp=time_of_review(line)) for line in reviews]
    lines = [Record(line, timestamp=time_of_request(line)) for line in input_lines().split(b"\n")[:-1]]
    # All of this stays in memory, so that the collector need not walk over it while the clock runs.
    gc.freeze()
    report.add_rate("read and parsed the input", len(events) + len(lines), time.monotonic() - started)
    return events, lines


def input_lines() -> bytes:
    return gzip.decompress((DATA / "apache_access.log.gz").read_bytes())


def time_of_review(line: bytes) -> int | None:
    with suppress(ValueError):
        return ms_of(datetime.fromisoformat(line[line.rindex(b",") + 1 :].decode()).replace(tzinfo=UTC))
    return None


def time_of_request(line: bytes) -> int | None:
    with suppress(ValueError):
        text = line[line.index(b"[") + 1 : line.index(b"]")].decode()
        return ms_of(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z"))
    return None


def ms_of(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def load_reviews(client: Client, events: Sequence[Record], report: Report) -> None:
    client.create_topic(REVIEWS, partitions=PARTITIONS)
    started = time.monotonic()
    with client.producer(REVIEWS) as producer, bar("loading", len(events)) as (progress, task):
        for at in range(0, len(events), STEP):
            producer.send_many(events[at : at + STEP])
            progress.update(task, completed=producer.acknowledged)
        producer.flush()
    report.add_rate(f"loaded reviews into {PARTITIONS} partitions", len(events), time.monotonic() - started)


def load_lines(client: Client, lines: Sequence[Record], report: Report) -> None:
    client.create_topic(LINES)
    started = time.monotonic()
    with client.producer(LINES) as producer:
        producer.send_many(lines)
        producer.flush()
    report.add_rate("loaded access-log lines", len(lines), time.monotonic() - started)


def race(client: Client, report: Report) -> None:
    """Let writers race by expected offset (KIP-27): one of them wins each offset, and the log names the same one."""
    client.create_topic(RACE)
    start = threading.Barrier(WRITERS)

    def write(name: bytes) -> tuple[bytes, list[int], int]:
        won: list[int] = []
        refused = expected = 0
        with Client(client.url) as mine:
            start.wait()
            while expected < RACED_OFFSETS:
                try:
                    appended = mine.produce(RACE, 0, [Record(name)], expected_offset=expected)
                except errors.OffsetMismatchError as error:
                    refused += 1
                    expected = error.next_offset
                else:
                    won.append(appended.base_offset)
                    expected = appended.next_offset
        return name, won, refused

    with ThreadPoolExecutor(WRITERS) as pool:
        results = list(pool.map(write, [b"writer-%d" % number for number in range(WRITERS)]))
    winners = Counter(offset for _, won, _ in results for offset in won)
    check(winners == Counter(range(RACED_OFFSETS)), f"an offset of the race was won twice or never: {winners}")
    with client.reader(RACE) as reader:
        stored = {record.offset: record.value for _, record in reader}
    named = {offset: name for name, won, _ in results for offset in won}
    check(stored == named, "the log names other winners than the answers did")
    wins = " + ".join(str(len(won)) for _, won, _ in results)
    refusals = sum(refused for _, _, refused in results)
    result = f"{wins} = {len(stored)} offsets, each won once; {refusals} refused"
    report.add(f"{WRITERS} writers raced by expected offset", result)


def resend(client: Client, records: Sequence[Record], report: Report) -> None:
    """Send a whole batch twice, as after a lost answer: the log stores it once, and answers with its first offsets."""
    client.create_topic(RESENT)
    producer = ProducerRef(*client.producer_id(), sequence=0)
    first = client.produce(RESENT, 0, records, producer=producer)
    second = client.produce(RESENT, 0, records, producer=producer)
    end = client.offsets(RESENT, 0).bounds.next_offset
    check(not first.duplicate and second.duplicate, "a batch that was sent twice was not recognized")
    check((first.base_offset, end) == (second.base_offset, len(records)), "a batch that was sent twice is stored twice")
    report.add("sent a whole batch again", f"duplicate: true; sent 2 × {len(records):,}, stored {end:,}")


def compare_reviews(client: Client, events: Sequence[Record], report: Report) -> None:
    """Read every review back and compare it with the input, in the order of each partition and of each key."""
    given: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for event in events:
        given[partition_of(event.key or b"", PARTITIONS)].append(event)
    started = time.monotonic()
    stored: list[list[StoredRecord]] = [[] for _ in range(PARTITIONS)]
    count = 0
    with client.reader(REVIEWS, max_bytes=PAGE_BYTES) as reader, bar("reading", len(events)) as (progress, task):
        for partition, records in reader.pages():
            stored[partition] += records
            count += len(records)
            progress.update(task, completed=count)
    report.add_rate("read the reviews back", count, time.monotonic() - started)
    with console.status("comparing"):
        for partition in range(PARTITIONS):
            compare_partition(partition, given[partition], stored[partition])
        of_input = digest_by_key(events)
        of_log = digest_by_key(record for records in stored for record in records)
    check(of_input == of_log, f"SHA-256 over keys in order: input={of_input} log={of_log}")
    report.add("the same as the input, key by key", f"{count:,} records, SHA-256 {of_log[:16]}… of both")


def compare_partition(partition: int, given: Sequence[Record], stored: Sequence[StoredRecord]) -> None:
    where = f"partition={partition}"
    check(len(given) == len(stored), f"{where} has another count: input={len(given)} log={len(stored)}")
    check([record.offset for record in stored] == list(range(len(stored))), f"{where} has gaps")
    check(digest_in_order(given) == digest_in_order(stored), f"{where} has other values, or in another order")
    pairs = zip(given, stored, strict=True)
    check(all(one.timestamp in (None, other.timestamp) for one, other in pairs), f"{where} has other timestamps")


def compare_lines(client: Client, lines: Sequence[Record], report: Report) -> None:
    with client.reader(LINES) as reader:
        stored = [record for _, records in reader.pages() for record in records]
    compare_partition(0, lines, stored)
    read_back = b"".join((record.value or b"") + b"\n" for record in stored)
    check(read_back == input_lines(), "the access log, put together again, is another file")
    digest = hashlib.sha256(read_back).hexdigest()
    report.add("put the access log together again", f"{len(read_back):,} bytes, the same file, SHA-256 {digest[:16]}…")


def digest_in_order(records: Iterable[Record | StoredRecord]) -> str:
    return hashlib.sha256(b"\n".join(record.value or b"" for record in records)).hexdigest()


def digest_by_key(records: Iterable[Record | StoredRecord]) -> str:
    """Return the SHA-256 over all keys, sorted, each with its values in the order in which they came."""
    values: dict[bytes, list[bytes]] = defaultdict(list)
    for record in records:
        values[record.key or b""].append(record.value or b"")
    digest = hashlib.sha256()
    for key in sorted(values):
        digest.update(b"%b %d\n%b\n" % (key, len(values[key]), b"\n".join(values[key])))
    return digest.hexdigest()


def report_sizes(client: Client, report: Report) -> None:
    input_bytes = sum(file.stat().st_size for file in DATA.iterdir() if file.suffix != ".md")
    stored_bytes = segments = 0
    for topic in client.topics():
        for partition in range(topic.partitions):
            for segment in segments_of(client, topic.name, partition):
                segments += 1
                stored_bytes += segment.bytes
    report.add("stored", f"{stored_bytes:,} bytes in {segments} segments (the input, packed, has {input_bytes:,})")


def segments_of(client: Client, topic: str, partition: int) -> Iterator[SegmentEntry]:
    page = client.segments(topic, partition)
    yield from page.segments
    while page.has_more:
        page = client.segments(topic, partition, offset=page.segments[-1].next_offset)
        yield from page.segments


def verify(directory: Path, report: Report) -> None:
    """Let the command line check every segment, as any user can."""
    started = time.monotonic()
    with console.status("verifying"):
        command = [sys.executable, "-m", "fenceline_cli.main", "verify", "--data", str(directory)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    check(ended.returncode == 0, f"fenceline verify: {ended.stdout}{ended.stderr}")
    report.add("fenceline verify", f"every segment is sound, in {time.monotonic() - started:.1f} s")


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ComparisonError(otherwise)


def show(report: Report, directory: Path, seconds: float) -> None:
    table = Table(title=f"fenceline, the main job: {seconds:.0f} s", show_header=False, title_justify="left")
    for row in report.rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print(f"\nEverything is in {directory}. Serve it again:\n")
    show_command(f"dev --data {directory}")
    console.print("\nand in another terminal look around:\n")
    for command in (
        f"topic describe {REVIEWS}",
        f"consume {REVIEWS} --partition 3 --max 5 --format json",
        f"consume {LINES} --from @2015-05-18T12:00:00Z --max 3",
        f"verify --data {directory}",
    ):
        show_command(command)


def show_command(command: str) -> None:
    console.print(f"  {FENCELINE} {command}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
