"""Each guard of combining, switched off: the seeds find what it was there for, and pass with it (I16).

Not here, since hundreds of seeds do not reach it: that ``bound`` only grows at its offset. See
``test_an_offer_bound_at_its_rounds_offset_stays_bound`` in the protocol tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fenceline.append.combining import combiner
from fenceline.append.combining.offers import Offer, Round
from fenceline.append.combining.own_offers import NewOffers, OwnOffer, OwnOffers
from fenceline.append.combining.round_item import RoundItem, RoundView
from fenceline.ports import Change, Delete, Item, NotFound, Put
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.harness.scenario import PATIENT_MS, Plan
from tests.simulation.harness.stores import Faults
from tests.simulation.log import combining

pytestmark = pytest.mark.slow


GUARDS = Guards(combining.SCENARIO)


# Plans in which seeds meet what a guard is for


def rivals(seed: int) -> Plan:
    casts = ("racer", "appender", "appender", "producer", "producer", "producer")
    return replace(combining.draw_plan(seed), faults=Faults(slow=0.01), processes=5, breaks=False, casts=casts)


def lost_answers(seed: int) -> Plan:
    return replace(rivals(seed), faults=Faults(answer_lost=0.05, slow=0.05, lands_after_ms_max=20_000))


def racers(seed: int) -> Plan:
    return replace(rivals(seed), casts=("racer", "racer", "racer", "appender", "appender", "producer"), rounds=20)


def freezes(seed: int) -> Plan:
    """Draw processes that freeze for seconds, now and then right before a create."""
    faults = Faults(freeze=0.02, freeze_at_append=0.05, freeze_ms=1_000, slow=0.02, lands_after_ms_max=3_000)
    return replace(rivals(seed), faults=faults, rounds=20, patience_ms=PATIENT_MS)


def impatient(seed: int) -> Plan:
    """Draw callers that leave soon, so that their offers are withdrawn."""
    faults = Faults(slow=0.1, time_out_ms=1_000, lands_after_ms_max=15_000)
    return replace(rivals(seed), faults=faults, rounds=20, timeout_ms=4_000)


def pauses(seed: int) -> Plan:
    """Draw callers that leave soon, beside processes that pause between two calls."""
    faults = Faults(freeze=0.1, freeze_ms=600)
    casts = ("appender",) * 6
    return replace(rivals(seed), faults=faults, casts=casts, rounds=20, timeout_ms=1_500)


@GUARDS.guard(rivals, seed=1)
def leaves_the_round_unread(patch: Patch) -> None:
    """Move the round on without reading the segment at its offset."""
    patch.setattr(RoundItem, "listed_at", lambda self, known: ())


@GUARDS.guard(rivals, seed=6)
def forgets_what_is_done(patch: Patch) -> None:
    """Bind offers again that are in ``done``."""

    def free(known: Round, offers: Sequence[Offer]) -> list[Offer]:
        return [offer for offer in offers if offer.id not in known.bound]

    patch.setattr(combiner, "free_offers", free)
    patch.setattr(OwnOffers, "note_done", lambda self, known: None)


@GUARDS.guard(freezes, seed=3)
def reads_the_offers_first(patch: Patch) -> None:
    """Read the offers before the round: one that is deleted in between was dropped from ``done``, and looks free."""
    found: dict[RoundItem, Sequence[Item]] = {}
    read_view, read_offers = RoundItem.read_view, RoundItem.read_offers

    def early(self: RoundItem) -> RoundView | None:
        found[self] = read_offers(self)
        self._context.runtime.sleep_ms(100)
        return read_view(self)

    patch.setattr(RoundItem, "read_view", early)
    patch.setattr(RoundItem, "read_offers", lambda self: found[self])


@GUARDS.guard(freezes, seed=9)
def writes_over_any_round(patch: Patch) -> None:
    """Write the round whatever version it has by now."""
    bind = RoundItem.bind

    def blind(self: RoundItem, view: RoundView, listed: Sequence[str]) -> bool:
        stored = self.read()
        return bind(self, view if stored is None else view._replace(version=stored.version), listed)

    patch.setattr(RoundItem, "bind", blind)


@GUARDS.guard(pauses, seed=7)
def withdraws_beside_the_round(patch: Patch) -> None:
    """Delete an offer without moving the round's version."""

    def bare(self: OwnOffers, free: Sequence[OwnOffer], stored: Item) -> list[Change]:
        return [Delete(own.key, own.version) for own in free]

    patch.setattr(OwnOffers, "_withdrawal", bare)


@GUARDS.guard(impatient, seed=7)
def withdraws_what_is_gone(patch: Patch) -> None:
    """Take an offer that is not there for withdrawn."""

    def lenient(self: OwnOffers, free: Sequence[OwnOffer], stored: Item) -> list[Change]:
        there = self._context.items.get([own.key for own in free])
        moved = Put(self._round.key, stored.value, stored.version + 1, stored.version)
        return [moved, *(Delete(own.key, own.version) for own in free if own.key in there)]

    patch.setattr(OwnOffers, "_withdrawal", lenient)
    patch.setattr(OwnOffers, "_is_there", lambda self, own: True)


@GUARDS.guard(freezes, seed=3)
def lists_what_is_not_bound(patch: Patch) -> None:
    """Create a segment that lists offers without a write of the round."""
    patch.setattr(RoundItem, "bind", lambda self, view, listed: True)


@GUARDS.guard(combining.draw_ghosts, seed=1)
def believes_ghosts(patch: Patch) -> None:
    """Read the segment at the round's offset also below the log start: what is not found there is free."""

    def trusting(self: RoundItem, known: Round) -> Sequence[str]:
        try:
            return self._context.segment(self._partition.segment_key(known.offset)).metadata.offers
        except NotFound:
            return ()

    patch.setattr(RoundItem, "listed_at", trusting)


@GUARDS.guard(racers, seed=40)
def refuses_without_withdrawal(patch: Patch) -> None:
    """Check an offer that is refused by itself, while it still is one."""
    withdraw = OwnOffers.withdraw

    def hasty(self: OwnOffers, offers: Sequence[OwnOffer]) -> None:
        if self._now() < min(own.ticket.until_ms for own in offers) - self.reserve_ms:
            for own in offers:
                own.ticket.is_withdrawn = True
            self.take_back(offers)
        else:
            withdraw(self, offers)

    patch.setattr(OwnOffers, "withdraw", hasty)


@GUARDS.guard(lost_answers, seed=0)
def takes_no_answer_for_no_put(patch: Patch) -> None:
    """Queue again what was offered by a write that was not answered."""
    offer = OwnOffers.offer

    def forgetful(self: OwnOffers) -> NewOffers | None:
        done = offer(self)
        self.take_back([own for own in self.unanswered() if not own.is_seen])
        return done

    patch.setattr(OwnOffers, "offer", forgetful)


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(guard: Guard) -> None:
    guard.check()
