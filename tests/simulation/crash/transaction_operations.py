"""Transactions as entries of the crash matrix (see crash/operations.py).

Rule: at the end of every entry, each transaction is all or nothing, agrees with each answer that its producer got, and
has nothing left to be ended (``transaction_scene.transactions_are_whole``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import InvalidProducerIdMappingError, InvalidTxnStateError, ProducerFencedError
from fenceline.format import keys
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline.ports import Delete
from fenceline.recovery.rebuild import rebuild
from tests.simulation.crash.operations import Operation, sweep_all, sweep_once
from tests.simulation.crash.scene import Died, Fate, Process, Scene
from tests.simulation.crash.transaction_rows import transactions_of
from tests.simulation.crash.transaction_scene import (
    GROUP,
    ID,
    OTHER,
    PARTITIONS,
    TIMEOUT_MS,
    begin,
    end,
    end_again,
    get_each,
    in_time,
    known_transaction,
    nothing_is_due,
    produce,
    read_committed,
    read_each,
    send_offset,
    stable_offset,
    transactions_are_whole,
)
from tests.support.service import TOPIC

Act = Callable[[Scene, Process], Any]

# Set-ups


def topic(scene: Scene) -> Process:
    """Make two partitions with a record each; the process knows nothing of them."""
    process = scene.process()
    scene.create_topic(process, TOPIC, partitions=PARTITIONS, config={"retention.ms": -1})
    for number in range(PARTITIONS):
        scene.append(process, TOPIC, number, f"plain{number}")
    return scene.process()


def given(scene: Scene) -> Process:
    """Let a producer have its pair, and nothing begun."""
    begin(scene, topic(scene))
    return scene.process()


def given_last(scene: Scene) -> Process:
    """Let the producer have the last epoch."""
    given(scene)
    _set(scene, producer_epoch=limits.PRODUCER_EPOCH_MAX)
    known = known_transaction(scene)
    known.pair = ProducerPair(known.pair.producer_id, limits.PRODUCER_EPOCH_MAX)
    return scene.process()


def grouped(scene: Scene) -> Process:
    """Begin a transaction with data in both partitions and a group."""
    return _grouped(scene, given(scene))


def _grouped(scene: Scene, process: Process) -> Process:
    for number in range(PARTITIONS):
        produce(scene, process, f"t{number}", number)
    process.log.transactions.add_group(ID, known_transaction(scene).pair, GROUP)
    return scene.process()


def cursor_known(scene: Scene) -> Process:
    """Begin the same, where the group has an offset already."""
    process = topic(scene)
    process.log.subscriptions.subscribe(TOPIC, GROUP)
    begin(scene, process)
    return _grouped(scene, scene.process())


def begun(scene: Scene) -> Process:
    """Begin the same, and send an offset."""
    send_offset(scene, grouped(scene))
    return scene.process()


def begun_last(scene: Scene) -> Process:
    """Begin the same, in the last epoch."""
    send_offset(scene, _grouped(scene, given_last(scene)))
    return scene.process()


def timed_out(scene: Scene) -> Process:
    """Let the transaction's time be over."""
    begun(scene)
    scene.runtime.advance(TIMEOUT_MS + limits.MEETING_AGE_MS)
    return scene.process()


def ended(scene: Scene) -> Process:
    end(scene, begun(scene))
    return scene.process()


def decided(scene: Scene) -> Process:
    """Let a process die right after the decision to commit, and its client wait for long."""
    victim = begun(scene)
    victim.arm(Fate.DIES_AFTER, 1)
    with suppress(Died):
        end(scene, victim)
    assert [item.is_commit for item in transactions_of(scene.stored()).values()] == [True]
    scene.runtime.advance(limits.MEETING_AGE_MS)
    return scene.process()


def half_marked(scene: Scene) -> Process:
    """Let another die right after the first marker: one partition shows the commit."""
    victim, at = decided(scene), 0
    while "create segment" not in victim.calls:
        victim = scene.process()
        victim.arm(Fate.DIES_AFTER, at)
        with suppress(Died):
            end_again(scene, victim)
        at += 1
    return scene.process()


def expired(scene: Scene) -> Process:
    """Let an id that is over be named by no request for long, and another one be open."""
    ended(scene)
    scene.runtime.advance(limits.TRANSACTIONAL_ID_MS)
    return scene.process()


def hanging(scene: Scene) -> Process:
    """Lose both items of an open transaction: no coordinator knows of it."""
    process = grouped(scene)
    lost = [keys.transaction_item(ID), keys.transactional_id_item(known_transaction(scene).pair.producer_id)]
    scene.items.write([Delete(key, item.version) for key, item in scene.items.get(lost).items()])
    return process


