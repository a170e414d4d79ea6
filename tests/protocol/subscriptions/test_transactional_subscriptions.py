"""Subscriptions on transactional logs: reads, marks and backlogs ("Ranges, marks and backlog")."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.model.results import Page
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service, data
from tests.support.transactional_logs import abort, commit, in_, made, store

NAME = "s"


def begin(service: Service) -> None:
    service.log.subscriptions.subscribe(TOPIC, NAME, is_latest=False)


def acknowledge(log: Log, *individual: int, cumulative: int | None = None) -> int:
    return log.subscriptions.acknowledge(TOPIC, 0, NAME, Acknowledgement(cumulative, individual))


def place(log: Log) -> tuple[int, list[tuple[int, int]], int]:
    """Return (mark, ranges, backlog)."""
    (shown,) = log.subscriptions.get(TOPIC, NAME, start_partition=0, limit=1).cursors
    return shown.mark_delete_offset, list(shown.individually_acknowledged), shown.backlog


def read(log: Log, offset: int | None = None, **options: Any) -> Page:
    return log.subscriptions.read(TOPIC, 0, NAME, ReadRequest(offset=offset, **options))


def offsets(page: Page) -> list[int]:
    return [record.offset for record in page.records]


def test_a_committed_read_ends_at_the_stable_offset_and_leaves_aborted_records_out(service: Service) -> None:
    log = made(service, [data("0"), in_(7, "1"), data("2")], [abort(7), in_(8, "4"), data("5")])
    begin(service)
    page = read(service.log, is_read_committed=True)
    assert (offsets(page), page.position, page.bounds.last_stable_offset) == ([0, 2], 4, 4)
    assert offsets(read(service.log)) == [0, 1, 2, 4, 5]
    acknowledge(service.log, cumulative=2)
    page = read(service.log, is_read_committed=True)
    assert (offsets(page), page.position) == ([], 4)
    store(service, log, commit(8))
    assert offsets(read(service.log, is_read_committed=True)) == [4, 5]


def test_undecided_records_may_be_acknowledged_and_hold_the_mark_until_then(service: Service) -> None:
    log = made(service, [in_(7, "0", "1")], [data("2")])
    begin(service)
    assert acknowledge(service.log, 2) == 0
    assert acknowledge(service.log, 1) == 0
    assert place(service.log) == (0, [(1, 3)], 1)
    assert acknowledge(service.log, 0) == 3
    page = read(service.log, is_read_committed=True)
    assert (offsets(page), page.position, page.bounds.last_stable_offset) == ([], 3, 0)
    store(service, log, abort(7))
    assert place(service.log) == (4, [], 0)


def test_a_mark_slides_over_what_was_aborted_above_an_open_transaction_once_that_is_acknowledged(
    service: Service,
) -> None:
    log = made(service, [in_(7, "0"), in_(8, "1")], [abort(8), data("3")])
    begin(service)
    assert place(service.log) == (0, [], 3), "undecided and aborted records count until the mark passes them"
    assert acknowledge(service.log, 0) == 3
    assert place(service.another()) == (3, [], 1)
    store(service, log, commit(7))
    assert acknowledge(service.log, 3) == 5


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_mark_slides_over_an_aborted_transaction_of_many_segments(service: Service, is_checkpointed: bool) -> None:
    """In each segment alone nothing says how the transaction ended."""
    made(service, [data("0")], *([in_(7, "t", sequence=n)] for n in range(20)), [abort(7)], [data("last")])
    if is_checkpointed:
        service.another().partitions.checkpoint(TOPIC, 0)
    begin(service)
    assert acknowledge(service.another(), cumulative=0) == 22
    assert place(service.another()) == (22, [], 1)


def test_a_mark_at_an_open_transaction_asks_for_no_item_of_an_aborted_one(service: Service) -> None:
    """The state says that it is open: so no aborted transaction has its records."""
    short = [[in_(6, "t", epoch=n), abort(6, n + 1)] for n in range(limits.CHECKPOINT_SEGMENTS)]
    made(service, [data("0")], [in_(7, "1")], *short)
    service.another().partitions.checkpoint(TOPIC, 0)
    begin(service)
    cold = service.another()
    acknowledge(cold, 0)
    before = service.count()["items.query"]
    assert place(cold) == (1, [], 1 + len(short))
    assert service.count()["items.query"] - before == 0


def test_a_trim_past_an_open_transaction_takes_the_mark_to_the_log_start_and_no_further(service: Service) -> None:
    log = made(service, [in_(7, "0", "1")], [in_(7, "2", sequence=2)])
    begin(service)
    service.log.partitions.trim(TOPIC, 0, 1)
    assert place(service.log) == (1, [], 2)
    assert offsets(read(service.log, is_read_committed=True)) == []
    store(service, log, abort(7))
    assert place(service.another()) == (4, [], 0)
