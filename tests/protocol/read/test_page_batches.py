"""The batches that a page's records lie in, and what became of their transactions (contract, "Read")."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.model.results import Page
from tests.protocol.read.test_aborted_index import OPERATIONS, cost, in_turn, small_numbers
from tests.support.service import TOPIC, LogBuilder, Service, data, serve
from tests.support.transactional_logs import abort, commit, in_, made, read, store, values
from tests.support.tries import tries


def outcomes(page: Page) -> list[tuple[int, str | None]]:
    """Return the base and the outcome of each batch, in order."""
    assert page.batches is not None
    return [(one.base_offset, one.outcome) for one in page.batches]


def test_a_page_says_whose_its_batches_are_and_how_they_are_stored(service: Service) -> None:
    log = made(service, [in_(7, "a", "b", epoch=3, sequence=5), data("p")], [data("q", producer=(9, 1, 2))])
    page = read(service.log, 1, is_read_committed=False, has_batches=True)
    assert values(page) == ["b", "p", "q"]
    stored = [header for segment in log.segments for _, header in segment.batches]
    assert page.batches is not None
    assert [(one.base_offset, one.next_offset, one.bytes) for one in page.batches] == [
        (one.base_offset, one.next_offset, one.size) for one in stored
    ]
    producers = [(one.producer_id, one.producer_epoch, one.base_sequence) for one in page.batches]
    assert producers == [(7, 3, 5), (-1, -1, -1), (9, 1, 2)]
    assert [one.is_transactional for one in page.batches] == [True, False, False]
    assert [one.outcome for one in page.batches] == ["open", None, None]
    assert {one.codec for one in page.batches} == {"none"}
    times = [segment.metadata.appended_at for segment in log.segments for _ in segment.batches]
    assert [one.appended_at for one in page.batches] == times
    assert read(service.log, 1, is_read_committed=False).batches is None


def test_only_batches_of_which_a_record_is_shown_are_named(service: Service) -> None:
    made(service, [in_(7, "a"), abort(7), data("b", "c"), data("d")])
    every = read(service.log, 0, is_read_committed=False, has_batches=True)
    assert outcomes(every) == [(0, "aborted"), (2, None), (4, None)]
    assert outcomes(read(service.log, 0, has_batches=True)) == [(2, None), (4, None)]
    assert outcomes(read(service.log, 3, has_batches=True, max_records=1)) == [(2, None)]
    assert outcomes(read(service.log, 0, has_batches=True, max_records=2, is_read_committed=False))[-1] == (2, None)
    assert outcomes(read(service.log, 5, has_batches=True)) == []


def test_a_transaction_is_open_until_its_marker_is_there(service: Service) -> None:
    log = made(service, [in_(7, "a")], [in_(8, "b")], [data("p")])
    assert outcomes(read(service.log, has_batches=True, is_read_committed=False)) == [
        (0, "open"),
        (1, "open"),
        (2, None),
    ]
    store(service, log, abort(8))
    store(service, log, in_(8, "c", epoch=1))
    store(service, log, commit(7))
    found = outcomes(read(service.log, has_batches=True, is_read_committed=False))
    assert found == [(0, "committed"), (1, "aborted"), (2, None), (4, "open")]


def expected_of(operations: Sequence[tuple[str, int]]) -> dict[int, str | None]:
    """Return the outcome of each data batch, by its offset; each operation takes one offset."""
    found: dict[int, str | None] = {}
    open_: dict[int, list[int]] = {}
    for offset, (kind, producer) in enumerate(operations):
        if kind == "plain":
            found[offset] = None
        elif kind == "in":
            found[offset] = "open"
            open_.setdefault(producer, []).append(offset)
        else:
            found |= dict.fromkeys(open_.pop(producer, ()), "aborted" if kind == "abort" else "committed")
    return found


@tries(60)
@given(st.lists(OPERATIONS, min_size=1, max_size=60), st.data())
def test_every_outcome_is_that_of_the_transaction_wherever_a_page_begins_and_ends(operations: Any, draw: Any) -> None:
    """Beyond an open transaction, too, and by markers among the segments, in memory and in items."""
    with closing(serve()) as service, small_numbers():
        service.log.topics.create(TOPIC)
        log = LogBuilder(topic_id=service.topic_id())
        for parts in in_turn(operations)[0]:
            store(service, log, *parts)
            if draw.draw(st.sampled_from([False, False, False, True])):
                service.another().partitions.checkpoint(TOPIC, 0)
        reader = service.another()
        found: dict[int, str | None] = {}
        position = 0
        while position < len(operations):
            size = draw.draw(st.integers(1, 9))
            page = read(reader, position, max_records=size, is_read_committed=False, has_batches=True)
            found |= outcomes(page)
            position = page.position
        assert found == expected_of(operations)


@pytest.mark.parametrize("is_read_committed", [False, True])
def test_a_page_without_transactions_costs_the_same_with_its_batches(service: Service, is_read_committed: bool) -> None:
    made(service, *([data(f"v{n}", producer=(7, 0, n))] for n in range(40)))
    reader = service.another()
    for _ in range(2):
        plain = cost(service, lambda: read(reader, 0, is_read_committed=is_read_committed))
    named = cost(service, lambda: read(reader, 0, is_read_committed=is_read_committed, has_batches=True))
    assert named == plain
