"""Transactional ids and applications have principals: others are refused, operators not (contract, "Principals")."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.ports import Put
from fenceline_http import wiring
from tests.support.http_events import Answer, event, send
from tests.support.http_transactions import ID
from tests.support.runtime import AheadRuntime

ALICE = "arn:aws:sts::111122223333:assumed-role/loader/start-1"
ALICE_LATER = "arn:aws:sts::111122223333:assumed-role/loader/start-2"
OTHERS = (
    "arn:aws:sts::111122223333:assumed-role/other/start-1",
    "arn:aws:sts::999999999999:assumed-role/loader/start-1",
    "arn:aws:iam::111122223333:user/loader",
)
MALLORY = OTHERS[0]
NO_ONE = ""
OF_ID = f"/v1/transactions/{ID}"
RECORDS = "/v1/topics/orders/partitions/0/records"
ABORT = "/v1/topics/orders/partitions/0/abort-transaction"
PLACE = {"topic": "orders", "partition": 0}
ONCE = {"app_id": "totals", "version": 1, "note": "alice's"}


@pytest.fixture
def runtime() -> AheadRuntime:
    return AheadRuntime()


@pytest.fixture(autouse=True)
def _topic(service: wiring.Service, topic: str) -> None:
    """Two partitions of `orders`."""


def ask(who: str, method: str, path: str, value: Any = None, query: str = "") -> Answer:
    """Send a request as a gateway does that authorizes by IAM; without a principal, as one that does not."""
    sent = event(method, path, query, body=None if value is None else json.dumps(value))
    if who:
        sent["requestContext"]["authorizer"] = {"iam": {"userArn": who}}
    return send(sent)


def init(who: str, name: str = ID, **more: Any) -> Answer:
    return ask(who, "POST", "/v1/producer-ids", {"transactional_id": name, **more})


def produce(who: str, pair: dict[str, int], partition: int = 0) -> Answer:
    body = {"records": [{"value": "v"}], "producer": {**pair, "sequence": 0}, "transactional_id": ID}
    return ask(who, "POST", f"/v1/topics/orders/partitions/{partition}/records", body)


def begun(who: str = ALICE) -> dict[str, int]:
    """Begin a transaction with a record in partition 0, and return its pair."""
    pair: dict[str, int] = init(who).json
    assert produce(who, pair).status == 200
    return pair


def shown(name: str = ID) -> dict[str, Any]:
    found: dict[str, Any] = ask(NO_ONE, "GET", f"/v1/transactions/{name}").json
    return found


def ids(who: str, path: str = "/v1/transactions", query: str = "") -> list[str]:
    return [one["transactional_id"] for one in ask(who, "GET", path, query=query).json["transactions"]]


def member(pair: dict[str, int], name: str = ID) -> dict[str, Any]:
    return {"transactional_id": name, **pair}


REQUESTS: dict[str, Callable[[str, dict[str, int]], Answer]] = {
    "id": lambda who, pair: init(who),
    "kept id": lambda who, pair: init(who, **pair),
    "partitions": lambda who, pair: ask(who, "POST", f"{OF_ID}/partitions", {**pair, "partitions": [PLACE]}),
    "unknown partitions": lambda who, pair: ask(
        who, "POST", f"{OF_ID}/partitions", {**pair, "partitions": [{"topic": "nope", "partition": 0}]}
    ),
    "groups": lambda who, pair: ask(who, "POST", f"{OF_ID}/groups", {**pair, "group": "g"}),
    "offsets": lambda who, pair: ask(
        who, "POST", f"{OF_ID}/offsets", {**pair, "group": "g", "offsets": [{**PLACE, "offset": 0}]}
    ),
    "extend": lambda who, pair: ask(who, "POST", f"{OF_ID}/extend", {**pair, "timeout_ms": 1_000}),
    "commit": lambda who, pair: ask(who, "POST", f"{OF_ID}/end", {**pair, "result": "commit"}),
    "abort": lambda who, pair: ask(who, "POST", f"{OF_ID}/end", {**pair, "result": "abort"}),
    "commit with once": lambda who, pair: ask(
        who, "POST", f"{OF_ID}/end", {**pair, "result": "commit", "once": {"app_id": "mine", "version": 0}}
    ),
    "ends": lambda who, pair: ask(
        who, "POST", "/v1/transactions/end", {"transactions": [member(pair)], "result": "commit"}
    ),
    "describe": lambda who, pair: ask(who, "GET", OF_ID),
    "produce elsewhere": lambda who, pair: produce(who, pair, partition=1),
    "abort hanging": lambda who, pair: ask(who, "POST", ABORT, pair),
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("is_out_of_time", [False, True], ids=["in time", "out of time"])
def test_no_request_of_another_principal_does_anything_to_an_id(
    request_: str, is_out_of_time: bool, runtime: AheadRuntime
) -> None:
    """Nor does it act upon a time-out: the caller is judged first."""
    pair = begun()
    before = shown()
    runtime.ahead_ms += 61_000 * is_out_of_time
    for who in OTHERS:
        refused = REQUESTS[request_](who, pair)
        assert (refused.status, refused.code, refused.json["next_step"]) == (403, "NOT_AUTHORIZED", "fix")
        assert "111122223333" not in refused.json["detail"]
    runtime.ahead_ms = 0
    assert shown() == before
    assert ask(ALICE_LATER, "POST", f"{OF_ID}/end", {**pair, "result": "commit"}).status == 200


@pytest.mark.parametrize("who", [ALICE, ALICE_LATER, NO_ONE])
@pytest.mark.parametrize("request_", [name for name in REQUESTS if name not in ("abort hanging", "offsets")])
def test_its_principal_may_do_all_under_any_session_name(request_: str, who: str) -> None:
    """So may a caller without authorization, as of a local server."""
    assert REQUESTS[request_](who, begun()).status in (200, 204)


def test_a_user_of_iam_is_a_principal_as_a_whole() -> None:
    user = "arn:aws:iam::111122223333:user/jobs/loader"
    pair = begun(user)
    assert init("arn:aws:iam::111122223333:user/jobs/other", **pair).code == "NOT_AUTHORIZED"
    assert init(user).status == 200


def test_a_repeat_of_an_end_is_answered_to_its_principal_alone() -> None:
    pair = begun()
    request = {**pair, "result": "commit"}
    ended = ask(ALICE, "POST", f"{OF_ID}/end", request).json
    assert ask(MALLORY, "POST", f"{OF_ID}/end", request).code == "NOT_AUTHORIZED"
    assert ask(ALICE_LATER, "POST", f"{OF_ID}/end", request).json == ended


def test_an_end_of_several_names_the_member_that_is_anothers_and_ends_none() -> None:
    pair = begun()
    mine = init(MALLORY, "mine").json
    place = {**mine, "partitions": [{"topic": "orders", "partition": 1}]}
    assert ask(MALLORY, "POST", "/v1/transactions/mine/partitions", place).status == 200
    body = {"transactions": [member(mine, "mine"), member(pair)], "result": "commit"}
    refused = ask(MALLORY, "POST", "/v1/transactions/end", body)
    assert (refused.code, refused.json["transactional_id"]) == ("NOT_AUTHORIZED", ID)
    assert shown("mine")["state"] == shown()["state"] == "Ongoing"


def test_a_member_that_would_be_passed_over_is_judged_too() -> None:
    pair = init(ALICE).json
    body = {"transactions": [member(pair)], "result": "abort", "once": {"app_id": "mine", "version": 0}}
    assert ask(MALLORY, "POST", "/v1/transactions/end", body).code == "NOT_AUTHORIZED"
    assert ask(MALLORY, "GET", "/v1/once/mine").json["version"] == -1


# Ids and applications without a principal


def test_an_id_without_a_principal_is_open_until_its_next_init() -> None:
    """Made by an older version, or by a process on the stores."""
    pair = begun(NO_ONE)
    assert ask(MALLORY, "GET", OF_ID).status == 200
    assert ask(MALLORY, "POST", f"{OF_ID}/extend", {**pair, "timeout_ms": 1_000}).status == 200
    assert ask(MALLORY, "POST", f"{OF_ID}/end", {**pair, "result": "commit"}).status == 200
    assert init(ALICE).status == 200
    assert init(MALLORY).code == "NOT_AUTHORIZED"
    assert init(NO_ONE).status == 200
    assert init(MALLORY).code == "NOT_AUTHORIZED"


def test_a_repeat_of_the_request_that_was_answered_takes_the_id_too() -> None:
    pair = init(NO_ONE).json
    kept = init(NO_ONE, **pair).json
    assert init(ALICE, **pair).json == kept
    assert init(MALLORY).code == "NOT_AUTHORIZED"


def test_an_older_process_keeps_the_principal(service: wiring.Service) -> None:
    """It puts back what it doesn't know."""
    begun()
    key = keys.transaction_item(ID)
    item = service.items.get([key])[key]
    assert item.value["principal"] == "arn:aws:sts::111122223333:assumed-role/loader"
    service.items.write([Put(key, {**item.value, "updated_at": 1}, item.version + 1, item.version)])
    assert init(MALLORY).code == "NOT_AUTHORIZED"


