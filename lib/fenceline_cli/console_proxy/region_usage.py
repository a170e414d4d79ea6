"""What the service of a region was asked for: its own counts, or on AWS the figures of CloudWatch.

Rule: what cannot be had is said in ``error``, and the rest is shown. Figures are kept for a minute, because CloudWatch
charges for each look.

CloudWatch knows the requests of an API all together, appends, refusals by code, and what appends asked of the bucket.
It knows nothing of single operations, of reads of the bucket, and of the table's units by this service.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fenceline.ports import Unavailable
from fenceline.runtime import ThreadRuntime
from fenceline_cli import prices, usage
from fenceline_cli.console_proxy.upstream import Asked, Upstream
from fenceline_http.responses import Response

if TYPE_CHECKING:
    from fenceline.adapters.aws.cloudwatch import Figures, Metric

DAY_MS = 24 * 3_600_000
KEPT_S = 60
_API = re.compile(r"https://([a-z0-9]+)\.execute-api\.([a-z0-9-]+)\.")
_OURS = "Fenceline"
_ALL = "*"
# A member of ``log``, the metric, and its statistic.
_LOG = {
    "appends": ("AppendMs", "SampleCount"),
    "creates": ("CreateAttempts", "Sum"),
    "lost_races": ("LostRaces", "Sum"),
    "conflicts": ("CreateConflicts", "Sum"),
    "duplicates": ("Duplicates", "Sum"),
}


class RegionUsage:
    """Asks for usage, and keeps CloudWatch's figures for a while."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Mapping[str, Any]]] = {}

    async def __call__(self, upstream: Upstream) -> Mapping[str, Any]:
        if not upstream.is_signed:
            return await _of_server(upstream)
        kept = self._kept.get(upstream.name)
        if kept is None or time.monotonic() - kept[0] > KEPT_S:
            kept = time.monotonic(), await asyncio.to_thread(_of_cloudwatch, upstream)
            self._kept[upstream.name] = kept
        return kept[1]


async def _of_server(upstream: Upstream) -> Mapping[str, Any]:
    """Return what a local server says of itself."""
    asked = Asked("GET", b"/console/usage.json", b"", [(b"accept", b"application/json")], b"")
    async with upstream.answer(asked) as answer:
        if isinstance(answer, Response):
            problem = json.loads(answer.body)
            return usage.unknown(upstream.name, problem["code"], problem["detail"])
        try:
            found = json.loads(await answer.aread())
        except ValueError:
            found = None
    if isinstance(found, dict) and "requests" in found:
        return found
    return usage.unknown(upstream.name, "NOT_FOUND", "the service does not count what it is asked")


def _of_cloudwatch(upstream: Upstream) -> Mapping[str, Any]:
    """Return the figures of the last 24 hours."""
    found = _API.match(upstream.url)
    region = upstream.region or (found[2] if found else upstream.name)
    try:
        from fenceline.adapters.aws.cloudwatch import Figures  # only here: an extra

        return figures_of(Figures(region), region, found[1] if found else None, ThreadRuntime().now_ms())
    except ModuleNotFoundError as error:
        what = f'CloudWatch needs {error.name}, which is not installed; run pip install "fenceline-log[aws]"'
        return usage.unknown(region, "NOT_INSTALLED", what, source="cloudwatch")
    except Unavailable as error:
        return usage.unknown(region, "CLOUDWATCH", str(error), source="cloudwatch")


def figures_of(figures: Figures, region: str, api: str | None, now_ms: int) -> Mapping[str, Any]:
    """Return the document of a region; ``api`` is the id of its API, if the URL names it.

    Raises:
        Unavailable: CloudWatch refused, or did not answer.
    """
    since_ms = now_ms - DAY_MS
    wanted: list[tuple[str, Metric, str]] = []
    for member, (name, statistic) in _LOG.items():
        wanted += [(member, one, statistic) for one in figures.metrics(_OURS, name, ["service"])]
    for one in figures.metrics(_OURS, "AppendMs", ["service"]):
        wanted += [("append p50", one, "p50"), ("append p99", one, "p99"), ("append ms", one, "Sum")]
    for one in figures.metrics(_OURS, "RefusalsByCode", ["service", "code"]):
        wanted.append((f"code {one.dimensions['code']}", one, "Sum"))
    for name, statistic in (("Count", "SampleCount"), ("Latency", "p50"), ("Latency", "p99")):
        for one in figures.metrics("AWS/ApiGateway", name, ["ApiId"]):
            if one.dimensions["ApiId"] == api:
                wanted.append((f"api {statistic}", one, statistic))
    read = figures.sums([(metric, statistic) for _, metric, statistic in wanted], since_ms, now_ms)
    sums: dict[str, float] = {}
    for (member, _, statistic), number in zip(wanted, read, strict=True):
        if number is not None:
            before = sums.get(member, 0.0)
            sums[member] = max(before, number) if statistic.startswith("p") else before + number
    return _document(sums, region, has_api=api is not None, since=since_ms, until=now_ms)


def _document(sums: Mapping[str, float], region: str, *, has_api: bool, since: int, until: int) -> Mapping[str, Any]:
    log = {member: round(sums.get(member, 0)) for member in _LOG}
    codes = {name.removeprefix("code "): round(n) for name, n in sums.items() if name.startswith("code ")}
    calls = sums.get("api SampleCount", 0.0) if has_api else float(log["appends"])
    others_ms = max(0.0, calls - log["appends"]) * prices.SEGMENTS_MS
    requests = [_row("appends", log["appends"], sums.get("append p50"), sums.get("append p99"))]
    notes = ["of the last 24 hours, by CloudWatch; a percentile is that of the slowest hour"]
    if has_api:
        requests.insert(0, _row(_ALL, round(calls), sums.get("api p50"), sums.get("api p99")))
    else:
        notes.append("the URL does not name the API, so only appends are counted")
    notes.append("dollars are without reads of the bucket and without the table, of which CloudWatch does not know")
    return {
        "source": "cloudwatch",
        "region": region,
        "since": since,
        "until": until,
        "workers": None,
        "counted_workers": None,
        "requests": requests,
        "refusals": usage.listed("code", codes),
        "log": log,
        "stores": [{"call": "objects.create", "count": log["creates"]}],
        "dollars": usage.dollars(
            [
                ("API Gateway requests", calls, prices.API_REQUEST),
                ("Lambda calls", calls, prices.LAMBDA_REQUEST),
                (
                    "Lambda seconds, as assumed for all but appends",
                    (sums.get("append ms", 0.0) + others_ms) / 1_000,
                    prices.LAMBDA_GB_SECOND * prices.LAMBDA_GB,
                ),
                ("CloudWatch Logs, bytes", calls * prices.LOG_BYTES, prices.LOG_GB / prices.GB),
                ("S3 PUT and LIST", log["creates"], prices.S3_PUT),
            ],
            assumed="appends last as long as CloudWatch says; a call of Lambda for anything else is taken to last"
            f" {prices.SEGMENTS_MS} ms; {usage.MEMORY}",
        ),
        "notes": notes,
        "error": None,
    }


def _row(operation: str, count: int, p50_ms: float | None, p99_ms: float | None) -> dict[str, Any]:
    return {"operation": operation, "count": count, "held": 0, "p50_ms": p50_ms, "p99_ms": p99_ms}
