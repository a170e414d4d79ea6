"""The fake service with sessions, claims, ownership and subscriptions: the test sets what it answers.

Rule: it says yes, and remembers, until a test says otherwise.

Not here: rules about access. The fake decides nothing by itself.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from fenceline import errors
from fenceline.format import batch
from tests.support.fake_service import FakeService, refused

_SESSION = re.compile(r"/v1/sessions/([^/]+?)(/heartbeat)?")
_PRODUCER = re.compile(r"/v1/topics/t/producers(?:/([^/]+))?")
_SUBSCRIPTION = re.compile(r"/v1/topics/t/subscriptions(?:/([^/]+)(?:/(\w+))?)?")


@dataclass
class FakeSessions(FakeService):
    """A service with one topic, ``t``, and everything that is held on it."""

    lease_ms: int = 60
    heartbeat_error: errors.FencelineError | None = None  # the answer to a heartbeat
    append_error: errors.FencelineError | None = None  # the answer to an append
    producer_error: errors.FencelineError | None = None  # the answer to a look at a producer
    claim_errors: list[errors.FencelineError | None] = field(default_factory=list)  # of the next claims
    own_errors: list[errors.FencelineError | None] = field(default_factory=list)  # of the next requests to own
    is_silent: bool = False  # heartbeats get no answer
    loses_claims: int = 0  # number of lost answers to claims
    polls_queued: int = 0  # number of polls that find the claim still queued
    epoch: int = 4
    holds: list[tuple[str | None, str]] = field(default_factory=list)  # of each session: group and resource
    owner: tuple[str | None, int] | None = None  # the owner that a look finds, in place of the session that asked
    closed: list[str] = field(default_factory=list)
    requests_of_sessions: list[httpx.Request] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    bodies: dict[str, list[Any]] = field(default_factory=dict)
    acknowledge_errors: dict[int, Exception] = field(default_factory=dict)  # errors of acknowledgements, by partition
    marks: dict[int, int] = field(default_factory=dict)
    page_size: int = 100  # partitions of a subscription in one answer
    granted: dict[str, Any] = field(init=False)  # the last claim that was taken
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)  # the claims that were taken, by name
    owning: dict[str, Any] = field(init=False)  # the last request to own that was taken

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.raw_path.decode().partition("?")[0])
        body = _json(request)
        if path.startswith("/v1/sessions"):
            return self._session(request, path, body)
        if (found := _PRODUCER.fullmatch(path)) is not None:
            return self._producer(request, found[1], body)
        if path.startswith("/v1/own"):
            return self._own(request, path, body)
        if (found := _SUBSCRIPTION.fullmatch(path)) is not None:
            return self._subscription(request, found[1], found[2], body)
        if path.startswith("/v1/groups/"):
            self._note(f"{request.method} group", [dict(request.url.params), body])
            kept = {"topic": "t", "partition": 0, "offset": 7, "metadata": "m"}
            return httpx.Response(200, json={"offsets": [kept]} if request.method == "GET" else {})
        if request.method == "POST" and path.endswith("/records"):
            self._note("append", dict(request.url.params))
            if self.append_error is not None:
                return refused(self.append_error)
        return super().answer(request)

    def _note(self, what: str, body: Any) -> None:
        self.seen[what] += 1
        self.bodies.setdefault(what, []).append(body)

    def _session(self, request: httpx.Request, path: str, body: Any) -> httpx.Response:
        self.requests_of_sessions.append(request)
        if path == "/v1/sessions":
            self._note("create session", body)
            session = {"session_id": f"s{self.seen['create session']}", "lease_ms": self.lease_ms, "expires_at": 1}
            return httpx.Response(201, json=session)
        found = _SESSION.fullmatch(path)
        assert found is not None
        if request.method == "DELETE":
            self.closed.append(found[1])
            return httpx.Response(204)
        if request.method == "GET":
            holds = [{"group": group, "resource": resource} for group, resource in self.holds]
            session = {"session_id": found[1], "lease_ms": self.lease_ms, "expires_at": 1, "state": "live"}
            return httpx.Response(200, json={**session, "holds": holds})
        self._note("heartbeat", None)
        if self.is_silent:
            raise httpx.ReadTimeout("nobody answers")
        return httpx.Response(200, json={"expires_at": 2}) if self.heartbeat_error is None else self._refusal()

    def _refusal(self) -> httpx.Response:
        assert self.heartbeat_error is not None
        return refused(self.heartbeat_error)

    def _producer(self, request: httpx.Request, name: str | None, body: Any) -> httpx.Response:
        if request.method == "DELETE":
            self._note("close producer", name)
            return httpx.Response(204)
        if request.method == "POST":
            self._note("claim", body)
            if self.loses_claims:
                self.loses_claims -= 1
                raise httpx.ReadTimeout("the answer was lost")
            if self.claim_errors and (error := self.claim_errors.pop(0)) is not None:
                return refused(error)
            claim = {**body, "partitions": body.get("partitions") or [*range(self.partitions)]}
            self.granted = self.claims[body["producer_name"]] = claim
        elif name is None:
            both = {"producers": [self._claim(self.granted, True)], "waiting": [self._claim(self.granted, False)]}
            return httpx.Response(200, json=both)
        else:
            self._note("look at producer", dict(request.url.params))
            if self.producer_error is not None:
                return refused(self.producer_error)
            self.polls_queued = max(self.polls_queued - 1, 0)
            claim = self.claims.get(name, self.granted)
        if "topic_epochs" in (body or {}) and self.heartbeat_error is not None:
            # A claim with topic epochs is a reconnection.
            self.heartbeat_error = None
        return httpx.Response(201, json={"producer": self._claim(claim, not self.polls_queued)})

    def _claim(self, taken: dict[str, Any], is_granted: bool) -> dict[str, Any]:
        claim = {name: taken[name] for name in ("producer_name", "session_id", "access_mode")} | {"expires_at": 3}
        if not is_granted:
            return {**claim, "state": "queued", "queue_position": 1, "topic_epochs": {}, "next_offsets": {}}
        numbers = {str(partition): self.epoch for partition in taken["partitions"]}
        return {**claim, "state": "granted", "topic_epochs": numbers, "next_offsets": dict.fromkeys(numbers, 9)}

    def _own(self, request: httpx.Request, path: str, body: Any) -> httpx.Response:
        if path.endswith("/release"):
            self._note("release", body)
            return httpx.Response(204)
        if request.method == "GET":
            params = dict(request.url.params)
            self._note("look at owner", params)
            session_id, token = self.owner or (self.owning["session_id"], 5)
            who = {"session_id": session_id, "group": params.get("group"), "generation": 2, "fencing_token": token}
            return httpx.Response(200, json={"resource": params["resource"], **who})
        self._note("own", body)
        if self.own_errors and (error := self.own_errors.pop(0)) is not None:
            return refused(error)
        self.owning = body
        owned = [
            {"resource": one["resource"], "generation": one.get("generation", 1), "fencing_token": 5}
            for one in body["resources"]
        ]
        return httpx.Response(200, json={"group": body.get("group"), "resources": owned})

    def _subscription(self, request: httpx.Request, name: str | None, what: str | None, body: Any) -> httpx.Response:
        params = dict(request.url.params)
        self._note(f"{request.method} {what or 'subscription'}", {**params, **(body or {})})
        if name is None:
            return httpx.Response(200, json={"subscriptions": [self._described("a", []), self._described("b", [])]})
        if request.method == "DELETE":
            return httpx.Response(204)
        if what == "records":
            return self._unacknowledged(params)
        if what is not None:
            partition = body["partition"]
            if (error := self.acknowledge_errors.get(partition)) is not None:
                if isinstance(error, errors.FencelineError):
                    return refused(error)
                raise error
            if "cumulative" in body:
                self.marks[partition] = max(self.marks.get(partition, 0), body["cumulative"] + 1)
            if what == "seek":
                self.marks[partition] = body.get("offset", 3)
            return httpx.Response(200, json={"mark_delete_offset": self.marks.get(partition, 0)})
        first = int(params.get("start_partition", 0))
        return httpx.Response(
            200, json=self._described(name, range(first, min(first + self.page_size, self.partitions)))
        )

    def _described(self, name: str, partitions: Any) -> dict[str, Any]:
        cursors = [
            {
                "partition": n,
                "mark_delete_offset": self.marks.get(n, 0),
                "individually_acknowledged": [[8, 9]],
                "backlog": n,
            }
            for n in partitions
        ]
        has_more = bool(cursors) and cursors[-1]["partition"] < self.partitions - 1
        described = {"name": name, "topic": "t", "replicate_subscription_state": False}
        return {**described, "partitions": cursors, "has_more": has_more}

    def _unacknowledged(self, params: dict[str, str]) -> httpx.Response:
        if self.append_error is not None:
            return refused(self.append_error)
        partition = int(params["partition"])
        mark, end = self.marks.get(partition, 0), self.next_offset(partition)
        start = int(params.get("offset", mark))
        bounds = {"log_start_offset": 0, "next_offset": end, "last_stable_offset": end}
        if start < mark:
            return refused(errors.OffsetOutOfRangeError("below the mark", log_start_offset=0, next_offset=end))
        stored = [one for body in self._logs.get(partition, []) for one in batch.decode(body)]
        chosen = [one for one in stored if one.offset >= start][: int(params["max_records"])]
        records: list[dict[str, object]] = [
            {
                "offset": one.offset,
                "timestamp": 1,
                "key": None,
                "value": (one.value or b"").decode(),
                "headers": [],
                "topic_epoch": -1,
            }
            for one in chosen
        ]
        position = chosen[-1].offset + 1 if chosen else start
        if not chosen and params["wait_ms"] != "0":
            time.sleep(0.01)
        return httpx.Response(200, json={"records": records, "encoding": "utf8", "position": position, **bounds})


def _json(request: httpx.Request) -> Any:
    is_json = request.headers.get("content-type") == "application/json"
    return json.loads(request.content) if is_json and request.content else None
