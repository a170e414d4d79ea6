"""The page of an audit: its findings, a plot of each topic, and a table of all partitions, in one file of HTML.

Rule: the page needs no other file, because its plots are within it.

Not here: what was counted (``auditing``).
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from fenceline_spark.jobs.auditing import Audit, PartitionAudit

# A column's title, what it is, and the field that it shows.
COLUMNS = (
    ("topic", "", "topic"),
    ("partition", "", "partition"),
    ("log start", "the first offset that is kept", "log_start"),
    ("end", "the last stable offset: all before it is decided, and was audited", "end"),
    ("undecided", "offsets after it: of open transactions, and of what came after them", "undecided"),
    ("segments", "objects in the store", "segments"),
    ("records", "records that a reader of committed records gets", "records"),
    ("bytes", "as they are stored, markers and aborted records, too", "bytes"),
    ("markers", "control batches: of transactions, access and regions", "markers"),
    ("aborted", "records of aborted transactions, which no such reader gets", "aborted"),
    ("gaps", "offsets that hold none of these: a finding", "gaps"),
    ("keys", "different keys", "keys"),
    ("key again", "records whose key an earlier record has; usual", "duplicate_keys"),
    ("duplicated", "records whose key and value an earlier record has; a finding of a strict audit", "duplicated"),
    ("late", "records with an earlier time than the one before; a finding of a strict audit", "late"),
    ("chain", "each segment follows from the one before it, by its hash; only where the stores were given", "chain"),
)
_KINDS = (("records", "#3b6ea5"), ("aborted", "#c8553d"), ("markers", "#b8b8b8"))
_HOUR_S = 3_600
_BARS_MAX = 240
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child, td.text { text-align: left }
td.text { white-space: normal }
.bad { color: #a4271a; font-weight: 600 } .good { color: #27702f; font-weight: 600 }
img { max-width: 100%; height: auto } dt { font-weight: 600; float: left; width: 7rem } dd { margin-left: 7.5rem }
footer { color: #666; font-size: .85rem; margin-top: 2rem }
"""


def page(audit: Audit, *, made_at_ms: int) -> str:
    """Return the page of an audit."""
    topics = list(dict.fromkeys(one.topic for one in audit.partitions))
    parts = [
        f"<h1>Audit of {escape(', '.join(topics))}</h1>",
        _summary(audit),
        *(_topic(audit, topic) for topic in topics),
        "<h2>Partitions</h2>",
        _table(audit.partitions),
        "<h2>What the columns mean</h2><dl>",
        *(f"<dt>{name}</dt><dd>{escape(what)}</dd>" for name, what, _ in COLUMNS if what),
        f"</dl><footer>Made by fenceline spark audit, {_utc(made_at_ms)}.</footer>",
    ]
    head = f'<meta charset="utf-8"><title>Audit of {escape(", ".join(topics))}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _summary(audit: Audit) -> str:
    records, size = (sum(getattr(one, name) for one in audit.partitions) for name in ("records", "bytes"))
    counted = f"{len(audit.partitions):,} partitions, {records:,} records, {size:,} bytes."
    if not audit.findings:
        return f'<p><span class="good">Nothing was found.</span> {counted}</p>'
    rows = [
        f'<tr><td class="text">{escape(one.topic)}</td><td>{one.partition}</td><td class="text">{one.kind}</td>'
        f'<td class="text">{escape(one.what)}</td></tr>'
        for one in audit.findings
    ]
    head = "<tr><th>topic</th><th>partition</th><th>kind</th><th>what</th></tr>"
    word = "finding" if len(rows) == 1 else "findings"
    return f'<p><span class="bad">{len(rows)} {word}.</span> {counted}</p><table>{head}{"".join(rows)}</table>'


def _topic(audit: Audit, topic: str) -> str:
    partitions = [one for one in audit.partitions if one.topic == topic]
    times = [ms for one in partitions for ms in (one.first_ms, one.last_ms) if ms is not None]
    between = f" Records from {_utc(min(times))} to {_utc(max(times))}." if times else ""
    image = _image(_figure(partitions, audit.hours.get(topic, {})))
    alt = f"Records, bytes and times of the partitions of {topic}"
    return (
        f'<h2>{escape(topic)}</h2><p>{len(partitions)} partitions.{between}</p><img alt="{escape(alt)}" src="{image}">'
    )


def _table(partitions: Iterable[PartitionAudit]) -> str:
    head = "".join(f'<th title="{escape(what)}">{name}</th>' for name, what, _ in COLUMNS)
    rows = ["<tr>" + "".join(_cell(one, name) for _, _, name in COLUMNS) + "</tr>" for one in partitions]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _cell(one: PartitionAudit, name: str) -> str:
    value = getattr(one, name)
    is_bad = (name == "gaps" and value) or (name == "chain" and value not in (None, "ok"))
    text = "–" if value is None else f"{value:,}" if isinstance(value, int) and name != "partition" else str(value)
    kind = "bad" if is_bad else "text" if name in ("topic", "chain") else ""
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"


def _figure(partitions: Sequence[PartitionAudit], hours: Mapping[int, int]) -> Figure:
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    counts, sizes, times = figure.subplots(1, 3, width_ratios=(1, 1, 1.6))
    numbers = [one.partition for one in partitions]
    below = [0] * len(numbers)
    for kind, colour in _KINDS:
        values = [getattr(one, kind) for one in partitions]
        if kind == "records" or any(values):
            counts.bar(numbers, values, bottom=below, label=kind, color=colour)
        below = [low + value for low, value in zip(below, values, strict=True)]
    counts.set_title("records by partition")
    figure.legend(*counts.get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False)
    sizes.bar(numbers, [one.bytes for one in partitions], color=_KINDS[0][1])
    sizes.set_title("bytes by partition")
    sizes.yaxis.set_major_formatter(EngFormatter(unit="B"))
    for axes in (counts, sizes):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("partition")
    counts.yaxis.set_major_formatter(EngFormatter())
    _plot_times(times, hours)
    for axes in (counts, sizes, times):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize("medium")
    return figure


def _plot_times(axes: Any, hours: Mapping[int, int]) -> None:
    """Plot the records by the hour, or by as many hours as keep the bars few."""
    if not hours:
        axes.text(0.5, 0.5, "no records with a time", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    low, high = min(hours), max(hours)
    width = -(-(high - low + 1) // _BARS_MAX)
    bars: dict[int, int] = {}
    for hour, count in hours.items():
        bar = low + (hour - low) // width * width
        bars[bar] = bars.get(bar, 0) + count
    starts = [datetime.fromtimestamp(hour * _HOUR_S, UTC) for hour in bars]
    axes.bar(starts, list(bars.values()), width=width / 24, align="edge", color=_KINDS[0][1])
    axes.set_title("records by hour" if width == 1 else f"records by {width} hours")
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel("time of the record (UTC)")


def _image(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
