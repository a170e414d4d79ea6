"""The beginnings of records, found by the length of each, which leads to the next.

A chain can only be followed step by step, at 50 ns a step, so the beginnings of all records are first guessed at once.
Before nearly every record lies a zero, because the record before it has no headers, and after its length lies another
zero, its attributes. A place of this form to which no other place leads is dropped, until as many remain as there are
records.

Rule: a guess is accepted only if each place leads exactly to the next, from the first byte to the last, because it is
then, by induction, what the steps would find. Otherwise the chain is followed step by step.

Not here: what is inside a record; see ``fields``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fenceline_spark.columns.damage import Damage

SLACK = bytes(64)  # after the last record: fields are read before their place is checked
_BYTES_PER_RECORD_MAX = 256  # for a guess: beyond it, steps are faster than a look at each byte
_ROUNDS_MAX = 8
_BLOCK_BYTES = 64 * 1024  # looked at together: they stay in the processor's cache
# By the byte that a length begins with, how far the next record is; 0 where the length is longer, or negative.
_STEPS = tuple(1 + byte // 2 if byte < 0x80 and byte % 2 == 0 else 0 for byte in range(256))


class BatchSpan(NamedTuple):
    """The place of one batch's records among the bytes that are decoded together."""

    start: int
    end: int
    records: int  # by the batch's header, 1 or more


def record_places(data: memoryview, spans: Sequence[BatchSpan]) -> Any:
    """Return the beginnings of the records (int64), and after them the end of the last one.

    Args:
        data: The records of batches, without gaps, and ``SLACK``.

    Raises:
        Damage: A batch does not hold as many records as its header says.
    """
    guessed = _guess(data, spans)
    if guessed is not None:
        return guessed
    places: list[int] = []
    for span in spans:
        _walk(data, span, places)
    places.append(spans[-1].end)
    return np.array(places, dtype=np.int64)


def _walk(data: memoryview, span: BatchSpan, places: list[int]) -> None:
    """Add the places of one batch's records, step by step."""
    before, at, steps, add = len(places), span.start, _STEPS, places.append
    try:
        for _ in range(span.records):
            add(at)
            first = data[at]
            if step := steps[first]:
                at += step
            elif first & 0x81 == 0x80 and (second := data[at + 1]) < 0x80:
                at += 2 + (first >> 1 & 0x3F) + (second << 6)
            else:
                at = _after_long(data, at, len(places) - 1)
    except IndexError:
        at = len(data)
    if at != span.end:
        raise Damage(before, f"its records do not fill it: count={span.records} bytes={span.end - span.start}")


def _after_long(data: memoryview, at: int, number: int) -> int:
    """Return the end of the record at ``at``, whose length is negative, or more than two bytes."""
    length = shift = 0
    byte = 0x80
    while byte > 0x7F:
        if shift > 63:
            raise Damage(number, "a length of more than ten bytes")
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    length &= 0xFFFF_FFFF_FFFF_FFFF
    if length & 1:
        raise Damage(number, "a record's length is negative")
    return at + (length >> 1)


def _guess(data: memoryview, spans: Sequence[BatchSpan]) -> Any:
    """Return the result of ``record_places``, or ``None`` if the guess is not right."""
    end, count = spans[-1].end, sum(span.records for span in spans)
    if end > count * _BYTES_PER_RECORD_MAX or end < 4:
        return None
    array = np.frombuffer(data, np.uint8)
    found = _likely(array, end)
    if not count <= len(found) <= 4 * count + 64:
        return None
    following = _following(array, found, end)
    for _ in range(_ROUNDS_MAX):
        if len(found) == count:
            return _proven(found, following, spans)
        is_led_to: Any = np.zeros(end + 2, dtype=bool)
        is_led_to[0] = True
        is_led_to[following] = True
        kept = np.flatnonzero(is_led_to.take(found))
        if len(kept) == len(found):
            return None
        found, following = found.take(kept), following.take(kept)
    return None


def _likely(array: Any, end: int) -> Any:
    """Return the first place, and each with a zero before it and another after a length of one or two bytes."""
    found: list[Any] = [np.zeros(1, dtype=np.int64)]
    for start in range(0, end - 1, _BLOCK_BYTES):
        stop = min(start + _BLOCK_BYTES, end - 1)
        is_zero = array[start : stop + 3] == 0
        is_zero[end + 1 - start :] = False  # beyond the records, where a length of two bytes would end
        found.append(np.flatnonzero(is_zero[:-3] & (is_zero[2:-1] | is_zero[3:])) + (start + 1))
    return np.concatenate(found)


def _following(array: Any, found: Any, end: int) -> Any:
    """Return the ends that records at ``found`` would have; ``end`` + 1 without a length of one or two bytes."""
    length = array.take(found).astype(np.int64)
    following = found + 1
    longer = np.flatnonzero(length > 0x7F)
    if len(longer):
        second = array.take(following.take(longer)).astype(np.int64)
        following[longer] += 1
        # A third byte would make it odd here, as if it were negative.
        length[longer] = (length.take(longer) & 0x7F) | (second << 7) | (second >> 7)
    following += length >> 1
    following[(length & 1).astype(bool) | (following > end)] = end + 1
    return following


def _proven(found: Any, following: Any, spans: Sequence[BatchSpan]) -> Any:
    end = spans[-1].end
    if following[-1] != end or not np.array_equal(following[:-1], found[1:]):
        return None
    number = 0
    for span in spans:
        if found[number] != span.start:
            return None
        number += span.records
    return np.append(found, end)
