"""Peers that are away, slow, or lie: nothing of that is appended, the status says it, and the other links go on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c
import httpx
import pytest

from fenceline.adapters.http_connections import CannotReach
from fenceline.errors import printable
from fenceline.regions.peer import PeerProblem, Peers
from fenceline.service.log import Log
from fenceline_http import wiring
from tests.support.carriers import reply
from tests.support.http_events import call
from tests.support.peer_over_http import Fault, RegionOverHttp, with_body, with_json
from tests.support.runtime import FakeRuntime


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def sources(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, RegionOverHttp]]:
    monkeypatch.setattr(time, "monotonic", lambda: runtime.monotonic_ms() / 1000)
    made = {name: RegionOverHttp(name, "orders", "local", runtime=runtime) for name in "bc"}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture
def peers(sources: dict[str, RegionOverHttp]) -> Peers:
    return {name: one.peer for name, one in sources.items()}


@pytest.fixture
def topic(service: wiring.Service) -> str:
    created = call("POST", "/v1/topics", value={"name": "orders", "partitions": 2, "regions": ["local", "b", "c"]})
    assert created.status == 201
    return "orders"


def values() -> list[tuple[str, str]]:
    page = call("GET", "/v1/topics/orders/partitions/0/records", {"offset": 0, "identity": "true"}).json
    return [(record["origin"], record["value"]) for record in page["records"]]


def status_of(region: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = call("GET", "/v1/topics/orders/replication").json["regions"]
    return next(one for one in found if one["region"] == region)


def replicate(service: wiring.Service) -> None:
    service.log.replication.run("orders", 0)


def fails(error: Exception) -> Fault:
    def fault(sent: httpx.Request, answer: httpx.Response) -> httpx.Response:
        raise error

    return fault


def answers(status: int, content: bytes, **headers: str) -> Fault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _, __: reply(status, content=content, headers=named)


def entry(**members: Any) -> Fault:
    """Return the fault that changes each segment in an answer."""

    def change(answer: dict[str, Any]) -> None:
        for one in answer["segments"]:
            one.update({name: value(one[name]) if callable(value) else value for name, value in members.items()})

    return with_json(change)


def members(**members: Any) -> Fault:
    """Return the fault that changes members of each answer of segments."""
    return with_json(
        lambda answer: answer.update(
            {name: value(answer[name]) if callable(value) else value for name, value in members.items()}
        )
    )


def flipped(at: int) -> Fault:
    return with_body(lambda body: body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])


def batch_with(at: int, replaced: bytes) -> Fault:
    """Return the fault that replaces bytes of a segment's only batch, whose CRC is made right again."""

    def change(body: bytes) -> bytes:
        changed = body[:at] + replaced + body[at + len(replaced) :]
        return changed[:17] + google_crc32c.value(changed[21:]).to_bytes(4, "big") + changed[21:]

    return with_body(change)


def shrink(answer: dict[str, Any]) -> None:
    answer["segments"].reverse()


