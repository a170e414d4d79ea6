"""Transactions of a batch that its end does not name: of lost copies of a task, of runs that died, of a failed batch.

Rule: leftover transactions harm nothing but readers, which wait for their end, so they are fenced only after the batch
was decided. A fence that fails is a warning, because their time-outs end them, too.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fenceline import errors
from fenceline.client import Client
from fenceline.model.transaction import ONGOING
from fenceline_spark.sink.messages import Batch, Large
from fenceline_spark.sink.sending import PARALLEL
from fenceline_spark.sink.transaction import ABORT_MS

log = logging.getLogger("fenceline_spark")


def fence_rivals(client: Client, winners: Iterable[Large], *, parallel: int = PARALLEL) -> None:
    """Fence other attempts at the winners' parts that left a transaction open, one attempt after the winner's included.

    Not here: a later attempt, which a part has only after a stage was tried again. Its time-out ends it.
    """
    names = [
        winner.part.transactional_id(attempt)
        for winner in winners
        for attempt in range(winner.part.attempt + 2)
        if attempt != winner.part.attempt
    ]

    def look(name: str) -> None:
        if _is_open(client, name):
            fence(client, name)

    _each(names, look, parallel)


def fence_all(client: Client, batch: Batch, *, parallel: int = PARALLEL) -> None:
    """Fence every open transaction whose id is, or begins as, those of ``batch``, of other runs and batches, too."""

    def look(name: str) -> None:
        fence(client, name)

    try:
        names = _open_ids(client, batch.prefix)
    except errors.FencelineError as error:
        log.warning(
            "open transactions were not listed, and end by their time-out: ids=%s.* why=%s", batch.prefix, error
        )
        return
    _each(names, look, parallel)


def give_up(client: Client, batch: Batch) -> None:
    """Let a task of a batch write that ends later than its driver find that it is too late."""
    _each([batch.prefix], lambda name: fence(client, name), 1)


def is_given_up(client: Client, batch: Batch) -> bool:
    """Return True if the driver of a batch write gave it up, or had the messages of all its tasks."""
    return _state_of(client, batch.prefix) is not None


def fence(client: Client, transactional_id: str) -> None:
    """Ask for the id again, which aborts a transaction that it left open, and finishes one that was decided."""
    client.transactional_producer_id(transactional_id, retry_ms=ABORT_MS)


def _open_ids(client: Client, name: str) -> Sequence[str]:
    prefix = name + "."
    listed = (one.transactional_id for one in client.transactions(state=ONGOING, start_after=prefix))
    found = list(itertools.takewhile(lambda each: each.startswith(prefix), listed))
    return [name, *found] if _is_open(client, name) else found


def _is_open(client: Client, name: str) -> bool:
    return _state_of(client, name) == ONGOING


def _state_of(client: Client, name: str) -> str | None:
    try:
        return client.transaction(name).state
    except errors.TransactionalIdNotFoundError:
        return None


def _each(names: Sequence[str], look: Callable[[str], None], parallel: int) -> None:
    def tried(name: str) -> None:
        try:
            look(name)
        except errors.FencelineError as error:
            log.warning(
                "a transaction was not fenced, and ends by its time-out: transactional_id=%s why=%s", name, error
            )

    if parallel == 1 or len(names) < 2:
        for name in names:
            tried(name)
        return
    with ThreadPoolExecutor(parallel, "fenceline-fence") as pool:
        for _ in pool.map(tried, names):
            pass  # raises what is no answer of a service
