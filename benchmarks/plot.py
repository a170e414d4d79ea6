"""The picture of how long appends take, when 1 to 64 processes append to one partition.

Rule: a curve shows for each percentile the latency that this share of the appends kept. Both axes are logarithmic, the
horizontal one in the share of appends that took longer, so that the slowest hundredth and thousandth are as wide as the
rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

matplotlib.use("agg")  # into a file, also where there is no screen

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
Latencies = Mapping[str, Sequence[float]]


def read(file: Path) -> Latencies:
    """Read the output of ``fenceline bench --latencies``: latencies in ms by the name of their race."""
    found: Latencies = json.loads(file.read_text())
    return found


def curve(latencies: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the points of a curve: the share of appends that took longer, and the latency."""
    ordered = sorted(latencies)
    return [1 - rank / len(ordered) for rank in range(len(ordered))], ordered


def places(latencies: Latencies) -> dict[str, dict[str, Sequence[float]]]:
    """Return the latencies by place, and then by the number of processes: "8 processes, near" names both."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for name, values in latencies.items():
        processes, _, place = name.partition(", ")
        if values:
            found.setdefault(place, {})[processes] = values
    return found


def draw(latencies: Latencies, file: Path) -> None:
    """Draw one panel for each place into a PNG.

    Raises:
        ValueError: There is nothing to draw.
    """
    panels = places(latencies)
    if not panels:
        raise ValueError("there are no latencies to draw; measure the part 'combining'")
    figure = Figure(figsize=(6.5 * len(panels), 5), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (place, lines) in zip(axes, panels.items(), strict=True):
        _panel(axis, place, lines)
    axes[0].set_ylabel("latency of an append, ms")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="png", dpi=120)


def _panel(axis: Axes, place: str, lines: Mapping[str, Sequence[float]]) -> None:
    for processes, values in lines.items():
        axis.plot(*curve(values), drawstyle="steps-post", label=processes)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(1, min(1 - percentile / 100 for percentile in PERCENTILES))
    axis.set_xticks([1 - percentile / 100 for percentile in PERCENTILES], [f"p{one:g}" for one in PERCENTILES])
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_title(f"one partition, {place}")
    axis.set_xlabel("share of the appends that took no longer")
    axis.grid(visible=True, which="major", alpha=0.4)
    axis.legend()