def test_without_a_principal_none_is_stored(service: wiring.Service) -> None:
    begun(NO_ONE)
    body = {"transactions": [], "result": "commit", "once": ONCE}
    assert ask(NO_ONE, "POST", "/v1/transactions/end", body).status == 200
    found = service.items.get([keys.transaction_item(ID), keys.once_item("totals")])
    assert not [one for one in found.values() if "principal" in one.value]


def test_an_application_belongs_to_the_principal_of_its_first_end() -> None:
    body: dict[str, Any] = {"transactions": [], "result": "commit", "once": ONCE}
    assert ask(ALICE, "POST", "/v1/transactions/end", body).status == 200
    mine = init(MALLORY, "mine").json
    raised = {**ONCE, "version": 9}
    for who, method, path, value in (
        (MALLORY, "POST", "/v1/transactions/end", {**body, "once": raised}),
        (MALLORY, "POST", "/v1/transactions/end", body),
        (MALLORY, "POST", "/v1/transactions/mine/end", {**mine, "result": "abort", "once": raised}),
        (MALLORY, "GET", "/v1/once/totals", None),
        (MALLORY, "DELETE", "/v1/once/totals", None),
    ):
        assert ask(who, method, path, value).code == "NOT_AUTHORIZED"
    assert ask(ALICE_LATER, "GET", "/v1/once/totals").json["version"] == 1
    assert ask(ALICE_LATER, "POST", "/v1/transactions/end", {**body, "once": {**ONCE, "version": 2}}).status == 200
    assert ask(MALLORY, "GET", "/v1/once/totals").code == "NOT_AUTHORIZED"
    assert [one["app_id"] for one in ask(ALICE_LATER, "GET", "/v1/once").json["versions"]] == ["totals"]
    assert ask(MALLORY, "GET", "/v1/once").json == {"versions": [], "has_more": False}
    assert ask(ALICE_LATER, "DELETE", "/v1/once/totals").status == 204
    assert ask(MALLORY, "POST", "/v1/transactions/end", body).status == 200
    assert ask(ALICE, "GET", "/v1/once/totals").code == "NOT_AUTHORIZED"


