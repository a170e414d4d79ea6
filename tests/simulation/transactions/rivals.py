"""Rivals of transactional producers in a simulation: trims, sweeps, deletions, other commits, damage control.

Rule: no rival may tear a transaction, whichever moment it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fenceline.access.rules import EXCLUSIVE_WITH_FENCING
from fenceline.errors import FencelineError
from fenceline.model.requests import Acknowledgement, ClaimRequest
from fenceline.model.results import ProducerRef
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline.ports import StoreFact
from tests.simulation.harness.world import NoReply
from tests.simulation.transactions.clients import INPUT, OFFSET_MAX, OFFSETS, Stage, append_plainly
from tests.simulation.transactions.requests import OTHER, TOPIC, plain
from tests.support.sweeping import strict_sweep


def _try(stage: Stage, name: str, kind: str, request: Any, run: Callable[[Any], Any], topic: str = TOPIC) -> None:
    with suppress(FencelineError, NoReply):
        stage.call(name, kind, request, run, topic=topic)


def trim(stage: Stage, name: str, partition: int) -> None:
    """Move the log start of an output partition, also past open transactions."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 2_000)
        with suppress(FencelineError, NoReply):
            bounds = stage.bounds(name, TOPIC, partition)
            before = bounds.log_start_offset + int(
                stage.rng.random() * (bounds.next_offset - bounds.log_start_offset + 1)
            )
            stage.call(name, "trim", before, partial(_trim_to, partition, before), partition)


def _trim_to(partition: int, before: int, log: Any) -> Any:
    return log.partitions.trim(TOPIC, partition, before)


def meddle(stage: Stage, name: str) -> None:
    """Send with pairs that other instances have, had, or will have: a plain batch, a transactional one, or an end."""
    rng = stage.rng
    for _ in range(stage.rounds * 3):
        stage.world.sleep(rng.random() * 800)
        if not stage.transactions:
            continue
        other = rng.choice(stage.transactions[-4:])
        pair = ProducerPair(other.pair.producer_id, other.pair.producer_epoch + rng.choice((0, 1, 1, 2)))
        partition, text = int(rng.random() * stage.partitions), stage.fresh(f"{name}-")
        with suppress(FencelineError, NoReply):
            if rng.random() < 0.5 and pair != other.pair:
                # Its size is one that no instance sends, because an instance's own batch would otherwise be its
                # duplicate.
                request = plain([f"{text}:{i}" for i in range(7)], ProducerRef(*pair, 0))
                stage.call(name, "guess", (pair, text), partial(append_plainly, partition, request), partition)
            elif pair != other.pair:
                # Never with the present pair: that would be the instance itself.
                stage.call(name, "guess", (pair, "add"), partial(_add, other.transactional_id, pair, partition))


def _add(transactional_id: str, pair: ProducerPair, partition: int, log: Any) -> Any:
    return log.transactions.add_partitions(transactional_id, pair, [TopicPartition(TOPIC, partition)])


def sweep_all(stage: Stage, name: str) -> None:
    """Have any process sweep now and then, thoroughly or not."""

    def run(log: Any) -> None:
        with suppress(StoreFact, FencelineError):
            strict_sweep(log, duration_ms=20_000, is_thorough=stage.rng.random() < 0.5)

    for _ in range(stage.rounds * 2):
        stage.world.sleep(stage.rng.random() * 5_000)
        _try(stage, name, "sweep", None, run)


def recreate(stage: Stage, name: str) -> None:
    """Delete a topic amid transactions that name it, and create it again."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 2_000)
        _try(stage, name, "delete", None, lambda log: log.topics.delete(OTHER), OTHER)
        _try(stage, name, "create", None, lambda log: log.topics.create(OTHER), OTHER)


def commit(stage: Stage, name: str) -> None:
    """Commit, seek and acknowledge beside offsets that are pending; now and then end the subscription under them."""
    rng = stage.rng
    for _ in range(stage.rounds * 3):
        stage.world.sleep(rng.random() * 800)
        offset, what = int(rng.random() * OFFSET_MAX), rng.random()
        if what < 0.4:
            offsets = [CommittedOffset(TOPIC, INPUT, offset, stage.fresh(name))]
            _try(stage, name, "commit", offset, partial(_commit, offsets))
        elif what < 0.6:
            _try(stage, name, "seek", offset, partial(_seek, offset))
        elif what < 0.7:
            _try(stage, name, "acknowledge", offset, partial(_acknowledge, offset))
        elif what < 0.85:
            _try(stage, name, "committed", None, partial(_look, rng.random() < 0.5))
        else:
            _try(stage, name, "unsubscribe", None, lambda log: log.subscriptions.unsubscribe(TOPIC, OFFSETS))


def _commit(offsets: Sequence[CommittedOffset], log: Any) -> Any:
    return log.subscriptions.commit(OFFSETS, offsets)


def _seek(offset: int, log: Any) -> Any:
    return log.subscriptions.seek(TOPIC, INPUT, OFFSETS, offset=offset)


def _acknowledge(offset: int, log: Any) -> Any:
    return log.subscriptions.acknowledge(TOPIC, INPUT, OFFSETS, Acknowledgement(cumulative=offset))


def _look(require_stable: bool, log: Any) -> Any:
    return log.subscriptions.committed(OFFSETS, topic=TOPIC, partition=INPUT, require_stable=require_stable)


def claim(stage: Stage, name: str, partition: int) -> None:
    """Take a partition exclusively amid transactions, and leave it, or let the lease lapse."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 1_500)
        request = ClaimRequest(EXCLUSIVE_WITH_FENCING, (partition,), lease_ms=3_000)
        with suppress(FencelineError, NoReply):
            held = stage.call(name, "claim", request, partial(_claim, request), partition)
            stage.world.sleep(stage.rng.random() * 500)
            if stage.rng.random() < 0.7:
                stage.call(name, "close", None, partial(_close, held.session_id), partition)


def _claim(request: ClaimRequest, log: Any) -> Any:
    return log.access.claim(TOPIC, request)


def _close(session_id: str, log: Any) -> Any:
    return log.access.close_session(session_id)


def abort_by_hand(stage: Stage, name: str) -> None:
    """Abort a producer's open transaction, as an operator does who takes it for hanging: it is refused. Or fence its
    id."""
    rng = stage.rng
    for _ in range(stage.rounds * 3):
        stage.world.sleep(rng.random() * 800)
        if stage.transactions:
            other = rng.choice(stage.transactions[-4:])
            partition = int(rng.random() * stage.partitions)
            _try(stage, name, "abort-by-hand", other.pair, partial(_abort, partition, other.pair))
            if rng.random() < 0.3:
                _try(stage, name, "fence-by-hand", other.pair, partial(_fence, other.transactional_id))


def _abort(partition: int, pair: ProducerPair, log: Any) -> Any:
    return log.transactions.abort_hanging(TOPIC, partition, pair)


def _fence(transactional_id: str, log: Any) -> Any:
    return log.transactions.fence(transactional_id)
