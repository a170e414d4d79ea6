"""What a source may show, and what is never taken from it ("Pulling")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.codec import zstd_encode

from fenceline import limits
from fenceline.append.entries.region_markers import SkipEntry
from fenceline.errors import InvalidRequestError, StoreUnavailableError
from fenceline.format import batch, control, keys
from fenceline.format.region_markers import Skip
from fenceline.model.results import Bounds, SegmentEntry, SegmentList
from fenceline.ports import Delete, Item
from fenceline.regions.link_item import value_of
from fenceline.regions.peer_status import PeerStatus
from tests.support.independent_codec import NOW, forge, record, varint
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC, LogBuilder, Part, appender_of, data, marker, never_arrives, outcome, request
from tests.support.transacting import Producer


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b")
    made.create()
    yield made
    made.close()


def status(region: Region, peer: str) -> PeerStatus:
    statuses = region.own_replicator._statuses
    (place,) = statuses._partitions
    return statuses.of(*place).status(peer)


def with_segments(change: Callable[[SegmentEntry], SegmentEntry]) -> Callable[[SegmentList], SegmentList]:
    return lambda answer: replace(answer, segments=[change(entry) for entry in answer.segments])


def of_origin(entry: SegmentEntry, **changed: object) -> SegmentEntry:
    assert entry.of_origin is not None
    return replace(entry, of_origin=replace(entry.of_origin, **changed))  # type: ignore[arg-type]


ENTRIES: dict[str, Callable[[SegmentEntry], SegmentEntry]] = {
    "another base": lambda entry: replace(entry, base_offset=entry.base_offset + 1),
    "another end": lambda entry: replace(entry, next_offset=entry.next_offset - 1),
    "more records": lambda entry: replace(entry, records=entry.records + 1),
    "fewer records": lambda entry: replace(entry, records=entry.records - 1),
    "higher numbers": lambda entry: of_origin(entry, own_records=7),
    "a size that no segment has": lambda entry: replace(entry, bytes=100 * limits.MIB),
    "no size": lambda entry: replace(entry, bytes=0),
    "no origin": lambda entry: replace(entry, of_origin=None),
    "another region's": lambda entry: replace(entry, origin="c"),
    "another object": lambda entry: replace(entry, url="/objects/none"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_nothing_is_taken_of_a_segment_that_is_not_as_announced(world: RegionWorld, name: str) -> None:
    world["a"].append("a1", "a2")
    peer = world["b"].peers["a"]
    peer.seen["segments"] = with_segments(ENTRIES[name])
    run = world["b"].pull()
    assert (run.took_records, run.next_ms) == (0, limits.PEER_PAUSE_MS)
    assert status(world["b"], "a").problem is not None
    assert world["b"].segments() == []
    peer.seen.clear()
    assert world["b"].pull().took_records == 0  # it is asked again after a pause
    world.runtime.advance(limits.PEER_PAUSE_MS)
    assert world["b"].pull().took_records == 2
    assert status(world["b"], "a").problem is None


MOST = limits.INT64_MAX


def claiming(kept: int, own_records: int, log_start: int = 0) -> Callable[[SegmentList], SegmentList]:
    """Return an answer's change: so many own records lie below the log start, and below each segment."""

    def change(answer: SegmentList) -> SegmentList:
        entries = [of_origin(entry, own_records=own_records) for entry in answer.segments]
        bounds = answer.bounds
        if log_start:
            bounds, entries = Bounds(log_start, log_start, log_start), []
        position = max(answer.position, log_start)
        return replace(answer, segments=entries, bounds=bounds, position=position, log_start_own_records=kept)

    return change


@pytest.mark.parametrize(
    "change", [claiming(MOST, MOST), claiming(MOST - 1, MOST - 1), claiming(1, 1)], ids=["most", "almost", "one"]
)
def test_a_source_that_counts_more_own_records_than_its_log_has_offsets_gives_nothing(
    world: RegionWorld, change: Callable[[SegmentList], SegmentList]
) -> None:
    """What is computed of such a number fits no head: each later one would be refused, and so would each checkpoint."""
    world["a"].append("a1")
    peer = world["b"].peers["a"]
    peer.seen["segments"] = change
    assert world["b"].pull().took_records == 0
    assert "more own records than its log has offsets" in (status(world["b"], "a").problem or "")
    for n in range(2 * limits.CHECKPOINT_SEGMENTS):
        world["b"].append(f"b{n}")
    world["b"].log.partitions.checkpoint(TOPIC, 0)
    peer.seen.clear()
    world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    assert world["b"].pull().took_records == 1


