"""The media types of bodies and of answers.

Rule: there are two media types, JSON in UTF-8 and version 2 of Kafka's record batches, and no other body is taken. On a
path for batches alone these may also come as plain bytes, because generators of clients know no type of Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from fenceline.errors import UnsupportedMediaTypeError

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"
HTML_TYPE = "text/html; charset=utf-8"
BATCH_TYPE = "application/vnd.apache.kafka.records; version=2"
BYTES_TYPE = "application/octet-stream"
FRAMES_TYPE = "application/vnd.fenceline.batches"
_BATCH_NAME = "application/vnd.apache.kafka.records"


class Media(Enum):
    JSON = JSON_TYPE
    BATCH = BATCH_TYPE


# The content types of almost all requests, word for word: these need no parsing.
USUAL: Mapping[str | None, Media] = {None: Media.JSON, JSON_TYPE: Media.JSON, BATCH_TYPE: Media.BATCH}


def of_body(content_type: str | None) -> Media:
    """Return the media type of a body with this content type; without one it is JSON.

    Raises:
        UnsupportedMediaTypeError: It is neither.
    """
    if content_type is None or not content_type.strip():
        return Media.JSON
    name, parameters = _parsed(content_type)
    if name == JSON_TYPE and parameters.get("charset", "utf-8").lower() in ("utf-8", "utf8"):
        return Media.JSON
    if name == _BATCH_NAME and parameters.get("version") == "2":
        return Media.BATCH
    raise UnsupportedMediaTypeError(f"send {JSON_TYPE} or {BATCH_TYPE}: content_type={content_type[:200]}")


def check_batch(content_type: str | None) -> None:
    """Check that a body with this content type may be a record batch, on a path that takes nothing else.

    Raises:
        UnsupportedMediaTypeError: It says that it is something else.
    """
    name, parameters = _parsed(content_type or "")
    if name not in ("", BYTES_TYPE) and (name != _BATCH_NAME or parameters.get("version") != "2"):
        raise UnsupportedMediaTypeError(
            f"send {BYTES_TYPE} or {BATCH_TYPE} here: content_type={(content_type or '')[:200]}"
        )


def of_answer(accept: str | None) -> Media:
    """Return the media type of an answer: batches if they are accepted, and JSON is not preferred or named first."""

    def is_batch(name: str, parameters: Mapping[str, str]) -> bool:
        return name == _BATCH_NAME and parameters.get("version") == "2"

    return Media.BATCH if _is_preferred(accept, is_batch) else Media.JSON


def prefers_frames(accept: str | None) -> bool:
    """Return True if frames of batches are accepted, and JSON is not preferred or named first."""
    return _is_preferred(accept, lambda name, _: name == FRAMES_TYPE)


def _is_preferred(accept: str | None, is_it: Callable[[str, Mapping[str, str]], bool]) -> bool:
    """Return True if a type is accepted, and JSON is not preferred or named first."""
    is_best, best_quality = False, 0.0
    for piece in (accept or "").split(","):
        name, parameters = _parsed(piece)
        is_asked_for = is_it(name, parameters)
        if not is_asked_for and name not in (JSON_TYPE, "application/*", "*/*"):
            continue
        quality = _quality(parameters.get("q", "1"))
        if quality > best_quality:
            is_best, best_quality = is_asked_for, quality
    return is_best


def accepts_json(accept: str | None) -> bool:
    """Whether JSON may be answered to one who would rather have batches."""
    names = [_parsed(piece)[0] for piece in (accept or "*/*").split(",")]
    return any(name in (JSON_TYPE, "application/*", "*/*") for name in names)


def prefers_page(accept: str | None) -> bool:
    """Return True if HTML is accepted, and JSON is not preferred or named before it: as browsers ask."""
    best, best_quality = JSON_TYPE, 0.0
    for piece in (accept or "").split(","):
        name, parameters = _parsed(piece)
        quality = _quality(parameters.get("q", "1"))
        if name in ("text/html", JSON_TYPE) and quality > best_quality:
            best, best_quality = name, quality
    return best == "text/html"


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    name, *rest = text.split(";")
    parameters = {}
    for piece in rest:
        key, _, value = piece.partition("=")
        parameters[key.strip().lower()] = value.strip().strip('"')
    return name.strip().lower(), parameters


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
