"""Verify believes nothing but the bytes: each kind of damage is found, at the offset where it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteObjectStore
from fenceline.format import keys
from fenceline.format.segment import Replicated
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.log.replay import write_state
from fenceline.ports import Delete, Item, NotFound, ObjectSummary, Put, Unavailable
from fenceline.recovery.verify import Verified, verify_partition
from fenceline.recovery.verify_ranges import Checked, Range, check_range, ranges
from tests.support.damage import replace_segment, segment_key
from tests.support.runtime import FakeRuntime
from tests.support.service import REGION, TOPIC, LogBuilder, Service, append, data, outcome, serve

APPENDS = 40


@pytest.fixture(params=[256, 10, 1], ids=["in one range", "in ranges of ten", "each by itself"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lend a log of segments of two records; segment 20 is the first of a range of ten."""
    monkeypatch.setattr(limits, "VERIFY_RANGE_SEGMENTS", request.param)
    made = serve()
    made.log.topics.create(TOPIC)
    for n in range(APPENDS):
        append(made.log, f"a{n}", f"b{n}", producer=(7, 0, 2 * n))
    made.log.partitions.checkpoint(TOPIC, 0)
    yield made
    made.close()


def context_of(service: Service) -> Context:
    return Context(service.objects, service.items, service.runtime, REGION)


def verified(service: Service) -> Verified:
    """Verify; assert that ranges that are checked in another order say the same."""
    context, topic = context_of(service), service.log.topics.get(TOPIC)

    def last_first(some: Iterator[Range]) -> Iterator[Checked]:
        return reversed([check_range(context, range_) for range_ in reversed(list(some))])

    found = verify_partition(context, topic, 0)
    assert verify_partition(context, topic, 0, check_ranges=last_first) == found
    return found


def test_a_whole_log_is_verified_to_its_end(service: Service) -> None:
    reached: list[int] = []
    found = verify_partition(context_of(service), service.log.topics.get(TOPIC), 0, on_progress=reached.append)
    assert (found.broken_at, found.problem) == (None, "")
    assert (found.segments, found.records, found.next_offset) == (APPENDS, 2 * APPENDS, 2 * APPENDS)
    step = 2 * min(limits.VERIFY_RANGE_SEGMENTS, APPENDS)
    assert reached == list(range(step, 2 * APPENDS + 1, step))
    assert verified(service) == found


