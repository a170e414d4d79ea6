"""The content codings in which a request's body may come: gzip and zstd (RFC 9110, 8.4).

Rule: a decoded body has the same bound as a body without a coding, so that a small body can't cost much.

Not here: compressed record batches, which are stored as they come; see ``fenceline.format.compression``.
"""

from __future__ import annotations

from collections.abc import Mapping

from fenceline import limits
from fenceline.errors import InvalidRequestError, RecordListTooLargeError, UnsupportedMediaTypeError

_CODECS: Mapping[str, int] = {"gzip": 1, "x-gzip": 1, "zstd": 4}  # Kafka's numbers
_SHOWN_CHARS = 200


def decoded(body: bytes, content_encoding: str) -> bytes:
    """Return a body without its content coding.

    Raises:
        UnsupportedMediaTypeError: The coding is another one, or there are several.
        InvalidRequestError: The body is not in that coding.
        RecordListTooLargeError: It decodes to more than a body may be.
    """
    name = content_encoding.strip().lower()
    if name in ("", "identity"):
        return body
    codec = _CODECS.get(name)
    if codec is None:
        raise UnsupportedMediaTypeError(
            "send the body as it is, or in one of the content codings gzip and zstd: "
            f"content_encoding={content_encoding[:_SHOWN_CHARS]}"
        )
    from fenceline.format.compression import UndecodableError, decompress_into, reserved

    room = reserved(limits.BODY_BYTES_MAX)
    try:
        size = decompress_into(codec, memoryview(body), room)
    except UndecodableError as error:
        raise InvalidRequestError(
            f"the body is not what its header content-encoding says: content_encoding={name}"
        ) from error
    if size is None:
        raise RecordListTooLargeError(
            "the body is too large once it is decompressed; send less in one request: "
            f"bytes_max={limits.BODY_BYTES_MAX}",
            bytes_max=limits.BODY_BYTES_MAX,
        )
    return bytes(room[:size])
