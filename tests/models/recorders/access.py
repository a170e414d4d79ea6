"""Records a run of exclusive access for Access: writes of access and session items, what is created, and answers.

Limits: one partition. A session has one producer, and claims under its name alone. It is never closed, only severed for
a lock. No client waits in line, and only exclusive access is reconnected to. A write that changes nothing of what the
model knows, such as a renewal, is no line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from fenceline.access.claims import decision as decisions
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.ownership.own import OwnAttempt
from fenceline.access.rules import EXCLUSIVE_WITH_FENCING, AccessItem, Holder
from fenceline.access.session_item import LIVE, RESERVED, SEVERED, SessionItem
from fenceline.errors import FencelineError
from fenceline.format.batch import decode
from fenceline.format.control import ACCESS, EXCLUSIVE, SHARED, parse_marker
from fenceline.model.requests import ClaimRequest
from fenceline.ports import Change, Put
from models.traces import Event, Recording
from tests.models.recorders.playing import Guard, add_processes, new_run, playing
from tests.simulation.access import clients, test_guards
from tests.simulation.access.clients import LOCK, TOPIC, Stage
from tests.simulation.access.requests import Grant, Sending
from tests.simulation.access.scenario import AccessPlan
from tests.simulation.harness.history import text_of
from tests.simulation.harness.real import segment_of
from tests.simulation.harness.scenario import StoreRun
from tests.simulation.harness.stores import Faults
from tests.simulation.harness.world import NoReply
from tests.simulation.log.clients import create

WITHOUT: Mapping[str, Guard] = {
    "append only while the state names the grant": test_guards.judges_no_session,
    "the marker's epoch is above the state's": test_guards.appends_any_marker,
    "write the end before acting on it": test_guards.acts_upon_an_end_that_is_not_written,
    "the marker is in the records' segment": test_guards.appends_no_marker_back,
    "fences before the answer": test_guards.answers_before_its_fences,
}
Member = Mapping[str, Any]  # a member of a line

HOLDERS = 3
ROUNDS = 3
LEASE_MS = 1_000
PATIENCE_MS = 8_000
APART_MS = 2_500  # half of it is the time from one request of a client to the next
FAULTS = Faults(slow=0.04, answer_lost=0.03, freeze=0.02, freeze_ms=6_000, crash=0.004, lands_after_ms_max=10_000)
PLAN = AccessPlan(
    processes=3,
    partitions=1,
    rounds=ROUNDS,
    casts=(),
    faults=FAULTS,
    patience_ms=PATIENCE_MS,
    leases_ms=(LEASE_MS,),
)


def record(seed: int, without: str = "") -> Recording:
    """Play one seed, with one guard of the code switched off if it is named, and return what the model knows of it."""
    run = new_run(seed, PLAN)
    lines = Lines(run)
    run.items.on_write, run.objects.on_create = lines.wrote, lines.created
    with playing(run, WITHOUT[without] if without else None) as patch:
        lines.observe(patch)
        _play(run, lines)
    names = frozenset(lines.names.values()) or frozenset({"s1"})
    return Recording("Access", lines.events, {"TraceSessions": names})


@dataclass
class Lines:
    """What happened so far, in the model's words."""

    run: StoreRun[AccessPlan]
    events: list[Event] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # by their ids, of sessions that a line names
    sent: dict[str, tuple[str, int] | None] = field(default_factory=dict)  # the grant of each attempt
    item: Member = field(default_factory=lambda: _item(AccessItem()))
    sessions: dict[str, Member] = field(default_factory=dict)
    reconnections: list[ItemTransaction] = field(default_factory=list)
    resumes: list[Change] = field(default_factory=list)  # writes of these

    def name(self, session_id: str) -> str:
        return self.names.setdefault(session_id, f"s{len(self.names) + 1}")

    def observe(self, patch: pytest.MonkeyPatch) -> None:
        """Note which writes are those of reconnections, and which sessions an answered owner severed."""
        resumed, changes, attempt = decisions.resumed, ItemTransaction.changes, OwnAttempt.attempt

        def resumed_noted(*args: Any) -> Any:
            decision = resumed(*args)
            self.reconnections.append(decision.transaction)
            return decision

        def changes_noted(made_by: ItemTransaction, runtime: Any) -> list[Change]:
            made = changes(made_by, runtime)
            if any(made_by is one for one in self.reconnections):
                self.resumes += made
            return made

        def attempt_noted(own: OwnAttempt) -> Any:
            answer = attempt(own)
            for session_id in sorted(own._severed):
                self.severed(session_id)
            return answer

        patch.setattr(decisions, "resumed", resumed_noted)
        patch.setattr(ItemTransaction, "changes", changes_noted)
        patch.setattr(OwnAttempt, "attempt", attempt_noted)

    def wrote(self, changes: Sequence[Change]) -> None:
        item, changed = self.item, dict[str, Member]()
        for change in changes:
            if isinstance(change, Put) and change.key.sort == "access":
                item = _item(AccessItem.from_value(change.value, change.version), self.name)
            elif isinstance(change, Put) and _is_session(change):
                session = _session(SessionItem.from_value(change.key.sort, change.value, change.version))
                if session != self.sessions.get(change.key.sort, NEW_SESSION):
                    changed[change.key.sort] = session
        members: dict[str, Any] = {
            "item": item,
            "sessions": tuple({"by": self.name(i), **one} for i, one in changed.items()),
        }
        resumes = [one for change in changes for one in self.resumes if change is one and _is_session(one)]
        if resumes:
            by, (granted,) = self.name(resumes[0].key.sort), item["granted"]
            self.events.append({"event": "resumed", "by": by, "epoch": granted["epoch"], **members})
        elif item != self.item or changed:
            self.events.append({"event": "wrote", **members})
        self.item = item
        self.sessions |= changed

    def created(self, key: str) -> None:
        if not key.startswith("log/"):
            return
        segment = segment_of(self.run.objects.created[-1])
        for position, header in segment.batches:
            epoch = header.leader_epoch
            if not header.is_control:
                sender = self.sent[text_of(decode(segment.body, position)[0]).decode().rpartition(":")[0]]
                by = "" if sender is None else self.name(sender[0])
                self.events.append({"event": "batch", "by": by, "epoch": epoch, "goes_back": False})
                continue
            marker = parse_marker(segment.body, position, header)
            assert marker.type == ACCESS
            last = self.events[-1] if position else None
            if last is not None and last["event"] == "batch" and last["by"] == "":
                self.events[-1] = {**last, "goes_back": True}  # the marker is in the records' segment
                continue
            to = self.name(marker.value["session_id"]) if marker.value["mode"] == EXCLUSIVE else "all"
            self.events.append({"event": "marker", "to": to, "epoch": epoch})

    def granted(self, session_id: str, mode: str, epoch: int) -> None:
        members: dict[str, Any] = {"by": self.name(session_id), "mode": _mode(mode), "epoch": epoch}
        self.events.append({"event": "granted", **members})

    def severed(self, session_id: str) -> None:
        self.events.append({"event": "severed", "by": self.name(session_id)})


