"""Claimers, owners and writers in a simulation of exclusive access: tasks outside the processes, as in log/clients.py.

Rule: clients remember every grant that they ever got, and use it long after it is gone: a fenced client goes on
sending, a lapsed one comes back, and a waiter may stop polling.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fenceline.access.rules import EXCLUSIVE_WITH_FENCING, WAIT_FOR_EXCLUSIVE
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError, UnknownProducerError
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.kinds import ACCESS_MODES
from fenceline.model.requests import OwnTarget, ReadRequest
from fenceline.model.results import ProducerRef, SessionRef
from fenceline.ports import StoreFact
from tests.simulation.access.requests import Claim, Grant, Own, Sending
from tests.simulation.harness.world import NoReply
from tests.simulation.log.clients import Field
from tests.simulation.log.truth import Violation
from tests.support.sweeping import strict_sweep

TOPIC = "t"
LOCK = "nightly"  # a resource that guards no partition
GROUP = "g"
TRIES_MAX = 4
POLLS_MAX = 12


@dataclass
class Stage(Field):
    """A field, and what its clients know of access."""

    partitions: int = 1
    leases_ms: Sequence[int] = (3_000,)
    grants: list[Grant] = field(default_factory=list)  # every grant that any client got
    generation: int = 0  # the highest one in any answer

    def lease_ms(self) -> int:
        return self.rng.choice(self.leases_ms)

    def some_partitions(self) -> tuple[int, ...]:
        some = [p for p in range(self.partitions) if self.rng.random() < 0.6]
        return tuple(some) or (int(self.rng.random() * self.partitions),)

    def call(self, name: str, kind: str, request: Any, run: Any, partition: int = 0) -> Any:
        return self.ask(name, kind, TOPIC, partition, request, run)

    def session(self, name: str) -> str | None:
        lease_ms = self.lease_ms()
        with suppress(FencelineError, NoReply):
            made = self.call(name, "session", lease_ms, lambda log: log.access.create_session(lease_ms=lease_ms))
            return str(made.session_id)
        return None

    def send(self, name: str, partition: int, sending: Sending) -> Any:
        producer = None if sending.producer is None else ProducerRef(*sending.producer)
        session = None if sending.session is None else SessionRef(*sending.session)

        def run(log: Any) -> Any:
            request = AppendRequest.of_records(sending.records, producer=producer, session=session)
            return log.append(TOPIC, partition, request)

        return self.call(name, "append", sending, run, partition)


def write(stage: Stage, name: str, grant: Grant | None, records: int) -> None:
    """Append under a grant, or under none.

    Now and then append idempotently, sending each batch again until it is acknowledged.
    """
    producer_id = None
    if stage.rng.random() < 0.3:
        with suppress(FencelineError, NoReply):
            producer_id = stage.call(name, "producer-id", None, lambda log: log.producing.new_producer_id())[0]
    sequences: dict[int, int] = {}
    partitions = [int(stage.rng.random() * stage.partitions)] if grant is None else grant.partitions
    for _ in range(records):
        partition = stage.rng.choice(partitions)
        batch, sequence = stage.fresh(f"{name}b"), sequences.get(partition, 0)
        for _ in range(TRIES_MAX if producer_id is not None else 1):
            sending = Sending(
                stage.fresh(f"{batch}."),
                batch,
                producer=None if producer_id is None else (producer_id, 0, sequence),
                session=None if grant is None else (grant.session_id, grant.epochs[partition]),
                mode=SHARED if grant is None else grant.mode,
            )
            try:
                stage.send(name, partition, sending)
                sequences[partition] = sequence + 1
                break
            except FencelineError as error:
                if error.next_step == "fix" and stage.rng.random() < 0.7:
                    return
            except NoReply:
                pass
            stage.world.sleep(stage.rng.random() * 200)
        stage.world.sleep(stage.rng.random() * stage.rng.choice((0, 50, 2_000)))


def write_plainly(stage: Stage, name: str) -> None:
    """Append without a session, and look which sessions hold what."""
    for _ in range(stage.rounds * 2):
        stage.world.sleep(stage.rng.random() * 1_500)
        write(stage, name, None, 1)


# Claims


def claim(stage: Stage, name: str) -> None:
    """Claim, write, and leave in one way or another; what was lost is used again."""
    own: list[Grant] = []
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 500)
        if own and stage.rng.random() < 0.4:
            write(stage, name, stage.rng.choice(own), 1)
        known = stage.rng.choice(own).session_id if own and stage.rng.random() < 0.3 else None
        made = stage.session(name) if known is None and stage.rng.random() < 0.5 else known
        mode = stage.rng.choice((*ACCESS_MODES, EXCLUSIVE_WITH_FENCING, WAIT_FOR_EXCLUSIVE))
        grant = take(stage, name, mode, stage.some_partitions(), made)
        if grant is None:
            continue
        own.append(grant)
        write(stage, name, grant, stage.rng.choice((1, 2, 4)))
        leave(stage, name, grant)


def take(
    stage: Stage, name: str, mode: str, partitions: tuple[int, ...], session_id: str | None, **more: Any
) -> Grant | None:
    """Claim, repeat the claim where the outcome is not known, and wait in line for a while."""
    lease_ms = stage.lease_ms() if session_id is None else None
    request = Claim(mode, partitions, session_id, lease_ms, wait_ms=stage.rng.choice((0, 0, 500)), **more)
    for _ in range(TRIES_MAX):
        try:
            producer = stage.call(name, "claim", request, lambda log: log.access.claim(TOPIC, request.request))
        except FencelineError as error:
            if error.next_step == "fix":
                return None
        except NoReply:
            pass
        else:
            return _granted(stage, name, request.mode, _waited(stage, name, producer))
        if session_id is None:
            # The session that the claim may have made is unknown.
            return None
        stage.world.sleep(stage.rng.random() * 500)
    return None


def _waited(stage: Stage, name: str, producer: Any) -> Any:
    is_patient = stage.rng.random() < 0.8
    for _ in range(POLLS_MAX):
        if producer is None or producer.state == "granted":
            return producer
        session_id, its_name, wait_ms = producer.session_id, producer.producer_name, stage.rng.choice((0, 300, 1_500))
        poll = (session_id, its_name, wait_ms)
        try:
            producer = stage.call(
                name, "poll", poll, lambda log, p=poll: log.access.producer(TOPIC, p[1], session_id=p[0], wait_ms=p[2])
            )
        except FencelineError as error:
            if error.next_step == "fix":
                return None
        except NoReply:
            pass
        if not is_patient and stage.rng.random() < 0.3:
            if stage.rng.random() < 0.5:
                _close_producer(stage, name, session_id, its_name)
            return None
        stage.world.sleep(stage.rng.random() * (200 if is_patient else 4_000))
    return None


def _granted(stage: Stage, name: str, mode: str, producer: Any) -> Grant | None:
    if producer is None or producer.state != "granted":
        return None
    grant = Grant(producer.session_id, mode, dict(producer.topic_epochs), producer.producer_name)
    stage.grants.append(grant)
    return grant


def leave(stage: Stage, name: str, grant: Grant) -> None:
    """Close, or go without a word; and perhaps come back."""
    what = stage.rng.random()
    if what < 0.2:
        _close_producer(stage, name, grant.session_id, grant.producer_name)
    elif what < 0.35:
        with suppress(FencelineError, NoReply):
            stage.call(name, "close", grant.session_id, lambda log: log.access.close_session(grant.session_id))
    elif what < 0.5:
        heartbeat(stage, name, grant.session_id)
    if stage.rng.random() < 0.5:
        stage.world.sleep(stage.rng.random() * 6_000)
        mode = SHARED if grant.mode == SHARED else EXCLUSIVE
        again = take(stage, name, mode, tuple(grant.partitions), grant.session_id, topic_epochs=grant.epochs)
        write(stage, name, again or grant, 1)


def heartbeat(stage: Stage, name: str, session_id: str) -> None:
    with suppress(FencelineError, NoReply):
        stage.call(name, "heartbeat", session_id, lambda log: log.access.heartbeat(session_id))


def _close_producer(stage: Stage, name: str, session_id: str, its_name: str) -> None:
    with suppress(FencelineError, NoReply):
        stage.call(
            name,
            "close-producer",
            (session_id, its_name),
            lambda log: log.access.close_producer(TOPIC, its_name, session_id),
        )


def come_back(stage: Stage, name: str) -> None:
    """Hold exclusive access for as long as it can be held, and come back to it about when its lease lapses."""
    grant: Grant | None = None
    for _ in range(stage.rounds * 2):
        if grant is None:
            grant = take(stage, name, EXCLUSIVE, stage.some_partitions(), None)
        else:
            regained = take(
                stage, name, EXCLUSIVE, tuple(grant.partitions), grant.session_id, topic_epochs=grant.epochs
            )
            grant = regained or (grant if stage.rng.random() < 0.5 else None)
        if grant is not None:
            write(stage, name, grant, 1)
        stage.world.sleep(max(stage.leases_ms) * (0.8 + stage.rng.random() * 0.6))


# Ownership


def share_and_own(stage: Stage, name: str) -> None:
    """Share access to partitions under a session that owns a lock besides, and is severed for that."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 1_000)
        session_id = stage.session(name)
        if session_id is None:
            continue
        grant = take(stage, name, SHARED, stage.some_partitions(), session_id)
        if grant is None:
            continue
        write(stage, name, grant, 1)
        take_resources(stage, name, session_id, None, names=[LOCK])
        write(stage, name, grant, 4)


