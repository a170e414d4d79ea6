"""The requests about regions: what is asked, and what each answer becomes."""

import json

import httpx
import pytest

from fenceline import errors
from fenceline.client import Client
from fenceline.model.region import Gap, PendingSnapshot, RegionStatus, ReplicationStatus, ShownSnapshot
from fenceline.model.results import OriginEntry
from tests.support.runtime import AheadRuntime
from tests.support.wire import refused

REGION = {
    "region": "b",
    "connected": True,
    "suspended": False,
    "lag_records": 4,
    "lag_ms": 90,
    "last_seen_at": 1_000,
    "answered_at": None,
    "problem": None,
}
GAP = {"partition": 3, "region": "b", "from_offset": 5, "to_offset": 9, "records": 2}
SNAPSHOT = {"snapshot_id": "s", "local_offset": 8, "offsets": {"b": 17}, "completed_at": 7, "final": True}
PENDING = {"snapshot_id": "u", "started_at": 6, "waiting_for": ["b"]}
STATUS = {
    "region": "a",
    "regions": [REGION],
    "gaps": [],
    "skipped_records": 0,
    "snapshots": [],
    "pending": [],
    "has_more": False,
}
BOUNDS = {"log_start_offset": 0, "next_offset": 9, "last_stable_offset": 9}
RECORD = {"offset": 4, "timestamp": 1, "key": None, "value": "v", "headers": [], "topic_epoch": -1}
SUBSCRIPTION = {"name": "s", "topic": "t", "replicate_subscription_state": True}


def client_of(*script):
    """Return a client whose requests are answered by ``script`` in order; and what it asked."""
    asked = []

    def answer(request):
        path, _, query = request.url.raw_path.decode().partition("?")
        asked.append((request.method, path, query, json.loads(request.content) if request.content else None))
        item = script[min(len(asked), len(script)) - 1]
        if isinstance(item, Exception):
            raise item
        return item

    return Client("http://fake", runtime=AheadRuntime(), http=httpx.MockTransport(answer)), asked


def ok(body, status=200):
    return httpx.Response(status, json=body)


def test_the_status_of_a_topic_is_whole_over_its_pages():
    """A page says what there is of 100 partitions, however many of them it lists."""
    client, asked = client_of(
        ok(
            {
                **STATUS,
                "snapshots": [{**SNAPSHOT, "partition": 1}],
                "gaps": [GAP],
                "skipped_records": 4,
                "has_more": True,
            }
        ),
        ok({**STATUS, "regions": [], "has_more": True}),
        ok({**STATUS, "pending": [{**PENDING, "partition": 220}], "skipped_records": 9}),
    )

    assert client.replication("t") == ReplicationStatus(
        region="a",
        regions=[RegionStatus("b", True, False, 4, 90, 1_000, None, None)],
        gaps=[Gap(3, "b", 5, 9, 2)],
        skipped_records=13,
        snapshots=[ShownSnapshot("s", 1, 8, {"b": 17}, 7, True)],
        pending=[PendingSnapshot("u", 220, 6, ["b"])],
        has_more=False,
    )
    assert [(method, path, query) for method, path, query, _ in asked] == [
        ("GET", "/v1/topics/t/replication", "start_partition=0&limit=100"),
        ("GET", "/v1/topics/t/replication", "start_partition=100&limit=100"),
        ("GET", "/v1/topics/t/replication", "start_partition=200&limit=100"),
    ]


def test_an_operator_snapshots_suspends_resumes_and_skips():
    client, asked = client_of(
        ok({"snapshot_id": "s"}, 202),
        ok({**REGION, "suspended": True, "connected": False, "lag_records": None, "lag_ms": None}),
        ok(REGION),
        ok({"skipped_records": 2}),
    )

    assert client.snapshot("t") == "s"
    assert client.suspend("t", "b") == RegionStatus("b", False, True, None, None, 1_000, None, None)
    assert not client.resume("t", "b").suspended
    assert client.skip("t", 3, "b", 9) == 2

    topic = "/v1/topics/t"
    assert asked == [
        ("POST", f"{topic}/replication/snapshots", "", None),
        ("POST", f"{topic}/replication/regions/b/suspend", "", None),
        ("POST", f"{topic}/replication/regions/b/resume", "", None),
        ("POST", f"{topic}/partitions/3/replication/skip", "", {"region": "b", "to_offset": 9}),
    ]


