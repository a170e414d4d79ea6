"""An append over S3 whose server fails: 5xx says neither that the object was stored nor that it was not.

Rule: the server is a small S3 in this process. It stores, or does not, and answers as a test says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pytest

from fenceline.adapters.aws import client
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.backoff import Backoff
from fenceline.errors import FencelineError
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended
from fenceline.ports import NoAnswer
from fenceline.service.log import Log
from tests.servers.faulty import Request, answer, faulty_server
from tests.servers.run import CREDENTIALS
from tests.support.runtime import FakeRuntime
from tests.support.service import REGION, TOPIC, request

DATE = "Fri, 20 Nov 2026 10:00:00 GMT"

Put = Callable[["SmallS3", str, Request], bytes]


def error(status: int, code: str) -> bytes:
    return answer(status, f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode())


def stores(s3: SmallS3, key: str, put: Request) -> bytes:
    """Put an object as S3 does."""
    if key in s3.objects:
        return error(412, "PreconditionFailed")
    s3.objects[key] = put
    return answer(200, etag='"e"')


def fails(status: int, code: str, *, is_stored: bool) -> Put:
    """Answer ``status``, whatever became of the object."""

    def put(s3: SmallS3, key: str, request: Request) -> bytes:
        if is_stored:
            stores(s3, key, request)
        return error(status, code)

    return put


@dataclass
class SmallS3:
    """A bucket that answers over HTTP.

    ``segments`` says what becomes of each put of a segment; its last entry holds for all puts that follow.
    """

    objects: dict[str, Request] = field(default_factory=dict)
    segments: Sequence[Put] = (stores,)
    puts: int = 0  # puts of segments

    def __call__(self, request: Request) -> bytes:
        method, target, _ = request.line.split(" ")
        parts = urlsplit(target)
        key = parts.path.removeprefix("/bucket").removeprefix("/")
        if method == "PUT" and key.startswith("log/"):
            put = self.segments[min(self.puts, len(self.segments) - 1)]
            self.puts += 1
            return put(self, key, request)
        if method == "PUT":
            return stores(self, key, request)
        if not key:
            return self._listing(parse_qs(parts.query))
        if key not in self.objects:
            return error(404, "NoSuchKey")
        found = self.objects[key]
        return answer(200, found.body, **_metadata(found), **{"last-modified": DATE})

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = (query.get(name, [""])[0] for name in ("prefix", "start-after"))
        lines = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-11-20T10:00:00Z</LastModified>"
            f"<Size>{len(self.objects[key].body)}</Size></Contents>"
            for key in sorted(self.objects)
            if key.startswith(prefix) and key > after
        )
        listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{lines}</ListBucketResult>"
        return answer(200, listing.encode())


def _metadata(found: Request) -> dict[str, str]:
    return {name: value for name, value in found.headers.items() if name.startswith("x-amz-meta-")}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> SmallS3:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "BACKOFF", Backoff(1, 1_000))
    return SmallS3()


@pytest.fixture
def log(s3: SmallS3) -> Iterator[Log]:
    with faulty_server() as server:
        server.answers = [s3]
        objects = S3ObjectStore("bucket", endpoint_url=server.url)
        items = SqliteItemStore(":memory:")
        made = Log(objects, items, FakeRuntime(), region=REGION, timeout_ms=2_000)
        made.topics.create(TOPIC)
        yield made
        made.close()
        objects.close()
        items.close()


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.partitions.read(TOPIC, 0, ReadRequest(offset=0)).records]


FAILURES = [(503, "SlowDown"), (503, "ServiceUnavailable"), (500, "InternalError"), (502, "x"), (504, "x"), (501, "x")]


@pytest.mark.parametrize(("status", "code"), FAILURES)
@pytest.mark.parametrize("is_stored", [True, False])
def test_an_append_whose_create_failed_is_stored_once(
    s3: SmallS3, log: Log, status: int, code: str, is_stored: bool
) -> None:
    """The object is created again with its own write-id: it meets itself, or is made."""
    s3.segments = [fails(status, code, is_stored=is_stored)] * 2 + [stores]
    first = log.append(TOPIC, 0, request("a"))
    assert isinstance(first, Appended)
    assert (first.base_offset, first.duplicate, s3.puts) == (0, False, 3)
    assert values(log) == [b"a"]


@pytest.mark.parametrize(("status", "code"), FAILURES)
def test_an_append_whose_creates_all_failed_must_be_checked(s3: SmallS3, log: Log, status: int, code: str) -> None:
    """The first attempt may be stored: the same records sent again would be there twice."""
    first = [fails(status, code, is_stored=True)]
    s3.segments = [*first, fails(status, code, is_stored=False)]
    with pytest.raises(FencelineError) as raised:
        log.append(TOPIC, 0, request("a"))
    assert (raised.value.code, raised.value.next_step) == ("OUTCOME_UNKNOWN", "check")
    assert values(log) == [b"a"]


def test_a_producer_that_sends_it_again_doubles_nothing(s3: SmallS3, log: Log) -> None:
    s3.segments = [fails(503, "SlowDown", is_stored=True), fails(503, "SlowDown", is_stored=False)]
    with pytest.raises(FencelineError):
        log.append(TOPIC, 0, request("a", producer=(7, 0, 0)))
    s3.segments = [stores]
    again = log.append(TOPIC, 0, request("a", producer=(7, 0, 0)))
    assert isinstance(again, Appended)
    assert (again.base_offset, again.duplicate) == (0, True)
    assert values(log) == [b"a"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_each_other_object_is_made_again_too(s3: SmallS3, log: Log, is_stored: bool) -> None:
    """The objects are a topic's, and what a trim leaves for a rebuild."""
    for value in ("a", "b"):
        log.append(TOPIC, 0, request(value))
    puts = itertools.count()
    slow = fails(503, "SlowDown", is_stored=is_stored)

    class Slow(SmallS3):
        def __call__(self, request: Request) -> bytes:
            method, target, _ = request.line.split(" ")
            if method == "PUT" and not next(puts) % 2:
                return slow(self, target.removeprefix("/bucket/"), request)
            return super().__call__(request)

    with faulty_server() as server:
        server.answers = [Slow(s3.objects)]
        objects = S3ObjectStore("bucket", endpoint_url=server.url)
        other = Log(objects, log.context.items, FakeRuntime(), region=REGION)
        made = other.topics.create("other")
        assert f"topic/{made.topic_id}/0000000000.json" in s3.objects
        assert other.partitions.trim(TOPIC, 0, 1) == 1
        other.topics.delete("other")
        assert f"topic/{made.topic_id}/0000000001.json" in s3.objects
        other.close()
        objects.close()


def test_the_fact_of_a_failed_create_names_what_the_store_said(s3: SmallS3, log: Log) -> None:
    s3.segments = [fails(503, "SlowDown", is_stored=False)]
    with pytest.raises(NoAnswer, match="the store is throttling; send fewer requests"):
        log.context.objects.create("log/x", b"", {})
