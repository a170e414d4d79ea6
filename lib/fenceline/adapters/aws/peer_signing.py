"""Requests to a region of another stack, signed with the credentials of the role that it gives to its peers.

Rule: the role is assumed for an hour, and again before that ends. Its credentials stay in this process, and are never
shown.

Not here: this process's own credentials (``credentials``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from fenceline.adapters.aws import credentials
from fenceline.adapters.aws.client import Failure, make_client
from fenceline.adapters.http_connections import CannotReach
from fenceline.ports import Unavailable

_SERVICE = "execute-api"
_RENEWED_S = 300  # so long before its credentials end, the role is assumed again


class RoleSigner:
    """A signer of GETs to the API Gateway of ``region``, as a role. Safe to share between threads.

    Args:
        role: The role's ARN.
        session: The name of the session, by which the other stack knows the region that asks.
        take: Assumes the role: returns the answer of STS ``AssumeRole``. For tests; ``None`` asks STS.

    Raises:
        CannotReach: When a request is signed, and the role cannot be assumed. The message says what to do.
    """

    def __init__(
        self, role: str, region: str, *, session: str = "fenceline", take: Callable[[], Any] | None = None
    ) -> None:
        self._role = role
        self._region = region
        self._session = session
        self._take = take or self._ask_sts
        self._lock = threading.Lock()
        self._known: tuple[float, ReadOnlyCredentials] | None = None  # (until, in s since the epoch; credentials)

    def __call__(self, url: str) -> Mapping[str, str]:
        """Return the headers that sign a GET of ``url``."""
        signed = AWSRequest("GET", url, headers={"Host": urlsplit(url).netloc})
        SigV4Auth(self._credentials(), _SERVICE, self._region).add_auth(signed)
        return {name: signed.headers[name] for name in ("Host", "Authorization", "X-Amz-Date", "X-Amz-Security-Token")}

    def _credentials(self) -> ReadOnlyCredentials:
        with self._lock:
            if self._known is None or time.time() > self._known[0] - _RENEWED_S:
                self._known = self._taken()
            return self._known[1]

    def _taken(self) -> tuple[float, ReadOnlyCredentials]:
        try:
            found = self._take()["Credentials"]
        except Unavailable as fact:
            raise CannotReach(f"the peer's role cannot be taken: {fact}") from fact
        except Failure as error:
            what = credentials.described(error)
            raise CannotReach(f"the peer's role cannot be taken: role={self._role} {what}") from error
        until: datetime = found["Expiration"]
        taken = ReadOnlyCredentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
        return until.timestamp(), taken

    def _ask_sts(self) -> Any:
        sts = make_client("sts", {"sdk": "botocore"})
        return sts.assume_role(RoleArn=self._role, RoleSessionName=self._session)
