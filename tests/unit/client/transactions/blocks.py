"""Programs with transactions: the steps of a block, and what others do to it."""

from __future__ import annotations

from collections.abc import Callable

from fenceline import OpenTransaction
from tests.support.wire import Place, Wire

TOPICS = ("t", "u", "in")


def fence(service: Wire) -> None:
    """Do what another instance of the transactional id does at its start."""
    service.outside.transactional_producer_id("id")


def written(service: Wire) -> list[tuple[Place, bytes | None]]:
    """Return what was committed to the topics that are written to."""
    return [(place, value) for place, value in service.committed if place[0] != "in"]


def block(txn: OpenTransaction, *steps: Callable[[OpenTransaction], object]) -> None:
    """Take these steps within the block of ``txn``."""
    with txn:
        for step in steps:
            step(txn)


def raises(error: BaseException) -> Callable[[OpenTransaction], None]:
    """Return the step of a program that fails with ``error``."""

    def step(txn: OpenTransaction) -> None:
        raise error

    return step
