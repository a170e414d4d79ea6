"""What obstore can't do for the log. Where a test fails, obstore has learnt it, and the adapter may use that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError
from obstore.store import S3Store

from fenceline.adapters.aws.s3_transfer import BODY_BYTES_MAX
from tests.servers.faulty import Faulty, answer, faulty_server, slow_server
from tests.servers.run import CREDENTIALS, REGION

FOUND = answer(200, b"x", etag='"e"', last_modified="Fri, 20 Nov 2026 10:00:00 GMT")


def bare(url: str, answer_s: float = 60) -> S3Store:
    """Return obstore's own client, with no retries."""
    return S3Store(
        "bucket",
        config={"aws_endpoint_url_s3": url, "region": REGION, "virtual_hosted_style_request": False},
        client_options={"allow_http": True, "read_timeout": timedelta(seconds=answer_s)},
        retry_config={"max_retries": 0},
    )


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with faulty_server() as server:
        yield server


def listing(*keys: str) -> bytes:
    lines = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-20T10:00:00.000Z</LastModified><ETag>e</ETag>"
        "<Size>1</Size></Contents>"
        for key in keys
    )
    return answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{lines}</ListBucketResult>".encode())


def test_its_listing_takes_a_prefix_for_a_folder_and_asks_for_a_full_page(faulty: Faulty) -> None:
    faulty.answers = [listing()]
    assert obstore.list(bare(faulty.url), "log/00", offset="log/0", chunk_size=1).collect() == []
    [request] = faulty.requests
    assert "prefix=log%2F00%2F&" in request.line
    assert "max-keys" not in request.line


def test_its_listing_shows_a_key_that_ends_with_a_slash_as_another_key(faulty: Faulty) -> None:
    faulty.answers = [listing("log/", "log/a")]
    assert [line["path"] for line in obstore.list(bare(faulty.url)).collect()] == ["log", "log/a"]


def test_its_listing_fails_where_one_key_has_an_empty_part(faulty: Faulty) -> None:
    faulty.answers = [listing("log/a", "log//b")]
    with pytest.raises(InvalidPathError):
        obstore.list(bare(faulty.url)).collect()


def test_it_asks_for_another_key_or_refuses_it(faulty: Faulty) -> None:
    faulty.answers = [FOUND]
    obstore.get(bare(faulty.url), "a/")
    assert faulty.requests[0].line == "GET /bucket/a HTTP/1.1"
    for key in ("a//b", ".", "a/../b", "a\x01b"):
        with pytest.raises(ValueError, match="Could not parse path"):
            obstore.get(bare(faulty.url), key)


def test_it_has_one_exception_for_a_conflict_and_for_an_object_that_exists(faulty: Faulty) -> None:
    for status in (409, 412):
        faulty.answers = [answer(status)]
        with pytest.raises(AlreadyExistsError):
            obstore.put(bare(faulty.url), "k", b"", mode="create", use_multipart=False)


@pytest.mark.slow
def test_its_time_out_for_an_answer_runs_while_the_body_is_sent(faulty: Faulty) -> None:
    answer_s = 1.0
    with slow_server(2 * answer_s) as (url, sizes), pytest.raises(BaseError) as raised:
        obstore.put(bare(url, answer_s), "k", b"x" * (BODY_BYTES_MAX + 1), use_multipart=False)
    assert "TimedOut" in str(raised.value)
    assert not sizes


@pytest.mark.slow
def test_in_a_forked_process_its_requests_never_end(faulty: Faulty) -> None:
    """They also disturb those of the parent, which may crash. So this parent is a process of its own."""
    faulty.answers = [FOUND]
    code = f"""
import os, signal
from tests.contract.test_obstore import bare, obstore
obstore.get(bare({faulty.url!r}), "k")
signal.alarm(10)
child = os.fork()
if child == 0:
    signal.alarm(3)
    obstore.get(bare({faulty.url!r}), "k")
    os._exit(0)
os._exit(os.waitpid(child, 0)[1])
"""
    ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, **CREDENTIALS}, check=False)
    assert ended.returncode != 0
    assert len(faulty.requests) == 1
