"""AWS's signature, version 4, of requests to S3.

Rule: it signs exactly as botocore does, which a test compares. It exists because botocore takes twenty times as long, a
quarter of a millisecond for each request and URL.

Not here: credentials, and their renewal, which are botocore's.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from botocore.exceptions import NoCredentialsError

_ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass
class Signer:
    """A signer for one host, by the credentials as they are at each call.

    Args:
        credentials: botocore's; ``None`` where it found none.
        host: As in the ``Host`` header.
    """

    credentials: Any
    region: str
    service: str
    host: str
    _key: tuple[str, str, bytes] = field(default=("", "", b""), init=False)  # (secret, day, key)
    _query: tuple[Any, str] = field(default=(None, ""), init=False)  # ((credentials, second, lifetime), query)

    def sign(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], payload: str
    ) -> dict[str, str]:
        """Return ``headers`` (names in lower case) with those that the signature adds.

        Args:
            path: As it is sent, quoted.
            payload: SHA-256 of the body in hexadecimal digits, or ``UNSIGNED``.

        Raises:
            NoCredentialsError: There are none.
            BotoCoreError: They could not be renewed.
        """
        frozen = self._frozen()
        at = _now()
        signed = {**headers, "host": self.host, "x-amz-content-sha256": payload, "x-amz-date": at}
        if frozen.token:
            signed["x-amz-security-token"] = frozen.token
        names, signature = self._signature(frozen, at, method, path, canonical_query(query), signed, payload)
        credential = f"{frozen.access_key}/{self._scope(at)}"
        signed["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
        del signed["host"]  # added by the HTTP session
        return signed

    def presign(self, path: str, lifetime_s: int) -> str:
        """Return the query that allows a plain GET of ``path`` (quoted) for ``lifetime_s``.

        Raises:
            NoCredentialsError, BotoCoreError: As ``sign``.
        """
        frozen = self._frozen()
        at = _now()
        query = self._presigned_query(frozen, at, lifetime_s)
        _, signature = self._signature(frozen, at, "GET", path, query, {"host": self.host}, UNSIGNED)
        return f"{query}&X-Amz-Signature={signature}"

    def _presigned_query(self, frozen: Any, at: str, lifetime_s: int) -> str:
        """Return the part of the query that all URLs of one second share."""
        known, query = self._query
        if known != (frozen, at, lifetime_s):
            wanted = {
                "X-Amz-Algorithm": _ALGORITHM,
                "X-Amz-Credential": f"{frozen.access_key}/{self._scope(at)}",
                "X-Amz-Date": at,
                "X-Amz-Expires": str(lifetime_s),
                "X-Amz-SignedHeaders": "host",
            }
            if frozen.token:
                wanted["X-Amz-Security-Token"] = frozen.token
            query = canonical_query(wanted)
            self._query = ((frozen, at, lifetime_s), query)
        return query

    def _frozen(self) -> Any:
        if self.credentials is None:
            raise NoCredentialsError
        return self.credentials.get_frozen_credentials()

    def _scope(self, at: str) -> str:
        return f"{at[:8]}/{self.region}/{self.service}/aws4_request"

    def _signature(
        self, frozen: Any, at: str, method: str, path: str, query: str, headers: Mapping[str, str], payload: str
    ) -> tuple[str, str]:
        ordered = sorted(headers)
        names = ";".join(ordered)
        lines = [f"{name}:{' '.join(headers[name].split())}" for name in ordered]
        request = "\n".join([method, path, query, *lines, "", names, payload])
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{at}\n{self._scope(at)}\n{digest}"
        return names, _hmac(self._day_key(frozen.secret_key, at[:8]), text).hex()

    def _day_key(self, secret: str, day: str) -> bytes:
        """Return the key for a day, which is derived from the secret in four steps and remembered."""
        known_secret, known_day, key = self._key
        if (known_secret, known_day) != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self.region, self.service, "aws4_request"):
                key = _hmac(key, part)
            self._key = (secret, day, key)  # the same, whichever thread derives it
        return key


def canonical_query(query: Mapping[str, str]) -> str:
    """Return a query in the one form that is signed, which is also the form that is sent."""
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(query.items()))


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _now() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
