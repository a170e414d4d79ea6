"""The machine's own Chromium, and a server of files for it."""

from __future__ import annotations

import http.server
import os
import shutil


def chromium() -> str | None:
    """Return the browser's program: the one that is named, or the first that is installed."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return os.environ.get("FENCELINE_CHROMIUM") or next(filter(None, found), None)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and writes no log."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""
