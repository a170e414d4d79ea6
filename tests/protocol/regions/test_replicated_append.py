"""Another region's batches are appended once, from one position (protocol, "Pulling"; I18)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fenceline import limits
from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.entries.batch import prepare
from fenceline.append.entries.entry import Marked, Outdated
from fenceline.append.entries.replicated import ReplicatedEntry
from fenceline.errors import InvalidRequestError, OffsetMismatchError, OutcomeUnknownError
from fenceline.format import control, keys
from fenceline.format.batch import encode, parse_header
from fenceline.format.replicated_batch import stripped
from fenceline.format.segment import Replicated
from fenceline.log.context import StaleTopicId
from fenceline.log.region_state import Origin
from fenceline.model.record import Record
from fenceline.ports import AlreadyExists, NoAnswer
from fenceline.service.topic_deletion import SealEntry
from tests.support.replicating import LIFE, THERE, batch_of, entry_of, position_of, put, state_of, together
from tests.support.runtime import START_MS
from tests.support.service import (
    TOPIC,
    Service,
    append,
    appender_of,
    loses_answer,
    never_arrives,
    request,
    slept_before,
)

FIRST = entry_of(None, "1", "2")
AT_2 = Origin(LIFE, 2, 2)


def test_one_create_brings_the_batches_and_moves_the_position(service: Service) -> None:
    append(service.log, "here")
    before = service.objects.calls.copy()
    assert put(service, FIRST) == Marked(1)
    assert service.objects.calls - before == {"create": 1}
    assert put(service, entry_of(AT_2, "3")) == Marked(3)
    assert position_of(service) == Origin(LIFE, 3, 3)
    assert service.values() == [b"here", b"1", b"2", b"3"]
    assert [record.origin for record in service.records()] == [None, THERE, THERE, THERE]


def test_replicated_records_do_not_count_as_own(service: Service) -> None:
    """Neither in the group's own state, which the process goes on with, nor in the log."""
    append(service.log, "a")
    put(service, FIRST)
    append(service.log, "b")
    put(service, entry_of(AT_2, "3"))
    state = appender_of(service.log).partition.state
    assert (state.records, state.own_records, state.own_next) == (5, 2, 4)
    assert state == state_of(service)
    assert [segment.metadata.own_records for segment in service.segments()] == [0, 1, 1, 2]


def test_batches_get_the_targets_offsets_and_topic_epoch_and_keep_their_bytes(service: Service) -> None:
    put(service, GrantEntry("session", 4))
    sent = batch_of("1", "2", "3")
    update = control.encode_marker(0x183, {"updates": []}, base_offset=90, leader_epoch=8, now_ms=START_MS)
    put(service, ReplicatedEntry(THERE, None, Replicated(LIFE, 91, 3, "cc"), [sent, update]))
    segment = service.segments()[1]
    headers = [header for _, header in segment.batches]
    assert [(h.base_offset, h.leader_epoch, h.count) for h in headers] == [(1, 4, 3), (4, 4, 1)]
    assert segment.body[17 : len(sent)] == sent[17:]
    assert segment.metadata.replicated == Replicated(LIFE, 91, 3, "cc")
    assert state_of(service).regions.update_next == 5


def test_a_position_that_has_moved_makes_the_entry_outdated(service: Service) -> None:
    """Of two sessions that took the same batches one appends them, and the other appends nothing."""
    rival = service.another()
    append(rival, "x")
    assert put(service, FIRST) == Marked(1)
    assert put(service, FIRST, log=rival) == Outdated()
    assert put(service, entry_of(AT_2, "3"), log=rival) == Marked(3)
    assert put(service, entry_of(AT_2, "3", "4")) == Outdated()
    assert service.values() == [b"x", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "position",
    [
        None,
        Origin(LIFE, 2, 1),
        Origin(LIFE, 1, 2),
        Origin("there-life-0", 2, 2),
        Origin(LIFE, 2, 2, "cc"),
        Origin(LIFE, 2, 2, start=1),
    ],
)
def test_every_member_of_the_position_counts(service: Service, position: Origin | None) -> None:
    put(service, FIRST)
    assert put(service, entry_of(position, "again")) == Outdated()
    assert service.values() == [b"1", b"2"]


