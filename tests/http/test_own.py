"""Contract, "Ownership", and reading as a group, through the handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.ports import Put
from fenceline_http import wiring
from tests.support.http_events import BATCH_TYPE, Answer, call, event, send

pytestmark = pytest.mark.usefixtures("topic")

RECORDS = "/v1/topics/orders/partitions/0/records"
NOBODY = {"session_id": None, "client_name": None, "since": None, "until": None}


def session() -> str:
    answer = call("POST", "/v1/sessions", value={})
    assert answer.status == 201
    return str(answer.json["session_id"])


def own(session_id: str, *resources: Any, **more: Any) -> Answer:
    asked = [{"resource": one} if isinstance(one, str) else one for one in resources]
    return call("POST", "/v1/own", value={"session_id": session_id, "resources": asked, **more})


def read(**query: Any) -> Answer:
    return call("GET", RECORDS, {"offset": 0, **query})


def test_resources_are_owned_shown_and_released() -> None:
    a = session()
    owned = own(a, {"resource": "orders/0", "generation": 3}, "job", group="g")
    first = {"resource": "orders/0", "generation": 3, "fencing_token": 0}
    assert (owned.status, owned.json) == (
        200,
        {"group": "g", "resources": [first, {"resource": "job", "generation": 1, "fencing_token": 0}]},
    )
    assert own(a, {"resource": "orders/0", "generation": 3}, "job", group="g").json == owned.json
    shown = call("GET", "/v1/own", {"resource": "orders/0", "group": "g"})
    until = call("GET", f"/v1/sessions/{a}").json["expires_at"]
    owner = {"session_id": a, "client_name": None, "since": shown.json["since"], "until": until}
    assert (shown.status, shown.json) == (200, {**first, "group": "g", **owner})
    held = call("GET", f"/v1/sessions/{a}").json["holds"]
    assert sorted(hold["resource"] for hold in held) == ["job", "orders/0"]
    assert {hold["group"] for hold in held} == {"g"}

    gone = call("POST", "/v1/own/release", value={"session_id": a, "group": "g", "resources": ["job", "never"]})
    assert (gone.status, gone.body) == (204, b"")
    shown = call("GET", "/v1/own", {"resource": "job", "group": "g"}).json
    assert shown == {"resource": "job", "group": "g", "generation": 1, "fencing_token": 0, **NOBODY}
    assert [hold["resource"] for hold in call("GET", f"/v1/sessions/{a}").json["holds"]] == ["orders/0"]


def test_a_never_owned_resource_is_shown_without_an_owner() -> None:
    shown = call("GET", "/v1/own", {"resource": "é/ 1"})
    never = {"resource": "é/ 1", "group": None, "generation": 0, "fencing_token": -1, **NOBODY}
    assert (shown.status, shown.json) == (200, never)


def test_leaving_the_group_out_and_null_are_no_group() -> None:
    a = session()
    assert own(a, {"resource": "x", "generation": None}, group=None).json["group"] is None
    assert call("GET", "/v1/own", {"resource": "x"}).json["session_id"] == a
    assert call("GET", "/v1/own", {"resource": "x", "group": "null"}).json["session_id"] is None


def test_refusals_name_the_resource_and_the_stored_generation() -> None:
    a, b = session(), session()
    own(a, {"resource": "x", "generation": 5})
    stale = own(b, "y", {"resource": "x", "generation": 4})
    assert (stale.code, stale.json["resource"], stale.json["generation"]) == ("STALE_GENERATION", "x", 5)
    owned = own(b, "y", "x")
    assert (owned.code, owned.json["resource"], owned.json["generation"]) == ("RESOURCE_OWNED", "x", 5)
    assert call("GET", "/v1/own", {"resource": "y"}).json["session_id"] is None
    assert own(b, {"resource": "x", "generation": 5}).json["resources"][0]["fencing_token"] == 1
    assert own(a, "z").code == "SESSION_SEVERED"
    assert call("GET", f"/v1/sessions/{a}").json["state"] == "severed"
    assert own("0" * 32, "z").code == own("nobody", "z").code == "UNKNOWN_SESSION"
    call("DELETE", f"/v1/sessions/{b}")
    assert own(b, "z").code == "SESSION_EXPIRED"


def test_the_writer_s_token_is_its_topic_epoch() -> None:
    a, b = session(), session()
    body = {"records": [{"value": "1"}]}
    for taker, generation, token in ((a, 1, 0), (b, 2, 1)):
        owned = own(taker, {"resource": "orders/0", "generation": generation}).json["resources"][0]
        assert owned["fencing_token"] == token
        answer = call("POST", RECORDS, value={**body, "session": {"session_id": taker, "topic_epoch": token}})
        assert (answer.status, answer.json["topic_epoch"]) == (200, token)
    assert (
        call("POST", RECORDS, value={**body, "session": {"session_id": a, "topic_epoch": 0}}).code == "SESSION_SEVERED"
    )
    fenced = call("POST", RECORDS, value={**body, "session": {"session_id": b, "topic_epoch": 0}})
    assert (fenced.code, fenced.json["topic_epoch"]) == ("PRODUCER_FENCED", 1)
    assert call("POST", RECORDS, value=body).code == "PRODUCER_BUSY"
    assert call("GET", "/v1/topics/orders/partitions/0/offsets").json["access_mode"] == "Exclusive"


@pytest.mark.parametrize("accept", ["application/json", BATCH_TYPE])
def test_a_group_s_reading_is_its_owner_s(accept: str) -> None:
    def read(**query: Any) -> Answer:
        return call("GET", RECORDS, {"offset": 0, **query}, headers={"accept": accept})

    a, b = session(), session()
    call("POST", RECORDS, value={"records": [{"value": "1"}]})
    assert read(group="g").status == 200
    own(a, "orders/0", group="g")
    assert read(group="g", session_id=a).status == 200
    for query in ({"group": "g"}, {"group": "g", "session_id": b}):
        refused = read(**query)
        assert (refused.code, refused.json["resource"]) == ("OWNER_FENCED", "orders/0")
    assert read(group="h").status == read(session_id=b).status == read().status == 200
    assert read(group="g", session_id="0" * 32).code == read(session_id="x").code == "UNKNOWN_SESSION"


def test_a_session_is_its_principal_s() -> None:
    def sent_by(user: str, method: str, path: str, value: Any = None, query: str = "") -> Answer:
        made = event(method, path, query, body=None if value is None else json.dumps(value))
        made["requestContext"]["authorizer"] = {"iam": {"userArn": user}}
        return send(made)

    a = sent_by("arn:a", "POST", "/v1/sessions", {}).json["session_id"]
    asked = {"session_id": a, "resources": [{"resource": "orders/0"}], "group": "g"}
    assert sent_by("arn:a", "POST", "/v1/own", asked).status == 200
    assert sent_by("arn:b", "POST", "/v1/own", asked).code == "NOT_AUTHORIZED"
    released = {"session_id": a, "resources": ["orders/0"], "group": "g"}
    assert sent_by("arn:b", "POST", "/v1/own/release", released).code == "NOT_AUTHORIZED"
    reading = f"offset=0&group=g&session_id={a}"
    assert sent_by("arn:a", "GET", RECORDS, query=reading).status == 200
    assert sent_by("arn:b", "GET", RECORDS, query=reading).code == "NOT_AUTHORIZED"
    look = "resource=orders/0&group=g"
    assert sent_by("arn:a", "GET", "/v1/own", query=look).json["session_id"] == a
    assert sent_by("arn:b", "GET", "/v1/own", query=look).json["session_id"] == a[:8]


S, R = "s", [{"resource": "x"}]
LONG = "é" * 513


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "session_id"),
        ({"session_id": S}, "resources"),
        ({"session_id": 1, "resources": R}, "session_id"),
        ({"session_id": S, "resources": []}, "resources"),
        ({"session_id": S, "resources": {}}, "resources"),
        ({"session_id": S, "resources": ["x"]}, "resources[0]"),
        ({"session_id": S, "resources": [{}]}, "resources[0].resource"),
        ({"session_id": S, "resources": [{"resource": 1}]}, "resources[0].resource"),
        ({"session_id": S, "resources": [{"resource": ""}]}, "resources[0].resource"),
        ({"session_id": S, "resources": [{"resource": LONG}]}, "resources[0].resource"),
        ({"session_id": S, "resources": [*R, *R]}, "resources[1].resource"),
        ({"session_id": S, "resources": [{"resource": str(n)} for n in range(33)]}, "resources"),
        ({"session_id": S, "resources": [{"resource": "x", "generation": -1}]}, "resources[0].generation"),
        ({"session_id": S, "resources": [{"resource": "x", "generation": 2**53}]}, "resources[0].generation"),
        ({"session_id": S, "resources": [{"resource": "x", "generation": 2**64}]}, "resources[0].generation"),
        ({"session_id": S, "resources": [{"resource": "x", "generation": 10**30}]}, "resources[0].generation"),
        ({"session_id": S, "resources": [{"resource": "x", "generation": 1.0}]}, "resources[0].generation"),
        ({"session_id": S, "resources": [{"resource": "x", "generation": True}]}, "resources[0].generation"),
        ({"session_id": S, "resources": [{"resource": "x", "token": 1}]}, "resources[0].token"),
        ({"session_id": S, "resources": R, "group": ""}, "group"),
        ({"session_id": S, "resources": R, "group": "x" * 250}, "group"),
        ({"session_id": S, "resources": R, "group": 1}, "group"),
        ({"session_id": S, "resources": R, "lease_ms": 1}, "lease_ms"),
    ],
)
def test_another_form_is_refused_with_its_field(value: Any, field: str) -> None:
    refused = call("POST", "/v1/own", value=value)
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", field)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"resources": ["x"]}, "session_id"),
        ({"session_id": S, "resources": [{"resource": "x"}]}, "resources[0]"),
        ({"session_id": S, "resources": ["x", ""]}, "resources[1]"),
        ({"session_id": S, "resources": ["x", "x"]}, "resources[1]"),
        ({"session_id": S, "resources": []}, "resources"),
        ({"session_id": S, "resources": ["x"], "group": ""}, "group"),
    ],
)
def test_a_release_of_another_form_is_refused_with_its_field(value: Any, field: str) -> None:
    refused = call("POST", "/v1/own/release", value=value)
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", field)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "resource"),
        ("group=g", "resource"),
        ("resource=", "resource"),
        ({"resource": LONG}, "resource"),
        ({"resource": "x", "group": ""}, "group"),
        ({"resource": "x", "session_id": "s"}, "session_id"),
    ],
)
def test_a_look_of_another_form_is_refused_with_its_parameter(query: Any, field: str) -> None:
    refused = call("GET", "/v1/own", query)
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", field)


def test_the_largest_form_is_taken() -> None:
    names = [f"{n:02}" + "x" * (limits.RESOURCE_BYTES_MAX - 2) for n in range(limits.RESOURCES_PER_OWN_MAX)]
    asked = [{"resource": name, "generation": limits.GENERATION_MAX} for name in names]
    owned = own(session(), *asked, group="g" * limits.GROUP_BYTES_MAX)
    assert owned.status == 200
    assert {one["generation"] for one in owned.json["resources"]} == {limits.GENERATION_MAX}


def test_an_owner_is_shown_by_its_name_since_and_until() -> None:
    first, second = (call("POST", "/v1/sessions", value={"client_name": name}).json for name in ("web-3:4711", "b:2"))
    own(first["session_id"], "job")
    shown = call("GET", "/v1/own", {"resource": "job"}).json
    assert (shown["client_name"], shown["until"]) == ("web-3:4711", first["expires_at"])
    own(first["session_id"], "job")  # again, which changes nothing
    assert call("GET", "/v1/own", {"resource": "job"}).json["since"] == shown["since"] >= first["expires_at"] - 30_000
    refused = own(second["session_id"], "job")
    assert refused.code == "RESOURCE_OWNED"
    assert refused.json["detail"].endswith(f"session_id={first['session_id'][:8]} client_name=web-3:4711")
    own(second["session_id"], {"resource": "job", "generation": 9})
    taken = call("GET", "/v1/own", {"resource": "job"}).json
    assert (taken["client_name"], taken["until"]) == ("b:2", second["expires_at"])
    assert taken["since"] >= shown["since"]


def test_the_owner_of_a_partition_is_shown_by_its_name_and_since_it_was_granted_it() -> None:
    a = call("POST", "/v1/sessions", value={"client_name": "web-3:4711"}).json
    own(a["session_id"], "orders/0")
    shown = call("GET", "/v1/own", {"resource": "orders/0"}).json
    assert (shown["client_name"], shown["until"]) == ("web-3:4711", a["expires_at"])
    assert shown["since"] >= a["expires_at"] - 30_000


def test_an_older_ownership_without_a_since_is_shown_without(service: wiring.Service) -> None:
    a = session()
    own(a, "job")
    key = keys.lock_item(None, "job")
    item = service.items.get([key])[key]
    older = {name: member for name, member in item.value.items() if name != "since"}
    service.items.write([Put(key, older, item.version + 1, item.version)])
    assert call("GET", "/v1/own", {"resource": "job"}).json.items() >= {"session_id": a, "since": None}.items()
    assert own(a, "job").status == 200


# The list of locks


def test_locks_are_listed_as_their_owners_are_shown() -> None:
    assert call("GET", "/v1/locks").json == {"locks": [], "has_more": False}
    a, b = session(), session()
    assert own(a, {"resource": "nightly", "generation": 3}, "orders/0", "hourly").status == 200
    assert own(b, "nightly", "orders/1", group="g").status == 200
    listed = call("GET", "/v1/locks").json
    assert listed == {
        "locks": [call("GET", "/v1/own", {"resource": one}).json for one in ("hourly", "nightly")],
        "has_more": False,
    }
    (ours,) = call("GET", "/v1/locks", {"group": "g"}).json["locks"]
    assert ours == call("GET", "/v1/own", {"resource": "nightly", "group": "g"}).json
    assert (ours["group"], ours["session_id"], ours["generation"]) == ("g", b, 1)
    assert call("GET", "/v1/locks", {"group": "none"}).json["locks"] == []

    page = call("GET", "/v1/locks", {"limit": 1}).json
    assert ([one["resource"] for one in page["locks"]], page["has_more"]) == (["hourly"], True)
    page = call("GET", "/v1/locks", {"limit": 1, "start_after": "hourly"}).json
    assert ([one["resource"] for one in page["locks"]], page["has_more"]) == (["nightly"], False)
    assert call("DELETE", f"/v1/sessions/{a}").status == 204
    assert call("GET", "/v1/locks").json["locks"] == []


def test_a_page_of_long_names_is_cut_and_goes_on() -> None:
    """A name of control characters is six times as long in JSON."""
    a = session()
    names = [f"{n:03d}" + "\x01" * 1_021 for n in range(24)]
    group = "\x02" * limits.GROUP_BYTES_MAX
    for at in range(0, len(names), 8):
        assert own(a, *names[at : at + 8], group=group).status == 200
    found: list[str] = []
    after = ""
    while True:
        page = call("GET", "/v1/locks", {"group": group, "start_after": after, "limit": 5}).json
        found += [one["resource"] for one in page["locks"]]
        if not page["has_more"]:
            break
        after = page["locks"][-1]["resource"]
    assert found == names


@pytest.mark.parametrize(
    ("query", "field"),
    [({"group": ""}, "group"), ({"group": "g" * 250}, "group"), ({"start_after": "x" * 1_025}, "start_after")],
)
def test_a_list_of_locks_refuses_names_that_nothing_can_have(query: dict[str, str], field: str) -> None:
    answer = call("GET", "/v1/locks", query)
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)
