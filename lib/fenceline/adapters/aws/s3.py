"""A bucket as the object store.

Rule: a create is sent once, and its answer is reported as it is: created, exists already, a conflict, or nothing
changed. After no answer, and after every 5xx, the outcome is unknown. The body's SHA-256 is signed, and S3 checks it
before it stores the body. The log checks the objects that it reads, by the chain value, or by the checksum in the
metadata.

Not here: sending requests (``s3_transfer``, ``s3_rest``), and the failures that change nothing (``client``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

from fenceline.adapters.aws.client import (
    ClientOptions,
    Failure,
    answered,
    fact_of,
    make_client,
    repeated,
    unavailable,
)
from fenceline.adapters.aws.s3_place import place_of
from fenceline.adapters.aws.s3_rest import FetchedObject, S3Rest
from fenceline.adapters.aws.s3_transfer import S3Transfer
from fenceline.ports import AlreadyExists, Conflict, NotFound, Object, ObjectSummary, StoreFact, Unavailable

PAGE_KEYS_MAX = 1_000  # the most that S3 lists in one answer
_CONFLICTS = frozenset({"ConditionalRequestConflict", "OperationAborted"})


class S3ObjectStore:
    """An ``ObjectStore`` in ``bucket``, all keys below ``prefix``. Threads and processes may share it.

    Args:
        prefix: A folder's name, or none.

    Raises:
        Unavailable: These settings lead to no bucket that can hold a log. The message says what to do.
        ModuleNotFoundError: boto3 or obstore is not installed.
    """

    def __init__(self, bucket: str, prefix: str = "", **options: Unpack[ClientOptions]) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._options = options
        place = place_of(bucket, **options)
        self._region = place.region
        self._transfer = S3Transfer(place, **options)
        self._rest = S3Rest(place, **options)

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        described = {name.lower(): value for name, value in metadata.items()}
        try:
            # I1: S3 takes one of all creates of a key, and refuses the others.
            self._requests(key, len(body)).create(self._prefix + key, body, described)
        except Failure as error:
            if answered(error)[0] in (409, 412):
                raise self._refusal(error, key) from error
            raise fact_of(error, self._place(key)) from error

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        last = None if end is None else max(end, start + 1)  # S3 has no empty range
        try:
            found = repeated(self._requests(key).get, key=self._prefix + key, start=start, end=last)
        except Failure as error:
            if answered(error)[0] != 416:
                raise self._read_fact(error, key) from error
            found = self._head(key)  # the range begins after the last byte
        return Object(
            key,
            found.body if end is None else found.body[: max(end - start, 0)],
            found.metadata,
            found.size,
            found.modified_at,
        )

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        found: list[ObjectSummary] = []
        where = {"start_after": self._prefix + start_after} if start_after else {}
        while len(found) < limit:
            wanted = min(limit - len(found), PAGE_KEYS_MAX)
            try:
                page = repeated(self._rest.page, prefix=self._prefix + prefix, max_keys=str(wanted), **where)
            except Failure as error:
                raise unavailable(error, self._place(prefix)) from error
            found += [
                ObjectSummary(key.removeprefix(self._prefix), size, modified_at)
                for key, size, modified_at in page.lines
            ]
            if not page.next_token:
                break
            where = {"continuation_token": page.next_token}
        return found

    def delete(self, key: str) -> None:
        try:
            repeated(self._requests(key).delete, key=self._prefix + key)
        except Failure as error:
            raise unavailable(error, self._place(key)) from error

    def url(self, key: str, lifetime_ms: int) -> str:
        """Return an absolute URL.

        A URL that is signed by a role's credentials ends with the credentials. They are renewed when ten minutes of
        them are left, or earlier.
        """
        try:
            return self._requests(key).url(self._prefix + key, -(-lifetime_ms // 1000))
        except Failure as error:
            raise unavailable(error, self._place(key)) from error

    def check(self) -> None:
        """Check that the bucket exists, is in this region, and may be listed.

        Without the permission to list, S3 answers 403 for an absent key, so that no key could be seen absent.

        Raises:
            Unavailable: One of these does not hold. The message says what to do.
        """
        try:
            repeated(self._client.list_objects_v2, Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
            found = repeated(self._client.head_bucket, Bucket=self._bucket)
        except Failure as error:
            raise unavailable(error, self._place()) from error
        here, there = self._region, found.get("BucketRegion", "")
        if there and there != here:
            raise Unavailable(f"the bucket is in another region; set AWS_REGION={there}: {self._place()} region={here}")

    def create_bucket(self) -> None:
        """Create the bucket, unless the account has one of this name.

        Raises:
            Unavailable: It could not be created. The message says what to do.
        """
        region = self._region
        # S3 takes no location for its first region.
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            repeated(self._client.create_bucket, Bucket=self._bucket, **where)
        except Failure as error:
            if answered(error)[1] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise unavailable(error, self._place()) from error
        self.check()

    def close(self) -> None:
        self._rest.close()
        if "_client" in self.__dict__:
            self._client.close()

    @cached_property
    def _client(self) -> Any:
        """Return botocore's client, by which buckets are made. Making it takes 0.1 s, and functions need none."""
        return make_client(
            "s3",
            self._options,
            signature_version="s3v4",
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )

    def _refusal(self, error: Exception, key: str) -> StoreFact:
        """Return the fact of a refused create. After a conflict a look decides: the rival may be done by now."""
        status, code = answered(error)
        if status == 409:
            if code not in _CONFLICTS:
                return fact_of(error, self._place(key))
            try:
                repeated(self._requests(key).head, key=self._prefix + key)
            except Failure as unseen:
                if answered(unseen)[0] == 404:
                    return Conflict(f"another create was under way: {self._place(key)}")
                return unavailable(unseen, self._place(key))
        return AlreadyExists(f"an object with this key exists: {self._place(key)}")

    def _head(self, key: str) -> FetchedObject:
        try:
            return repeated(self._requests(key).head, key=self._prefix + key)
        except Failure as error:
            raise self._read_fact(error, key) from error

    def _read_fact(self, error: Exception, key: str) -> StoreFact:
        # The status does not decide, because for an absent bucket it is 404, too, which says nothing of the key.
        if answered(error)[1] == "NoSuchKey":
            return NotFound(f"no object: {self._place(key)}")
        return unavailable(error, self._place(key))

    def _requests(self, key: str, size: int = 0) -> S3Transfer | S3Rest:
        return self._transfer if self._transfer.takes(self._prefix + key, size) else self._rest

    def _place(self, key: str = "") -> str:
        return f"bucket={self._bucket} key={self._prefix}{key}" if key else f"bucket={self._bucket}"
