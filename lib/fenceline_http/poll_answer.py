"""The answer of a poll, as JSON, or as frames of batches (contract, "One poll for many partitions").

Rule: the JSON of the whole answer stays below 4 MiB. What does not fit is left out from the end, and ``has_more`` says
so. A page that no answer carries becomes the error of its partition, so that it does not stop the others.

A frame is: topic id, 16 bytes; partition, int32; position, int64; length, int32; and so many bytes. All integers are
big-endian. The bytes are batches. Where the position is -1, they are JSON, of a partition's entry with its error; the
topic id is then 16 zeros.
"""

from __future__ import annotations

import struct
from typing import Any

from fenceline import limits
from fenceline.errors import FencelineError
from fenceline.model.results import BatchPage, Page, PollAnswer, PollEntry
from fenceline_http import record_page, responses
from fenceline_http.media_types import FRAMES_TYPE
from fenceline_http.responses import Response

_ENVELOPE_BYTES = 1_024  # around the records of an entry, its topic's name included, or around all entries
_FRAME = struct.Struct(">16siqi")
_NO_TOPIC = bytes(16)


def shown(answer: PollAnswer[Page], encoding: str, *, hold: bool, is_bounded: bool) -> Response:
    """Respond with JSON.

    Args:
        encoding: The one that was asked for; each entry names the one that it has.
        is_bounded: Whether the response passes a gateway.
    """
    rows: list[str] = []
    codes: list[str] = []
    left = limits.REPLY_BYTES_MAX - _ENVELOPE_BYTES
    has_more = answer.has_more
    for at, entry in enumerate(answer.entries):
        is_last = at + 1 == len(answer.entries)
        row, is_whole, code = _row(entry, encoding, left - _ENVELOPE_BYTES, is_bounded=is_bounded)
        left -= responses.bytes_of(row) + 1
        if left < 0 and rows:
            has_more = True
            break
        rows.append(row)
        codes += code
        if not is_whole and not is_last:
            has_more = True
            break
    rest = responses.to_json({"has_more": has_more, "hold": hold})
    response = responses.text(f'{{"partitions":[{",".join(rows)}],{rest[1:]}')
    response.codes = codes
    return response


def _row(entry: PollEntry[Page], encoding: str, bytes_max: int, *, is_bounded: bool) -> tuple[str, bool, list[str]]:
    """Return an entry as JSON, whether it is whole, and the code of its error, if it has one."""
    page = entry.page
    if isinstance(page, FencelineError):
        return responses.to_json(_refused(entry, page)), True, [page.code]
    members, is_whole = record_page.members_of(page, encoding, bytes_max)
    place = responses.to_json({"topic": entry.topic, "topic_id": entry.topic_id, "partition": entry.partition})
    row = f"{place[:-1]},{members}}}"
    alone = row + " " * _ENVELOPE_BYTES
    if is_bounded and not (responses.passes(alone) or responses.passes(alone.encode())):
        error = responses.too_large()
        return responses.to_json(_refused(entry, error)), True, [error.code]
    return row, is_whole, []


def _refused(entry: PollEntry[Any], error: FencelineError) -> dict[str, Any]:
    return {**responses.place(entry.topic, entry.partition), "error": error.problem()}


def framed(answer: PollAnswer[BatchPage], *, hold: bool) -> Response:
    """Respond with frames."""
    frames: list[bytes] = []
    codes: list[str] = []
    for entry in answer.entries:
        page = entry.page
        if isinstance(page, FencelineError):
            body = responses.to_json(_refused(entry, page)).encode("utf-8", "replace")
            head = _FRAME.pack(_NO_TOPIC, min(entry.partition, limits.INT32_MAX), -1, len(body))
            codes.append(page.code)
        else:
            body = page.body
            head = _FRAME.pack(bytes.fromhex(entry.topic_id), entry.partition, page.position, len(body))
        frames += (head, body)
    numbers = {"fenceline-has-more": answer.has_more, "fenceline-hold": hold}
    headers = {"content-type": FRAMES_TYPE, **{name: str(value).lower() for name, value in numbers.items()}}
    return Response(200, b"".join(frames), headers, codes=codes)
