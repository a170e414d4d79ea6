"""``python -m benchmarks.contention``: what processes get that contend for one partition, as a table in Markdown.

The log is the real one, in the simulation's exact world. A call of the object store takes 25 to 35 ms, one of the item
store about 4 ms, and computing takes none. So the figures are the same on every machine. A batch's size counts only
by whether it may be offered ("Combining"). The admission of a transaction, and an exclusive session's claim, are not
measured; ends of transactions and claims are, where they are what contends.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing import Pool

from benchmarks.figures import percentile
from tests.simulation.log.pace import (
    CLAIMS,
    ENDS,
    EXCLUSIVE_SESSIONS,
    IDEMPOTENT,
    KINDS,
    PLAIN,
    TRANSACTIONAL,
    Load,
    Pace,
    run,
)

SMALL, LARGE = 1024, 64 * 1024
STARVED_MS = 30_000
HEADINGS = (
    "kind",
    "batch",
    "rivals",
    "callers each",
    "appends/s",
    "p50 ms",
    "p99 ms",
    "longest ms",
    "creates per append",
    "slowest's share",
    "starved",
    "markers, p99 ms",
)


@dataclass
class Cell:
    """One load in all of its seeds."""

    load: Load
    waits_ms: list[float] = field(default_factory=list)
    markers_ms: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # in each seed: what the slowest process has of an equal share
    creates: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, pace: Pace) -> None:
        counts = [len(waits) for waits, kind in zip(pace.waits_ms, self.kinds(), strict=True) if kind != CLAIMS]
        self.waits_ms += pace.all_waits_ms
        self.markers_ms += pace.markers_ms
        self.shares.append(min(counts) * len(counts) / max(sum(counts), 1))
        self.creates += pace.calls["create"]
        self.failures += pace.failures

    def kinds(self) -> list[str]:
        """Return the kind of each process's requests."""
        return [self.load.kind_of(number) for number in range(self.load.processes)]

    @property
    def starved(self) -> int:
        """Return how many requests took too long, or gave up since others always won."""
        return self.failures["CONTENDED"] + sum(wait > STARVED_MS for wait in [*self.waits_ms, *self.markers_ms])

    def row(self) -> tuple[str, ...]:
        load, seeds = self.load, len(self.shares)
        return (
            load.kind,
            f"{load.batch_bytes // 1024} KiB",
            f"{load.processes}",
            f"{load.callers}",
            f"{len(self.waits_ms) / (seeds * load.seconds):.1f}",
            *(f"{percentile(self.waits_ms, percent):,.0f}" for percent in (50, 99, 100)),
            f"{self.creates / len(self.waits_ms):.2f}",
            f"{sum(self.shares) / seeds:.2f}",
            f"{self.starved / seeds:.1f}",
            self._markers(),
        )

    def _markers(self) -> str:
        if self.markers_ms:
            return f"{percentile(self.markers_ms, 99):,.0f}"
        return "none was made" if self.load.kind in (ENDS, CLAIMS) else "–"


def loads() -> Iterator[Load]:
    """Yield each cell's load: first those that cannot be offered."""
    for rivals in (2, 8):
        yield from (Load(rivals, kind=kind, batch_bytes=LARGE) for kind in (PLAIN, IDEMPOTENT, ENDS, CLAIMS))
        yield Load(rivals, kind=TRANSACTIONAL)
    for rivals in (2, 8):
        yield from (Load(rivals, kind=kind) for kind in (ENDS, CLAIMS, PLAIN, IDEMPOTENT))
    for rivals in (2, 8):
        yield from (Load(rivals, batch_bytes=size, callers=4) for size in (LARGE, SMALL))
        yield Load(rivals, kind=TRANSACTIONAL, callers=4)
        yield Load(rivals, kind=EXCLUSIVE_SESSIONS)


def measured(job: tuple[Load, int]) -> Pace:
    return run(*job)


def line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contention", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="of each cell (default 20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that measure (default 2)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only cells of this kind; may be repeated")
    arguments = parser.parse_args()
    cells = [Cell(replace(load, is_uniform=True)) for load in loads() if load.kind in (arguments.kind or KINDS)]
    jobs = [(cell.load, seed) for cell in cells for seed in range(arguments.seeds)]
    print(line(HEADINGS), line(["---"] * len(HEADINGS)), sep="\n")
    with Pool(arguments.jobs) as pool:
        paces = pool.imap(measured, jobs)
        for cell in cells:
            for pace in islice(paces, arguments.seeds):
                cell.add(pace)
            print(line(cell.row()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
