"""Contract, "Subscriptions (consumer groups)": the region in which a subscription should be read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_events import Answer, call
from tests.support.peers import peers_named

pytestmark = [
    pytest.mark.usefixtures("service"),
    pytest.mark.parametrize("peers", [peers_named("b", "c")], ids=["peers"]),
]
TOPIC = "/v1/topics/orders"
SUBSCRIPTION = f"{TOPIC}/subscriptions/s"


@pytest.fixture(autouse=True)
def _topic(service: Any) -> None:
    assert call("POST", "/v1/topics", value={"name": "orders", "regions": ["local", "b"]}).status == 201
    assert call("POST", f"{TOPIC}/partitions/0/records", value={"records": [{"value": "1"}]}).status == 200


def put(**body: Any) -> Answer:
    return call("PUT", SUBSCRIPTION, value=body)


def page() -> Any:
    return call("GET", f"{SUBSCRIPTION}/records").json


def test_the_region_is_set_shown_and_ended() -> None:
    assert "active_region" not in put(initial_position="earliest").json
    assert "active_region" not in page()
    set_ = put(active_region="b")
    assert (set_.status, set_.json["active_region"], page()["active_region"]) == (200, "b", "b")
    assert len(page()["records"]) == 1  # advice, and no check
    assert put(replicate_subscription_state=True).json["active_region"] == "b"
    assert call("GET", SUBSCRIPTION).json["active_region"] == "b"
    assert call("GET", f"{TOPIC}/subscriptions").json["subscriptions"][0]["active_region"] == "b"
    assert put(active_region="local").json["active_region"] == "local"
    assert "active_region" not in page()  # this one
    ended = put(active_region=None)
    assert (ended.json["active_region"], "active_region" in page()) == (None, False)


def test_a_subscription_can_be_created_with_one() -> None:
    created = put(active_region="b", replicate_subscription_state=True)
    assert (created.status, created.json["active_region"]) == (201, "b")


@pytest.mark.parametrize("region", ["c", "", "B", 1, ["b"]])
def test_it_is_a_region_of_the_topic(region: Any) -> None:
    refused = put(active_region=region)
    assert (refused.status, refused.code, refused.json["field"]) == (400, "INVALID_REQUEST", "active_region")
    assert call("GET", SUBSCRIPTION).code == "UNKNOWN_SUBSCRIPTION"