def _is_session(change: Change) -> bool:
    return change.key.partition.startswith("sessions/")


def _mode(mode: str) -> str:
    return "shared" if mode == SHARED else "exclusive"


def _item(item: AccessItem, name: Callable[[str], str] = str) -> Member:
    """Return a partition's item as a line has it: what is absent is an empty tuple."""

    def held(holder: Holder | None, **more: bool) -> tuple[object, ...]:
        return () if holder is None else ({"by": name(holder.session_id), "epoch": holder.epoch, **more},)

    granted = item.granted
    ended = {} if granted is None else {"ended": granted.is_ended}
    return {"epoch": item.epoch, "claim": held(item.claim), "granted": held(granted, **ended)}


def _session(session: SessionItem) -> Member:
    """Return a session's item as a line has it. Of a severed one the model keeps what was reserved."""
    is_severed = session.state == SEVERED
    holds = [
        {"at": "p0", "epoch": h.epoch, "mode": _mode(h.mode), "is": "granted" if h.state == LIVE else h.state}
        for h in session.holds
        if not is_severed or h.state == RESERVED
    ]
    fences = [{"at": "p0", "epoch": one.epoch, "mode": _mode(one.mode)} for one in session.fences]
    return {"severed": is_severed, "holds": tuple(holds), "fences": tuple(fences)}