def every_state(scene: Scene) -> Process:
    """Make transactions in each state, then lose all items: one of them showed its commit in one partition."""
    process = half_marked(scene)
    begin(scene, process, OTHER)
    for number in range(PARTITIONS):
        produce(scene, process, f"o{number}", number, OTHER)
    for transactional_id, is_commit in (("kept", True), ("dropped", False)):
        begin(scene, process, transactional_id)
        produce(scene, process, transactional_id, 1, transactional_id)
        end(scene, process, transactional_id, is_commit=is_commit)
    _lose(scene)
    return scene.process()


def _lose(scene: Scene) -> None:
    scene.lose_items()
    scene.ledger.answers["offsets are lost"] = True


def _set(scene: Scene, **changes: Any) -> None:
    """Change the item of the id as no request does."""
    [item] = transactions_of(scene.stored()).values()
    scene.items.write([replace(item, **changes).put(scene.runtime)])


# Operations


def init(scene: Scene, process: Process) -> None:
    begin(scene, process)


def init_keeping(scene: Scene, process: Process) -> None:
    begin(scene, process, pair=known_transaction(scene).pair)


def add_partitions(scene: Scene, process: Process) -> None:
    pair = scene.ledger.answers["transactions"][0].pair
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    assert process.log.transactions.add_partitions(ID, pair, places) == [None] * PARTITIONS


def add_group(scene: Scene, process: Process) -> None:
    process.log.transactions.add_group(ID, known_transaction(scene).pair, GROUP)


def first_batch(scene: Scene, process: Process) -> None:
    produce(scene, process, "t0")


def commit(scene: Scene, process: Process) -> None:
    end(scene, process)


def abort(scene: Scene, process: Process) -> None:
    end(scene, process, is_commit=False)


def abort_by_hand(scene: Scene, process: Process) -> None:
    for number in range(PARTITIONS):
        process.log.transactions.abort_hanging(TOPIC, number, scene.ledger.answers["transactions"][0].pair)


def rebuild_items(scene: Scene, process: Process) -> None:
    rebuild(process.context)


# Mends


def init_again(scene: Scene, process: Process) -> None:
    """Ask for the id again: it is another pair, with which a transaction begins and ends."""
    begin(scene, process)
    nothing_is_due(scene)
    _transact(scene, process)


def _transact(scene: Scene, process: Process) -> None:
    for number in range(PARTITIONS):
        produce(scene, process, f"next{number}", number)
    end(scene, process)


def init_keeping_again(scene: Scene, process: Process) -> None:
    """Ask again with the pair that the producer has: the answer is the same, twice; or its time-out was met first."""
    pair = scene.ledger.answers["transactions"][0].pair
    first, second = (process.log.transactions.init(ID, TIMEOUT_MS, pair) for _ in range(2))
    assert first == second > pair
    nothing_is_due(scene)


def add_again(scene: Scene, process: Process) -> None:
    if in_time(scene, lambda: add_partitions(scene, process)):
        for number in range(PARTITIONS):
            produce(scene, process, f"t{number}", number)
        end(scene, process)


def add_group_again(scene: Scene, process: Process) -> None:
    if in_time(scene, lambda: add_group(scene, process)):
        send_offset(scene, process)
        end(scene, process)


def batch_again(scene: Scene, process: Process) -> None:
    """Send the batch again: it is stored now, or was, and the transaction ends as its producer asks."""
    if in_time(scene, lambda: first_batch(scene, process), is_met=False):
        produce(scene, process, "more")
        end(scene, process)


def give_up(scene: Scene, process: Process) -> None:
    """Abort instead, as a client does that has no answer: there may be nothing to abort."""
    end_again(scene, process, is_commit=False)


def send_again(scene: Scene, process: Process) -> None:
    if in_time(scene, lambda: send_offset(scene, process)):
        send_offset(scene, process)
        end(scene, process)


def commit_again(scene: Scene, process: Process) -> None:
    end_again(scene, process)
    nothing_is_due(scene)


def abort_again(scene: Scene, process: Process) -> None:
    end_again(scene, process, is_commit=False)
    nothing_is_due(scene)


def abort_too_late(scene: Scene, process: Process) -> None:
    """Ask for the other outcome: it is the one in force, or is refused. What was decided stays."""
    known = scene.ledger.answers["transactions"][0]
    with suppress(InvalidTxnStateError):
        known.asked, asked = False, known.asked
        process.log.transactions.end(ID, known.pair, False)
        known.is_answered = True
        return
    known.asked = asked


def older_instance(scene: Scene, process: Process) -> None:
    """Let the older instance commit: its own end wins, or it is fenced."""
    with suppress(ProducerFencedError):
        end_again(scene, process)


def sweep_them(scene: Scene, process: Process) -> None:
    sweep_all(scene, process)
    nothing_is_due(scene)


