"""A partition's offsets, as every answer about it carries them: the service's and the client's.

The rule: it needs nothing of the log, so that a client loads none of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's offsets at one verified tail."""

    log_start_offset: int
    next_offset: int
    last_stable_offset: int


class Bounded:
    """What has ``bounds``: their names in API.md are its own, too."""

    __slots__ = ()
    bounds: Bounds

    @property
    def log_start_offset(self) -> int:
        return self.bounds.log_start_offset

    @property
    def next_offset(self) -> int:
        return self.bounds.next_offset

    @property
    def last_stable_offset(self) -> int:
        return self.bounds.last_stable_offset
