"""Records of stored batches, decoded as far as a page takes them, and resumed where it ended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import CorruptLogError
from fenceline.format import batch, compression
from fenceline.format.batch import Codec, headers
from fenceline.format.segment import Segment, SegmentMetadata, decode_stored
from fenceline.format.unpacking import PayloadPosition, UnpackedBatches, Unpacking
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ReadRecord
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from tests.support.independent_codec import NOW, forge, record
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, LogBuilder, Service, data
from tests.support.tries import tries

MANY = 30_000
# With values of this size, MANY records make more than a window.
LARGE = b"x" * 40


class Counted:
    """How many records were decoded, and how many batches were decompressed."""

    def __init__(self) -> None:
        self.records = 0
        self.payloads = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found, window, payload = Counted(), compression._window, compression.payload

    def counting(*args: Any) -> Iterator[Any]:
        for one in window(*args):
            found.records += 1
            yield one

    def decompressing(*args: Any, **options: Any) -> memoryview:
        found.payloads += 1
        return payload(*args, **options)

    monkeypatch.setattr(compression, "_window", counting)
    monkeypatch.setattr(compression, "payload", decompressing)
    return found


def send_many(service: Service, codec: Codec, value: bytes = b"", count: int = MANY) -> None:
    service.log.topics.alter(TOPIC, config={"max.message.bytes": limits.MESSAGE_BYTES_MAX})
    records = [Record(value, timestamp=START_MS + n) for n in range(count)]
    request = AppendRequest.of_batch(batch.encode(records, now_ms=START_MS, codec=codec).body)
    service.log.append(TOPIC, 0, request)


def read(log: Log, offset: int, max_records: int) -> tuple[list[int], int]:
    page = log.partitions.read(
        TOPIC, 0, ReadRequest(offset=offset, max_records=max_records, max_bytes=limits.BYTES_MAX)
    )
    return [one.offset for one in page.records], page.position


def walk(log: Log, max_records: int, end: int = MANY) -> int:
    """Read the log page by page; return how many pages it took."""
    offset = pages = 0
    while offset < end:
        found, position = read(log, offset, max_records)
        assert found == [*range(offset, min(offset + max_records, end))]
        offset, pages = position, pages + 1
    return pages


# How much is decoded


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("value", [b"", LARGE], ids=["one window", "several windows"])
def test_all_pages_of_a_batch_together_decode_it_once(
    service: Service, counted: Counted, value: bytes, codec: Codec
) -> None:
    send_many(service, codec, value)
    for log, max_records in ((service.another(), 100), (service.another(), 7_000)):
        counted.records = counted.payloads = 0
        pages = walk(log, max_records)
        assert pages == -(-MANY // max_records)
        # Each page meets the record that it has no room for.
        assert counted.records <= MANY + pages
        # A batch that is not compressed is only sliced.
        assert counted.payloads == (pages if codec == "none" else 1)


def test_the_first_page_of_a_large_batch_decodes_what_it_shows(service: Service, counted: Counted) -> None:
    send_many(service, "zstd", LARGE)
    counted.records = 0
    assert read(service.another(), 0, 1) == ([0], 1)
    assert counted.records == 2


def test_a_page_that_is_asked_for_again_is_decoded_again_and_nothing_else(service: Service, counted: Counted) -> None:
    """Its answer was lost, or JSON had no room for all of it."""
    send_many(service, "zstd", LARGE)
    log = service.another()
    assert read(log, 0, 1_000) == ([*range(1_000)], 1_000)
    read(log, 1_000, 1_000)
    counted.records = 0
    assert read(log, 1_000, 1_000) == ([*range(1_000, 2_000)], 2_000)
    assert read(log, 1_700, 100) == ([*range(1_700, 1_800)], 1_800)
    assert counted.records == 1_001 + 801
    assert counted.payloads < 4


def test_readers_at_different_places_of_a_batch_do_not_send_each_other_back(service: Service, counted: Counted) -> None:
    send_many(service, "zstd", LARGE)
    log = service.another()
    for start in (20_000, 0, 10_000):
        read(log, start, 10)
    counted.records = 0
    for step in range(1, 20):
        for start in (0, 10_000, 20_000):
            assert read(log, start + 10 * step, 10)[1] == start + 10 * step + 10
    assert counted.records == 3 * 19 * 11
    assert counted.payloads <= 3


def test_a_search_by_time_ends_at_what_it_finds_and_a_read_goes_on_there(service: Service, counted: Counted) -> None:
    send_many(service, "zstd", LARGE)
    log = service.another()
    counted.records = 0
    page = log.partitions.read(TOPIC, 0, ReadRequest(timestamp=START_MS + 5_000, max_records=10))
    assert [one.offset for one in page.records] == [*range(5_000, 5_010)]
    assert counted.records == 5_001 + 11


# What is shown


def segment_of(body: bytes) -> Segment:
    found = tuple(headers(body))
    metadata = SegmentMetadata("write", 0, "here", 0, 0, -1)
    return Segment(found[0][1].base_offset, found[-1][1].next_offset, body, metadata, found)


def shown(one: Any) -> tuple[Any, ...]:
    return one.offset, one.timestamp, one.key, one.value, list(one.headers)


@given(
    gaps=st.lists(st.integers(1, 5), min_size=1, max_size=60),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    codec=st.integers(0, 4),
    steps=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20)), max_size=12),
    window=st.sampled_from([8, 64, 1_000, 100_000]),
    room=st.sampled_from([0, 300, 100_000]),
)
@tries(60)
def test_from_any_offset_come_the_records_of_the_whole_batch(
    gaps: list[int], sizes: list[int], codec: int, steps: list[tuple[int, int]], window: int, room: int
) -> None:
    """That holds wherever pages began and ended before, whatever is remembered, and over a compacted view's gaps."""
    deltas = [sum(gaps[:n]) for n in range(len(gaps))]
    records = [
        record(delta, value=b"v" * sizes[n % len(sizes)], timestamp_delta=n, headers=[(b"h", b"x")] * (n % 3))
        for n, delta in enumerate(deltas)
    ]
    raw = b"".join(records)
    body = forge(
        compression.compress(codec, raw) if codec else raw,
        count=len(records),
        attributes=codec,
        base_offset=7,
        last_offset_delta=deltas[-1],
        max_timestamp=NOW + len(records),
    )
    segment = segment_of(body)
    ((at, header),) = segment.batches
    whole = [shown(one) for one in decode_stored(segment, at)]
    unpacked = UnpackedBatches(ThreadRuntime(), room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_WINDOW_BYTES", window)
        patch.setattr(compression, "_FIRST_WINDOW_BYTES", min(window, 16))
        for start, count in steps:
            unpacking = Unpacking(unpacked, segment, at, header, start)
            found = []
            for taken, one in enumerate(unpacking):
                if one.offset < start:
                    continue
                if len(found) == count:
                    unpacking.stop_at(one.offset, taken)
                    break
                found.append(shown(one))
            assert found == [one for one in whole if one[0] >= start][:count]


def test_damage_is_raised_at_its_offset_and_earlier_records_are_read(service: Service) -> None:
    """A page that goes on there is refused, too, and so is each later one."""
    good = b"".join(record(n) for n in range(10))

    def damaged(base_offset: int, epoch: int, now_ms: int) -> bytes:
        payload = compression.compress(4, good + b"\xff" * 30)
        return forge(payload, base_offset=base_offset, leader_epoch=epoch, count=12, attributes=4)

    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("first"))
    log.add(damaged)
    log.store(service.objects)
    reader = service.another()
    assert read(reader, 0, 6) == ([*range(6)], 6)
    assert read(reader, 6, 4) == ([6, 7, 8, 9], 10)
    for _ in range(2):
        with pytest.raises(CorruptLogError, match=r"stored batch is damaged.*offset=1"):
            read(reader, 10, 500)
    with pytest.raises(CorruptLogError, match=r"stored batch is damaged.*offset=1"):
        read(service.another(), 3, 500)