def test_an_application_without_a_principal_takes_that_of_the_next_end() -> None:
    body: dict[str, Any] = {"transactions": [], "result": "commit", "once": ONCE}
    assert ask(NO_ONE, "POST", "/v1/transactions/end", body).status == 200
    assert ask(MALLORY, "GET", "/v1/once/totals").json["version"] == 1
    assert ask(MALLORY, "POST", "/v1/transactions/end", body).code == "ALREADY_COMMITTED"
    assert ask(ALICE, "POST", "/v1/transactions/end", {**body, "once": {**ONCE, "version": 2}}).status == 200
    assert ask(MALLORY, "GET", "/v1/once/totals").code == "NOT_AUTHORIZED"


# Lists, and operators


def test_a_list_shows_a_caller_its_own_ids_and_an_operator_all() -> None:
    begun()
    given = init(MALLORY, "mine").json
    init(NO_ONE, "nobodys")
    assert ids(ALICE_LATER) == [ID, "nobodys"]
    assert ids(MALLORY) == ["mine", "nobodys"]
    assert ids(ALICE, query=f"producer_id={given['producer_id']}") == []
    assert ids(MALLORY, query=f"producer_id={given['producer_id']}") == ["mine"]
    assert ids(NO_ONE) == ids(MALLORY, "/v1/operator/transactions") == [ID, "mine", "nobodys"]
    assert ids(MALLORY, "/v1/operator/transactions", "state=Ongoing") == [ID]


