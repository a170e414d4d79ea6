"""Tests that can't be run on this machine, reported in one line instead of one for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.install import CannotInstall


def keep_one(
    config: pytest.Config, items: list[pytest.Item], chosen: Callable[[pytest.Item], bool], need: Callable[[], object]
) -> None:
    """Keep one of the chosen tests where what they need can't be had; it is skipped with the reason."""
    try:
        need()
    except CannotInstall:
        dropped = [item for item in items if chosen(item)][1:]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
            items[:] = [item for item in items if item not in dropped]
