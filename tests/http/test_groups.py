"""Contract, "Groups", through the handlers: answers, each error, and every form that is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.items import SqliteItemStore
from fenceline.format import keys
from fenceline.groups.group_item import CLASSIC, GroupItem, Subscriber
from fenceline.ports import Put
from fenceline.runtime import ThreadRuntime
from fenceline_http import wiring
from tests.support.http_events import Answer, call, event, send

pytestmark = pytest.mark.usefixtures("topic")

GROUP = "/v1/groups/billing"
USER, OTHER = "arn:aws:iam::1:user/a", "arn:aws:iam::1:user/b"
SEEN = "203.0.113.7"


class MovedRuntime(ThreadRuntime):
    """The real surroundings, whose wall clock a test moves."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def runtime() -> MovedRuntime:
    return MovedRuntime()


def member_path(member_id: str = "a", group: str = "billing") -> str:
    return f"/v1/groups/{group}/members/{member_id}"


def beat(epoch: int, member_id: str = "a", *, group: str = "billing", principal: str = "", **more: Any) -> Answer:
    sent = event("POST", member_path(member_id, group), body=json.dumps({"member_epoch": epoch, **more}))
    return send(signed(sent, principal))


def signed(sent: dict[str, Any], principal: str) -> dict[str, Any]:
    sent["requestContext"]["http"]["sourceIp"] = SEEN
    if principal:
        sent["requestContext"]["authorizer"] = {"iam": {"userArn": principal}}
    return sent


def join(member_id: str = "a", **more: Any) -> Any:
    given = {"topics": ["orders"], "initial_position": "earliest", **more}
    answer = beat(0, member_id, **given)
    assert answer.status == 200, answer
    return answer.json


def commit(offset: int = 0, **more: Any) -> Answer:
    offsets = [{"topic": "orders", "partition": 0, "offset": offset}]
    return call("POST", f"{GROUP}/offsets", value={"offsets": offsets, **more})


def append(*values: str) -> None:
    records = [{"value": value} for value in values]
    assert call("POST", "/v1/topics/orders/partitions/0/records", value={"records": records}).status == 200


def committed() -> list[int]:
    return [one["offset"] for one in call("GET", f"{GROUP}/offsets").json["offsets"]]


# Answers


def test_a_member_joins_is_shown_and_leaves(service: wiring.Service) -> None:
    topic_id = call("GET", "/v1/topics/orders").json["topic_id"]
    joined = join(client_name="web-3:4711", session_timeout_ms=6_000)
    held = [{"partition": number, "since": 1, "token": 1} for number in (0, 1)]
    place = {"topic": "orders", "topic_id": topic_id}
    assert joined == {
        "member_id": "a",
        "member_epoch": 1,
        "heartbeat_interval_ms": 2_000,
        "expires_at": joined["expires_at"],
        "partitions": [{**place, "partitions": held}],
        "is_settled": True,
    }
    entry = {
        "group": "billing",
        "type": "native",
        "state": "Stable",
        "epoch": 1,
        "assignor": "uniform",
        "topics": ["orders"],
        "member_count": 1,
    }
    listed = call("GET", "/v1/groups").json
    assert listed == {"groups": [{**entry, "updated_at": listed["groups"][0]["updated_at"]}], "has_more": False}
    shown = call("GET", GROUP).json
    assert shown == {
        **listed["groups"][0],
        "members": [
            {
                "member_id": "a",
                "instance_id": None,
                "client_name": "web-3:4711",
                "client_host": SEEN,
                "member_epoch": 1,
                "expires_at": joined["expires_at"],
                "session_timeout_ms": 6_000,
                "is_away": False,
                "partitions": joined["partitions"],
                "asked": [],
                "target": [{**place, "partitions": [0, 1]}],
            }
        ],
        "has_more": False,
    }
    for _ in range(2):
        answer = call("DELETE", member_path())
        assert (answer.status, answer.body) == (204, b"")
    assert call("GET", GROUP).json["state"] == "Empty"
    assert call("DELETE", GROUP).status == 204
    assert call("DELETE", GROUP).code == call("GET", GROUP).code == "GROUP_ID_NOT_FOUND"
    assert call("GET", "/v1/groups").json == {"groups": [], "has_more": False}


def test_a_member_of_an_event_without_an_address_has_no_host(service: wiring.Service) -> None:
    call("POST", member_path(), value={"member_epoch": 0, "topics": ["orders"]})
    assert call("GET", GROUP).json["members"][0]["client_host"] is None


