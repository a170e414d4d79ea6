"""Appends that another process's create commits: what callers are answered, and what is left in the stores (I16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.combining import combiner as combining
from fenceline.append.combining import round_item
from fenceline.append.combining.combiner import Combiner
from fenceline.append.combining.offers import Round
from fenceline.append.group import Ticket
from fenceline.format import keys
from fenceline.format.segment import Segment, parse_segment
from fenceline.log.context import Context
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended
from fenceline.ports import Delete, Item, Put, Unavailable
from fenceline.recovery.verify import verify_partition
from fenceline.service.log import Log
from tests.support.service import (
    REGION,
    TOPIC,
    Service,
    append,
    appender_of,
    is_unavailable,
    loses_answer,
    moves,
    never_arrives,
    request,
)
from tests.support.sweeping import strict_sweep

HOUR_MS = 3_600_000
WORTH_MS = combining.WORTH_MS


@pytest.fixture(autouse=True)
def _creates_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes offer here, where a create takes no longer than a call of the item store."""
    monkeypatch.setattr(combining, "WORTH_MS", -1_000_000)


def contends(log: Log) -> Combiner:
    """Let a process know rivals, one of which committed its last append: what it appends next it offers."""
    appender = appender_of(log)
    combiner = appender.meet_rivals()
    combiner.own.served_at = appender.contention.backoff.won_at + 1
    return combiner


def contender(service: Service, **options: Any) -> Log:
    log = service.another(**options)
    append(log, "first")
    contends(log)
    return log


def leaves_an_offer(service: Service, *values: str, **options: Any) -> None:
    """Let a process offer a batch, and die."""
    log = service.another()
    append(log, "before")
    offers(log, 1 << 62, *values, **options)


def offers(log: Log, left_ms: int, *values: str, **options: Any) -> tuple[Combiner, Ticket]:
    """Let a process offer a batch whose caller waits for so long, and do nothing more."""
    appender = appender_of(log)
    entry = log.producing.prepared(appender.partition, log.topics.get(TOPIC), request(*values, **options), is_new=True)
    ticket = Ticket(entry, appender.partition.context.runtime.monotonic_ms() + left_ms)
    appender.queue.add(ticket)
    combiner = contends(log)
    assert combiner.offer()
    return combiner, ticket


def offers_of(service: Service) -> list[Item]:
    return list(service.items.store.query(keys.offer_items(service.topic_id(), 0)))


def round_of(service: Service) -> Item | None:
    key = keys.round_item(service.topic_id(), 0)
    return service.items.store.get([key]).get(key)


def segments(service: Service) -> list[Segment]:
    lines = service.objects.store.list(keys.log_prefix(service.topic_id(), 0))
    return [parse_segment(service.objects.store.get(line.key)) for line in lines]


