"""Every list comes in pages that pass the gateway, and all pages together are the whole list (contract, "Lists")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import limits
from fenceline.access.session_item import OwnedHold, SessionItem
from fenceline.answers import to_json
from fenceline.format.batch import encode
from fenceline.model.access import Hold, SessionState
from fenceline.model.record import Record
from fenceline.model.subscription import Cursor
from fenceline_http import responses
from fenceline_http.handlers.subscriptions import _part
from tests.support.http_events import BATCH_TYPE, GATEWAY_BYTES_MAX, Answer, call

pytestmark = pytest.mark.usefixtures("service", "topic")

PRODUCERS = "/v1/topics/orders/producers"
SUBSCRIPTIONS = "/v1/topics/orders/subscriptions"
OFFSETS = "/v1/groups/g/offsets"
SEGMENTS = "/v1/topics/orders/partitions/0/segments"
NAMES = [f"{letter}-{number}" for letter in "BA_a" for number in range(3)]  # in no order


def walk(path: str, after_of: Callable[[Any], Any], name: str = "start_after", **query: Any) -> list[Any]:
    """Return the pages of a list, each asked for from behind the one before it."""
    pages = [call("GET", path, query).json]
    while pages[-1]["has_more"]:
        pages.append(call("GET", path, {**query, name: after_of(pages[-1])}).json)
        assert len(pages) <= 100, "a page that leads nowhere"
    return pages


def last_name(member: str) -> Callable[[Any], Any]:
    return lambda page: page[member][-1]["name"]


def last_producer(page: Any) -> str:
    return max(one["producer_name"] for one in (*page["producers"], *page["waiting"]))


def last_place(page: Any) -> str:
    last = page["offsets"][-1]
    return f"{last['topic']}/{last['partition']}"


def claim(name: str, mode: str, partition: int = 0) -> Any:
    body = {"access_mode": mode, "producer_name": name, "partitions": [partition]}
    return call("POST", PRODUCERS, value=body).json["producer"]


def commit(topic: str, *partitions: int, metadata: str = "") -> Answer:
    offsets = [{"topic": topic, "partition": one, "offset": 0, "metadata": metadata} for one in partitions]
    return call("POST", OFFSETS, value={"offsets": offsets})


def members(pages: list[Any], member: str, name: str) -> list[Any]:
    return [one[name] for page in pages for one in page[member]]


# By count


def test_topics_in_pages_of_any_size_are_all_topics_by_name() -> None:
    for name in NAMES:
        call("POST", "/v1/topics", value={"name": name})
    for limit in (1, 2, 5, 100):
        pages = walk("/v1/topics", last_name("topics"), limit=limit)
        assert members(pages, "topics", "name") == sorted([*NAMES, "orders"])
        assert {len(page["topics"]) for page in pages[:-1]} <= {limit}


def test_subscriptions_in_pages_of_any_size_are_all_subscriptions_by_name() -> None:
    for name in NAMES:
        call("PUT", f"{SUBSCRIPTIONS}/{name}")
    for limit in (1, 5, 12, 13):
        pages = walk(SUBSCRIPTIONS, last_name("subscriptions"), limit=limit)
        assert members(pages, "subscriptions", "name") == sorted(NAMES)
        assert len(pages) == -(-len(NAMES) // limit)
    assert call("GET", SUBSCRIPTIONS, {"start_after": "a-2"}).json == {"subscriptions": [], "has_more": False}
    assert call("GET", SUBSCRIPTIONS, {"start_after": "z" * 3_000}).json == {"subscriptions": [], "has_more": False}


def test_producers_in_pages_are_those_of_the_whole_list_and_a_page_is_of_names() -> None:
    """Of holders and waiters the names are one sequence; in each list its own order stays."""
    claim("m", "Exclusive")
    for name in ("z", "b", "y"):  # in this order they wait
        claim(name, "WaitForExclusive")
    for name in ("a", "n"):
        claim(name, "Shared", 1)
    closed = claim("c", "Shared", 1)
    call("DELETE", f"{PRODUCERS}/c", {"session_id": closed["session_id"]})
    whole = call("GET", PRODUCERS).json
    assert [one["producer_name"] for one in whole["producers"]] == ["a", "m", "n"]
    assert [one["producer_name"] for one in whole["waiting"]] == ["z", "b", "y"]
    for limit in (1, 2, 3, 5, 6):
        pages = walk(PRODUCERS, last_producer, limit=limit)
        assert len(pages) == -(-6 // limit)
        assert [one for page in pages for one in page["producers"]] == whole["producers"]
        waiting = [one for page in pages for one in page["waiting"]]
        assert sorted(waiting, key=lambda one: one["queue_position"]) == whole["waiting"]
    page = call("GET", PRODUCERS, {"start_after": "m"}).json
    assert [one["producer_name"] for one in (*page["producers"], *page["waiting"])] == ["n", "z", "y"]


def test_a_groups_offsets_in_pages_are_those_of_the_whole_list_over_all_topics() -> None:
    call("POST", "/v1/topics", value={"name": "wide", "partitions": 120})
    call("POST", "/v1/topics", value={"name": "Wide", "partitions": 3})
    for topic, partitions in (("wide", range(90, 120)), ("wide", range(32)), ("orders", (1, 0)), ("Wide", (2,))):
        assert commit(topic, *partitions).status == 200
    places = [("Wide", 2), ("orders", 0), ("orders", 1), *(("wide", n) for n in (*range(32), *range(90, 120)))]
    for limit in (1, 2, 3, 40, 65, 1_000):
        pages = walk(OFFSETS, last_place, limit=limit)
        shown = [(one["topic"], one["partition"]) for page in pages for one in page["offsets"]]
        assert shown == places
        assert len(pages) == -(-len(places) // limit)
    pages = walk(OFFSETS, last_place, limit=7, topic="wide")
    assert members(pages, "offsets", "partition") == [*range(32), *range(90, 120)]
    assert call("GET", OFFSETS, {"start_after": "wide/100", "limit": 1}).json["offsets"][0]["partition"] == 101
    assert call("GET", OFFSETS, {"start_after": "wide/999999999"}).json == {"offsets": [], "has_more": False}
    assert call("GET", OFFSETS, {"start_after": "p/7", "limit": 1}).json["offsets"][0]["topic"] == "wide"
    for partition, found in ((4, []), (5, []), (6, [6])):
        query = {"topic": "wide", "partition": partition, "start_after": "wide/5"}
        assert [one["partition"] for one in call("GET", OFFSETS, query).json["offsets"]] == found


@pytest.mark.parametrize("start_after", ["orders", "orders/", "/0", "orders/x", "orders/-1", "orders/٣", "a b/0"])
def test_a_place_to_go_on_from_is_a_topic_and_a_partition(start_after: str) -> None:
    answer = call("GET", OFFSETS, {"start_after": start_after})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "start_after")


@pytest.mark.parametrize("path", ["/v1/topics", PRODUCERS, SUBSCRIPTIONS, OFFSETS])
def test_the_size_of_a_page_is_at_least_one_and_cut_to_a_thousand(path: str) -> None:
    for limit in (0, -1, "x"):
        answer = call("GET", path, {"limit": limit})
        assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "limit")
    for limit in (1_000, 1_001, 10**30):
        assert call("GET", path, {"limit": limit}).status == 200
    assert call("GET", path, {"start_behind": "a"}).json["field"] == "start_behind"


# By bytes


def test_a_groups_offsets_pass_the_gateway_with_the_longest_notes() -> None:
    """300 notes of 4,096 bytes that JSON writes sixfold are 7 MB."""
    call("PATCH", "/v1/topics/orders", value={"partitions": 300})
    for start in range(0, 300, 30):
        assert commit("orders", *range(start, start + 30), metadata="\x01" * 4_096).status == 200
    pages = walk(OFFSETS, last_place)
    assert members(pages, "offsets", "partition") == [*range(300)]
    assert len(pages) == 2


@pytest.mark.parametrize("room", [0, 130, 400])
def test_pages_of_any_size_are_the_whole_list(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        call("POST", "/v1/topics", value={"name": name})
        call("PUT", f"{SUBSCRIPTIONS}/{name}")
        claim(name, "WaitForExclusive", 1)
        commit(name, 0)
        call("POST", "/v1/topics/orders/partitions/0/records", value={"records": [{"value": name}]})
    whole = {path: call("GET", path).json for path in ("/v1/topics", SUBSCRIPTIONS, OFFSETS, SEGMENTS)}
    listed = call("GET", PRODUCERS).json
    monkeypatch.setattr(responses, "LIST_BYTES_MAX", room)
    for path, member, after_of, name in (
        ("/v1/topics", "topics", last_name("topics"), "start_after"),
        (SUBSCRIPTIONS, "subscriptions", last_name("subscriptions"), "start_after"),
        (OFFSETS, "offsets", last_place, "start_after"),
        (SEGMENTS, "segments", lambda page: page["segments"][-1]["next_offset"], "offset"),
    ):
        pages = walk(path, after_of, name)
        shown = [{**one, "url": None} for page in pages for one in page[member]]  # a URL has the time of its request
        assert shown == [{**one, "url": None} for one in whole[path][member]]
        assert all(len(responses.to_json(page[member])) <= max(room, 1) + 1 or len(page[member]) == 1 for page in pages)
        assert len(pages) > 1
    pages = walk(PRODUCERS, last_producer)
    names = [one["producer_name"] for page in pages for one in (*page["producers"], *page["waiting"])]
    assert sorted(names) == sorted(one["producer_name"] for one in (*listed["producers"], *listed["waiting"]))
    assert len(pages) > 1


def test_many_individual_acknowledgements_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{SUBSCRIPTIONS}/s"
    records = "/v1/topics/orders/partitions/0/records"
    call("POST", records, value={"records": [{"value": ""}] * 100})
    call("PUT", path, value={"initial_position": "earliest"})
    odd = [*range(1, 100, 2)]
    call("POST", f"{path}/acknowledgements", value={"partition": 0, "individual": odd})
    whole = call("GET", path).json
    assert "has_more" not in whole["partitions"][0]
    monkeypatch.setattr(responses, "LIST_BYTES_MAX", 1_000)
    pages = [call("GET", path).json]
    while pages[-1]["partitions"][-1].get("has_more"):
        assert pages[-1]["has_more"] is True
        end = pages[-1]["partitions"][-1]["individually_acknowledged"][-1][1]
        pages.append(call("GET", path, {"start_partition": 0, "start_offset": end}).json)
    shown = [one for page in pages for one in page["partitions"][0]["individually_acknowledged"]]
    assert shown == whole["partitions"][0]["individually_acknowledged"] == [[one, one + 1] for one in odd]
    assert len(pages) > 2
    assert [one["partition"] for one in pages[-1]["partitions"]] == [0, 1]
    assert pages[-1]["has_more"] is False
    assert {page["partitions"][0]["backlog"] for page in pages} == {50}


def test_the_parts_of_an_answer_are_of_as_many_ranges_as_pass() -> None:
    """Each of a million open ranges may have the largest offsets there are."""
    count = limits.CURSOR_RANGES_MAX
    ranges = [(2**63 - 2 * count + 2 * n, 2**63 - 2 * count + 2 * n + 1) for n in range(count)]
    cursor = to_json(_part(Cursor(9_999, 2**63 - 1, ranges, 2**63 - 1)))
    assert cursor["has_more"] is True
    assert len(responses.to_json(cursor)) < responses.LIST_BYTES_MAX
    assert len(cursor["individually_acknowledged"]) > 90_000


@pytest.mark.parametrize(
    ("group", "resource"), [("\x01" * 249, "\x01" * 1_024), (None, "\x01\x02\x03"), ("g", "a"), (None, "\x7f" * 1_024)]
)
def test_holds_of_a_session_fit_one_answer_because_they_fit_one_item(group: str | None, resource: str) -> None:
    """Names in JSON have six times the bytes that they have in the item, at most, and it has 400 KB."""
    owned = OwnedHold(group, resource, "")
    in_item = 9 + len(group or "") + len(resource)  # as DynamoDB counts: three of the list, two for each member
    count = limits.ITEM_BYTES_MAX // in_item
    session = SessionItem("0" * 32, "", 30_000, 0, 0, owns=(owned,) * count)
    shown = SessionState(
        "0" * 32, 30_000, 0, "x" * 256, 0, "live", [Hold(one.group, one.resource) for one in session.owns]
    )
    body = responses.to_json(to_json(shown))
    assert len(body.encode()) < limits.REPLY_BYTES_MAX


def test_a_record_that_no_answer_could_carry_is_refused_as_json_and_read_as_a_batch() -> None:
    path = "/v1/topics/orders/partitions/0/records"
    body = encode([Record(b"a" * 8_000_000), Record(b"b")], now_ms=0, codec="gzip").body
    call("POST", path, headers={"content-type": BATCH_TYPE}, body=body)
    answer = call("GET", path, "offset=0")
    assert (answer.code, answer.json["bytes_max"]) == ("MESSAGE_TOO_LARGE", 6_000_000)
    assert call("GET", path, "offset=1").json["records"][0]["value"] == "b"
    assert len(call("GET", path, "offset=0", headers={"accept": BATCH_TYPE}).body) == len(body)
    call("PUT", f"{SUBSCRIPTIONS}/s", value={"initial_position": "earliest"})
    assert call("GET", f"{SUBSCRIPTIONS}/s/records").code == "MESSAGE_TOO_LARGE"


def test_a_page_of_what_json_escapes_passes_the_gateway() -> None:
    """The gateway is given the page as a string in JSON: there a quote that was escaped has four characters."""
    path = "/v1/topics/orders/partitions/0/records"
    call("PATCH", "/v1/topics/orders", value={"config": {"max.message.bytes": limits.MESSAGE_BYTES_MAX}})
    for _ in range(2):
        assert call("POST", path, value={"records": [{"value": '"' * 1_000_000}]}).status == 200
    answer = call("GET", path, "offset=0&max_bytes=4194304")
    assert [record["value"] for record in answer.json["records"]] == ['"' * 1_000_000] * 2
    assert 4_000_000 < len(answer.body) < limits.REPLY_BYTES_MAX < GATEWAY_BYTES_MAX
