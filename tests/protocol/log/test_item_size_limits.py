"""Items at the brim: what grows an item is refused well before its limit, and what ends anything always fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.producer import ProducerRecord
from fenceline.access.resources import OwnershipItem
from fenceline.access.rules import AccessItem, Holder, Waiter
from fenceline.access.session_item import CLOSED, ENDED, LIVE, RESERVED, OwnedHold, SessionItem, WriteHold
from fenceline.errors import FencelineError
from fenceline.format import keys
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.format.item_size import size_of
from fenceline.log.checkpoint_items import CompactedView, Head, aborted_to_value, producer_to_value
from fenceline.log.region_state import Origin
from fenceline.log.state import AbortedRange, BatchEvent, OngoingTransaction, PartitionState, ProducerState
from fenceline.log.topic_item import TopicItem
from fenceline.model.access import GRANTED
from fenceline.model.requests import OwnTarget
from fenceline.model.topic import Topic
from fenceline.model.topic_config import DEFAULTS
from fenceline.ports import ItemKey, ItemTooLarge, ItemValue, WriteTooLarge
from fenceline.read.offset_ranges import Acknowledged
from fenceline.subscriptions.items import (
    Chunk,
    CursorItem,
    PendingOffset,
    SubscriptionItem,
    cursor_to_value,
    lay_out,
    pack,
)
from tests.support.claiming import FENCING, claim
from tests.support.owning import WRITE, everything, ok_or_code, own, refusal, sent, serve_two, session, start
from tests.support.region_logs import full_regions
from tests.support.service import TOPIC, Service, append, never_arrives

MAX = limits.INT64_MAX
ID = "f" * 32
NAME = "n" * 249
PRINCIPAL = "arn:aws:sts::123456789012:assumed-role/".ljust(2048, "r")


# A session


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a service whose items are small, so that one is soon full."""
    monkeypatch.setattr(limits, "ITEM_BYTES_MAX", 12_000)
    monkeypatch.setattr(limits, "SESSION_BYTES_MAX", 9_600, raising=False)
    made = serve_two()
    yield made
    made.close()


def size(session: SessionItem) -> int:
    return size_of(session.key, session.to_value())


def full(service: Service) -> tuple[str, str]:
    """Return a session, and its producer of partition 1.

    The session owns partition 0, and as many locks as it may.
    """
    a = start(service, lease_ms=300_000)
    own(service.log, a, WRITE)
    producer = claim(service.log, partitions=[1], session_id=a)
    for length, count in ((249, 32), (249, 1), (60, 1), (12, 1), (6, 1), (4, 1), (3, 1), (2, 1), (1, 1)):
        for n in range(15):
            names = [f"{32 * n + k:x}".rjust(length, "-") for k in range(count)]
            code = ok_or_code(lambda names=names: own(service.log, a, *names))  # type: ignore[misc]
            assert code in ("ok", "THROTTLED")
            if code != "ok":
                break
    return a, producer.producer_name


def an_append_behind_its_lease(service: Service, a: str, _: str) -> None:
    service.runtime.advance(400_000)
    append(service.another(), "v")
    assert [hold.state for hold in session(service, a).holds] == [ENDED, LIVE]


def a_takeover(service: Service, a: str, _: str) -> None:
    claim(service.another(), FENCING, partitions=[0])
    assert session(service, a).wanted_at


def a_takeover_behind_its_lease(service: Service, a: str, _: str) -> None:
    service.runtime.advance(400_000)
    claim(service.another(), FENCING, partitions=[0, 1])
    assert [hold.state for hold in session(service, a).holds] == [ENDED, ENDED]


def severing(service: Service, a: str, _: str) -> None:
    own(service.another(), start(service), (WRITE, 9))
    severed = session(service, a)
    assert (severed.state, severed.fences) == (session_item.SEVERED, ())


def its_close(service: Service, a: str, _: str) -> None:
    service.another().access.close_session(a)
    assert session(service, a).state == CLOSED


def its_producers_close(service: Service, a: str, name: str) -> None:
    service.another().access.close_producer(TOPIC, name, a)
    assert [hold.state for hold in session(service, a).holds] == [LIVE, CLOSED]