def test_a_gap_of_more_records_than_offsets_is_a_problem_and_cannot_be_skipped(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].pull()
    peer = world["b"].peers["a"]
    peer.seen["segments"] = claiming(MOST, MOST, log_start=9)
    world["b"].pull()
    known = status(world["b"], "a")
    assert (known.gap, "more own records than its log has offsets" in (known.problem or "")) == (None, True)
    with pytest.raises(StoreUnavailableError):
        world["b"].log.replication.skip(TOPIC, 0, "a", 9)
    position = world["b"].origin("a")
    assert position is not None
    appender = appender_of(world["b"].log)
    for to_offset, count in ((9, 9), (9, MOST), (MOST + 1, 2), (9, -1)):
        skip = Skip("a", position.topic_id, position.next_offset, to_offset, count)
        with pytest.raises(InvalidRequestError):
            appender.append(SkipEntry(skip, position), world.runtime.monotonic_ms() + 10_000)
    assert len(world["b"].segments()) == 1


def damaged(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def of_another_magic(body: bytes) -> bytes:
    return body[:16] + b"\x01" + body[17:]


def with_another_count(body: bytes) -> bytes:
    header = batch.parse_header(body)
    return batch.assemble(header._replace(count=1), body[batch.HEADER_BYTES :])


BODIES: dict[str, Callable[[bytes], bytes]] = {
    "damaged": damaged,
    "cut short": lambda body: body[:-1],
    "longer": lambda body: body + b"\0",
    "of another magic": of_another_magic,
    "of another count": with_another_count,
    "no batch": lambda body: b"\xff" * len(body),
}


@pytest.mark.parametrize("name", BODIES)
def test_nothing_is_taken_of_a_body_that_is_damaged(world: RegionWorld, name: str) -> None:
    world["a"].append("a1", "a2")
    peer = world["b"].peers["a"]
    peer.seen["body"] = BODIES[name]
    assert world["b"].pull().took_records == 0
    assert status(world["b"], "a").problem is not None
    assert world["b"].segments() == []
    peer.seen.clear()
    world.runtime.advance(limits.PEER_PAUSE_MS)
    assert world["b"].pull().took_records == 2


def test_segments_before_a_damaged_one_are_pulled(world: RegionWorld) -> None:
    for n in range(4):
        world["a"].append(f"a{n}")
    peer = world["b"].peers["a"]
    peer.seen["body"] = lambda body: body if b"a2" not in body else damaged(body)
    assert world["b"].pull().took_records == 2
    assert status(world["b"], "a").problem is not None
    peer.seen.clear()
    world.runtime.advance(limits.PEER_PAUSE_MS)
    world["b"].pull()
    assert world["b"].values() == ["a0", "a1", "a2", "a3"]


def test_a_segment_that_an_answer_lacks_is_noticed_by_the_numbers(world: RegionWorld) -> None:
    for n in range(4):
        world["a"].append(f"a{n}")
    peer = world["b"].peers["a"]
    peer.seen["segments"] = lambda answer: replace(answer, segments=[*answer.segments[:1], *answer.segments[2:]])
    assert world["b"].pull().took_records == 0
    peer.seen["segments"] = lambda answer: replace(answer, segments=answer.segments[1:])
    world.runtime.advance(60_000)
    assert world["b"].pull().took_records == 0
    peer.seen.clear()
    world.runtime.advance(60_000)
    assert world["b"].pull().took_records == 4


@pytest.mark.parametrize("fault", ["is_down", "region"])
def test_a_peer_that_is_away_or_another_region_stops_nothing_here(world: RegionWorld, fault: str) -> None:
    world["a"].append("a1")
    peer = world["b"].peers["a"]
    peer.is_down = fault == "is_down"
    peer.seen["segments"] = lambda answer: replace(answer, region="c" if fault == "region" else "a")
    world["b"].append("b1")
    pauses = []
    for _ in range(7):
        run = world["b"].pull()
        assert run.next_ms is not None
        pauses.append(run.next_ms)
        world.runtime.advance(run.next_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert world["b"].values() == ["b1"]
    peer.is_down = False
    peer.seen.clear()
    assert world["b"].pull().took_records == 1


def test_nothing_is_taken_unless_both_topics_name_each_other(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["a"].log.topics.alter(TOPIC, regions=["a"])
    assert world["b"].pull().took_records == 0
    assert "does not name" in (status(world["b"], "a").problem or "")
    world["a"].log.topics.alter(TOPIC, regions=["a", "b"])
    world["b"].log.topics.alter(TOPIC, regions=["b"])
    world.runtime.advance(60_000)
    assert world["b"].pull().took_records == 0
    world["b"].log.topics.alter(TOPIC, regions=["a", "b"])
    assert world["b"].pull().took_records == 1


def test_a_topic_that_the_peer_lacks_is_taken_once_it_exists(world: RegionWorld) -> None:
    world["b"].log.topics.create("later", regions=["a", "b"])
    assert world["b"].pull("later").took_records == 0
    world["a"].log.topics.create("later", regions=["a", "b"])
    world["a"].append("a1", topic="later")
    world.runtime.advance(60_000)
    assert world["b"].pull("later").took_records == 1


def test_a_partition_that_one_side_lacks_waits(world: RegionWorld) -> None:
    world["b"].log.topics.alter(TOPIC, partitions=2)
    assert world["b"].pull(partition=1) == (0, None)
    world["a"].log.topics.alter(TOPIC, partitions=2)
    world["a"].append("a1", partition=1)
    assert world["b"].pull(partition=1).took_records == 1


# Histories


def restored(world: RegionWorld, *values: str) -> None:
    """Let region a have another log under the same topic id, as after a restore of older objects."""
    region = world["a"]
    topic_id = region.service.topic_id()
    for segment in region.segments():
        region.service.objects.store.delete(keys.segment_key(topic_id, 0, segment.base_offset))
    head = keys.head_item(topic_id, 0)
    for item in region.service.items.get([head]).values():
        region.service.items.write([Delete(head, item.version)])
    builder = LogBuilder(topic_id=topic_id, region="a")
    for value in values:
        builder.add(data(value))
    builder.store(region.service.objects)
    world.replace_log("a")


def test_a_source_whose_log_is_shorter_shows_another_history(world: RegionWorld) -> None:
    for n in range(3):
        world["a"].append(f"a{n}")
    world["b"].pull()
    restored(world, "z0")
    for replicator in (world["b"].own_replicator, world["b"].replicator(world["b"].another())):
        assert replicator.run(TOPIC, 0).took_records == 0
        (place,) = replicator._statuses._partitions
        assert "another history" in (replicator._statuses.of(*place).status("a").problem or "")


def test_a_source_whose_log_differs_shows_another_history(world: RegionWorld) -> None:
    world["a"].append("a0")
    world["b"].pull()
    restored(world, "z0", "z1", "z2")
    replicator = world["b"].replicator(world["b"].another())  # it compares once in each process
    assert replicator.run(TOPIC, 0).took_records == 0
    (place,) = replicator._statuses._partitions
    assert "another history" in (replicator._statuses.of(*place).status("a").problem or "")
    assert world["b"].values() == ["a0"]


def test_a_source_that_comes_back_with_older_objects_is_known_by_a_process_that_compared_before(
    world: RegionWorld,
) -> None:
    for n in range(3):
        world["a"].append(f"a{n}")
        world["b"].pull()
    peer = world["b"].peers["a"]
    peer.is_down = True
    world["b"].pull()
    restored(world, "a0", "z1", "z2")
    peer.is_down = False
    for value in ("z3", "z4"):
        world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
        assert world["b"].pull().took_records == 0
        assert status(world["b"], "a").has_other_history
        world["a"].append(value)
    assert world["b"].values() == ["a0", "a1", "a2"]


def test_a_source_that_was_restored_and_written_on_between_two_looks_is_noticed(world: RegionWorld) -> None:
    """The process has compared before, met no problem since, and goes by its scan note (I17)."""
    for n in range(3):
        world["a"].append(f"a{n}")
        world["b"].pull()
    world["b"].pull()
    restored(world, "a0", "z1", "z2", "z3")
    for value in ("z4", "z5"):
        world["b"].pull()
        assert status(world["b"], "a").has_other_history
        world["a"].append(value)
        world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    assert world["b"].values() == ["a0", "a1", "a2"]


def aborted(region: Region, *, is_ended: bool = True) -> None:
    producer = Producer(region.service, region.log)
    producer.begin()
    producer.add(0)
    producer.send("aborted")
    if is_ended:
        producer.end(is_commit=False)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_process_that_took_nothing_itself_notices_it_by_the_note_of_another(
    world: RegionWorld, *, is_open: bool, is_first: bool
) -> None:
    """What was looked at beyond the position was another log, whose numbers are used anew."""
    if not is_first:
        world["a"].append("a0")
    aborted(world["a"])
    aborted(world["a"], is_ended=not is_open)
    world["b"].pull()
    note = world["b"].own_replicator._statuses.of(*only_place(world["b"])).notes().get(("a", "a"))
    assert note is not None
    assert note.chain
    restored(world, *(f"z{n}" for n in range(20)))
    log = world["b"].another()
    replicator = world["b"].replicator(log)
    assert replicator.run(TOPIC, 0).took_records == 0
    assert replicator._statuses.of(*only_place(world["b"])).status("a").has_other_history


def only_place(region: Region) -> tuple[str, int]:
    (place,) = region.own_replicator._statuses._partitions
    return place


@pytest.mark.parametrize("is_empty", [True, False])
def test_an_earlier_life_of_a_sources_topic_is_a_problem_before_anything_is_fetched(
    world: RegionWorld, *, is_empty: bool
) -> None:
    """Its log was restored from before the topic was created anew. An operator hears of it, also where it is quiet."""
    first = world["a"].service.topic_id()
    world["a"].append("a1")
    world["b"].pull()
    world["a"].log.topics.delete(TOPIC)
    world["a"].log.topics.create(TOPIC, regions=["a", "b"])
    world["a"].append("a2")
    world.runtime.advance(60_000)
    world["b"].pull()
    peer = world["b"].peers["a"]
    peer.seen["topic"] = lambda topic: replace(topic, topic_id=first)
    peer.seen["segments"] = lambda answer: replace(
        answer, topic_id=first, segments=[] if is_empty else answer.segments, chain_before=""
    )
    world["a"].append("a3")
    world.runtime.advance(60_000)
    fetched = peer.calls["body"]
    for _ in range(2):
        assert world["b"].pull().took_records == 0
        assert "shows an earlier life of its topic" in (status(world["b"], "a").problem or "")
        world.runtime.advance(60_000)
    assert peer.calls["body"] == fetched
    assert world["b"].values() == ["a1", "a2"]


def test_a_source_that_ends_before_what_was_looked_at_shows_another_history(world: RegionWorld) -> None:
    world["a"].append("a0")
    world["b"].pull()
    aborted(world["a"])
    world["b"].pull()
    restored(world, "a0")
    world["b"].pull()
    assert status(world["b"], "a").has_other_history


def test_a_source_of_an_older_version_says_no_chain_value_and_is_compared_as_before(world: RegionWorld) -> None:
    peer = world["b"].peers["a"]
    peer.seen["segments"] = lambda answer: replace(answer, chain_before="", chain_after="")
    for n in range(3):
        world["a"].append(f"a{n}")
        world["b"].pull()
    assert world["b"].values() == ["a0", "a1", "a2"]
    peer.seen.clear()  # it was upgraded
    world["b"].pull()
    world["a"].append("a3")
    world["b"].pull()
    assert world["b"].values() == ["a0", "a1", "a2", "a3"]
    restored(world, "a0", "a1", "a2", "z3", "z4")
    world["b"].pull()
    assert status(world["b"], "a").has_other_history


def test_an_older_process_reads_a_link_item_with_chain_values(world: RegionWorld) -> None:
    world["a"].append("a0")
    world["b"].pull()
    place = only_place(world["b"])
    key = keys.link_item(*place)
    value: Any = world["b"].service.items.get([key])[key].value
    (note,) = value["notes"]
    assert len(note) == 6
    assert value_of(Item(key, 1, {**value, "chains": []})).notes["a", "a"].chain == ""


def test_records_that_cannot_be_taken_because_of_a_gap_count_as_lag(world: RegionWorld) -> None:
    for n in range(3):
        world["a"].append(f"a{n}")
    world["a"].log.partitions.trim(TOPIC, 0, 2)
    world["b"].log.replication.run(TOPIC, 0)
    (region,) = world["b"].log.replication.status(TOPIC).regions
    assert (region.lag_records, region.connected) == (0, True), "before the first contact there is no gap"
    world["a"].append("a3")
    world["b"].peers["a"].is_down = True
    world["a"].append("a4")
    world["a"].log.partitions.trim(TOPIC, 0, 4)
    world["b"].peers["a"].is_down = False
    world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    for log in (world["b"].log, world["b"].another()):
        log.replication.run(TOPIC, 0)
        status = log.replication.status(TOPIC)
        assert [gap.records for gap in status.gaps] == [1]
        assert [region.lag_records for region in status.regions] == [2]


@pytest.mark.parametrize("values", [["z0"], ["z0", "z1", "z2", "z3"]], ids=["shorter", "replaced"])
def test_a_source_of_another_history_is_connected_and_is_asked_for_no_snapshot(
    world: RegionWorld, values: list[str]
) -> None:
    for n in range(3):
        world["a"].append(f"a{n}")
    world["b"].pull()
    restored(world, *values)
    log = world["b"].another()
    log.subscriptions.subscribe(TOPIC, "billing", replicate_subscription_state=True)
    for _ in range(3):
        world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
        log.replication.run(TOPIC, 0)
        (region,) = log.replication.status(TOPIC).regions
        assert (region.connected, region.last_seen_at) == (True, world.runtime.now_ms())
        assert "another history" in (region.problem or "")
    assert log.replication.status(TOPIC).pending == []


def test_a_source_that_answers_with_an_older_state_is_taken_up_to_there(world: RegionWorld) -> None:
    world["a"].append("a0")
    peer = world["b"].peers["a"]
    stale = peer.segments(TOPIC, 0, origin="own", offset=None, limit=100)
    peer.seen["segments"] = lambda _: stale
    world["a"].append("a1")
    world["b"].pull()
    world["b"].pull()
    assert world["b"].values() == ["a0"]
    peer.seen.clear()
    world.runtime.advance(60_000)
    world["b"].pull()
    assert world["b"].values() == ["a0", "a1"]


def test_a_skip_passes_a_gap_and_what_follows_is_taken_with_its_numbers(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].pull()
    world["a"].append("a2", "a3")
    world["a"].append("a4", "a5")
    world["a"].log.partitions.trim(TOPIC, 0, 4)  # within the last batch
    world["b"].pull()
    gap = status(world["b"], "a").gap
    assert gap is not None
    assert (gap.from_offset, gap.to_offset, gap.records) == (1, 4, 2)
    position = world["b"].origin("a")
    assert position is not None
    skip = Skip("a", position.topic_id, gap.from_offset, gap.to_offset, gap.records)
    appender = appender_of(world["b"].log)
    appender.append(SkipEntry(skip, position), world.runtime.monotonic_ms() + 10_000)
    assert world["b"].pull().took_records == 2  # at once: the position has moved
    assert world["b"].values() == ["a1", "a4", "a5"]
    after = world["b"].origin("a")
    assert after is not None
    assert (after.count, after.start) == (5, 3)
    world["a"].append("a6")
    assert world["b"].pull().took_records == 1


# Batches that no producer here may send


def forged(payload: bytes, **fields: int) -> Part:
    """Return a batch with any records and header."""
    return lambda offset, epoch, now_ms: forge(payload, base_offset=offset, leader_epoch=epoch, **fields)


def unreadable(offset: int, epoch: int, now_ms: int) -> bytes:
    body = marker(control.SUBSCRIPTION_UPDATE, {"updates": []})(offset, epoch, now_ms)
    broken = body.replace(b"{", b"[")
    return batch.assemble(batch.parse_header(broken), broken[batch.HEADER_BYTES :])


def compressed_marker(offset: int, epoch: int, now_ms: int) -> bytes:
    body = marker(0x1FF)(offset, epoch, now_ms)
    header = batch.parse_header(body)
    return batch.assemble(header._replace(attributes=header.attributes | 4), zstd_encode(body[batch.HEADER_BYTES :]))


TWO = record(0) + record(1)
FORMS: dict[str, tuple[Part, int, int]] = {  # with the offsets and the records that it takes in its source's log
    "deltas far apart": (forged(record(0) + record(1000), count=2), 2, 2),
    "deltas that go back": (forged(record(1) + record(0), count=2), 2, 2),
    "a last offset beyond its records": (forged(TWO, count=2, last_offset_delta=1000), 1001, 2),
    "a time below -1": (forged(record(timestamp_delta=-NOW - 9), max_timestamp=-9), 1, 1),
    "another highest time": (forged(TWO, count=2, max_timestamp=NOW + 7), 2, 2),
    "a longer form": (forged(varint(8) + b"\0\0\x80\0" + b"\x01\x01\0\0"), 1, 1),
    "no records": (forged(b"-----"), 1, 1),
    "an unknown codec": (forged(TWO, count=2, attributes=5), 2, 2),
    "a marker that cannot be read": (unreadable, 1, 0),
    "a marker that is compressed": (compressed_marker, 1, 0),
}


def is_stopped_at(world: RegionWorld, from_offset: int, to_offset: int) -> bool:
    """Return True if region b shows that its link has stopped at these offsets, in this process and in another one."""
    processes = world["b"].log, world["b"].another()
    problems = [log.replication.status(TOPIC).regions[0].problem or "" for log in processes]
    return all(f"from={from_offset} to={to_offset}" in one and "partition=0" in one for one in problems)


@pytest.mark.parametrize("name", FORMS)
def test_a_batch_that_no_producer_may_send_stops_its_link_until_it_is_skipped(world: RegionWorld, name: str) -> None:
    """What comes before it is taken, also of its segment. What this region has acknowledged is read by all."""
    part, offsets, records = FORMS[name]
    builder = LogBuilder(topic_id=world["a"].service.topic_id(), region="a")
    builder.add(data("a1"))
    parts = (data("a2"), data("x", producer=(7, 0, 0), is_transactional=True), outcome(7, 1, is_commit=False))
    builder.segments.append(builder.make(*parts, part, data("a3", "a4")))
    builder.store(world["a"].service.objects)
    replication = world["b"].log.replication
    first, after = 4, 4 + offsets
    assert replication.run(TOPIC, 0).took_records == 2
    for _ in range(3):
        assert replication.run(TOPIC, 0).took_records == 0
        assert is_stopped_at(world, first, after)
        assert world["b"].log.replication.status(TOPIC).gaps == []
        world["b"].append("b2")
        world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    assert world["b"].values() == ["a1", "a2", "b2", "b2", "b2"]
    for wrong in (first, after - 1, after + 1, MOST):
        with pytest.raises(InvalidRequestError):
            replication.skip(TOPIC, 0, "a", wrong)
    assert world["b"].another().replication.skip(TOPIC, 0, "a", after) == 1 + records  # with the aborted one
    with pytest.raises(InvalidRequestError):
        replication.skip(TOPIC, 0, "a", after)
    assert replication.run(TOPIC, 0).took_records == 2
    assert world["b"].values()[-2:] == ["a3", "a4"]
    (region,) = replication.status(TOPIC).regions
    assert (region.problem, region.lag_records) == (None, 0)
    position = world["b"].origin("a")
    assert position is not None
    assert (position.next_offset, position.count) == (after + 2, 5 + records)
    assert replication.status(TOPIC).skipped_records == 1 + records


@pytest.mark.parametrize("is_again", [False, True], ids=["first contact", "a new life"])
def test_a_refused_batch_at_the_start_of_a_source_can_be_skipped(world: RegionWorld, *, is_again: bool) -> None:
    if is_again:
        world["a"].append("a0")
        world["b"].pull()
        world["a"].log.topics.delete(TOPIC)
        world["a"].log.topics.create(TOPIC, regions=["a", "b"])
        world.runtime.advance(60_000)
    builder = LogBuilder(topic_id=world["a"].service.topic_id(), region="a")
    builder.add(forged(record(1) + record(0), count=2))
    builder.add(data("a1"))
    builder.store(world["a"].service.objects)
    world.replace_log("a")
    replication = world["b"].log.replication
    assert replication.run(TOPIC, 0).took_records == 0
    assert is_stopped_at(world, 0, 2)
    assert replication.skip(TOPIC, 0, "a", 2) == 2
    assert replication.run(TOPIC, 0).took_records == 1
    assert world["b"].values()[-1] == "a1"
    position = world["b"].origin("a")
    assert position is not None
    assert (position.topic_id, position.next_offset, position.count) == (builder.topic_id, 3, 3)


def test_a_batch_is_not_judged_by_what_is_its_own_regions(world: RegionWorld) -> None:
    """Its base offset, the time of its append, and what a topic's configuration allows."""
    world["a"].log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    world["b"].log.topics.alter(TOPIC, config={"max.message.bytes": 100, "message.timestamp.before.max.ms": 1})
    world["a"].append("a1", "a" * 200)
    world["a"].log.append(TOPIC, 0, request("a3", "a4", timestamp=7))
    world.runtime.advance(60_000)
    assert world["b"].pull().took_records == 4


def test_a_problem_with_what_follows_the_position_stays_until_it_is_gone(world: RegionWorld) -> None:
    """An answer alone does not end it. The pauses grow meanwhile."""
    world["a"].append("a1")
    peer = world["b"].peers["a"]
    peer.seen["body"] = damaged
    pauses = []
    for _ in range(4):
        next_ms = world["b"].log.replication.run(TOPIC, 0).next_ms
        assert next_ms is not None
        pauses.append(next_ms)
        (region,) = world["b"].log.replication.status(TOPIC).regions
        assert "CRC" in (region.problem or "")
        world.runtime.advance(next_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000]
    peer.seen.clear()
    world["b"].log.replication.run(TOPIC, 0)
    (region,) = world["b"].log.replication.status(TOPIC).regions
    assert region.problem is None


# Markers


def test_markers_travel_by_their_bit_whether_they_are_known_or_not(world: RegionWorld) -> None:
    topic_id = world["a"].service.topic_id()
    builder = LogBuilder(topic_id=topic_id, region="a")
    builder.add(marker(0x1FF, {"of": "a newer fenceline"}))
    builder.add(data("a1"), marker(control.SUBSCRIPTION_UPDATE, {"updates": []}))
    builder.add(marker(0x80, {"stays": True}))
    builder.add(marker(0xF0, {"stays": True}), data("a2"))
    builder.store(world["a"].service.objects)
    world["b"].pull()
    assert world["b"].values() == ["a1", "a2"]
    types = [
        control.type_of(segment.body, at, header)
        for segment in world["b"].segments()
        for at, header in segment.batches
        if header.is_control
    ]
    assert types == [0x1FF, control.SUBSCRIPTION_UPDATE]


def test_a_marker_that_travels_and_cannot_be_read_stops_the_link(world: RegionWorld) -> None:
    topic_id = world["a"].service.topic_id()
    builder = LogBuilder(topic_id=topic_id, region="a")
    builder.add(data("a1"))
    builder.segments.append(builder.make(unreadable))
    builder.store(world["a"].service.objects)
    world["b"].pull()
    assert world["b"].values() == ["a1"]
    assert "cannot be read" in (status(world["b"], "a").problem or "")


@pytest.mark.parametrize("size", [0, 5, 8])
def test_a_truncated_marker_stops_only_its_source(size: int) -> None:
    def cut(offset: int, epoch: int, now_ms: int) -> bytes:
        body = marker(control.SUBSCRIPTION_UPDATE, {"updates": []})(offset, epoch, now_ms)
        return batch.assemble(batch.parse_header(body), body[batch.HEADER_BYTES :][:size])

    world = RegionWorld("a", "b", "c")
    world.create()
    builder = LogBuilder(topic_id=world["a"].service.topic_id(), region="a")
    builder.add(marker(0x1FF))
    builder.add(data("a1"))
    builder.store(world["a"].service.objects)
    sound, peer = builder.segments[0].body, world["b"].peers["a"]
    torn = cut(0, 0, builder.now_ms)
    peer.seen["body"] = lambda body: torn if body == sound else body
    peer.seen["segments"] = with_segments(lambda entry: replace(entry, bytes=len(torn)) if not entry.records else entry)
    world["c"].append("c1")
    assert world["b"].pull().took_records == 1
    assert world["b"].values() == ["c1"]
    assert "cannot be read" in (status(world["b"], "a").problem or "")
    assert world["b"].own_replicator.find_work(TOPIC, 0).next_ms == limits.PEER_PAUSE_MS
    world.close()


# Crashes


def test_a_create_whose_answer_is_lost_is_found_by_the_next_run(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].service.objects.plan("create", never_arrives)
    world["b"].pull()
    assert world["b"].values() == ["a1"]
    world["a"].append("a2")
    assert world["b"].replicator(world["b"].another()).run(TOPIC, 0).took_records == 1
    assert world["b"].values() == ["a1", "a2"]