def own(stage: Stage, name: str) -> None:
    """Own partitions, a group's reading and a lock, with generations that sever the sessions that had them."""
    session_id = None
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 1_000)
        if session_id is None or stage.rng.random() < 0.3:
            session_id = stage.session(name)
        if session_id is None:
            continue
        group = stage.rng.choice((None, None, GROUP))
        if stage.rng.random() < 0.4:
            # A session loses what it holds as a producer, too, when it is severed for something else.
            mode = stage.rng.choice((SHARED, EXCLUSIVE_WITH_FENCING))
            held = take(stage, name, mode, stage.some_partitions(), session_id)
            if held is not None:
                write(stage, name, held, 1)
        owned = take_resources(stage, name, session_id, group)
        if owned is None:
            continue
        _use(stage, name, session_id, group, owned)
        what = stage.rng.random()
        if what < 0.3:
            request = Own(session_id, tuple((one.resource, None) for one in owned), group)
            names = [one.resource for one in owned]
            with suppress(FencelineError, NoReply):
                stage.call(
                    name,
                    "release",
                    request,
                    lambda log, s=session_id, g=group, n=names: log.access.release(s, n, group=g),
                )
        elif what < 0.6:
            heartbeat(stage, name, session_id)


def take_resources(stage: Stage, name: str, session_id: str, group: str | None, *, names: Sequence[str] = ()) -> Any:
    wanted = tuple((one, _generation(stage)) for one in names or _some_resources(stage))
    request = Own(session_id, wanted, group)
    for _ in range(TRIES_MAX):
        try:
            owned = stage.call(
                name,
                "own",
                request,
                lambda log: log.access.own(session_id, [OwnTarget(*one) for one in wanted], group=group),
            )
        except FencelineError as error:
            if error.next_step == "fix":
                return None
        except NoReply:
            pass
        else:
            stage.generation = max([stage.generation, *(one.generation for one in owned)])
            return owned
        stage.world.sleep(stage.rng.random() * 500)
    return None