def a_release(service: Service, a: str, _: str) -> None:
    service.another().access.release(a, [WRITE])
    assert [hold.state for hold in session(service, a).holds] == [CLOSED, LIVE]


def a_renewal(service: Service, a: str, _: str) -> None:
    service.runtime.advance(200_000)
    assert sent(service.another(), a, 0) == "ok"
    service.runtime.advance(1)
    service.another().access.heartbeat(a)
    renewed = session(service, a)
    assert renewed.expires_at == service.runtime.now_ms() + renewed.lease_ms


@pytest.mark.parametrize(
    "ending",
    [
        an_append_behind_its_lease,
        a_takeover,
        a_takeover_behind_its_lease,
        severing,
        its_close,
        its_producers_close,
        a_release,
        a_renewal,
    ],
)
def test_a_session_that_owns_all_that_it_is_let_is_ended_in_every_way(
    service: Service, ending: Callable[[Service, str, str], None]
) -> None:
    """Its item was once allowed to fill up to the brim. Then each of these ended in an error of ours, for a day."""
    a, name = full(service)
    ending(service, a, name)


def test_a_refusal_for_a_full_item_names_the_limit_and_the_remedy(service: Service) -> None:
    a, _ = full(service)
    error = refusal(service.log, a, "one-more")
    assert (error.code, error.status, error.next_step) == ("THROTTLED", 429, "retry")
    assert str(limits.SESSION_BYTES_MAX) in error.detail
    assert "release some" in error.detail
    assert size(session(service, a)) <= limits.SESSION_BYTES_MAX
    service.log.access.release(a, ["-" * 248 + "0"])
    own(service.log, a, "one-more")


def test_a_claim_that_would_fill_the_item_is_refused_and_changes_nothing(service: Service) -> None:
    a, name = full(service)
    service.another().access.close_producer(TOPIC, name, a)
    before = everything(service)
    code = ok_or_code(lambda: claim(service.log, partitions=[1], session_id=a, producer_name=NAME))
    assert (code, everything(service)) == ("THROTTLED", before)


def test_a_full_session_s_producer_reconnects(service: Service) -> None:
    """A resumption takes no further room."""
    a, name = full(service)
    service.runtime.advance(400_000)
    again = claim(service.another(), session_id=a, producer_name=name, topic_epochs={1: 0})
    assert again.topic_epochs == {1: 0}


def test_there_is_room_between_what_a_session_may_take_and_what_an_item_may() -> None:
    assert limits.SESSION_BYTES_MAX + 64 * 1024 <= limits.ITEM_BYTES_MAX


_TEXT = st.text(min_size=1, max_size=40)
_HOLDS = st.builds(
    WriteHold, _TEXT, _TEXT, st.integers(0, 9_999), st.integers(0, limits.INT32_MAX),
    st.sampled_from([EXCLUSIVE, SHARED]), st.text(max_size=40), st.sampled_from([LIVE, RESERVED, CLOSED, ENDED]),
)  # fmt: skip
_SESSIONS = st.builds(
    SessionItem, st.just(ID), _TEXT, st.just(30_000), st.integers(0, 2**41), st.integers(0, 2**41),
    holds=st.lists(_HOLDS, max_size=5).map(tuple),
    owns=st.lists(st.builds(OwnedHold, st.none() | _TEXT, _TEXT, st.text(max_size=32)), max_size=5).map(tuple),
)  # fmt: skip


@given(_SESSIONS, st.integers(0, 2**41), st.lists(st.sampled_from([LIVE, CLOSED, ENDED]), max_size=9))
def test_no_end_of_a_session_counts_more_than_it_was_judged_by(
    session: SessionItem, now_ms: int, states: Sequence[str]
) -> None:
    most = session_item.bytes_at_end(session)
    for hold, state in zip(session.holds, states, strict=False):
        place = hold.topic_id, hold.partition, hold.epoch, hold.producer_name
        session = session_item.with_hold_state(session, *place, state)
    session = session_item.wanted(session_item.renewed(session, now_ms), now_ms)
    for ended in (session, session_item.closed(session, now_ms), session_item.severed(session, now_ms)):
        assert size(ended) <= most


