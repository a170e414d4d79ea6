"""Which regions are peers, and what -c peers may say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from infra.context import BadContext, Deployment, parse

THERE = {
    "url": "https://abc123.execute-api.eu-west-1.amazonaws.com",
    "queue": "https://sqs.eu-west-1.amazonaws.com/222222222222/Fenceline-eu-west-1-pull",
    "role": "arn:aws:iam::222222222222:role/Fenceline-eu-west-1-peer",
}


def parsed(peers: object, regions: str = "us-east-1") -> Deployment:
    return parse({"regions": regions, "peers": peers}, default_region="")


def test_one_region_alone_has_no_peers_and_several_have_each_other() -> None:
    assert not parse({"regions": "us-east-1"}, default_region="").has_peers
    assert not parsed("").has_peers
    assert not parsed("{}").has_peers
    assert parse({"regions": "us-east-1,eu-west-1"}, default_region="").has_peers


@pytest.mark.parametrize("peers", [json.dumps({"eu-west-1": THERE}), {"eu-west-1": THERE}], ids=["-c", "cdk.json"])
def test_a_region_of_another_account_is_a_peer_of_each_that_is_deployed(peers: object) -> None:
    found = parsed(peers, "us-east-1,us-west-2")
    assert found.has_peers
    [(name, other)] = found.peers.items()
    assert (name, other.account, other.stack) == ("eu-west-1", "222222222222", "Fenceline-eu-west-1")
    assert (other.url, other.queue, other.role) == (THERE["url"], THERE["queue"], THERE["role"])


def test_the_bucket_of_another_deployment_may_be_named() -> None:
    assert parsed(with_(bucket="their-objects")).peers["eu-west-1"].bucket == "their-objects"
    assert parsed(with_()).peers["eu-west-1"].bucket == ""


def with_(**changed: Any) -> Mapping[str, Any]:
    return {"eu-west-1": {**THERE, **changed}}


OTHER_STACK = "arn:aws:iam::222222222222:role/Another-eu-west-1-peer"


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ("eu-west-1=https://there", '-c peers takes JSON such as {"eu-west-1"'),
        ("[]", "-c peers takes JSON such as"),
        ("{", "-c peers takes JSON such as"),
        ({"eu-west-9": THERE}, "-c peers names eu-west-9, but there is no such region"),
        ({"us-east-1": THERE}, "-c peers names us-east-1, which is deployed here itself"),
        ({"eu-west-1": "https://there"}, "-c peers needs url, queue and role for eu-west-1"),
        ({"eu-west-1": {"url": THERE["url"], "role": THERE["role"]}}, "-c peers needs url, queue and role"),
        (with_(account="2"), "-c peers needs url, queue and role for eu-west-1, and nothing else"),
        (with_(bucket="https://evil"), "-c peers needs for eu-west-1 the name of a bucket: 'https://evil'"),
        (with_(bucket=""), "-c peers needs for eu-west-1 the name of a bucket: ''"),
        (with_(url="http://there"), "-c peers has no https URL for eu-west-1: url='http://there'"),
        (with_(url="https://there?x"), "-c peers has no https URL for eu-west-1"),
        (with_(url="https://there:99999"), "-c peers: the port of the peer eu-west-1 must be a number up to 65535"),
        (with_(url=None), "-c peers has no https URL for eu-west-1"),
        (
            with_(queue="arn:aws:sqs:eu-west-1:222222222222:pull"),
            "-c peers needs for eu-west-1 the URL of a queue there",
        ),
        (with_(queue=THERE["queue"].replace("eu-west-1.", "eu-west-2.")), "-c peers needs for eu-west-1 the URL of a"),
        (with_(queue=THERE["queue"].replace("pull", "news")), "-c peers needs for eu-west-1 the URL of a queue"),
        (with_(role="arn:aws:iam::222222222222:role/admin"), "-c peers needs for eu-west-1 the ARN of a role"),
        (with_(role=THERE["role"].replace("2" * 12, "3" * 12)), "a queue and a role of different stacks"),
        (with_(role=OTHER_STACK), "-c peers has for eu-west-1 a queue and a role of different stacks"),
    ],
    ids=str,
)
def test_a_wrong_peer_ends_the_synthesis_with_one_line(peers: object, expected: str) -> None:
    with pytest.raises(BadContext) as refused:
        parsed(peers if isinstance(peers, str) else json.dumps(peers))
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_regions_than_a_topic_may_have_are_refused() -> None:
    nine = "us-east-1,us-east-2,us-west-1,us-west-2,eu-west-1,eu-west-2,eu-west-3,eu-north-1,eu-central-1"
    with pytest.raises(BadContext, match="at most 8 regions"):
        parse({"regions": nine}, default_region="")
    eight = nine.rpartition(",")[0]
    assert len(parse({"regions": eight}, default_region="").regions) == 8
