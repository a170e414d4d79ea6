"""What the processes of a local server were asked for since they started.

Rule: memory is bounded. What is counted is a number for each operation, code and kind of call; of times there is a
number for each bucket.

Rule: a process counts for itself. Where a server has several, each leaves its counts in a file of a directory that they
share, and the one that is asked adds them up.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fenceline_cli import prices, usage
from fenceline_http.responses import Response
from fenceline_http.routes import ROUTES
from fenceline_http.wiring import Service

_PAUSE_S = 1.0  # between two writings of the file


@cache
def _functions() -> Mapping[str, str]:
    """Return by operation the name of the function on AWS that would answer it."""
    return {route.operation: route.function for route in ROUTES}


class UsageCounts:
    """The counts of one process. Safe to use from many threads.

    Args:
        workers: How many processes the server has.
        shared: The directory in which they leave their counts, if there are several.
    """

    def __init__(self, service: Service, workers: int = 1, shared: Path | None = None) -> None:
        self._service = service
        self._workers = workers
        self._shared = shared
        self._since = service.runtime.now_ms()
        self._lock = threading.Lock()
        self._counts: usage.Counts = Counter()
        self._stopping = threading.Event()
        if service.meter is not None:
            service.meter.counts_units = True
        if shared is not None:
            threading.Thread(target=self._write_again, name="usage", daemon=True).start()

    def close(self) -> None:
        self._stopping.set()

    def answered(self, answer: Response, duration_ms: float, body_bytes: int, *, is_held: bool) -> None:
        """Count a request with its answer."""
        operation, function = answer.operation, _functions().get(answer.operation)
        assumed_ms = duration_ms if is_held else usage.function_ms(function, operation, body_bytes)
        with self._lock:
            counts = self._counts
            counts[f"requests/{operation}"] += 1
            counts[f"held/{operation}" if is_held else f"ms/{operation}/{usage.bucket_of(duration_ms)}"] += 1
            counts["log/appends"] += function == "produce"
            counts["log/duplicates"] += answer.duplicates
            counts["charged/api"] += max(1, -(-body_bytes // prices.API_REQUEST_BYTES))
            counts["charged/calls"] += 1
            counts["charged/ms"] += round(assumed_ms)
            for code in answer.codes:
                counts[f"refusals/{code}"] += 1

    def document(self) -> dict[str, Any]:
        """Return what was counted, as ``usage.json`` is."""
        found = [(self._since, self._own())]
        if self._shared is not None:
            self._write()
            read = [json.loads(path.read_bytes()) for path in sorted(self._shared.glob("*.json"))]
            found = [(one["since"], Counter(one["counts"])) for one in read]
        total: usage.Counts = Counter()
        for _, counts in found:
            total.update(counts)
        return usage.document(
            total,
            source="server",
            region=self._service.settings.region,
            since=min(since for since, _ in found),
            until=self._service.runtime.now_ms(),
            workers=self._workers,
            counted_workers=len(found),
            notes=["counted by this server since it started"],
            error=None,
        )

    def _own(self) -> usage.Counts:
        """Return a copy of the counts, with the calls of the stores until now."""
        with self._lock:
            if self._service.meter is not None:
                taken = self._service.meter.take()
                self._counts.update({f"stores/{call}": count for call, count in taken.calls.items()})
                self._counts.update({f"charged/{kind}": units for kind, units in taken.units.items()})
                creates = taken.calls.get("objects.create", 0)
                log = {"creates": creates, "lost_races": taken.lost_races, "conflicts": taken.conflicts}
                self._counts.update({f"log/{name}": count for name, count in log.items()})
            return self._counts.copy()

    def _write(self) -> None:
        """Leave the counts for the other processes, which find all of them or those from before."""
        assert self._shared is not None
        whole = json.dumps({"since": self._since, "counts": self._own()})
        part = self._shared / f"{os.getpid()}.{threading.get_ident()}.part"
        part.write_text(whole)
        part.replace(self._shared / f"{os.getpid()}.json")

    def _write_again(self) -> None:
        while not self._stopping.wait(_PAUSE_S):
            self._write()