@pytest.mark.parametrize("count", [0, 1, 9])
def test_no_session_counts_more_than_its_entries_may(count: int) -> None:
    """Names of the longest, and numbers of the largest that are written: else a large session would not be judged."""
    longest = "t" * limits.TOPIC_NAME_CHARS_MAX, ID, limits.PARTITIONS_MAX, limits.INT32_MAX
    hold = WriteHold(*longest, EXCLUSIVE, "p" * limits.PRODUCER_NAME_CHARS_MAX, RESERVED)
    owned = OwnedHold("g" * limits.GROUP_BYTES_MAX, "r" * limits.RESOURCE_BYTES_MAX, ID)
    client_name = "n" * limits.CLIENT_NAME_BYTES_MAX
    for holds, owns in (((hold,) * count, ()), ((), (owned,) * count), ((hold,) * count, (owned,) * count)):
        made = SessionItem(ID, "ä" * 3_000, MAX, MAX, MAX, holds=holds, owns=owns, client_name=client_name, version=MAX)
        assert session_item.bytes_at_end(made) <= session_item.bytes_at_most(made)


# The fact, wherever a write may meet it


def too_large(call: Callable[[], Any]) -> Any:
    raise ItemTooLarge("the item is too large: key=('sessions/a', 'another-s-secret')")


def too_large_together(call: Callable[[], Any]) -> Any:
    raise WriteTooLarge("the items are too large together")


def writes(service: Service) -> dict[str, Callable[[], object]]:
    """Return every request that writes items, each ready to be made."""
    log = service.log
    a, b = start(service), start(service)
    producer = claim(log, partitions=[1], session_id=b)
    log.topics.create("going")
    log.topics.create("kept", config={"cleanup.policy": "compact"})
    append(log, "v")
    log.subscriptions.subscribe(TOPIC, "s")
    return {
        "create a topic": lambda: log.topics.create("t"),
        "alter it": lambda: log.topics.alter(TOPIC, partitions=3),
        "delete it": lambda: log.topics.delete("going"),
        "trim": lambda: log.partitions.trim(TOPIC, 0, 1),
        "create a session": lambda: log.access.create_session(),
        "heartbeat": lambda: log.access.heartbeat(a),
        "close it": lambda: log.access.close_session(a),
        "claim": lambda: claim(log, partitions=[0]),
        "close a producer": lambda: log.access.close_producer(TOPIC, producer.producer_name, b),
        "own a partition": lambda: log.access.own(a, [OwnTarget(WRITE)]),
        "own a lock": lambda: log.access.own(a, [OwnTarget("lock")]),
        "a producer id": lambda: log.producing.new_producer_id(),
        "a checkpoint": lambda: log.partitions.checkpoint(TOPIC, 0),
        "subscribe": lambda: log.subscriptions.subscribe(TOPIC, "other"),
    }


CASES = (
    "create a topic", "alter it", "delete it", "trim", "create a session", "heartbeat", "close it", "claim",
    "close a producer", "own a partition", "own a lock", "a producer id", "a checkpoint", "subscribe",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("fact", "advice"), [(too_large, "delete some"), (too_large_together, "fewer")])
def test_an_item_without_room_is_a_refusal_and_never_an_error_of_ours(
    case: str, fact: Callable[[Any], Any], advice: str
) -> None:
    service = serve_two()
    call = writes(service)[case]
    service.items.always("write", fact)
    with pytest.raises(FencelineError) as caught:
        call()
    assert (caught.value.code, caught.value.status) == ("THROTTLED", 429)
    assert advice in caught.value.detail
    # A key may name another's session.
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize("case", ["heartbeat", "own a lock", "claim", "subscribe"])
def test_behind_a_write_that_was_not_answered_it_is_an_unknown_outcome(case: str) -> None:
    """What became of the second write promises nothing about the first."""
    service = serve_two()
    call = writes(service)[case]
    service.items.plan("write", never_arrives)
    service.items.plan("write", *[too_large] * 50)
    with pytest.raises(FencelineError) as caught:
        call()
    assert caught.value.code == "OUTCOME_UNKNOWN"


