"""Another region over HTTP: what is believed of its answers, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from json import dumps, loads
from typing import Any

import httpx
import pytest

from fenceline import limits
from fenceline.adapters.http_connections import CannotReach
from fenceline.adapters.peer_http import HttpPeer
from fenceline.ports import Unavailable
from fenceline.regions.peer import PeerProblem, PeerTopic
from tests.support.carriers import InMemory, reply

ENTRY = {
    "base_offset": 3,
    "next_offset": 5,
    "bytes": 200,
    "url": "http://b/objects/x",
    "origin": None,
    "records": 2,
    "aborted": [{"producer_id": 7, "first_offset": 3, "last_offset": 4}],
    "own_records": 3,
    "appended_at": 1_700_000_000_000,
    "chain": "abc",
    "origin_topic_id": None,
    "origin_next_offset": None,
    "origin_count": None,
    "origin_chain": None,
}
FROM_C = {
    **ENTRY,
    "origin": "c",
    "origin_topic_id": "t" * 32,
    "origin_next_offset": 9,
    "origin_count": 8,
    "origin_chain": "def",
}
LIST = {
    "segments": [ENTRY],
    "has_more": False,
    "topic_id": "f" * 32,
    "log_start_offset": 0,
    "next_offset": 6,
    "last_stable_offset": 5,
    "region": "b",
    "position": 5,
    "log_start_own_records": 0,
    "stable_own_records": 5,
}
TOPIC = {
    "name": "t",
    "topic_id": "f" * 32,
    "partitions": 2,
    "config": {},
    "regions": ["a", "b"],
    "created_at": 1_700_000_000_000,
}
Handler = Callable[[httpx.Request], httpx.Response]


def peer_of(handler: Handler, **options: Any) -> HttpPeer:
    return HttpPeer("b", "http://b/", carrier=InMemory(handler), **options)


def peer_that_answers(answer: Any, status: int = 200) -> HttpPeer:
    return peer_of(lambda _: reply(status, json=answer))


def segments(peer: HttpPeer, **asked: Any) -> Any:
    return peer.segments("t", 1, **{"origin": "own", "offset": 3, "limit": 10, **asked})


def test_it_asks_for_the_segments_of_one_origin_and_takes_them_as_promised() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return reply(
            200,
            json={
                **LIST,
                "segments": [ENTRY, {**FROM_C, "base_offset": 5, "next_offset": 6, "records": 1}],
                "position": 6,
                "new": {"member": 1},
            },
        )

    found = segments(peer_of(answer))
    assert str(asked[0].url) == "http://b/v1/topics/t/partitions/1/segments?origin=own&limit=10&offset=3"
    assert (found.topic_id, found.region, found.position, found.has_more) == ("f" * 32, "b", 6, False)
    assert (found.log_start_own_records, found.stable_own_records, found.last_stable_offset) == (0, 5, 5)
    own, third = found.segments
    assert (own.base_offset, own.next_offset, own.bytes, own.origin, own.records) == (3, 5, 200, None, 2)
    assert (own.aborted[0].producer_id, own.of_origin.own_records, own.of_origin.chain) == (7, 3, "abc")
    assert own.of_origin.topic_id is None
    there = third.of_origin
    assert (there.topic_id, there.next_offset, there.count, there.chain_there) == ("t" * 32, 9, 8, "def")
    segments(peer_of(answer), origin="c", offset=None)
    assert asked[1].url.query == b"origin=c&limit=10"


def test_it_shows_a_topic() -> None:
    assert peer_that_answers(TOPIC).topic("t") == PeerTopic("f" * 32, 2, ("a", "b"))


def test_a_topic_or_partition_that_the_peer_lacks_is_none() -> None:
    lacks = peer_that_answers({"code": "UNKNOWN_TOPIC_OR_PARTITION", "detail": "no"}, 404)
    assert lacks.topic("t") is None
    assert segments(lacks) is None


WRONG: list[tuple[str, Any, str]] = [
    *[(name, value, name) for name in ("log_start_offset", "next_offset", "position", "stable_own_records")
      for value in (None, -1, 1.0, True, "1", 2**63)],
    *[(name, value, name) for name in ("topic_id", "has_more", "segments") for value in (None, 1, "x" * 300, [1])],
    ("topic_id", "\ud800", "topic_id"),  # no store takes it
    ("last_stable_offset", 7, "last_stable_offset"),  # beyond the end
    ("log_start_offset", 6, "last_stable_offset"),
    ("position", 4, "position"),  # within what it listed
    ("position", 7, "position"),
    ("log_start_own_records", 6, "stable_own_records"),
    ("segments", [ENTRY, ENTRY], "base_offset"),  # offsets that shrink
    ("segments", [{**ENTRY, "base_offset": 4}, {**ENTRY, "base_offset": 2, "next_offset": 3}], "base_offset"),
    *[("segments", [{**ENTRY, name: value}], name) for name, value in (
        ("base_offset", "3"), ("next_offset", 3), ("bytes", 0), ("bytes", 2**40), ("records", None), ("url", 1),
        ("url", "x" * 20_000), ("origin", 1), ("aborted", None), ("aborted", [1]), ("aborted", [{}]),
        ("own_records", None), ("appended_at", -1), ("chain", None), ("chain", "x" * 300))],
    ("segments", [{**ENTRY, "records": 3}], "next_offset"),
    *[("segments", [{**FROM_C, name: value}], name) for name, value in (
        ("origin_topic_id", 1), ("origin_next_offset", "1"), ("origin_count", -1), ("origin_chain", []))],
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "blamed"), WRONG)
def test_an_answer_with_a_wrong_member_is_refused_as_a_whole(name: str, value: Any, blamed: str) -> None:
    with pytest.raises(PeerProblem, match=rf"the peer b: its answer cannot be used: .*{blamed}"):
        segments(peer_that_answers({**LIST, name: value}))


@pytest.mark.parametrize("name", [*LIST, *(f"segments.{name}" for name in ENTRY if not name.startswith("origin"))])
def test_an_answer_that_lacks_a_member_is_refused(name: str) -> None:
    answer = loads(dumps(LIST))
    of, _, member = name.rpartition(".")
    del (answer["segments"][0] if of else answer)[member]
    with pytest.raises(PeerProblem, match="names no region" if name == "region" else member):
        segments(peer_that_answers(answer))


@pytest.mark.parametrize(
    ("name", "value"),
    [("partitions", 0), ("partitions", 10_001), ("partitions", "1"), ("regions", "ab"), ("regions", [1]),
     ("regions", ["r"] * 9), ("regions", [""]), ("topic_id", None), ("topic_id", ""), ("topic_id", "f" * 33),
     ("topic_id", "\ud800"), ("topic_id", "\x1b[2J")],
)  # fmt: skip
def test_a_topic_with_a_wrong_member_is_refused(name: str, value: Any) -> None:
    with pytest.raises(PeerProblem, match=name):
        peer_that_answers({**TOPIC, name: value}).topic("t")


@pytest.mark.parametrize(
    ("config", "order"),
    [({}, "offset"), ({"compaction.order": "timestamp"}, "timestamp"), ({"compaction.order": "\x1b[2J"}, None),
     ({"compaction.order": [1]}, None), ("none", None), (None, None)],
)  # fmt: skip
def test_a_peers_order_is_known_only_where_it_is_one_of_ours(config: Any, order: str | None) -> None:
    found = peer_that_answers({**TOPIC, "config": config}).topic("t")
    assert found is not None
    assert found.order == order


def test_another_regions_answer_is_refused() -> None:
    with pytest.raises(PeerProblem, match="it says that it is another region: c"):
        segments(peer_that_answers({**LIST, "region": "c"}))


def test_more_segments_than_asked_for_are_refused() -> None:
    with pytest.raises(PeerProblem, match="more segments than asked for"):
        segments(peer_that_answers(LIST), limit=0)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (reply(500, json={"code": "X", "detail": "a\nb"}), "refused: status=500 code=X detail=a b"),
        (reply(404, json={"message": "Not Found"}), "refused: status=404"),
        (reply(302, headers={"location": "http://c/"}, json={}), "refused: status=302"),
        (reply(500, content=b"<html>"), "no JSON object: status=500"),
        (reply(200, content=b"\xff{"), "no JSON object: status=200"),
        (reply(200, json=[1]), "no JSON object"),
        (reply(200, content=b"[" * 100_000), "no JSON object"),
        (reply(200, content=b'{"position": ' + b"9" * 5_000 + b"}"), "no JSON object"),
        (reply(200, content=b" " * (limits.GATEWAY_BYTES_MAX + 1)), "more than 6000000 bytes"),
        (reply(200, content=b"x", headers={"content-encoding": "gzip"}), "packed"),
    ],
)  # fmt: skip
def test_an_invalid_answer_is_a_problem_in_one_bounded_line(response: httpx.Response, expected: str) -> None:
    with pytest.raises(PeerProblem, match=expected) as problem:
        segments(peer_of(lambda _: response))
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 1_000


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CannotReach("connection refused"), "cannot be reached: reason=connection refused"),
        (TimeoutError(), "did not answer in time: ms=10000"),
    ],
)
def test_a_peer_that_is_away_is_a_problem(error: Exception, expected: str) -> None:
    calls: list[int] = []

    def fails(_: httpx.Request) -> httpx.Response:
        calls.append(1)
        raise error

    with pytest.raises(PeerProblem, match=expected):
        peer_of(fails).topic("t")
    assert len(calls) == 1


class Dripping(httpx.SyncByteStream):
    """A body of which a byte comes each second, for ever."""

    def __init__(self, now: list[float]) -> None:
        self._now = now

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self._now[0] += 1
            yield b" "


def test_an_answer_that_comes_byte_by_byte_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    peer = peer_of(lambda _: httpx.Response(200, stream=Dripping(now)))
    with pytest.raises(PeerProblem, match="did not answer in time: ms=10000"):
        peer.topic("t")
    assert now[0] == 111
    with pytest.raises(PeerProblem, match="did not answer in time: ms=2000"):
        peer.within(2_000).topic("t")
    assert now[0] == 114


def test_a_silent_peer_is_left_alone_for_ever_longer_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    calls: list[float] = []
    is_silent = True

    def answer(_: httpx.Request) -> httpx.Response:
        calls.append(now[0])
        if is_silent:
            raise TimeoutError
        return reply(200, json=TOPIC)

    peer = peer_of(answer)
    for _ in range(1_000):
        with pytest.raises(PeerProblem, match="did not answer in time"):
            peer.topic("t")
        now[0] += 0.1
    pauses = [round(after - before) for before, after in pairwise(calls)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    is_silent = False
    with pytest.raises(PeerProblem):
        peer.topic("t")
    assert peer.within(2_000).topic("t") is not None
    assert peer.topic("t") is not None
    is_silent = True
    for _ in range(20):
        with pytest.raises(PeerProblem):
            peer.topic("t")
        now[0] += 0.1
    assert round(calls[-1] - calls[-2]) == 1


def test_one_call_at_a_time_tries_a_silent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    calls: list[float] = []
    others: list[str] = []

    def answer(_: httpx.Request) -> httpx.Response:
        calls.append(now[0])
        if len(calls) == 2:  # while this call tries the peer, another one is made
            with pytest.raises(PeerProblem) as found:
                peer.topic("t")
            others.append(str(found.value))
        if len(calls) < 3:
            raise TimeoutError
        raise CannotReach("refused")

    peer = peer_of(answer)
    for _ in range(2):
        with pytest.raises(PeerProblem, match="did not answer in time"):
            peer.topic("t")
        now[0] += 1
    assert (calls, len(others)) == ([100, 101], 1)
    now[0] += 1
    for _ in range(2):  # it is no longer silent
        with pytest.raises(PeerProblem, match="refused"):
            peer.topic("t")
    assert calls == [100, 101, 103, 103]


# Bodies


def test_a_body_is_fetched_without_a_signature_from_where_the_entry_says() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return reply(200, content=b"12345") if "x?" in str(request.url) else reply(200, json=TOPIC)

    peer = peer_of(answer, places=lambda: ["https://bucket.s3"], sign=lambda url: {"authorization": f"signed {url}"})
    assert peer.body("https://bucket.s3/x?signature=1%2F2", 5) == b"12345"
    assert "authorization" not in asked[0].headers
    assert str(asked[0].url) == "https://bucket.s3/x?signature=1%2F2"
    peer.topic("t")
    assert asked[1].headers["authorization"] == "signed http://b/v1/topics/t"


@pytest.mark.parametrize(
    ("content", "status", "expected"),
    [
        (b"1234", 200, "another size: bytes=4 announced=5"),
        (b"123456", 200, "more than 5 bytes"),
        (b"12345", 404, "gave no segment: status=404"),
        (b"12345", 302, "gave no segment: status=302"),
        (b"12345", 206, "gave no segment: status=206"),
    ],
)
def test_a_body_is_exactly_what_was_announced(content: bytes, status: int, expected: str) -> None:
    with pytest.raises(PeerProblem, match=expected):
        peer_of(lambda _: reply(status, content=content)).body("http://b/x", 5)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "", "ftp://b/x", "http://[", "http://"])
def test_an_invalid_url_is_a_problem(url: str) -> None:
    with pytest.raises(PeerProblem, match="the peer b: "):
        HttpPeer("b", "http://127.0.0.1:1").body(url, 5)


PLACES = ("https://log.s3.eu-west-1.amazonaws.com", "https://store.example:9000/log/")


@pytest.mark.parametrize(
    "url",
    [
        "http://b/objects/x?signature=1",
        "http://B:80/x",
        "https://log.s3.eu-west-1.amazonaws.com/log/x?X-Amz-Signature=1",
        "https://log.s3.eu-west-1.amazonaws.com:443/x",
        "https://store.example:9000/log/x",
    ],
)
def test_a_body_comes_from_the_peers_own_host_and_from_its_buckets(url: str) -> None:
    peer = peer_of(lambda _: reply(200, content=b"12345"), places=lambda: PLACES)
    assert peer.within(100).body(url, 5) == b"12345"


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://b:8080/x",
        "https://b/x",
        "http://localhost/x",
        "http://b.evil/x",
        "http://b@evil/x",
        "http://evil\\@b:81/x",
        "https://other.s3.eu-west-1.amazonaws.com/x",
        "https://log.s3.eu-west-1.amazonaws.com.evil/x",
        "http://log.s3.eu-west-1.amazonaws.com/x",
        "https://log.s3.eu-west-1.amazonaws.com:8443/x",
        "https://store.example:9000/logs/x",
        "https://store.example:9000/x",
        "https://store.example:9000/log/../private/x",
        "https://store.example:9000/log/%2E%2e/private/x",
    ],
)
def test_no_body_is_fetched_from_anywhere_else(url: str) -> None:
    """A peer of another account could otherwise let this region ask any host that it reaches."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return reply(200, content=b"12345")

    with pytest.raises(PeerProblem, match="neither to its host nor to a configured bucket"):
        peer_of(answer, places=lambda: PLACES).body(url, 5)
    assert asked == []


def test_a_bucket_whose_place_cannot_be_found_out_is_a_problem() -> None:
    def fails() -> Sequence[str]:
        raise Unavailable("no such region")

    peer = peer_of(lambda _: reply(200, content=b"12345"), places=fails)
    assert peer.body("http://b/x", 5) == b"12345"
    with pytest.raises(PeerProblem, match="cannot be found out: reason=no such region"):
        peer.body("https://bucket.s3/x", 5)


def test_a_service_behind_https_gives_no_body_without_it() -> None:
    peer = HttpPeer("b", "https://b", carrier=InMemory(lambda _: reply(200, content=b"12345")))
    with pytest.raises(PeerProblem, match="another scheme"):
        peer.body("http://b/x", 5)


def test_a_closed_peer_is_away() -> None:
    peer = peer_that_answers(TOPIC)
    peer.close()
    with pytest.raises(PeerProblem, match="cannot be reached"):
        peer.topic("t")
