"""What the log says of a transactional batch comes before what its coordinator says ("Order of judgement")."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import errors
from fenceline.model.results import SessionRef
from tests.support.claiming import access_markers, access_of, claim, code_of, refused
from tests.support.coordinating import Coordinator
from tests.support.service import TOPIC, Service, append

HOUR_MS = 3_600_000


# Beside exclusive access


def test_the_end_of_an_exclusive_session_is_written_before_the_coordinator_is_asked(
    service: Service, txn: Coordinator
) -> None:
    """A session that came between is judged first, too: behind the admission its end is asked for again."""
    claim(service.log)
    service.runtime.advance(HOUR_MS)
    seen: list[bool] = []

    def another_claims() -> None:
        granted = access_of(service).granted
        seen.append(granted is not None and granted.is_ended)
        claim(service.another())

    txn.beside = another_claims
    assert code_of(lambda: txn.send(service.log, "a")) == "PRODUCER_BUSY"
    assert seen == [True]
    service.runtime.advance(HOUR_MS)
    txn.sequences = {}
    txn.send(service.log, "a")
    assert access_markers(service)[-1][2] == "Shared"
    assert service.values() == [b"a"]


def test_a_fenced_writer_adds_nothing_to_its_transaction(service: Service, txn: Coordinator) -> None:
    old = claim(service.another())
    claim(service.log, "ExclusiveWithFencing")
    refusal = refused(lambda: txn.send(service.log, "a", session=SessionRef(old.session_id, 0)))
    assert (refusal.code, refusal.topic_epoch) == ("PRODUCER_FENCED", 1)
    assert txn.asked == []


# A process that is behind: what the log says comes before what the coordinator says (I4, "Order of judgement")


def test_a_fenced_session_is_reported_before_a_fenced_transaction(service: Service, txn: Coordinator) -> None:
    """With the epoch in force, so that the client can end its transaction. A process that is behind does so, too."""
    old = claim(service.log)
    claim(service.another(), "ExclusiveWithFencing")
    late = txn.batch("a", session=SessionRef(old.session_id, 0))
    txn.decide()
    refusal = refused(lambda: service.log.append(TOPIC, 0, late))
    assert (refusal.code, refusal.topic_epoch) == ("PRODUCER_FENCED", 1)


def test_a_duplicate_is_answered_before_a_fenced_transaction(service: Service, txn: Coordinator) -> None:
    """Until its marker is here, the outcome covers it."""
    append(service.log, "warm")
    once = txn.batch("a")
    txn.serves(service.another()).append(TOPIC, 0, once)
    txn.decide()
    again = service.log.append(TOPIC, 0, once)
    assert again is not None
    assert again.duplicate


def test_an_epoch_below_a_marker_is_reported_before_a_fenced_transaction(service: Service, txn: Coordinator) -> None:
    append(service.log, "warm")
    other, late = txn.serves(service.another()), txn.batch("late")
    txn.sequences = {}
    txn.send(other, "a")
    txn.end(other)
    with pytest.raises(errors.InvalidProducerEpochError):
        service.log.append(TOPIC, 0, late)


def test_a_log_that_goes_on_keeps_no_refusal_back(service: Service, txn: Coordinator) -> None:
    """Once the end of the log was seen after the refusal, the next one is final."""
    append(service.log, "warm")
    rival, refused_ = service.another(), txn.admit

    def admit(*asked: Any) -> Any:
        assert len(txn.asked) < 9
        append(rival, "rival")
        return refused_(*asked)

    txn.admit = admit  # type: ignore[method-assign]
    late = txn.batch("late")
    txn.decide()
    with pytest.raises(errors.ProducerFencedError):
        service.log.append(TOPIC, 0, late)
    assert len(txn.asked) == 2


def test_a_refusal_at_the_log_s_end_asks_the_coordinator_once(service: Service, txn: Coordinator) -> None:
    append(service.log, "warm")
    late = txn.batch("late")
    txn.decide()
    with pytest.raises(errors.ProducerFencedError):
        service.log.append(TOPIC, 0, late)
    assert len(txn.asked) == 1