# Every kind of item, as full as its limits let it be


def _partition(topic_id: str = ID) -> tuple[str, int]:
    return topic_id, limits.PARTITIONS_MAX


HOLD = WriteHold(NAME, ID, 9_999, limits.INT32_MAX, EXCLUSIVE, NAME, RESERVED)
HOLDER = Holder(ID, limits.INT32_MAX, NAME, True, True)
WAITER = Waiter(MAX, ID, NAME, tuple(range(9_968, 10_000)))
ACCESS = AccessItem(
    limits.INT32_MAX, HOLDER, HOLDER,
    (HOLDER,) * limits.SESSIONS_PER_PARTITION_MAX, (WAITER,) * limits.SESSIONS_PER_PARTITION_MAX,
)  # fmt: skip
SESSION = SessionItem(
    ID, PRINCIPAL, limits.LEASE_MS_MAX, MAX, MAX, session_item.SEVERED, MAX, MAX, (HOLD,) * limits.HOLDS_KEPT_MAX
)
RANGES = Acknowledged(
    tuple(range(2**62, 2**62 + 2**61, 2**50))[: limits.CURSOR_CHUNK_RANGES],
    tuple(range(2**62 + 2**49, 2**62 + 2**61, 2**50))[: limits.CURSOR_CHUNK_RANGES],
)
PENDING = CursorItem(
    MAX, RANGES, "m" * limits.METADATA_BYTES_MAX, MAX, MAX, False,
    dict.fromkeys(
        range(MAX, MAX - limits.CURSOR_PENDING_OFFSETS_MAX, -1),
        PendingOffset(32_767, MAX, MAX, "m" * limits.METADATA_BYTES_MAX),
    ),
)  # fmt: skip
CHUNKS_MAX = 2 * limits.CURSOR_RANGES_MAX // (limits.CURSOR_CHUNK_RANGES // 2) + 1


