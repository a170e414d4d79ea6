"""Offsets of a transaction whose send was not answered: sent once more, or reported for what it is.

Protocol, "Offsets in a transaction" and "Unanswered attempts".
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fenceline.errors import (
    OutcomeUnknownError,
    StoreUnavailableError,
)
from fenceline.transactions.item import TransactionItem
from tests.support.sending import GROUP, Sender
from tests.support.service import (
    TOPIC,
    Service,
    is_unavailable,
    loses_answer,
    lost_behind,
    moves,
    never_arrives,
)

OTHER = "clicks"
PLACE = (TOPIC, 0)


def committed(service: Service) -> list[tuple[str, int, int]]:
    found, _ = service.log.subscriptions.committed(GROUP)
    return [(one.topic, one.partition, one.offset) for one in found]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_send_that_failed_is_made_once_more(topics: Service, fault: Any) -> None:
    sender = Sender(topics).begin()
    topics.items.plan("write", fault)
    sender.send((*PLACE, 5), (OTHER, 1, 6))
    assert len(topics.log.subscriptions.list(TOPIC)[0]) == 1
    sender.end()
    assert committed(topics) == [(OTHER, 1, 6), (*PLACE, 5)]


@pytest.mark.parametrize(
    ("fault", "error"), [(never_arrives, OutcomeUnknownError), (is_unavailable, StoreUnavailableError)]
)
def test_a_store_that_stays_away_is_an_error_of_its_kind(topics: Service, fault: Any, error: Any) -> None:
    sender = Sender(topics).begin()
    topics.items.always("write", fault)
    with pytest.raises(error):
        sender.send((*PLACE, 5))
    topics.items.always("write", None)
    assert sender.item.cursors == ()
    sender.send((*PLACE, 5))
    sender.end()
    assert committed(topics) == [(*PLACE, 5)]


def test_a_refusal_after_a_lost_answer_says_that_the_outcome_is_not_known(topics: Service) -> None:
    """The offsets were sent, and the transaction was committed before the send was judged again."""
    sender = Sender(topics).begin()
    topics.items.plan("write", lost_behind(sender.end))
    with pytest.raises(OutcomeUnknownError, match="INVALID_TXN_STATE"):
        sender.send((*PLACE, 5))
    assert committed(topics) == [(*PLACE, 5)]


def test_a_topic_that_ends_after_a_lost_answer_says_that_the_outcome_is_not_known(topics: Service) -> None:
    """What was sent of the other topic stays."""
    sender = Sender(topics).begin()
    topics.items.plan("write", lost_behind(lambda: topics.another().topics.delete(OTHER)))
    with pytest.raises(OutcomeUnknownError):
        sender.send((*PLACE, 5), (OTHER, 0, 5))
    sender.end()
    assert committed(topics) == [(*PLACE, 5)]


def test_a_topic_that_ends_behind_the_look_after_a_lost_answer_is_found_at_its_tail(
    topics: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, judged = Sender(topics).begin(), itertools.count(1)
    ongoing = sender.ongoing

    def ending(group: str) -> TransactionItem:
        if next(judged) == 2:
            topics.another().topics.delete(OTHER)
        return ongoing(group)

    monkeypatch.setattr(sender, "ongoing", ending)
    topics.items.plan("write", loses_answer)
    with pytest.raises(OutcomeUnknownError):
        sender.send((*PLACE, 5), (OTHER, 0, 5))
