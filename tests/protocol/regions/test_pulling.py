"""Another region's records, pulled once each and in order ("Pulling")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import batch, compression
from fenceline.format.batch import BatchHeader
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.regions import apply_source
from fenceline.regions.replicator import RunResult
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC, LogBuilder, data, request
from tests.support.transacting import Producer

_RECORDS_AT = 61  # in a batch


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b")
    made.create()
    yield made
    made.close()


def transaction(region: Region, *values: str, is_commit: bool, name: str = "t") -> None:
    producer = Producer(region.service, region.log, name)
    producer.begin()
    producer.add(0)
    for value in values:
        producer.send(value)
    producer.end(is_commit=is_commit)


def creates(region: Region) -> int:
    return region.service.count()["objects.create"]


def numbers(region: Region, of: str) -> list[tuple[str, int]]:
    """Return (value, own number) of each record of another region, by the segments' metadata alone."""
    found: list[tuple[str, int]] = []
    state = 0
    segments = region.segments()
    for at, segment in enumerate(segments):
        source = segment.metadata.replicated
        if segment.metadata.origin != of or source is None:
            continue
        state = segments[at + 1].metadata.records if at + 1 < len(segments) else -1
        page = region.log.partitions.read(
            TOPIC, 0, ReadRequest(offset=segment.base_offset, max_records=segment.next_offset - segment.base_offset)
        )
        values = [(one.value or b"").decode() for one in page.records if one.offset < segment.next_offset]
        assert state in (-1, segment.metadata.records + len(values))
        low = source.count - len(values)
        found += [(value, low + n) for n, value in enumerate(values, start=1)]
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_a_batch_of_any_codec_arrives_as_it_was_encoded(world: RegionWorld, codec: Any, time: str) -> None:
    world["a"].log.topics.alter(TOPIC, config={"message.timestamp.type": time})
    records = [
        Record(None, b"k"),
        Record(b"", None, headers=[("h", None), ("", b"v")], timestamp=1_600_000_000_000),
        *[Record(b"x" * 100)] * 80,
    ]
    world["b"].append("b1")
    for _ in range(2):  # the second one does not begin at offset 0
        sent = batch.encode(records, now_ms=1_700_000_000_000, codec=codec).body
        world["a"].log.append(TOPIC, 0, AppendRequest.of_batch(sent))
    assert world["b"].pull().took_records == 2 * len(records)
    taken = [(header.codec, body[at + _RECORDS_AT : at + header.size]) for at, header, body in batches(world["b"])[1:]]
    assert taken == [(batch.parse_header(sent).codec, sent[_RECORDS_AT:])] * 2
    page = world["b"].log.partitions.read(TOPIC, 0, ReadRequest(offset=1, max_records=1_000))
    assert [one.value for one in page.records] == 2 * [record.value for record in records]


def batches(region: Region) -> list[tuple[int, BatchHeader, bytes]]:
    return [(at, header, segment.body) for segment in region.segments() for at, header in segment.batches]


def test_records_arrive_in_order_with_their_numbers_and_their_region(world: RegionWorld) -> None:
    world["a"].append("a1", "a2")
    world["b"].append("b1")
    world["a"].append("a3")
    assert world["b"].pull() == RunResult(3, None)
    assert world["b"].values() == ["b1", "a1", "a2", "a3"]
    assert numbers(world["b"], "a") == [("a1", 1), ("a2", 2), ("a3", 3)]
    origin = world["b"].origin("a")
    assert origin is not None
    assert (origin.topic_id, origin.next_offset, origin.count, origin.start) == (
        world["a"].service.topic_id(),
        3,
        3,
        0,
    )
    assert origin.chain == world["a"].segments()[-1].metadata.chain


def test_pulled_records_are_not_pulled_back(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].append("b1")
    world.settle()
    assert world["a"].values() == ["a1", "b1"]
    assert world["b"].values() == ["b1", "a1"]
    before = creates(world["a"]), creates(world["b"])
    world.settle()
    assert (creates(world["a"]), creates(world["b"])) == before


def test_a_look_that_finds_nothing_takes_no_lease_and_writes_nothing(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].pull()
    before = world["b"].service.count()
    assert world["b"].pull() == RunResult(0, None)
    assert world["b"].replicator().run(TOPIC, 0) == RunResult(0, None)
    after = world["b"].service.count()
    assert after["items.write"] == before["items.write"]
    assert after["objects.create"] == before["objects.create"]


def test_a_look_costs_one_question_for_segments_and_a_pull_one_body_each(world: RegionWorld) -> None:
    for n in range(5):
        world["a"].append(f"a{n}")
    peer = world["b"].peers["a"]
    world["b"].pull()
    assert peer.calls == {"topic": 1, "segments": 1, "body": 5}
    world["b"].pull()
    assert peer.calls == {"topic": 1, "segments": 2, "body": 5}
    world["b"].pull()
    assert peer.calls == {"topic": 1, "segments": 3, "body": 5}


