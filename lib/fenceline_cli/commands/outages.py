"""What ``fenceline consume --follow`` does while its service is away: it waits, as ``tail -F`` does for a file.

Rule: an outage is one line on stderr, however many requests fail in it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from fenceline.errors import FencelineError, RetryError
from fenceline_cli.output import describe

if TYPE_CHECKING:
    from fenceline.client import Client

_PAUSE_S = 0.5  # between two looks whether the service is back
_APART_S = 60  # failures further apart are of two outages: a request is given up sooner, so others succeeded meanwhile


class Outages:
    """The outages of one command's service.

    Args:
        at_once: How many requests may fail in one outage, since each partition has one under way.
    """

    def __init__(self, client: Client, topic: str, at_once: int) -> None:
        self._client = client
        self._topic = topic
        self._at_once = at_once
        self._failed = 0  # requests, since one succeeded last
        self._last_s = 0.0  # when one failed, or the service was away
        self._is_told = False

    def is_over(self) -> None:
        """Note that a request succeeded."""
        self._failed, self._is_told = 0, False

    def wait(self, error: FencelineError) -> None:
        """Return once the service answers. An outage that has ended by now is not told."""
        if time.monotonic() - self._last_s > _APART_S:  # answers without records were not shown to ``is_over``
            self.is_over()
        self._failed += 1
        if self._failed > self._at_once:  # the service answers others, and refuses these requests again and again
            self._tell(error)
            time.sleep(_PAUSE_S)
        else:
            while (away := self._away()) is not None:
                self._tell(away)
                time.sleep(_PAUSE_S)
            if self._is_told:
                self.is_over()
        self._last_s = time.monotonic()

    def _away(self) -> RetryError | None:
        try:
            self._client.topic(self._topic)
        except RetryError as error:
            return error
        return None

    def _tell(self, error: FencelineError) -> None:
        if not self._is_told:
            self._is_told = True
            typer.echo(f"waiting for the service: {describe(error)}; Ctrl-C ends the command", err=True)
