"""Several transactions that end at once, ``once`` and extensions, through the handlers.

Contract, "Several transactions", "Once", "Extending".
"""

from __future__ import annotations

from typing import Any

import pytest

from fenceline.format import keys
from fenceline.ports import Put
from fenceline_http import wiring
from tests.http.test_form import assert_refused
from tests.support.http_events import Answer, call
from tests.support.http_transactions import Producer, values
from tests.support.runtime import AheadRuntime

END = "/v1/transactions/end"
ONCE = {"app_id": "hourly", "version": 5, "note": "run-1"}
MEMBER: dict[str, Any] = {"transactional_id": "loader-1", "producer_id": 7, "producer_epoch": 0}
WHOLE: dict[str, Any] = {"transactions": [MEMBER], "result": "commit", "once": ONCE}
NONE = {"app_id": "hourly", "version": -1, "note": None, "committed_at": None}


@pytest.fixture
def runtime() -> AheadRuntime:
    return AheadRuntime()


@pytest.fixture(autouse=True)
def _topic(topic: str) -> None:
    """Two partitions of `orders`."""


@pytest.fixture
def producers() -> list[Producer]:
    """Three producers, the first two of which have a transaction under way."""
    made = [Producer(name) for name in ("a b", "c%d", "calm")]
    for number, one in enumerate(made[:2]):
        assert one.produce(one.transactional_id, partition=number).status == 200
    return made


def members(producers: list[Producer]) -> list[dict[str, Any]]:
    return [{"transactional_id": one.transactional_id, **one.pair} for one in producers]


def end(producers: list[Producer], result: str = "commit", **more: Any) -> Answer:
    return call("POST", END, value={"transactions": members(producers), "result": result, **more})


def once(app_id: str = "hourly") -> Any:
    answer = call("GET", f"/v1/once/{app_id}")
    assert answer.status == 200
    return answer.json


# What is answered


@pytest.mark.parametrize("result", ["commit", "abort"])
def test_several_transactions_end_at_once_and_are_answered_in_order(producers: list[Producer], result: str) -> None:
    expected = members(producers)
    for one in expected[:2]:
        one["producer_epoch"] += 1  # the third is passed over
    for _ in range(2):
        answer = end(producers, result)
        assert (answer.status, answer.json) == (200, {"transactions": expected})
    assert [values(partition=number) for number in range(2)] == ([["a b"], ["c%d"]] if result == "commit" else [[], []])


def test_a_version_is_raised_with_the_end_and_refuses_the_next_one(producers: list[Producer]) -> None:
    assert once() == NONE
    assert end(producers, once=ONCE).status == 200
    shown = once()
    assert shown == {**ONCE, "committed_at": shown["committed_at"]}
    assert shown["committed_at"] > 1_700_000_000_000
    for version in (5, 0):
        answer = call("POST", END, value={"transactions": [], "result": "commit", "once": {**ONCE, "version": version}})
        assert (answer.status, answer.code, answer.json["next_step"]) == (409, "ALREADY_COMMITTED", "fix")
        assert (answer.json["version"], answer.json["note"]) == (5, "run-1")
    assert end(producers, once=ONCE).status == 200  # a repeat


def test_versions_are_listed_by_application_in_pages() -> None:
    assert call("GET", "/v1/once").json == {"versions": [], "has_more": False}
    for number, app_id in enumerate(("hourly", "b", "é", "a b")):
        mark = {"app_id": app_id, "version": number}
        assert call("POST", END, value={"transactions": [], "result": "commit", "once": mark}).status == 200
    names = ["a b", "b", "hourly", "é"]
    listed = call("GET", "/v1/once").json
    assert listed == {"versions": [once(name) for name in names], "has_more": False}
    assert [one["version"] for one in listed["versions"]] == [3, 1, 0, 2]
    found: list[str] = []
    while len(found) < len(names):
        page = call("GET", "/v1/once", {"limit": 1, "start_after": found[-1] if found else ""}).json
        found += [one["app_id"] for one in page["versions"]]
        assert page["has_more"] == (len(found) < len(names))
    assert found == names
    assert call("DELETE", "/v1/once/hourly").status == 204
    assert [one["app_id"] for one in call("GET", "/v1/once").json["versions"]] == ["a b", "b", "é"]


