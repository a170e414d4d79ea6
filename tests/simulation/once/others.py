"""The rivals of drivers in a simulation, which meet the ends of several transactions.

Producers end some together without `once`, other instances take their ids, and operators make a version be forgotten.

Rule: no rival may make a member end apart, whichever moment it meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fenceline.errors import FencelineError
from tests.simulation.harness.world import NoReply
from tests.simulation.log.truth import Violation
from tests.simulation.once.clients import TASKS_MAX, Large, Parallel, Stage, close, extend, look
from tests.simulation.once.requests import Closing, Once
from tests.simulation.transactions.clients import OFFSET_MAX, OFFSETS, Instance, Lost
from tests.simulation.transactions.requests import Batch

IDS = 3  # that one producer ends together
SHARED = "joint"  # an application of all of them


def end_together(stage: Stage, name: str, prefix: str) -> None:
    """Produce with several ids at once, some of them idle, and end all of them by one request."""
    rng = stage.rng
    instances = [Instance(stage, name, f"{prefix}.{number}") for number in range(IDS)]
    parallel, old = Parallel(stage), list[Closing]()
    for _ in range(stage.rounds):
        try:
            _one(stage, name, instances, parallel, old)
        except (Lost, FencelineError):
            # A request that was refused, or not answered, may arrive again, so the next transactions have other pairs.
            for instance in instances:
                instance.pair = None
        stage.world.sleep(rng.random() * rng.choice((50, 1_000)))
    parallel.wait()


def _one(stage: Stage, name: str, instances: Sequence[Instance], parallel: Parallel, old: list[Closing]) -> None:
    rng = stage.rng
    for instance in instances:
        if instance.pair is None or rng.random() < 0.15:
            instance.begin()
    members = [Large(instance, instance.start()) for instance in instances]
    active = [one for one in members if rng.random() < 0.6]
    for one in active:
        _produce(stage, one)
    idle = [one for one in members if one not in active]
    if idle and rng.random() < 0.2:
        with suppress(Lost):  # there is nothing to extend
            extend(rng.choice(idle).instance, stage.commit_timeout_ms)
    if old and rng.random() < 0.3:
        _send_old(stage, name, rng.choice(old))
    if active and rng.random() < 0.1:
        alone = rng.choice(active)
        alone.instance.end(alone.transaction, is_commit=rng.random() < 0.5)
    elif active and rng.random() < 0.3:
        # A batch more, which a late request of before must not tear off.
        _produce(stage, rng.choice(active))
    once = _once(stage, name) if rng.random() < 0.3 else None
    closing = Closing(tuple(one.member for one in members), rng.random() < 0.7, once)
    old.append(closing)
    beside = rng.choice(idle) if idle and rng.random() < 0.2 else None
    if beside is not None:
        _begin_beside(stage, parallel, beside)
    pairs = close(stage, name, parallel, members, closing)
    if beside is not None:
        beside.instance.pair = None
    elif rng.random() < 0.2:
        with suppress(FencelineError, NoReply):
            again = stage.call(name, "close", closing, closing.made)
            if again != pairs:
                raise Violation(f"a repeat was answered {again}, the end {pairs}")


def _once(stage: Stage, name: str) -> Once:
    """Return a version of an application that all of these producers share: the next one, or any."""
    version = look(stage, name, SHARED) + 1 if stage.rng.random() < 0.7 else int(stage.rng.random() * 9)
    return Once(SHARED, version, stage.fresh(f"{name}#"))


def _begin_beside(stage: Stage, parallel: Parallel, one: Large) -> None:
    """Begin a transaction amid the end: it is in it, or begins behind it. Then its instance takes another pair."""
    beside = Instance(stage, one.instance.client, one.transaction.transactional_id, one.transaction.pair)
    batch = Batch(0, 0, (f"{stage.fresh(f'{one.instance.name}-')}:0",))
    parallel.begin(f"{beside.client}.beside", lambda: beside.send(one.transaction, batch))


def _produce(stage: Stage, one: Large) -> None:
    rng = stage.rng
    for partition in sorted({int(rng.random() * stage.partitions) for _ in range(2)}):
        sequence = sum(len(batch.values) for batch in one.transaction.batches if batch.partition == partition)
        text = stage.fresh(f"{one.instance.name}-")
        one.instance.send(one.transaction, Batch(partition, sequence, (f"{text}:0",)))
    if rng.random() < 0.2:
        one.instance.send_offset(one.transaction, int(rng.random() * OFFSET_MAX), OFFSETS)
    if rng.random() < 0.2:
        extend(one.instance, stage.commit_timeout_ms)
    if rng.random() < 0.2:
        stage.world.sleep(rng.random() * max(stage.timeouts_ms))


def _send_old(stage: Stage, name: str, closing: Closing) -> None:
    """Let a request that was answered arrive again, as one does that was on its way twice."""
    with suppress(FencelineError, NoReply):
        stage.call(name, "close", closing, closing.made)


def take_ids(stage: Stage, name: str, app: str) -> None:
    """Ask for ids that drivers and tasks have, whatever waits in them."""
    rng = stage.rng
    for _ in range(stage.rounds * 2):
        stage.world.sleep(rng.random() * 3_000)
        taken = rng.choice((app, *(f"{app}.{index}.0" for index in range(TASKS_MAX))))
        with suppress(Lost):
            Instance(stage, name, taken).begin()


def look_on(stage: Stage, name: str, app: str) -> None:
    """Look at the version, and at transactions: each look ends what is due."""
    rng = stage.rng
    for _ in range(stage.rounds * 4):
        stage.world.sleep(rng.random() * 1_000)
        with suppress(Lost):
            look(stage, name, app)
        if stage.transactions:
            transactional_id = rng.choice(stage.transactions[-6:]).transactional_id
            with suppress(FencelineError, NoReply):
                stage.call(name, "get", transactional_id, partial(_get, transactional_id))


def _get(transactional_id: str, log: Any) -> Any:
    return log.transactions.get(transactional_id)


def forget(stage: Stage, name: str, app: str) -> None:
    """Delete the version, as an operator does: a batch may be written twice from then on."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 5_000)
        with suppress(FencelineError, NoReply):
            stage.call(name, "forget", app, lambda log: log.transactions.forget_once(app))
