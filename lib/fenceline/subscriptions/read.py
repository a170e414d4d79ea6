"""Read: returns the records that a subscription has not acknowledged (contract, "Subscriptions (consumer groups)").

Rule: pages are read as without a subscription, from the mark or an offset after it. The answer has no record that was
acknowledged before the request arrived, or during its wait. If no record of a page is left, the next page is read.

Not here: reading without a subscription (``read.reader``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fenceline.errors import OffsetOutOfRangeError
from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, out_of_range, verified_tail
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Page
from fenceline.read.offset_ranges import Acknowledged
from fenceline.read.reader import PartitionReader
from fenceline.subscriptions import backlog
from fenceline.subscriptions.cursors import LiveTopic
from fenceline.subscriptions.items import CursorItem

_PAGES_MAX = 64  # read for one answer, which moves the position even if it is empty


class SubscriptionRead(NamedTuple):
    """A page of what a subscription has not acknowledged."""

    start: int  # the offset that was asked for, or the mark
    page: Page
    partition: Partition


def read_unacknowledged(
    live: LiveTopic,
    number: int,
    name: str,
    request: ReadRequest,
    judge: Callable[[], object],
    held: Callable[[Partition, Tail], bool] | None = None,
) -> SubscriptionRead:
    """Return a page of records, and where it begins.

    Args:
        request: Its ``offset`` is the start; ``None`` is the mark.
        judge: Raises if the caller may not read; called at the start and before the answer.
        held: As ``PartitionReader`` calls it, with the partition.

    Raises:
        UnknownSubscriptionError: No subscription has the name.
        OffsetOutOfRangeError: ``offset`` lies below the mark or outside [log start, next offset].
    """
    partition, runtime = live.partition(number), live.context.runtime
    reader = PartitionReader(partition, None if held is None else partial(held, partition))
    until_ms = runtime.monotonic_ms() + request.wait_ms
    subscription = live.subscription(name)
    judge()
    cursor = live.cursor(subscription, number).cursor
    start = request.offset
    if start is None:
        start = backlog.slid(partition, verified_tail(partition), cursor.mark, cursor.acknowledged)
    elif start < cursor.mark:
        raise out_of_range(start, verified_tail(partition).bounds)
    first = start
    for _ in range(_PAGES_MAX):
        start = cursor.acknowledged.end_from(start)
        left_ms = max(until_ms - runtime.monotonic_ms(), 0)
        asked = replace(request, offset=start, wait_ms=left_ms)
        page = _page(reader, asked, cursor.acknowledged, is_from_mark=request.offset is None)
        if page.records and request.wait_ms:
            subscription = live.subscription(name)
            cursor = live.cursor(subscription, number).cursor
            page = replace(page, records=[one for one in page.records if not _is_done(cursor, one.offset)])
        if page.records or page.position == start or live.context.stopping.is_set:
            break
        start = page.position
    judge()
    elsewhere = subscription.active_region
    if elsewhere not in (None, live.context.region):
        page = replace(page, active_region=elsewhere)
    return SubscriptionRead(first, page, partition)


def _is_done(cursor: CursorItem, offset: int) -> bool:
    return offset < cursor.mark or offset in cursor.acknowledged


def _page(reader: PartitionReader, asked: ReadRequest, acknowledged: Acknowledged, *, is_from_mark: bool) -> Page:
    """Return a page. A mark that the log start passes during a wait counts as the log start."""
    try:
        return reader.page(asked, acknowledged=acknowledged)
    except OffsetOutOfRangeError as error:
        log_start = error.extra["log_start_offset"]
        if not is_from_mark or (asked.offset or 0) >= log_start:
            raise
        asked = replace(asked, offset=acknowledged.end_from(log_start))
        return _page(reader, asked, acknowledged, is_from_mark=True)
