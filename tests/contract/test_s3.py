"""What the S3 adapter promises beyond the port: what each failure becomes, signed bodies, settings that can't work."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import botocore.session
import pytest
from botocore.config import Config
from urllib3.util import connection

from fenceline.adapters.aws import client as aws_client
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.adapters.aws.s3_place import BucketAddress
from fenceline.adapters.aws.s3_transfer import BODY_BYTES_MAX
from fenceline.backoff import Backoff
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, StoreFact, Unavailable
from tests.contract.conftest import Surroundings
from tests.contract.stores import OBJECT_STORES, OpenObjects
from tests.servers.faulty import (
    DROP,
    ENDLESS,
    SILENCE,
    SOON_MS,
    Faulty,
    answer,
    answer_ms,
    faulty_server,
    nobody_accepts,
    nobody_listens,
    slow_server,
)
from tests.servers.proxy import proxied
from tests.servers.run import CREDENTIALS, REGION, versitygw
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each test has a server of its own, which fails as it says

BODY = b"123456789"
LONG_MS = PATIENCE_S * 1000


def refusal(status: int, code: str, **headers: str) -> bytes:
    return answer(status, f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode(), **headers)


def found(body: bytes = BODY, status: int = 200, **headers: str) -> bytes:
    return answer(status, body, last_modified="Fri, 20 Nov 2026 10:00:00 GMT", **headers)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_client, "BACKOFF", Backoff(1, 1_000))


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    with faulty_server() as server:
        yield server


def store_at(url: str, *, connect_ms: int = LONG_MS, answer_ms: int = LONG_MS) -> S3ObjectStore:
    return S3ObjectStore("bucket", "p", endpoint_url=url, connect_ms=connect_ms, answer_ms=answer_ms)


@pytest.fixture
def store(faulty: Faulty, request: pytest.FixtureRequest) -> Iterator[S3ObjectStore]:
    made = store_at(faulty.url, answer_ms=answer_ms(request))
    yield made
    made.close()


# Creates


NOTHING_SAID = [
    (DROP, NoAnswer),
    (SILENCE, NoAnswer),
    (b"garbage\r\n\r\n", NoAnswer),
    (ENDLESS, NoAnswer),
    (answer(500, b"<html>"), NoAnswer),
    (refusal(500, "InternalError"), NoAnswer),
    (answer(502, b"bad gateway"), NoAnswer),
    (answer(503, b"a proxy's, of which nothing is known"), NoAnswer),
    (refusal(503, "ServiceUnavailable"), NoAnswer),
    (answer(504), NoAnswer),
    (refusal(503, "SlowDown"), NoAnswer),
    (refusal(501, "NotImplemented"), NoAnswer),
]
REFUSED = [
    (refusal(409, "InvalidBucketState"), Unavailable),
    (refusal(400, "BadDigest"), Unavailable),
    (refusal(400, "RequestTimeout"), Unavailable),
    (refusal(403, "AccessDenied"), Unavailable),
    (refusal(404, "NoSuchBucket"), Unavailable),
]
# obstore takes the first as it is; the others are asked for without it.
KEYS = ["k", "k/", "a//k", "."]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("response", "fact"),
    [*NOTHING_SAID, *REFUSED],
    ids=lambda value: value[:40] if isinstance(value, bytes) else None,
)
def test_a_create_is_sent_once_and_its_answer_raised(
    faulty: Faulty, store: S3ObjectStore, response: Any, fact: type[StoreFact], key: str
) -> None:
    """A second request, by whichever layer, would meet the first one's object and take it for a rival's."""
    faulty.answers = [response, answer(200, etag='"e"')]
    with pytest.raises(StoreFact) as raised:
        store.create(key, BODY, {"write-id": "1"})
    assert type(raised.value) is fact
    wait_until(lambda: faulty.requests)
    assert len(faulty.requests) == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "response",
    [
        refusal(409, "ConditionalRequestConflict"),
        refusal(409, "OperationAborted"),
    ],
    ids=lambda value: value[9:12].decode(),
)
def test_a_head_after_a_conflict_finds_an_object_or_a_rival(
    faulty: Faulty, store: S3ObjectStore, response: bytes, key: str
) -> None:
    there = found()
    absent = answer(404)
    for looked, fact in (
        (there, AlreadyExists),
        (absent, Conflict),
        (refusal(403, "AccessDenied"), Unavailable),
    ):
        faulty.requests.clear()
        faulty.answers = [response, looked]
        with pytest.raises(StoreFact) as raised:
            store.create(key, BODY, {"write-id": "1"})
        assert type(raised.value) is fact
        assert [request.line.split(" ")[0] for request in faulty.requests] == ["PUT", "HEAD"]


@pytest.mark.parametrize("key", KEYS)
def test_a_create_that_met_an_object_asks_nothing_more(faulty: Faulty, store: S3ObjectStore, key: str) -> None:
    """Processes that contend lose many creates, and each look would cost a request and its time."""
    faulty.answers = [refusal(412, "PreconditionFailed"), DROP]
    with pytest.raises(AlreadyExists):
        store.create(key, BODY, {"write-id": "1"})
    assert len(faulty.requests) == 1


def test_a_create_in_another_region_is_refused(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [refusal(301, "PermanentRedirect", **{"x-amz-bucket-region": "eu-west-1"})]
    with pytest.raises(Unavailable, match="the bucket is in another region; set AWS_REGION"):
        store.create("k", BODY, {})


@pytest.mark.parametrize("key", KEYS)
def test_a_create_says_if_absent_and_signs_its_body(faulty: Faulty, store: S3ObjectStore, key: str) -> None:
    faulty.answers = [answer(200, etag='"e"')]
    store.create(key, BODY, {"write-id": "1"})
    [request] = faulty.requests
    assert request.line.startswith(f"PUT /bucket/p/{key} ")
    sent = {name: request.headers.get(name) for name in ("if-none-match", "x-amz-meta-write-id")}
    assert sent == {"if-none-match": "*", "x-amz-meta-write-id": "1"}
    assert request.body == BODY
    assert request.headers["x-amz-content-sha256"] == sha256(BODY).hexdigest()
    assert "x-amz-content-sha256" in request.headers["authorization"]


def test_settings_of_other_tools_do_not_leave_the_body_unsigned(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore reads variables that no other tool of AWS knows."""
    for name in ("AWS_UNSIGNED_PAYLOAD", "AWS_SKIP_SIGNATURE", "AWS_S3_EXPRESS"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    faulty.answers = [answer(200, etag='"e"')]
    with closing(store_at(faulty.url)) as store:
        store.create("k", BODY, {})
    [request] = faulty.requests
    assert request.headers["x-amz-content-sha256"] == sha256(BODY).hexdigest()
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert request.headers["if-none-match"] == "*"


def test_each_request_has_the_credentials_of_its_time(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A role's credentials carry a token, and are renewed while the store is in use."""
    given = tmp_path / "given.json"
    config = tmp_path / "config"
    config.write_text(f"[profile role]\ncredential_process = cat {given}\n")
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "role")
    faulty.answers = [answer(200, etag='"e"')]
    store = None
    # botocore renews what ends within fifteen minutes, so each request asks for the next.
    for n in ("1", "2"):
        ends = (datetime.now(UTC) + timedelta(minutes=11)).isoformat()
        credentials = {
            "Version": 1,
            "AccessKeyId": f"id{n}",
            "SecretAccessKey": "s",
            "SessionToken": n,
            "Expiration": ends,
        }
        given.write_text(json.dumps(credentials))
        store = store or S3ObjectStore("bucket", "p", endpoint_url=faulty.url, region=REGION)
        store.create("k", b"", {})
        assert f"Credential=id{n}/" in faulty.requests[-1].headers["authorization"]
        assert faulty.requests[-1].headers["x-amz-security-token"] == n


def test_credentials_that_never_change_are_asked_for_once(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BucketAddress] = []
    frozen = BucketAddress.frozen

    def counted(place: BucketAddress) -> Any:
        asked.append(place)
        return frozen(place)

    monkeypatch.setattr(BucketAddress, "frozen", counted)
    faulty.answers = [answer(200, etag='"e"')]
    store = store_at(faulty.url)
    for key in ("a", "b", "c"):
        store.create(key, BODY, {})
    assert len(faulty.requests) == 3
    assert len(asked) == 1


def test_a_create_that_never_left_is_unavailable_and_names_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faulty: Faulty
) -> None:
    with nobody_listens() as refused, nobody_accepts() as full:
        for url in (refused, full, "http://store.invalid"):
            with pytest.raises(Unavailable, match="can't be reached; check that it runs"):
                store_at(url, connect_ms=300).create("k", BODY, {})
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Unavailable, match="no AWS credentials; set AWS_ACCESS_KEY_ID"):
        store_at(faulty.url).create("k", BODY, {})
    assert not faulty.requests


