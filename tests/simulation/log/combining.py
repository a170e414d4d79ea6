"""Processes that contend for one partition, so that they offer their batches to each other ("Combining", I16).

``draw_plan`` draws the contention. ``met`` counts what the seeds reached, so that no case is shown by luck alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fenceline.append.appender import Appender
from fenceline.append.combining import combiner, offers, round_item
from fenceline.append.combining.own_offers import OwnOffer, OwnOffers
from fenceline.append.combining.round_item import RoundView
from fenceline.append.group import Group
from fenceline.format.segment import Segment
from fenceline.model.results import Appended
from fenceline.ports import Change, Delete, NoAnswer, Put, VersionMoved
from tests.simulation.harness import real
from tests.simulation.harness.scenario import PATIENT_MS, Plan
from tests.simulation.harness.stores import Faults, FaultyItemStore
from tests.simulation.log import scenario
from tests.simulation.log.scenario import LogRun
from tests.simulation.log.truth import Violation

KINDS = ("put=offers/", "delete=offers/")  # as the history names them

CASES = {
    "an offer was left by a process that died or froze",
    "the put of an offer was not answered",
    "a late create below the log start listed offers",
    "a process created with what another one had bound",
    "two processes wrote the round at once",
    "the round's write was not answered",
    "a create that lists offers was not answered",
    "a rival won where an offer was bound",
    "the log start passed what was bound",
    "a sealed log had free offers",
    "an offer was withdrawn",
    "a withdrawal lost against the round",
    "a withdrawal was not answered",
    "the round had the answer",
    "another process's create committed an offer",
}


def draw_plan(seed: int) -> Plan:
    """Draw three to eight clients of two to five processes, at one partition."""
    rng = Random(f"combining {seed}")
    level = rng.choice((0, 0.02, 0.05, 0.1))
    if rng.random() < 0.1:
        return draw_ghosts(seed)

    def rate() -> float:
        return level * rng.choice((0, 0.3, 1))

    is_brisk = rng.random() < 0.3
    # In a brisk run sweepers never rest: with long freezes they would keep every process frozen.
    freeze_ms = rng.choice((3_000, 30_000, 120_000, 120_000 if is_brisk else 4_500_000))
    faults = Faults(
        unavailable=rate() / 2,
        conflict=rate(),
        call_lost=rate() / 2,
        answer_lost=rate(),
        slow=rate(),
        crash=rate() / 8,
        freeze=rate() / (8 if freeze_ms < 1_000_000 else 80),
        freeze_ms=freeze_ms,
        lands_after_ms_max=rng.choice((5_000, 30_000, 120_000, 6_000_000)),
    )
    casts = [
        rng.choice(("racer", "appender", "appender", "producer", "producer")) for _ in range(rng.choice((3, 5, 8)))
    ]
    casts += rng.choice(([], ["reader"], ["trimmer"], ["recreator"], ["trimmer", "trimmer"]))
    if is_brisk:  # what is known of the items is too old there before a long page is read, time after time
        casts = [cast for cast in casts if cast != "reader"]
    return Plan(
        processes=rng.choice((2, 3, 5)),
        partitions=1,
        rounds=rng.choice((5, 9, 20)),
        casts=casts,
        faults=faults,
        patience_ms=rng.choice((3_000, 30_000, PATIENT_MS)),
        breaks=level > 0 and rng.random() < 0.5,
        break_freeze_ms=rng.choice((3_000, 30_000)),
        pace_ms=rng.choice((1_000, 5_000)),
        item_age_ms=rng.choice((0, 60_000)),
        checkpoint_segments=rng.choice((1, 2, 16)),
        collects=is_brisk or rng.random() < 0.5,
        is_brisk=is_brisk,
        pause_ms=rng.choice((0, 0, 5_000)) if is_brisk else 0,
        timeout_ms=rng.choice((2_500, 4_000, 20_000, 20_000)),
    )


def draw_ghosts(seed: int) -> Plan:
    """Draw processes that freeze right before a create, until the log was trimmed and collected there."""
    rng = Random(f"ghosts {seed}")
    return Plan(
        processes=rng.choice((3, 5)),
        partitions=1,
        rounds=20,
        casts=("appender", "appender", "appender", "producer", "producer", "trimmer", "trimmer"),
        faults=Faults(freeze=0.01, freeze_ms=60_000, freeze_at_append=0.3, slow=0.02, lands_after_ms_max=60_000),
        patience_ms=PATIENT_MS,
        checkpoint_segments=1,
        collects=True,
        is_brisk=True,
        pause_ms=rng.choice((0, 2_000)),
    )


@contextmanager
def _contending(run: LogRun) -> Iterator[None]:
    """Let processes offer whatever a call costs, and every fourth seed have one of the version before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combiner, "WORTH_MS", -1_000_000)  # every call takes as long as every other
        if run.seed % 4 == 0:
            _let_one_take_turns(patch)
        yield


def _let_one_take_turns(patch: pytest.MonkeyPatch) -> None:
    """Let one process be of the version before, which knows of no offers."""
    concedes, meet_rivals = Appender._concedes, Appender.meet_rivals

    def is_old(self: Appender) -> bool:
        runtime: Any = self._context.runtime
        return bool(runtime._process.name == "p0")

    patch.setattr(Appender, "_concedes", lambda self, group: not is_old(self) and concedes(self, group))
    patch.setattr(Appender, "meet_rivals", lambda self: None if is_old(self) else meet_rivals(self))


