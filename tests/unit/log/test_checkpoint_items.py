from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.limits import ITEM_BYTES_MAX
from fenceline.log.checkpoint_items import (
    Head,
    aborted_from_value,
    aborted_items,
    aborted_to_value,
    producer_from_value,
    producer_to_value,
)
from fenceline.log.region_state import Origin
from fenceline.log.state import AbortedRange, BatchEvent, OngoingTransaction, PartitionState, ProducerState
from fenceline.ports import Put
from tests.support.tries import tries

OFFSETS = st.integers(0, 2**63 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
TOPIC_EPOCHS = st.integers(-1, 2**31 - 1)
SEQUENCES = st.integers(-1, 2**31 - 1)
NAMES = st.text(min_size=1, max_size=60)
OPEN = st.builds(OngoingTransaction, EPOCHS, OFFSETS, TIMES)
EVENTS = st.builds(
    BatchEvent,
    base_offset=OFFSETS,
    count=st.integers(1, 2**31 - 1),
    producer_epoch=EPOCHS,
    first_sequence=SEQUENCES,
    last_sequence=SEQUENCES,
    topic_epoch=TOPIC_EPOCHS,
    timestamp=TIMES,
    time=TIMES,
    is_transactional=st.booleans(),
)
STATES = st.builds(
    PartitionState,
    next_offset=OFFSETS,
    topic_epoch=TOPIC_EPOCHS,
    access_mode=st.sampled_from(["Shared", "Exclusive"]),
    session_id=st.none() | NAMES,
    open_transactions=st.dictionaries(OFFSETS, OPEN, max_size=5),
    origins=st.dictionaries(NAMES, st.builds(Origin, NAMES, OFFSETS, OFFSETS), max_size=4),
    records=OFFSETS,
    bytes=OFFSETS,
    max_timestamp=TIMES,
    own_records=OFFSETS,
    data_next=OFFSETS,
    chain=NAMES,
    is_sealed=st.booleans(),
)
PRODUCERS = st.builds(
    ProducerState,
    EPOCHS,
    SEQUENCES,
    st.lists(EVENTS, max_size=5).map(tuple),
    TIMES,
    st.none() | OPEN,
)


@pytest.fixture(scope="module")
def items() -> Any:
    store = SqliteItemStore(":memory:")
    yield store
    store.close()


def stored(items: SqliteItemStore, value: Any) -> Any:
    """Return the value as the store gives it back."""
    key = keys.head_item("t", 0)
    before = items.get([key]).get(key)
    expected, version = (None, 1) if before is None else (before.version, before.version + 1)
    items.write([Put(key, value, version, expected)])
    return items.get([key])[key].value


@tries(40)
@given(STATES, OFFSETS, st.integers(1, 9), OFFSETS)
def test_a_head_is_read_back_whole(
    items: SqliteItemStore, state: PartitionState, log_start: int, fold_version: int, horizon: int
) -> None:
    head = Head(state, log_start, fold_version, horizon)
    found = Head.from_value(stored(items, head.to_value()))
    assert found == head
    assert list(found.state.open_transactions) == list(state.open_transactions)


@tries(40)
@given(PRODUCERS, OFFSETS)
def test_a_producer_is_read_back_whole(items: SqliteItemStore, state: ProducerState, folded_to: int) -> None:
    assert producer_from_value(stored(items, producer_to_value(state, folded_to))) == (state, folded_to)


@tries(40)
@given(st.builds(AbortedRange, OFFSETS, OFFSETS, OFFSETS, OFFSETS))
def test_an_aborted_transaction_is_read_back_whole(items: SqliteItemStore, aborted: AbortedRange) -> None:
    assert aborted_from_value(stored(items, aborted_to_value(aborted))) == aborted


@pytest.mark.parametrize(
    ("length", "class_"), [(1, None), (1_023, None), (1_024, 5), (4_095, 5), (4_096, 6), (2**62 - 1, 30), (2**62, 31)]
)
def test_a_long_aborted_transaction_has_a_second_item_under_its_class_of_lengths(
    length: int, class_: int | None
) -> None:
    aborted = AbortedRange(7, 3, 3 + length, 9)
    keys_, values = zip(*aborted_items("t", 1, aborted), strict=True)
    assert keys_[0] == keys.aborted_item("t", 1, 3 + length)
    assert keys_[1:] == (() if class_ is None else (keys.long_aborted_item("t", 1, class_, 3 + length),))
    assert {*map(str, values)} == {str(aborted_to_value(aborted))}


def test_a_head_of_an_older_version_does_not_say_that_long_transactions_are_indexed() -> None:
    value = Head(PartitionState(), 0, long_aborted_from=0).to_value()
    assert Head.from_value(value).long_aborted_from == 0
    del value["long_aborted_from"]
    assert Head.from_value(value).long_aborted_from is None


def test_a_thousand_open_transactions_are_far_from_the_limit_of_an_item() -> None:
    """A partition takes 1,000 open transactions without a cliff (protocol, "Limits")."""
    open_ = {producer_id: OngoingTransaction(1, 2, 3) for producer_id in range(1_000)}
    value = Head(PartitionState(open_transactions=open_), 0).to_value()
    assert len(value["open_transactions"]) < ITEM_BYTES_MAX / 10


def test_a_stored_form_counts_for_the_open_transactions_that_it_was_made_of_alone() -> None:
    before, after = {7: OngoingTransaction(1, 2, 3)}, {8: OngoingTransaction(1, 2, 3)}
    value = Head(PartitionState(open_transactions=before), 0).to_value()
    head = Head(PartitionState(open_transactions=before), 0, packed_open=(before, value["open_transactions"]))
    assert head.to_value() == value
    moved = replace(head, state=PartitionState(open_transactions=after))
    assert Head.from_value(moved.to_value()).state.open_transactions == after
