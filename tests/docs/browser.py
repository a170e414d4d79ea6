"""A server of the built site's files."""

from __future__ import annotations

import http.server


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and writes no log."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""