def segments_of(run: LogRun) -> Iterator[Segment]:
    """Yield the log's segments: at each key the first that was created. What was created there later is a ghost."""
    made: set[str] = set()
    for creation in run.objects.created:
        if creation.key.startswith("log/") and creation.key not in made:
            made.add(creation.key)
            yield real.segment_of(creation)


def check_listed_once(run: LogRun) -> None:
    """Check I16: at most one segment lists an offer."""
    listed: dict[str, int] = {}
    for segment in segments_of(run):
        for offer in segment.metadata.offers:
            if offer in listed:
                raise Violation(f"I16: offer {offer} listed at {listed[offer]} and at {segment.base_offset}")
            listed[offer] = segment.base_offset


def has_ghosts(run: LogRun) -> bool:
    """Return True if a create that lists offers landed at a key that had been collected."""
    made: set[str] = set()
    for creation in run.objects.created:
        if creation.key in made and "offers" in creation.metadata:
            return True
        made.add(creation.key)
    return False


@contextmanager
def counting(met: Counter[str]) -> Iterator[None]:
    """Count in ``met`` each of ``CASES`` that the code comes to."""
    with pytest.MonkeyPatch.context() as patch:
        _count_writes(patch, met)
        _count_creates(patch, met)
        _count_outcomes(patch, met)
        yield


def _count_writes(patch: pytest.MonkeyPatch, met: Counter[str]) -> None:
    write = FaultyItemStore.write

    def counted(self: FaultyItemStore, changes: Sequence[Change]) -> None:
        is_round = any(change.key.sort == "round" for change in changes)
        is_offer = any(change.key.partition.startswith("offers/") for change in changes)
        is_put = is_offer and isinstance(changes[0], Put) and not is_round
        is_withdrawal = is_round and any(isinstance(change, Delete) for change in changes)
        try:
            write(self, changes)
        except VersionMoved:
            met["a withdrawal lost against the round"] += is_withdrawal
            met["two processes wrote the round at once"] += is_round and not is_withdrawal
            raise
        except NoAnswer:
            met["the put of an offer was not answered"] += is_put
            met["a withdrawal was not answered"] += is_withdrawal
            met["the round's write was not answered"] += is_round and not is_withdrawal
            raise
        met["an offer was withdrawn"] += is_withdrawal

    patch.setattr(FaultyItemStore, "write", counted)


def _count_creates(patch: pytest.MonkeyPatch, met: Counter[str]) -> None:
    create, combine = Appender._create, combiner.Combiner._combine

    def created(self: Appender, group: Group) -> None:
        create(self, group)
        lists = group.segment is not None and group.segment.metadata.offers
        met["a create that lists offers was not answered"] += bool(
            lists and group.is_unknown and self.queue.group is group
        )

    def combined(self: combiner.Combiner, *, is_patient: bool = True) -> bool:
        done = combine(self, is_patient=is_patient)
        group = self._queue.group
        met["a process created with what another one had bound"] += not is_patient and group is not None
        return done

    patch.setattr(Appender, "_create", created)
    patch.setattr(combiner.Combiner, "_combine", combined)


def _count_outcomes(patch: pytest.MonkeyPatch, met: Counter[str]) -> None:
    answer, note_segment, note_done = OwnOffers._answer, OwnOffers.note_segment, OwnOffers.note_done
    leave, end = offers.leave, combiner.Combiner._end

    def answered(self: OwnOffers, own: OwnOffer, base: int, segment: Segment | None = None) -> None:
        answer(self, own, base, segment)
        met["another process's create committed an offer"] += isinstance(own.ticket.outcome, Appended)

    def noted(self: OwnOffers, offset: int, segment: Segment) -> None:
        note_segment(self, offset, segment)
        met["a rival won where an offer was bound"] += bool(self.unanswered())

    def done(self: OwnOffers, known: offers.Round) -> None:
        met["the round had the answer"] += any(known.done.get(own.id, -1) >= 0 for own in self.unanswered())
        note_done(self, known)

    def left(known: offers.Round, offset: int, listed: Sequence[str] | None) -> offers.Round:
        met["the log start passed what was bound"] += listed is None
        return leave(known, offset, listed)

    def ended(self: combiner.Combiner, view: RoundView) -> None:
        there = {offer.id for offer in view.offers}
        met["a sealed log had free offers"] += any(own.id in there for own in self.own.unanswered())
        end(self, view)

    patch.setattr(OwnOffers, "_answer", answered)
    patch.setattr(OwnOffers, "note_segment", noted)
    patch.setattr(OwnOffers, "note_done", done)
    patch.setattr(round_item, "leave", left)
    patch.setattr(combiner.Combiner, "_end", ended)


def count_what_is_left(run: LogRun, met: Counter[str]) -> None:
    """Count the offers and rounds that a run left behind."""
    wrote = [
        name
        for _, _, who, what, names in run.world.events
        if (who, what) == ("store", "wrote")
        for name in names.split()
    ]
    put, gone = ({name[len(kind) :].partition("@")[0] for name in wrote if name.startswith(kind)} for kind in KINDS)
    met["an offer was left by a process that died or froze"] += len(put - gone)
    met["a late create below the log start listed offers"] += has_ghosts(run)


def _check(run: LogRun) -> None:
    scenario.judge(run)
    check_listed_once(run)


SCENARIO = replace(scenario.SCENARIO, name="combining", draw_plan=draw_plan, check=_check, around=_contending)
run_seed = SCENARIO.run_seed