def lose_items(scene: Scene, process: Process) -> None:
    """Lose all items, rebuild once every server has ended, and let the sweeper end what was open."""
    scene.land()
    _lose(scene)
    rebuild(scene.process().context)
    sweep_them(scene, scene.process())
    with pytest.raises(InvalidProducerIdMappingError):
        add_partitions(scene, scene.process())


def rebuild_again(scene: Scene, process: Process) -> None:
    """Throw away what is left of a rebuild, and do it again."""
    scene.lose_items()
    rebuild(scene.process().context)
    sweep_them(scene, scene.process())


def expired_for_good(scene: Scene, process: Process) -> None:
    """Sweep: both items of the id go together."""
    sweep_all(scene, process)
    left = [place for place in scene.stored() if place.startswith(("transactions/", "producer-ids/"))]
    assert left == []


def abort_by_hand_again(scene: Scene, process: Process) -> None:
    """Abort again: each partition has the ABORT once."""
    for number in range(PARTITIONS):
        with suppress(InvalidTxnStateError):
            process.log.transactions.abort_hanging(TOPIC, number, scene.ledger.answers["transactions"][0].pair)


SAME = "the same again"
SWEEPER = "the sweeper"
READER = "a reader"
STABLE = "a look at stable offsets"
GET = "its GET"
NEXT = "the next id request"
REBUILD = "a rebuild"
MANY = 100

ENDED_BY: dict[str, Act] = {READER: read_committed, STABLE: stable_offset, GET: get_each, SWEEPER: sweep_them}


def _entry(name: str, set_up: Any, do: Any, mends: Any, items: int = MANY) -> Operation:
    return Operation(name, set_up, do, mends, transactions_are_whole, items)


TRANSACTION_OPERATIONS = [
    _entry("init of an unknown id", topic, init, {SAME: init_again, SWEEPER: sweep_them}),
    _entry("init", ended, init, {SAME: init_again, SWEEPER: sweep_them}),
    _entry("init beyond the last epoch", given_last, init, {SAME: init_again, SWEEPER: sweep_them}),
    _entry("init that aborts", begun, init, {
        SAME: init_again, "the older instance": older_instance, **ENDED_BY, REBUILD: lose_items,
    }),
    _entry("init that keeps", given, init_keeping, {SAME: init_keeping_again, NEXT: init_again}),
    _entry("init that keeps, and aborts", begun, init_keeping, {NEXT: init_again, **ENDED_BY}),
    _entry("add partitions", given, add_partitions, {SAME: add_again, NEXT: init_again, SWEEPER: sweep_them}),
    _entry("add a group", given, add_group, {SAME: add_group_again, NEXT: init_again, SWEEPER: sweep_them}),
    _entry("transactional append", given, first_batch, {
        SAME: batch_again, "END_TXN": give_up, NEXT: init_again, SWEEPER: sweep_them, REBUILD: lose_items,
    }),
    _entry("send offsets, the first", grouped, send_offset, {
        SAME: send_again, "END_TXN": give_up, STABLE: stable_offset, SWEEPER: sweep_them,
    }),
    _entry("send offsets", cursor_known, send_offset, {
        SAME: send_again, "END_TXN": give_up, STABLE: stable_offset, SWEEPER: sweep_them,
    }),
    _entry("end: commit", begun, commit, {
        SAME: commit_again, "the other end": abort_too_late, NEXT: init_again, **ENDED_BY, REBUILD: lose_items,
    }),
    _entry("end: abort", begun, abort, {SAME: abort_again, NEXT: init_again, **ENDED_BY, REBUILD: lose_items}),
    _entry("end: commit of the last epoch", begun_last, commit, {SAME: commit_again, GET: get_each}),
    _entry("end: abort of nothing", given_last, abort, {SAME: abort_again, NEXT: init_again}),
    _entry("time-out met by a reader", timed_out, read_each, ENDED_BY | {NEXT: init_again}),
    _entry("time-out met by a look at stable offsets", timed_out, stable_offset, ENDED_BY | {NEXT: init_again}),
    _entry("time-out met by its GET", timed_out, get_each, ENDED_BY | {NEXT: init_again}),
    _entry("decision met by a reader", decided, read_each, ENDED_BY | {SAME: commit_again}),
    _entry("sweep: time-out", timed_out, sweep_once, {SWEEPER: sweep_them, NEXT: init_again}),
    _entry("sweep: decision", half_marked, sweep_once, {SWEEPER: sweep_them, "END_TXN": commit_again}),
    _entry("sweep: expiry", expired, sweep_once, {SWEEPER: expired_for_good, NEXT: init_again}),
    _entry("abort by hand", hanging, abort_by_hand, {SAME: abort_by_hand_again}),
    _entry("rebuild with transactions", every_state, rebuild_items, {SAME: rebuild_again}, 8),
]  # fmt: skip
