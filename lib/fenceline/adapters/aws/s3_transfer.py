"""Objects of one bucket, sent and fetched by obstore.

Rule: each request is sent once. obstore's own retries are off, because its second try would find its first. A failure
raises botocore's own exceptions, as DynamoDB's client does, so that ``client`` has one list of what each failure means.

obstore sends only bodies that a line of 3.4 Mbit/s takes in five seconds, and smaller ones once a body took longer
(``takes``), because its time-out for an answer runs while the body is still being sent.

Not here: requests that obstore can't make (``s3_rest``), and the meaning of an answer to the log (``s3``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import obstore
from botocore.credentials import Credentials
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from obstore.exceptions import BaseError
from obstore.store import S3Store

from fenceline.adapters.aws.client import ANSWER_MS, CONNECT_MS, ClientOptions, Failure, refusal
from fenceline.adapters.aws.s3_place import BucketAddress
from fenceline.adapters.aws.s3_rest import FetchedObject
from fenceline.ports import Unavailable

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

BODY_BYTES_MAX = 2 * 1024 * 1024  # created by obstore
_BODY_BYTES_MIN = 64 * 1024  # created by obstore however slow the line is
_WHOLE_MS = 3_600_000  # for a whole body; each wait for a part of it has its own bound
_OVER = datetime(2000, 1, 1, tzinfo=UTC)
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b[^:]*:?\s?(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSENT = re.compile(r"legacy::Error\(\s*Connect,")  # hyper's error where there was no connection yet


class S3Transfer:
    """Puts and gets of the objects at ``place`` that this class ``takes``. Threads may share it.

    Raises:
        Unavailable: There are no certificates that can be read.
    """

    def __init__(self, place: BucketAddress, **options: Unpack[ClientOptions]) -> None:
        self._place = place
        self._refusal: Exception | None = None  # the last problem with the credentials
        self._body_bytes_max = BODY_BYTES_MAX
        client: ClientConfig = {
            "allow_http": place.url.startswith("http:"),
            "allow_invalid_certificates": False,
            "connect_timeout": timedelta(milliseconds=options.get("connect_ms", CONNECT_MS)),
            "read_timeout": timedelta(milliseconds=options.get("answer_ms", ANSWER_MS)),
            "timeout": timedelta(milliseconds=_WHOLE_MS),
            "user_agent": "fenceline",
        }
        try:
            if not client["allow_http"]:
                client["root_certificate"] = Path(place.certificates).read_bytes()
            self._store = self._opened(client)
        except (OSError, ValueError, BaseError) as error:
            what = "the trusted certificates can't be used; check AWS_CA_BUNDLE"
            raise Unavailable(
                f"{what}: path={place.certificates} error={' '.join(str(error).split())[:200]}"
            ) from error

    def takes(self, key: str, size: int = 0) -> bool:
        """Return True if obstore can ask for this key, and send a body of ``size`` bytes in time.

        obstore would ask for another key where a part between slashes is empty, ``.`` or ``..``. In a forked process no
        request would ever end, because obstore's threads do not exist there.
        """
        is_plain = not _CONTROL.search(key) and all(part not in ("", ".", "..") for part in key.split("/"))
        return is_plain and size <= self._body_bytes_max and _is_own_process()

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        """Put the object, if there is none.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: S3 refused, or failed, or there is no answer.
        """
        try:
            obstore.put(self._store, key, body, mode="create", attributes=dict(metadata), use_multipart=False)
        except (BaseError, OSError) as error:
            failed = self._translated(error, "PutObject")
            if isinstance(failed, ReadTimeoutError) and len(body) > _BODY_BYTES_MIN:
                self._body_bytes_max = min(self._body_bytes_max, len(body) - 1)  # the line may be too slow for it
            raise failed from error

    def get(self, key: str, start: int = 0, end: int | None = None) -> FetchedObject:
        """Return the object, or the bytes [start, end) of it, of which there is at least one.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``create``.
        """
        wanted: dict[str, Any] = {}
        if start or end is not None:
            wanted = {"range": {"offset": start} if end is None else (start, end)}
        try:
            return self._fetched(key, wanted, "GetObject")
        except _NotPartialError:
            whole = self.get(key)
            return whole._replace(body=whole.body[start:end])

    def head(self, key: str) -> FetchedObject:
        """Return the object's size and metadata, without its body.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``create``; for an absent key S3 gives no code but 404.
        """
        return self._fetched(key, {"head": True}, "HeadObject")

    def delete(self, key: str) -> None:
        """Delete the object.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``create``.
        """
        try:
            obstore.delete(self._store, key)
        except (BaseError, OSError) as error:
            raise self._translated(error, "DeleteObject") from error

    def url(self, key: str, lifetime_s: int) -> str:
        """Return the URL at which a plain GET reads ``key`` for ``lifetime_s``.

        Raises:
            BotoCoreError: There are no credentials.
        """
        try:
            return obstore.sign(self._store, "GET", key, timedelta(seconds=lifetime_s))
        except BaseError as error:
            raise self._translated(error, "GetObject") from error

    def _opened(self, client: ClientConfig) -> S3Store:
        return S3Store(
            "bucket",  # named in the URL
            # All settings that matter are set here, because obstore reads other AWS_* variables than botocore.
            config={
                "aws_endpoint_url_s3": self._place.url,
                "virtual_hosted_style_request": True,  # the URL is the bucket's, and not only the server's
                "region": self._place.region,
                "conditional_put": "etag",
                "disable_bulk_delete": True,
                "s3_express": False,
                "skip_signature": False,
                "unsigned_payload": False,  # the body's SHA-256 is signed, so S3 checks it before it stores the body
            },
            client_options=client,
            retry_config={"max_retries": 0},
            credential_provider=self._credentials,
        )

    def _fetched(self, key: str, options: Any, operation: str) -> FetchedObject:
        try:
            found = obstore.get(self._store, key, options=options)
            body = found.bytes().to_bytes()
        except (BaseError, OSError) as error:
            if "Received non-partial response when range requested" in str(error):
                raise _NotPartialError from error
            raise self._translated(error, operation) from error
        # obstore gives standard headers beside the metadata, and only their names have capitals.
        metadata = {name: value for name, value in found.attributes.items() if name == name.lower()}
        return FetchedObject(body, metadata, found.meta["size"], _ms_of(found.meta["last_modified"]))

    def _credentials(self) -> S3Credential:
        """Return the credentials for the next requests.

        Credentials that botocore renews count as over at once, so that each request asks for them again, and botocore
        renews them in time. Others never change, and are asked for once, because a request would wait for the
        interpreter here.
        """
        try:
            frozen = self._place.frozen()
        except Failure as error:
            self._refusal = error  # obstore passes on only its text
            raise
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": None if type(self._place.credentials) is Credentials else _OVER,
        }

    def _translated(self, error: Exception, operation: str) -> Any:
        """Return botocore's exception for obstore's, by its text. In doubt the request may have arrived."""
        text, _, source = str(error).partition("\n\nDebug source:\n")
        if "External AWS credential provider" in text and self._refusal is not None:
            return self._refusal
        if told := _STATUS.search(text):
            return refusal(int(told[1]), told[2], operation)
        if "Received redirect without LOCATION" in text:
            return refusal(301, "<Code>PermanentRedirect</Code>", operation)
        if "kind: Timeout" in source:
            timed_out = ConnectTimeoutError if _UNSENT.search(source) else ReadTimeoutError
            return timed_out(endpoint_url=self._place.url, error=text)
        if _UNSENT.search(source):
            is_distrust = "InvalidCertificate" in source
            failed = SSLError if is_distrust else EndpointConnectionError
            what = f"CERTIFICATE_VERIFY_FAILED {' '.join(source.split())[-200:]}" if is_distrust else text
            return failed(endpoint_url=self._place.url, error=what)
        if "Unable to extract metadata from headers" in text:
            return ResponseParserError(text)
        return HTTPClientError(error=text)


class _NotPartialError(Exception):
    """The whole object instead of a range of it, from a store without ranges."""


_process: int | None = None  # the first process that asked anything


def _is_own_process() -> bool:
    global _process
    if _process is None:
        _process = os.getpid()
    return _process == os.getpid()


def _ms_of(modified: datetime) -> int:
    """Return when an object came. obstore gives the epoch where S3 did not say, from which no age may be counted."""
    at = round(modified.timestamp() * 1000)
    if not at:
        raise ResponseParserError("the answer has no Last-Modified")
    return at
