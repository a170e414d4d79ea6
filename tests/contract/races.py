"""Rivals for one key, as threads and as processes: each round they start together, and each reports whether it won."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from fenceline.ports import AlreadyExists, Conflict, ItemKey, Put, VersionMoved
from tests.contract.stores import ITEM_STORES, OBJECT_STORES

WAIT_S = 600
COUNTER = ItemKey("race", "counter")

Race = Callable[[Any, int, int], bool]  # (store, rival, round) -> won


def create_once(objects: Any, rival: int, turn: int) -> bool:
    """Try to create the round's key; small and large bodies take turns."""
    try:
        objects.create(f"race/{turn:05d}", bytes([rival]) * (100_000 if turn % 10 == 0 else 100), {"rival": str(rival)})
    except (AlreadyExists, Conflict):
        return False
    return True


def move_version(items: Any, rival: int, turn: int) -> bool:
    """Try to move the counter from the round's version to the next."""
    try:
        items.write([Put(COUNTER, {"rival": rival}, turn + 1, turn or None)])
    except VersionMoved:
        return False
    return True


RACES: dict[str, tuple[Any, Race]] = {"objects": (OBJECT_STORES, create_once), "items": (ITEM_STORES, move_version)}


def winners_among_threads(store: Any, race: Race, rivals: int, rounds: int) -> list[list[int]]:
    """Return, for each round, the rivals that won."""
    barrier = threading.Barrier(rivals)

    def run(rival: int) -> list[bool]:
        try:
            return [barrier.wait(WAIT_S) >= 0 and race(store, rival, turn) for turn in range(rounds)]
        except BaseException:
            # No rival may wait for one that failed.
            barrier.abort()
            raise

    with ThreadPoolExecutor(rivals) as pool:
        return _by_round(list(pool.map(run, range(rivals))))


def winners_among_processes(kind: str, adapter: str, place: str, rivals: int, rounds: int) -> list[list[int]]:
    """Return, for each round, the rivals that won.

    Each rival is a process with a store of its own at ``place``.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(rivals, spawn, _begin_process, (spawn.Barrier(rivals),)) as pool:
        futures = [pool.submit(_run_process, rival, kind, adapter, place, rounds) for rival in range(rivals)]
        return _by_round([future.result() for future in futures])


_barrier: Any = None  # of a process that was spawned here


def _begin_process(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _run_process(rival: int, kind: str, adapter: str, place: str, rounds: int) -> list[bool]:
    adapters, race = RACES[kind]
    try:
        # The opening of the store is a race, too.
        _barrier.wait(WAIT_S)
        store = adapters[adapter].open(place)
        won = [_barrier.wait(WAIT_S) >= 0 and race(store, rival, turn) for turn in range(rounds)]
        store.close()
        return won
    except BaseException:
        _barrier.abort()
        raise


def _by_round(won: list[list[bool]]) -> list[list[int]]:
    return [[rival for rival, is_winner in enumerate(turn) if is_winner] for turn in zip(*won, strict=True)]
