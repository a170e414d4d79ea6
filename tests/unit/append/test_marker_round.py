"""A marker round: which failure it raises when several markers fail, and what is appended beside them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.entries.entry import Marked
from fenceline.append.marker_round import MarkerAppend, MarkerLost, append_markers
from fenceline.errors import (
    ContendedError,
    CorruptLogError,
    FencelineError,
    OutcomeUnknownError,
    ProducerFencedError,
    StoreUnavailableError,
)
from fenceline.log.context import StaleTopicId
from tests.support.service import TOPIC, Service, append, loses_answer, partitions_of

LOST = ProducerFencedError("another marker is in the log")
STALE = StaleTopicId()
UNKNOWN = OutcomeUnknownError("no answer")
DAMAGED = CorruptLogError("a gap")
ABSENT = StoreUnavailableError("unreachable")
CONTENDED = ContendedError("losses=9")


class Tables:
    """Partitions whose appenders have prepared answers, which note which partitions were asked."""

    def __init__(self, service: Service, outcomes: list[int | Exception]) -> None:
        self.context = service.log.context
        self.outcomes = outcomes
        self.asked: list[tuple[str, str, int, int]] = []

    def appender(self, topic: str, topic_id: str, partition: int, make: object) -> Any:
        table = self

        class Answering:
            def append(self, entry: object, until_ms: int) -> Marked:
                table.asked.append((topic, topic_id, partition, until_ms))
                outcome = table.outcomes[partition]
                if isinstance(outcome, Exception):
                    raise outcome
                return Marked(outcome)

        return Answering()


def markers(count: int, topic_id: str = "id") -> list[MarkerAppend]:
    return [MarkerAppend(TOPIC, topic_id, p, GrantEntry("s", 1)) for p in range(count)]


def raised_by(service: Service, *outcomes: int | Exception) -> Exception:
    with pytest.raises(Exception) as caught:
        append_markers(Tables(service, list(outcomes)), markers(len(outcomes)), 77)  # type: ignore[arg-type]
    error = caught.value
    return error.fact if isinstance(error, MarkerLost) else error


def test_the_offset_after_each_marker_is_returned_in_the_order_of_the_request(service: Service) -> None:
    tables = Tables(service, [4, 9, 0])
    assert append_markers(tables, markers(3), 77) == [5, 10, 1]  # type: ignore[arg-type]
    assert sorted(tables.asked) == [(TOPIC, "id", p, 77) for p in range(3)]


def test_a_round_of_no_marker_is_over_at_once(service: Service) -> None:
    assert append_markers(partitions_of(service.log), [], 0) == []


@pytest.mark.parametrize("failing", list(permutations([STALE, UNKNOWN, DAMAGED, LOST, ABSENT], 2)))
def test_of_two_failures_the_one_that_the_rule_names_first_wins(
    service: Service, failing: tuple[Exception, Exception]
) -> None:
    """In either order of the request, and beside a marker that was appended."""
    order = [STALE, UNKNOWN, DAMAGED, LOST, ABSENT]
    expected = min(failing, key=order.index)
    assert raised_by(service, failing[0], 3, failing[1]) is expected


@pytest.mark.parametrize("is_stale_first", [True, False])
def test_an_unknown_outcome_is_not_hidden_by_the_end_of_another_incarnation(
    service: Service, is_stale_first: bool
) -> None:
    """Else a caller would withdraw a reservation whose marker may be in its log."""
    outcomes: list[int | Exception] = [STALE, UNKNOWN] if is_stale_first else [UNKNOWN, STALE]
    round_ = [MarkerAppend(TOPIC, f"id-{p}", p, GrantEntry("s", 1)) for p in range(2)]
    with pytest.raises(OutcomeUnknownError) as caught:
        append_markers(Tables(service, outcomes), round_, 77)  # type: ignore[arg-type]
    assert caught.value is UNKNOWN


def test_all_failures_at_once_are_as_the_first_of_the_rule(service: Service) -> None:
    rest: list[Exception] = [ABSENT, LOST, DAMAGED, UNKNOWN, STALE]
    while rest:
        assert raised_by(service, *rest) is rest.pop()


@pytest.mark.parametrize("pair", [(ABSENT, CONTENDED), (CONTENDED, ABSENT)])
def test_of_two_failures_of_one_kind_the_first_marker_s_wins(service: Service, pair: tuple[Exception, ...]) -> None:
    assert raised_by(service, *pair) is pair[0]


def test_a_lost_marker_says_which_one_it_is(service: Service) -> None:
    for outcomes, index in (([1, LOST, 2, LOST], 1), ([LOST, 1, STALE, 2], 2)):
        with pytest.raises(MarkerLost) as caught:
            append_markers(Tables(service, outcomes), markers(4), 0)  # type: ignore[arg-type]
        assert caught.value.index == index
        assert caught.value.fact is outcomes[index]


@pytest.mark.parametrize("failure", [STALE, UNKNOWN, DAMAGED, LOST, ABSENT])
def test_every_marker_is_tried_even_if_others_fail(service: Service, failure: Exception) -> None:
    tables = Tables(service, [failure, 1, failure, 2])
    with pytest.raises((FencelineError, MarkerLost)):
        append_markers(tables, markers(4), 0)  # type: ignore[arg-type]
    assert sorted(asked[2] for asked in tables.asked) == [0, 1, 2, 3]


def test_an_unexpected_exception_of_an_appender_is_raised_unchanged(service: Service) -> None:
    assert isinstance(raised_by(service, UNKNOWN, ZeroDivisionError()), ZeroDivisionError)


def test_the_markers_are_in_the_logs_and_those_sent_again_are_not_appended_twice(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=3)
    append(service.log, "a")
    round_ = markers(3, service.topic_id())
    until_ms = service.runtime.monotonic_ms() + 1_000
    first = append_markers(partitions_of(service.log), round_, until_ms)
    assert first == [2, 1, 1]
    assert append_markers(partitions_of(service.another()), round_, until_ms) == first
    assert [service.log.partitions.offsets(TOPIC, p).topic_epoch for p in range(3)] == [1, 1, 1]


def test_a_round_behind_a_rival_s_marker_is_lost_and_its_other_markers_are_in_their_logs(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=2)
    topic_id, until_ms = service.topic_id(), service.runtime.monotonic_ms() + 1_000
    append_markers(
        partitions_of(service.another()), [MarkerAppend(TOPIC, topic_id, 1, GrantEntry("rival", 1))], until_ms
    )
    with pytest.raises(MarkerLost) as caught:
        append_markers(partitions_of(service.log), markers(2, topic_id), until_ms)
    assert caught.value.index == 1
    assert service.log.partitions.offsets(TOPIC, 0).topic_epoch == 1


def test_a_round_over_a_deleted_topic_is_lost_as_its_incarnation_is(service: Service) -> None:
    topic_id = service.topic_id()
    service.log.topics.delete(TOPIC)
    with pytest.raises(MarkerLost) as caught:
        append_markers(partitions_of(service.log), markers(1, topic_id), service.runtime.monotonic_ms() + 1_000)
    assert isinstance(caught.value.fact, StaleTopicId)


def test_a_marker_whose_create_lost_its_answer_is_found_in_the_log(service: Service) -> None:
    service.objects.plan("create", loses_answer)
    until_ms = service.runtime.monotonic_ms() + 1_000
    assert append_markers(partitions_of(service.log), markers(1, service.topic_id()), until_ms) == [1]
