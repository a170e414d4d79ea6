"""Contract, "Sessions and producers", over HTTP: shapes, statuses, forms, and whose session it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.format import keys
from fenceline.ports import Put
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring
from tests.support.http_events import BATCH_TYPE, Answer, call, event, send
from tests.support.runtime import FakeRuntime

PRODUCERS = "/v1/topics/orders/producers"
RECORDS = "/v1/topics/orders/partitions/0/records"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRuntime]:
    """A service whose wall clock is moved by hand, with the topic."""
    runtime = FakeRuntime()
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms)
    items = SqliteItemStore(":memory:")
    log = Log(objects, items, runtime, region="local", item_age_ms=0)
    made = wiring.Service(Settings(":memory:", item_age_ms=0), log, objects, items, ThreadRuntime(), "0.0.0")
    monkeypatch.setattr(wiring, "service", lambda: made)
    assert call("POST", "/v1/topics", value={"name": "orders", "partitions": 2}).status == 201
    yield runtime
    made.close()


pytestmark = pytest.mark.usefixtures("service", "topic")


def create(**options: Any) -> dict[str, Any]:
    answer = call("POST", "/v1/sessions", value=options)
    assert answer.status == 201
    made: dict[str, Any] = answer.json
    return made


def claim(mode: str = "Exclusive", **options: Any) -> Answer:
    return call("POST", PRODUCERS, value={"access_mode": mode, **options})


def granted(mode: str = "Exclusive", **options: Any) -> dict[str, Any]:
    answer = claim(mode, **options)
    assert answer.status == 201, answer.json
    producer: dict[str, Any] = answer.json["producer"]
    return producer


def produce(producer: dict[str, Any], epoch: int | None = None) -> Answer:
    session = {
        "session_id": producer["session_id"],
        "topic_epoch": producer["topic_epochs"]["0"] if epoch is None else epoch,
    }
    return call("POST", RECORDS, value={"records": [{"value": "v"}], "session": session})


def of(producer: dict[str, Any]) -> str:
    return f"{PRODUCERS}/{producer['producer_name']}"


def as_principal(arn: str, method: str, path: str, query: str = "", value: Any = None) -> Answer:
    """Send a request as a gateway that authorizes by IAM does."""
    sent = event(method, path, query, body=None if value is None else json.dumps(value))
    sent["requestContext"]["authorizer"] = {"iam": {"userArn": arn, "accountId": "1"}}
    return send(sent)


# Sessions


def test_a_session_is_created_shown_renewed_and_closed() -> None:
    made = create()
    assert set(made) == {"session_id", "lease_ms", "expires_at"}
    assert made["lease_ms"] == 30_000
    path = f"/v1/sessions/{made['session_id']}"
    since = made["expires_at"] - 30_000
    assert call("GET", path).json == {**made, "client_name": None, "since": since, "state": "live", "holds": []}
    renewed = call("POST", f"{path}/heartbeat")
    assert (renewed.status, set(renewed.json)) == (200, {"expires_at"})
    assert renewed.json["expires_at"] >= made["expires_at"]
    for _ in range(2):
        closed = call("DELETE", path)
        assert (closed.status, closed.body) == (204, b"")
    assert call("GET", path).json["state"] == "closed"
    assert call("POST", f"{path}/heartbeat").code == "SESSION_EXPIRED"


def test_no_body_is_an_empty_one() -> None:
    assert call("POST", "/v1/sessions").status == 201
    assert call("POST", "/v1/sessions", value={"lease_ms": None}).status == 201
    path = f"/v1/sessions/{create()['session_id']}/heartbeat"
    assert call("POST", path, value={}).status == 200


@pytest.mark.parametrize("lease_ms", [999, 300_001, 0, -1, True, "1000", 1.5])
def test_a_lease_is_from_a_second_to_five_minutes(lease_ms: Any) -> None:
    answer = call("POST", "/v1/sessions", value={"lease_ms": lease_ms})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "lease_ms")
    answer = claim(lease_ms=lease_ms)
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "lease_ms")


@pytest.mark.parametrize("lease_ms", [1_000, 300_000])
def test_its_bounds_are_legal(lease_ms: int) -> None:
    assert create(lease_ms=lease_ms)["lease_ms"] == lease_ms


@pytest.mark.parametrize("session_id", ["0" * 32, "nobody", "%2e%2e", "x" * 2_000])
def test_a_session_id_that_was_never_granted_is_unknown(session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    calls = [("GET", path), ("POST", f"{path}/heartbeat"), ("DELETE", path)]
    assert [call(*one).code for one in calls] == ["UNKNOWN_SESSION"] * 3
    assert claim(session_id=session_id).code == "UNKNOWN_SESSION"
    assert call("DELETE", f"{PRODUCERS}/p", {"session_id": session_id}).code == "UNKNOWN_SESSION"
    assert call("GET", f"{PRODUCERS}/p", {"session_id": session_id}).code == "UNKNOWN_SESSION"


# Claims


def test_a_claim_is_answered_with_its_producer() -> None:
    producer = granted(partitions=[1, 0], producer_name="p-1", lease_ms=60_000)
    assert set(producer) == {
        "producer_name",
        "session_id",
        "access_mode",
        "state",
        "topic_epochs",
        "next_offsets",
        "expires_at",
        "client_name",
        "since",
        "partitions",
    }
    assert (producer["producer_name"], producer["state"], producer["access_mode"]) == ("p-1", "granted", "Exclusive")
    assert (producer["topic_epochs"], producer["next_offsets"]) == ({"0": 0, "1": 0}, {"0": 1, "1": 1})
    session = call("GET", f"/v1/sessions/{producer['session_id']}").json
    assert (session["lease_ms"], session["expires_at"]) == (60_000, producer["expires_at"])
    assert session["holds"] == [{"group": None, "resource": "orders/0"}, {"group": None, "resource": "orders/1"}]
    assert call("GET", of(producer)).json == {"producer": producer}
    assert call("GET", PRODUCERS).json == {"producers": [producer], "waiting": [], "has_more": False}


def test_a_name_left_out_is_made_up() -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", granted()["producer_name"])


def test_a_waiter_is_accepted_polled_and_granted() -> None:
    holder = granted()
    answer = claim("WaitForExclusive")
    assert answer.status == 202
    waiter = answer.json["producer"]
    assert (waiter["state"], waiter["queue_position"]) == ("queued", 0)
    assert waiter["partitions"] == [0, 1]
    assert (waiter["topic_epochs"], waiter["next_offsets"]) == ({}, {})
    assert call("GET", PRODUCERS).json == {"producers": [holder], "waiting": [waiter], "has_more": False}
    poll = {"session_id": waiter["session_id"], "wait_ms": 1}
    assert call("GET", of(waiter), poll).json["producer"]["state"] == "queued"
    assert call("DELETE", of(holder), {"session_id": holder["session_id"]}).status == 204
    polled = call("GET", of(waiter), poll).json["producer"]
    assert (polled["state"], polled["topic_epochs"]) == ("granted", {"0": 1, "1": 1})
    assert "queue_position" not in polled
    assert claim("WaitForExclusive", session_id=waiter["session_id"]).status == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "access_mode"),
        ({"access_mode": "exclusive"}, "access_mode"),
        ({"access_mode": 1}, "access_mode"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": []}, "partitions"),
        ({"partitions": [0, 0]}, "partitions"),
        ({"partitions": [-1]}, "partitions[0]"),
        ({"partitions": ["0"]}, "partitions[0]"),
        ({"partitions": list(range(33))}, "partitions"),
        ({"producer_name": ""}, "producer_name"),
        ({"producer_name": "a b"}, "producer_name"),
        ({"producer_name": 1}, "producer_name"),
        ({"session_id": 1}, "session_id"),
        ({"session_id": "0" * 32, "lease_ms": 30_000}, "lease_ms"),
        ({"session_id": "0" * 32, "client_name": "web-3:4711"}, "client_name"),
        ({"topic_epochs": {"0": 0}}, "topic_epochs"),
        ({"topic_epochs": {}, "session_id": "0" * 32}, "topic_epochs"),
        ({"topic_epochs": [0], "session_id": "0" * 32}, "topic_epochs"),
        ({"topic_epochs": {"0": -2}, "session_id": "0" * 32}, "topic_epochs.0"),
        ({"topic_epochs": {"0": "1"}, "session_id": "0" * 32}, "topic_epochs.0"),
        ({"topic_epochs": {"00": 1}, "session_id": "0" * 32}, "topic_epochs.00"),
        ({"topic_epochs": {"-1": 1}, "session_id": "0" * 32}, "topic_epochs.-1"),
        ({"topic_epochs": {"0": 1}, "partitions": [0, 1], "session_id": "0" * 32}, "topic_epochs"),
        ({"wait_ms": 20_001}, "wait_ms"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"generation": 1}, "generation"),
    ],
)
def test_the_form_of_a_claim_is_judged_first(body: dict[str, Any], field: str) -> None:
    mode = {} if not body or "access_mode" in body else {"access_mode": "Exclusive"}
    answer = call("POST", PRODUCERS, value={**mode, **body})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)


def test_on_a_wide_topic_partitions_are_required() -> None:
    assert call("POST", "/v1/topics", value={"name": "wide", "partitions": 33}).status == 201
    answer = call("POST", "/v1/topics/wide/producers", value={"access_mode": "Shared"})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "partitions")
    answer = call("POST", "/v1/topics/wide/producers", value={"access_mode": "Shared", "partitions": [32]})
    assert answer.json["producer"]["topic_epochs"] == {"32": -1}


def test_null_is_left_out() -> None:
    names = ("partitions", "producer_name", "session_id", "lease_ms", "client_name", "topic_epochs", "wait_ms")
    assert claim(**dict.fromkeys(names)).status == 201


def test_an_unknown_topic_or_partition() -> None:
    body = {"access_mode": "Shared"}
    for name in ("nobodys", "no legal name"):
        path = f"/v1/topics/{name}/producers"
        calls = [
            call("POST", path, value=body),
            call("GET", path),
            call("GET", f"{path}/p"),
            call("DELETE", f"{path}/p", "session_id=s"),
        ]
        assert [one.code for one in calls] == ["UNKNOWN_TOPIC_OR_PARTITION"] * 4
    assert claim(partitions=[2]).code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert claim(partitions=[10**15]).code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_fenced_and_busy_say_what_is_in_force() -> None:
    holder = granted(partitions=[0])
    fenced = claim(partitions=[0, 1])
    assert (fenced.status, fenced.code, fenced.json["next_step"]) == (409, "PRODUCER_FENCED", "fix")
    assert fenced.json["topic_epochs"] == {"0": 0, "1": -1}
    busy = claim("Shared", partitions=[0])
    assert (busy.status, busy.code, busy.json["next_step"]) == (409, "PRODUCER_BUSY", "fix")
    granted("ExclusiveWithFencing", partitions=[0])
    late = produce(holder)
    assert (late.code, late.json["topic_epoch"]) == ("PRODUCER_FENCED", 1)
    shown = call("GET", of(holder))
    assert (shown.code, shown.json["topic_epochs"]) == ("PRODUCER_FENCED", {"0": 1})


def test_epochs_beyond_what_a_partition_has_are_fenced() -> None:
    holder = granted(partitions=[0])
    for epoch in (1, 2**31 - 1, limits.INT64_MAX):
        answer = claim(session_id=holder["session_id"], topic_epochs={"0": epoch})
        assert (answer.code, answer.json["topic_epochs"]) == ("PRODUCER_FENCED", {"0": 0})
        assert produce(holder, epoch).code == "PRODUCER_FENCED"


def test_deleting_needs_the_session() -> None:
    holder = granted()
    assert call("DELETE", of(holder)).json["field"] == "session_id"
    refused = call("DELETE", of(holder), {"session_id": create()["session_id"]})
    assert (refused.code, refused.json["topic_epochs"]) == ("PRODUCER_FENCED", holder["topic_epochs"])
    assert call("DELETE", f"{PRODUCERS}/nobody", {"session_id": holder["session_id"]}).code == "UNKNOWN_PRODUCER"
    for _ in range(2):
        assert call("DELETE", of(holder), {"session_id": holder["session_id"]}).status == 204
    assert call("GET", of(holder)).code == "UNKNOWN_PRODUCER"
    assert claim("Shared").status == 201


# Produce under a session


def test_json_batches_binary_ones_and_several_go_under_a_session() -> None:
    from fenceline.format.batch import encode
    from fenceline.model.record import Record

    holder = granted()
    assert produce(holder).json["topic_epoch"] == 0
    assert call("POST", RECORDS, value={"records": [{"value": "x"}]}).code == "PRODUCER_BUSY"
    body = encode([Record(b"b")], now_ms=1).body
    named = {"session_id": holder["session_id"], "topic_epoch": 0}
    binary = call("POST", RECORDS, named, headers={"content-type": BATCH_TYPE}, body=body)
    assert (binary.status, binary.json["topic_epoch"]) == (200, 0)
    entries = [
        {"topic": "orders", "partition": 0, "records": [{"value": "c"}], "session": named},
        {"topic": "orders", "partition": 1, "records": [{"value": "d"}]},
    ]
    results = call("POST", "/v1/produce", value={"partitions": entries}).json["results"]
    assert (results[0]["topic_epoch"], results[1]["error"]["code"]) == (0, "PRODUCER_BUSY")
    records = call("GET", RECORDS, "offset=0").json["records"]
    assert [(one["value"], one["topic_epoch"]) for one in records] == [("v", 0), ("b", 0), ("c", 0)]
    offsets = call("GET", RECORDS.replace("records", "offsets")).json
    assert (offsets["topic_epoch"], offsets["access_mode"]) == (0, "Exclusive")


def test_a_topic_epoch_of_minus_1_is_that_before_the_first_exclusive_grant() -> None:
    shared = granted("Shared")
    assert shared["topic_epochs"] == {"0": -1, "1": -1}
    assert produce(shared).json["topic_epoch"] == -1


# The session's owner


def test_a_session_belongs_to_the_principal_who_created_it() -> None:
    me, you = "arn:aws:iam::1:user/me", "arn:aws:iam::1:user/you"
    made = as_principal(me, "POST", "/v1/sessions").json
    path = f"/v1/sessions/{made['session_id']}"
    answer = as_principal(me, "POST", PRODUCERS, value={"access_mode": "Exclusive", "session_id": made["session_id"]})
    mine = answer.json["producer"]
    named = {"session_id": made["session_id"], "topic_epoch": 0}
    records = {"records": [{"value": "v"}], "session": named}
    entries = {"partitions": [{"topic": "orders", "partition": 0, **records}]}
    query = f"session_id={made['session_id']}"
    for other in (you, None):

        def ask(*request: Any, other: str | None = other, **options: Any) -> Answer:
            return call(*request, **options) if other is None else as_principal(other, *request, **options)

        refused = [
            ask("GET", path),
            ask("POST", f"{path}/heartbeat"),
            ask("DELETE", path),
            ask("POST", PRODUCERS, value={"access_mode": "Shared", "session_id": made["session_id"]}),
            ask("GET", of(mine), query),
            ask("DELETE", of(mine), query),
            ask("POST", RECORDS, value=records),
        ]
        assert [one.code for one in refused] == ["NOT_AUTHORIZED"] * len(refused)
        assert ask("POST", "/v1/produce", value=entries).json["results"][0]["error"]["code"] == "NOT_AUTHORIZED"
        shown = ask("GET", PRODUCERS).json["producers"]
        assert shown == [{**mine, "session_id": made["session_id"][:8]}]
        assert ask("GET", of(mine)).json["producer"]["session_id"] == made["session_id"][:8]
    assert as_principal(me, "GET", PRODUCERS).json["producers"] == [mine]
    assert as_principal(me, "POST", RECORDS, value=records).status == 200
    assert as_principal(me, "DELETE", path).status == 204


def test_a_producer_is_deleted_twice_though_its_name_was_taken_between() -> None:
    mine = granted(producer_name="p")
    assert call("DELETE", of(mine), {"session_id": mine["session_id"]}).status == 204
    theirs = granted(producer_name="p")
    again = call("DELETE", of(mine), {"session_id": mine["session_id"]})
    assert (again.status, again.body) == (204, b"")
    assert produce(theirs).status == 200
    assert call("DELETE", of(mine), {"session_id": create()["session_id"]}).code == "PRODUCER_FENCED"


# How it is called


@pytest.mark.parametrize("name", ["w", "web-3:4711", "a b", "узел 3", "x" * 256, "é" * 128])
def test_a_session_shows_the_name_that_its_client_gave_it(name: str) -> None:
    shown = call("GET", f"/v1/sessions/{create(client_name=name)['session_id']}").json
    assert (shown["client_name"], shown["expires_at"] - shown["since"]) == (name, 30_000)
    producer = granted(client_name=name, partitions=[0])
    assert producer["client_name"] == name
    assert call("GET", f"/v1/sessions/{producer['session_id']}").json["client_name"] == name
    assert call("GET", "/v1/own", {"resource": "orders/0"}).json["client_name"] == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 257,
        "é" * 129,
        "a\nb",
        "a\n",
        "\x1b[2J",
        "\x00",
        "\x7f",
        "\x9b2J",
        "\u2028",
        "\u061c",
        "\u200e",
        "\u200f",
        "\u202e",
        "\u2066",
        7,
        True,
        {},
    ],
)
def test_a_name_is_text_of_1_to_256_bytes_without_control_characters(name: Any) -> None:
    for answer in (call("POST", "/v1/sessions", value={"client_name": name}), claim(client_name=name)):
        assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "client_name")
    assert call("GET", PRODUCERS).json == {"producers": [], "waiting": [], "has_more": False}


def test_a_producer_shows_since_when_it_is_granted_or_queued(clock: FakeRuntime) -> None:
    session = create(client_name="web-3:4711", lease_ms=300_000)["session_id"]
    clock.advance(1_000)
    holder = granted(session_id=session)
    assert (holder["client_name"], holder["since"]) == ("web-3:4711", clock.now_ms())
    first = clock.now_ms()
    clock.advance(1_000)
    waiter = claim("WaitForExclusive", client_name="web-4:1", lease_ms=300_000).json["producer"]
    assert (waiter["client_name"], waiter["since"]) == ("web-4:1", clock.now_ms())
    clock.advance(1_000)
    assert granted(session_id=session)["since"] == first  # the same claim again
    listed = call("GET", PRODUCERS).json
    assert [(one["client_name"], one["since"]) for one in (*listed["producers"], *listed["waiting"])] == [
        ("web-3:4711", first),
        ("web-4:1", first + 1_000),
    ]
    assert (
        call("GET", "/v1/own", {"resource": "orders/0"}).json.items()
        >= {"client_name": "web-3:4711", "since": first, "until": holder["expires_at"]}.items()
    )
    call("DELETE", of(holder), {"session_id": session})
    polled = call("GET", of(waiter), {"session_id": waiter["session_id"]}).json["producer"]
    assert (polled["state"], polled["since"]) == ("granted", clock.now_ms())


def test_a_producer_that_takes_a_lost_partition_again_is_granted_since_it_has_the_others(clock: FakeRuntime) -> None:
    holder = granted(lease_ms=300_000)
    clock.advance(1_000)
    fencer = granted("ExclusiveWithFencing", partitions=[1])
    call("DELETE", of(fencer), {"session_id": fencer["session_id"]})
    clock.advance(1_000)
    again = granted(session_id=holder["session_id"], producer_name=holder["producer_name"])
    assert (again["topic_epochs"], again["since"]) == ({"0": 0, "1": 2}, holder["since"])


def test_a_refusal_names_the_holding_session_and_client() -> None:
    holder = granted(client_name="web-3:4711", producer_name="p", partitions=[0])
    append = call("POST", RECORDS, value={"records": [{"value": "x"}]})
    for refused in (claim("Shared", partitions=[0]), claim("Shared", partitions=[1], producer_name="p"), append):
        assert refused.code == "PRODUCER_BUSY"
        assert f" session_id={holder['session_id'][:8]} " in refused.json["detail"]
        assert refused.json["detail"].endswith(" client_name=web-3:4711")
        assert holder["session_id"] not in refused.json["detail"]


def test_another_principal_sees_the_name_and_no_more_of_the_session_than_before() -> None:
    me, you = "arn:aws:iam::1:user/me", "arn:aws:iam::1:user/you"
    value = {"access_mode": "Exclusive", "client_name": "web-3:4711", "partitions": [0]}
    mine = as_principal(me, "POST", PRODUCERS, value=value).json["producer"]
    (listed,) = as_principal(you, "GET", PRODUCERS).json["producers"]
    assert listed == {**mine, "session_id": mine["session_id"][:8]}
    shown = as_principal(you, "GET", "/v1/own", "resource=orders/0").json
    assert (shown["client_name"], shown["session_id"]) == ("web-3:4711", mine["session_id"][:8])


def test_a_lapsed_waiter_is_refused_to_another_principal_by_the_beginning_of_its_session(clock: FakeRuntime) -> None:
    me, you = "arn:aws:iam::1:user/me", "arn:aws:iam::1:user/you"
    as_principal(you, "POST", PRODUCERS, value={"access_mode": "Exclusive", "producer_name": "h", "partitions": [0]})
    value = {"access_mode": "WaitForExclusive", "producer_name": "w", "partitions": [0], "lease_ms": 10_000}
    waiter = as_principal(me, "POST", PRODUCERS, value=value).json["producer"]
    clock.advance(20_000)
    shown, own = as_principal(you, "GET", of(waiter)), as_principal(me, "GET", of(waiter))
    assert (shown.code, own.code) == ("SESSION_EXPIRED", "SESSION_EXPIRED")
    assert f"session_id={waiter['session_id'][:8]} " in shown.json["detail"]
    assert f"session_id={waiter['session_id']} " in own.json["detail"]


def test_a_severed_producer_is_refused_to_another_principal_by_the_beginning_of_its_session() -> None:
    me, you = "arn:aws:iam::1:user/me", "arn:aws:iam::1:user/you"
    value = {"access_mode": "Exclusive", "producer_name": "g", "partitions": [0]}
    severed = as_principal(me, "POST", PRODUCERS, value=value).json["producer"]
    theirs = as_principal(you, "POST", "/v1/sessions", value={}).json
    for who, session, generation in ((me, severed, 1), (you, theirs, 2)):
        lock = {"resource": "lock", "generation": generation}
        owned = as_principal(who, "POST", "/v1/own", value={"session_id": session["session_id"], "resources": [lock]})
        assert owned.status == 200
    shown, own = as_principal(you, "GET", of(severed)), as_principal(me, "GET", of(severed))
    assert (shown.code, own.code) == ("SESSION_SEVERED", "SESSION_SEVERED")
    assert shown.json["detail"].endswith(f"session_id={severed['session_id'][:8]}")
    assert own.json["detail"].endswith(f"session_id={severed['session_id']}")


def test_older_items_without_names_are_shown_without(service: wiring.Service) -> None:
    holder = granted(producer_name="p", client_name="web-3:4711", partitions=[0])
    topic_id = call("GET", "/v1/topics/orders").json["topic_id"]
    named = keys.session_item(holder["session_id"]), keys.named_producer_item(topic_id, "p")
    for key, members in zip(named, (("client_name",), ("since",)), strict=True):
        item = service.items.get([key])[key]
        value = {name: member for name, member in item.value.items() if name not in members}
        assert len(value) < len(item.value)
        service.items.write([Put(key, value, item.version + 1, item.version)])
    assert call("GET", of(holder)).json == {"producer": {**holder, "client_name": None, "since": None}}
    assert call("GET", "/v1/own", {"resource": "orders/0"}).json.items() >= {"client_name": None, "since": None}.items()
    assert call("GET", f"/v1/sessions/{holder['session_id']}").json["client_name"] is None
    assert produce(holder).status == 200


# Lists


def test_live_sessions_are_listed_with_how_many_they_hold() -> None:
    assert call("GET", "/v1/sessions").json == {"sessions": [], "has_more": False}
    made = [create(client_name=f"web-{n}") for n in range(3)]
    call("DELETE", f"/v1/sessions/{made[0]['session_id']}")
    holder = made[1]["session_id"]
    claimed = call("POST", PRODUCERS, value={"access_mode": "Exclusive", "partitions": [0], "session_id": holder})
    assert claimed.status == 201
    expected = []
    for n, one in enumerate(made[1:], 1):
        shown = call("GET", f"/v1/sessions/{one['session_id']}").json
        times = {"since": shown["since"], "expires_at": shown["expires_at"]}
        holds = len(shown["holds"])
        expected.append({"session_id": one["session_id"], "client_name": f"web-{n}", **times, "holds": holds})
    expected.sort(key=lambda one: str(one["session_id"]))
    assert call("GET", "/v1/sessions").json == {"sessions": expected, "has_more": False}
    assert sorted(one["holds"] for one in expected) == [0, 1]

    first = call("GET", "/v1/sessions", {"limit": 1}).json
    assert first == {"sessions": expected[:1], "has_more": True}
    after = first["sessions"][0]["session_id"]
    for start_after in (after, after[:8]):
        rest = call("GET", "/v1/sessions", {"limit": 1, "start_after": start_after}).json
        assert rest == {"sessions": expected[1:], "has_more": False}


def test_another_principal_lists_the_beginnings_of_sessions_and_goes_on_after_them() -> None:
    me, you = "arn:aws:iam::1:user/me", "arn:aws:iam::1:user/you"
    mine = sorted(as_principal(me, "POST", "/v1/sessions").json["session_id"] for _ in range(4))
    assert [one["session_id"] for one in as_principal(me, "GET", "/v1/sessions").json["sessions"]] == mine
    seen: list[str] = []
    for _ in mine:
        after = f"&start_after={seen[-1]}" if seen else ""
        page = as_principal(you, "GET", "/v1/sessions", f"limit=1{after}").json
        seen += [one["session_id"] for one in page["sessions"]]
    assert (seen, page["has_more"]) == ([one[:8] for one in mine], False)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/locks", "/v1/once"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": -1}, "limit"),
        ({"limit": "all"}, "limit"),
        ({"topic": "orders"}, "topic"),
    ],
)
def test_a_list_refuses_what_it_cannot_answer(path: str, query: dict[str, Any], field: str) -> None:
    answer = call("GET", path, query)
    assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", field)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/locks", "/v1/once"])
@pytest.mark.parametrize("start_after", ["", "z" * 300, "~", "é" * 300, "ABC", "\x00", "a/b", "%", "ﬀ"])
def test_a_list_begins_after_any_text(path: str, start_after: str) -> None:
    create()
    answer = call("GET", path, {"start_after": start_after, "limit": 1_000_000})
    assert (answer.status, answer.json["has_more"]) == (200, False)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/locks", "/v1/once"])
def test_a_list_begins_after_no_half_character(path: str) -> None:
    assert call("GET", path, "start_after=%ff").code == "INVALID_REQUEST"
