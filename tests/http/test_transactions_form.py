"""The form of requests in transactions (contract, "Form" of transactions): each row a case, through the handlers.

Rule: no case here begins a transaction, and none reaches a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fenceline.format.batch import encode
from fenceline.model.record import Record
from tests.http.test_form import assert_refused, next_offset
from tests.support.http_events import BATCH_TYPE, call

RECORDS = "/v1/topics/orders/partitions/0/records"
ABORT = "/v1/topics/orders/partitions/0/abort-transaction"
STATES = "/v1/topics/orders/partitions/0/producer-states"
TRANSACTION = "/v1/transactions/loader-1"
PAIR: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
PLACE: dict[str, Any] = {"topic": "orders", "partition": 0}
OFFSET = {**PLACE, "offset": 0}
PRODUCER = {**PAIR, "sequence": 0}
WHOLE: dict[str, dict[str, Any]] = {
    f"{TRANSACTION}/partitions": {**PAIR, "partitions": [PLACE]},
    f"{TRANSACTION}/groups": {**PAIR, "group": "billing"},
    f"{TRANSACTION}/offsets": {**PAIR, "group": "billing", "offsets": [OFFSET]},
    f"{TRANSACTION}/end": {**PAIR, "result": "commit"},
    ABORT: PAIR,
}
# What neither a path can carry nor a body may name.
NO_IDS = [".", "..", "a\x00b", "\n", "\x1f", "\x7f", "x" * 250, "é" * 125]
IDS = ["a", "...", "x" * 249, "é" * 124, "a%2Fb", "a+b c?#&", "Ω", "\u0085", "𝄞", "%"]

pytestmark = pytest.mark.usefixtures("topic")


def wrong_bodies() -> Iterator[tuple[str, Any, str]]:
    """Yield (path, body, the field to blame)."""
    for path, whole in WHOLE.items():
        for name in whole:
            yield path, {key: value for key, value in whole.items() if key != name}, name
            yield path, {**whole, name: None}, name
        for value in (-1, 32_768, "0", 1.0, True):
            yield path, {**whole, "producer_epoch": value}, "producer_epoch"
        for value in (-1, 2**63, "7", 1.5):
            yield path, {**whole, "producer_id": value}, "producer_id"
        yield path, {**whole, "transactional_id": "loader-1"}, "transactional_id"


PARTITIONS: list[tuple[Any, str]] = [
    ([], "partitions"),
    ({}, "partitions"),
    ([{"topic": "orders", "partition": one} for one in range(501)], "partitions"),
    ([PLACE, {"topic": "orders"}], "partitions[1].partition"),
    ([{"partition": 0}], "partitions[0].topic"),
    ([{"topic": 1, "partition": 0}], "partitions[0].topic"),
    ([{"topic": "orders", "partition": -1}], "partitions[0].partition"),
    ([{**PLACE, "offset": 0}], "partitions[0].offset"),
    ([PLACE, {"topic": "orders", "partition": 1}, PLACE], "partitions[2].partition"),
    ([{"topic": "nope", "partition": 0}] * 2, "partitions[1].partition"),
    ([1], "partitions[0]"),
]
OFFSETS: list[tuple[Any, str]] = [
    ([], "offsets"),
    ([{**OFFSET, "partition": one} for one in range(33)], "offsets"),
    ([OFFSET, OFFSET], "offsets[1].partition"),
    ([PLACE], "offsets[0].offset"),
    ([{**OFFSET, "offset": -1}], "offsets[0].offset"),
    ([{**OFFSET, "metadata": "é" * 2_049}], "offsets[0].metadata"),
    ([{**OFFSET, "leader_epoch": 0}], "offsets[0].leader_epoch"),
]


@pytest.mark.parametrize(("path", "body", "field"), list(wrong_bodies()))
def test_a_request_of_wrong_form_is_refused_with_its_field(path: str, body: Any, field: str) -> None:
    assert_refused(call("POST", path, value=body), "INVALID_REQUEST", field)


@pytest.mark.parametrize(("partitions", "field"), PARTITIONS)
def test_partitions_are_1_to_500_each_once(partitions: Any, field: str) -> None:
    answer = call("POST", f"{TRANSACTION}/partitions", value={**PAIR, "partitions": partitions})
    assert_refused(answer, "INVALID_REQUEST", field)


@pytest.mark.parametrize(("offsets", "field"), OFFSETS)
def test_offsets_are_1_to_32_each_once(offsets: Any, field: str) -> None:
    answer = call("POST", f"{TRANSACTION}/offsets", value={**PAIR, "group": "billing", "offsets": offsets})
    assert_refused(answer, "INVALID_REQUEST", field)


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a b", "é", "x" * 250, "a\n"])
def test_an_invalid_group_is_refused(group: str) -> None:
    for path in (f"{TRANSACTION}/groups", f"{TRANSACTION}/offsets"):
        assert_refused(call("POST", path, value={**WHOLE[path], "group": group}), "INVALID_REQUEST", "group")
    if group and "/" not in group:
        assert_refused(call("GET", f"/v1/coordinators/group/{group}"), "INVALID_REQUEST", "key")


@pytest.mark.parametrize("result", ["COMMIT", "", "prepare", 1, True])
def test_a_result_is_commit_or_abort(result: Any) -> None:
    answer = call("POST", f"{TRANSACTION}/end", value={**PAIR, "result": result})
    assert_refused(answer, "INVALID_REQUEST", "result")


@pytest.mark.parametrize("text", NO_IDS)
def test_no_transactional_id_is_what_a_path_cannot_carry(text: str) -> None:
    for path, body in WHOLE.items():
        if path != ABORT:
            answer = call("POST", path.replace("loader-1", text), value=body)
            assert_refused(answer, "INVALID_REQUEST", "transactional_id")
    assert_refused(call("GET", f"/v1/transactions/{text}"), "INVALID_REQUEST", "transactional_id")
    assert_refused(call("GET", f"/v1/coordinators/transaction/{text}"), "INVALID_REQUEST", "key")
    answer = call("POST", "/v1/producer-ids", value={"transactional_id": text})
    assert_refused(answer, "INVALID_REQUEST", "transactional_id")


@pytest.mark.parametrize("text", ["", "a/b", "/"])
def test_no_transactional_id_is_empty_or_has_a_slash(text: str) -> None:
    answer = call("POST", "/v1/producer-ids", value={"transactional_id": text})
    assert_refused(answer, "INVALID_REQUEST", "transactional_id")


def test_a_lone_surrogate_is_no_character_of_an_id_wherever_it_is() -> None:
    body = '{"transactional_id": "a\\ud800"}'
    assert_refused(call("POST", "/v1/producer-ids", body=body), "INVALID_REQUEST", "transactional_id")
    query = "transactional_id=a%ED%A0%80"
    answer = call("POST", RECORDS, query, headers={"content-type": BATCH_TYPE}, body=b"x")
    assert_refused(answer, "INVALID_REQUEST", "transactional_id")
    assert_refused(call("GET", "/v1/transactions/a\ud800"), "INVALID_REQUEST", "transactional_id")
    assert_refused(call("GET", "/v1/coordinators/transaction/\udc00"), "INVALID_REQUEST", "key")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=ongoing", "state"),
        ("state=", "state"),
        ("state=Ongoing&state=Empty", "state"),
        ("producer_id=-1", "producer_id"),
        ("producer_id=x", "producer_id"),
        ("longer_than_ms=-1", "longer_than_ms"),
        ("longer_than_ms=9223372036854775808", "longer_than_ms"),
        ("limit=0", "limit"),
        ("start_after=%ff", "start_after"),
        ("principal=me", "principal"),
    ],
)
def test_a_list_of_transactions_of_wrong_form_is_refused(query: str, field: str) -> None:
    assert_refused(call("GET", "/v1/transactions", query), "INVALID_REQUEST", field)


@pytest.mark.parametrize(
    ("query", "field"), [("start_after=", "start_after"), ("start_after=-1", "start_after"), ("limit=0", "limit")]
)
def test_a_list_of_producer_states_of_wrong_form_is_refused(query: str, field: str) -> None:
    assert_refused(call("GET", STATES, query), "INVALID_REQUEST", field)


# Batches


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({}, "producer"),
        ({"producer": None}, "producer"),
        ({"producer": PRODUCER, "acks": 1}, "acks"),
        ({"producer": PRODUCER, "acks": 0}, "acks"),
        ({"acks": 0}, "acks"),
    ],
)
@pytest.mark.parametrize("name", ["orders", "nope", "no topic"])
def test_half_a_batch_of_a_transaction_is_refused_before_its_topic_is_looked_for(
    name: str, more: Any, field: str
) -> None:
    body = {"records": [{"value": "v"}], "transactional_id": "t", **more}
    answer = call("POST", f"/v1/topics/{name}/partitions/0/records", value=body)
    assert_refused(answer, "INVALID_REQUEST", field)
    entry = {"topic": name, "partition": 0, "records": [{"value": "v"}], "producer": more.get("producer")}
    several = {"transactional_id": "t", "acks": more.get("acks", -1), "partitions": [entry]}
    expected = "partitions[0].producer" if field == "producer" else field
    assert_refused(call("POST", "/v1/produce", value=several), "INVALID_REQUEST", expected)
    assert next_offset() == 0


@pytest.mark.parametrize("text", ["", ".", "a/b", "x" * 250])
def test_a_batch_names_a_transactional_id_that_can_be(text: str) -> None:
    body = {"records": [{"value": "v"}], "transactional_id": text, "producer": PRODUCER}
    assert_refused(call("POST", RECORDS, value=body), "INVALID_REQUEST", "transactional_id")
    entry = {**PLACE, "records": [{"value": "v"}], "producer": PRODUCER}
    several = {"transactional_id": text, "partitions": [entry]}
    assert_refused(call("POST", "/v1/produce", value=several), "INVALID_REQUEST", "transactional_id")
    answer = call("POST", RECORDS, {"transactional_id": text}, headers={"content-type": BATCH_TYPE}, body=b"x")
    assert_refused(answer, "INVALID_REQUEST", "transactional_id")


def binary(*, is_transactional: bool, producer_id: int = 7) -> bytes:
    more = {"producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    return encode(
        [Record(b"v", timestamp=0)], now_ms=0, producer_id=producer_id, is_transactional=is_transactional, **more
    ).body


@pytest.mark.parametrize("name", ["orders", "nope", "no topic"])
@pytest.mark.parametrize("acks", ["-1", "0", "1"])
@pytest.mark.parametrize(("is_transactional", "given"), [(True, ""), (False, "t"), (True, "t")])
def test_half_a_binary_batch_of_a_transaction_is_refused_before_its_topic_is_looked_for(
    name: str, acks: str, is_transactional: bool, given: str
) -> None:
    if is_transactional and given and acks == "-1":
        return  # both halves
    query = {"acks": acks, **({"transactional_id": given} if given else {})}
    path, headers = f"/v1/topics/{name}/partitions/0/records", {"content-type": BATCH_TYPE}
    answer = call("POST", path, query, headers=headers, body=binary(is_transactional=is_transactional))
    assert answer.code == "INVALID_REQUEST"
    assert next_offset() == 0


def test_the_bit_without_a_producer_id_is_an_invalid_record() -> None:
    body = binary(is_transactional=True, producer_id=-1)
    for query in ("", "transactional_id=t"):
        assert call("POST", RECORDS, query, headers={"content-type": BATCH_TYPE}, body=body).code == "INVALID_RECORD"


# Coordinators


@pytest.mark.parametrize("text", IDS)
def test_a_coordinator_is_found_for_every_id_and_nothing_is_asked_of_a_store(text: str) -> None:
    found = call("GET", f"/v1/coordinators/transaction/{text}").json
    assert (found["key"], found["region"]) == (text, "local")
    assert found["endpoint"] == "https://abc.execute-api.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(("key", "shard"), [("a", 47), ("loader-1", 25), ("billing", 39), ("ab", 5), ("x" * 249, 2)])
def test_a_coordinators_shard_is_where_kafka_would_place_the_key(key: str, shard: int) -> None:
    for kind in ("group", "transaction"):
        assert call("GET", f"/v1/coordinators/{kind}/{key}").json["shard"] == shard == java_shard(key)


def java_shard(text: str) -> int:
    """Return what Java computes: `(hashCode & 0x7fffffff) % 50`, over UTF-16 units."""
    h = 0
    for byte in range(0, len(units := text.encode("utf-16-be")), 2):
        h = (31 * h + int.from_bytes(units[byte : byte + 2])) % 2**32
    return (h & 0x7FFFFFFF) % 50


def test_there_is_no_other_kind_of_coordinator() -> None:
    assert_refused(call("GET", "/v1/coordinators/share/g"), "NOT_FOUND")
    assert_refused(call("POST", "/v1/coordinators/group/g"), "METHOD_NOT_ALLOWED")
