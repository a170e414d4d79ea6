"""The requests about groups: what is asked, what each answer becomes, and what follows a lost answer."""

import json

import httpx
import pytest

from fenceline import errors
from fenceline.client import Client
from fenceline.client.types import CommittedOffset
from fenceline.model.group import GroupEntry, GroupMember, HeldPartition, HeldTopic, Membership, NamedPartitions
from fenceline.model.transaction import ProducerPair
from tests.support.runtime import AheadRuntime
from tests.support.wire import refused

HELD = [{"topic": "orders", "topic_id": "id", "partitions": [{"partition": 3, "since": 4, "token": 7}]}]
MEMBERSHIP = {
    "member_id": "m",
    "member_epoch": 4,
    "heartbeat_interval_ms": 500,
    "expires_at": 9,
    "partitions": HELD,
    "is_settled": False,
}
ENTRY = {
    "group": "g",
    "type": "native",
    "state": "Stable",
    "epoch": 4,
    "assignor": "uniform",
    "topics": ["orders"],
    "member_count": 2,
    "updated_at": 8,
}
MEMBER = {
    "instance_id": None,
    "client_name": "w",
    "client_host": None,
    "member_epoch": 4,
    "expires_at": 9,
    "session_timeout_ms": 45_000,
    "is_away": False,
    "partitions": HELD,
    "asked": [],
    "target": [{"topic": "orders", "topic_id": "id", "partitions": [3]}],
}
WHO = {"member_id": "m", "member_epoch": 4}
PAGE = {"encoding": "base64", "records": [], "position": 0, "log_start_offset": 0}
PAGE |= {"next_offset": 0, "last_stable_offset": 0}


def client_of(*script, **options):
    """Return a client whose requests are answered by ``script`` in order; and what it asked."""
    asked = []

    def answer(request):
        path, _, query = request.url.raw_path.decode().partition("?")
        asked.append((request.method, path, query, json.loads(request.content) if request.content else None))
        item = script[min(len(asked), len(script)) - 1]
        if isinstance(item, Exception):
            raise item
        return item

    return Client("http://fake", runtime=AheadRuntime(), http=httpx.MockTransport(answer), **options), asked


def ok(body, status=200):
    return httpx.Response(status, json=body)


def test_a_join_says_what_the_member_reads_and_answers_what_it_works_on():
    client, asked = client_of(ok(MEMBERSHIP), client_name="host:1")
    membership = client.group_heartbeat(
        "g",
        "m",
        0,
        topics=("orders",),
        topic_prefixes=iter(["logs-"]),
        instance_id="i",
        assignor="range",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=1_000,
        initial_position="earliest",
    )
    assert membership == Membership("m", 4, 500, 9, [HeldTopic("orders", "id", [HeldPartition(3, 4, 7)])], False)
    body = {
        "member_epoch": 0,
        "topics": ["orders"],
        "topic_prefixes": ["logs-"],
        "instance_id": "i",
        "client_name": "host:1",
        "assignor": "range",
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 1_000,
        "initial_position": "earliest",
    }
    assert asked == [("POST", "/v1/groups/g/members/m", "", body)]


def test_a_heartbeat_leaves_out_what_is_not_given_and_an_empty_report_is_given():
    client, asked = client_of(ok(MEMBERSHIP))
    client.group_heartbeat("g", "m", 4)
    client.group_heartbeat("g", "m", 4, owned=[])
    client.group_heartbeat("g", "m", 4, owned=[NamedPartitions("orders", "id", (3,)), NamedPartitions("a", "", [0])])
    assert [one[3] for one in asked] == [
        {"member_epoch": 4},
        {"member_epoch": 4, "owned": []},
        {
            "member_epoch": 4,
            "owned": [{"topic": "orders", "topic_id": "id", "partitions": [3]}, {"topic": "a", "partitions": [0]}],
        },
    ]


