"""The bounds of one answer with pages of several partitions: how many records and bytes it still takes.

Rule: the answer counts as a page counts, and holds at least one record, or one batch, if there is one.

Not here: the bounds of one page, which its reader keeps (``reader``), and how large an answer's JSON is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from fenceline import limits
from fenceline.format.batch import headers
from fenceline.model.results import BatchPage, Page, PageT


class AnswerBounds:
    """What is left of an answer's bounds.

    Attributes:
        records: How many records the answer still takes.
        bytes: How many bytes of keys, values and header values, or of batches.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.records, self.bytes = max_records, max_bytes
        self._with_names = limits.REPLY_BYTES_MAX
        self._is_empty = True

    @property
    def is_full(self) -> bool:
        return self.records < 1 or self.bytes < 1

    def fit(self, page: PageT) -> PageT | None:
        """Return as much of the page as the answer takes, from its beginning; ``None`` if it takes nothing of it."""
        fitting = self._fit_batches(page) if isinstance(page, BatchPage) else self._fit_records(page)
        return cast("PageT | None", fitting)

    def _fit_records(self, page: Page) -> Page | None:
        for at, record in enumerate(page.records):
            size = len(record.key or b"") + len(record.value or b"") + sum(len(one or b"") for _, one in record.headers)
            with_names = size + sum(len(name.encode()) for name, _ in record.headers)
            if not self._takes(1, size, with_names):
                return replace(page, records=page.records[:at], position=record.offset) if at else None
        return page

    def _fit_batches(self, page: BatchPage) -> BatchPage | None:
        for at, header in headers(page.body):
            if not self._takes(header.count, header.size, 0):
                return replace(page, body=page.body[:at], position=header.base_offset) if at else None
        return page

    def _takes(self, records: int, size: int, with_names: int) -> bool:
        """Take so much, and return True; False if there is no room for it."""
        is_over = records > self.records or size > self.bytes or with_names > self._with_names
        if is_over and not self._is_empty:
            return False
        self._is_empty = False
        self.records -= records
        self.bytes -= size
        self._with_names -= with_names
        return True
