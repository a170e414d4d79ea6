"""A bucket as the object store.

Rule: a create is sent once, and its answer is reported as it is: created, exists already, a conflict, or nothing
changed. After no answer, and after every 5xx, the outcome is not known. Each body has a CRC32C with it. S3 checks it
before it stores the body, keeps it, and sends it back with the body. It is checked here when a whole object is read.
Ranges have none.

Not here: how a request is sent (``s3_http``), and which failures change nothing (``client``).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from fenceline.adapters.aws.client import (
    ClientOptions,
    Failure,
    answered,
    check_client,
    fact_of,
    make_client,
    repeated,
    unavailable,
)
from fenceline.adapters.aws.s3_http import S3Requests
from fenceline.adapters.aws.s3_listing import Listing, ms_of
from fenceline.format.crc32c import crc32c
from fenceline.ports import AlreadyExists, Conflict, Damaged, NotFound, Object, ObjectSummary, StoreFact, Unavailable

PAGE_KEYS_MAX = 1_000  # the most that S3 lists in one answer
_CONFLICTS = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_METADATA = "x-amz-meta-"


def s3_client(**options: Unpack[ClientOptions]) -> Any:
    """Return a client for ``S3ObjectStore``.

    Raises:
        Unavailable: As ``make_client``.
    """
    return make_client(
        "s3",
        options,
        signature_version="s3v4",
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


class S3ObjectStore:
    """An ``ObjectStore`` in ``bucket``, all keys below ``prefix``. Threads and processes may share it.

    Args:
        prefix: A folder's name, or none.
        client: From ``s3_client``, or another that doesn't repeat requests; made if left out.
    """

    def __init__(self, bucket: str, prefix: str = "", *, client: Any = None) -> None:
        self._client = client or s3_client()
        check_client(self._client)
        self._requests = S3Requests(self._client, bucket)
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        headers = {f"{_METADATA}{name.lower()}": value for name, value in metadata.items()}
        try:
            # I1: S3 takes one of all creates of a key, and refuses the others.
            self._requests.send(
                "PutObject",
                self._prefix + key,
                headers={"if-none-match": "*", "x-amz-checksum-crc32c": _crc32c(body), **headers},
                body=body,
            )
        except Failure as error:
            raise self._create_fact(error, key) from error

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        if start == 0 and end is None:
            return self._get_whole(key)
        last = "" if end is None else max(end - 1, start)  # S3 has no empty range
        try:
            found = self._ask("GetObject", key, {"range": f"bytes={start}-{last}"})
        except Failure as error:
            if answered(error)[0] == 416:  # the range begins after the last byte
                return self._head(key)
            raise self._read_fact(error, key) from error
        body = found.content
        if "content-range" not in found.headers:  # the whole object, from a store without ranges
            return _object(key, found.headers, body[start:end], len(body))
        size = int(found.headers["content-range"].rpartition("/")[2])
        return _object(key, found.headers, body if end is None else body[: max(end - start, 0)], size)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        found: list[ObjectSummary] = []
        where = {"start-after": self._prefix + start_after} if start_after else {}
        while len(found) < limit:
            wanted = {
                "list-type": "2",
                "encoding-type": "url",  # since XML can't hold every character of a key
                "prefix": self._prefix + prefix,
                "max-keys": str(min(limit - len(found), PAGE_KEYS_MAX)),
                **where,
            }
            try:
                page = Listing.parse(repeated(self._requests.send, operation="ListObjectsV2", query=wanted).content)
            except Failure as error:
                raise unavailable(error, self._place(prefix)) from error
            found += [
                ObjectSummary(key.removeprefix(self._prefix), size, modified_at)
                for key, size, modified_at in page.lines
            ]
            if not page.next_token:
                break
            where = {"continuation-token": page.next_token}
        return found

    def delete(self, key: str) -> None:
        try:
            self._ask("DeleteObject", key)
        except Failure as error:
            raise unavailable(error, self._place(key)) from error

    def url(self, key: str, lifetime_ms: int) -> str:
        """Return an absolute URL.

        A URL that is signed by a role's credentials ends with them. They are renewed when ten minutes of them are left,
        or earlier.
        """
        try:
            return self._requests.url(self._prefix + key, -(-lifetime_ms // 1000))
        except Failure as error:
            raise unavailable(error, self._place(key)) from error

    def check(self) -> None:
        """Look whether the bucket exists, is in this region, and may be listed.

        Without leave to list, S3 answers 403 for an absent key, and no key could be seen absent.

        Raises:
            Unavailable: One of these is not so. The message says what to do.
        """
        try:
            repeated(self._client.list_objects_v2, Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
            found = repeated(self._client.head_bucket, Bucket=self._bucket)
        except Failure as error:
            raise unavailable(error, self._place()) from error
        here, there = self._client.meta.region_name, found.get("BucketRegion", "")
        if there and there != here:
            raise Unavailable(f"the bucket is in another region; set AWS_REGION={there}: {self._place()} region={here}")

    def create_bucket(self) -> None:
        """Create the bucket, unless we have one of this name.

        Raises:
            Unavailable: It could not be created. The message says what to do.
        """
        region = self._client.meta.region_name
        # S3 takes no location for its first region.
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            repeated(self._client.create_bucket, Bucket=self._bucket, **where)
        except Failure as error:
            if answered(error)[1] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise unavailable(error, self._place()) from error
        self.check()

    def close(self) -> None:
        self._client.close()

    def _get_whole(self, key: str) -> Object:
        try:
            found = self._ask("GetObject", key, {"x-amz-checksum-mode": "ENABLED"})
        except Failure as error:
            raise self._read_fact(error, key) from error
        expected = found.headers.get("x-amz-checksum-crc32c")  # absent if another tool stored the object
        if expected is not None and expected != _crc32c(found.content):
            raise self._damaged(key)
        return _object(key, found.headers, found.content, len(found.content))

    def _head(self, key: str) -> Object:
        try:
            found = self._ask("HeadObject", key)
        except Failure as error:
            raise self._read_fact(error, key) from error
        return _object(key, found.headers, b"", int(found.headers["content-length"]))

    def _ask(self, operation: str, key: str, headers: Mapping[str, str] | None = None) -> Any:
        """Send a request that may be repeated."""
        return repeated(self._requests.send, operation=operation, key=self._prefix + key, headers=headers)

    def _create_fact(self, error: Exception, key: str) -> StoreFact:
        status, code = answered(error)
        if status == 412:
            return AlreadyExists(f"an object with this key exists: {self._place(key)}")
        if status == 409 and code in _CONFLICTS:
            return Conflict(f"another create was under way: {self._place(key)}")
        return fact_of(error, self._place(key))

    def _read_fact(self, error: Exception, key: str) -> StoreFact:
        # The status does not decide: for an absent bucket it is 404, too, which says nothing of the key.
        if answered(error)[1] == "NoSuchKey":
            return NotFound(f"no object: {self._place(key)}")
        return unavailable(error, self._place(key))

    def _damaged(self, key: str) -> Damaged:
        return Damaged(f"the object is not what was stored; restore it from a backup: {self._place(key)}")

    def _place(self, key: str = "") -> str:
        return f"bucket={self._bucket} key={self._prefix}{key}" if key else f"bucket={self._bucket}"


def _object(key: str, headers: Mapping[str, str], body: bytes, size: int) -> Object:
    # Names of headers come in whatever case the server wrote them.
    lower = [(name.lower(), value) for name, value in headers.items()]
    metadata = {name.removeprefix(_METADATA): value for name, value in lower if name.startswith(_METADATA)}
    return Object(key, body, metadata, size, ms_of(headers["last-modified"]))


def _crc32c(body: bytes) -> str:
    return base64.b64encode(crc32c(body).to_bytes(4, "big")).decode()
