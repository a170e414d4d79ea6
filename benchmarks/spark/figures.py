"""The figures, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.spark.measure import Cost, ratio


@dataclass(frozen=True)
class Figure:
    """One figure, and the bound that it has to keep.

    Args:
        value: What the bound is for; ``None`` where there was nothing to compare with.
        ours, against: What it was made of, for the table.
        other: The same by the clock where ``value`` counts CPU time, and the other way round.
    """

    what: str
    value: float | None
    ours: str
    against: str = ""
    other: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def is_kept(self) -> bool | None:
        """Return whether the bound is kept; ``None`` without a bound, or a value."""
        if self.value is None or not self.bound:
            return None
        return self.value >= self.at_least if self.at_least is not None else self.value <= (self.at_most or 0)


def by_cpu(what: str, ours: Sequence[Cost], theirs: Sequence[Cost] | None, *, at_least: float | None = None) -> Figure:
    """Return how many times as fast ours is by CPU time; a busy machine changes that little."""
    if theirs is None:
        return Figure(what, None, told(ours), at_least=at_least)
    value, wall = (ratio(ours, theirs, of=of) for of in (lambda cost: cost.cpu_us, lambda cost: cost.wall_us))
    return Figure(what, value, told(ours), told(theirs), f"clock {wall:.2f}", at_least=at_least)


def by_clock(
    what: str, ours: Sequence[Cost], theirs: Sequence[Cost] | None, *, at_least: float | None = None
) -> Figure:
    """Return how many times as fast ours is by the clock."""
    if theirs is None:
        return Figure(what, None, told(ours), at_least=at_least)
    cpu, value = (ratio(ours, theirs, of=of) for of in (lambda cost: cost.cpu_us, lambda cost: cost.wall_us))
    return Figure(what, value, told(ours), told(theirs), f"CPU {cpu:.2f}", at_least=at_least)


def told(costs: Sequence[Cost]) -> str:
    """Return the cost of a row in the best round."""
    cpu = min(costs, key=lambda cost: cost.cpu_us)
    wall_us = min(cost.wall_us for cost in costs)
    return f"{cpu.cpu_us:.2f} ({cpu.server_cpu_s / cpu.rows * 1e6:.2f}), {wall_us:.2f}"


def table(figures: Sequence[Figure], title: str) -> Any:
    from rich.table import Table

    made = Table(title=title, title_justify="left", caption_justify="left", caption=CAPTION)
    for name in ("what", "fenceline", "compared with", "ratio", "also", "bound", ""):
        made.add_column(name, justify="right" if name in ("ratio", "bound") else "left")
    for figure in figures:
        value = "–" if figure.value is None else f"{figure.value:,.2f}"
        word = {True: "kept", False: "[bold red]MISSED[/]", None: ""}[figure.is_kept]
        made.add_row(figure.what, figure.ours, figure.against, value, figure.other, figure.bound, word)
    return made


CAPTION = (
    "Pairs are µs a row: CPU time of all processes (of which the server or the broker), and the clock. "
    "A ratio is how many times as fast fenceline is."
)


def as_json(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    return [asdict(figure) | {"bound": figure.bound, "is_kept": figure.is_kept} for figure in figures]