@pytest.mark.parametrize("code", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "UNRELEASED_INSTANCE_ID"])
def test_a_refusal_is_true_of_the_member_also_after_a_lost_answer(code):
    client, asked = client_of(httpx.ReadTimeout("lost"), refused(errors.TABLE[code]("so it is")))
    with pytest.raises(errors.TABLE[code]):
        client.group_heartbeat("g", "m", 4)
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_leaving_is_sent_again_after_a_lost_answer():
    client, asked = client_of(httpx.ReadTimeout("lost"), httpx.Response(204))
    client.leave_group("g", "m", is_coming_back=True)
    client.leave_group("g", "m")
    assert [one[:3] for one in asked] == [
        ("DELETE", "/v1/groups/g/members/m", "is_coming_back=true"),
        ("DELETE", "/v1/groups/g/members/m", "is_coming_back=true"),
        ("DELETE", "/v1/groups/g/members/m", ""),
    ]


def test_groups_are_all_pages_of_them():
    client, asked = client_of(ok({"groups": [ENTRY], "has_more": True}), ok({"groups": [], "has_more": False}))
    assert client.groups(prefix="g", state="Stable") == [GroupEntry(**ENTRY)]
    assert [one[2] for one in asked] == ["prefix=g&state=Stable", "prefix=g&state=Stable&start_after=g"]


def test_a_group_has_all_its_members():
    pages = [{**ENTRY, "members": [{"member_id": name, **MEMBER}], "has_more": name == "a"} for name in ("a", "b")]
    client, asked = client_of(*map(ok, pages))
    found = client.group("g")
    assert (found.group, found.has_more) == (GroupEntry(**ENTRY), False)
    assert [one.member_id for one in found.members] == ["a", "b"]
    assert isinstance(found.members[0], GroupMember)
    assert found.members[0].target == [NamedPartitions("orders", "id", [3])]
    assert [one[1:3] for one in asked] == [("/v1/groups/g", ""), ("/v1/groups/g", "start_after=a")]


def test_a_deletion_whose_answer_was_lost_is_never_sent_again():
    client, asked = client_of(httpx.ReadTimeout("lost"))
    with pytest.raises(errors.OutcomeUnknownError):
        client.delete_group("g")
    assert asked == [("DELETE", "/v1/groups/g", "", None)]


def test_what_names_no_path_is_refused_before_anything_is_sent():
    client, asked = client_of(ok({}))
    for call in (
        lambda: client.group(""),
        lambda: client.delete_group(".."),
        lambda: client.leave_group("g", "."),
        lambda: client.group_heartbeat("g", "", 0),
        lambda: client.groups(state="nope"),
        lambda: client.group_heartbeat("g", "m", -1),
        lambda: client.group_heartbeat("g", "m", 0, topics="orders"),
        lambda: client.group_heartbeat("g", "m", 0, owned=[("orders", [0])]),
    ):
        with pytest.raises(errors.InvalidRequestError):
            call()
    assert asked == []


@pytest.mark.parametrize(
    ("call", "in_query"),
    [
        (lambda client: client.commit_offsets("g", [CommittedOffset("orders", 3, 1)], **WHO), False),
        (lambda client: client.acknowledge("orders", "g", 3, cumulative=1, **WHO), False),
        (lambda client: client.seek("orders", "g", 3, offset=1, **WHO), False),
        (
            lambda client: client.send_offsets_to_transaction(
                "t", ProducerPair(1, 0), "g", [CommittedOffset("orders", 3, 1)], **WHO
            ),
            False,
        ),
        (lambda client: client.read_subscription("orders", "g", 3, **WHO), True),
        (lambda client: client.read("orders", 3, offset=0, group="g", **WHO), True),
    ],
)
def test_a_commit_and_a_read_name_their_member(call, in_query):
    client, asked = client_of(ok({"mark_delete_offset": 2, **PAGE}))
    call(client)
    ((_, _, query, body),) = asked
    if in_query:
        assert "member_id=m&member_epoch=4" in query
    else:
        assert (body["member_id"], body["member_epoch"]) == ("m", 4)
        assert "session_id" not in body


def test_a_member_reads_batches():
    headers = {"fenceline-position": "0", "fenceline-log-start-offset": "0"}
    headers |= {"fenceline-next-offset": "0", "fenceline-last-stable-offset": "0"}
    client, asked = client_of(httpx.Response(200, headers=headers))
    client.read_batches("orders", 3, 0, group="g", **WHO)
    assert "member_id=m&member_epoch=4" in asked[0][2]
