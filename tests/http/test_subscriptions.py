"""Contract, "Subscriptions (consumer groups)", through the handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fenceline import limits
from tests.support.http_events import Answer, call, event, send

pytestmark = pytest.mark.usefixtures("topic")

SUBSCRIPTION = "/v1/topics/orders/subscriptions/s"
OFFSETS = "/v1/groups/g/offsets"


def produce(count: int = 5, partition: int = 0, topic: str = "orders") -> None:
    records = [{"value": str(n), "timestamp": 1_700_000_000_000 + n} for n in range(count)]
    assert call("POST", f"/v1/topics/{topic}/partitions/{partition}/records", value={"records": records}).status == 200


def subscribe(path: str = SUBSCRIPTION, **body: Any) -> Answer:
    return call("PUT", path, value=body)


def acknowledge(**body: Any) -> Answer:
    return call("POST", f"{SUBSCRIPTION}/acknowledgements", value={"partition": 0, **body})


def read(**query: Any) -> Answer:
    return call("GET", f"{SUBSCRIPTION}/records", query)


def offsets(answer: Answer) -> list[int]:
    return [record["offset"] for record in answer.json["records"]]


def cursor(partition: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = call("GET", SUBSCRIPTION).json["partitions"][partition]
    assert (found.pop("oldest_unread_at") is None) == (found["backlog"] == 0)
    return found


def commit(*entries: dict[str, Any], **more: Any) -> Answer:
    return call(
        "POST", OFFSETS, value={"offsets": [{"topic": "orders", "partition": 0, **one} for one in entries], **more}
    )


def committed(query: str = "") -> Any:
    return call("GET", OFFSETS, query).json["offsets"]


# Subscriptions


def test_a_subscription_is_created_shown_changed_listed_and_deleted() -> None:
    produce(3)
    created = subscribe()
    assert created.status == 201
    at_end = {"mark_delete_offset": 3, "individually_acknowledged": [], "backlog": 0, "oldest_unread_at": None}
    assert created.json == {
        "name": "s",
        "topic": "orders",
        "replicate_subscription_state": False,
        "partitions": [{"partition": 0, **at_end}, {"partition": 1, **at_end, "mark_delete_offset": 0}],
        "has_more": False,
    }
    assert call("GET", SUBSCRIPTION).json == created.json

    again = subscribe(initial_position="earliest")
    assert (again.status, again.json) == (200, created.json)
    assert call("PUT", SUBSCRIPTION).status == 200
    changed = subscribe(replicate_subscription_state=True)
    assert (changed.status, changed.json["replicate_subscription_state"]) == (200, True)
    assert subscribe(replicate_subscription_state=None, initial_position=None).json == changed.json

    subscribe("/v1/topics/orders/subscriptions/a", initial_position="earliest")
    listed = call("GET", "/v1/topics/orders/subscriptions")
    assert listed.json == {
        "subscriptions": [
            {"name": "a", "topic": "orders", "replicate_subscription_state": False},
            {"name": "s", "topic": "orders", "replicate_subscription_state": True},
        ],
        "has_more": False,
    }
    deleted = call("DELETE", SUBSCRIPTION)
    assert (deleted.status, deleted.body) == (204, b"")
    assert call("GET", SUBSCRIPTION).code == call("DELETE", SUBSCRIPTION).code == "UNKNOWN_SUBSCRIPTION"


def test_partitions_come_in_pages() -> None:
    call("POST", "/v1/topics", value={"name": "wide", "partitions": 103})
    path = "/v1/topics/wide/subscriptions/s"
    assert [len(subscribe(path).json["partitions"]), len(call("GET", path).json["partitions"])] == [100, 100]
    page = call("GET", path, "start_partition=100").json
    assert ([one["partition"] for one in page["partitions"]], page["has_more"]) == ([100, 101, 102], False)
    page = call("GET", path, "start_partition=1&limit=2").json
    assert ([one["partition"] for one in page["partitions"]], page["has_more"]) == ([1, 2], True)
    assert call("GET", path, "start_partition=103").json["partitions"] == []


def test_a_page_of_partitions_passes_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe()
    monkeypatch.setattr("fenceline_http.responses.LIST_BYTES_MAX", 20)
    page = call("GET", SUBSCRIPTION).json
    assert ([one["partition"] for one in page["partitions"]], page["has_more"]) == ([0], True)
    page = call("GET", SUBSCRIPTION, "start_partition=1").json
    assert ([one["partition"] for one in page["partitions"]], page["has_more"]) == ([1], False)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/topics/nobody/subscriptions/s"),
        ("GET", "/v1/topics/nobody/subscriptions"),
        ("GET", "/v1/topics/nobody/subscriptions/s"),
        ("DELETE", "/v1/topics/no!body/subscriptions/s"),
        ("GET", "/v1/topics/nobody/subscriptions/s/records"),
    ],
)
def test_an_unknown_topic_has_none(method: str, path: str) -> None:
    assert call(method, path).code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_name_is_1_to_249_of_some_characters() -> None:
    for name in ("a" * 249, "A.b_c-9", "...", ".a"):
        assert subscribe(f"/v1/topics/orders/subscriptions/{name}").status == 201
        assert call("POST", f"/v1/groups/{name}/offsets", value={"offsets": []}).json["field"] == "offsets"
    for name in ("a" * 250, "a b", "ü", "a:b", ".", ".."):
        path = f"/v1/topics/orders/subscriptions/{name}"
        assert (subscribe(path).code, subscribe(path).json["field"]) == ("INVALID_REQUEST", "name")
        for method in ("GET", "DELETE"):
            assert call(method, path).code == "UNKNOWN_SUBSCRIPTION"
        for method, body in (("GET", None), ("POST", '{"offsets": []}')):
            answer = call(method, f"/v1/groups/{name}/offsets", body=body)
            assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "group")


# Acknowledgements, records, seek


def test_records_are_read_and_acknowledged_one_by_one_and_up_to_an_offset() -> None:
    produce(6)
    subscribe(initial_position="earliest")
    page = read(partition=0)
    assert (
        page.json.items()
        >= {
            "encoding": "utf8",
            "position": 6,
            "log_start_offset": 0,
            "next_offset": 6,
            "last_stable_offset": 6,
        }.items()
    )
    assert offsets(page) == offsets(read()) == [0, 1, 2, 3, 4, 5]
    answer = acknowledge(individual=[1, 3, 3])
    assert (answer.status, answer.json) == (200, {"mark_delete_offset": 0})
    assert cursor() == {
        "partition": 0,
        "mark_delete_offset": 0,
        "individually_acknowledged": [[1, 2], [3, 4]],
        "backlog": 4,
    }
    assert offsets(read()) == [0, 2, 4, 5]
    assert offsets(read(offset=2, max_records=2)) == [2, 4]
    assert acknowledge(cumulative=2).json == {"mark_delete_offset": 4}
    assert acknowledge(cumulative=0).json == {"mark_delete_offset": 4}
    assert offsets(read(encoding="base64", isolation="read_committed", max_bytes=1)) == [4]
    assert read(encoding="base64").json["encoding"] == "base64"
    assert read(offset=3).code == read(offset=7).code == "OFFSET_OUT_OF_RANGE"
    page = read(offset=6)
    assert (page.json["records"], page.json["position"]) == ([], 6)
    assert read(partition=2).code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert offsets(read(partition=1)) == []


def test_an_offset_out_of_range_is_answered_with_the_bounds_and_nothing_is_applied() -> None:
    produce(3)
    subscribe(initial_position="earliest")
    for body in ({"cumulative": 3}, {"individual": [0, 3]}):
        answer = acknowledge(**body)
        assert answer.code == "OFFSET_OUT_OF_RANGE"
        assert (answer.json["log_start_offset"], answer.json["next_offset"]) == (0, 3)
    assert cursor()["backlog"] == 3


def test_seek_by_offset_and_by_time() -> None:
    produce(4)
    subscribe()

    def seek(**body: Any) -> Answer:
        return call("POST", f"{SUBSCRIPTION}/seek", value={"partition": 0, **body})

    assert seek(offset=1).json == {"mark_delete_offset": 1}
    assert seek(timestamp=1_700_000_000_002).json == {"mark_delete_offset": 2}
    assert seek(timestamp=1_800_000_000_000).json == {"mark_delete_offset": 4}
    assert seek(offset=5).code == "OFFSET_OUT_OF_RANGE"
    assert cursor()["mark_delete_offset"] == 4
    assert offsets(read()) == []
    for body in ({}, {"offset": 1, "timestamp": 1}, {"offset": -1}, {"timestamp": None}, {"offset": 1, "x": 1}):
        assert seek(**body).code == "INVALID_REQUEST"
    assert call("POST", f"{SUBSCRIPTION}/seek", value={"offset": 1}).json["field"] == "partition"
    assert (
        call("POST", f"{SUBSCRIPTION}/seek", value={"partition": 9, "offset": 0}).code == "UNKNOWN_TOPIC_OR_PARTITION"
    )


def test_a_preview_says_what_the_seek_then_does() -> None:
    produce(5)
    subscribe(initial_position="earliest")
    acknowledge(individual=[0, 3])

    def preview(**query: Any) -> Answer:
        return call("GET", f"{SUBSCRIPTION}/seek", {"partition": 0, **query})

    names = ("partition", "mark_delete_offset", "new_mark_delete_offset", "skipped", "repeated")
    for asked, expected in (
        ({"offset": 5}, (0, 1, 5, 3, 0)),
        ({"offset": 2}, (0, 1, 2, 1, 1)),  # 3 comes again
        ({"timestamp": 1_700_000_000_000}, (0, 1, 0, 0, 2)),
        ({"timestamp": 1_800_000_000_000}, (0, 1, 5, 3, 0)),
    ):
        assert preview(**asked).json == dict(zip(names, expected, strict=True))
    assert cursor()["mark_delete_offset"] == 1
    done = call("POST", f"{SUBSCRIPTION}/seek", value={"partition": 0, "offset": 2}).json
    assert done == {"mark_delete_offset": 2}
    assert cursor()["backlog"] == 3


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ({"offset": 0}, 400, "INVALID_REQUEST", "partition"),
        ({"partition": 0}, 400, "INVALID_REQUEST", "offset"),
        ({"partition": 0, "offset": 0, "timestamp": 0}, 400, "INVALID_REQUEST", "offset"),
        ({"partition": 0, "offset": -1}, 400, "INVALID_REQUEST", "offset"),
        ({"partition": 0, "offset": "earliest"}, 400, "INVALID_REQUEST", "offset"),
        ({"partition": "one", "offset": 0}, 400, "INVALID_REQUEST", "partition"),
        ({"partition": 0, "offset": 0, "member_id": "m"}, 400, "INVALID_REQUEST", "member_id"),
        ({"partition": 0, "offset": 6}, 416, "OFFSET_OUT_OF_RANGE", None),
        ({"partition": 0, "offset": 2**63 - 1}, 416, "OFFSET_OUT_OF_RANGE", None),
        ({"partition": 2, "offset": 0}, 404, "UNKNOWN_TOPIC_OR_PARTITION", None),
    ],
)
def test_a_preview_refuses_what_a_seek_refuses(
    query: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    produce(5)
    subscribe()
    answer = call("GET", f"{SUBSCRIPTION}/seek", query)
    assert (answer.status, answer.code, answer.json.get("field")) == (status, code, field)
    if field != "member_id":
        assert call("POST", f"{SUBSCRIPTION}/seek", value=query).code == code


def test_a_preview_of_what_is_not_there_says_so() -> None:
    where = {"partition": 0, "offset": 0}
    assert call("GET", f"{SUBSCRIPTION}/seek", where).code == "UNKNOWN_SUBSCRIPTION"
    assert call("GET", "/v1/topics/orders/subscriptions/a b/seek", where).code == "UNKNOWN_SUBSCRIPTION"
    assert call("GET", "/v1/topics/none/subscriptions/s/seek", where).code == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "cumulative"),
        ({"cumulative": 1, "individual": [1]}, "cumulative"),
        ({"cumulative": -1}, "cumulative"),
        ({"cumulative": 1.0}, "cumulative"),
        ({"cumulative": True}, "cumulative"),
        ({"individual": 1}, "individual"),
        ({"individual": []}, "individual"),
        ({"individual": [0, "1"]}, "individual[1]"),
        ({"individual": [0, -1]}, "individual[1]"),
        ({"individual": [[0, 1]]}, "individual[0]"),
        ({"cumulative": 0, "session_id": 1}, "session_id"),
        ({"cumulative": 0, "partition": None}, "partition"),
        ({"cumulative": 0, "partition": "0"}, "partition"),
        ({"cumulative": 0, "more": 1}, "more"),
    ],
)
def test_an_acknowledgement_of_another_form_is_refused(body: dict[str, Any], field: str) -> None:
    produce(2)
    subscribe(initial_position="earliest")
    answer = acknowledge(**body)
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)
    assert cursor()["backlog"] == 2


@pytest.mark.parametrize(
    "query",
    ["partition=x", "partition=-1", "partition=0&partition=0", "wait_ms=20001", "max_records=0", "isolation=x", "x=1",
     "timestamp=1", "tail_offset=1", "compacted=true", "group=g"],
)  # fmt: skip
def test_a_query_of_another_form_is_refused(query: str) -> None:
    subscribe()
    assert call("GET", f"{SUBSCRIPTION}/records", query).code == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "body",
    ['{"initial_position": "middle"}', '{"initial_position": 1}', '{"replicate_subscription_state": "true"}',
     '{"replicate_subscription_state": 1}', '{"x": 1}', "[]", "1", '{"initial_position": "latest"'],
)  # fmt: skip
def test_a_subscription_of_another_form_is_not_made(body: str) -> None:
    assert call("PUT", SUBSCRIPTION, body=body).code == "INVALID_REQUEST"
    assert call("PUT", SUBSCRIPTION, "limit=1").code == "INVALID_REQUEST"
    assert call("GET", SUBSCRIPTION).code == "UNKNOWN_SUBSCRIPTION"


def test_an_unknown_session_moves_nothing() -> None:
    produce(2)
    subscribe(initial_position="earliest")
    assert acknowledge(cumulative=0, session_id="nobody's").code == "UNKNOWN_SESSION"
    assert read(session_id="nobody's").code == "UNKNOWN_SESSION"
    assert commit({"offset": 1}, session_id="nobody's").code == "UNKNOWN_SESSION"
    assert cursor()["backlog"] == 2
    assert committed() == []


# Groups


def test_a_group_commits_and_fetches_offsets() -> None:
    produce(5)
    produce(5, 1)
    answer = commit({"offset": 4, "metadata": "ü"}, {"partition": 1, "offset": 2})
    assert (answer.status, answer.json) == (200, {})
    first = {"topic": "orders", "partition": 0, "offset": 4, "metadata": "ü"}
    second = {"topic": "orders", "partition": 1, "offset": 2, "metadata": ""}
    assert committed() == committed("topic=orders") == committed("require_stable=true") == [first, second]
    assert committed("topic=orders&partition=1") == [second]
    marks = call("GET", "/v1/topics/orders/subscriptions/g").json["partitions"]
    assert [(one["mark_delete_offset"], one["backlog"]) for one in marks] == [(4, 1), (2, 3)]
    assert commit({"offset": 1}).status == 200
    assert committed("topic=orders&partition=0") == [{**first, "offset": 1, "metadata": ""}]
    assert call("GET", "/v1/groups/another/offsets").json == {"offsets": [], "has_more": False}


def test_nothing_of_a_commit_is_applied_where_one_of_it_cannot_be() -> None:
    produce(3)
    for bad, code in (
        ({"partition": 1, "offset": 1}, "OFFSET_OUT_OF_RANGE"),
        ({"partition": 2, "offset": 0}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": "nobody", "offset": 0}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": "../x", "offset": 0}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"offset": 2}, "INVALID_REQUEST"),
        ({"partition": 1, "offset": 0, "metadata": "é" * 2_049}, "INVALID_REQUEST"),
        ({"partition": 1, "offset": -1}, "INVALID_REQUEST"),
        ({"partition": 1}, "INVALID_REQUEST"),
        ({"partition": 1, "offset": 0, "x": 0}, "INVALID_REQUEST"),
    ):
        assert commit({"offset": 1}, bad).code == code
    assert committed() == []
    assert call("GET", "/v1/topics/orders/subscriptions").json == {"subscriptions": [], "has_more": False}


def test_the_field_to_blame_in_a_commit_is_named() -> None:
    assert commit({"offset": 0}, {"offset": 0}).json["field"] == "offsets[1]"
    assert commit({"offset": "0"}).json["field"] == "offsets[0].offset"
    assert commit({"offset": 0, "metadata": 1}).json["field"] == "offsets[0].metadata"
    assert commit().json["field"] == "offsets"
    assert (
        commit(*({"partition": n, "offset": 0} for n in range(limits.PARTITIONS_PER_COMMIT_MAX + 1))).json["field"]
        == "offsets"
    )
    for value in ({}, {"offsets": None}, {"offsets": {}}):
        assert call("POST", OFFSETS, value=value).json["field"] == "offsets"
    assert call("POST", OFFSETS, value={"offsets": [1]}).json["field"] == "offsets[0]"
    assert call("POST", OFFSETS).code == "INVALID_REQUEST"
    assert commit({"offset": 0, "metadata": "m" * limits.METADATA_BYTES_MAX}).status == 200


def test_a_fetch_of_another_form_is_refused() -> None:
    assert call("GET", OFFSETS, "partition=0").json["field"] == "partition"
    assert call("GET", OFFSETS, "topic=orders&partition=x").json["field"] == "partition"
    assert call("GET", OFFSETS, "require_stable=1").json["field"] == "require_stable"
    assert call("GET", OFFSETS, "x=1").json["field"] == "x"
    for query in ("topic=nobody", "topic=", "topic=orders&partition=2", "topic=n%20o&partition=0"):
        assert call("GET", OFFSETS, query).code == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.slow
def test_ten_thousand_acknowledgements_pass_one_request() -> None:
    call("POST", "/v1/topics/orders/partitions/0/records", value={"records": [{"value": ""}] * 20_000})
    subscribe(initial_position="earliest")
    body = json.dumps({"partition": 0, "individual": list(range(1, 20_000, 2))})
    answer = send(event("POST", f"{SUBSCRIPTION}/acknowledgements", body=body))
    assert (answer.status, answer.json) == (200, {"mark_delete_offset": 0})
    shown = cursor()
    assert (len(shown["individually_acknowledged"]), shown["backlog"]) == (10_000, 10_000)
    assert acknowledge(cumulative=19_999).json == {"mark_delete_offset": 20_000}
