"""What a partition reports of its producers: at a verified tail, by id, without those whose state has lapsed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import errors, limits
from fenceline.log.state import advance
from fenceline.model.transaction import ShownProducerState
from fenceline.service.log import Log
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, LogBuilder, Service, append, data, is_unavailable, serve
from tests.support.transactional_logs import abort, commit, in_, made, store
from tests.support.tries import tries

DAY = 86_400_000


def states(log: Log, **options: Any) -> list[ShownProducerState]:
    return list(log.partitions.producer_states(TOPIC, 0, **options)[0])


def ids(log: Log, **options: Any) -> list[int]:
    return [state.producer_id for state in states(log, **options)]


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_each_producer_is_shown_with_its_epoch_sequence_time_and_open_transaction(
    service: Service, is_checkpointed: bool
) -> None:
    made(
        service,
        [data("a", "b", producer=(7, 3, 5))],
        [in_(8, "c", epoch=1), data("d")],
        [in_(8, "e", epoch=1, sequence=1)],
        [in_(9, "f"), commit(9, 1)],
    )
    if is_checkpointed:
        service.another().partitions.checkpoint(TOPIC, 0)
    for log in (service.log, service.another()):
        assert states(log) == [
            ShownProducerState(7, 3, 6, START_MS + 1, -1),
            ShownProducerState(8, 1, 1, START_MS + 3, 2),
            ShownProducerState(9, 1, -1, START_MS + 4, -1),
        ]


def test_a_partition_without_producers_shows_none_and_one_that_is_not_there_is_unknown(service: Service) -> None:
    append(service.log, "a")
    assert service.log.partitions.producer_states(TOPIC, 0) == ([], False)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        service.log.partitions.producer_states(TOPIC, 1)


def test_appends_of_another_process_are_in_the_answer(service: Service) -> None:
    assert ids(service.log) == []
    for n in range(1, 6):
        append(service.another(), "v", producer=(n, 0, 0))
        assert ids(service.log) == list(range(1, n + 1))


def test_an_end_that_cannot_be_looked_at_is_no_answer(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    service.objects.always("get", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        states(service.log)


def test_a_lapsed_producer_is_left_out_but_not_one_with_an_open_transaction(service: Service) -> None:
    log = made(service, [data("a", producer=(6, 0, 0))], [in_(7, "b")], [in_(8, "c")])
    service.runtime.advance(DAY)
    log.now_ms += DAY
    store(service, log, data("d", producer=(9, 0, 0)))
    service.another().partitions.checkpoint(TOPIC, 0)
    assert ids(service.log) == [6, 7, 8, 9]
    service.runtime.advance(1)
    assert ids(service.log) == [6, 7, 8, 9], "a day after its append"
    service.runtime.advance(1)
    for log_ in (service.log, service.another()):
        assert ids(log_) == [7, 8, 9], "a millisecond later"
    store(service, log, abort(7))
    assert ids(service.log) == [7, 8, 9], "its marker has just been appended"


@pytest.mark.parametrize("stored", [0, 3, 10])
def test_pages_of_producers_join(service: Service, stored: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_MAX", 4)
    order = [5, 1, 9, 3, 7, 8, 2, 6, 0, 4]
    log = made(service, *([data("v", producer=(p, 0, 0))] for p in order[:stored]))
    if stored:
        service.another().partitions.checkpoint(TOPIC, 0)
    for p in order[stored:]:
        store(service, log, data("v", producer=(p, 0, 0)))
    for limit in (1, 3, 10, 11):
        found: list[int] = []
        has_more = True
        while has_more:
            page, has_more = service.log.partitions.producer_states(
                TOPIC, 0, start_after=found[-1] if found else -1, limit=limit
            )
            assert len(page) == limit or not has_more
            found += [state.producer_id for state in page]
        assert found == list(range(10))


STEPS = st.tuples(st.sampled_from(["data", "in", "end", "checkpoint", "own checkpoint", "ask"]), st.integers(0, 4))


@tries(25)
@given(st.lists(STEPS, max_size=25))
def test_it_is_what_every_batch_folded_one_by_one_says(steps: Any) -> None:
    with closing(serve()) as service:
        service.log.topics.create(TOPIC)
        log, epochs, sequences = LogBuilder(topic_id=service.topic_id()), [0] * 5, [0] * 5
        asked = service.another()
        for kind, producer in [*steps, ("ask", 0)]:
            if kind == "checkpoint":
                service.another().partitions.checkpoint(TOPIC, 0)
            elif kind == "own checkpoint":
                asked.partitions.checkpoint(TOPIC, 0)
            elif kind == "end":
                epochs[producer] += 1
                sequences[producer] = 0
                store(service, log, commit(producer, epochs[producer]))
            elif kind in ("data", "in"):
                triple = (producer, epochs[producer], sequences[producer])
                sequences[producer] += 1
                store(service, log, data("v", producer=triple, is_transactional=kind == "in"))
            else:
                known: dict[int, Any] = {}
                for folded in log.folded:
                    for producer_id, event in folded.events:
                        known[producer_id] = advance(known.get(producer_id), event)
                expected = [
                    ShownProducerState(
                        p, s.producer_epoch, s.last_sequence, s.time, -1 if s.open is None else s.open.first_offset
                    )
                    for p, s in sorted(known.items())
                ]
                assert states(asked) == states(service.another()) == expected


def test_many_producers_take_a_call_for_each_thousand(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the thousand is a hundred."""
    made(service, [data("v", producer=(p, 0, 0)) for p in range(250)])
    service.another().partitions.checkpoint(TOPIC, 0)
    monkeypatch.setattr(limits, "LIST_MAX", 100)
    cold = service.another()
    cold.partitions.offsets(TOPIC, 0)
    before = service.count()
    assert len(states(cold)) == 250
    assert service.count() - before == {"items.query": 3, "items.get": 2, "objects.get": 1}