def _some_resources(stage: Stage) -> Sequence[str]:
    names = [f"{TOPIC}/{p}" for p in stage.some_partitions()]
    return names[: stage.rng.choice((0, 1, 3))] + [LOCK] * stage.rng.choice((0, 1)) or [LOCK]


def _generation(stage: Stage) -> int | None:
    what = stage.rng.random()
    if what < 0.6:
        return stage.generation + 1
    if what < 0.8:
        return None
    return 0 if what < 0.85 else 1 + int(stage.rng.random() * (stage.generation + 1))


def _use(stage: Stage, name: str, session_id: str, group: str | None, owned: Any) -> None:
    guarded = {int(one.resource.split("/")[1]): one.fencing_token for one in owned if "/" in one.resource}
    if not guarded:
        return
    if group is None:
        grant = Grant(session_id, EXCLUSIVE, guarded)
        stage.grants.append(grant)
        write(stage, name, grant, stage.rng.choice((1, 2, 4)))
        return
    for _ in range(stage.rng.choice((1, 2, 4))):
        read(stage, name, stage.rng.choice([*guarded]), session_id)
        stage.world.sleep(stage.rng.random() * stage.rng.choice((50, 2_000)))


def read(stage: Stage, name: str, partition: int, session_id: str | None) -> None:
    """Read as the group, under a session or under none."""
    request = ReadRequest(offset=0, group=GROUP, session_id=session_id)
    if stage.rng.random() < 0.5:
        request = ReadRequest(tail_offset=0, wait_ms=2_000, group=GROUP, session_id=session_id)
    with suppress(FencelineError, NoReply):
        stage.call(name, "read", request, lambda log: log.partitions.read(TOPIC, partition, request), partition)


