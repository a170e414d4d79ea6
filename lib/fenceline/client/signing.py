"""Requests signed as AWS wants them (SigV4), for an API that lets in only whom IAM does.

The rule: each sending is signed anew, by the credentials as they are at that moment; they come from where every AWS
tool takes them, stay botocore's, and are never shown. Without a region nothing is signed, and botocore is not needed.
"""

from __future__ import annotations

from collections.abc import Generator

import httpx

from fenceline import errors

_SERVICE = "execute-api"  # also behind a domain of one's own


class SignedRequests(httpx.Auth):
    """Signs for the API Gateway of ``region``.

    Raises:
        UnauthenticatedError: There are no credentials, or no botocore. The message says what to do.
    """

    requires_request_body = True

    def __init__(self, region: str) -> None:
        try:
            import botocore.session  # only here: a fifth of a second, and an extra
        except ModuleNotFoundError as error:
            raise errors.UnauthenticatedError("signing needs botocore; install fenceline[aws]") from error
        self._region = region
        self._credentials = botocore.session.get_session().get_credentials()
        if self._credentials is None:
            raise _no_credentials()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        # A space is "+" to HTML forms, and "%20" to AWS; a plus is "%2B" to both.
        request.url = request.url.copy_with(query=request.url.query.replace(b"+", b"%20") or None)
        signed = AWSRequest(
            request.method, str(request.url), headers={"host": request.headers["host"]}, data=request.content
        )
        try:
            # One moment's credentials: a renewal in between would mix two.
            frozen = self._credentials.get_frozen_credentials()
            SigV4Auth(frozen, _SERVICE, self._region).add_auth(signed)
        except BotoCoreError as error:
            raise _no_credentials() from error
        for name in ("Authorization", "X-Amz-Date", "X-Amz-Security-Token"):
            if name in signed.headers:
                request.headers[name] = signed.headers[name]
        yield request


def _no_credentials() -> errors.UnauthenticatedError:
    return errors.UnauthenticatedError(
        "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
    )