def while_it_waits(service: Service, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Act once, when a process that has offered waits for the first time."""
    sleep = service.runtime.sleep_ms

    def slept(duration_ms: float) -> None:
        monkeypatch.setattr(service.runtime, "sleep_ms", sleep)
        if offers_of(service):
            act()
        sleep(duration_ms)

    monkeypatch.setattr(service.runtime, "sleep_ms", slept)


def unbound_lists(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the segments that will list what the stored round does not bind to their offset (I16)."""
    create, found = service.objects.store.create, []

    def checked(key: str, body: bytes, metadata: Any) -> None:
        if listed := metadata.get("offers"):
            stored = round_of(service)
            known = Round(-1) if stored is None else Round.from_value(stored.value)
            is_there = key == keys.segment_key(service.topic_id(), 0, known.offset)
            if not is_there or not {*listed.split(",")} <= {*known.bound}:
                found.append(key)
        create(key, body, metadata)

    monkeypatch.setattr(service.objects.store, "create", checked)
    return found


def test_where_no_process_contends_nothing_is_offered(service: Service) -> None:
    before = service.count()
    for _ in range(3 * limits.CHECKPOINT_SEGMENTS):
        append(service.log, "a")
    calls = service.count() - before
    assert calls["objects.create"] == 3 * limits.CHECKPOINT_SEGMENTS
    assert calls["items.write"] <= 0.2 * calls["objects.create"]
    assert (round_of(service), offers_of(service)) == (None, [])


@pytest.mark.parametrize(
    ("create_ms", "item_ms", "is_worth_it"),
    [(7, 3, True), (7, 4, False), (30, 5, True), (30, 27, False), (3, 0, False)],
)
def test_only_where_creates_take_much_longer_than_item_calls_is_anything_offered(
    service: Service, monkeypatch: pytest.MonkeyPatch, create_ms: int, item_ms: int, is_worth_it: bool
) -> None:
    monkeypatch.setattr(combining, "WORTH_MS", WORTH_MS)
    log = contender(service)
    combiner, backoff = contends(log), appender_of(log).contention.backoff
    backoff._creates_ms.clear()
    backoff.answered(create_ms)
    combiner._looked_at = service.runtime.monotonic_ms()
    combiner.round._read_ms.clear()
    combiner.round._read_ms.extend([item_ms] * round_item.SAMPLES_MIN)
    before = service.count()
    append(log, "mine")
    made = service.count() - before
    assert (made["objects.create"], made["items.write"] > 0) == (1, is_worth_it)
    assert (round_of(service) is not None) == is_worth_it


def test_a_rival_takes_an_offer_along_and_its_caller_gets_its_place(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rival = contender(service), contender(service)
    appender_of(rival).combiner.own.served_at = -1  # type: ignore[union-attr]  # so that it creates at once
    appended: list[Any] = []
    while_it_waits(service, lambda: appended.append(append(rival, "rival")), monkeypatch)
    before = service.count()
    answer = append(log, "mine")
    assert (service.count() - before)["objects.create"] == 1, "the rival's"
    last = segments(service)[-1]
    assert (answer.base_offset, answer.next_offset, answer.duplicate) == (2, 3, False)
    assert (appended[0].base_offset, last.base_offset, len(last.metadata.offers)) == (3, 2, 1)
    assert service.values()[-2:] == [b"mine", b"rival"]


def test_a_process_that_no_rival_serves_commits_its_offer_itself(service: Service) -> None:
    log = contender(service)
    answer = append(log, "mine", expected=1)
    assert (answer.base_offset, answer.expected_offset_checked) == (1, True)
    assert len(segments(service)[-1].metadata.offers) == 1


def test_a_process_that_is_far_behind_follows_the_log_by_one_look(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One segment after the other it might never reach the end."""
    log = contender(service)
    contends(log)._followed_at = service.runtime.monotonic_ms()
    for _ in range(2 * limits.CHECKPOINT_SEGMENTS):
        append(service.log, "rival")
    service.runtime.advance(1_000)
    looks: list[int] = []
    while_it_waits(service, lambda: looks.append(service.count()["objects.get"]), monkeypatch)
    assert append(log, "mine").base_offset == 2 * limits.CHECKPOINT_SEGMENTS + 1
    assert service.count()["objects.get"] - looks[0] <= limits.CHECKPOINT_SEGMENTS


def test_a_process_whose_answer_a_head_passed_over_looks_for_it_in_the_round_at_once(service: Service) -> None:
    log = contender(service)
    combiner, ticket = offers(log, 60_000, "mine")
    contends(service.log)
    for _ in range(limits.CHECKPOINT_SEGMENTS):
        append(service.log, "rival")
    service.log.partitions.checkpoint(TOPIC, 0)
    combiner._catch_up()
    assert ticket.outcome is None
    assert combiner._combine_at <= service.runtime.monotonic_ms()


def test_once_no_other_process_takes_offers_along_one_waits_for_that_less_and_less(service: Service) -> None:
    log = contender(service)
    combiner = contends(log)
    combiner.own.served_ms = 1_000
    append(log, "mine")
    assert combiner.own.served_ms == 500


@pytest.mark.parametrize("item_ms", [4, 100, 300])
def test_a_process_whose_item_store_is_slow_commits_its_offer_itself(service: Service, item_ms: int) -> None:
    """One look may take longer than being behind does."""
    log = contender(service)
    appender_of(log).contention.backoff.create_ms = 30
    service.objects.on_call = lambda operation, key: service.runtime.advance(30)
    service.items.on_call = lambda operation, key: service.runtime.advance(item_ms)
    began = service.runtime.monotonic_ms()
    append(log, "mine")
    assert service.runtime.monotonic_ms() - began < 5_000


def test_a_batch_that_a_rival_committed_is_answered_while_the_item_store_times_out(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival, log = service.another(), contender(service)
    append(rival, "rival")
    service.objects.on_call = lambda operation, key: service.runtime.advance(30)
    append(log, "mine")
    contends(log)

    def times_out(call: Callable[[], Any]) -> Any:
        service.runtime.advance(1_000)
        raise Unavailable("timed out")

    def act() -> None:
        appender_of(rival).meet_rivals()
        append(rival, "takes it along")
        for operation in ("get", "query", "write"):
            service.items.always(operation, times_out)

    while_it_waits(service, act, monkeypatch)
    service.runtime.advance(1_000)
    began = service.runtime.monotonic_ms()
    append(log, "offered")
    assert service.runtime.monotonic_ms() - began < 5_000
    for operation in ("get", "query", "write"):
        service.items.always(operation, None)


def test_a_caller_whose_withdrawal_meets_others_waits_no_longer_than_its_time(service: Service) -> None:
    log = contender(service)
    assert contends(log).round.make()
    service.objects.on_call = lambda operation, key: service.runtime.advance(30)
    service.items.on_call = lambda operation, key: service.runtime.advance(4)
    service.items.always("write", moves, keys.round_item(service.topic_id(), 0).sort)
    began = service.runtime.monotonic_ms()
    with pytest.raises((errors.ContendedError, errors.OutcomeUnknownError)):
        append(log, "mine")
    assert service.runtime.monotonic_ms() - began <= 20_000 + 200


@pytest.mark.parametrize("span_ms", [2_000, 4_000, 5_000, 6_000, 8_000, 10_000])
def test_a_process_that_was_served_once_looks_before_it_tries_what_it_cannot_offer(
    service: Service, monkeypatch: pytest.MonkeyPatch, span_ms: int
) -> None:
    """By creates alone it would follow the log by one segment each, and the winner makes many meanwhile."""
    large = "x" * (limits.OFFER_BYTES_MAX + 1)
    rival, log = service.another(), contender(service)
    append(rival, large)
    combiner = contends(log)
    service.runtime.advance(10_000)
    assert combiner.is_served
    assert not combiner.knows_rivals
    sleep, until = service.runtime.sleep_ms, service.runtime.monotonic_ms() + span_ms
    tries_after: list[str] = []
    acting: list[bool] = []

    def rival_goes_on(count: int) -> None:
        if acting or service.runtime.monotonic_ms() > until:
            return
        acting.append(True)
        for _ in range(count):
            append(rival, large)
        acting.clear()

    def slept(duration_ms: float) -> None:
        rival_goes_on(20)
        sleep(duration_ms)

    def called(operation: str, key: str) -> None:
        if acting:
            return
        if operation == "create":
            rival_goes_on(1)
            if service.runtime.monotonic_ms() > until:
                tries_after.append(key)
        service.runtime.advance(30)

    monkeypatch.setattr(service.runtime, "sleep_ms", slept)
    service.objects.on_call = called
    append(log, large)
    assert len(tries_after) <= 3


def test_a_process_that_finds_its_answer_in_the_round_is_behind(service: Service) -> None:
    log = contender(service)
    append(service.log, "not followed yet")
    combiner, ticket = offers(log, 60_000, "mine")
    contends(service.log)
    append(service.log, "takes it along")
    leaves_an_offer(service, "other")
    append(service.log, "moves it to what is done")
    combiner._followed_at = service.runtime.monotonic_ms()
    combiner._combine_at = 0
    combiner._look_for_offers()
    assert isinstance(ticket.outcome, Appended)
    assert combiner._is_behind()


@pytest.mark.parametrize(
    ("served_ms", "left_ms", "wait_ms"), [(0, 60_000, 150), (1_000, 60_000, 3_000), (1_000, 8_000, 2_000)]
)
def test_an_offer_waits_longer_where_offers_took_long_but_leaves_its_caller_time(
    service: Service, monkeypatch: pytest.MonkeyPatch, served_ms: int, left_ms: int, wait_ms: int
) -> None:
    """Where many contend, the round has all their ids: more looks at it would only make it slower."""
    log = contender(service)
    monkeypatch.setattr(service.runtime, "random", lambda: 0.5)
    contends(log).own.served_ms = served_ms
    appender_of(log).contention.backoff.create_ms = 30
    combiner, _ = offers(log, left_ms, "mine")
    assert combiner._combine_at - service.runtime.monotonic_ms() == wait_ms


def test_an_offer_is_deleted_while_its_process_waits_for_the_next_one(service: Service) -> None:
    log = contender(service)
    append(log, "mine")
    (first,) = offers_of(service)
    contends(log)
    append(log, "next")
    (second,) = offers_of(service)
    assert second.key != first.key


def test_an_offer_that_is_done_and_left_is_deleted_by_a_process_that_combines(service: Service) -> None:
    """Not before others have bound offers for long: its own process may still look for the outcome."""
    log = contender(service)
    append(log, "mine")
    (left,) = offers_of(service)
    rival = contender(service)
    for advance_ms, is_left in ((0, True), (limits.OFFER_MS + 1, False)):
        service.runtime.advance(advance_ms)
        contends(rival)
        append(rival, "rival")
        assert (left.key in {item.key for item in offers_of(service)}) is is_left
    assert service.values().count(b"mine") == 1


def test_the_offer_of_a_process_that_died_is_committed_once(service: Service) -> None:
    leaves_an_offer(service, "left")
    log = contender(service)
    for _ in range(5):
        append(log, "mine")
    assert service.values().count(b"left") == 1


def test_the_offer_of_a_process_that_died_is_committed_soon_or_never(service: Service) -> None:
    leaves_an_offer(service, "left")
    service.runtime.advance(limits.OFFER_MS + 1)
    log = contender(service)
    for _ in range(5):
        append(log, "mine")
    assert b"left" not in service.values()


def test_a_log_append_time_is_the_one_that_is_stored(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    log, rival = contender(service), contender(service)
    appender_of(rival).combiner.own.served_at = -1  # type: ignore[union-attr]
    while_it_waits(service, lambda: (service.runtime.advance(40), append(rival, "rival")), monkeypatch)
    answer = append(log, "mine")
    page = service.log.partitions.read(TOPIC, 0, ReadRequest(offset=answer.base_offset))
    assert (page.records[0].value, page.records[0].timestamp) == (b"mine", answer.timestamp)


def test_an_offer_whose_process_died_has_the_log_append_time_of_its_segment(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    leaves_an_offer(service, "left")
    service.runtime.advance(5_000)
    append(contender(service), "mine")
    [segment] = [one for one in segments(service) if one.metadata.offers]
    page = service.log.partitions.read(TOPIC, 0, ReadRequest(offset=segment.base_offset))
    assert page.records[0].value == b"left"
    assert page.records[0].timestamp == segment.metadata.appended_at


def test_a_refusal_withdraws_the_offer_first(service: Service) -> None:
    log = contender(service)
    with pytest.raises(errors.OffsetMismatchError):
        append(log, "mine", expected=9)
    assert offers_of(service) == []
    for _ in range(9):
        append(service.log, "other")
    assert b"mine" not in service.values()


@pytest.mark.parametrize("fault", [never_arrives, loses_answer])
def test_a_put_that_is_not_answered_is_never_made_twice(service: Service, fault: Any) -> None:
    """The batch is committed once, or its caller does not know."""
    log = contender(service)
    append(log, "makes the round")
    contends(log)
    service.items.plan("write", fault)
    try:
        append(log, "mine")
    except errors.OutcomeUnknownError:
        assert fault is never_arrives
    for _ in range(3):
        append(service.another(), "more")
    assert service.values().count(b"mine") == (fault is loses_answer)


@pytest.mark.parametrize("fault", [moves, never_arrives, loses_answer, is_unavailable])
@pytest.mark.parametrize("at", range(1, 4))
def test_the_batch_is_there_once_after_any_fault_of_a_write(
    service: Service, fault: Any, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = contender(service)
    append(log, "makes the round")
    contends(log)
    write, made = service.items.store.write, 0

    def struck(changes: Any) -> None:
        nonlocal made
        made += 1
        if made == at:
            fault(lambda: write(changes))
        else:
            write(changes)

    service.items.store.write = struck  # type: ignore[method-assign]
    unbound = unbound_lists(service, monkeypatch)
    answered = True
    try:
        append(log, "mine")
    except errors.OutcomeUnknownError:
        answered = False
    service.items.store.write = write  # type: ignore[method-assign]
    append(service.another(), "more")
    count = service.values().count(b"mine")
    assert count == 1 if answered else count <= 1
    assert unbound == []


def test_a_producers_batches_that_wait_together_keep_their_order(service: Service) -> None:
    log = contender(service)
    appender, topic = appender_of(log), log.topics.get(TOPIC)
    for n in range(3):
        sent = request(f"n{n}", producer=(7, 0, n))
        entry = log.producing.prepared(appender.partition, topic, sent, is_new=True)
        appender.queue.add(Ticket(entry, 1 << 40))
    append(log, "n3", producer=(7, 0, 3))
    assert service.values()[-4:] == [b"n0", b"n1", b"n2", b"n3"]
    assert len(segments(service)[-1].metadata.offers) == 4


def test_items_that_are_lost_leave_the_outcome_unknown(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    log = contender(service)

    def lose() -> None:
        found = [*offers_of(service), round_of(service)]
        service.items.store.write([Delete(item.key, item.version) for item in found if item is not None])

    while_it_waits(service, lose, monkeypatch)
    with pytest.raises(errors.OutcomeUnknownError):
        append(log, "mine")
    append(log, "next")
    assert service.values()[-1] == b"next"


def test_a_round_that_the_log_start_has_passed_says_that_nothing_shows_the_outcome(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an object at its offset, which a late create may have left."""
    log, rival = contender(service), service.another()

    def bind_and_trim() -> None:
        (offered,), stored = offers_of(service), round_of(service)
        assert stored is not None
        bound = Round(1, (keys.parse_offer_item(offered.key),))
        service.items.store.write([Put(stored.key, bound.to_value(), stored.version + 1, stored.version)])
        for _ in range(3):
            append(rival, "rival")
        service.log.partitions.trim(TOPIC, 0, 3)
        service.runtime.advance(limits.ITEM_AGE_MS_MAX)

    while_it_waits(service, bind_and_trim, monkeypatch)
    with pytest.raises(errors.OutcomeUnknownError):
        append(log, "mine")


def test_offers_of_a_deleted_topic_are_appended_to_the_next_one_of_its_name(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were committed nowhere: the log was sealed first."""
    log = contender(service)

    def recreate() -> None:
        service.log.topics.delete(TOPIC)
        service.log.topics.create(TOPIC)

    while_it_waits(service, recreate, monkeypatch)
    assert append(log, "mine").base_offset == 0
    assert service.values() == [b"mine"]


def test_the_sweeper_deletes_offers_that_were_left_an_hour_ago(service: Service) -> None:
    leaves_an_offer(service, "left")
    service.runtime.advance(HOUR_MS - 1)
    strict_sweep(service.log, duration_ms=60_000, is_thorough=True)
    assert len(offers_of(service)) == 1
    service.runtime.advance(2)
    strict_sweep(service.log, duration_ms=60_000, is_thorough=True)
    assert offers_of(service) == []


def test_offers_and_round_go_with_their_topic(service: Service) -> None:
    leaves_an_offer(service, "left")
    topic_id = service.topic_id()
    service.log.topics.delete(TOPIC)
    for _ in range(4):
        strict_sweep(service.log, duration_ms=60_000)
        service.runtime.advance(limits.GC_GRACE_MS)
    assert list(service.items.store.query(keys.offer_items(topic_id, 0))) == []
    assert list(service.items.store.query(keys.partition_items(topic_id, 0))) == []


def test_verify_finds_an_offer_that_two_segments_list(service: Service) -> None:
    log = contender(service)
    append(log, "mine")
    append(service.another(), "more")
    good = segments(service)
    context = Context(service.objects, service.items, service.runtime, REGION)
    topic = service.log.topics.get(TOPIC)
    assert verify_partition(context, topic, 0).problem == ""
    first, last = good[-2], good[-1]
    doubled = last.metadata._replace(offers=first.metadata.offers).chained(first.metadata.chain, last.body)
    key = keys.segment_key(service.topic_id(), 0, last.base_offset)
    service.objects.store.delete(key)
    service.objects.store.create(key, last.body, doubled.to_strings())
    found = verify_partition(context, topic, 0)
    assert found.broken_at == last.base_offset
    assert "two segments list the same offer" in found.problem