def test_no_transaction_at_all_only_raises_the_version() -> None:
    bare = {"app_id": "hourly", "version": 2**63 - 1}
    answer = call("POST", END, value={"transactions": [], "result": "commit", "once": bare})
    assert (answer.status, answer.json) == (200, {"transactions": []})
    assert once() == {**bare, "note": None, "committed_at": once()["committed_at"]}
    refused = call("POST", END, value={"transactions": [], "result": "commit", "once": bare})
    assert (refused.code, refused.json["note"]) == ("ALREADY_COMMITTED", None)


def test_one_transaction_by_itself_takes_once_too(producers: list[Producer]) -> None:
    first, second, calm = producers
    ended = {**first.pair, "producer_epoch": 1}
    for _ in range(2):
        answer = call("POST", "/v1/transactions/a b/end", value={**first.pair, "result": "commit", "once": ONCE})
        assert (answer.status, answer.json) == (200, ended)
    refused = call("POST", "/v1/transactions/c%d/end", value={**second.pair, "result": "commit", "once": ONCE})
    assert refused.code == "ALREADY_COMMITTED"
    nothing = {**calm.pair, "result": "commit", "once": {**ONCE, "version": 6}}
    assert call("POST", "/v1/transactions/calm/end", value=nothing).code == "INVALID_TXN_STATE"
    assert once()["version"] == 5
    assert values(partition=1) == []


