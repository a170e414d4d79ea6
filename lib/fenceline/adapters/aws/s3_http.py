"""Requests to one bucket, by S3's REST interface.

Rule: each is sent once, by botocore's own HTTP session and credentials, to where botocore would send it. It fails with
botocore's own exceptions. What botocore does around a request is left out. That takes about 1.5 ms for each, as long as
a whole create on a near server.

Not here: the signature (``sigv4``), and what an answer means to the log (``s3``).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import ClientError, IncompleteReadError
from botocore.parsers import create_parser
from urllib3 import HTTPResponse

from fenceline.adapters.aws.sigv4 import UNSIGNED, Signer, canonical_query
from fenceline.ports import Unavailable

_METHODS = {
    "PutObject": "PUT",
    "GetObject": "GET",
    "HeadObject": "HEAD",
    "DeleteObject": "DELETE",
    "ListObjectsV2": "GET",
}
_SCOPE = r"AWS4-HMAC-SHA256 Credential=.*/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request"
_NO_BODY = hashlib.sha256(b"").hexdigest()


class S3Requests:
    """The requests to ``bucket``, sent as ``client``, a botocore client for S3, would. Threads may share it."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._session = client._endpoint.http_session  # with its pool, time-outs, proxies and certificates
        self._agent = {"user-agent": client.meta.config.user_agent}
        self._errors = create_parser("rest-xml")
        self._lock = threading.Lock()
        self._known: tuple[str, str, Signer] | None = None

    def send(
        self,
        operation: str,
        key: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Any:
        """Return S3's answer: ``headers``, and the whole ``content``.

        Args:
            headers: With names in lower case.

        Raises:
            ClientError: S3 refused, or failed.
            BotoCoreError: There is no answer, or only a part of it.
            Unavailable: The bucket is of a kind that can't hold a log.
        """
        base, path, signer = self._place()
        path += quote(key, safe="/~")
        method = _METHODS[operation]
        payload = self._payload(base, body) if body else _NO_BODY
        signed = signer.sign(method, path, query or {}, {**self._agent, **(headers or {})}, payload)
        url = f"{base}{path}?{canonical_query(query)}" if query else f"{base}{path}"
        request = AWSPreparedRequest(method, url, HeadersDict(signed), body or None, stream_output=False)
        if method == "PUT" and not body:
            request.headers["content-length"] = "0"
        # Tools that count requests, and servers in the same process that replace them, do so here.
        _, answer = self._client.meta.events.emit_until_response(f"before-send.s3.{operation}", request=request)
        if answer is None:
            answer = self._session.send(request)
        if answer.status_code >= 300:
            raise self._refusal(operation, answer)
        length = answer.headers.get("content-length")
        if length is not None and method != "HEAD" and int(length) != len(answer.content):
            raise IncompleteReadError(actual_bytes=len(answer.content), expected_bytes=int(length))
        return answer

    def url(self, key: str, lifetime_s: int) -> str:
        """Return the URL at which a plain GET reads ``key`` for ``lifetime_s``.

        Raises:
            BotoCoreError, Unavailable: As ``send``.
        """
        base, path, signer = self._place()
        path += quote(key, safe="/~")
        return f"{base}{path}?{signer.presign(path, lifetime_s)}"

    def _place(self) -> tuple[str, str, Signer]:
        """Return the bucket's address, the path before a key there, and the signer for it.

        botocore shows these in a request that it makes and does not send. It knows of regions, of addressing styles, of
        access points, and of what is configured.
        """
        with self._lock:
            if self._known is None:
                self._known = self._asked()
            return self._known

    def _asked(self) -> tuple[str, str, Signer]:
        made: list[Any] = []

        def keep(request: Any, **_: Any) -> AWSResponse:
            made.append(request)
            return AWSResponse(request.url, 200, {}, HTTPResponse(BytesIO(), preload_content=False))

        if not self._bucket.endswith("--x-s3"):  # S3 Express lists in no order
            events, event = self._client.meta.events, "before-send.s3.GetObjectAcl"  # used by no other request
            events.register_first(event, keep)
            try:
                self._client.get_object_acl(Bucket=self._bucket, Key="k")
            finally:
                events.unregister(event, keep)
        scope = re.search(_SCOPE, str(made[0].headers.get("authorization", ""))) if made else None
        if scope is None:
            raise Unavailable(
                f"only a general purpose bucket can hold a log; name such a bucket: bucket={self._bucket}"
            )
        parts = urlsplit(made[0].url)
        host = parts.netloc.removesuffix({"http": ":80", "https": ":443"}[parts.scheme])
        signer = Signer(self._client._get_credentials(), scope["region"], scope["service"], host)
        return f"{parts.scheme}://{parts.netloc}", parts.path.removesuffix("k"), signer

    def _payload(self, base: str, body: bytes) -> str:
        """Return what the signature says of the body: over TLS nothing, since the body has its checksum."""
        wanted = (self._client.meta.config.s3 or {}).get("payload_signing_enabled")
        is_signed = base.startswith("http:") if wanted is None else wanted
        return hashlib.sha256(body).hexdigest() if is_signed else UNSIGNED

    def _refusal(self, operation: str, answer: Any) -> ClientError:
        shape = self._client.meta.service_model.operation_model(operation).output_shape
        response = {"status_code": answer.status_code, "headers": answer.headers, "body": answer.content}
        return ClientError(self._errors.parse(response, shape), operation)
