"""One page of a bucket's listing, as S3 answers it.

Rule: an answer that is no listing fails as botocore fails on it, and is asked for again. It takes a fifth of botocore's
time, which reads any answer by a description of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element, ParseError, fromstring

from botocore.parsers import ResponseParserError

from fenceline.adapters.aws.client import parse_time


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines of (key, size, ms of the last change), and the token of the next page, if there is one."""

    lines: Sequence[tuple[str, int, int]]
    next_token: str

    @classmethod
    def parse(cls, body: bytes) -> Listing:
        """Return the page in ``body``, its keys encoded for URLs.

        Raises:
            ResponseParserError: The body is no page.
        """
        try:
            root = fromstring(body)  # noqa: S314  the store's own answer; expat bounds what entities may grow to
            space = root.tag.rpartition("}")[0]
            space = f"{space}}}" if space else ""
            lines = [_line(entry, space) for entry in root.iterfind(f"{space}Contents")]
            is_cut = root.findtext(f"{space}IsTruncated") == "true"
            return cls(lines, _text(root, f"{space}NextContinuationToken") if is_cut else "")
        except (ParseError, ValueError) as error:
            raise ResponseParserError(f"the answer is no listing: {error}") from error


def _line(entry: Element, space: str) -> tuple[str, int, int]:
    key, size, modified = (_text(entry, f"{space}{name}") for name in ("Key", "Size", "LastModified"))
    return unquote_plus(key), int(size), ms_of(modified)


def _text(entry: Element, name: str) -> str:
    text = entry.findtext(name)
    if text is None:
        raise ValueError(f"it has no {name.rpartition('}')[2]}")
    return text


def ms_of(text: Any) -> int:
    """Return a time in an answer, in ms since the epoch."""
    return round(parse_time(text).timestamp() * 1000)