def test_two_pullers_that_meet_at_one_offset(service: Service) -> None:
    rival = service.another()
    service.objects.plan("create", slept_before(lambda: put(service, FIRST, log=rival)))
    assert put(service, FIRST) == Outdated()
    assert service.values() == [b"1", b"2"]


def test_batches_that_lose_to_a_local_writer_are_stamped_anew(service: Service) -> None:
    rival = service.another()
    service.objects.plan("create", slept_before(lambda: append(rival, "x", "y")))
    assert put(service, FIRST) == Marked(2)
    assert service.values() == [b"x", b"y", b"1", b"2"]
    assert position_of(service) == AT_2


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_create_without_an_answer_is_made_once(service: Service, fault: Any) -> None:
    service.objects.plan("create", fault)
    assert put(service, FIRST) == Marked(0)
    assert service.values() == [b"1", b"2"]


def is_carried_out_unseen(call: Callable[[], Any]) -> Any:
    with suppress(AlreadyExists):
        call()
    raise NoAnswer("made, and the answer was lost")


@pytest.mark.parametrize("fault", [is_carried_out_unseen, never_arrives])
def test_a_frozen_group_is_brought_to_its_end_by_the_next_caller(service: Service, fault: Any) -> None:
    """Its own caller has left. The next one, here a producer, finds out what became of it first."""
    service.objects.always("create", fault)
    with pytest.raises(OutcomeUnknownError):
        put(service, FIRST, wait_ms=300)
    service.objects.always("create", None)
    assert append(service.log, "x").base_offset == 2
    assert put(service, FIRST) == Outdated()
    assert service.values() == [b"1", b"2", b"x"]


def test_a_group_whose_key_was_collected_before_its_process_could_look_is_checked_again(service: Service) -> None:
    """Its create was carried out, and the log start has left it since: the position says so, and no error."""
    rival = service.another()

    def collected() -> None:
        append(rival, "x")
        rival.partitions.trim(TOPIC, 0, 3)
        service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 0))

    def meets_a_key_that_goes(call: Callable[[], Any]) -> Any:
        with suppress(AlreadyExists):
            call()
        collected()
        raise AlreadyExists("as it was before the key was collected")

    service.objects.plan("create", is_carried_out_unseen, meets_a_key_that_goes)
    assert put(service, FIRST, wait_ms=10**6) == Outdated()
    assert put(service, entry_of(AT_2, "3")) == Marked(3)
    assert [record.value for record in service.records(offset=3)] == [b"3"]


def test_a_create_that_the_log_start_has_passed_has_not_moved_the_position(service: Service) -> None:
    """A frozen puller creates at an offset that the log start has left (I7): its batches are appended again."""
    append(service.log, "a")
    rival = service.another()

    def trimmed() -> None:
        append(rival, "x", "y")
        rival.partitions.trim(TOPIC, 0, 3)
        service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 1))
        service.runtime.advance(2 * limits.ITEM_AGE_MS_MAX)

    service.objects.plan("create", slept_before(trimmed))
    assert put(service, FIRST, wait_ms=10**6) == Marked(3)
    assert [record.value for record in service.records(offset=3)] == [b"1", b"2"]
    assert position_of(service) == AT_2


def test_a_replicated_segment_has_one_origin_and_no_other_batch(service: Service) -> None:
    here = [prepare(service.log.topics.get(TOPIC), request(value), START_MS) for value in "ab"]
    other = ReplicatedEntry("ap", None, Replicated("ap-life", 1, 1), [batch_of("p")])
    outcomes = together(service, here[0], FIRST, other, here[1])
    assert outcomes[1:3] == [Marked(1), Marked(3)]
    found = [(s.metadata.origin, s.metadata.replicated is not None, len(s.batches)) for s in service.segments()]
    assert found == [("here", False, 1), (THERE, True, 2), ("ap", True, 1), ("here", False, 1)]


def test_replicated_batches_take_turns_with_rivals_as_local_ones_do(service: Service) -> None:
    appender = appender_of(service.log)
    together(service, FIRST)
    assert (FIRST.goes_alone, FIRST.is_urgent, appender.queue.has_urgent_marker()) == (True, False, False)


def test_an_expected_offset_loses_to_replicated_batches_as_to_any_writer(service: Service) -> None:
    put(service, FIRST)
    with pytest.raises(OffsetMismatchError):
        append(service.log, "x", expected=0)