def test_members_share_a_topic_and_hand_partitions_over(service: wiring.Service, runtime: MovedRuntime) -> None:
    join("a")
    runtime.ahead_ms = limits.ASSIGNMENT_MS  # the next target is due
    first = join("b")
    assert (first["partitions"], first["is_settled"], first["heartbeat_interval_ms"]) == ([], False, 500)
    asked = beat(1, "a").json
    kept = [one["partition"] for one in asked["partitions"][0]["partitions"]]
    assert (len(kept), asked["is_settled"]) == (1, False)
    owned = [{"topic": "orders", "partitions": kept}]
    assert beat(asked["member_epoch"], "a", owned=owned).json["is_settled"]
    taken = beat(first["member_epoch"], "b", owned=[]).json
    assert [one["partition"] for one in taken["partitions"][0]["partitions"]] == [1 - kept[0]]


def test_groups_are_listed_by_prefix_and_state_in_pages(service: wiring.Service) -> None:
    for name in ("a1", "a2", "b1"):
        assert beat(0, "m", group=name, topics=["orders"]).status == 200
    call("DELETE", member_path("m", "a2"))

    def names(**query: Any) -> tuple[list[str], bool]:
        page = call("GET", "/v1/groups", query).json
        return [one["group"] for one in page["groups"]], page["has_more"]

    assert names() == (["a1", "a2", "b1"], False)
    assert names(prefix="a") == (["a1", "a2"], False)
    assert names(state="Empty") == (["a2"], False)
    assert names(limit=2) == (["a1", "a2"], True)
    assert names(limit=2, start_after="a2") == (["b1"], False)
    assert names(prefix="x" * 5_000) == ([], False)
    assert names(start_after="x" * 5_000) == ([], False)


def test_members_come_in_pages(service: wiring.Service) -> None:
    for name in ("a", "b", "c"):
        join(name)
    page = call("GET", GROUP, {"limit": 2}).json
    assert ([one["member_id"] for one in page["members"]], page["has_more"], page["member_count"]) == (
        ["a", "b"],
        True,
        3,
    )
    page = call("GET", GROUP, {"start_after": "b"}).json
    assert ([one["member_id"] for one in page["members"]], page["has_more"]) == (["c"], False)


# Commits and reads of a member


def test_a_member_commits_acknowledges_seeks_and_reads_what_it_holds(service: wiring.Service) -> None:
    append("x", "y", "z")
    who = {"member_id": "a", "member_epoch": join()["member_epoch"]}
    subscription = "/v1/topics/orders/subscriptions/billing"
    page = call("GET", f"{subscription}/records", {"partition": 0, **who})
    assert [one["value"] for one in page.json["records"]] == ["x", "y", "z"]
    for path in ("records", "batches"):
        read = call("GET", f"/v1/topics/orders/partitions/0/{path}", {"offset": 0, "group": "billing", **who})
        assert read.status == 200
    assert commit(1, **who).status == 200
    acknowledged = call("POST", f"{subscription}/acknowledgements", value={"partition": 0, "cumulative": 1, **who})
    assert acknowledged.json == {"mark_delete_offset": 2}
    assert call("POST", f"{subscription}/seek", value={"partition": 0, "offset": 1, **who}).status == 200
    assert committed() == [1]


def test_a_poll_of_a_member_shows_what_it_holds_and_refuses_the_rest(
    service: wiring.Service, runtime: MovedRuntime
) -> None:
    append("x")
    join("a")
    runtime.ahead_ms = limits.ASSIGNMENT_MS
    join("b")
    asked = beat(1, "a").json
    assert [one["partition"] for one in asked["partitions"][0]["partitions"]] == [0]
    owned = [{"topic": "orders", "partitions": [0]}]
    who = {"member_id": "a", "member_epoch": beat(asked["member_epoch"], "a", owned=owned).json["member_epoch"]}
    for place in ({"offset": 0}, {"subscription": "billing"}):
        positions = [{"topic": "orders", "partition": number, **place} for number in (0, 1)]
        group = {} if "subscription" in place else {"group": "billing"}
        answer = call("POST", "/v1/poll", value={"positions": positions, **group, **who})
        held, other = answer.json["partitions"]
        assert [one["value"] for one in held["records"]] == ["x"]
        assert (other["partition"], other["error"]["code"]) == (1, "STALE_MEMBER_EPOCH")


def test_a_poll_of_a_member_names_its_group_or_subscriptions() -> None:
    positions = [
        {"topic": "orders", "partition": 0, "offset": 0},
        {"topic": "orders", "partition": 1, "subscription": "billing"},
    ]
    answer = call("POST", "/v1/poll", value={"positions": positions, "member_id": "a", "member_epoch": 1})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "member_id")