def read_plainly(stage: Stage, name: str) -> None:
    """Read as the group without a session: allowed while no session owns it."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 3_000)
        read(stage, name, int(stage.rng.random() * stage.partitions), None)


# Clients that come back


def haunt(stage: Stage, name: str) -> None:
    """Append under any grant that any client ever got, through any process."""
    for _ in range(stage.rounds * 2):
        stage.world.sleep(stage.rng.random() * 3_000)
        if stage.grants:
            write(stage, name, stage.rng.choice(stage.grants), 1)


def sweep_all(stage: Stage, name: str) -> None:
    """Have any process sweep, thoroughly: it must finish, too, what a severed session left to be fenced."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 3_000)
        with suppress(FencelineError, StoreFact, NoReply):
            stage.call(name, "sweep", None, lambda log: strict_sweep(log, duration_ms=60_000, is_thorough=True))


def release_all(stage: Stage, name: str) -> None:
    """After the trouble is over: take what is wanted, alone; use it, and leave it to all others.

    Raises:
        Violation: It was refused.
    """
    try:
        _take_and_leave(stage, name)
    except FencelineError as error:
        raise Violation(f"alone, and refused: {error}") from error
    for grant in stage.grants[-4:]:
        with suppress(FencelineError):
            number = stage.fresh(f"{name}-")
            partition = grant.partitions[0]
            stage.send(name, partition, Sending(number, number, session=_ref(grant, partition), mode=grant.mode))


def _take_and_leave(stage: Stage, name: str) -> None:
    everything = tuple(range(stage.partitions))
    for mode in (EXCLUSIVE, stage.rng.choice((SHARED, WAIT_FOR_EXCLUSIVE))):
        request = Claim(mode, everything, None, 3_000)
        producer = stage.call(name, "claim", request, lambda log, r=request: log.access.claim(TOPIC, r.request))
        grant = Grant(producer.session_id, request.mode, dict(producer.topic_epochs), producer.producer_name)
        for partition in everything:
            number = stage.fresh(f"{name}-")
            stage.send(name, partition, Sending(number, number, session=_ref(grant, partition), mode=grant.mode))
        stage.call(name, "close", grant.session_id, lambda log, g=grant: log.access.close_session(g.session_id))
        for partition in everything:
            number = stage.fresh(f"{name}-")
            stage.send(name, partition, Sending(number, number))


def _ref(grant: Grant, partition: int) -> tuple[str, int]:
    return grant.session_id, grant.epochs[partition]


def look(stage: Stage, name: str) -> None:
    """Look which sessions and producers are there, as an operator does."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 3_000)
        with suppress(FencelineError, NoReply):
            stage.call(name, "look", None, lambda log: log.access.producers(TOPIC))
        if stage.grants:
            session_id, its_name = stage.grants[-1].session_id, stage.grants[-1].producer_name
            with suppress(FencelineError, NoReply):
                stage.call(name, "look", session_id, lambda log, s=session_id: log.access.session(s))
            with suppress(UnknownProducerError, FencelineError, NoReply):
                stage.call(name, "look", its_name, lambda log, n=its_name: log.access.producer(TOPIC, n))
            with suppress(FencelineError, NoReply):
                stage.call(name, "look", LOCK, lambda log: log.access.ownership(LOCK))
