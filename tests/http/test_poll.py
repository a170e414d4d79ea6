"""Contract, "One poll for many partitions", through the handlers."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from fenceline import limits
from fenceline.format.batch import decode, encode
from fenceline.model.record import Record
from fenceline_http import dispatch, wiring
from tests.support.http_events import BATCH_TYPE, FRAMES_TYPE, Answer, call, event
from tests.support.http_transactions import Producer

OTHER_ID = "0" * 32

pytestmark = pytest.mark.usefixtures("topic")


def produce(*values: str, topic: str = "orders", partition: int = 0, **fields: Any) -> None:
    body = {"records": [{"value": value} for value in values], **fields}
    assert call("POST", f"/v1/topics/{topic}/partitions/{partition}/records", value=body).status == 200


def at(partition: int = 0, offset: int | None = 0, topic: str = "orders", **more: Any) -> dict[str, Any]:
    place = {"topic": topic, "partition": partition}
    return {**place, **({} if offset is None else {"offset": offset}), **more}


def ask(*positions: dict[str, Any], accept: str = "", **more: Any) -> Answer:
    headers = {"accept": accept} if accept else {}
    return call("POST", "/v1/poll", value={"positions": positions, **more}, headers=headers)


def poll(*positions: dict[str, Any], **more: Any) -> Any:
    answer = ask(*positions, **more)
    assert answer.status == 200, answer.json
    return answer.json


def said(answer: Any) -> list[tuple[int, list[str], int]]:
    """Return the partition, the values and the position of each entry."""
    rows = answer["partitions"]
    return [(one["partition"], [record["value"] for record in one["records"]], one["position"]) for one in rows]


def codes(answer: Any) -> list[tuple[str, int, str]]:
    rows = answer["partitions"]
    return [(one["topic"], one["partition"], one.get("error", {}).get("code", "")) for one in rows]


def topic_id(topic: str = "orders") -> str:
    return str(call("GET", f"/v1/topics/{topic}").json["topic_id"])


def recreate(topic: str = "orders", partitions: int = 2) -> str:
    """Create the topic again, and return the id that it had before."""
    before = topic_id(topic)
    assert call("DELETE", f"/v1/topics/{topic}").status == 202
    assert call("POST", "/v1/topics", value={"name": topic, "partitions": partitions}).status == 201
    return before


# What is answered


def test_an_entry_is_a_page_of_its_partition(service: wiring.Service) -> None:
    produce("a", "b")
    page = call("GET", "/v1/topics/orders/partitions/0/records", {"offset": 1}).json
    assert poll(at(offset=1)) == {
        "partitions": [{"topic": "orders", "topic_id": topic_id(), "partition": 0, **page}],
        "has_more": False,
        "hold": True,
    }


def test_partitions_with_nothing_to_say_are_left_out_and_the_others_are_in_the_order_of_the_request() -> None:
    assert call("POST", "/v1/topics", value={"name": "clicks", "partitions": 3}).status == 201
    produce("a")
    produce("x", "y", topic="clicks", partition=2)
    answer = poll(at(2, topic="clicks"), at(1), at(0, topic="clicks"), at(0))
    assert said(answer) == [(2, ["x", "y"], 2), (0, ["a"], 1)]
    assert [one["topic"] for one in answer["partitions"]] == ["clicks", "orders"]
    nothing = poll(at(0, 1), at(1), at(2, 2, topic="clicks"))
    assert (nothing["partitions"], nothing["has_more"]) == ([], False)


def test_each_position_that_fails_has_its_error_and_stops_no_other() -> None:
    produce("a")
    positions = [at(7), at(0), at(0, topic="nope"), at(0, topic="no/name"), at(1, 5), at(0, topic=".")]
    assert codes(poll(*positions)) == [
        ("orders", 7, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", 0, ""),
        ("nope", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("no/name", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", 1, "OFFSET_OUT_OF_RANGE"),
        (".", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


def test_bounds_hold_for_the_whole_answer_and_what_is_left_out_may_have_more() -> None:
    produce("a", "b", "c")
    produce("d", "e", partition=1)
    assert said(poll(at(0), at(1), max_records=3)) == [(0, ["a", "b", "c"], 3)]
    assert poll(at(0), at(1), max_records=3)["has_more"] is True
    cut = poll(at(0, 1), at(1), max_records=3)
    assert (said(cut), cut["has_more"]) == ([(0, ["b", "c"], 3), (1, ["d"], 1)], False)
    assert said(poll(at(1), at(0), max_records=1)) == [(1, ["d"], 1)]
    one = poll(at(0), at(1), max_bytes=1)
    assert (said(one), one["has_more"]) == ([(0, ["a"], 1)], True)
    by_bytes = poll(at(0), at(1), max_bytes=4)
    assert (said(by_bytes), by_bytes["has_more"]) == ([(0, ["a", "b", "c"], 3), (1, ["d"], 1)], False)


def test_bounds_above_the_greatest_are_the_greatest() -> None:
    produce("a")
    assert said(poll(at(), max_records=2**63 - 1, max_bytes=2**63 - 1)) == [(0, ["a"], 1)]


def test_an_answer_stays_below_four_mib_of_json_and_the_reader_goes_on() -> None:
    text = '"' * 300_000  # twice as long in JSON
    for partition in (0, 1):
        for _ in range(5):
            produce(text, partition=partition)
    found, positions = {0: 0, 1: 0}, {0: 0, 1: 0}
    for turn in range(10):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        answer = ask(*(at(one, positions[one]) for one in order), max_bytes=limits.BYTES_MAX)
        assert len(answer.body) < limits.REPLY_BYTES_MAX
        for partition, values, position in said(answer.json):
            found[partition] += len(values)
            positions[partition] = position
        assert answer.json["partitions"] or positions == {0: 5, 1: 5}
        if turn == 0:
            assert positions == {0: 5, 1: 1}
    assert found == {0: 5, 1: 5}


def test_partitions_after_one_that_is_cut_are_left_out() -> None:
    large = "x" * 800_000
    for partition in (0, 1):
        for _ in range(3):
            produce(large, partition=partition, encoding="base64")
    assert call("POST", "/v1/topics", value={"name": "small"}).status == 201
    produce("y", topic="small")
    positions = [at(0), at(1), at(0, topic="small")]
    answer = poll(*positions, max_bytes=limits.BYTES_MAX, encoding="base64")
    assert ([len(values) for _, values, _ in said(answer)], answer["has_more"]) == ([3, 2], True)


def test_a_partition_whose_first_record_does_not_fit_is_left_out_with_those_after_it() -> None:
    text = '"' * 900_000  # 1.8 MB in JSON, and 1.2 MB in base64
    for partition in (0, 0, 1):
        produce(text, partition=partition)
    first = poll(at(0), at(1), max_bytes=limits.BYTES_MAX)
    assert ([(one, len(values)) for one, values, _ in said(first)], first["has_more"]) == ([(0, 2)], True)
    assert [one for one, _, _ in said(poll(at(1), at(0), max_bytes=limits.BYTES_MAX))] == [1, 0]


def test_a_record_that_no_answer_carries_is_its_partitions_error_and_stops_no_other() -> None:
    """It is small as it is stored, so that it could be appended. A local server, which has no gateway, shows it."""
    body = encode([Record(b"x" * 7_000_000)], now_ms=1_700_000_000_000, codec="gzip").body
    sent = call("POST", "/v1/topics/orders/partitions/0/batches", headers={"content-type": BATCH_TYPE}, body=body)
    assert sent.status == 200, sent.json
    produce("b", partition=1)
    answer = poll(at(0), at(1))
    assert codes(answer) == [("orders", 0, "MESSAGE_TOO_LARGE")]
    assert answer["has_more"] is True
    turned = poll(at(1), at(0))
    assert codes(turned) == [("orders", 1, "")]
    assert turned["has_more"] is True
    raw = {**event("POST", "/v1/poll", body=None), "isRaw": True, "body": json.dumps({"positions": [at()]}).encode()}
    shown = dispatch.respond("read", raw, wiring.service())
    assert len(shown.body) > 7_000_000


def test_the_encoding_is_each_entrys_own() -> None:
    produce("text")
    produce("/w==", partition=1, encoding="base64")
    rows = poll(at(0), at(1))["partitions"]
    assert [(one["encoding"], one["records"][0]["value"]) for one in rows] == [("utf8", "text"), ("base64", "/w==")]
    assert [one["encoding"] for one in poll(at(0), at(1), encoding="base64")["partitions"]] == ["base64", "base64"]


def test_records_have_their_identity_where_it_is_asked_for() -> None:
    produce("a")
    (row,) = poll(at(), identity=True)["partitions"]
    assert (row["records"][0]["origin_topic_id"], row["records"][0]["number"]) == (topic_id(), 1)


def test_committed_reads_end_at_the_stable_offset_and_a_moved_position_is_said() -> None:
    producer = Producer()
    assert producer.add(("orders", 0)).status == 200
    assert producer.produce("lost").status == 200
    assert poll(at(), isolation="read_committed")["partitions"] == []
    assert said(poll(at())) == [(0, ["lost"], 1)]
    assert producer.end("abort").status == 200
    (row,) = poll(at(), isolation="read_committed")["partitions"]
    assert (row["records"], row["position"], row["last_stable_offset"]) == ([], 2, 2)
    assert poll(at(0, 2), isolation="read_committed")["partitions"] == []


def test_markers_and_aborted_records_take_no_place_of_the_answers_records() -> None:
    for n in range(3):
        producer = Producer(f"t{n}")
        assert producer.add(("orders", 0)).status == 200
        assert producer.produce(f"{n}").status == 200
        assert producer.end("abort" if n == 1 else "commit").status == 200
    produce("z", partition=1)
    answer = poll(at(0), at(1), isolation="read_committed", max_records=3)
    assert [values for _, values, _ in said(answer)] == [["0", "2"], ["z"]]


# Frames


def frames(answer: Answer) -> list[tuple[str, int, int, bytes]]:
    assert (answer.status, answer.headers["content-type"]) == (200, FRAMES_TYPE)
    found, start = [], 0
    while start < len(answer.body):
        topic, partition, position, length = struct.unpack_from(">16siqi", answer.body, start)
        start += 32
        found.append((topic.hex(), partition, position, answer.body[start : start + length]))
        start += length
    assert start == len(answer.body)
    return found


def test_frames_have_the_batches_of_each_partition() -> None:
    produce("a", "b")
    produce("c", partition=1)
    produce("d", partition=1)
    answer = ask(at(0), at(1), accept=FRAMES_TYPE)
    first, second = frames(answer)
    assert (first[:3], second[:3]) == ((topic_id(), 0, 2), (topic_id(), 1, 2))
    assert [record.value for record in decode(first[3])] == [b"a", b"b"]
    assert first[3] == call("GET", "/v1/topics/orders/partitions/0/batches", {"offset": 0}).body
    assert second[3] == call("GET", "/v1/topics/orders/partitions/1/batches", {"offset": 0}).body
    assert (answer.headers["fenceline-has-more"], answer.headers["fenceline-hold"]) == ("false", "true")
    cut = ask(at(0), at(1), at(0, topic="x"), accept=FRAMES_TYPE, max_records=3)
    assert [one[:3] for one in frames(cut)] == [(topic_id(), 0, 2), (topic_id(), 1, 1)]
    assert cut.headers["fenceline-has-more"] == "true"


def test_a_frame_with_an_error_has_the_entry_as_json() -> None:
    produce("a")
    failed, shown = frames(ask(at(3), at(0), accept=f"{FRAMES_TYPE}, application/json;q=0.5"))
    assert failed[:3] == (OTHER_ID, 3, -1)
    assert json.loads(failed[3]) == poll(at(3))["partitions"][0]
    assert shown[1:3] == (0, 1)


def test_identities_and_subscriptions_are_shown_as_json_alone() -> None:
    call("PUT", "/v1/topics/orders/subscriptions/billing", value={"initial_position": "earliest"})
    produce("a")
    for fields, field in (({"identity": True}, "identity"), ({}, "positions[1].subscription")):
        positions = [at(1), at(0, **({} if fields else {"subscription": "billing"}))]
        refused = ask(*positions, accept=FRAMES_TYPE, **fields)
        assert (refused.status, refused.code, refused.json["field"]) == (400, "INVALID_REQUEST", field)
        both = ask(*positions, accept=f"{FRAMES_TYPE}, */*;q=0.1", **fields)
        assert (both.headers["content-type"], said(both.json)) == ("application/json", [(0, ["a"], 1)])


# Subscriptions and groups


def test_a_position_of_a_subscription_begins_at_its_mark_without_what_is_acknowledged() -> None:
    path = "/v1/topics/orders/subscriptions/billing"
    assert call("PUT", path, value={"initial_position": "earliest"}).status == 201
    produce("a", "b", "c", "d")
    call("POST", f"{path}/acknowledgements", value={"partition": 0, "cumulative": 0})
    call("POST", f"{path}/acknowledgements", value={"partition": 0, "individual": [2]})
    assert said(poll(at(offset=None, subscription="billing"))) == [(0, ["b", "d"], 4)]
    assert said(poll(at(offset=3, subscription="billing"))) == [(0, ["d"], 4)]
    assert codes(poll(at(offset=0, subscription="billing"))) == [("orders", 0, "OFFSET_OUT_OF_RANGE")]
    assert poll(at(offset=4, subscription="billing"))["partitions"] == []
    assert said(poll(at(offset=2, subscription="billing"), max_records=1)) == [(0, ["d"], 4)]
    call("POST", f"{path}/acknowledgements", value={"partition": 0, "cumulative": 3})
    assert poll(at(offset=None, subscription="billing"))["partitions"] == []
    assert codes(poll(at(offset=None, subscription="nope"), at(9, None, subscription="billing"))) == [
        ("orders", 0, "UNKNOWN_SUBSCRIPTION"),
        ("orders", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


def test_stable_offsets_are_required_position_by_position() -> None:
    path = "/v1/topics/orders/subscriptions/billing"
    assert call("PUT", path, value={"initial_position": "earliest"}).status == 201
    produce("a")
    produce("b", partition=1)
    producer = Producer()
    assert producer.add_group("billing").status == 204
    assert producer.send_offset("billing", 1).status == 200
    positions = [at(one, None, subscription="billing", require_stable=True) for one in (0, 1)]
    assert codes(poll(*positions)) == [("orders", 0, "UNSTABLE_OFFSET_COMMIT"), ("orders", 1, "")]


def test_a_group_that_another_session_owns_is_refused_where_it_is_owned() -> None:
    produce("a")
    produce("b", partition=1)
    session = str(call("POST", "/v1/sessions", value={}).json["session_id"])
    owned = {"session_id": session, "group": "billing", "resources": [{"resource": "orders/0"}]}
    assert call("POST", "/v1/own", value=owned).status == 200
    assert codes(poll(at(0), at(1), group="billing")) == [("orders", 0, "OWNER_FENCED"), ("orders", 1, "")]
    assert codes(poll(at(0), at(1), group="billing", session_id=session)) == [
        ("orders", 0, ""),
        ("orders", 1, "OWNER_FENCED"),
    ]
    unknown = codes(poll(at(0), session_id=OTHER_ID))
    assert unknown == [("orders", 0, "UNKNOWN_SESSION")]
    call("PUT", "/v1/topics/orders/subscriptions/billing", value={"initial_position": "earliest"})
    mixed = poll(at(0, None, subscription="billing"), at(1), group="other", session_id=session)
    assert codes(mixed) == [("orders", 0, ""), ("orders", 1, "OWNER_FENCED")]


# The id of the topic


def test_a_position_of_a_topic_that_was_replaced_is_refused_and_not_read() -> None:
    produce("old")
    before = recreate(partitions=1)
    produce("new")
    assert codes(poll(at(0, topic_id=before), at(1, topic_id=before))) == [
        ("orders", 0, "UNKNOWN_TOPIC_ID"),
        ("orders", 1, "UNKNOWN_TOPIC_ID"),
    ]
    assert said(poll(at(0, topic_id=topic_id()))) == [(0, ["new"], 1)]
    assert call("PUT", "/v1/topics/orders/subscriptions/s", value={"initial_position": "earliest"}).status == 201
    assert codes(poll(at(0, None, subscription="s", topic_id=before))) == [("orders", 0, "UNKNOWN_TOPIC_ID")]
    assert said(poll(at(0, None, subscription="s", topic_id=topic_id()))) == [(0, ["new"], 1)]
    assert codes(poll(at(0, topic_id="not an id"))) == [("orders", 0, "UNKNOWN_TOPIC_ID")]
    assert call("DELETE", "/v1/topics/orders").status == 202
    assert codes(poll(at(0, topic_id=before))) == [("orders", 0, "UNKNOWN_TOPIC_OR_PARTITION")]


def test_reads_acknowledgements_and_commits_take_the_id_of_the_topic() -> None:
    path = "/v1/topics/orders/subscriptions/billing"
    before = recreate()
    produce("a")
    assert call("PUT", path, value={"initial_position": "earliest"}).status == 201
    records, batches = (f"/v1/topics/orders/partitions/0/{one}" for one in ("records", "batches"))
    offset = {"topic": "orders", "partition": 0, "offset": 1}
    producer = Producer()
    assert producer.add_group("billing").status == 204

    def answers(given: str) -> list[Answer]:
        return [
            call("GET", records, {"offset": 0, "topic_id": given}),
            call("GET", batches, {"offset": 0, "topic_id": given}),
            call("GET", f"{path}/records", {"topic_id": given}),
            producer.post("offsets", group="billing", offsets=[{**offset, "topic_id": given}]),
            call("POST", "/v1/groups/billing/offsets", value={"offsets": [{**offset, "topic_id": given}]}),
            call("POST", f"{path}/acknowledgements", value={"partition": 0, "cumulative": 0, "topic_id": given}),
        ]

    assert [one.code for one in answers(before)] == ["UNKNOWN_TOPIC_ID"] * 6
    assert call("GET", path).json["partitions"][0]["mark_delete_offset"] == 0
    mixed = [{**offset, "topic_id": topic_id()}, {**offset, "partition": 1, "offset": 0, "topic_id": before}]
    assert call("POST", "/v1/groups/billing/offsets", value={"offsets": mixed}).code == "UNKNOWN_TOPIC_ID"
    assert [one.status for one in answers(topic_id())] == [200] * 6


# Bad input


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "positions"),
        ({"positions": []}, "positions"),
        ({"positions": {}}, "positions"),
        ({"positions": [at(n) for n in range(501)]}, "positions"),
        ({"positions": [at(1), at(0), at(1)]}, "positions[2].partition"),
        ({"positions": [at(), at(subscription="s")]}, "positions[1].partition"),
        ({"positions": [at(offset=None)]}, "positions[0].offset"),
        ({"positions": [at(offset=-1)]}, "positions[0].offset"),
        ({"positions": [at(offset=2**63)]}, "positions[0].offset"),
        ({"positions": [at(True)]}, "positions[0].partition"),
        ({"positions": [at(require_stable=True)]}, "positions[0].require_stable"),
        ({"positions": [at(subscription="a/b")]}, "positions[0].subscription"),
        ({"positions": [at(topic_id=5)]}, "positions[0].topic_id"),
        ({"positions": [at(compacted=True)]}, "positions[0].compacted"),
        ({"positions": [{"partition": 0, "offset": 0}]}, "positions[0].topic"),
        ({"positions": [at()], "max_records": 0}, "max_records"),
        ({"positions": [at()], "max_bytes": -1}, "max_bytes"),
        ({"positions": [at()], "wait_ms": 20_001}, "wait_ms"),
        ({"positions": [at()], "max_delay_ms": -1}, "max_delay_ms"),
        ({"positions": [at()], "isolation": "none"}, "isolation"),
        ({"positions": [at()], "group": ""}, "group"),
        ({"positions": [at()], "member_epoch": 1}, "member_id"),
    ],
)
def test_a_request_of_a_wrong_form_is_refused_whole(body: dict[str, Any], field: str) -> None:
    answer = call("POST", "/v1/poll", value=body)
    assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", field)


def test_a_body_that_is_cut_is_refused() -> None:
    whole = json.dumps({"positions": [at(0), at(1)]})
    for end in range(1, len(whole)):
        assert call("POST", "/v1/poll", body=whole[:end]).code == "INVALID_REQUEST"
    assert call("POST", "/v1/poll", body="").code == "INVALID_REQUEST"
    assert call("POST", "/v1/poll", body=whole).status == 200
    assert call("GET", "/v1/poll").code == "METHOD_NOT_ALLOWED"


def test_five_hundred_positions_are_answered() -> None:
    assert call("POST", "/v1/topics", value={"name": "wide", "partitions": 500}).status == 201
    produce("x", topic="wide", partition=499)
    answer = poll(*(at(n, topic="wide") for n in range(500)))
    assert (said(answer), answer["has_more"]) == ([(499, ["x"], 1)], False)
