"""Session ids, left out of what is logged: a program that knows one can act as the session.

Rule: eight characters of an id are shown, which is enough to find the session. The lines that httpx logs are masked,
too, because it logs the URL of each request.
"""

from __future__ import annotations

import logging
import re

_SHOWN_CHARS = 8
_IN_URL = re.compile(rf"((?:/v1/sessions/|[?&]session_id=)[^/?&#\s\"']{{1,{_SHOWN_CHARS}}})[^/?&#\s\"']*")


def masked(text: str) -> str:
    """Return ``text`` with each session id in a URL, or in a part of one, cut short."""
    return _IN_URL.sub(r"\1…", text)


class _Masked(logging.Filter):
    """A filter that keeps every line, and masks it."""

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        if (shown := masked(line)) != line:
            record.msg, record.args = shown, ()
        return True


_FILTER = _Masked()


def mask_logger(name: str) -> None:
    """Mask the lines that are logged under ``name``; twice is as once."""
    logging.getLogger(name).addFilter(_FILTER)