def options_of_sockets(monkeypatch: pytest.MonkeyPatch, *more: tuple[int, int, int]) -> list[Any]:
    """Give the sockets of botocore's sessions more options, and return the list of all that they were made with."""
    asked: list[Any] = []
    made = connection.create_connection

    def create_connection(*args: Any, socket_options: Any = None, **named: Any) -> Any:
        asked.extend(socket_options)
        return made(*args, socket_options=[*socket_options, *more], **named)

    monkeypatch.setattr(connection, "create_connection", create_connection)
    return asked


@pytest.mark.parametrize("size", [1024 * 1024, BODY_BYTES_MAX + 1])
def test_a_body_may_take_longer_to_send_than_an_answer_to_come(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """obstore's time-out would end it. A body that it would send in time on a quick line fails once, and only once."""
    for name, value in {**CREDENTIALS, "AWS_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    options_of_sockets(monkeypatch, (socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024))  # what is there has arrived
    answer_ms = 2_000
    with slow_server(2 * answer_ms / 1000) as (url, sizes), closing(store_at(url, answer_ms=answer_ms)) as store:
        if size <= BODY_BYTES_MAX:
            with pytest.raises(NoAnswer):
                store.create("k", bytes(size), {})
        store.create("k", bytes(size), {})
        assert set(sizes) == {size}


@pytest.mark.parametrize("key", KEYS)
def test_a_small_body_does_not_wait_for_the_acknowledgement_of_its_headers(
    faulty: Faulty, store: S3ObjectStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = options_of_sockets(monkeypatch)
    faulty.answers = [answer(200, etag='"e"')]
    store.create(key, BODY, {})
    if key != "k":  # obstore always does so
        assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in asked


@pytest.mark.parametrize("key", KEYS[:-1])  # urllib3 asks no proxy for "."
def test_requests_go_through_the_proxy_that_the_environment_names(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", faulty.url)
    faulty.answers = [found()]
    with closing(store_at("http://s3.invalid")) as store:
        assert store.get(key).body == BODY
    assert faulty.requests[0].line == f"GET http://s3.invalid/bucket/p/{key} HTTP/1.1"
    monkeypatch.setenv("NO_PROXY", "s3.invalid")
    with closing(store_at("http://s3.invalid")) as store, pytest.raises(Unavailable, match="can't be reached"):
        store.get(key)
    assert len(faulty.requests) == 1


# Reads


@pytest.mark.parametrize(
    "trouble",
    [DROP, SILENCE, refusal(500, "InternalError"), refusal(503, "SlowDown")],
    ids=repr,
)
def test_reads_and_deletes_are_repeated(faulty: Faulty, store: S3ObjectStore, trouble: Any) -> None:
    listing = answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    for call, response in (
        (lambda: store.get("k").body, found()),
        (lambda: store.get("k", 2, 4).body, found(b"34", 206, content_range="bytes 2-3/9")),
        (lambda: store.list(""), listing),
        (lambda: store.delete("k"), answer(204)),
    ):
        faulty.requests.clear()
        faulty.answers = [trouble, trouble, response]
        assert call() in (BODY, b"34", [], None)
        assert len(faulty.requests) == 3


def test_a_body_that_was_cut_short_is_read_again(faulty: Faulty) -> None:
    cut = answer(200, BODY[:4], length=9, last_modified="Fri, 20 Nov 2026 10:00:00 GMT")
    faulty.answers = [cut, DROP, found()]
    with closing(store_at(faulty.url, answer_ms=SOON_MS)) as store:
        assert store.get("k").body == BODY


def test_reads_that_fail_for_good_are_unavailable(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [DROP]
    for call in (
        lambda: store.get("k"),
        lambda: store.get("k", 0, 5),
        lambda: store.list(""),
        lambda: store.delete("k"),
    ):
        faulty.requests.clear()
        with pytest.raises(Unavailable):
            call()
        assert len(faulty.requests) == aws_client.REPEATABLE_ATTEMPTS_MAX


def test_a_refused_request_is_not_retried(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [refusal(403, "AccessDenied")]
    with pytest.raises(Unavailable, match="don't permit this; grant it: bucket=bucket key=p/k"):
        store.get("k")
    assert len(faulty.requests) == 1


@pytest.mark.parametrize(
    "response", [refusal(404, "NoSuchBucket"), answer(404, b"not a store"), refusal(403, "AccessDenied")], ids=repr
)
def test_only_no_such_key_means_absent(faulty: Faulty, store: S3ObjectStore, response: bytes) -> None:
    faulty.answers = [response]
    for start, end in ((0, None), (0, 10), (5, 5)):
        with pytest.raises(Unavailable):
            store.get("k", start, end)
    faulty.answers = [refusal(404, "NoSuchKey")]
    for start, end in ((0, None), (0, 10), (5, 5)):
        with pytest.raises(NotFound):
            store.get("k", start, end)


def test_metadata_names_are_in_lower_case_from_any_headers(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [found(**{"X-Amz-Meta-Write-Id": "AbC"})]
    assert store.get("k").metadata == {"write-id": "AbC"}


@pytest.mark.parametrize(
    "text",
    ["2026-11-20T10:00:00.250Z", "2026-11-20T10:00:00Z", "2026-11-20T12:00:00+02:00", "Fri, 20 Nov 2026 10:00:00 GMT",
     "20261120T100000Z", "2026-11-20 10:00:00Z", 1795168800, "1795168800", 1795168800.5],
)  # fmt: skip
def test_times_are_read_as_botocore_reads_them(text: Any) -> None:
    assert aws_client.parse_time(text) == aws_client.parse_timestamp(text)


# A body that changes on its way


@pytest.mark.parametrize("key", ["k", "log//k"])
def test_a_body_that_changed_on_its_way_is_not_stored(surroundings: Surroundings, tmp_path: Path, key: str) -> None:
    surroundings.need(OBJECT_STORES["s3-versitygw"])  # for its skip where the server can't be had
    with versitygw(tmp_path) as url, proxied(url) as proxy:
        objects = store_at(proxy.url)
        objects.create_bucket()
        proxy.replaced = (BODY, b"123456788")
        with pytest.raises(Unavailable, match=r"SHA256|[Cc]hecksum|BadDigest|signature"):
            objects.create(key, BODY, {})
        assert proxy.met["replaced"] == 1
        proxy.replaced = None
        with pytest.raises(NotFound):
            objects.get(key)
        objects.create(key, BODY, {})
        assert objects.get(key).body == BODY
        objects.close()


# Processes


def test_a_forked_process_may_go_on(faulty: Faulty, store: S3ObjectStore) -> None:
    """obstore's threads do not exist there, and its requests would never end."""
    faulty.answers = [found()]
    assert store.get("k").body == BODY
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        os._exit(0 if store.get("k").body == BODY and store_at(faulty.url).get("k", 0, 1).body == BODY[:1] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("k").body == BODY


def test_a_process_ends_while_a_request_waits(faulty: Faulty) -> None:
    faulty.answers = [SILENCE]
    code = f"""
import threading
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.adapters.aws.s3_transfer import BODY_BYTES_MAX
store = S3ObjectStore("bucket", endpoint_url={faulty.url!r}, region="us-east-1")
threading.Thread(target=lambda: store.create("k", b"", {{}}), daemon=True).start()
input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        wait_until(lambda: faulty.requests)
        process.communicate(b"\n", timeout=PATIENCE_S)
    assert process.returncode == 0


# Where requests go


@pytest.mark.parametrize(
    ("bucket", "region", "url"),
    [
        ("plain", "eu-west-1", "https://plain.s3.eu-west-1.amazonaws.com/p/k"),
        ("with.dots", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/with.dots/p/k"),
        ("plain", "cn-north-1", "https://plain.s3.cn-north-1.amazonaws.com.cn/p/k"),
        (
            "arn:aws:s3:eu-west-1:123456789012:accesspoint/point",
            "eu-west-1",
            "https://point-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/p/k",
        ),
    ],
)
def test_a_request_goes_where_botocore_would_send_it(bucket: str, region: str, url: str) -> None:
    store = S3ObjectStore(bucket, "p", region=region)
    plain = botocore.session.get_session().create_client("s3", region, config=Config(signature_version="s3v4"))
    botocores = plain.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "p/k"})
    # A colon may be in a path as it is.
    assert unquote(store.url("k", 60_000)).startswith(f"{url}?")
    assert unquote(store.url("a//k", 60_000)).startswith(f"{url.removesuffix('k')}a//k?")
    if bucket == "plain" or "arn" in bucket or "." in bucket:
        assert urlsplit(botocores).path == urlsplit(store.url("k", 60_000)).path
    for asked in (store.url("k", 60_000), store.url("a//k", 60_000)):
        query = parse_qs(urlsplit(asked).query)
        assert query["X-Amz-Expires"] == ["60"]
        assert query["X-Amz-Credential"][0].endswith(f"/{region}/s3/aws4_request")


def test_a_bucket_that_lists_in_no_order_is_refused() -> None:
    with pytest.raises(Unavailable, match="only a general purpose bucket can hold a log"):
        S3ObjectStore("directory--use1-az4--x-s3", region=REGION)


# Settings


@pytest.mark.parametrize("objects", [name for name in OBJECT_STORES if name.startswith("s3")], indirect=True)
def test_a_wrong_bucket_is_reported_at_start(objects: OpenObjects) -> None:
    assert isinstance(objects, S3ObjectStore)
    objects.check()
    with pytest.raises(Unavailable, match="there is no such bucket; create it, or name another: bucket=no-such-bucket"):
        S3ObjectStore("no-such-bucket", **objects._options).check()


def test_a_bucket_in_another_region_is_reported_at_start(faulty: Faulty, store: S3ObjectStore) -> None:
    listing = answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    faulty.answers = [listing, answer(200, **{"x-amz-bucket-region": "eu-west-1"})]
    with pytest.raises(Unavailable, match="set AWS_REGION=eu-west-1: bucket=bucket region=us-east-1"):
        store.check()
    faulty.answers = [listing]
    store.check()


@pytest.mark.parametrize(
    ("code", "status", "advice"),
    [
        ("AccessDenied", 403, "grant it"),
        ("InvalidAccessKeyId", 403, "credentials are not accepted"),
        ("SignatureDoesNotMatch", 403, "credentials are not accepted"),
        ("ExpiredToken", 400, "have not expired"),
        ("RequestTimeTooSkewed", 403, "clock"),
    ],
)
def test_unusable_credentials_are_reported_at_start(
    faulty: Faulty, store: S3ObjectStore, code: str, status: int, advice: str
) -> None:
    faulty.answers = [refusal(status, code)]
    with pytest.raises(Unavailable, match=advice) as raised:
        store.check()
    assert "\n" not in str(raised.value)


def test_objects_are_created_below_the_prefix(faulty: Faulty) -> None:
    faulty.answers = [answer(200, etag='"e"')]
    for prefix, path in (("", "k"), ("/", "k"), ("a", "a/k"), ("/a/b/", "a/b/k")):
        S3ObjectStore("bucket", prefix, endpoint_url=faulty.url).create("k", b"", {})
        assert faulty.requests[-1].line.startswith(f"PUT /bucket/{path} ")
