"""Records runs of the combining scenario for Combining: offers, writes of the round, what creates list, and answers.

Offers are named o1, o2 … in the order in which they come up. A segment's place is its number in the log.

Limits: one partition, no crash, no lost items. Each process has one caller, and one more trims and sweeps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from fenceline.append.appender import Appender
from fenceline.append.combining import combiner
from fenceline.append.combining.offers import LOST, Round
from fenceline.append.combining.own_offers import OwnOffer, OwnOffers
from fenceline.append.group import Ticket
from fenceline.append.queue import AppendQueue
from fenceline.format import keys
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import StaleTopicId
from fenceline.model.results import Appended
from fenceline.ports import Change, Put
from models.traces import Event, Recording, Value
from tests.models.recorders.playing import UNHURRIED_MS, Guard, fields_of, new_run, pass_errors, playing, trim_and_sweep
from tests.simulation.harness import real
from tests.simulation.harness.history import Attempt
from tests.simulation.harness.scenario import Plan, StoreRun
from tests.simulation.harness.stores import Creation, Faults, FaultyItemStore
from tests.simulation.log.test_combining_guards import (
    forgets_what_is_done,
    leaves_the_round_unread,
    lists_what_is_not_bound,
    refuses_without_withdrawal,
    takes_no_answer_for_no_put,
    withdraws_beside_the_round,
)

WITHOUT: Mapping[str, Guard] = {
    "done is not bound again": forgets_what_is_done,
    "leave only what was read": leaves_the_round_unread,
    "list only what is bound": lists_what_is_not_bound,
    "refuse only what was withdrawn": refuses_without_withdrawal,
    "withdraw only what was seen": takes_no_answer_for_no_put,
    "withdrawal moves the round": withdraws_beside_the_round,
}
APPENDERS = 3
ROUNDS = 3
TRIMS = 2
TRIM_APART_MS = 4_000
EXPECTING = 0.2  # of the batches: most of them are refused, or come due later
NOT_DONE = -2  # in the model's `done`
FAULTS = Faults(
    freeze=0.005, freeze_ms=9_000_000, freeze_at_append=0.1, answer_lost=0.05, slow=0.04, lands_after_ms_max=60_000
)


def record(seed: int, without: str = "") -> Recording:
    """Play one seed, with one guard of the code switched off if it is named, and return what the model knows of it."""
    rng = Random(f"trace {seed}")
    plan = Plan(
        processes=APPENDERS + 1,
        partitions=1,
        rounds=ROUNDS,
        casts=(),
        faults=FAULTS,
        patience_ms=UNHURRIED_MS,
        checkpoint_segments=rng.choice((1, 2, 16)),
        collects=True,
        timeout_ms=rng.choice((2_500, 20_000, 20_000)),
    )
    run = new_run(seed, plan)
    notes = Notes(run)
    with playing(run, WITHOUT[without] if without else None) as patch:
        _contend(patch)
        notes.observe(patch)
        _play(run, rng)
    return notes.recording()


def _contend(patch: pytest.MonkeyPatch) -> None:
    """Let each process know rivals from its start, and never forget them."""
    patch.setattr(combiner, "WORTH_MS", -1_000_000)  # every call takes as long as every other
    patch.setattr(combiner, "RIVALS", (0, 10**12))
    patch.setattr(combiner, "DIRECT", (0, -1))  # none creates without offering first
    init = Appender.__init__

    def contending(self: Appender, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.meet_rivals()

    patch.setattr(Appender, "__init__", contending)


def _play(run: StoreRun[Plan], rng: Random) -> None:
    fields = fields_of(run)

    def append(number: int) -> None:
        for at in range(ROUNDS):
            name = f"b{number}_{at}"
            expected = rng.randrange(APPENDERS * ROUNDS) if rng.random() < EXPECTING else None
            pass_errors(partial(fields[number].append, f"a{number}", "t", 0, Attempt(name, name, 1, expected)))

    def delete() -> None:
        run.world.sleep(rng.random() * TRIM_APART_MS)
        pass_errors(lambda: fields[-1].ask("delete", "delete", "t", 0, None, lambda log: log.topics.delete("t")))

    trims = partial(trim_and_sweep, run, fields[-1], rng, times=TRIMS, apart_ms=TRIM_APART_MS)
    end = rng.choice((trims, trims, delete))
    run.do(*(partial(append, number) for number in range(APPENDERS)), end)


class Notes:
    """What happened, with offsets and ids as the code has them; ``recording`` has them as the model does."""

    def __init__(self, run: StoreRun[Plan]) -> None:
        self._run = run
        self._events: list[dict[str, Any]] = []
        self._noted: set[str] = set()
        self._log_start = 0
        run.items.on_write = self._wrote
        run.objects.on_delete = self._collected
        run.objects.on_create = self._created

    def observe(self, patch: pytest.MonkeyPatch) -> None:
        """Write down each offer's answer, and which of the writes about offers were answered."""
        write, deliver, leave = FaultyItemStore.write, AppendQueue.deliver, AppendQueue._leave
        take_back = OwnOffers.take_back
        notes = self

        def written(self: FaultyItemStore, changes: Sequence[Change]) -> None:
            write(self, changes)
            for change in changes:
                for event in notes._events:
                    if event.get("change") is change:
                        event["answered"] = True

        def delivered(self: Any, answers: Sequence[tuple[Ticket, Any]]) -> None:
            deliver(self, answers)
            for ticket, _ in answers:
                notes._answered(ticket)

        def left(self: Any, ticket: Ticket) -> None:
            leave(self, ticket)
            notes._answered(ticket)

        def taken_back(self: OwnOffers, own: Sequence[OwnOffer]) -> None:
            notes._events += [{"event": "not written", "offer": one.id} for one in own]
            take_back(self, own)

        patch.setattr(FaultyItemStore, "write", written)
        patch.setattr(AppendQueue, "deliver", delivered)
        patch.setattr(AppendQueue, "_leave", left)
        patch.setattr(OwnOffers, "take_back", taken_back)

    def _answered(self, ticket: Ticket) -> None:
        if ticket.offer is None or ticket.is_foreign or ticket.outcome is None or ticket.offer in self._noted:
            return
        self._noted.add(ticket.offer)
        event: dict[str, Any] = {"event": "unknown", "offer": ticket.offer}
        if isinstance(ticket.outcome, Appended):
            event = {"event": "acknowledged", "offer": ticket.offer, "at": ticket.outcome.base_offset}
        elif isinstance(ticket.outcome, StaleTopicId):
            event = {"event": "sealed", "offer": ticket.offer}
        self._events.append(event)

    def _wrote(self, changes: Sequence[Change]) -> None:
        offers = [change for change in changes if change.key.partition.startswith("offers/")]
        rounds = [change for change in changes if change.key.sort == "round" and isinstance(change, Put)]
        if rounds and offers:
            ids = frozenset(keys.parse_offer_item(change.key) for change in offers)
            self._events.append({"event": "withdrawn", "ids": ids, "change": rounds[0], "answered": False})
            return
        for change in offers:
            one = keys.parse_offer_item(change.key)
            if isinstance(change, Put):
                self._events.append({"event": "put", "offer": one, "change": change, "answered": False})
            else:
                self._events.append({"event": "deleted", "offer": one})
        for change in rounds:
            kind = "made" if change.expected is None else "round"
            self._events.append({"event": kind, "round": Round.from_value(change.value)})
        for change in changes:
            if isinstance(change, Put) and change.key.sort == "head":
                start = Head.from_value(change.value).log_start
                if start > self._log_start:
                    self._log_start = start
                    self._events.append({"event": "log start", "at": start})

    def _created(self, key: str) -> None:
        if key.startswith("log/"):
            creation: Creation = self._run.objects.created[-1]
            segment = real.segment_of(creation)
            _, _, batches = real.parse(creation)
            at, end, lists = segment.base_offset, segment.next_offset, frozenset(segment.metadata.offers)
            seals = any(batch.is_seal for batch in batches)
            self._events.append({"event": "created", "at": at, "end": end, "lists": lists, "seals": seals})

    def _collected(self, key: str) -> None:
        if key.startswith("log/"):
            _, _, base_offset = keys.parse_segment_key(key)
            self._events.append({"event": "collected", "at": base_offset})

    def recording(self) -> Recording:
        """Return the run as the model has it: ids and offsets are numbered."""
        bases, end = [], 0
        for event in self._events:
            if event["event"] == "created" and event["at"] == end:  # else it is a late create, of a segment's base
                bases.append(end)
                end = event["end"]
        ids = dict.fromkeys(one for event in self._events for one in _ids(event))
        names = {one: f"o{number}" for number, one in enumerate(ids, 1)}

        def place(offset: int) -> int:
            return len(bases) if offset >= end else bisect_right(bases, offset) - 1

        lines = [_line(event, names, place) for event in self._events]
        return Recording("Combining", lines, {"TraceOffers": frozenset(names.values()), "TraceSize": len(bases) + 1})


def _ids(event: Mapping[str, Any]) -> Sequence[str]:
    """Return the offers that an event names."""
    known: Round = event.get("round", Round(0))
    one = [event["offer"]] if "offer" in event else []
    return [*one, *sorted(event.get("ids", ())), *sorted(event.get("lists", ())), *known.bound, *sorted(known.done)]


def _line(event: Mapping[str, Any], names: Mapping[str, str], place: Callable[[int], int]) -> Event:
    made: dict[str, Value] = {name: event[name] for name in ("event", "answered", "seals") if name in event}
    for name in ("ids", "lists"):
        if name in event:
            made[name] = frozenset(names[one] for one in event[name])
    if "offer" in event:
        made["offer"] = names[event["offer"]]
    if "at" in event:
        made["place"] = place(event["at"])
    if "round" in event:
        known: Round = event["round"]
        done = {one: at if at == LOST else place(at) for one, at in known.done.items()}
        made["place"] = place(known.offset)
        made["bound"] = frozenset(names[one] for one in known.bound)
        made["done"] = {name: done.get(one, NOT_DONE) for one, name in names.items()}
    return made