def test_an_id_fenced_by_an_operator_has_no_principal() -> None:
    pair = begun()
    fenced = ask(MALLORY, "POST", f"/v1/operator/transactions/{ID}/fence")
    assert fenced.status == 200
    assert (fenced.json["before"]["state"], fenced.json["before"]["partitions"]) == ("Ongoing", [PLACE])
    assert fenced.json["producer_epoch"] == pair["producer_epoch"] + 1
    assert ask(ALICE, "POST", f"{OF_ID}/end", {**pair, "result": "commit"}).code == "PRODUCER_FENCED"
    given = {name: fenced.json[name] for name in pair}
    assert ask(ALICE, "POST", f"{OF_ID}/groups", {**given, "group": "g"}).code == "PRODUCER_FENCED"
    assert shown()["state"] == "CompleteAbort"
    page = ask(ALICE, "GET", RECORDS, query="offset=0&isolation=read_committed").json
    assert (page["records"], page["last_stable_offset"]) == ([], page["next_offset"])
    assert init(MALLORY).json["producer_epoch"] == pair["producer_epoch"] + 2
    assert init(ALICE).code == "NOT_AUTHORIZED"


def test_an_operator_fences_an_id_without_a_transaction_and_twice_does_no_more() -> None:
    pair = init(ALICE).json
    path = f"/v1/operator/transactions/{ID}/fence"
    first = ask(MALLORY, "POST", path).json
    assert (first["before"]["state"], first["producer_epoch"]) == ("Empty", pair["producer_epoch"] + 1)
    assert ask(MALLORY, "POST", path).json["producer_epoch"] == first["producer_epoch"]
    assert produce(ALICE, pair).code == "PRODUCER_FENCED"
    assert init(MALLORY).json["producer_epoch"] == pair["producer_epoch"] + 2
    assert ask(MALLORY, "POST", "/v1/operator/transactions/nobody/fence").code == "TRANSACTIONAL_ID_NOT_FOUND"


def test_an_operator_frees_an_id_that_a_time_out_has_fenced(runtime: AheadRuntime) -> None:
    begun()
    runtime.ahead_ms += 61_000
    assert shown()["state"] == "CompleteAbort"
    assert init(MALLORY).code == "NOT_AUTHORIZED"
    assert ask(MALLORY, "POST", f"/v1/operator/transactions/{ID}/fence").status == 200
    assert init(MALLORY).status == 200


def test_an_id_at_its_last_epoch_is_fenced_and_gets_a_new_producer_id(service: wiring.Service) -> None:
    pair = init(ALICE).json
    key = keys.transaction_item(ID)
    item = service.items.get([key])[key]
    service.items.write([Put(key, {**item.value, "producer_epoch": 32_766}, item.version + 1, item.version)])
    assert ask(MALLORY, "POST", f"/v1/operator/transactions/{ID}/fence").json["producer_epoch"] == 32_767
    given = init(MALLORY).json
    assert (given["producer_epoch"], given["producer_id"] != pair["producer_id"]) == (0, True)


def hanging(service: wiring.Service, pair: dict[str, int]) -> None:
    """Let what is open in the partition hang: its id goes on, as after damage."""
    key = keys.transaction_item(ID)
    item = service.items.get([key])[key]
    value = {**item.value, "state": "Empty", "producer_epoch": pair["producer_epoch"] + 1, "partitions": []}
    service.items.write([Put(key, value, item.version + 1, item.version)])


def test_only_an_operator_aborts_anothers_hanging_transaction(service: wiring.Service) -> None:
    pair = begun()
    hanging(service, pair)
    assert ask(MALLORY, "POST", ABORT, pair).code == "NOT_AUTHORIZED"
    assert ask(MALLORY, "POST", ABORT, {**pair, "producer_epoch": 7}).code == "NOT_AUTHORIZED"
    body = {**PLACE, **pair}
    assert ask(MALLORY, "POST", "/v1/operator/abort-transaction", body).status == 204
    assert ask(MALLORY, "POST", "/v1/operator/abort-transaction", body).code == "INVALID_TXN_STATE"


def test_a_principal_aborts_its_own_hanging_transaction(service: wiring.Service) -> None:
    pair = begun()
    hanging(service, pair)
    assert ask(ALICE_LATER, "POST", ABORT, pair).status == 204


@pytest.mark.parametrize(("topic", "partition"), [("nope", 0), ("orders", 2), ("a b", 0), ("", 0), ("orders", 2**62)])
def test_an_operator_gets_the_error_of_an_unknown_partition(topic: str, partition: int) -> None:
    body = {"topic": topic, "partition": partition, "producer_id": 1, "producer_epoch": 0}
    assert ask(MALLORY, "POST", "/v1/operator/abort-transaction", body).code == "UNKNOWN_TOPIC_OR_PARTITION"