def test_a_sealed_log_takes_none(service: Service) -> None:
    put(service, SealEntry())
    with pytest.raises(StaleTopicId):
        put(service, FIRST)
    assert len(service.segments()) == 1


def test_a_log_takes_records_of_so_many_regions_and_of_no_further_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ORIGINS_MAX", 1)
    put(service, FIRST)
    with pytest.raises(InvalidRequestError):
        put(service, ReplicatedEntry("ap", None, Replicated("ap-life", 1, 1), [batch_of("p")]))
    assert put(service, entry_of(AT_2, "3")) == Marked(2)


# What an entry is made of

TRANSACTIONAL = encode(
    [Record(b"v")], now_ms=START_MS, producer_id=7, producer_epoch=2, base_sequence=5, is_transactional=True
).body
COMMIT = control.encode_transaction_marker(
    True, producer_id=7, producer_epoch=3, base_offset=0, leader_epoch=0, now_ms=START_MS
)
SEAL = control.encode_marker(control.SEAL, {}, base_offset=0, leader_epoch=0, now_ms=START_MS)
ONE = batch_of("v")


@pytest.mark.parametrize(
    ("position", "source", "batches"),
    [
        (None, Replicated(LIFE, 1, 1), []),
        (None, Replicated(LIFE, 1, 0), [ONE]),
        (None, Replicated(LIFE, 1, 1), [TRANSACTIONAL]),
        (None, Replicated(LIFE, 1, 0), [COMMIT]),
        (None, Replicated(LIFE, 1, 0), [SEAL]),
        (None, Replicated(LIFE, 1, 1), [ONE[:-1]]),
        (None, Replicated(LIFE, 1, 1), [ONE + b"x"]),
        (None, Replicated(LIFE, 1, 1), [ONE[:-1] + b"\xff"]),
        (None, Replicated(LIFE, 2**63, 1), [ONE]),
        (None, Replicated(LIFE, 2**63 - 1, 2**63), [ONE]),
        (None, Replicated("x" * 33, 1, 1), [ONE]),
        (None, Replicated(LIFE, 1, 1, "no chain"), [ONE]),
        (AT_2, Replicated(LIFE, 3, 2), [ONE]),
        (AT_2, Replicated(LIFE, 2, 3), [ONE]),
        (Origin("there-life-2", 1, 1, former=(LIFE,)), Replicated(LIFE, 1, 1), [ONE]),
    ],
    ids=["nothing", "a number below 1", "a transaction", "a commit", "a seal", "cut off", "too long", "a wrong CRC",
         "an offset too high", "a number too high", "a long id", "no chain", "a number taken before",
         "no offset further", "an earlier life"],
)  # fmt: skip
def test_no_entry_is_made_of_batches_that_do_not_follow_or_that_would_do_more(
    position: Origin | None, source: Replicated, batches: list[bytes]
) -> None:
    """It is refused before it is queued: a bad peer fails no producer's request (I17, I20, I25)."""
    with pytest.raises(ValueError, match=r"."):
        ReplicatedEntry(THERE, position, source, batches)


def test_a_batch_loses_its_producer_and_its_transaction_and_nothing_else() -> None:
    body = b"before" + TRANSACTIONAL + b"after"
    header = parse_header(body, 6)
    plain = stripped(body, 6, header)
    found = parse_header(plain)
    assert found._replace(crc=0) == header._replace(
        crc=0, attributes=0, producer_id=-1, producer_epoch=-1, base_sequence=-1
    )
    assert plain[61:] == TRANSACTIONAL[61:]
    assert plain == encode([Record(b"v")], now_ms=START_MS).body
    assert stripped(b"x" + COMMIT, 1, parse_header(COMMIT)) == COMMIT
    assert stripped(ONE + ONE, len(ONE), parse_header(ONE)) == ONE


def test_a_compressed_batch_is_not_decoded() -> None:
    sent = encode([Record(b"v" * 500)], now_ms=START_MS, codec="gzip", producer_id=7, producer_epoch=0, base_sequence=0)
    plain = stripped(sent.body, 0, sent.header)
    assert (parse_header(plain).codec, plain[61:]) == (1, sent.body[61:])
