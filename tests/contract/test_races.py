"""Rivals for one key: exactly one wins, and every adapter says so to all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.races import COUNTER, create_once, move_version, winners_among_processes, winners_among_threads
from tests.contract.stores import ITEM_STORES, OBJECT_STORES, OpenItems, OpenObjects

ROUNDS = 100
THREADS = 16
PROCESSES = 4


def assert_stored(objects: OpenObjects, winners: list[list[int]]) -> None:
    assert [len(turn) for turn in winners] == [1] * ROUNDS
    for turn, [winner] in enumerate(winners):
        found = objects.get(f"race/{turn:05d}")
        assert found.metadata == {"rival": str(winner)}
        assert set(found.body) == {winner}


def test_one_of_16_threads_creates_a_key(objects: OpenObjects) -> None:
    assert_stored(objects, winners_among_threads(objects, create_once, THREADS, ROUNDS))


def test_one_of_16_threads_moves_a_version(items: OpenItems) -> None:
    winners = winners_among_threads(items, move_version, THREADS, ROUNDS)
    assert [len(turn) for turn in winners] == [1] * ROUNDS
    assert items.get([COUNTER])[COUNTER].value == {"rival": winners[-1][0]}


@pytest.mark.slow
def test_one_of_4_processes_creates_a_key(shared_objects: str, tmp_path: Path) -> None:
    winners = winners_among_processes("objects", shared_objects, str(tmp_path), PROCESSES, ROUNDS)
    objects = OBJECT_STORES[shared_objects].open(str(tmp_path))
    assert_stored(objects, winners)
    objects.close()


@pytest.mark.slow
def test_one_of_4_processes_moves_a_version(shared_items: str, tmp_path: Path) -> None:
    winners = winners_among_processes("items", shared_items, str(tmp_path), PROCESSES, ROUNDS)
    assert [len(turn) for turn in winners] == [1] * ROUNDS
    items = ITEM_STORES[shared_items].open(str(tmp_path))
    assert items.get([COUNTER])[COUNTER].value == {"rival": winners[-1][0]}
    items.close()
