"""What alarms are about: gaps, other histories, and the age of what is missing."""

from __future__ import annotations

from dataclasses import replace

from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.regions import history
from fenceline.regions.contacts import Answered, Contacts, Place
from fenceline.regions.measured import NOTHING, Measured, measured
from tests.support.runtime import START_MS, FakeRuntime

PLACE = Place("topic", 0)
POSITION = Origin(topic_id="life", next_offset=9, count=5, chain="c", start=0)


def of(contacts: Contacts, *peers: str, count: int = 5) -> Measured:
    positions = {"b": replace(POSITION, count=count)}
    return measured(contacts, PLACE, peers or ("b",), positions, START_MS)


def test_a_peer_that_was_never_asked_is_no_alarm() -> None:
    assert of(Contacts(FakeRuntime())) == NOTHING


def test_lag_is_the_age_of_the_oldest_record_that_is_missing() -> None:
    contacts = Contacts(FakeRuntime())
    contacts.change(PLACE, "b", answered=Answered("life", 0, 5, START_MS - 400_000), seen_at=START_MS)
    assert of(contacts, count=4).lag_ms == 400_000
    assert of(contacts, count=5).lag_ms == 0


def test_a_peer_that_does_not_answer_is_behind_by_the_time_since_it_last_did() -> None:
    contacts = Contacts(FakeRuntime())
    contacts.change(PLACE, "b", seen_at=START_MS - 300_000)
    assert of(contacts).lag_ms == 0
    contacts.fail(PLACE, "b", "it cannot be reached", POSITION)
    assert of(contacts).lag_ms == 300_000


def test_a_suspended_region_is_no_alarm() -> None:
    contacts = Contacts(FakeRuntime())
    contacts.change(PLACE, "b", seen_at=START_MS - 300_000)
    contacts.fail(PLACE, "b", "it cannot be reached", POSITION)
    assert of(contacts, "c") == NOTHING


def test_gaps_and_other_histories_are_counted() -> None:
    contacts = Contacts(FakeRuntime())
    contacts.fail(PLACE, "b", "a gap", POSITION, Gap(0, "b", 9, 12, 3))
    other = history.shortened(POSITION, 3)
    assert other is not None
    contacts.fail(PLACE, "c", other, POSITION)
    assert of(contacts, "b", "c") == Measured(1, 1, 0)