HEAD = Head(
    PartitionState(
        next_offset=MAX,
        open_transactions={p: OngoingTransaction(1, MAX, MAX) for p in range(limits.OPEN_TRANSACTIONS_MAX)},
        origins={
            f"{region}".rjust(63, "r"): Origin(ID, MAX, MAX, "f" * 64, MAX, (ID,) * limits.ORIGIN_LIVES_MAX)
            for region in range(limits.ORIGINS_MAX)
        },
        session_id=ID,
        chain="f" * 64,
        regions=full_regions(),
    ),
    MAX,
    view=CompactedView(MAX, ID, MAX, MAX, MAX, MAX, ((MAX, MAX),) * 16, MAX),
)
PRODUCER = ProducerState(
    1, MAX, (BatchEvent(MAX, 2**31 - 1, 1, 2**31 - 1, 2**31 - 1, 2**31 - 1, MAX, MAX, True),) * 5, MAX, None
)
ITEMS: Mapping[str, tuple[ItemKey, Mapping[str, ItemValue]]] = {
    "topic": (
        keys.topic_item(NAME),
        TopicItem(Topic(NAME, ID, 10_000, DEFAULTS, ("r" * 64,) * 8, MAX), MAX, True, MAX, MAX).to_value(),
    ),
    "partition head": (keys.head_item(*_partition()), HEAD.to_value()),
    "producer state": (keys.producer_item(*_partition(), MAX), producer_to_value(PRODUCER, MAX)),
    "aborted transaction": (
        keys.aborted_item(*_partition(), MAX),
        aborted_to_value(AbortedRange(MAX, MAX, MAX, MAX)),
    ),
    "access": (keys.access_item(*_partition()), ACCESS.to_value()),
    "producer name": (
        keys.named_producer_item(ID, NAME),
        ProducerRecord(
            ID, NAME, ID, PRINCIPAL, FENCING, tuple(range(9_968, 10_000)), GRANTED, MAX,
            dict.fromkeys(range(9_968, 10_000), limits.INT32_MAX), dict.fromkeys(range(9_968, 10_000), MAX),
        ).to_value(),
    ),
    "severed session": (
        SESSION.key,
        session_item.severed(replace(SESSION, holds=(replace(HOLD, state=LIVE),) * 256), MAX).to_value(),
    ),
    "ownership": (keys.lock_item("g" * 249, "r" * 1_024), OwnershipItem(MAX, MAX, ID, (ID, ID)).to_value()),
    "subscription": (
        keys.subscription_item(ID, NAME), SubscriptionItem(NAME, ID, NAME, ID, True, MAX).to_value()
    ),
    "cursor": (
        keys.cursor_item(NAME, ID, ID, 9_999),
        cursor_to_value(CursorItem(MAX, RANGES, "m" * limits.METADATA_BYTES_MAX), [Chunk(ID, RANGES)] * CHUNKS_MAX),
    ),
    "cursor with ranges": (
        keys.cursor_item(NAME, ID, ID, 9_999), cursor_to_value(CursorItem(MAX, RANGES, "m" * 4_096), [])
    ),
    "cursor with pending offsets": (keys.cursor_item(NAME, ID, ID, 9_999), cursor_to_value(PENDING, [])),
    "cursor with chunks and pending offsets": (
        keys.cursor_item(NAME, ID, ID, 9_999), cursor_to_value(PENDING, [Chunk(ID, RANGES)] * CHUNKS_MAX)
    ),
    "chunk": (keys.chunk_item(ID, 9_999, ID), {"ranges": pack(RANGES)}),
    "unowned note": (keys.unowned_item(ID, ID), {"name": NAME, "since": MAX}),
    "producer id block": (keys.PRODUCER_ID_BLOCK, {"next": MAX}),
    "tickets": (keys.tickets_item(ID), {"next": MAX}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ITEMS)
def test_an_item_as_full_as_its_limits_let_it_be_has_room(kind: str) -> None:
    key, value = ITEMS[kind]
    assert size_of(key, value) <= limits.ITEM_BYTES_MAX - 64 * 1024


def test_every_transaction_that_ends_something_fits_one_write() -> None:
    """A release, and the end of a claim, are of 32 partitions and the session; a checkpoint is of 99 small items."""
    sizes = {kind: size_of(*item) for kind, item in ITEMS.items()}
    most = limits.RESOURCES_PER_OWN_MAX * (sizes["access"] + sizes["ownership"]) + limits.SESSION_BYTES_MAX
    assert most + sizes["producer name"] <= limits.TRANSACTION_BYTES_MAX
    assert 99 * sizes["producer state"] + sizes["partition head"] <= limits.TRANSACTION_BYTES_MAX
    assert limits.CLAIM_PARTITIONS_MAX <= limits.RESOURCES_PER_OWN_MAX
    # An acknowledgement makes as many chunks as fit beside its cursor; a commit has none.
    assert 99 * sizes["chunk"] + sizes["cursor with chunks and pending offsets"] <= limits.TRANSACTION_BYTES_MAX
    assert limits.PARTITIONS_PER_COMMIT_MAX * sizes["cursor with ranges"] <= limits.TRANSACTION_BYTES_MAX


def test_chunks_that_shrink_one_after_the_other_leave_no_crumbs() -> None:
    """From the last to the first, each chunk loses all ranges but one.

    Without merging, the cursor would name ever more of them.
    """
    half, count = limits.CURSOR_CHUNK_RANGES // 2, 20
    fresh = iter(f"{n:032x}" for n in range(100_000))

    def stored(chunks: Sequence[Chunk]) -> list[Chunk]:
        return [replace(chunk, version=1) for chunk in chunks]

    singles = [(offset, offset + 1) for offset in range(0, 2 * half * count, 2)]
    chunks = stored(lay_out(Acknowledged.of(singles), [], lambda: next(fresh)))
    known = Acknowledged.of(singles)
    for chunk in reversed(chunks[3:]):
        known = known.including([(chunk.ranges.starts[0], chunk.ranges.ends[-1])])
        chunks = stored(lay_out(known, chunks, lambda: next(fresh)))
        assert [r for one in chunks for r in one.ranges.ranges] == known.ranges
    assert all(len(a.ranges) + len(b.ranges) > half for a, b in pairwise(chunks))
