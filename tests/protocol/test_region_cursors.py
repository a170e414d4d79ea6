"""Cursors in several regions: acknowledged in one, moved in the others, and never over a record that nobody was offered."""

from __future__ import annotations

from tests.support.region_ticks import Ticking


def test_an_acknowledgement_moves_the_cursor_elsewhere() -> None:
    both = Ticking.of("a", "b")
    both.subscribe("a")
    both["a"].append("1", "2", "3")
    both["b"].append("4")
    both.pull_all()
    both.acknowledge("a", 3)
    both.settle()
    assert both.unread("a") == both.unread("b") == []
    both["b"].append("5")
    both.settle()
    assert both.unread("a") == both.unread("b") == ["5"]