def test_a_version_is_forgotten_twice_and_may_be_committed_again(producers: list[Producer]) -> None:
    assert end(producers, once=ONCE).status == 200
    for _ in range(2):
        assert call("DELETE", "/v1/once/hourly").status == 204
    assert once() == NONE
    again = {"transactions": [], "result": "commit", "once": {**ONCE, "version": 0}}
    assert call("POST", END, value=again).status == 200


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"producer_id": 999}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"producer_epoch": 9}, "PRODUCER_FENCED"),
        ({"transactional_id": "unknown"}, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
def test_the_first_member_that_is_refused_is_named_and_nothing_changes(
    producers: list[Producer], wrong: dict[str, Any], code: str
) -> None:
    wanted = members(producers)
    wanted[1] |= wrong
    answer = call("POST", END, value={"transactions": wanted, "result": "commit", "once": ONCE})
    assert (answer.status, answer.code) == (409, code)
    assert answer.json["transactional_id"] == wanted[1]["transactional_id"]
    assert once() == NONE
    assert call("GET", "/v1/transactions/a b").json["state"] == "Ongoing"


def test_a_member_that_was_ended_before_the_others_is_named(producers: list[Producer]) -> None:
    before = members(producers)
    producers[1].end("commit")
    answer = call("POST", END, value={"transactions": before, "result": "commit"})
    assert (answer.status, answer.code, answer.json["transactional_id"]) == (409, "INVALID_TXN_STATE", "c%d")
    answer = call("POST", END, value={"transactions": before[1:], "result": "abort"})
    assert (answer.status, answer.code, answer.json["transactional_id"]) == (409, "INVALID_TXN_STATE", "c%d")


def test_an_id_may_be_called_as_the_path_of_several_ends() -> None:
    producer = Producer("end")
    producer.produce("v")
    assert call("GET", END).json["transactional_id"] == "end"
    assert producer.end("commit").status == 200
    refused = call("DELETE", END)
    assert (refused.status, refused.headers["allow"]) == (405, "POST, GET")


def test_an_extended_transaction_is_shown_with_its_end_and_lasts_until_then(runtime: AheadRuntime) -> None:
    producer = Producer(transaction_timeout_ms=1_000)
    producer.produce("v")
    assert "expires_at" not in producer.shown()
    answer = producer.post("extend", timeout_ms=60_000)
    assert answer.status == 200
    assert answer.json == {"expires_at": producer.shown()["expires_at"]}
    assert answer.json["expires_at"] - runtime.now_ms() in range(50_000, 60_001)
    assert producer.post("extend", timeout_ms=1).json == answer.json
    runtime.ahead_ms += 30_000
    assert producer.shown()["state"] == "Ongoing"
    runtime.ahead_ms += 40_000
    assert producer.shown()["state"] == "CompleteAbort"
    assert "expires_at" not in producer.shown()
    assert producer.post("extend", timeout_ms=1).code == "PRODUCER_FENCED"


def test_a_transaction_that_is_not_ongoing_is_not_extended() -> None:
    producer = Producer()
    assert producer.post("extend", timeout_ms=1).code == "INVALID_TXN_STATE"
    unknown = call("POST", "/v1/transactions/none/extend", value={**producer.pair, "timeout_ms": 1})
    assert unknown.code == "INVALID_PRODUCER_ID_MAPPING"


# The form


def wrong_members() -> list[tuple[Any, str]]:
    """Return (transactions, the field to blame)."""
    many = [{**MEMBER, "transactional_id": f"loader-{number}"} for number in range(97)]
    cases: list[tuple[Any, str]] = [
        (many, "transactions"),
        (MEMBER, "transactions"),
        ("loader-1", "transactions"),
        (None, "transactions"),
        ([None], "transactions[0]"),
        (["loader-1"], "transactions[0]"),
        ([MEMBER, MEMBER], "transactions[1].transactional_id"),
        ([MEMBER, {**MEMBER, "producer_epoch": 1}], "transactions[1].transactional_id"),
        ([{**MEMBER, "result": "commit"}], "transactions[0].result"),
    ]
    for name in MEMBER:
        cases.append(([{key: value for key, value in MEMBER.items() if key != name}], f"transactions[0].{name}"))
        cases.append(([{**MEMBER, name: None}], f"transactions[0].{name}"))
    for value in (-1, 32_768, "0", 1.0, True):
        cases.append(([{**MEMBER, "producer_epoch": value}], "transactions[0].producer_epoch"))
    for value in (-1, 2**63, "7", 1.5):
        cases.append(([{**MEMBER, "producer_id": value}], "transactions[0].producer_id"))
    for value in ("", ".", "..", "a/b", "a\x00", "x" * 250, "é" * 125, 7):
        cases.append(([{**MEMBER, "transactional_id": value}], "transactions[0].transactional_id"))
    return cases


def wrong_onces() -> list[tuple[Any, str]]:
    """Return (once, the field to blame)."""
    cases: list[tuple[Any, str]] = [
        ("hourly", "once"),
        ([], "once"),
        ({}, "once.app_id"),
        ({**ONCE, "committed_at": 5}, "once.committed_at"),
        ({"app_id": "hourly"}, "once.version"),
    ]
    for value in ("", ".", "..", "a/b", "a\x7f", "x" * 250, "é" * 125, 7, None):
        cases.append(({**ONCE, "app_id": value}, "once.app_id"))
    for value in (-1, 2**63, "5", 5.0, True, None):
        cases.append(({**ONCE, "version": value}, "once.version"))
    for value in ("x" * 1_025, "é" * 513, 7, ["run"], {}):
        cases.append(({**ONCE, "note": value}, "once.note"))
    return cases


@pytest.mark.parametrize(("wrong", "field"), wrong_members(), ids=repr)
def test_members_of_wrong_form_are_refused_with_their_field(wrong: Any, field: str) -> None:
    assert_refused(call("POST", END, value={**WHOLE, "transactions": wrong}), "INVALID_REQUEST", field)


@pytest.mark.parametrize(("wrong", "field"), wrong_onces(), ids=repr)
def test_a_once_of_wrong_form_is_refused_with_its_field(wrong: Any, field: str) -> None:
    assert_refused(call("POST", END, value={**WHOLE, "once": wrong}), "INVALID_REQUEST", field)
    alone = {"producer_id": 7, "producer_epoch": 0, "result": "commit", "once": wrong}
    assert_refused(call("POST", "/v1/transactions/loader-1/end", value=alone), "INVALID_REQUEST", field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"transactions": [], "result": "commit"}, "transactions"),
        ({"transactions": [], "result": "commit", "once": None}, "transactions"),
        ({"transactions": [MEMBER]}, "result"),
        ({**WHOLE, "result": "Commit"}, "result"),
        ({**WHOLE, "result": None}, "result"),
        ({**WHOLE, "transactional_id": "loader-1"}, "transactional_id"),
        ({}, "transactions"),
    ],
    ids=repr,
)
def test_an_end_of_wrong_form_is_refused_with_its_field(body: Any, field: str) -> None:
    assert_refused(call("POST", END, value=body), "INVALID_REQUEST", field)