@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({"member_id": "a", "member_epoch": 0}, "STALE_MEMBER_EPOCH"),
        ({"member_id": "a", "member_epoch": 9}, "STALE_MEMBER_EPOCH"),
        ({"member_id": "nobody", "member_epoch": 1}, "UNKNOWN_MEMBER_ID"),
        ({}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_nobody_but_the_holder_commits(service: wiring.Service, who: dict[str, Any], code: str) -> None:
    append("x", "y", "z")
    join()
    subscription = "/v1/topics/orders/subscriptions/billing"
    pair = call("POST", "/v1/producer-ids", value={"transactional_id": "t"}).json
    call("POST", "/v1/transactions/t/groups", value={**pair, "group": "billing"})
    offsets = [{"topic": "orders", "partition": 0, "offset": 1}]
    refused = [
        commit(1, **who),
        call("POST", f"{subscription}/acknowledgements", value={"partition": 0, "cumulative": 1, **who}),
        call("POST", f"{subscription}/seek", value={"partition": 0, "offset": 1, **who}),
        call("POST", "/v1/transactions/t/offsets", value={**pair, "group": "billing", "offsets": offsets, **who}),
    ]
    if who:
        refused += [
            call("GET", f"{subscription}/records", who),
            call("GET", "/v1/topics/orders/partitions/0/records", {"offset": 0, "group": "billing", **who}),
        ]
    assert [one.code for one in refused] == [code] * len(refused)
    if code == "STALE_MEMBER_EPOCH":
        assert [(one.json["topic"], one.json["partition"]) for one in refused] == [("orders", 0)] * len(refused)
    assert committed() == []


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", f"{GROUP}/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}),
        ("POST", "/v1/topics/orders/subscriptions/billing/acknowledgements", {"partition": 0, "cumulative": 0}),
        ("POST", "/v1/topics/orders/subscriptions/billing/seek", {"partition": 0, "offset": 0}),
        (
            "POST",
            "/v1/transactions/t/offsets",
            {
                "producer_id": 0,
                "producer_epoch": 0,
                "group": "billing",
                "offsets": [{"topic": "orders", "partition": 0, "offset": 0}],
            },
        ),
        ("POST", "/v1/poll", {"positions": [{"topic": "orders", "partition": 0, "offset": 0}], "group": "billing"}),
        ("GET", "/v1/topics/orders/subscriptions/billing/records", {"partition": 0}),
        ("GET", "/v1/topics/orders/partitions/0/records", {"offset": 0, "group": "billing"}),
        ("GET", "/v1/topics/orders/partitions/0/batches", {"offset": 0, "group": "billing"}),
    ],
)
def test_a_member_and_its_epoch_go_together_and_never_with_a_session(method: str, path: str, right: Any) -> None:
    def field(**more: Any) -> str:
        given = {**right, **more}
        answer = call("GET", path, given) if method == "GET" else call("POST", path, value=given)
        assert answer.code == "INVALID_REQUEST", answer
        return str(answer.json["field"])

    assert field(member_id="a") == "member_epoch"
    assert field(member_epoch=1) == "member_id"
    assert field(member_id="a", member_epoch=-1) == "member_epoch"
    for wrong in ("", ".", "..", "a/b", "é", "x" * 129):
        assert field(member_id=wrong, member_epoch=1) == "member_id"
    if not path.endswith("/seek"):
        assert field(member_id="a", member_epoch=1, session_id="0" * 32) == "member_id"


def test_a_plain_read_of_a_member_names_its_group() -> None:
    answer = call("GET", "/v1/topics/orders/partitions/0/records", {"offset": 0, "member_id": "a", "member_epoch": 1})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "member_id")


# Errors: each row of the contract


def test_a_heartbeat_of_no_member_is_unknown_and_of_another_epoch_fenced(service: wiring.Service) -> None:
    assert beat(1).code == "UNKNOWN_MEMBER_ID"
    join()
    assert beat(1, "b").code == "UNKNOWN_MEMBER_ID"
    assert beat(7).code == "FENCED_MEMBER_EPOCH"
    assert beat(1).status == 200


def test_a_live_static_member_keeps_its_instance_id(service: wiring.Service) -> None:
    join("a", instance_id="worker-1")
    refused = beat(0, "b", topics=["orders"], instance_id="worker-1")
    assert (refused.status, refused.code, refused.json["instance_id"]) == (409, "UNRELEASED_INSTANCE_ID", "worker-1")
    assert call("DELETE", member_path(), {"is_coming_back": "true"}).status == 204
    assert call("GET", GROUP).json["members"][0]["is_away"] is True
    assert call("DELETE", GROUP).code == "NON_EMPTY_GROUP"
    assert beat(0, "b", topics=["orders"], instance_id="worker-1").status == 200


