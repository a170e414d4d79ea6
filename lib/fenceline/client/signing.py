"""Requests signed as AWS wants them (SigV4), for an API that IAM protects.

Rule: each sending is signed with the credentials of that moment. The credentials come from where every AWS tool takes
them (boto3's session: variables, profiles, SSO, roles), stay in that session, and are never shown. Without a region
nothing is signed, and boto3 is not needed.
"""

from __future__ import annotations

from collections.abc import Generator

import httpx

from fenceline import errors

_SERVICE = "execute-api"  # also for an API with a custom domain


class SignedRequests(httpx.Auth):
    """A signer of requests to the API Gateway of ``region``.

    Raises:
        UnauthenticatedError: There are no credentials, or boto3 is not installed. The message says what to do.
    """

    requires_request_body = True

    def __init__(self, region: str) -> None:
        try:
            import boto3.session  # noqa: F401  # only here: a fifth of a second, and an extra
            from botocore.exceptions import BotoCoreError

            from fenceline.adapters.aws import credentials
        except ModuleNotFoundError as error:
            raise errors.UnauthenticatedError(
                f'signing requests needs {error.name}, which is not installed; run pip install "fenceline-log[aws]"'
            ) from error
        self._region = region
        try:
            self._credentials = credentials.new_session()[0].get_credentials()
        except BotoCoreError as error:
            raise errors.UnauthenticatedError(credentials.described(error)) from error
        if self._credentials is None:
            raise errors.UnauthenticatedError(credentials.NONE_FOUND)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError, ClientError

        from fenceline.adapters.aws import credentials

        # A space is "+" to HTML forms, and "%20" to AWS; a plus is "%2B" to both.
        request.url = request.url.copy_with(query=request.url.query.replace(b"+", b"%20") or None)
        signed = AWSRequest(
            request.method, str(request.url), headers={"host": request.headers["host"]}, data=request.content
        )
        try:
            # The credentials are those of one moment, because a renewal in between would mix two pairs.
            frozen = self._credentials.get_frozen_credentials()
            SigV4Auth(frozen, _SERVICE, self._region).add_auth(signed)
        except (BotoCoreError, ClientError) as error:  # ClientError: from a service that issues credentials
            raise errors.UnauthenticatedError(credentials.described(error)) from error
        for name in ("Authorization", "X-Amz-Date", "X-Amz-Security-Token"):
            if name in signed.headers:
                request.headers[name] = signed.headers[name]
        yield request
