"""How much one run of the sweeper may do: so long, by the monotonic clock, and so many deletions.

The rule: whoever works for a run asks between two steps, each of them small; a server that stops ends it at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from fenceline.context import Context


@dataclass(slots=True)
class Budget:
    """What is left of one run, and what was deleted in it."""

    context: Context
    until_ms: int  # monotonic
    deletes_max: int
    objects: int = 0
    items: int = 0

    @property
    def deletes_left(self) -> int:
        return max(self.deletes_max - self.objects - self.items, 0)

    def is_over(self) -> bool:
        """Whether the run should end."""
        context = self.context
        is_late = context.runtime.monotonic_ms() >= self.until_ms
        return is_late or self.deletes_left == 0 or context.stopping.is_set
