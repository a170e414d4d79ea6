"""The demo's picture: requests by the hour, what they weighed, and which driver wrote each hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import matplotlib as mpl
from matplotlib import dates
from matplotlib import pyplot as plt

COLORS = {"page": "#2f5d8c", "image": "#6fa8dc", "style": "#b7cfe8", "feed": "#e8a33d", "file": "#a94442"}
DRIVERS = ("#8c8c8c", "#5b8e7d", "#bc4b51", "#f4a259")
HOUR = timedelta(hours=1)
MIB = 1024 * 1024


def draw(
    counts: Mapping[tuple[str, str], Mapping[str, int]],
    driver_of: Mapping[str, int],
    kills: Sequence[str],
    file: Path,
) -> None:
    """Draw all counts into ``file``.

    Args:
        counts: By hour and kind.
        driver_of: By hour the number of the driver that wrote it.
        kills: What each killed driver was doing, in their order.
    """
    hours = sorted({hour for hour, _ in counts})
    at = [datetime.fromisoformat(hour).astimezone(UTC) for hour in hours]
    mpl.use("Agg")
    plt.rcParams.update(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "font.family": "sans-serif"}
    )
    figure, (requests, weight, drivers) = plt.subplots(
        3, 1, figsize=(12, 7.2), sharex=True, height_ratios=(5, 2.4, 0.9), layout="constrained"
    )
    below = [0] * len(hours)
    for kind, color in COLORS.items():
        shown = [counts.get((hour, kind), {}).get("requests", 0) for hour in hours]
        requests.bar(
            at, shown, HOUR, bottom=below, align="edge", color=color, label=kind, linewidth=0.3, edgecolor="white"
        )
        below = [one + more for one, more in zip(below, shown, strict=True)]
    failed = [sum(one["errors"] for (hour, _), one in counts.items() if hour == this) for this in hours]
    middles = [one + HOUR / 2 for one in at]
    requests.plot(middles, failed, color="black", linewidth=1, marker=".", markersize=3, label="of these, errors")
    requests.set_ylabel("requests an hour")
    requests.set_title(
        "A web server's access log, counted by the hour", loc="left", fontsize=13, fontweight="bold", pad=22
    )
    requests.text(
        0,
        1.015,
        f"{sum(below):,} requests; the driver was killed {len(kills)} times, and each hour was written exactly once",
        transform=requests.transAxes,
        color="#555555",
    )
    requests.legend(ncols=6, frameon=False, loc="upper right", bbox_to_anchor=(1.005, 1.16))

    mebibytes = [sum(one["bytes"] for (hour, _), one in counts.items() if hour == this) / MIB for this in hours]
    weight.fill_between([*at, at[-1] + HOUR], [*mebibytes, mebibytes[-1]], step="post", color="#2f5d8c", alpha=0.75)
    weight.set_ylabel("MiB an hour")
    weight.set_ylim(0)

    for hour, begin in zip(hours, at, strict=True):
        color = DRIVERS[(driver_of[hour] - 1) % len(DRIVERS)]
        drivers.axvspan(begin, begin + HOUR, color=color, linewidth=0)
    _name_drivers(drivers, at, [driver_of[hour] for hour in hours])
    drivers.set_yticks([])
    drivers.set_ylim(0, 1)
    drivers.set_ylabel("written\nby driver", rotation=0, ha="right", va="center")
    drivers.spines["left"].set_visible(False)
    drivers.set_xlim(at[0], at[-1] + HOUR)
    drivers.xaxis.set_major_locator(dates.HourLocator(byhour=(0, 12)))
    drivers.xaxis.set_major_formatter(dates.DateFormatter("%d %b\n%H:%M"))
    drivers.set_xlabel("time of the request, UTC")
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _name_drivers(axes: plt.Axes, at: Sequence[datetime], numbers: Sequence[int]) -> None:
    """Write each driver's number into its part, and mark where one was killed and the next one went on."""
    for number in sorted(set(numbers)):
        mine = [begin for begin, other in zip(at, numbers, strict=True) if other == number]
        middle = mine[0] + (mine[-1] + HOUR - mine[0]) / 2
        axes.text(middle, 0.5, str(number), ha="center", va="center", color="white", fontweight="bold")
        if mine[0] != at[0]:
            for one in axes.figure.axes:
                one.axvline(mine[0], color="#333333", linestyle=(0, (4, 3)), linewidth=0.9)
            axes.annotate("killed", (mine[0], 1), ha="center", va="bottom", fontsize=8, color="#333333")