NEW_SESSION = _session(SessionItem("", "", 0, 0, 0))


# The clients


@dataclass
class Client:
    """A client of the run: its requests, with what is noted of their answers."""

    stage: Stage
    lines: Lines
    name: str
    session_id: str | None = None

    def pause(self) -> None:
        self.stage.world.sleep(self.stage.rng.random() * APART_MS)

    def ask(self, session_id: str | None, call: Callable[[], Any]) -> Any:
        """Ask once, under a session or under none. An error is an outcome like any other."""
        try:
            return call()
        except FencelineError as error:
            if error.code == "SESSION_SEVERED" and session_id is not None:
                self.lines.severed(session_id)
            if error.code in ("SESSION_SEVERED", "SESSION_EXPIRED") and session_id == self.session_id:
                self.session_id = None
        except NoReply:
            pass
        return None

    def claim(self, mode: str, epochs: Mapping[int, int] | None = None) -> Grant | None:
        """Claim under the session's one name, twice if the first claim was not granted."""
        if self.session_id is None:
            self.session_id = self.stage.session(self.name)
        session_id = self.session_id
        if session_id is None:
            return None
        name = f"of-{session_id[:8]}"
        request = ClaimRequest(mode, (0,), session_id=session_id, producer_name=name, topic_epochs=epochs)

        def call() -> Any:
            return self.stage.call(self.name, "claim", request, lambda log: log.access.claim(TOPIC, request))

        granted = self.ask(session_id, call) or self.ask(session_id, call)
        if granted is None:
            return None
        self.lines.granted(session_id, mode, granted.topic_epochs[0])
        self.stage.grants.append(Grant(session_id, mode, dict(granted.topic_epochs), name))
        return self.stage.grants[-1]

    def send(self, grant: Grant | None) -> None:
        number = self.stage.fresh(f"{self.name}-")
        self.lines.sent[number] = session = None if grant is None else (grant.session_id, grant.epochs[0])
        sending = Sending(number, number, session=session, mode=SHARED if grant is None else grant.mode)
        self.ask(session and session[0], lambda: self.stage.send(self.name, 0, sending))

    def close(self, grant: Grant) -> None:
        def run(log: Any) -> None:
            log.access.close_producer(TOPIC, grant.producer_name, grant.session_id)

        self.ask(grant.session_id, lambda: self.stage.call(self.name, "close-producer", grant, run))


def hold(client: Client) -> None:
    """Claim, append, and then close, come back, sever the owner of the lock, or go without a word."""
    rng = client.stage.rng
    for _ in range(ROUNDS):
        client.pause()
        grant = client.claim(rng.choice((EXCLUSIVE, EXCLUSIVE_WITH_FENCING, SHARED)))
        if grant is None:
            continue
        client.send(grant)
        what = rng.random()
        if what < 0.3:
            client.close(grant)
        if what < 0.6 and grant.mode != SHARED:
            client.pause()
            client.claim(EXCLUSIVE, grant.epochs)
        if what > 0.6:
            clients.take_resources(client.stage, client.name, grant.session_id, None, names=[LOCK])
        client.pause()
        client.send(grant)


def write(client: Client) -> None:
    """Append without a session, and under any grant that there ever was."""
    for _ in range(ROUNDS):
        client.pause()
        client.send(None)
        if client.stage.grants:
            client.send(client.stage.rng.choice(client.stage.grants))


def _play(run: StoreRun[AccessPlan], lines: Lines) -> None:
    add_processes(run)
    stage = Stage(run.world, run.history, run.processes, PATIENCE_MS, ROUNDS, leases_ms=PLAN.leases_ms)
    run.do(lambda: create(stage, "setup", TOPIC, 1))
    run.faults = run.plan.faults
    holders = [partial(hold, Client(stage, lines, f"h{number}")) for number in range(HOLDERS)]
    run.do(*holders, partial(write, Client(stage, lines, "w")))
