"""What the S3 adapter promises beyond the port: what each failure becomes, checksums, settings that can't work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from fenceline.adapters.aws import client as aws_client
from fenceline.adapters.aws import s3
from fenceline.adapters.aws.s3 import S3ObjectStore, s3_client
from fenceline.ports import AlreadyExists, Conflict, Damaged, NoAnswer, NotFound, StoreFact, Unavailable
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
)
from tests.servers.run import CREDENTIALS, REGION, versitygw
from tests.support.patience import PATIENCE_S, wait_until

BODY = b"123456789"
LONG_MS = PATIENCE_S * 1000
CRC = "4waSgw=="  # CRC32C's check value, e3069283, in base64


def refusal(status: int, code: str, **headers: str) -> bytes:
    return answer(status, f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode(), **headers)


def found(body: bytes = BODY, status: int = 200, **headers: str) -> bytes:
    return answer(status, body, last_modified="Fri, 20 Nov 2026 10:00:00 GMT", **headers)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_client, "PAUSE_FIRST_MS", 1)


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    with faulty_server() as server:
        yield server


def store_at(url: str, *, connect_ms: int = LONG_MS, answer_ms: int = LONG_MS) -> S3ObjectStore:
    client = s3_client(endpoint_url=url, connect_ms=connect_ms, answer_ms=answer_ms)
    return S3ObjectStore("bucket", "p", client=client)


@pytest.fixture
def store(faulty: Faulty, request: pytest.FixtureRequest) -> Iterator[S3ObjectStore]:
    made = store_at(faulty.url, answer_ms=answer_ms(request))
    yield made
    made.close()


# Creates


@pytest.mark.parametrize(
    ("told", "fact"),
    [
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
        (refusal(412, "PreconditionFailed"), AlreadyExists),
        (refusal(409, "ConditionalRequestConflict"), Conflict),
        (refusal(409, "OperationAborted"), Conflict),
        (refusal(409, "InvalidBucketState"), Unavailable),
        (refusal(400, "BadDigest"), Unavailable),
        (refusal(400, "RequestTimeout"), Unavailable),
        (refusal(403, "AccessDenied"), Unavailable),
        (refusal(404, "NoSuchBucket"), Unavailable),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else None,
)
def test_a_create_is_sent_once_and_its_answer_is_told(
    faulty: Faulty, store: S3ObjectStore, told: Any, fact: type[StoreFact]
) -> None:
    faulty.answers = [told]
    with pytest.raises(StoreFact) as raised:
        store.create("k", BODY, {"write-id": "1"})
    assert type(raised.value) is fact
    wait_until(lambda: faulty.requests)
    assert len(faulty.requests) == 1


def test_a_create_in_another_region_is_refused(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [refusal(301, "PermanentRedirect", **{"x-amz-bucket-region": "eu-west-1"})]
    with pytest.raises(Unavailable, match="the bucket is in another region; set AWS_REGION"):
        store.create("k", BODY, {})


def test_a_create_says_if_absent_and_carries_its_checksum(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [answer(200)]
    store.create("k", BODY, {"write-id": "1"})
    [request] = faulty.requests
    assert request.line.startswith("PUT /bucket/p/k ")
    sent = {
        name: request.headers.get(name) for name in ("if-none-match", "x-amz-checksum-crc32c", "x-amz-meta-write-id")
    }
    assert sent == {"if-none-match": "*", "x-amz-checksum-crc32c": CRC, "x-amz-meta-write-id": "1"}
    assert request.body == BODY
    # Nothing else protects the body on a plain network.
    assert request.headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD"


class Nothing(BytesIO):
    """The body of an answer, as botocore reads it."""

    def stream(self) -> Iterator[bytes]:
        return iter(())


def test_over_tls_the_body_is_hashed_once() -> None:
    client = s3_client(region=REGION)
    sent = []

    def take(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, {}, Nothing())

    client.meta.events.register("before-send.s3.PutObject", take)
    S3ObjectStore("bucket", client=client).create("k", BODY, {})
    [request] = sent
    assert request.url.startswith("https://")
    assert request.headers["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
    assert request.headers["x-amz-checksum-crc32c"] == CRC


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


def test_a_client_that_repeats_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="must not repeat"):
        S3ObjectStore("bucket", client=botocore.session.get_session().create_client("s3"))
    once = Config(retries={"total_max_attempts": 1})
    S3ObjectStore("bucket", client=botocore.session.get_session().create_client("s3", config=once))


# Reads


@pytest.mark.parametrize(
    "trouble",
    [DROP, pytest.param(SILENCE, marks=pytest.mark.slow), refusal(500, "InternalError"), refusal(503, "SlowDown")],
    ids=repr,
)
def test_reads_and_deletes_are_repeated(faulty: Faulty, store: S3ObjectStore, trouble: Any) -> None:
    listing = answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    for call, told in (
        (lambda: store.get("k").body, found()),
        (lambda: store.get("k", 2, 4).body, found(b"34", 206, content_range="bytes 2-3/9")),
        (lambda: store.list(""), listing),
        (lambda: store.delete("k"), answer(204)),
    ):
        faulty.requests.clear()
        faulty.answers = [trouble, trouble, told]
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
        assert len(faulty.requests) == aws_client.ATTEMPTS_MAX


def test_what_is_refused_is_not_asked_again(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [refusal(403, "AccessDenied")]
    with pytest.raises(Unavailable, match="don't permit this; grant it: bucket=bucket key=p/k"):
        store.get("k")
    assert len(faulty.requests) == 1


@pytest.mark.parametrize(
    "told", [refusal(404, "NoSuchBucket"), answer(404, b"not a store"), refusal(403, "AccessDenied")], ids=repr
)
def test_absence_is_told_only_where_the_store_says_so_of_the_key(
    faulty: Faulty, store: S3ObjectStore, told: bytes
) -> None:
    faulty.answers = [told]
    for start, end in ((0, None), (0, 10), (5, 5)):
        with pytest.raises(Unavailable):
            store.get("k", start, end)
    faulty.answers = [refusal(404, "NoSuchKey")]
    for start, end in ((0, None), (0, 10), (5, 5)):
        with pytest.raises(NotFound):
            store.get("k", start, end)


def test_metadata_names_are_in_lower_case_whoever_wrote_the_headers(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [found(**{"X-Amz-Meta-Write-Id": "AbC"})]
    assert store.get("k").metadata == {"write-id": "AbC"}


@pytest.mark.parametrize(
    "text",
    ["2026-11-20T10:00:00.250Z", "2026-11-20T10:00:00Z", "2026-11-20T12:00:00+02:00", "Fri, 20 Nov 2026 10:00:00 GMT",
     "20261120T100000Z", "2026-11-20 10:00:00Z", 1795168800, "1795168800", 1795168800.5],
)  # fmt: skip
def test_times_are_read_as_botocore_reads_them(text: Any) -> None:
    assert aws_client.parse_time(text) == aws_client.parse_timestamp(text)


# Checksums


def test_a_body_that_does_not_match_its_checksum_is_damaged(faulty: Faulty, store: S3ObjectStore) -> None:
    faulty.answers = [found(b"123456788", **{"x-amz-checksum-crc32c": CRC})]
    with pytest.raises(Damaged, match="restore it from a backup: bucket=bucket key=p/k"):
        store.get("k")
    assert faulty.requests[0].headers["x-amz-checksum-mode"] == "ENABLED"
    faulty.answers = [found(**{"x-amz-checksum-crc32c": CRC})]
    assert store.get("k").body == BODY
    faulty.answers = [found()]  # object of a tool that sent no CRC32C
    assert store.get("k").body == BODY


@pytest.mark.slow
def test_a_bit_that_flipped_in_the_store_is_found(surroundings: Surroundings, tmp_path: Path) -> None:
    surroundings.need(OBJECT_STORES["s3-versitygw"])  # for its skip where the server can't be had
    with versitygw(tmp_path) as url:
        objects = store_at(url)
        objects.create_bucket()
        objects.create("k", BODY, {"write-id": "1"})
        assert objects.get("k").body == BODY
        (tmp_path / "bucket/p/k").write_bytes(b"123456788")
        with pytest.raises(Damaged):
            objects.get("k")
        objects.close()


@pytest.mark.slow
def test_a_body_that_changed_on_its_way_is_not_stored(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adapter = OBJECT_STORES["s3-versitygw"]
    surroundings.need(adapter)
    objects = adapter.open(str(tmp_path))
    with monkeypatch.context() as changed:
        changed.setattr(s3, "_crc32c", lambda body: CRC)
        with pytest.raises(Unavailable, match=r"BadDigest|[Cc]hecksum"):
            objects.create("k", b"123456788", {})
        with pytest.raises(NotFound):
            objects.get("k")
        objects.create("k", BODY, {})
    assert objects.get("k").body == BODY
    objects.close()


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
    client = s3_client(region=region)
    sent = []

    def take(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, {"last-modified": "Fri, 20 Nov 2026 10:00:00 GMT"}, Nothing())

    client.meta.events.register("before-send.s3.GetObject", take)
    store = S3ObjectStore(bucket, "p", client=client)
    store.get("k")
    client.get_object(Bucket=bucket, Key="p/k")
    ours, botocores = sent
    assert ours.url == botocores.url == url
    assert f"/{region}/s3/aws4_request" in ours.headers["authorization"]
    assert store.url("k", 60_000).startswith(f"{url}?")


def test_a_bucket_that_lists_in_no_order_is_refused() -> None:
    with pytest.raises(Unavailable, match="only a general purpose bucket can hold a log"):
        S3ObjectStore("directory--use1-az4--x-s3", client=s3_client(region=REGION)).get("k")


# Settings


@pytest.mark.parametrize("objects", [name for name in OBJECT_STORES if name.startswith("s3")], indirect=True)
def test_a_wrong_bucket_is_told_at_start(objects: OpenObjects) -> None:
    assert isinstance(objects, S3ObjectStore)
    objects.check()
    with pytest.raises(Unavailable, match="there is no such bucket; create it, or name another: bucket=no-such-bucket"):
        S3ObjectStore("no-such-bucket", client=objects._client).check()


def test_a_bucket_in_another_region_is_told_at_start(faulty: Faulty, store: S3ObjectStore) -> None:
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
def test_credentials_that_do_not_work_are_told_at_start(
    faulty: Faulty, store: S3ObjectStore, code: str, status: int, advice: str
) -> None:
    faulty.answers = [refusal(status, code)]
    with pytest.raises(Unavailable, match=advice) as raised:
        store.check()
    assert "\n" not in str(raised.value)


def test_objects_stand_below_the_prefix(faulty: Faulty) -> None:
    faulty.answers = [answer(200)]
    for prefix, path in (("", "k"), ("/", "k"), ("a", "a/k"), ("/a/b/", "a/b/k")):
        S3ObjectStore("bucket", prefix, client=s3_client(endpoint_url=faulty.url)).create("k", b"", {})
        assert faulty.requests[-1].line.startswith(f"PUT /bucket/{path} ")
