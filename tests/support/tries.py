"""The number of examples of a property: fewer in ``make check`` than in ``make test`` (conftest.py)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def tries(most: int, **more: Any) -> settings:
    """Return settings for a property whose examples take long: ``most`` examples, or fewer if all others get fewer."""
    return settings(max_examples=min(most, settings().max_examples), **more)
