"""The cost of an append beyond the bare create of the same bytes, by the fastest client of S3 there is.

Rule: the bare side is what a program would do without the log: one conditional put by obstore, a client in Rust, with
each request sent once. The put of boto3 is measured, too, for scale. All sides take turns, in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import boto3.session
from botocore.config import Config
from obstore.store import S3Store

from benchmarks.bucket import CountedLog, Scratch
from benchmarks.combining import FAR, NEAR
from benchmarks.figures import KIB, Row, median_ms
from fenceline.append.entries.batch import AppendRequest
from fenceline.format.batch import encode
from fenceline.format.segment import SegmentMetadata
from fenceline.model.record import Record

SIZES = (("1 KiB", KIB, 20), ("64 KiB", 64 * KIB, 10), ("1 MiB", KIB * KIB, 5))
GOALS: Mapping[str, Mapping[str, str]] = {
    NEAR: {"1 KiB": "≤ 1.5", "1 MiB": "≤ 1.15"},
    FAR: {"1 KiB": "≤ 1.05", "64 KiB": "≤ 1.05", "1 MiB": "≤ 1.05"},
}
_METADATA = SegmentMetadata("w" * 32, 1, "local", 1, 1, 1, "c" * 64).to_strings()


def plain_s3(endpoint: str | None) -> Any:
    """Return a client as ``boto3.client("s3")`` does, but one that sends each request once."""
    once = Config(retries={"total_max_attempts": 1})
    return boto3.session.Session().client("s3", endpoint_url=endpoint, config=once)


def plain_obstore(bucket: str, client: Any) -> S3Store:
    """Return obstore's client of a bucket, with the endpoint, the region and the credentials of a client of boto3.

    It sends each request once, as that one does.
    """
    found = boto3.session.Session().get_credentials()
    credentials = {} if found is None else found.get_frozen_credentials()._asdict()
    names = {"access_key": "access_key_id", "secret_key": "secret_access_key", "token": "session_token"}
    config: Any = {names[name]: value for name, value in credentials.items() if name in names and value}
    # By this name alone: AWS_ENDPOINT_URL_S3 has precedence over "endpoint".
    config |= {"aws_endpoint_url_s3": client.meta.endpoint_url, "region": client.meta.region_name}
    return S3Store(
        bucket,
        config=config,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def measure(scratch: Scratch, where: str, endpoint: str | None, *, rounds_max: int = 20) -> list[Row]:
    """Return the rows of one place.

    Args:
        rounds_max: The most calls of each kind in a block.
    """
    opened, boto = CountedLog(scratch.settings, objects_endpoint=endpoint), plain_s3(endpoint)
    bucket, prefix = scratch.settings.bucket_and_prefix
    folder = f"{prefix.strip('/')}/" if prefix else ""
    bare = plain_obstore(bucket, boto)
    topic = scratch.topic("append")
    numbers = count()
    rows: list[Row] = []
    for name, size, rounds in SIZES:
        now_ms = opened.runtime.now_ms()
        body = encode([Record(b"x" * (size - 80), timestamp=now_ms)], now_ms=now_ms).body
        request = AppendRequest.of_batch(body)

        def put(body: bytes = body) -> None:
            bare.put(f"{folder}probe/{topic}/{next(numbers)}", body, mode="create", use_multipart=False)

        def put_by_boto(body: bytes = body) -> None:
            key = f"{folder}probe/{topic}/{next(numbers)}"
            boto.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")

        def create(body: bytes = body) -> None:
            opened.objects.create(f"probe/{topic}/{next(numbers)}", body, _METADATA)

        def append(request: AppendRequest = request) -> None:
            opened.log.append(topic, 0, request)

        for once in (put, put_by_boto, create, append):
            once()
        calls = (put, put_by_boto, create, append)
        (bare_ms, bare_cpu), (boto_ms, _), (create_ms, _), (append_ms, cpu) = median_ms(
            calls, rounds=min(rounds, rounds_max)
        )
        what = f"{name}, {where}"
        rows += [
            Row(f"bare obstore create, {what}", bare_ms, "ms"),
            Row(f"bare boto3 put, {what}", boto_ms, "ms"),
            Row(f"append, {what}", append_ms, "ms"),
            Row(f"append ÷ bare obstore create, {what}", append_ms / bare_ms, "×", GOALS[where].get(name, "")),
            Row(f"the adapter's create alone ÷ bare obstore create, {what}", create_ms / bare_ms, "×"),
            Row(f"append ÷ bare obstore create, this process's CPU, {what}", cpu / bare_cpu if bare_cpu else 0.0, "×"),
        ]
    while listed := opened.objects.list(f"probe/{topic}/"):
        for line in listed:
            opened.objects.delete(line.key)
    boto.close()
    opened.close()
    return rows
