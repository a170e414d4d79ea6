"""Segments fetched by their URLs: how far ahead, on which connections, and what counts as refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fenceline.limits import MIB
from fenceline.model.results import SegmentEntry
from fenceline_spark.source.segments import AHEAD_BYTES, FetchedSegment, NotFetched, fetched, fetched_ahead


def entries(*sizes: int, url: str = "") -> list[SegmentEntry]:
    return [SegmentEntry(number, number + 1, size, url, None, 1, ()) for number, size in enumerate(sizes)]


class Counted:
    """Segments, as a listing gives them, and how many of them were taken from it."""

    def __init__(self, given: list[SegmentEntry]) -> None:
        self.given, self.taken = given, 0

    def __iter__(self) -> Iterator[SegmentEntry]:
        for entry in self.given:
            self.taken += 1
            yield entry


def numbers(found: list[FetchedSegment]) -> list[int]:
    return [one.entry.base_offset for one in found]


def test_segments_come_in_order_and_three_at_most_are_ahead_of_the_one_in_use() -> None:
    fetching, listed = [], Counted(entries(*[1] * 20))

    def fetch(entry: SegmentEntry) -> bytes:
        fetching.append(entry.base_offset)
        return b"x"

    found: list[FetchedSegment] = []
    for one in fetched_ahead(listed, fetch):
        found.append(one)
        assert len(fetching) <= len(found) + 2  # one more is asked for only when the next one is wanted
        assert listed.taken <= len(found) + 3
    assert numbers(found) == list(range(20))


def test_segments_beyond_16_mib_are_not_fetched_ahead() -> None:
    fetching: list[int] = []

    def fetch(entry: SegmentEntry) -> bytes:
        fetching.append(entry.base_offset)
        return b"x"

    ahead = fetched_ahead(entries(9 * MIB, 9 * MIB, 1, 1, AHEAD_BYTES + 1, 1), fetch)
    assert numbers([next(ahead)]) == [0]
    assert fetching == [0]
    found = [next(ahead) for _ in range(3)]
    assert numbers(found) == [1, 2, 3]
    assert sorted(fetching) == [0, 1, 2, 3]  # the large one waits until it is the next
    assert numbers(list(ahead)) == [4, 5]


def test_the_next_segments_are_fetched_side_by_side() -> None:
    together = threading.Barrier(3, timeout=30)

    def fetch(entry: SegmentEntry) -> bytes:
        together.wait()  # passes once three are under way at the same time
        return b"x"

    assert len(list(fetched_ahead(entries(1, 1, 1), fetch))) == 3


def test_segments_before_a_failed_one_are_given_and_those_after_it_are_not() -> None:
    def fetch(entry: SegmentEntry) -> bytes:
        if entry.base_offset == 2:
            raise NotFetched("status=403")
        return b"x"

    found: list[FetchedSegment] = []
    with pytest.raises(NotFetched, match="status=403"):
        found.extend(fetched_ahead(entries(*[1] * 9), fetch))
    assert numbers(found) == [0, 1]


def test_a_task_that_stops_early_fetches_no_further_segment() -> None:
    fetching, listed = [], Counted(entries(*[1] * 20))

    def fetch(entry: SegmentEntry) -> bytes:
        fetching.append(entry.base_offset)
        return b"x"

    ahead = fetched_ahead(listed, fetch)
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert listed.taken == 4
    assert len(fetching) <= 3


class Store(ThreadingHTTPServer):
    """An object store that answers as its paths ask: ``/{status}/{size announced}/{size sent}``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.connections: set[tuple[str, int]] = set()
        self.headers: list[dict[str, str]] = []

    def handle_error(self, *_: object) -> None:
        """Print nothing where a client closes its connection before the answer's end."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_GET(self) -> None:
        self.server.connections.add(self.client_address)
        self.server.headers.append(dict(self.headers.items()))
        status, announced, sent = map(int, self.path.partition("?")[0].strip("/").split("/"))
        self.send_response(status)
        self.send_header("content-length", str(announced))
        self.end_headers()
        self.wfile.write(b"x" * sent)
        if sent < announced:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield store
        store.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [206, 301, 401, 403, 404, 410, 500, 503])
def test_any_answer_but_200_is_no_segment(store: Store, status: int) -> None:
    with pytest.raises(NotFetched, match=f"status={status}"):
        fetched(entries(3, url=f"{store.url}/{status}/3/3")[0])


@pytest.mark.parametrize(("announced", "sent"), [(2, 2), (4, 4), (3, 2), (3, 0), (9_000_000, 9_000_000)])
def test_a_body_of_another_size_than_listed_is_no_segment(store: Store, announced: int, sent: int) -> None:
    with pytest.raises(NotFetched, match=r"bytes=\d+ bytes_listed=3|reason=it sent less"):
        fetched(entries(3, url=f"{store.url}/200/{announced}/{sent}")[0])


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "ftp://x/y", "nonsense", "http://no-such-host.invalid/x"])
def test_a_url_that_leads_nowhere_is_no_segment(url: str) -> None:
    with pytest.raises(NotFetched, match="reason="):
        fetched(entries(3, url=url)[0])


def test_a_url_is_asked_for_as_it_is_without_credentials(store: Store) -> None:
    query = "X-Amz-Signature=a%2Fb&X-Amz-Date=20260101T000000Z"
    assert fetched(entries(5, url=f"{store.url}/200/5/5?{query}")[0]) == b"xxxxx"
    (headers,) = store.headers
    assert not {"authorization", "x-amz-date", "cookie"} & {name.lower() for name in headers}


def test_segments_fetched_one_after_another_take_no_more_connections_than_threads(store: Store) -> None:
    size = MIB
    listed = entries(*[size] * 30, url=f"{store.url}/200/{size}/{size}")
    assert [len(one.body) for one in fetched_ahead(listed)] == [size] * 30
    assert len(list(fetched_ahead(listed))) == 30  # another task of the same process
    assert len(store.connections) <= 3
