"""Regions behind httpx's mock transport, as far as a subscriber of several regions sees them.

Rule: a test writes each region's log, in that region's own order. Neither records nor marks travel by themselves.

Not here: replication between real regions; see ``regions``.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from fenceline import errors
from fenceline.client import Client
from tests.support.runtime import FakeRuntime
from tests.support.wire import refused

Answer = Callable[[httpx.Request], httpx.Response]
Identity = tuple[str, str, int]  # origin, topic id, number

_ASKED = re.compile(r"/v1/(health)|/v1/topics/t(?:/subscriptions/s(?:/(\w+))?)?")


@dataclass
class FakeRegion:
    """A region with the topic ``t`` and its subscription ``s``."""

    name: str
    runtime: FakeRuntime
    partitions: int = 1
    fault: Answer | None = None  # answers in place of the region
    faults: dict[str, Answer] = field(default_factory=dict)  # the same, by the last part of the path
    active_region: str | None = None
    exists: bool = False  # the subscription
    replicated: bool = False
    logs: dict[int, list[Identity | None]] = field(default_factory=lambda: defaultdict(list))  # None: a marker
    acknowledged: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    asked: list[tuple[str, str, Any]] = field(default_factory=list)  # method, last part of the path, body or query

    def __post_init__(self) -> None:
        self.release = threading.Event()  # lets the requests go that hang

    def client(self) -> Client:
        return Client(f"http://{self.name}", runtime=self.runtime, http=httpx.MockTransport(self.answer))

    def write(self, *identities: str, partition: int = 0) -> None:
        """Append records, each as its origin, life and number, such as ``a1:7``; ``-`` is a marker."""
        for one in identities:
            life, _, number = one.partition(":")
            self.logs[partition].append(None if one == "-" else (life[0], life, int(number)))

    def refuse_connections(self) -> None:
        self.fault = _no_connection

    def hang(self, request: httpx.Request) -> httpx.Response:
        """Give no answer until the test is over; meanwhile time goes on."""
        self.runtime.step_ms = 1_000
        self.release.wait()
        raise httpx.ReadTimeout("the answer was lost")

    def lose_answers(self, what: str) -> None:
        """Carry the requests out whose path ends with ``what``, and give no answer."""

        def lose(request: httpx.Request) -> httpx.Response:
            self._answer(request, what)
            raise httpx.ReadTimeout("the answer was lost")

        self.faults[what] = lose

    def sent(self, method: str, what: str) -> list[Any]:
        return [body for asked, part, body in self.asked if (asked, part) == (method, what)]

    def mark(self, partition: int = 0) -> int:
        """Return the first offset that is neither acknowledged nor a marker."""
        log, done = self.logs[partition], self.acknowledged[partition]
        return next((n for n, one in enumerate(log) if one is not None and n not in done), len(log))

    def answer(self, request: httpx.Request) -> httpx.Response:
        found = _ASKED.fullmatch(request.url.path)
        assert found is not None, request.url
        what = found[1] or found[2] or request.url.path.rpartition("/")[2]
        body = json.loads(request.content) if request.content else dict(request.url.params)
        self.asked.append((request.method, what, body))
        if self.fault is not None:
            return self.fault(request)
        if what in self.faults:
            return self.faults[what](request)
        return self._answer(request, what)

    def _answer(self, request: httpx.Request, what: str) -> httpx.Response:
        match what:
            case "health":
                return httpx.Response(200, json={"status": "ok", "region": self.name, "version": "1"})
            case "t":
                topic = {"name": "t", "topic_id": "id", "partitions": self.partitions, "config": {}}
                return httpx.Response(200, json={**topic, "regions": ["a", "b", "c"], "created_at": 1})
            case "s":
                body = json.loads(request.content)
                assert body["initial_position"] == "earliest"
                self.exists, self.replicated = True, body["replicate_subscription_state"]
                shown = {"name": "s", "topic": "t", "replicate_subscription_state": True, "active_region": None}
                return httpx.Response(200, json=shown)
            case "records":
                return self._page(dict(request.url.params))
            case "acknowledgements":
                return self._acknowledge(json.loads(request.content))
        raise AssertionError(what)

    def _page(self, params: dict[str, str]) -> httpx.Response:
        assert self.exists
        assert params["identity"] == "true"
        partition = int(params["partition"])
        log, mark = self.logs[partition], self.mark(partition)
        start = int(params.get("offset", mark))
        bounds = {"log_start_offset": 0, "next_offset": len(log), "last_stable_offset": len(log)}
        if start < mark:
            return refused(errors.OffsetOutOfRangeError("below the mark", log_start_offset=0, next_offset=len(log)))
        position = start
        records: list[dict[str, Any]] = []
        for offset, one in enumerate(log[start:], start):
            if len(records) == int(params["max_records"]):
                break
            position = offset + 1
            if one is not None and offset not in self.acknowledged[partition]:
                records.append(_record(offset, one))
        page = {"records": records, "encoding": "utf8", "position": position, **bounds}
        if self.active_region not in (None, self.name):
            page["active_region"] = self.active_region
        return httpx.Response(200, json=page)

    def _acknowledge(self, body: dict[str, Any]) -> httpx.Response:
        partition = body["partition"]
        offsets = body["individual"] if "individual" in body else range(body["cumulative"] + 1)
        self.acknowledged[partition].update(offsets)
        return httpx.Response(200, json={"mark_delete_offset": self.mark(partition)})


def _record(offset: int, identity: Identity) -> dict[str, Any]:
    origin, life, number = identity
    named = {"origin": origin, "origin_topic_id": life, "number": number}
    fixed: dict[str, Any] = {"timestamp": 1, "key": None, "headers": [], "topic_epoch": -1}
    return {"offset": offset, "value": f"{life}:{number}", **fixed, **named}


def _no_connection(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")
