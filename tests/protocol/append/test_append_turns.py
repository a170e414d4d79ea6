"""How long an append may take beside rivals, and after them: time left to rivals must not burden it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.appender import Appender
from fenceline.append.contention import CHANCE_LOSSES, CHECKPOINT_AGAIN, CHECKPOINT_LOSSES, ContentionBackoff
from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.entries.entry import Marked
from fenceline.append.group import Ticket
from fenceline.format import keys
from fenceline.log.checkpoint import advance_checkpoint
from fenceline.ports import NoAnswer
from fenceline.service.log import Log
from tests.support.service import (
    TOPIC,
    Service,
    append,
    appender_of,
    is_unavailable,
    loses_answer,
    moves,
    never_arrives,
    only_appender_of,
    request,
)

CALL_MS = 20
LARGE = b"x" * limits.OFFER_BYTES_MAX  # so large that it is not offered to rivals


@pytest.fixture
def store_takes_time(service: Service) -> None:
    service.objects.on_call = lambda operation, key: service.runtime.advance(CALL_MS)


def took_ms(service: Service, call: Callable[[], Any]) -> int:
    begun = service.runtime.monotonic_ms()
    call()
    return service.runtime.monotonic_ms() - begun


@pytest.mark.usefixtures("store_takes_time")
def test_an_expected_offset_that_always_loses_fails_soon_and_slows_nothing_later(service: Service) -> None:
    """Between two requests the caller thinks; that time is no part of a try."""
    log, rival = service.another(), service.another()
    append(log, "a")
    refused_ms = []
    for n in range(1, 40):
        service.runtime.advance(3_000)
        log.partitions.offsets(TOPIC, 0)
        append(rival, "rival")

        def lose(n: int = n) -> None:
            with pytest.raises(errors.OffsetMismatchError):
                append(log, "late", expected=n)

        refused_ms.append(took_ms(service, lose))
    assert max(refused_ms) < 20 * CALL_MS

    alone_ms = []
    for _ in range(500):
        service.runtime.advance(CALL_MS)
        alone_ms.append(took_ms(service, lambda: append(log, "alone")))
    assert max(alone_ms) < 500


@pytest.mark.usefixtures("store_takes_time")
def test_a_create_that_was_not_answered_for_long_and_lost_slows_nothing_afterwards(service: Service) -> None:
    log, rival = service.another(), service.another()
    append(log, "a")

    def is_lost(call: Callable[[], Any]) -> None:
        append(rival, "rival")
        service.runtime.advance(5_000)
        raise NoAnswer("timeout")

    service.objects.plan("create", is_lost)
    append(log, "b")
    times_ms = [took_ms(service, lambda: append(log, "alone")) for _ in range(3_000)]
    assert max(times_ms) < 500
    assert [value for value in service.values() if value != b"alone"] == [b"a", b"rival", b"b"]


def test_a_batch_that_lost_at_its_time_limit_is_contended(service: Service) -> None:
    log, rival = service.another(timeout_ms=1_000), service.another()
    append(log, "a")

    def is_slow_and_lost(call: Callable[[], Any]) -> Any:
        service.runtime.advance(2_000)
        append(rival, "rival")
        return call()

    service.objects.plan("create", is_slow_and_lost)
    with pytest.raises(errors.ContendedError):
        append(log, "late")
    assert service.values() == [b"a", b"rival"]


def test_a_caller_who_left_takes_no_time_from_who_is_in_its_group(service: Service) -> None:
    """The caller that left is answered that the outcome is not known.

    The others' batches, which were not written, are appended.
    """
    log, rival = service.another(), service.another()
    append(log, "a")
    appender = only_appender_of(log)
    entry = log.producing.prepared(appender.partition, log.topics.get(TOPIC), request("b"), is_new=True)
    left = Ticket(entry, until_ms=service.runtime.monotonic_ms() + 1_000)
    appender.queue.add(left)

    def is_slow(call: Callable[[], Any]) -> Any:
        service.runtime.advance(2_000)
        raise NoAnswer("timeout")

    def is_lost(call: Callable[[], Any]) -> Any:
        appender.queue._leave(left)
        append(rival, "rival")
        return call()

    service.objects.plan("create", is_slow, is_lost)
    append(log, "c")
    assert isinstance(left.outcome, errors.OutcomeUnknownError)
    assert service.values() == [b"a", b"rival", b"c"]


def test_gaps_left_to_rivals_leave_callers_their_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    append(service.log, "a")
    monkeypatch.setattr(ContentionBackoff, "gap", lambda *_: 60_000)
    assert took_ms(service, lambda: append(service.log, "b")) < 10_000


def test_a_gap_leaves_rivals_a_fresh_checkpoint(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        append(service.log, "a")
    heads: list[Any] = []

    def look(duration_ms: float) -> None:
        key = keys.head_item(service.topic_id(), 0)
        heads.append(service.items.store.get([key])[key].value["next_offset"])

    monkeypatch.setattr(ContentionBackoff, "gap", lambda *_: 100)
    monkeypatch.setattr(service.runtime, "sleep_ms", look)
    append(service.log, "b")
    assert heads == [20]


def loser_of(service: Service) -> tuple[Appender, Log]:
    """Return a process that has lost for so long that it waits for its turn, and the rival that always won."""
    loser, rival = service.another(), service.another()
    append(loser, "a")
    append(rival, "a")
    appender = appender_of(loser)
    appender.contention.backoff.losses = CHANCE_LOSSES
    return appender, rival


@pytest.mark.parametrize("segments", [1, 3 * limits.CHECKPOINT_SEGMENTS + 1])
def test_a_process_waiting_for_its_turn_does_not_follow_a_rival_that_goes_on(service: Service, segments: int) -> None:
    appender, rival = loser_of(service)
    for _ in range(3):
        for _ in range(segments):
            append(rival, "b")
        losses, before = appender.contention.backoff.losses, service.count()
        assert appender.contention._lets_rival_go_on(1 << 40)
        assert service.count() - before == {"items.get": 1, "objects.list": 1}
        assert appender.contention.backoff.losses == losses + 1


@pytest.mark.parametrize("is_gap", [True, False])
def test_a_process_has_its_turn_where_no_further_segment_follows_the_head(service: Service, *, is_gap: bool) -> None:
    """The rival brought the head to the end before its gap, or it has stopped."""
    appender, rival = loser_of(service)
    append(rival, "b")
    assert appender.contention._lets_rival_go_on(1 << 40)
    if is_gap:
        append(rival, "b")
        rival.partitions.checkpoint(TOPIC, 0)
    assert not appender.contention._lets_rival_go_on(1 << 40)
    assert appender.partition.is_fresh
    assert appender.partition.state.next_offset == len(service.values())


def test_a_process_waiting_for_its_turn_sometimes_moves_the_checkpoint(service: Service) -> None:
    """Else a winner that leaves no gaps would never know of it."""
    losses = ContentionBackoff(losses=CHANCE_LOSSES)
    tried = []
    for n in range(CHECKPOINT_LOSSES + CHECKPOINT_AGAIN):
        if losses.losses >= CHANCE_LOSSES and not losses.may_be_passed_over:
            tried.append(losses.losses + 1)
        losses.lose(n, 1, 0.5)
    assert tried == [CHECKPOINT_LOSSES, CHECKPOINT_LOSSES + CHECKPOINT_AGAIN]


def test_a_process_whose_gap_a_rival_took_waits_before_it_creates(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rival = service.another(), service.another()
    for name in (rival, log):
        append(name, "a")
    rival.partitions.offsets(TOPIC, 0)  # it follows
    monkeypatch.setattr(ContentionBackoff, "gap", lambda *_: 100)
    sleep, slept_ms = service.runtime.sleep_ms, []

    def slept(duration_ms: float) -> None:
        monkeypatch.setattr(ContentionBackoff, "gap", lambda *_: 0)
        sleep(duration_ms)
        slept_ms.append(duration_ms)
        if len(slept_ms) == 1:
            append(rival, "rival")

    monkeypatch.setattr(service.runtime, "sleep_ms", slept)
    before = service.objects.calls["create"]
    append(log, "mine")
    assert service.objects.calls["create"] - before == 2, "none was lost"
    assert len(slept_ms) >= 2
    assert service.values()[-2:] == [b"rival", b"mine"]


def test_where_a_checkpoint_failed_none_is_made_for_others_until_the_store_had_its_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(service.log, "a")
    monkeypatch.setattr(ContentionBackoff, "gap", lambda *_: 1)
    service.items.always("write", is_unavailable)
    for _ in range(3):
        append(service.log, "b")
    failed = service.items.calls["write"]
    for _ in range(limits.CHECKPOINT_SEGMENTS * 2):
        append(service.log, "c")
    assert service.items.calls["write"] == failed
    service.items.always("write", None)
    service.runtime.advance(limits.CHECKPOINT_MS)
    append(service.log, "d")
    key = keys.head_item(service.topic_id(), 0)
    assert service.items.store.get([key])[key].value["next_offset"] == len(service.values()) - 1


@pytest.mark.usefixtures("store_takes_time")
def test_an_append_that_the_next_one_found_much_later_slows_nothing_afterwards(service: Service) -> None:
    log = service.another()
    append(log, "a")
    service.objects.always("create", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        append(log, "found")
    service.objects.always("create", None)
    service.runtime.advance(3_600_000)
    append(log, "b")
    assert service.values() == [b"a", b"found", b"b"]
    assert only_appender_of(log).contention.backoff.create_ms <= 2 * CALL_MS


@pytest.mark.usefixtures("store_takes_time")
@pytest.mark.parametrize("looks", [False, True])
def test_a_winner_learns_of_who_only_loses_by_the_checkpoint(service: Service, *, looks: bool) -> None:
    """It learns so, too, of a loser that looks at the head before each append."""
    loser, winner = service.another(timeout_ms=10_000), service.another()
    for _ in range(limits.CHECKPOINT_SEGMENTS):
        append(winner, "first")
    turns = only_appender_of(winner).contention.backoff
    assert turns._met_at is None

    def is_lost(call: Callable[[], Any]) -> Any:
        service.objects.always("create", None)
        append(winner, "winner", expected=len(service.values()) if looks else None)
        service.objects.always("create", is_lost)
        return call()

    service.objects.always("create", is_lost)
    with pytest.raises(errors.ContendedError):
        append(loser, LARGE)
    assert only_appender_of(loser).contention.backoff.losses >= CHECKPOINT_LOSSES
    assert turns._met_at is not None
    assert turns.losses == 0


def test_a_log_start_that_was_moved_is_no_rival(service: Service) -> None:
    log = service.another()
    for n in range(limits.CHECKPOINT_SEGMENTS * 3):
        append(log, "a")
        if n % limits.CHECKPOINT_SEGMENTS == 8:
            service.log.partitions.trim(TOPIC, 0, n // limits.CHECKPOINT_SEGMENTS * limits.CHECKPOINT_SEGMENTS)
    assert service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == 2 * limits.CHECKPOINT_SEGMENTS
    assert only_appender_of(log).contention.backoff._met_at is None


@pytest.mark.parametrize("timeout_ms", range(14_000, 34_000, 2_000))
def test_a_process_that_only_loses_begins_no_write_beyond_its_time_limit(service: Service, timeout_ms: int) -> None:
    create_ms = 6_000
    loser, winner = service.another(timeout_ms=timeout_ms, create_ms=create_ms), service.another()
    for log in (loser, *[winner] * limits.CHECKPOINT_SEGMENTS):
        append(log, "a")
    until_ms = service.runtime.monotonic_ms() + timeout_ms
    left_ms: list[int] = []

    def is_lost(call: Callable[[], Any]) -> Any:
        service.runtime.advance(60)
        service.objects.always("create", None)
        service.items.always("write", None)
        append(winner, "winner")
        service.objects.always("create", is_lost)
        service.items.always("write", is_slow)
        return call()

    def is_slow(call: Callable[[], Any]) -> Any:
        left_ms.append(until_ms - service.runtime.monotonic_ms())
        service.runtime.advance(5_000)
        return call()

    service.objects.always("create", is_lost)
    with pytest.raises(errors.ContendedError):
        append(loser, LARGE)
    assert only_appender_of(loser).contention.backoff.losses >= CHECKPOINT_LOSSES
    assert all(left >= create_ms for left in left_ms)


@pytest.mark.parametrize(("fault", "is_put_off"), [(moves, False), (loses_answer, True), (is_unavailable, True)])
def test_a_checkpoint_attempt_is_one_write_despite_faults(service: Service, fault: Any, *, is_put_off: bool) -> None:
    append(service.log, "a")
    partition = only_appender_of(service.log).partition
    before = service.items.calls.copy()
    service.items.plan("write", fault)
    advance_checkpoint(partition)
    assert (service.items.calls - before)["write"] == 1
    assert (partition.no_checkpoint_until_ms > service.runtime.monotonic_ms()) is is_put_off
    service.runtime.advance(limits.CHECKPOINT_MS)
    append(service.log, "b")
    key = keys.head_item(service.topic_id(), 0)
    assert service.items.store.get([key])[key].value["next_offset"] == 2


def test_a_checkpoint_that_others_moved_reads_its_items_at_once(service: Service) -> None:
    log, other = service.another(), service.another()
    for n in range(limits.CHECKPOINT_SEGMENTS):
        append(log, "a", producer=(n, 0, 0))
    for n in range(limits.CHECKPOINT_SEGMENTS - 1):
        append(log, "b", producer=(n, 0, 1))
    other.partitions.checkpoint(TOPIC, 0)
    before = service.items.calls.copy()
    append(log, "b", producer=(limits.CHECKPOINT_SEGMENTS - 1, 0, 1))
    assert service.items.calls - before == {"write": 2, "get": 1}


def test_a_marker_behind_the_first_batch_does_not_wait_for_a_gap(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(service.log, "a")
    monkeypatch.setattr(ContentionBackoff, "gap", lambda *_: 1_000)
    appender = only_appender_of(service.log)
    marker = Ticket(GrantEntry("session", 3), until_ms=10**9)
    appender.queue.add(marker)
    created_ms: list[int] = []
    service.objects.on_call = lambda *_: created_ms.append(service.runtime.monotonic_ms())
    begun_ms = service.runtime.monotonic_ms()
    append(service.log, "b")
    assert marker.outcome == Marked(1)
    assert created_ms[0] == begun_ms, "the marker was made before anything was left to others"


def test_a_checkpoint_is_left_to_the_next_where_a_caller_has_no_time_for_it(service: Service) -> None:
    log = service.another(create_ms=2_000, timeout_ms=5_000)

    def takes_long(call: Callable[[], Any]) -> Any:
        service.runtime.advance(3_500)
        return call()

    for _ in range(15):
        append(log, "a")
    writes = service.items.calls["write"]
    service.objects.plan("create", takes_long)
    append(log, "slow")
    assert service.items.calls["write"] == writes
    append(log, "b")
    assert service.items.calls["write"] > writes