def test_a_note_takes_all_of_its_bytes_and_any_text() -> None:
    for version, note in enumerate(("x" * 1_024, "é" * 512, "", "\n\x00 Ω 𝄞")):
        wanted = {**ONCE, "version": version, "note": note}
        assert call("POST", END, value={"transactions": [], "result": "abort", "once": wanted}).status == 200
        assert once()["note"] == note


@pytest.mark.parametrize("timeout_ms", [0, -1, 86_400_001, "1", 1.0, True, None])
def test_an_extension_is_from_1_ms_to_a_day(timeout_ms: Any) -> None:
    producer = Producer()
    producer.produce("v")
    assert_refused(producer.post("extend", timeout_ms=timeout_ms), "INVALID_REQUEST", "timeout_ms")
    assert producer.post("extend", timeout_ms=86_400_000).status == 200
    assert_refused(producer.post("extend"), "INVALID_REQUEST", "timeout_ms")


@pytest.mark.parametrize("app_id", [".", "..", "a\x00b", "\n", "\x7f", "x" * 250, "é" * 125])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_application_in_a_path_is_judged_as_a_transactional_id(method: str, app_id: str) -> None:
    assert_refused(call(method, f"/v1/once/{app_id}"), "INVALID_REQUEST", "app_id")


@pytest.mark.parametrize("app_id", ["a%2Fb", "a+b c?#&", "Ω", "x" * 249, "..."])
def test_any_text_that_a_path_carries_may_name_an_application(app_id: str) -> None:
    raised = {"transactions": [], "result": "commit", "once": {**ONCE, "app_id": app_id}}
    assert call("POST", END, value=raised).status == 200
    assert (once(app_id)["app_id"], once(app_id)["version"]) == (app_id, 5)
    assert call("DELETE", f"/v1/once/{app_id}").status == 204


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH"])
def test_a_version_is_shown_and_forgotten_only(method: str) -> None:
    refused = call(method, "/v1/once/hourly")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, DELETE")
    refused = call(method, "/v1/once")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")


def test_a_query_is_refused_everywhere() -> None:
    for method, path in (("GET", "/v1/once/hourly"), ("DELETE", "/v1/once/hourly")):
        assert_refused(call(method, path, {"version": 1}), "INVALID_REQUEST", "version")
    assert_refused(call("POST", END, {"once": "x"}, value=WHOLE), "INVALID_REQUEST", "once")


def test_a_joint_end_beyond_the_limit_of_one_write_is_refused(service: wiring.Service) -> None:
    """Each member alone has room; one write would have more than it takes."""
    made = [Producer(f"large-{number:02d}") for number in range(12)]
    for one in made:
        one.produce("v")
        key = keys.transaction_item(one.transactional_id)
        stored = service.items.get([key])[key]
        padded = {**stored.value, "groups": [f"{number:03d}" + "g" * 246 for number in range(100)] * 11}
        service.items.write([Put(key, padded, stored.version + 1, stored.version)])
    answer = end(made, once=ONCE)
    assert_refused(answer, "INVALID_REQUEST", "transactions")
    assert once() == NONE
    assert call("GET", "/v1/transactions/large-00").json["state"] == "Ongoing"
