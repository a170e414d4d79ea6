"""A service that knows transactions and producers, each set by the test: behind httpx's mock transport.

Rule: it answers as API.md says, a page of ``page_size`` at a time, and remembers what was asked.

Not here: rules about transactions. The fake decides nothing by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from fenceline import errors
from tests.support.wire import refused

_TOPIC = re.compile(r"/v1/topics/([^/]+)(/offsets)?")
_PARTITION = re.compile(r"/v1/topics/([^/]+)/partitions/(\d+)/(producer-states|abort-transaction)")

Place = tuple[str, int]


@dataclass
class FakeListings:
    """A service with topics of two partitions each.

    Attributes:
        states: For a partition the producers that it knows.
        ends: For a partition its log start, next and last stable offset; left out, it is empty.
        asked: Each request as a method, a path and its parameters or its body.
        on_asked: Called with a path before it is answered.
    """

    topics: Sequence[str] = ("t", "u")
    transactions: list[dict[str, Any]] = field(default_factory=list)
    states: dict[Place, list[dict[str, Any]]] = field(default_factory=dict)
    ends: dict[Place, tuple[int, int, int]] = field(default_factory=dict)
    asked: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    page_size: int = 2
    on_asked: Any = None
    refusal: errors.FencelineError | None = None  # the answer to abort-transaction
    once: dict[str, dict[str, Any]] = field(default_factory=dict)  # what applications have committed

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.raw_path.decode().partition("?")[0])
        params = dict(request.url.params)
        body = json.loads(request.content) if request.content else params
        self.asked.append((request.method, path, body))
        if self.on_asked is not None:
            self.on_asked(path)
        if path == "/v1/topics":
            return _found({"topics": [_topic(name) for name in self.topics], "has_more": False})
        if found := _PARTITION.fullmatch(path):
            return self._partition((found[1], int(found[2])), request.method, params)
        if (found := _TOPIC.fullmatch(path)) and found[1] in self.topics:
            return _found(self._offsets(found[1], params) if found[2] else _topic(found[1]))
        if path == "/v1/producer-ids":
            return _found({"producer_id": 7, "producer_epoch": 5})
        if path.startswith("/v1/once/"):
            return self._once(path.removeprefix("/v1/once/"), request.method)
        if path.startswith("/v1/operator/"):
            return self._of_operator(path, params)
        if path == "/v1/transactions":
            return self._listed(params)
        for one in self.transactions:
            if path == f"/v1/transactions/{one['transactional_id']}":
                return _found(one)
        if path.startswith("/v1/transactions/"):
            return refused(errors.TransactionalIdNotFoundError("there is no such id"))
        return refused(errors.UnknownTopicOrPartitionError("there is no such topic"))

    def _of_operator(self, path: str, params: Mapping[str, str]) -> httpx.Response:
        if path == "/v1/operator/transactions":
            return self._listed(params)
        if path == "/v1/operator/abort-transaction":
            return httpx.Response(204) if self.refusal is None else refused(self.refusal)
        for one in self.transactions:
            if path == f"/v1/operator/transactions/{one['transactional_id']}/fence":
                return _found({"producer_id": 7, "producer_epoch": 5, "before": one})
        return refused(errors.TransactionalIdNotFoundError("there is no such id"))

    def _once(self, app_id: str, method: str) -> httpx.Response:
        if method == "DELETE":
            self.once.pop(app_id, None)
            return httpx.Response(204)
        none = {"app_id": app_id, "version": -1, "note": None, "committed_at": None}
        return _found(self.once.get(app_id, none))

    def _listed(self, params: Mapping[str, str]) -> httpx.Response:
        found = [one for one in self.transactions if one["transactional_id"] > params.get("start_after", "")]
        if "state" in params:
            found = [one for one in found if one["state"] == params["state"]]
        if "producer_id" in params:
            found = [one for one in found if one["producer_id"] == int(params["producer_id"])]
        if "longer_than_ms" in params:
            found = [one for one in found if one["started_at"] is not None]
        return _found({"transactions": found[: self.page_size], "has_more": len(found) > self.page_size})

    def _partition(self, place: Place, method: str, params: Mapping[str, str]) -> httpx.Response:
        if method == "POST":
            return httpx.Response(204) if self.refusal is None else refused(self.refusal)
        after = int(params.get("start_after", -1))
        found = [one for one in self.states.get(place, []) if one["producer_id"] > after]
        return _found({"producers": found[: self.page_size], "has_more": len(found) > self.page_size})

    def _offsets(self, topic: str, params: Mapping[str, str]) -> dict[str, Any]:
        entries = []
        for partition in range(int(params.get("start_partition", 0)), 2):
            start, end, stable = self.ends.get((topic, partition), (0, 0, 0))
            bounds = {"log_start_offset": start, "next_offset": end, "last_stable_offset": stable}
            rest = {"topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0}
            entries.append({"partition": partition, **bounds, **rest})
        return {"topic_id": "id", "partitions": entries, "has_more": False}


def transaction(name: str, state: str, producer_id: int, producer_epoch: int, *places: Place) -> dict[str, Any]:
    """Return a transaction as the service shows it; one with a state that is open began at 1,000,000 ms."""
    is_open = state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    return {
        "transactional_id": name,
        "state": state,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_timeout_ms": 60_000,
        "started_at": 1_000_000 if is_open else None,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in places],
        "groups": ["g"] if is_open else [],
    }


def producer(producer_id: int, producer_epoch: int, start: int = -1) -> dict[str, Any]:
    """Return a producer as a partition shows it; ``start`` is where its open transaction begins."""
    pair = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    return {**pair, "last_sequence": 3, "last_timestamp": 2_000_000, "current_txn_start_offset": start}


def _topic(name: str) -> dict[str, Any]:
    return {"name": name, "topic_id": "id", "partitions": 2, "config": {}, "regions": ["local"], "created_at": 1}


def _found(answer: Mapping[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=answer)