@pytest.mark.parametrize("bit", [0, 300, 500], ids=["base offset", "attributes", "a record"])
def test_one_flipped_bit_is_found(service: Service, bit: int) -> None:
    def flip(body: bytes, metadata: dict[str, str]) -> bytes:
        changed = bytearray(body)
        changed[bit // 8 % len(changed)] ^= 1 << bit % 8
        return bytes(changed)

    replace_segment(service, 20, flip)
    assert verified(service).broken_at == 20


@pytest.mark.parametrize("name", ["write-id", "appended-at", "records", "bytes", "max-timestamp", "chain"])
def test_changed_metadata_is_found(service: Service, name: str) -> None:
    def change(body: bytes, metadata: dict[str, str]) -> bytes:
        metadata[name] = {"write-id": "0" * 32, "chain": "0" * 64}.get(name, "17")
        return body

    replace_segment(service, 20, change)
    assert verified(service).broken_at == 20


def test_a_removed_segment_is_found(service: Service) -> None:
    service.objects.store.delete(segment_key(service, 20))
    found = verified(service)
    assert found.broken_at == 20
    assert "missing" in found.problem


def test_a_removed_range_is_found(service: Service) -> None:
    for base in range(20, 60, 2):
        service.objects.store.delete(segment_key(service, base))
    found = verified(service)
    assert (found.broken_at, found.problem) == (20, "a segment is missing; restore it from a backup: offset=20 next=60")


@pytest.mark.parametrize(("base", "broken_at"), [(21, 21), (2 * APPENDS, 2 * APPENDS), (2 * APPENDS + 7, 2 * APPENDS)])
def test_an_added_segment_is_found(service: Service, base: int, broken_at: int) -> None:
    """It lies inside another, right after the last, or beyond it: a copy of one that is right at its own place."""
    stored = service.objects.store.get(segment_key(service, 20))
    service.objects.store.create(segment_key(service, base), stored.body, stored.metadata)
    found = verified(service)
    assert found.broken_at == broken_at
    assert base != 21 or found.problem == "two segments hold the same offset; restore the log from a backup: offset=21"


def test_an_added_segment_that_is_whole_in_itself_is_found(service: Service) -> None:
    """Offsets, counters and CRCs are right; its writer did not know the chain."""
    other = LogBuilder()
    for n in range(APPENDS + 1):
        other.add(data(f"a{n}", f"b{n}", producer=(7, 0, 2 * n)))
    segment = other.segments[-1]
    service.objects.store.create(segment_key(service, 2 * APPENDS), segment.body, segment.metadata.to_strings())
    assert verified(service).broken_at == 2 * APPENDS


@pytest.mark.parametrize("other", [22, 50])
def test_two_swapped_segments_are_found(service: Service, other: int) -> None:
    objects = service.objects.store
    first, second = (objects.get(segment_key(service, base)) for base in (20, other))
    for key, stored in ((first.key, second), (second.key, first)):
        objects.delete(key)
        objects.create(key, stored.body, stored.metadata)
    assert verified(service).broken_at == 20


def test_a_removed_last_segment_is_found_by_the_checkpoint(service: Service) -> None:
    """An item names only offsets that are durable (I5)."""
    service.objects.store.delete(segment_key(service, 2 * APPENDS - 2))
    assert verified(service).broken_at == 2 * APPENDS - 2


def test_a_swapped_segment_is_found(service: Service) -> None:
    """A segment of another history, whole in itself, does not join the chain."""
    other = LogBuilder()
    for n in range(APPENDS):
        other.add(data(f"x{n}", f"y{n}", producer=(7, 0, 2 * n)))
    stranger = other.segments[10]

    def swap(body: bytes, metadata: dict[str, str]) -> bytes:
        kept = {name: metadata[name] for name in ("records", "bytes", "max-timestamp")}
        metadata.clear()
        metadata.update(stranger.metadata.to_strings() | kept)
        return stranger.body

    replace_segment(service, 20, swap)
    assert verified(service).broken_at == 20


def change_item(service: Service, key: keys.ItemKey, change: Callable[[Item], dict[str, Any]]) -> None:
    item = service.items.store.get([key])[key]
    service.items.store.write([Put(key, change(item), item.version + 1, item.version)])


def test_a_head_that_contradicts_the_fold_is_found(service: Service) -> None:
    key = keys.head_item(service.topic_id(), 0)
    change_item(service, key, lambda item: {**item.value, "own_records": 3})
    found = verified(service)
    assert found.broken_at == 2 * APPENDS
    assert "head" in found.problem


def test_a_producer_item_that_contradicts_the_fold_is_found(service: Service) -> None:
    key = keys.producer_item(service.topic_id(), 0, 7)
    change_item(service, key, lambda item: {**item.value, "last_sequence": 3})
    found = verified(service)
    assert "producer 7" in found.problem


def test_a_producer_item_that_the_head_leans_on_and_is_missing_is_found(service: Service) -> None:
    """The head was written before its producers: a retry would be stored twice."""
    key = keys.producer_item(service.topic_id(), 0, 7)
    item = service.items.store.get([key])[key]
    service.items.store.write([Delete(key, item.version)])
    found = verified(service)
    assert found.broken_at == 2 * APPENDS
    assert "producer" in found.problem


def test_a_checkpoint_that_no_segment_ends_at_is_found(service: Service) -> None:
    key = keys.head_item(service.topic_id(), 0)
    change_item(service, key, lambda item: {**item.value, "next_offset": 2 * APPENDS - 1})
    assert verified(service).broken_at is not None


def test_a_checkpoint_beyond_the_log_is_found(service: Service) -> None:
    """Whatever a restored bucket lost, the items still show it (I5)."""
    for base in range(60, 2 * APPENDS, 2):
        service.objects.store.delete(segment_key(service, base))
    found = verified(service)
    assert found.broken_at == 60
    assert "names an offset that no segment ends at" in found.problem


@pytest.mark.parametrize("replicated", [None, Replicated("s", 4, 5)])
@pytest.mark.parametrize("unknown", [(), (("new-one", "7"),)])
def test_each_single_flipped_bit_of_a_segment_is_found(
    replicated: Replicated | None, unknown: tuple[tuple[str, str], ...]
) -> None:
    """The bits are of the body, and of each name and value of the metadata.

    None is without meaning, also of a newer version's members.
    """
    builder = LogBuilder(topic_id="t")
    builder.add(data("a", producer=(7, 0, 0)))
    segment = builder.make(outcome(7, 1, is_commit=True), replicated=replicated)
    key, below = keys.segment_key("t", 0, 1), builder.segments[0].metadata.chain
    strings = segment.metadata._replace(unknown=unknown).chained(below, segment.body).to_strings()
    with closing(SqliteObjectStore(":memory:", now_ms=lambda: 0, secret=b"s")) as objects:

        def is_found(body: bytes, metadata: dict[str, str]) -> bool:
            objects.delete(key)
            objects.create(key, body, metadata)
            context = Context(objects, None, FakeRuntime(), REGION)  # type: ignore[arg-type]
            return bool(check_range(context, Range([ObjectSummary(key, len(body), 0)], below)).problem)

        assert not is_found(segment.body, strings)
        for body in flipped(segment.body):
            assert is_found(body, strings), body
        for name, value in strings.items():
            others = {other: value for other, value in strings.items() if other != name}
            for text in flipped(name.encode()):
                if text.lower() != name.encode():  # except its case, which S3 may change
                    assert is_found(segment.body, {**others, text.decode("latin-1"): value}), text
            for text in flipped(value.encode()):
                assert is_found(segment.body, {**others, name: text.decode("latin-1")}), (name, text)


def flipped(right: bytes) -> Iterator[bytes]:
    for at in range(8 * len(right)):
        wrong = bytearray(right)
        wrong[at // 8] ^= 1 << at % 8
        yield bytes(wrong)


def test_a_log_is_listed_no_further_than_it_is_checked(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition of any length fits into memory."""
    monkeypatch.setattr(limits, "LIST_MAX", 10)
    listed: list[str] = []
    service.objects.always("list", lambda call: [listed.append(""), call()][1], "log/")
    some = ranges(context_of(service), service.topic_id(), 0, 0, "")
    pulled = next(some)
    assert len(pulled.lines) == min(limits.VERIFY_RANGE_SEGMENTS, APPENDS)
    assert len(listed) <= limits.VERIFY_RANGE_SEGMENTS // 10 + 1


def test_a_segment_that_is_listed_and_cannot_be_read_is_found(service: Service) -> None:
    """A database whose pages were changed may answer so."""

    def is_absent(call: Callable[[], Any]) -> Any:
        raise NotFound("no object")

    service.objects.always("get", is_absent, segment_key(service, 20))
    found = verified(service)
    assert (found.broken_at, found.segments) == (20, 10)
    assert "the store lists it, but does not return it" in found.problem


def test_an_object_that_is_no_segment_is_found_among_them(service: Service) -> None:
    """A flipped bit in a key makes such an object, or a console that shows folders."""
    key = segment_key(service, 40).replace("00040.log", "0003x.log")
    service.objects.store.create(key, b"", {})
    found = verified(service)
    assert (found.broken_at, found.segments) == (40, 20)
    assert key in found.problem


def test_a_range_has_a_bounded_size(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VERIFY_RANGE_BYTES", 500)
    some = list(ranges(context_of(service), service.topic_id(), 0, 0, ""))
    assert sum(len(range_.lines) for range_ in some) == APPENDS
    assert all(len(range_.lines) == 1 or sum(line.size for line in range_.lines) <= 500 for range_ in some)
    assert verified(service).broken_at is None


def test_damage_in_a_later_range_does_not_hide_what_is_missing_before_it(service: Service) -> None:
    service.objects.store.delete(segment_key(service, 18))
    replace_segment(service, 20, lambda body, metadata: body[:-1])
    found = verified(service)
    assert (found.broken_at, found.problem) == (18, "a segment is missing; restore it from a backup: offset=18 next=20")


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body.replace(b'"head"', b'"heat"')])
def test_a_damaged_state_object_is_reported(service: Service, change: Callable[[bytes], bytes]) -> None:
    service.log.partitions.trim(TOPIC, 0, 20)
    key = keys.state_key(service.topic_id(), 0, 20)
    body = service.objects.store.get(key).body
    service.objects.store.delete(key)
    service.objects.store.create(key, change(body), {})
    found = verified(service)
    assert found.broken_at == 0
    assert "a stored state is damaged; restore it from a backup" in found.problem
    assert key in found.problem


def test_a_trimmed_log_with_transactions_is_verified_from_its_state() -> None:
    service = serve()
    service.log.topics.create(TOPIC)
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("a", producer=(1, 0, 0), is_transactional=True))
    builder.add(data("b", producer=(2, 0, 0)))
    builder.add(outcome(1, 1, is_commit=False))
    builder.store(service.objects.store)
    assert service.log.partitions.trim(TOPIC, 0, 1) == 1
    service.objects.store.delete(segment_key(service, 0))
    found = verified(service)
    assert (found.broken_at, found.segments, found.next_offset) == (None, 2, 3)
    head = service.items.store.get([keys.head_item(service.topic_id(), 0)])
    assert Head.from_value(next(iter(head.values())).value).log_start == 1
    service.close()


def test_a_listing_that_lacks_a_key_before_others_is_no_damage(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that is made while rivals append may lack one; a segment that is really gone is reported."""
    late = segment_key(service, verified(service).next_offset)
    append(service.log, "late")
    append(service.log, "later")
    list_all = service.objects.list

    def lacking(prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectSummary]:
        return [line for line in list_all(prefix, start_after, limit) if line.key != late]

    monkeypatch.setattr(service.objects, "list", lacking)
    assert verified(service).broken_at is None
    service.objects.store.delete(late)
    assert verified(service).broken_at == keys.parse_segment_key(late)[2]


def test_segments_collected_during_verify_are_no_damage(service: Service) -> None:
    """The process was frozen amid its walk, and met a hole or a late create where the log start has passed."""

    def frozen(some: Iterator[Range]) -> Iterator[Checked]:
        assert service.log.partitions.trim(TOPIC, 0, 20) == 20
        assert write_state(context_of(service), service.topic_id(), 0, 20, segments_max=100) == 20
        replace_segment(service, 0, lambda body, metadata: body[:-1] + bytes([body[-1] ^ 1]))
        return map(partial(check_range, context_of(service)), some)

    with pytest.raises(Unavailable, match="verify again"):
        verify_partition(context_of(service), service.log.topics.get(TOPIC), 0, check_ranges=frozen)
