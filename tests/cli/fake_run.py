"""A service for ``fenceline txn run``: what is read and owned, and the transactions that are written.

Rule: a group's offsets are those that were committed, alone or with a transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from fenceline import errors
from fenceline.model.record import Record
from tests.support.fake_service import refused
from tests.support.fake_sessions import FakeSessions
from tests.support.fake_transactions import FakeTransactions


@dataclass
class FakeRun(FakeSessions, FakeTransactions):
    """A service with the topics ``t``, to read, and ``u``, to write to, of two partitions each."""

    partitions: int = 2
    lease_ms: int = 300_000
    unstable: int = 0  # how many looks at a group's offsets find one pending
    order: list[str] = field(default_factory=list)  # of requests that begin a run

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if re.fullmatch(r"/v1/groups/[^/]+/offsets", path):
            return self._group(request)
        if request.method == "POST" and path in ("/v1/producer-ids", "/v1/own"):
            self.order.append(path)
        return super().answer(request)

    def _group(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            body = json.loads(request.content)
            with self._lock:
                self.committed_offsets += body["offsets"]
            return httpx.Response(200, json={})
        self.order.append("stable offsets" if request.url.params.get("require_stable") == "true" else "offsets")
        if self.unstable:
            self.unstable -= 1
            return refused(errors.UnstableOffsetCommitError("an offset is pending"))
        offsets = [{"topic": "t", "partition": n, "offset": offset} for n, offset in self.group().items()]
        return httpx.Response(200, json={"offsets": [{**one, "metadata": ""} for one in offsets], "has_more": False})

    def group(self) -> dict[int, int]:
        """Return where the group is, by partition."""
        return {one["partition"]: one["offset"] for one in self.committed_offsets}

    def written(self) -> list[bytes | None]:
        """Return the values that were committed to ``u``, in the order of their transactions."""
        return [value for (topic, _), value in self.committed if topic == "u"]

    def give(self, partition: int, values: Iterable[Any]) -> None:
        """Append records to ``t``, each a value or a record."""
        records = [one if isinstance(one, Record) else Record(one) for one in values]
        with self.client() as client:
            client.produce("t", partition, records)
