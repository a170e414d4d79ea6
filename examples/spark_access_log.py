"""Spark on the log, exactly once: an access log is counted by the hour while the driver is killed three times.

The demo starts a server on a fresh directory and produces 10,000 real lines into a topic. A streaming query of PySpark
(``spark_counting_job.py``) counts them by hour and kind, and writes the counts into a second topic. Its driver dies by
``kill -9`` with its JVM and its workers: as a task reads, before a batch is decided, and after it was. Each time it is
started again. Then every count is compared with those of plain Python, and drawn.

The directory stays; the report says how to look around in it. If anything is not as promised, the exit code is 1, and
the last line says why.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from spark_driver import Driver, Moment
from stage import ComparisonError, check, console, show_result

from fenceline import Client, Record
from fenceline.errors import FencelineError
from fenceline_cli.dev_server.process import ServerProcess
from fenceline_spark import java

FENCELINE = ".venv/bin/fenceline"
DATA = Path(__file__).parent / "data" / "apache_access.log.gz"
LINES, COUNTS = "access-log", "requests-by-hour"
PARTITIONS = 4  # as if the lines were those of four web servers
LINES_AT_ONCE = 100
KINDS = ("page", "image", "style", "feed", "file")
MIB = 1024 * 1024
MOMENTS = (
    Moment("as a task fetched a segment of the next batch", "GET /objects/", decided=2),
    Moment("with a batch written and not yet decided", "POST /v1/transactions/end$", decided=1),
    Moment("after a batch was decided, before it heard so", "POST /v1/transactions/end$", decided=2, is_answered=True),
)
INTRODUCTION = """\
Spark on the log, exactly once. 10,000 real lines of a web server go into a topic. A streaming query counts them by the
hour, and writes the counts into a second topic. Its driver is killed three times by kill -9, at the worst moments, and
started again. Then plain Python counts, too. Starting Spark four times takes most of the one to two minutes.
"""

Counts = dict[tuple[str, str], dict[str, int]]  # by hour and kind


@dataclass
class Run:
    """The result of one driver."""

    number: int
    batches: int = 0
    read: int = 0
    decided: int = 0
    death: str = ""


@dataclass
class Found:
    """The content of the second topic, as a reader of committed records gets it."""

    counts: Counts = field(default_factory=dict)
    driver_of: dict[str, int] = field(default_factory=dict)
    records: int = 0
    hidden: int = 0


def main() -> int:
    started = time.monotonic()
    console.print(INTRODUCTION)
    directory = fresh_directory()
    try:
        found_java = java.find(os.environ)
        check(find_spec("pyspark") is not None, "Spark is not installed here; run: make demo-spark")
        lines = gzip.decompress(DATA.read_bytes()).split(b"\n")[:-1]
        expected = counted_by_python(lines)
        with ServerProcess(directory / "log") as server, Client(server.url) as client:
            console.print(
                f"serving {directory}/log at {server.url}; Java {found_java.version}, by {found_java.found_by}"
            )
            produce(client, lines)
            runs = run_drivers(server.url, directory, len(lines) + 1)
            found = read_counts(client)
        compare(expected, found)
        picture = directory / "requests-by-hour.png"
        from spark_plot import draw

        draw(found.counts, found.driver_of, [run.death for run in runs if run.death], picture)
    except ComparisonError as error:
        return failed(f"the comparison failed: {error}")
    except FencelineError as error:
        return failed(f"{error.code}: {error.detail}")
    except (java.NoJavaError, RuntimeError, OSError) as error:
        return failed(str(error))
    except KeyboardInterrupt:
        return 130
    show(runs, found, directory, picture, time.monotonic() - started)
    return 0


def failed(why: str) -> int:
    console.print(f"[red]✗[/] {why}", style="bold")
    return 1


def fresh_directory() -> Path:
    """Return the first of ``demo-data-spark``, ``demo-data-spark-2``, … that does not exist yet, and make it."""
    number = 1
    while (directory := Path("demo-data-spark" if number == 1 else f"demo-data-spark-{number}")).exists():
        number += 1
    directory.mkdir()
    return directory


def time_of(line: bytes) -> datetime:
    text = line[line.index(b"[") + 1 : line.index(b"]")].decode()
    return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")


def ms_of(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def counted_by_python(lines: Sequence[bytes]) -> Counts:
    """Count as the query does, by other means."""
    counts: Counts = {}
    for line in lines:
        hour = time_of(line).astimezone(UTC).strftime("%Y-%m-%dT%H:00:00Z")
        _, request, answer = line.split(b'"')[:3]
        status, size = answer.split()[:2]
        one = counts.setdefault((hour, kind_of(request.split()[1].decode())), Counter(requests=0, errors=0, bytes=0))
        one["requests"] += 1
        one["errors"] += status >= b"400"
        one["bytes"] += int(size) if size.isdigit() else 0
    return counts


def kind_of(path: str) -> str:
    name = path.lower()
    suffix = name.rpartition(".")[2]
    kinds = {
        "image": ("png", "jpg", "jpeg", "gif", "ico", "svg"),
        "style": ("css", "js"),
        "file": ("gz", "jar", "mp4", "pdf", "rpm", "tar", "tgz", "zip"),
        "feed": ("xml",),
    }
    by_suffix = next((kind for kind, suffixes in kinds.items() if "." in name and suffix in suffixes), None)
    return by_suffix or ("feed" if any(word in name for word in ("atom", "feed", "rss")) else "page")


def produce(client: Client, lines: Sequence[bytes]) -> None:
    """Deal the lines over the partitions, and close the last hour by an event that is later than all of them."""
    client.create_topic(LINES, partitions=PARTITIONS)
    client.create_topic(COUNTS, partitions=2)
    for partition in range(PARTITIONS):
        dealt = lines[partition::PARTITIONS]
        for at in range(0, len(dealt), LINES_AT_ONCE):
            records = [Record(line, timestamp=ms_of(time_of(line))) for line in dealt[at : at + LINES_AT_ONCE]]
            client.produce(LINES, partition, records)
    # An hour comes out once the watermark has passed its end, so a log that ends needs one event after its end.
    closing = max(map(time_of, lines)) + timedelta(hours=2)
    client.produce(LINES, 0, [Record(b"end of log", timestamp=ms_of(closing))])
    show_result("produced", f"{len(lines):,} lines into {PARTITIONS} partitions of {LINES}")


def run_drivers(url: str, directory: Path, total: int) -> list[Run]:
    """Run the job until a driver ends by itself: three are killed, the fourth is let through."""
    runs: list[Run] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=total)
        for number, moment in enumerate((*MOMENTS, None), 1):
            run = Run(number)
            runs.append(run)
            progress.update(task, description=f"driver {number}: Spark starts")

            def on_batch(told: Mapping[str, Any], run: Run = run) -> None:
                run.batches += 1
                run.read = told["read"]
                description = f"driver {run.number}: batch {told['batch']}, lines"
                progress.update(task, completed=run.read, description=description)
                if not console.is_terminal:
                    console.print(f"  {description} {run.read:,}")

            driver = Driver(number, url, directory, moment, on_batch)
            try:
                code = driver.run()
            finally:
                driver.close()
            run.decided = driver.decided
            check_end(driver, moment, code)
            if moment is None:
                show_result(f"driver {number}", f"ended by itself; batches done: {run.batches}")
            else:
                run.death = moment.told
                console.print(f"[red]✗[/] driver {number}: kill -9 {moment.told}; batches done: {run.batches}")
    return runs


def check_end(driver: Driver, moment: Moment | None, code: int) -> None:
    if moment is not None:
        check(driver.was_killed, f"driver {driver.number} ended (exit code {code}) before its moment: see {driver.log}")
    else:
        check(code == 0, f"driver {driver.number} failed with exit code {code}: see {driver.log}")


def read_counts(client: Client) -> Found:
    """Read the second topic as any reader of committed records does; and count what it never gets to see."""
    found = Found()
    written = 0
    with client.reader(COUNTS, start="earliest", isolation="read_committed") as reader:
        for _, record in reader:
            told = json.loads(record.value or b"")
            key = (told.pop("hour"), told.pop("kind", ""))
            check(key not in found.counts, f"{key} was written twice")
            found.counts[key] = told
            found.driver_of[key[0]] = int(dict(record.headers)["driver"])
            found.records += 1
    with client.reader(COUNTS, start="earliest", isolation="read_uncommitted") as reader:
        written = sum(1 for _ in reader)
    found.hidden = written - found.records
    return found


def compare(expected: Counts, found: Found) -> None:
    missing, unknown = expected.keys() - found.counts.keys(), found.counts.keys() - expected.keys()
    check(not missing, f"{len(missing)} counts were never written, such as {sorted(missing)[:2]}")
    check(not unknown, f"{len(unknown)} counts are of no line, such as {sorted(unknown)[:2]}")
    for key, counts in expected.items():
        check(dict(counts) == found.counts[key], f"{key}: plain Python {dict(counts)}, Spark {found.counts[key]}")
    total = sum(one["requests"] for one in found.counts.values())
    show_result("the same as plain Python", f"{total:,} requests in {len(found.counts)} counts, each written once")


def show(runs: Sequence[Run], found: Found, directory: Path, picture: Path, seconds: float) -> None:
    console.print()
    console.print(drivers_table(runs, found, seconds))
    console.print(days_table(found.counts))
    console.print(
        f"\n{found.hidden} records of killed drivers are in {COUNTS}, and no reader of committed records gets them."
    )
    console.print(f"The picture: {picture}\n\nEverything is in {directory}. Serve it again:\n")
    show_command(f"dev --data {directory}/log")
    console.print("\nand in another terminal look around:\n")
    for command in (f"topic describe {COUNTS}", f"consume {COUNTS} --from earliest --isolation read_committed --max 5"):
        show_command(command)


DONE_AND_DECIDED = (
    "Done: Spark has noted it. Decided: the service has made its rows visible. A batch without rows needs no decision, "
    "nor does one that a killed driver has had decided."
)


def drivers_table(runs: Sequence[Run], found: Found, seconds: float) -> Table:
    table = Table(title=f"Four drivers, one result: {seconds:.0f} s", title_justify="left")
    for name in ("driver", "batches done", "batches decided", "hours written", "killed by kill -9"):
        table.add_column(name, justify="right" if name != "killed by kill -9" else "left")
    hours = Counter(found.driver_of.values())
    for run in runs:
        cells = (run.number, run.batches, run.decided, hours[run.number], run.death or "no: it ended by itself")
        table.add_row(*map(str, cells))
    table.caption, table.caption_justify = DONE_AND_DECIDED, "left"
    return table


def days_table(counts: Counts) -> Table:
    table = Table(title="Requests by day", title_justify="left")
    for name in ("day", *KINDS, "errors", "MiB"):
        table.add_column(name, justify="left" if name == "day" else "right")
    for day in sorted({hour[:10] for hour, _ in counts}):
        mine = [(kind, one) for (hour, kind), one in counts.items() if hour.startswith(day)]
        by_kind = [sum(one["requests"] for kind, one in mine if kind == this) for this in KINDS]
        errors = sum(one["errors"] for _, one in mine)
        table.add_row(
            day, *(f"{count:,}" for count in by_kind), str(errors), f"{sum(one['bytes'] for _, one in mine) / MIB:,.0f}"
        )
    return table


def show_command(command: str) -> None:
    console.print(f"  {FENCELINE} {command}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
