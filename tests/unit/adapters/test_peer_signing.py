"""Requests to a peer on AWS, signed as the role that it gives to its peers."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from fenceline.adapters.aws.peer_signing import RoleSigner
from fenceline.adapters.peer_http import HttpPeer
from fenceline.regions.peer import PeerProblem
from fenceline.settings import PeerSettings, Settings
from fenceline_http import wiring
from tests.support.carriers import InMemory

ROLE = "arn:aws:iam::1:role/fenceline-peer"


def role_until(end_s: float, key: str) -> Any:
    until = datetime.fromtimestamp(end_s, UTC)
    return {"Credentials": {"AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "token", "Expiration": until}}


def peer_signed_by(signer: RoleSigner, asked: list[httpx.Request]) -> HttpPeer:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        content = b'{"code": "UNKNOWN_TOPIC_OR_PARTITION"}'
        return httpx.Response(404, stream=httpx.ByteStream(content))

    return HttpPeer("eu-west-1", "https://b.example", sign=signer, carrier=InMemory(answer))


def test_the_role_is_taken_once_and_again_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    taken: list[float] = []

    def take() -> Any:
        taken.append(now[0])
        return role_until(now[0] + 3_600, f"KEY{len(taken)}")

    asked: list[httpx.Request] = []
    peer = peer_signed_by(RoleSigner(ROLE, "eu-west-1", take=take), asked)
    for passed_s in (0, 3_000, 301):
        now[0] += passed_s
        assert peer.topic("t") is None
    assert len(taken) == 2
    keys = [request.headers["authorization"].split("Credential=")[1].split("/") for request in asked]
    assert [key[0] for key in keys] == ["KEY1", "KEY1", "KEY2"]
    assert keys[0][2:4] == ["eu-west-1", "execute-api"]
    assert asked[0].headers["x-amz-security-token"] == "token"


def test_a_role_that_cannot_be_taken_is_the_peers_problem() -> None:
    def take() -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")

    asked: list[httpx.Request] = []
    with pytest.raises(PeerProblem, match=f"the peer's role cannot be taken: role={ROLE}"):
        peer_signed_by(RoleSigner(ROLE, "eu-west-1", take=take), asked).topic("t")
    assert asked == []


def test_the_role_is_taken_under_the_name_of_the_region_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By it the other region knows which topics it may show."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    role = "arn:aws:iam::123456789012:role/Fenceline-eu-west-1-peer"
    signer = wiring._signer(PeerSettings("eu-west-1", "https://b", role), "us-east-1")
    with mock_aws():
        principal = signer._ask_sts()["AssumedRoleUser"]["Arn"]  # type: ignore[union-attr]
    there = Settings(
        "d", service="Fenceline-eu-west-1", region="eu-west-1", peers=(PeerSettings("us-east-1", "https://a"),)
    )
    assert there.asking(principal) == ["us-east-1"]