FAULTS: dict[str, Fault] = {
    "away": fails(CannotReach("connection refused")),
    "slow to answer": fails(TimeoutError()),
    "ends in the midst of an answer": fails(CannotReach("it sent less than it announced")),
    "500": answers(500, b'{"code": "CORRUPT_LOG", "detail": "damaged"}'),
    "404 of another server": answers(404, b"<html>"),
    "503 of a gateway": answers(503, b'{"message": "Service Unavailable"}'),
    "403": answers(403, b'{"message": "Forbidden"}'),
    "redirect": answers(301, b"{}", location="http://elsewhere.example/"),
    "garbage": answers(200, b"\x00\xff garbage"),
    "nothing": answers(200, b""),
    "another JSON": answers(200, b'{"ok": true}'),
    "packed": answers(200, b"\x1f\x8b", content_encoding="gzip"),
    "endless": answers(200, b" " * 7_000_000),
    "another name": members(region="c"),
    "no name": with_json(lambda answer: answer.pop("region")),
    "another life in segments than in the topic": members(topic_id="f" * 32),
    "an offset that is text": entry(base_offset=str),
    "a negative size": entry(bytes=-1),
    "offsets that shrink": with_json(shrink),
    "segments that overlap": entry(base_offset=0, next_offset=1),
    "a position below its segments": members(position=0),
    "a log that ends before its segments": members(next_offset=0, last_stable_offset=0, position=0),
    "a number that does not follow": entry(own_records=lambda number: number + 1),
    "more records than it has": entry(records=lambda number: number + 1),
    "fewer records than it has": entry(records=0),
    "another chain, another base": entry(next_offset=lambda offset: offset + 1),
    "a wrong CRC": flipped(30),
    "a wrong offset in the body": flipped(7),
    "records that cannot be decoded": batch_with(61, b"\xff" * 6),
    "records that are not packed as they say": batch_with(21, b"\0\1"),
    "a codec that is not known": batch_with(21, b"\0\7"),
    "a body that is cut": with_body(lambda body: body[:-1]),
    "a body with more than was announced": with_body(lambda body: body + b"x"),
    "another body of that size": with_body(lambda body: b"x" * len(body)),
    "no body": with_body(lambda body: b""),
    "a size that was not announced": entry(bytes=lambda size: size - 1),
    "a URL that is none": entry(url="not a url"),
    "a URL of a file": entry(url="file:///etc/passwd"),
    "an answer without end": members(has_more=True, position=lambda position: 0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_of_it_is_taken_and_the_other_link_goes_on(
    topic: str, sources: dict[str, RegionOverHttp], service: wiring.Service, runtime: FakeRuntime, name: str
) -> None:
    b, c = sources["b"], sources["c"]
    for number in range(3):
        b.append(f"b{number}")
    c.append("c0")
    b.fault = FAULTS[name]
    replicate(service)
    assert values() == [("c", "c0")]
    status = status_of("b")
    assert status["problem"], name
    assert (status_of("c")["problem"], status_of("c")["lag_records"]) == (None, 0)
    c.append("c1")
    runtime.advance(100)
    replicate(service)
    assert values() == [("c", "c0"), ("c", "c1")]
    produced = call("POST", "/v1/topics/orders/partitions/0/records", value={"records": [{"value": "own"}]})
    assert produced.status == 200

    b.fault = None
    runtime.advance(60_000)
    replicate(service)
    assert values()[2:] == [("local", "own"), ("b", "b0"), ("b", "b1"), ("b", "b2")]
    assert (status_of("b")["problem"], status_of("b")["lag_records"]) == (None, 0)


def test_a_peer_with_a_problem_is_asked_ever_less(
    topic: str, sources: dict[str, RegionOverHttp], service: wiring.Service, runtime: FakeRuntime
) -> None:
    b = sources["b"]
    b.fault = FAULTS["500"]
    for _ in range(300):
        replicate(service)
        runtime.advance(2_000)
    assert 20 <= len(b.asked) <= 30  # 1 s, 2 s, …, then each 30 s of ten minutes


def test_a_log_of_another_history_is_not_taken(
    topic: str, sources: dict[str, RegionOverHttp], service: wiring.Service, runtime: FakeRuntime, peers: Peers
) -> None:
    """The bucket of b was swapped: the same life, other segments. Each process compares them once."""
    b = sources["b"]
    b.append("b0")
    replicate(service)
    assert values() == [("b", "b0")]
    b.append("b1")
    b.fault = entry(chain="another")
    another = Log(service.objects, service.items, runtime, region="local", item_age_ms=0, peers=peers)
    another.replication.run("orders", 0)
    assert values() == [("b", "b0")]
    region = another.replication.status("orders").regions[0]
    assert "another history" in (region.problem or "")
    another.close()


@pytest.mark.parametrize(
    "text", ["\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "\u2066x", "\u200b", "a\r\nb\u2028c", "\ud800"]
)
def test_nothing_unprintable_of_a_peers_reaches_a_problem(
    topic: str, sources: dict[str, RegionOverHttp], service: wiring.Service, runtime: FakeRuntime, text: str
) -> None:
    refusal = json.dumps({"code": text, "detail": text}).encode()
    faults: list[Fault] = [
        answers(400, refusal),
        with_json(lambda answer: answer.update(region=f"x{text}")),
        with_json(lambda answer: answer.update(regions=[text, f"x{text}"]), "/orders"),
        entry(url=f"gopher://{text}"),
        entry(chain=text, records=9),
    ]
    for fault in faults:
        sources["b"].append("x")
        sources["b"].fault = fault
        runtime.advance(60_000)
        replicate(service)
        problem = status_of("b")["problem"]
        assert problem
        assert problem.isprintable(), fault
    assert printable(text) == PeerProblem(text).args[0] != text
