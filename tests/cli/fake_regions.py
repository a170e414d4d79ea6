"""Services of several regions, whose state is set by the test: each behind httpx's mock transport.

Rule: a region answers as API.md says, and remembers what was asked. What happens between two looks is set by
``on_asked``.

Not here: replication itself. The fakes exchange nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from fenceline import errors
from fenceline.client import Client
from tests.support.runtime import AheadRuntime
from tests.support.wire import refused

NOW_MS = 1_700_000_000_000


@dataclass
class FakeRegion:
    """A service with the topic ``t``.

    Attributes:
        cursors: Of each subscription, the mark and the backlog in each partition.
        replicated: The subscriptions that are replicated.
        status: What ``replication`` shows, beside the region's name.
        asked: Each request as a method, a path and its body.
        on_asked: Called with method and path before each answer.
        logs: For a partition, its records as pages show them, in the order of their offsets.
        segments: For a partition, its segments as a list shows them.
        objects: The bodies behind the segments' URLs.
    """

    name: str
    partitions: int = 2
    regions: tuple[str, ...] = ("a", "b")
    is_down: bool = False
    missing: bool = False  # the topic
    cursors: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    replicated: set[str] = field(default_factory=set)
    active: dict[str, str | None] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    on_asked: Callable[[str, str], None] | None = None
    refusals: dict[str, errors.FencelineError] = field(default_factory=dict)  # by path
    logs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)
    segments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    page_size: int = 3

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("connection refused")
        path = unquote(request.url.raw_path.decode().partition("?")[0])
        body = json.loads(request.content) if request.content else dict(request.url.params)
        self.asked.append((request.method, path, body))
        if self.on_asked is not None:
            self.on_asked(request.method, path)
        if path in self.refusals:
            return refused(self.refusals[path])
        if path in self.objects:
            return httpx.Response(200, content=self.objects[path])
        if path == "/v1/health":
            return _found({"status": "ok", "region": self.name, "version": "0"})
        if path == "/v1/topics":
            return self._topics(request.method, body)
        if self.missing or not path.startswith("/v1/topics/t"):
            return refused(errors.UnknownTopicOrPartitionError("there is no such topic"))
        return self._of_topic(request.method, path.removeprefix("/v1/topics/t").strip("/").split("/"), body)

    def changes(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Return the requests that change something, each path without the topic's."""
        return [(one, path.removeprefix("/v1/topics/t/"), body) for one, path, body in self.asked if one != "GET"]

    def topic(self) -> dict[str, Any]:
        shape = {"name": "t", "topic_id": f"id-{self.name}", "partitions": self.partitions, "config": {}}
        return {**shape, "regions": list(self.regions), "created_at": 1}

    def _topics(self, method: str, body: Mapping[str, Any]) -> httpx.Response:
        if method == "GET":
            return _found({"topics": [] if self.missing else [self.topic()], "has_more": False})
        return _found({**self.topic(), **{name: one for name, one in body.items() if name != "config"}})

    def _of_topic(self, method: str, parts: list[str], body: Mapping[str, Any]) -> httpx.Response:
        match parts:
            case [""]:
                return _found({**self.topic(), **body} if method == "PATCH" else self.topic())
            case ["replication"]:
                empty: dict[str, Any] = {"regions": [], "gaps": [], "skipped_records": 0, "snapshots": []}
                return _found({"region": self.name, **empty, "pending": [], **self.status, "has_more": False})
            case ["replication", "snapshots"]:
                return _found({"snapshot_id": "snap"})
            case ["replication", "regions", region, what]:
                return _found(region_status(region, suspended=what == "suspend"))
            case ["partitions", _, "replication", "skip"]:
                return _found({"skipped_records": 12})
            case ["subscriptions", name]:
                return self._subscription(method, name, body)
            case ["partitions", number, what]:
                return self._partition(int(number), what, body)
        return refused(errors.NotFoundError("no such path"))

    def _subscription(self, method: str, name: str, body: Mapping[str, Any]) -> httpx.Response:
        if method == "PUT":
            self.cursors.setdefault(name, dict.fromkeys(range(self.partitions), (0, 0)))
            if body.get("replicate_subscription_state"):
                self.replicated.add(name)
            if "active_region" in body:
                self.active[name] = body["active_region"]
        if name not in self.cursors:
            return refused(errors.UnknownSubscriptionError("there is no such subscription"))
        cursors = [
            {"partition": number, "mark_delete_offset": mark, "individually_acknowledged": [], "backlog": backlog}
            for number, (mark, backlog) in self.cursors[name].items()
        ]
        what = {"name": name, "topic": "t", "replicate_subscription_state": name in self.replicated}
        return _found({**what, "active_region": self.active.get(name), "partitions": cursors, "has_more": False})

    def _partition(self, number: int, what: str, params: Mapping[str, Any]) -> httpx.Response:
        log, start = self.logs.get(number, []), self.log_starts.get(number, 0)
        end = log[-1]["offset"] + 1 if log else start
        bounds = {"log_start_offset": start, "next_offset": end, "last_stable_offset": end}
        if what == "offsets":
            return _found({**bounds, "topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0})
        offset = int(params.get("offset", start))
        if what == "segments":
            listed = [one for one in self.segments.get(number, []) if one["next_offset"] > offset]
            return _found({"segments": listed, "has_more": False, "topic_id": f"id-{self.name}", **bounds})
        if not start <= offset <= end:
            return refused(errors.OffsetOutOfRangeError("outside", **bounds))
        page = [one for one in log if one["offset"] >= offset][: self.page_size]
        position = page[-1]["offset"] + 1 if page else end
        return _found({"records": page, "encoding": "base64", "position": position, **bounds})


def world(*names: str) -> dict[str, FakeRegion]:
    """Return regions that name each other, each at ``http://NAME``."""
    return {name: FakeRegion(name, regions=names) for name in names}


def connecting(regions: Mapping[str, FakeRegion], runtime: AheadRuntime) -> Callable[..., Client]:
    """Return what makes a client of the region that a URL names."""

    def answer(request: httpx.Request) -> httpx.Response:
        return regions[request.url.host].answer(request)

    def connect(url: str, **given: Any) -> Client:
        return Client(url, http=httpx.MockTransport(answer), runtime=runtime, **given)

    return connect


def region_status(region: str, **given: Any) -> dict[str, Any]:
    """Return how a region is shown, connected and without lag unless ``given`` says otherwise."""
    lag = {"lag_records": 0, "lag_ms": 0, "last_seen_at": NOW_MS, "answered_at": None, "problem": None}
    return {"region": region, "connected": True, "suspended": False, **lag, **given}


def snapshot(partition: int, local_offset: int, offsets: Mapping[str, int], **given: Any) -> dict[str, Any]:
    what = {"snapshot_id": "snap", "partition": partition, "local_offset": local_offset, "offsets": offsets}
    return {**what, "completed_at": NOW_MS, "final": True, **given}


def record(offset: int, origin: str, number: int, **given: Any) -> dict[str, Any]:
    """Return a record with its identity; its value is its origin and number unless ``given`` says otherwise."""
    value = base64.b64encode(given.pop("value", f"{origin}{number}".encode())).decode()
    identity = {"origin": origin, "origin_topic_id": f"id-{origin}", "number": number}
    content = {"key": None, "value": value, "headers": [], "timestamp": 1_000 + number}
    return {"offset": offset, "topic_epoch": -1, **content, **identity, **given}


def _found(answer: Mapping[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=answer)
