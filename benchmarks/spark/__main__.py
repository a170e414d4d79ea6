"""``python -m benchmarks.spark [--quick] [--no-rivals] [--only PART …] [--json FILE]``: the figures, as one table."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.spark import figures, processes
from benchmarks.spark.figures import Figure
from fenceline_spark.java import NoJavaError
from tests.servers.install import CannotInstall

PARTS = ("read", "write", "planning", "memory", "compaction")


@dataclass(frozen=True)
class Sizes:
    """The sizes of the measurements.

    Args:
        warm, rounds: The number of rounds that come first and are not counted, and of those that are.
        reviews: The number of reviews that are read, ``times`` over; ``None`` takes all.
        large: How many records of 1 KiB are read.
        batches: The rows of a batch that is written, and the number of such batches.
        segments: The number of segments for which a read is planned.
        records, keys: The size of the partition that one worker reads, and that is compacted.
    """

    warm: int = 3
    rounds: int = 3
    reviews: int | None = None
    times: int = 8
    large: int = 500_000
    batches: Sequence[tuple[int, int]] = ((10_000, 20), (1_000_000, 2))
    segments: int = 100_000
    records: int = 10_000_000
    keys: int = 1_000_000


QUICK = Sizes(
    warm=0,
    rounds=1,
    reviews=20_000,
    times=2,
    large=2_000,
    batches=((1_000, 2), (20_000, 1)),
    segments=200,
    records=100_000,
    keys=10_000,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, and measures nothing")
    parser.add_argument("--no-rivals", action="store_true", help="without Kafka")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    console = Console(stderr=True, highlight=False)
    if (lacking := missing()) is not None:
        console.print(lacking)
        return 1
    try:
        found = Run(console, QUICK if arguments.quick else Sizes(), with_rivals=not arguments.no_rivals)
        measured = list(found.figures(arguments.only))
    except CannotInstall as error:
        console.print(f"not compared with Kafka: {error}; --no-rivals measures fenceline alone")
        return 1
    except NoJavaError as error:
        console.print(str(error))
        return 1
    Console(width=None if sys.stdout.isatty() else 180).print(figures.table(measured, found.title))
    if arguments.json:
        told = {"title": found.title, "figures": figures.as_json(measured)}
        arguments.json.write_text(json.dumps(told, indent=2) + "\n")
    return 0


def missing() -> str | None:
    """Return the reason why the benchmark cannot run here, in one line; ``None`` if it can."""
    if not processes.is_known():
        return "benchmarks.spark counts the CPU time of processes, which only Linux reports in /proc"
    if any(find_spec(name) is None for name in ("pyspark", "pyarrow", "numpy", "pandas")):
        return 'Spark is not installed here; run "make bench-spark", which sets it up'
    return None


class Run:
    """One run: what it needs is started, each part is measured, and all of it ends.

    Raises:
        CannotInstall: The rival can't be had on this machine.
    """

    def __init__(self, console: Console, sizes: Sizes, *, with_rivals: bool) -> None:
        self._console = console
        self._sizes = sizes
        self._with_rivals = with_rivals
        self.title = ""

    def figures(self, parts: Sequence[str]) -> Iterator[Figure]:
        # Only here: without Spark, the line that says so must still be printed.
        import pyspark

        from benchmarks.spark import compacting, measure, ours, planning, reading, rivals, session, writing
        from benchmarks.spark.systems import Systems

        sizes, tell = self._sizes, self._tell
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fenceline-bench-")))
            title = f"Spark {pyspark.__version__}, {os.cpu_count()} cores"
            jars: list[Path] = []
            kafka = None
            if self._with_rivals:
                tell("Kafka and Spark's connector are fetched, unless they are here")
                version, jars = rivals.connector(pyspark.__version__)
                kafka = stack.enter_context(rivals.broker())
                title += f", spark-sql-kafka {version}, Kafka {rivals.VERSION}"
            self.title = title
            service = stack.enter_context(ours.service(directory / "log"))
            spark = stack.enter_context(session.session(directory, jars))
            servers = {service.pid, *([kafka.pid] if kafka else [])}
            bench = measure.Bench(servers, rounds=sizes.rounds, warm=sizes.warm, tell=tell)
            systems = Systems(spark, service, kafka, bench, directory, tell)
            if "read" in parts:
                yield from reading.read_figures(systems, reviews=sizes.reviews, times=sizes.times, large=sizes.large)
            if "write" in parts:
                yield from writing.write_figures(systems, sizes.batches)
            if "planning" in parts:
                yield planning.planning_figure(sizes.segments, tell)
            if {"memory", "compaction"} & set(parts):
                yield from compacting.keyed_figures(systems, sizes.records, sizes.keys, parts)

    def _tell(self, line: str) -> None:
        self._console.print(line, style="dim", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