# Small batches that decode to much


class Decoding:
    """A count of what is decompressed, which may take time.

    Attributes:
        took_ms: What one batch takes, on the runtime's clocks.
    """

    def __init__(self, world: RegionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.took_ms = 0
        self.sizes: list[int] = []
        payload = compression.payload

        def counted(data: memoryview, codec: int, *, bytes_max: int) -> memoryview:
            found = payload(data, codec, bytes_max=bytes_max)
            if codec:
                self.sizes.append(len(found))
                world.runtime.advance(self.took_ms)
            return found

        monkeypatch.setattr(compression, "payload", counted)


@pytest.fixture
def three() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b", "c")
    made.create()
    yield made
    made.close()


def store_large(region: Region, segments: int, batches: int, size: int = 4_096) -> None:
    """Let a region have batches that take a hundred bytes, and ``size`` bytes decompressed."""
    builder = LogBuilder(topic_id=region.service.topic_id(), region=region.name)
    for _ in range(segments):
        builder.add(*[data(bytes(size), codec="zstd")] * batches)
    builder.store(region.service.objects)


def of_origin(region: Region) -> list[tuple[str, int]]:
    """Return (origin, records) of each segment."""
    return [
        (segment.metadata.origin, sum(header.count for _, header in segment.batches)) for segment in region.segments()
    ]


@pytest.mark.parametrize(("segments", "batches"), [(1, 12), (12, 1)], ids=["in one segment", "in a segment each"])
def test_batches_that_take_long_to_decode_are_appended_bit_by_bit_and_hold_no_other_source_up(
    three: RegionWorld, monkeypatch: pytest.MonkeyPatch, segments: int, batches: int
) -> None:
    """Each takes most of a run's time. What was packed is appended, and then it is the other source's turn."""
    store_large(three["a"], segments, batches)
    three["c"].append("c1")
    decoding = Decoding(three, monkeypatch)
    decoding.took_ms = limits.REPLICATOR_RUN_MS - 5_000
    assert three["b"].pull().took_records == 2 + 1
    assert of_origin(three["b"]) == [("a", 2), ("c", 1)]
    assert len(decoding.sizes) == 2
    for taken in range(4, 13, 2):
        assert three["b"].pull().took_records == 2
        assert len(decoding.sizes) == taken
    assert three["b"].pull().took_records == 0
    assert len(decoding.sizes) == 12, "each is decoded once"


def test_aborted_segments_that_come_slowly_hold_no_other_source_up_and_are_passed_bit_by_bit(
    three: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them is packed, so no append shows how far the source was looked at: the scan note does."""
    monkeypatch.setattr(apply_source, "WINDOW_SEGMENTS", 1)
    for n in range(6):
        transaction(three["a"], f"aborted {n}", is_commit=False)
    three["a"].append("a1")
    three["c"].append("c1")
    slow = three["b"].peers["a"]
    slow.on_call = lambda operation: three.runtime.advance(limits.REPLICATOR_RUN_MS // 2 if operation == "body" else 0)
    assert three["b"].pull().took_records == 1
    assert three["b"].values() == ["c1"]
    assert slow.calls["body"] <= 3, "the turn goes on though the run's time is over"
    for _ in range(6):
        three["b"].replicator(three["b"].another()).run(TOPIC, 0)  # the note is another process's, too
    assert three["b"].values() == ["c1", "a1"]
    assert slow.calls["body"] <= len(three["a"].segments()) + 7, "a segment is fetched again and again"


@pytest.mark.parametrize(("segments", "batches"), [(1, 12), (12, 1)], ids=["in one segment", "in a segment each"])
def test_after_so_many_decoded_bytes_another_source_has_its_turn(
    three: RegionWorld, monkeypatch: pytest.MonkeyPatch, segments: int, batches: int
) -> None:
    monkeypatch.setattr(limits, "REPLICATED_DECODED_BYTES", 3 * 4_096)
    store_large(three["a"], segments, batches)
    three["c"].append("c1")
    decoding, creates = Decoding(three, monkeypatch), list[int]()

    def note(operation: str, key: str) -> None:
        if operation == "create":
            creates.append(sum(decoding.sizes))

    three["b"].service.objects.on_call = note
    assert three["b"].pull().took_records == 13
    at = [origin for origin, _ in of_origin(three["b"])].index("c")
    assert creates[at] <= 3 * 4_200, "so much of a was decoded before the record of c came"
    assert all(records <= 3 for _, records in of_origin(three["b"])), "a third region takes a segment in one go"
    assert len(decoding.sizes) == 12, "each is decoded once"


def test_many_small_segments_become_one(world: RegionWorld) -> None:
    for n in range(60):
        world["a"].append(f"a{n}")
    before = creates(world["b"])
    assert world["b"].pull().took_records == 60
    assert creates(world["b"]) == before + 1
    assert world["b"].values() == [f"a{n}" for n in range(60)]


def test_one_create_a_mebibyte_and_one_batch_may_be_larger(world: RegionWorld) -> None:
    text = "x" * 300_000
    world["a"].log.topics.alter(TOPIC, config={"max.message.bytes": 4_000_000})
    for n in range(7):
        world["a"].append(text + str(n))
    world["a"].append("y" * 2_000_000)
    world["a"].append("z")
    before = creates(world["b"])
    world["b"].pull()
    assert creates(world["b"]) == before + 5  # 3 + 3 + 1, the large one, the last one
    sizes = [len(segment.body) for segment in world["b"].segments()]
    assert [size > limits.REPLICATED_BYTES_MAX for size in sizes] == [False, False, False, True, False]
    assert [len(value) for value in world["b"].values()] == [300_001] * 7 + [2_000_000, 1]


def test_bodies_ahead_stay_within_their_bytes(world: RegionWorld) -> None:
    world["a"].log.topics.alter(TOPIC, config={"max.message.bytes": 4_000_000})
    for n in range(12):
        world["a"].append("x" * 3_500_000 + str(n))
    peer, ahead = world["b"].peers["a"], []
    fetched = created = 0

    def asked(operation: str) -> None:
        if operation == "body":
            ahead.append(fetched - created)

    def came(body: bytes) -> bytes:
        nonlocal fetched
        fetched += len(body)
        return body

    def stored(operation: str, key: str) -> None:
        nonlocal created
        if operation == "create":
            created += 3_500_000

    peer.on_call, peer.seen["body"] = asked, came
    world["b"].service.objects.on_call = stored
    world["b"].pull()
    assert len(ahead) == 12
    assert 7_000_000 < max(ahead) <= limits.REPLICATED_AHEAD_BYTES


# Transactions


def test_only_committed_records_arrive_and_each_only_once_it_is_decided(world: RegionWorld) -> None:
    world["a"].append("a1")
    producer = Producer(world["a"].service, world["a"].log, "t")
    producer.begin()
    producer.add(0)
    producer.send("open")
    world["a"].append("a2")
    assert world["b"].pull().took_records == 1
    assert world["b"].values() == ["a1"]  # all after the open transaction waits
    producer.end(is_commit=True)
    transaction(world["a"], "gone", is_commit=False, name="u")
    world["a"].append("a3")
    world["b"].pull()
    assert world["b"].values() == ["a1", "open", "a2", "a3"]


def test_batches_lose_their_producers_and_transactions(world: RegionWorld) -> None:
    transaction(world["a"], "one", is_commit=True)
    world["a"].log.append(TOPIC, 0, request("two", producer=(77, 0, 0)))
    world["b"].pull()
    headers = [header for segment in world["b"].segments() for _, header in segment.batches]
    assert [(h.producer_id, h.producer_epoch, h.base_sequence, h.is_transactional) for h in headers] == [
        (-1, -1, -1, False)
    ] * 2
    assert not any(header.is_control for header in headers)
    assert world["b"].values(is_read_committed=True) == ["one", "two"]


def test_numbers_are_dense_in_each_segment(world: RegionWorld) -> None:
    world["a"].append("a1")
    transaction(world["a"], "x2", "x3", is_commit=False)
    world["a"].append("a4", "a5")
    transaction(world["a"], "x6", is_commit=False, name="u")
    world["a"].append("a7")
    before = creates(world["b"])
    world["b"].pull()
    assert creates(world["b"]) == before + 3
    assert numbers(world["b"], "a") == [("a1", 1), ("a4", 4), ("a5", 5), ("a7", 7)]


def test_the_count_is_that_of_the_last_record_taken(world: RegionWorld) -> None:
    world["a"].append("a1")
    transaction(world["a"], "x2", is_commit=False)
    world["b"].pull()
    origin = world["b"].origin("a")
    assert origin is not None
    assert origin.count == 1
    world["b"].pull()
    assert world["b"].origin("a") == origin  # aborted records behind it move nothing
    world["a"].append("a3")
    world["b"].pull()
    origin = world["b"].origin("a")
    assert origin is not None
    assert origin.count == 3


def test_an_aborted_tail_that_is_trimmed_is_no_gap(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].pull()
    transaction(world["a"], "x2", is_commit=False)
    world["b"].pull()
    end = world["a"].log.partitions.offsets(TOPIC, 0).next_offset
    world["a"].log.partitions.trim(TOPIC, 0, end)
    world["a"].append("a3")
    assert world["b"].replicator(world["b"].another()).run(TOPIC, 0).took_records == 1
    assert world["b"].values() == ["a1", "a3"]
    assert numbers(world["b"], "a")[-1] == ("a3", 3)


def test_a_scan_note_is_never_beyond_the_last_stable_offset(world: RegionWorld) -> None:
    world["a"].append("a1")
    producer = Producer(world["a"].service, world["a"].log, "t")
    producer.begin()
    producer.add(0)
    producer.send("late")
    for n in range(3):
        world["b"].append(f"b{n}")
        world.settle()
    assert world["b"].values() == ["b0", "a1", "b1", "b2"]
    producer.end(is_commit=True)
    world.settle()
    assert [value for value in world["b"].values() if not value.startswith("b")] == ["a1", "late"]


# First contact, gaps, lives, histories


def test_a_region_that_comes_late_begins_at_the_log_start_without_a_gap(world: RegionWorld) -> None:
    for n in range(1, 5):
        world["a"].append(f"a{n}")
    world["a"].log.partitions.trim(TOPIC, 0, 2)
    world["b"].pull()
    assert world["b"].values() == ["a3", "a4"]
    origin = world["b"].origin("a")
    assert origin is not None
    assert (origin.count, origin.start) == (4, 2)


def test_the_batch_that_holds_the_log_start_is_taken_whole(world: RegionWorld) -> None:
    world["a"].append("a1", "a2")
    world["a"].append("a3", "a4")
    world["a"].log.partitions.trim(TOPIC, 0, 3)
    world["b"].pull()
    assert numbers(world["b"], "a") == [("a3", 3), ("a4", 4)]
    origin = world["b"].origin("a")
    assert origin is not None
    assert origin.start == 2


def test_a_gap_stops_the_link_until_an_operator_skips_it(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].pull()
    world["a"].append("a2", "a3")
    world["a"].append("a4")
    world["a"].log.partitions.trim(TOPIC, 0, 3)
    run = world["b"].pull()
    assert (run.took_records, run.next_ms) == (0, limits.PEER_PAUSE_MS)
    assert world["b"].values() == ["a1"]
    statuses = world["b"].own_replicator._statuses
    (status,) = (one for place in statuses._partitions for one in statuses.of(*place).statuses().values())
    assert status.gap is not None
    assert (status.gap.from_offset, status.gap.to_offset, status.gap.records) == (1, 3, 2)
    assert status.problem is not None
    world.runtime.advance(60_000)
    assert world["b"].pull().took_records == 0


def test_a_log_start_that_passed_only_others_records_is_no_gap(world: RegionWorld) -> None:
    world["a"].append("a1")
    for n in range(3):
        world["b"].append(f"b{n}")
    world.settle()
    end = world["a"].log.partitions.offsets(TOPIC, 0).next_offset
    world["a"].log.partitions.trim(TOPIC, 0, end)
    world["a"].append("a2")
    world.replace_log("b")
    assert world["b"].replicator(world["b"].another()).run(TOPIC, 0).took_records == 1
    assert numbers(world["b"], "a") == [("a1", 1), ("a2", 2)]


def test_another_life_is_taken_from_its_start_after_the_old_ones_records(world: RegionWorld) -> None:
    world["a"].append("old1", "old2")
    world["b"].pull()
    world["a"].log.topics.delete(TOPIC)
    world["a"].log.topics.create(TOPIC, regions=["a", "b"])
    world["a"].append("new1")
    world.runtime.advance(limits.CONNECTED_MS)
    world["b"].pull()
    assert world["b"].values() == ["old1", "old2", "new1"]
    origin = world["b"].origin("a")
    assert origin is not None
    assert (origin.topic_id, origin.count, origin.start) == (world["a"].service.topic_id(), 1, 0)
    # What the new life knows of b is all of b; no region sends it its own earlier records.
    world["b"].append("b1")
    world["a"].pull()
    assert world["a"].values() == ["new1", "b1"]


def test_a_life_that_ended_is_never_taken_again(world: RegionWorld) -> None:
    peer = world["b"].peers["a"]
    world["a"].append("old1")
    old = peer.topic(TOPIC)
    stale = peer.segments(TOPIC, 0, origin="own", offset=None, limit=100)
    world["b"].pull()
    world["a"].log.topics.delete(TOPIC)
    world["a"].log.topics.create(TOPIC, regions=["a", "b"])
    world["a"].append("new1")
    world.runtime.advance(limits.CONNECTED_MS)
    world["b"].pull()
    peer.seen = {"segments": lambda _: stale, "topic": lambda _: old}  # a proxy's answers
    world.runtime.advance(limits.CONNECTED_MS)
    world["b"].pull()
    assert world["b"].values() == ["old1", "new1"]