def test_an_assignor_is_known_and_the_groups(service: wiring.Service) -> None:
    answer = beat(0, topics=["orders"], assignor="nope")
    assert (answer.status, answer.code, answer.json["field"]) == (400, "UNSUPPORTED_ASSIGNOR", "assignor")
    join("a", assignor="uniform")
    answer = beat(0, "b", topics=["orders"], assignor="range")
    assert (answer.code, answer.json["field"]) == ("UNSUPPORTED_ASSIGNOR", "assignor")
    assert call("GET", GROUP).json["assignor"] == "uniform"


def test_a_group_with_members_is_not_deleted(service: wiring.Service, runtime: MovedRuntime) -> None:
    join(session_timeout_ms=6_000)
    answer = call("DELETE", GROUP)
    assert (answer.status, answer.code) == (409, "NON_EMPTY_GROUP")
    runtime.ahead_ms = 60_000  # its lease is over
    assert call("DELETE", GROUP).status == 204


def test_a_member_is_its_principals(service: wiring.Service) -> None:
    assert beat(0, principal=USER, topics=["orders"]).status == 200
    assert beat(1, principal=OTHER).code == "NOT_AUTHORIZED"
    assert send(signed(event("DELETE", member_path()), OTHER)).code == "NOT_AUTHORIZED"
    body = {
        "offsets": [{"topic": "orders", "partition": 0, "offset": 0}],
        "member_id": "a",
        "member_epoch": 1,
    }
    sent = event("POST", f"{GROUP}/offsets", body=json.dumps(body))
    assert send(signed(sent, OTHER)).code == "NOT_AUTHORIZED"
    assert beat(1, principal=USER).status == 200


def test_a_classic_group_takes_no_native_member(service: wiring.Service) -> None:
    members = {"x": Subscriber(None, None, None, ("orders",), (), None, 300_000)}
    item = GroupItem("billing", CLASSIC, epoch=3, assignor="", members=members, classic={"state": "Stable"})
    service.items.write([Put(keys.group_item("billing"), item.to_value(), 1, None)])
    answer = beat(0, topics=["orders"])
    assert (answer.status, answer.code) == (409, "INCONSISTENT_GROUP_PROTOCOL")


def test_a_full_group_takes_no_further_member(service: wiring.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 1)
    join("a")
    answer = beat(0, "b", topics=["orders"])
    assert (answer.status, answer.code) == (409, "GROUP_MAX_SIZE_REACHED")
    assert call("GET", GROUP).json["member_count"] == 1


# Forms


