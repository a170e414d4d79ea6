"""Requests to a deployed service are signed, each sending anew, by whatever credentials there are."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fenceline import Client, errors
from fenceline.client import signing
from tests.servers.faulty import answer, faulty_server
from tests.support import profiles

URL = "https://abc.execute-api.eu-west-1.amazonaws.com"
SECRET = "a-secret-that-nobody-sees"


class Gateway(httpx.BaseTransport):
    """A gateway that answers as the test orders, and keeps what came."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(httpx.Request(request.method, request.url, headers=request.headers))
        return self.answers.pop(0)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


HEALTH = {"status": "ok", "region": "eu-west-1", "version": "1"}


def test_a_request_is_signed_for_the_region_and_the_gateway(credentials: None) -> None:
    gateway = Gateway(httpx.Response(200, json=HEALTH))
    with Client(URL, region="eu-west-1", http=gateway) as client:
        client.health()
    [request] = gateway.requests
    assert "Credential=AKID/" in request.headers["authorization"]
    assert "/eu-west-1/execute-api/aws4_request" in request.headers["authorization"]
    assert SECRET not in str(request.headers)


def test_the_signature_is_botocores_of_what_was_sent(credentials: None) -> None:
    gateway = Gateway(httpx.Response(200, json={"topics": [], "has_more": False}))
    with Client(URL, region="eu-west-1", http=gateway) as client:
        assert list(client.topics(prefix="a b+c/é,")) == []
    [request] = gateway.requests
    assert b"+" not in request.url.query  # a space is %20 to AWS
    expected = AWSRequest("GET", str(request.url), headers={"host": request.headers["host"]}, data=b"")
    expected.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKID", SECRET), "execute-api", "eu-west-1")
    expected.headers["X-Amz-Date"] = request.headers["x-amz-date"]
    signature = signer.signature(signer.string_to_sign(expected, signer.canonical_request(expected)), expected)
    assert request.headers["authorization"].endswith(f"Signature={signature}")


def test_each_sending_is_signed_anew(credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(httpx.Response(503, json={"code": "CONTENDED"}), httpx.Response(200, json=HEALTH))
    with Client(URL, region="eu-west-1", http=gateway) as client:
        transport = gateway.handle_request

        def renewed(request: httpx.Request) -> httpx.Response:
            answer = transport(request)
            client._transport._http.auth._credentials = Credentials("AKID2", SECRET, "token2")  # type: ignore[union-attr]
            return answer

        monkeypatch.setattr(gateway, "handle_request", renewed)
        client.health()
    first, second = gateway.requests
    assert "Credential=AKID/" in first.headers["authorization"]
    assert "Credential=AKID2/" in second.headers["authorization"]
    assert second.headers["x-amz-security-token"] == "token2"


def test_without_a_region_nothing_is_signed(credentials: None) -> None:
    gateway = Gateway(httpx.Response(200, json=HEALTH))
    with Client(URL, http=gateway) as client:
        client.health()
    assert "authorization" not in gateway.requests[0].headers


def test_without_credentials_a_client_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(errors.UnauthenticatedError, match="set AWS_ACCESS_KEY_ID"):
        Client(URL, region="eu-west-1")


@pytest.mark.parametrize("profile", profiles.KINDS)
def test_a_profile_is_used_as_by_every_aws_tool(profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.set_up(tmp_path, monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", profile)
    gateway = Gateway(httpx.Response(200, json=HEALTH))
    with faulty_server() as portal:
        portal.answers = [answer(200, profiles.ROLE_CREDENTIALS)]
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", portal.url)
        with Client(URL, region="eu-west-1", http=gateway) as client:
            client.health()

    assert f"Credential={profiles.KINDS[profile]}/" in gateway.requests[0].headers["authorization"]
    assert len(portal.requests) == (profile == "sso")


@pytest.mark.parametrize(("profile", "expected"), profiles.UNUSABLE.items())
def test_a_profile_that_gives_no_credentials_is_one_line_that_says_what_to_do(
    profile: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.set_up(tmp_path, monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", profile)
    gateway = Gateway()
    with pytest.raises(errors.UnauthenticatedError) as caught, Client(URL, region="eu-west-1", http=gateway) as client:
        client.health()

    assert caught.value.detail.startswith(expected)
    assert "\n" not in caught.value.detail
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, errors.UnauthenticatedError),
        (403, errors.NotAuthorizedError),
        (404, errors.NotFoundError),
        (413, errors.RecordListTooLargeError),
        (429, errors.ThrottledError),
        (500, errors.OutcomeUnknownError),
        (503, errors.OutcomeUnknownError),
    ],
)
def test_a_refusal_of_the_gateway_is_a_documented_error(
    status: int, error: type[errors.FencelineError], credentials: None
) -> None:
    gateway = Gateway(httpx.Response(status, json={"message": "the gateway's own"}))
    with Client(URL, region="eu-west-1", retry_ms=0, http=gateway) as client, pytest.raises(error):
        client.create_topic("orders")


def test_signing_shows_no_secret(credentials: None) -> None:
    assert SECRET not in repr(signing.SignedRequests("eu-west-1"))
