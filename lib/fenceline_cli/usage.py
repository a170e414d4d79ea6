"""What a service was asked for, and what that costs on AWS: the document ``/console/usage.json``.

Rule: what was counted is one flat counter, so that the counts of several processes are added up. Its keys are
``requests/OPERATION``, ``held/OPERATION``, ``ms/OPERATION/BUCKET``, ``refusals/CODE``, ``stores/CALL``, ``log/NAME``
and ``charged/NAME``. Each of their names is one of a bounded set.

The document is ::

    {"source": "server" | "cloudwatch", "region": "local",
     "since": 1796000000000, "until": 1796000360000,    # ms
     "workers": 2, "counted_workers": 2,                # processes of the server, and those whose counts are in it
     "requests": [{"operation": "appendRecords", "count": 1204, "held": 0, "p50_ms": 1.4, "p99_ms": 9.8}],
     "refusals": [{"code": "OFFSET_MISMATCH", "count": 3}],
     "log": {"appends": 1204, "creates": 1190, "lost_races": 2, "conflicts": 0, "duplicates": 1},
     "stores": [{"call": "objects.create", "count": 1190}],
     "dollars": {"prices": {"date": "2026-11-21", "region": "us-east-1"}, "total": 0.0123, "gib_month": 0.023,
                 "assumed": "a call of Lambda is taken to last …",
                 "parts": [{"what": "S3 PUT and LIST", "count": 1190, "dollars": 0.006}]},
     "notes": ["counted by this server since it started"],
     "error": null}

``requests``, ``refusals`` and ``stores`` come with the most first. An operation is that of the OpenAPI document, and
null for a path that is no route. CloudWatch knows two: ``*``, which is all together, and ``appends``. ``held`` are the
requests that asked to be held back, which are in ``count``, and not in ``p50_ms`` and ``p99_ms``. Any of ``requests``,
``refusals``, ``log``, ``stores`` and ``dollars`` is null where it is not known, and so are the times and the numbers of
workers. ``error`` is null, or ``{"code", "detail"}`` for what could not be had.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fenceline_cli import prices

Counts = Counter[str]
_STEPS = 8  # buckets for each doubling of a time, so that a time is right within 5 %
_LEAST_MS = 0.01
_APPENDS_MS = f"{min(prices.APPEND_MS.values())} to {max(prices.APPEND_MS.values())}"
MEMORY = f"it has {prices.LAMBDA_GB * 1024:,.0f} MB of memory"


def bucket_of(duration_ms: float) -> int:
    """Return the bucket of a duration."""
    return round(_STEPS * math.log2(max(duration_ms, _LEAST_MS)))


def quantile_ms(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the time within which ``share`` of all were answered; ``None`` for none."""
    left = sum(buckets.values()) * share
    for bucket, count in sorted(buckets.items()):
        left -= count
        if left <= 0:
            return float(f"{2 ** (bucket / _STEPS):.3g}")
    return None


def function_ms(function: str | None, operation: str, body_bytes: int) -> float:
    """Return how long a function on AWS is assumed to take for a request, by the figures of ``prices``."""
    if function == "produce":
        kib = body_bytes / 1024
        return next((ms for size, ms in prices.APPEND_MS.items() if kib <= size), prices.APPEND_MS[1024])
    return prices.READ_MS if operation.startswith(("read", "poll")) else prices.SEGMENTS_MS


def document(counts: Counts, **about: Any) -> dict[str, Any]:
    """Return the document; ``about`` are its members beside the counts."""
    stores = _below(counts, "stores/")
    calls, seconds = counts["charged/calls"], counts["charged/ms"] / 1_000
    named = ("appends", "creates", "lost_races", "conflicts", "duplicates")
    return {
        **about,
        "requests": _requests(counts),
        "refusals": listed("code", _below(counts, "refusals/")),
        "log": {name: counts[f"log/{name}"] for name in named},
        "stores": listed("call", stores),
        "dollars": dollars(
            [
                ("API Gateway requests", counts["charged/api"], prices.API_REQUEST),
                ("Lambda calls", calls, prices.LAMBDA_REQUEST),
                ("Lambda seconds, as assumed", seconds, prices.LAMBDA_GB_SECOND * prices.LAMBDA_GB),
                ("CloudWatch Logs, bytes", calls * prices.LOG_BYTES, prices.LOG_GB / prices.GB),
                ("S3 PUT and LIST", stores.get("objects.create", 0) + stores.get("objects.list", 0), prices.S3_PUT),
                ("S3 GET", stores.get("objects.get", 0), prices.S3_GET),
                ("DynamoDB write units", counts["charged/write"], prices.DYNAMODB_WRITE_UNIT),
                ("DynamoDB read units", counts["charged/read"], prices.DYNAMODB_READ_UNIT),
            ],
            assumed=f"a call of Lambda is taken to last {_APPENDS_MS} ms for an append, {prices.READ_MS} ms for a read,"
            f" {prices.SEGMENTS_MS} ms for all else, and as long as it was held for one that was held; {MEMORY}",
        ),
    }


def unknown(region: str, code: str, detail: str, *, source: str = "server") -> dict[str, Any]:
    """Return the document of which nothing is known, and why."""
    nothing = dict.fromkeys(
        ("since", "until", "workers", "counted_workers", "requests", "refusals", "log", "stores", "dollars")
    )
    return {
        "source": source,
        "region": region,
        **nothing,
        "notes": [],
        "error": {"code": code, "detail": detail},
    }


def dollars(parts: Sequence[tuple[str, float, float]], *, assumed: str) -> dict[str, Any]:
    """Return what parts cost, each of so many and for so much each; ``assumed`` says what could not be counted."""
    listed = [{"what": what, "count": count, "dollars": count * each} for what, count, each in parts]
    return {
        "prices": {"date": prices.DATE, "region": prices.REGION},
        "total": sum(count * each for _, count, each in parts),
        "parts": listed,
        "gib_month": prices.S3_GIB_MONTH,
        "assumed": assumed,
    }


def _requests(counts: Counts) -> list[dict[str, Any]]:
    found = _below(counts, "requests/")
    times: dict[str, dict[int, int]] = {operation: {} for operation in found}
    for key, count in _below(counts, "ms/").items():
        operation, _, bucket = key.partition("/")
        times[operation][int(bucket)] = count
    return [
        {
            "operation": operation or None,
            "count": count,
            "held": counts[f"held/{operation}"],
            "p50_ms": quantile_ms(times[operation], 0.5),
            "p99_ms": quantile_ms(times[operation], 0.99),
        }
        for operation, count in sorted(found.items(), key=lambda one: (-one[1], one[0]))
    ]


def _below(counts: Counts, prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): count for key, count in counts.items() if key.startswith(prefix)}


def listed(member: str, found: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return counts by name as a list, the most first."""
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return [{member: name, "count": count} for name, count in ordered]