@pytest.fixture
def unwritten(topic: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is written by what is refused."""
    seen: list[Any] = []
    write = SqliteItemStore.write

    def noted(*args: Any) -> None:
        seen.append(args)
        write(*args)

    monkeypatch.setattr(SqliteItemStore, "write", noted)
    yield
    assert seen == []


LONG = "x" * 250
WRONG_BEATS: list[tuple[dict[str, Any], str]] = [
    ({"member_epoch": -1}, "member_epoch"),
    ({"member_epoch": -2}, "member_epoch"),
    ({"member_epoch": 0}, "topics"),
    ({"member_epoch": 0, "topics": []}, "topics"),
    ({"member_epoch": 0, "topic_prefixes": []}, "topic_prefixes"),
    ({"member_epoch": 0, "topics": [], "topic_prefixes": []}, "topics"),
    ({"member_epoch": 1, "topics": []}, "topics"),
    ({"member_epoch": 0, "topics": ["orders"] * 101}, "topics"),
    ({"member_epoch": 0, "topics": ["orders"] * 51, "topic_prefixes": ["o"] * 50}, "topics"),
    ({"member_epoch": 0, "topic_prefixes": ["o"] * 101}, "topic_prefixes"),
    *(({"member_epoch": 0, "topics": ["ok", name]}, "topics[1]") for name in ("", ".", "..", "a/b", "é", "a b", LONG)),
    *(({"member_epoch": 0, "topic_prefixes": [name]}, "topic_prefixes[0]") for name in ("a/", "é", "a*", LONG)),
    *(({"instance_id": text}, "instance_id") for text in ("", "a\n", "\u202e", "é" * 129, "x" * 257)),
    *(({"client_name": text}, "client_name") for text in ("", "a\x1b", "x" * 257)),
    *(({"session_timeout_ms": ms}, "session_timeout_ms") for ms in (5_999, 1_800_001, 0, -1, "6000", 6000.0)),
    *(({"rebalance_timeout_ms": ms}, "rebalance_timeout_ms") for ms in (999, 3_600_001, True)),
    ({"initial_position": "now"}, "initial_position"),
    ({"assignor": 1}, "assignor"),
    ({"owned": [{"topic": "orders"}]}, "owned[0].partitions"),
    ({"owned": [{"topic": "orders", "partitions": [-1]}]}, "owned[0].partitions[0]"),
    ({"owned": [{"topic": "a/b", "partitions": [0]}]}, "owned[0].topic"),
    ({"owned": [{"topic": "orders", "partitions": [0, 1, 0]}]}, "owned[0].partitions[2]"),
    (
        {"owned": [{"topic": "orders", "partitions": [0]}, {"topic": "orders", "partitions": [0]}]},
        "owned[1].partitions[0]",
    ),
    ({"nope": 1}, "nope"),
    ({"client_host": "x"}, "client_host"),
]


@pytest.mark.usefixtures("unwritten")
@pytest.mark.parametrize(("wrong", "field"), WRONG_BEATS)
def test_a_heartbeat_of_a_wrong_form_is_refused_with_its_field(wrong: dict[str, Any], field: str) -> None:
    answer = call("POST", member_path(), value={"member_epoch": 1, **wrong})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)


@pytest.mark.usefixtures("unwritten")
@pytest.mark.parametrize("body", ["", "{", "[]", "null", "1", '{"member_epoch": 0, "topics": ["ord', '{"a":' * 5_000])
def test_a_body_that_is_cut_or_no_object_is_refused(body: str) -> None:
    assert call("POST", member_path(), body=body).code in ("INVALID_REQUEST", "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.usefixtures("unwritten")
@pytest.mark.parametrize("member_id", ["x" * 129, "é", "a b", "..", "a\x00"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_an_id_that_no_member_has_is_refused(method: str, member_id: str) -> None:
    value = {"member_epoch": 0, "topics": ["orders"]} if method == "POST" else None
    answer = call(method, member_path(member_id), value=value)
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "member_id")


@pytest.mark.usefixtures("unwritten")
@pytest.mark.parametrize("group", ["x" * 250, "é", "a b", ".."])
def test_a_name_that_no_group_has_is_refused_or_not_found(group: str) -> None:
    for method in ("POST", "DELETE"):
        value = {"member_epoch": 0, "topics": ["orders"]} if method == "POST" else None
        answer = call(method, member_path("a", group), value=value)
        assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "group")
    for method in ("GET", "DELETE"):
        assert call(method, f"/v1/groups/{group}").code == "GROUP_ID_NOT_FOUND"


@pytest.mark.usefixtures("unwritten")
@pytest.mark.parametrize(
    ("method", "path", "query", "field"),
    [
        ("GET", "/v1/groups", {"state": "nope"}, "state"),
        ("GET", "/v1/groups", {"state": ""}, "state"),
        ("GET", "/v1/groups", {"limit": 0}, "limit"),
        ("GET", "/v1/groups", {"nope": 1}, "nope"),
        ("GET", GROUP, {"limit": "x"}, "limit"),
        ("GET", GROUP, {"prefix": "x"}, "prefix"),
        ("DELETE", GROUP, {"force": "true"}, "force"),
        ("DELETE", member_path(), {"is_coming_back": "yes"}, "is_coming_back"),
    ],
)
def test_a_query_of_a_wrong_form_is_refused(method: str, path: str, query: dict[str, Any], field: str) -> None:
    answer = call(method, path, query)
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)


def test_a_report_of_what_was_never_given_is_refused_and_nothing_changes(service: wiring.Service) -> None:
    join()
    before = call("GET", GROUP).json
    for owned in (
        [{"topic": "orders", "partitions": [7]}],
        [{"topic": "nope", "partitions": [0]}],
        [{"topic": "orders", "topic_id": "0" * 32, "partitions": [0]}],
    ):
        answer = beat(1, owned=owned)
        assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "owned[0]")
    assert call("GET", GROUP).json == before


def test_leaving_a_group_or_a_member_that_is_not_there_does_no_harm() -> None:
    assert call("DELETE", member_path()).status == 204
    join()
    assert call("DELETE", member_path("b")).status == 204
    assert call("GET", GROUP).json["member_count"] == 1


def test_a_prefix_may_be_any_beginning_of_a_name(service: wiring.Service) -> None:
    for at, prefix in enumerate(("", "ord", ".", "..", "x" * 249)):
        assert beat(0, f"m{at}", group=f"g{at}", topic_prefixes=[prefix]).status == 200
    assert call("GET", "/v1/groups/g1").json["topics"] == ["orders"]