def test_a_skip_whose_answer_was_lost_and_that_finds_no_gap_then_has_an_unknown_outcome():
    client, asked = client_of(httpx.ReadTimeout("x"), refused(errors.InvalidRequestError("no gap", field="to_offset")))

    with pytest.raises(errors.OutcomeUnknownError):
        client.skip("t", 0, "b", 9)
    assert len(asked) == 2


def test_a_topic_is_created_in_the_regions_that_are_given():
    topic = {"name": "t", "topic_id": "id", "partitions": 1, "config": {}, "regions": ["a", "b"], "created_at": 1}
    client, asked = client_of(ok(topic, 201))

    assert client.create_topic("t", regions=["a", "b"]).regions == ["a", "b"]
    assert asked[0][3] == {"name": "t", "partitions": 1, "regions": ["a", "b"]}


def test_a_subscription_is_replicated_and_says_where_it_should_be_read():
    client, asked = client_of(ok({**SUBSCRIPTION, "active_region": "b"}), ok({**SUBSCRIPTION, "active_region": None}))

    created = client.create_subscription("t", "s", initial_position="earliest", replicate_subscription_state=True)
    assert (created.replicate_subscription_state, created.active_region) == (True, "b")
    assert client.set_active_region("t", "s", None).active_region is None
    client.set_active_region("t", "s", "b")

    assert [body for _, _, _, body in asked] == [
        {"initial_position": "earliest", "replicate_subscription_state": True},
        {"initial_position": "earliest", "active_region": None},
        {"initial_position": "earliest", "active_region": "b"},
    ]


@pytest.mark.parametrize(
    "read",
    [
        lambda client, **more: client.read("t", 0, **more),
        lambda client, **more: client.read_subscription("t", "s", 0, **more),
    ],
)
def test_records_have_an_identity_only_where_it_is_asked_for(read):
    named = {**RECORD, "origin": "b", "origin_topic_id": "id", "number": 3}
    page = {"encoding": "utf8", "position": 5, **BOUNDS}
    client, asked = client_of(ok({**page, "records": [named], "active_region": "b"}), ok({**page, "records": [RECORD]}))

    [found], active = (given := read(client, identity=True)).records, given.active_region
    assert (found.origin, found.origin_topic_id, found.number, active) == ("b", "id", 3, "b")
    [plain], active = (given := read(client)).records, given.active_region
    assert (plain.origin, plain.origin_topic_id, plain.number, active) == (None, None, None, None)
    assert ["identity=true" in query for _, _, query, _ in asked] == [True, False]


def test_the_segments_of_one_origin_say_what_a_pulling_region_must_know():
    entry = {"base_offset": 4, "next_offset": 9, "bytes": 80, "url": "/o", "origin": "b", "records": 5, "aborted": []}
    of_origin = {"own_records": 3, "appended_at": 7, "chain": "c1", "origin_topic_id": "id"}
    of_origin |= {"origin_next_offset": 20, "origin_count": 18, "origin_chain": "c2"}
    page = {"has_more": False, "topic_id": "t1", **BOUNDS, "region": "a"}
    page |= {"position": 9, "log_start_own_records": 1, "stable_own_records": 6}
    client, asked = client_of(ok({**page, "segments": [{**entry, **of_origin}]}), ok({**page, "segments": [entry]}))

    found = client.segments("t", 0, offset=4, origin="b")
    assert found.segments[0].of_origin == OriginEntry(3, 7, "c1", "id", 20, 18, "c2")
    assert (found.region, found.position, found.log_start_own_records, found.stable_own_records) == ("a", 9, 1, 6)
    assert client.segments("t", 0).segments[0].of_origin is None
    assert ["origin=b" in query for _, _, query, _ in asked] == [True, False]