@pytest.mark.parametrize("count", [9, 11])
@pytest.mark.parametrize("window", [16, 1_000])
@pytest.mark.parametrize("stop", [0, 4, 8])
def test_a_batch_of_another_number_of_records_is_damaged_for_who_comes_to_its_end(
    count: int, window: int, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_WINDOW_BYTES", window)
    monkeypatch.setattr(compression, "_FIRST_WINDOW_BYTES", window)
    segment = segment_of(forge(b"".join(record(n) for n in range(10)), count=count))
    ((at, header),) = segment.batches
    unpacked = UnpackedBatches(ThreadRuntime())
    first = Unpacking(unpacked, segment, at, header, 0)
    for taken, one in enumerate(first):
        if taken == stop:
            first.stop_at(one.offset, taken)
            break
    with pytest.raises(CorruptLogError):
        list(Unpacking(unpacked, segment, at, header, stop))
    with pytest.raises(CorruptLogError):
        decode_stored(segment, at)


def test_readers_in_many_threads_see_the_same_batch(service: Service) -> None:
    send_many(service, "lz4", LARGE, count=6_000)
    log = service.another()
    whole = [
        *log.partitions.read(TOPIC, 0, ReadRequest(offset=0, max_records=6_000, max_bytes=limits.BYTES_MAX)).records
    ]

    def paged(max_records: int) -> list[ReadRecord]:
        found: list[ReadRecord] = []
        while len(found) < 6_000:
            found += log.partitions.read(TOPIC, 0, ReadRequest(offset=len(found), max_records=max_records)).records
        return found

    with ThreadPoolExecutor(6) as threads:
        for found in threads.map(paged, [97, 100, 100, 333, 1_000, 2_500]):
            assert found == whole


# What is remembered


def test_unpacked_batches_are_bounded_in_bytes_and_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = UnpackedBatches(ThreadRuntime(), 1_000)
    names = [("write", n, 0, 0) for n in range(10)]
    for name in names:
        unpacked.note(name, memoryview(bytes(300)), PayloadPosition(5, 5, 50))
    unpacked.find(names[7], 9)
    unpacked.note(("write", 10, 0, 0), memoryview(bytes(300)), PayloadPosition(5, 5, 50))
    assert [n for n, name in enumerate(names) if unpacked.find(name, 9)[0] is not None] == [7, 9]
    unpacked.note(names[0], memoryview(bytes(1_001)), PayloadPosition(5, 5, 50))
    assert unpacked.find(names[0], 9) == (None, PayloadPosition(0, 0, 0))
    assert unpacked.find(names[9], 4)[1] == PayloadPosition(0, 0, 0)
    assert unpacked.find(names[9], 5)[1] == PayloadPosition(5, 5, 50)

    monkeypatch.setattr(limits, "UNPACKED_BATCHES_MAX", 2)
    for name in names:
        unpacked.note(name, None, PayloadPosition(5, 5, 50))
    assert [n for n, name in enumerate(names) if unpacked.find(name, 9)[1].offset] == [8, 9]
    assert unpacked._bytes == 0
    for n in range(1, 200):
        unpacked.note(names[9], None, PayloadPosition(n, n, n))
    assert len(unpacked._batches[names[9]].places) == limits.UNPACKED_PLACES_MAX
    assert unpacked.find(names[9], 199)[1] == PayloadPosition(199, 199, 199)


def test_a_kept_batch_takes_no_more_than_its_size(service: Service) -> None:
    """Decompressing reserves 64 MiB of addresses: a thousand of these would be more than a machine may give."""
    send_many(service, "zstd", count=1_000)
    log = service.another()
    read(log, 0, 10)
    (known,) = log.context.unpacked._batches.values()
    assert known.payload is not None
    assert isinstance(known.payload.obj, bytes)
    assert len(known.payload.obj) - len(known.payload) <= 64
