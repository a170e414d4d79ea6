"""Combining under attack: what is read after a freeze, what lands late, what waits beside an offer (I4, I16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.combining import round_item
from fenceline.append.combining.combiner import Combiner
from fenceline.append.combining.offers import Round
from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.group import Ticket
from fenceline.format import keys
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.model.results import Appended
from fenceline.ports import Delete, NoAnswer, NotFound, Put, Unavailable
from fenceline.service.log import Log
from tests.protocol.append.test_combining import (
    HOUR_MS,
    _creates_are_dear,  # noqa: F401  a fixture of every test here, too
    appender_of,
    contender,
    contends,
    leaves_an_offer,
    offers,
    offers_of,
    round_of,
    segments,
    while_it_waits,
)
from tests.support.coordinating import Coordinator
from tests.support.service import TOPIC, Service, append, never_arrives, request
from tests.support.sweeping import strict_sweep

LISTS = 2  # the offset of the segment that lists the offer of ``served``


def queue_up(log: Log, *requests: Any, until_ms: int = 1 << 40) -> list[Ticket]:
    """Let callers wait that never lead."""
    appender, topic = appender_of(log), log.topics.get(TOPIC)
    made = []
    for sent in requests:
        entry = log.producing.prepared(appender.partition, topic, sent, is_new=True)
        made.append(Ticket(entry, until_ms))
        appender.queue.add(made[-1])
    return made


def creator(service: Service) -> Log:
    """Return a process that knows rivals, and creates at once."""
    log = contender(service)
    combiner_of(log).own.served_at = -1
    return log


def combiner_of(log: Log) -> Combiner:
    combiner = appender_of(log).combiner
    assert combiner is not None
    return combiner


def binds(service: Service, offset: int) -> None:
    """Bind the only offer there to ``offset``, as a combiner does that dies before its create."""
    (offered,), stored = offers_of(service), round_of(service)
    assert stored is not None
    bound = Round(offset, (keys.parse_offer_item(offered.key),))
    service.items.store.write([Put(stored.key, bound.to_value(), stored.version + 1, stored.version)])


def numbers(service: Service) -> list[bytes]:
    return [value for value in service.values() if value is not None and value.startswith(b"n")]


@pytest.mark.parametrize("count", [60, 200])
def test_a_process_with_many_callers_answers_all(service: Service, count: int) -> None:
    """More own offers than one write takes, and than one offset binds."""
    log = contender(service)
    made = queue_up(log, *(request(f"n{n}") for n in range(count)))
    append(log, "mine")
    assert [ticket.outcome for ticket in made if isinstance(ticket.outcome, Exception)] == []
    assert len(set(numbers(service))) == len(numbers(service))


def test_many_callers_whose_time_is_over_at_once_are_withdrawn(service: Service) -> None:
    log = contender(service)
    combiner = contends(log)
    made = queue_up(log, *(request(f"n{n}") for n in range(120)), until_ms=service.runtime.monotonic_ms() + 5_000)
    while appender_of(log).queue._line:
        assert combiner.offer()
    service.runtime.advance(4_600)
    for _ in range(2):
        combiner.step()
    assert all(ticket.is_withdrawn for ticket in made)
    assert offers_of(service) == []


@pytest.mark.parametrize("later_ms", [0, 3_000_000])
def test_a_leader_that_leaves_leaves_no_group_of_others_offers(service: Service, later_ms: int) -> None:
    """Its own batch must ask the coordinator first. What it formed of a dead process's offer lands never or at once."""
    coordinator = Coordinator(service)
    log = coordinator.serves(contender(service))
    leaves_an_offer(service, "left")
    contends(log)

    def refuse(*_: Any) -> Any:
        raise errors.StoreUnavailableError("the coordinator")

    coordinator.admit = refuse  # type: ignore[method-assign]
    with pytest.raises(errors.StoreUnavailableError):
        coordinator.send(log, "in a transaction")
    assert appender_of(log).queue.group is None
    service.runtime.advance(later_ms)
    append(log, "later")
    assert service.values().count(b"left") == (later_ms == 0)


def test_a_round_that_cannot_be_written_holds_no_append_up(service: Service) -> None:
    """The item store answers reads, and fails each write; the object store works."""
    leaves_an_offer(service, "left")
    log = creator(service)
    writes = 0

    def fails(changes: Any) -> None:
        nonlocal writes
        writes += 1
        raise NoAnswer("500")

    service.items.store.write = fails  # type: ignore[method-assign]
    began = service.runtime.monotonic_ms()
    append(log, "mine")
    assert service.runtime.monotonic_ms() - began < 1_000
    assert writes == 1


def test_an_append_does_not_need_the_offers(service: Service) -> None:
    """The item store throttles queries; the object store works, and the look is young."""
    leaves_an_offer(service, "left")
    log = creator(service)
    asked = 0

    def throttled(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise Unavailable("throttled")

    service.items.store.query = throttled  # type: ignore[method-assign]
    began = service.runtime.monotonic_ms()
    append(log, "mine")
    append(log, "mine")
    assert service.runtime.monotonic_ms() - began < 1_000
    assert asked == 1


def test_offers_that_were_left_hide_no_newer_ones(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as one look reads, each too old to be bound."""
    dead = service.another()
    append(dead, "before")
    combiner = contends(dead)
    queue_up(dead, *(request(f"dead{n}") for n in range(limits.OFFERS_READ_MAX)))
    while appender_of(dead).queue._line:
        assert combiner.offer()
    service.runtime.advance(limits.OFFER_MS + 1_000)
    log, rival = contender(service), creator(service)
    while_it_waits(service, lambda: append(rival, "rival"), monkeypatch)
    append(log, "mine")
    assert service.values()[-2:] == [b"mine", b"rival"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_producers_batches_keep_their_order_when_one_is_late(service: Service, is_known: bool) -> None:
    """The time of sequence 0 is over first. It is withdrawn, and sequence 1 with it."""
    if is_known:
        append(service.log, "n-", producer=(7, 0, 0))
    log = contender(service)
    combiner = contends(log)
    now, at = service.runtime.monotonic_ms(), int(is_known)
    (first,) = queue_up(log, request("n0", producer=(7, 0, at)), until_ms=now + 1_100)
    (second,) = queue_up(log, request("n1", producer=(7, 0, at + 1)), until_ms=now + 9_000)
    assert combiner.offer()
    service.runtime.advance(700)
    append(log, "x")
    assert [ticket.outcome for ticket in (first, second) if isinstance(ticket.outcome, Exception)] == []
    assert numbers(service)[is_known:] == [b"n0", b"n1"]


def test_withdrawn_batches_keep_their_order_in_the_line(service: Service) -> None:
    """Whichever of them is withdrawn first."""
    log = contender(service)
    combiner = contends(log)
    made = queue_up(log, request("a"), request("b"), request("c"))
    assert combiner.offer()
    for number in (1, 2, 0):
        combiner.own.withdraw([own for own in combiner.own.unanswered() if own.ticket is made[number]])
    assert list(appender_of(log).queue._line) == made


@pytest.mark.parametrize("is_known", [True, False])
def test_a_producers_batches_keep_their_order_beside_a_marker(service: Service, is_known: bool) -> None:
    """Sequence 0 is an offer, sequence 1 waits, and a claim's marker waits behind."""
    if is_known:
        append(service.log, "n-", producer=(7, 0, 0))
    log = contender(service)
    combiner = contends(log)
    at = int(is_known)
    (first,) = queue_up(log, request("n0", producer=(7, 0, at)))
    assert combiner.offer()
    (second,) = queue_up(log, request("n1", producer=(7, 0, at + 1)))
    appender_of(log).append(GrantEntry("s", 1), service.runtime.monotonic_ms() + 10_000)
    assert (first.outcome, second.outcome) == (None, None)
    assert numbers(service)[is_known:] == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_batch_does_not_pass_one_of_its_producer_whose_put_was_not_answered(service: Service, is_known: bool) -> None:
    if is_known:
        append(service.log, "n-", producer=(7, 0, 0))
    log = contender(service)
    combiner = contends(log)
    combiner.round.make()
    at = int(is_known)
    queue_up(log, request("n0", producer=(7, 0, at)))
    service.items.plan("write", never_arrives)
    assert combiner.offer()
    queue_up(log, request("n1", producer=(7, 0, at + 1)))
    assert not combiner.offer()
    append(creator(service), "rival")
    assert numbers(service)[is_known:] == []


def test_a_caller_that_leaves_without_leading_leaves_nothing_behind(service: Service) -> None:
    """Else the process could never forget the partition."""
    log = contender(service)
    combiner, appender = contends(log), appender_of(log)
    (mine,) = queue_up(log, request("mine"), until_ms=service.runtime.monotonic_ms() + 2_000)
    assert combiner.offer()
    service.runtime.advance(2_001)
    assert appender.queue.must_lead(mine) is False
    assert isinstance(mine.outcome, errors.OutcomeUnknownError)
    append(log, "next")
    assert appender.is_idle
    assert appender.partition.is_idle


def late(service: Service, *, is_bound: bool) -> tuple[Combiner, Ticket]:
    """Return a process whose caller has no time left for its offer, and that caller."""
    log = contender(service)
    combiner = contends(log)
    (mine,) = queue_up(log, request("mine"), until_ms=service.runtime.monotonic_ms() + 5_000)
    assert combiner.offer()
    if is_bound:
        binds(service, 1)
    service.runtime.advance(4_600)
    return combiner, mine


def test_a_bound_offer_is_not_withdrawn(service: Service) -> None:
    """The process that bound it may have its create under way."""
    combiner, mine = late(service, is_bound=True)
    combiner.step()
    assert (mine.is_withdrawn, len(offers_of(service))) == (False, 1)


def test_a_withdrawal_that_is_not_answered_does_not_show_that_nothing_was_written(service: Service) -> None:
    combiner, mine = late(service, is_bound=False)
    service.items.plan("write", never_arrives)
    combiner.step()
    assert (mine.is_withdrawn, len(offers_of(service))) == (False, 1)
    assert isinstance(mine.outcome, errors.OutcomeUnknownError)


def test_a_process_that_has_not_read_all_offers_forgets_none_that_is_done(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an offer that it did not see would be bound again."""
    leaves_an_offer(service, "left")
    monkeypatch.setattr(limits, "OFFERS_READ_MAX", 1)
    stored, unseen = round_of(service), "zzzzzzzzzzz"
    assert stored is not None
    known = Round(stored.value["offset"], (), {unseen: 0})
    service.items.store.write([Put(stored.key, known.to_value(), stored.version + 1, stored.version)])
    append(creator(service), "mine")
    after = round_of(service)
    assert after is not None
    assert unseen in after.value["done"]


@pytest.mark.parametrize("size", [1, 2 * limits.OFFER_BYTES_MAX])
def test_a_bound_offer_whose_item_is_gone_holds_nothing_up(service: Service, size: int) -> None:
    """Its combiner died, and a sweeper with a wrong clock deleted the item."""
    log = contender(service)
    combiner = contends(log)
    (mine,) = queue_up(log, request("mine"), until_ms=service.runtime.monotonic_ms() + 60_000)
    assert combiner.offer()
    (offered,) = offers_of(service)
    binds(service, 1)
    service.items.store.write([Delete(offered.key, offered.version)])
    began = service.runtime.monotonic_ms()
    append(log, "x" * size)
    assert service.runtime.monotonic_ms() - began <= 5_000
    assert isinstance(mine.outcome, errors.OutcomeUnknownError)


def test_a_bound_offer_is_not_committed_an_hour_later(service: Service) -> None:
    leaves_an_offer(service, "left")
    binds(service, 1)
    service.runtime.advance(3_000_000)
    log = service.another()
    appender_of(log).partition.open()
    contends(log).own.served_at = -1
    append(log, "an hour later")
    assert b"left" not in service.values()


def test_an_offer_is_not_taken_for_an_earlier_one_that_was_bound_below_the_log_start(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of this process saw the earlier one committed before anything looked at its place."""
    log = contender(service)
    for _ in range(3):
        append(log, "before")
    log.partitions.trim(TOPIC, 0, 3)
    combiner = contends(log)
    combiner._bound = (1, service.runtime.monotonic_ms())
    monkeypatch.setattr(combiner._context.cache, "get", lambda key: None)
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 1))
    assert append(log, "mine").base_offset == 4


# Ghosts


def freezes_before_the_get_of(service: Service, offset: int, then: Callable[[], None]) -> None:
    """Run ``then`` once, right before the object at ``offset`` is read."""
    key = keys.segment_key(service.topic_id(), 0, offset)
    get = service.objects.store.get

    def frozen(asked: str, *rest: Any, **options: Any) -> Any:
        if asked == key:
            service.objects.store.get = get  # type: ignore[method-assign]
            then()
        return get(asked, *rest, **options)

    service.objects.store.get = frozen  # type: ignore[method-assign]


def becomes_a_ghost(service: Service, offset: int) -> None:
    """Trim beyond ``offset``, collect its segment, and let a frozen process's create land there."""
    found = segments(service)
    old = next(segment for segment in found if segment.base_offset == offset)
    service.log.partitions.trim(TOPIC, 0, found[-1].next_offset)
    for _ in range(4):
        service.runtime.advance(HOUR_MS + 1)
        strict_sweep(service.log, duration_ms=60_000, is_thorough=True)
    key = keys.segment_key(service.topic_id(), 0, offset)
    with pytest.raises(NotFound):
        service.objects.store.get(key)
    service.objects.store.create(key, old.body, old.metadata._replace(offers=(), write_id="0" * 32).to_strings())


def served(service: Service) -> tuple[Combiner, Ticket]:
    """Return a process whose offer the segment at ``LISTS`` lists, and that has not seen that."""
    log = contender(service)
    combiner = contends(log)
    (mine,) = queue_up(log, request("mine"))
    assert combiner.offer()
    append(creator(service), "rival")
    assert (mine.outcome, segments(service)[-1].base_offset) == (None, LISTS)
    assert len(segments(service)[-1].metadata.offers) == 1
    append(service.another(), "later")
    return combiner, mine


def test_a_ghost_does_not_show_that_an_offer_was_not_written(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process freezes between its look at the log start and the read of the segment that its offer is bound to."""
    monkeypatch.setattr(limits, "OFFER_KEPT_MS", 1 << 40)  # by the sweeper's clock it is not old yet
    combiner, mine = served(service)
    freezes_before_the_get_of(service, LISTS, lambda: becomes_a_ghost(service, LISTS))
    combiner.own.withdraw(combiner.own.unanswered())
    assert not mine.is_withdrawn, "the batch was committed, and its caller learns that nothing was written"
    assert isinstance(mine.outcome, errors.OutcomeUnknownError)


def test_a_ghost_does_not_free_what_a_round_binds(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A combiner freezes between its look at the log start and the read of the segment at the round's offset."""
    served(service)
    combiner, stored = contends(contender(service)), round_of(service)
    assert stored is not None
    known = Round.from_value(stored.value)
    assert (known.offset, len(known.bound)) == (LISTS, 1)
    monkeypatch.setattr(combiner._context.cache, "get", lambda key: None)  # the segment was dropped from it
    freezes_before_the_get_of(service, LISTS, lambda: becomes_a_ghost(service, LISTS))
    assert combiner._partition.last_listed[0] > LISTS
    assert combiner.round.listed_at(known) is None, "what it lists is not known, and counts as done"


def dies_frozen(service: Service, *values: str) -> Callable[[], None]:
    """Let a process freeze amid a create at the log's end. Return what lets the create land in a log that has left it.

    The log has moved on to its present end meanwhile, and all of it was collected.
    """
    base = service.log.partitions.offsets(TOPIC, 0).next_offset
    key = keys.segment_key(service.topic_id(), 0, base)
    append(service.another(), *values)
    late = service.objects.store.get(key)
    service.objects.store.delete(key)

    def lands() -> None:
        end = service.another().partitions.offsets(TOPIC, 0).next_offset
        service.another().partitions.trim(TOPIC, 0, end)
        service.runtime.advance(HOUR_MS + limits.ITEM_AGE_MS_MAX, monotonic_ms=0)
        for segment in segments(service):
            service.objects.store.delete(keys.segment_key(service.topic_id(), 0, segment.base_offset))
        service.objects.store.create(key, late.body, late.metadata)

    return lands


def test_no_round_is_moved_to_the_end_of_a_ghost(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A combiner freezes after it found its look young, and follows a late create to where the round is (I3, I16)."""
    log = creator(service)
    combiner, lands = combiner_of(log), dies_frozen(service, "late", "create")
    look = combiner.round.read_view

    def frozen() -> Any:
        monkeypatch.setattr(combiner.round, "read_view", look)
        append(service.another(), "b")
        leaves_an_offer(service, "c")  # and makes the round, at the log's end
        lands()
        return look()

    monkeypatch.setattr(combiner.round, "read_view", frozen)
    assert append(log, "mine").base_offset == 3
    assert append(service.another(), "follows").base_offset == 4, "its chain value follows"


def test_no_round_begins_at_the_end_of_a_ghost(service: Service) -> None:
    """A process freezes after it found its look young, and before it makes the round: what it folded may be one."""
    log = contender(service)
    combiner = combiner_of(log)
    queue_up(log, request("mine"))

    def frozen(call: Callable[[], Any]) -> Any:
        service.runtime.advance(limits.ITEM_AGE_MS_MAX, monotonic_ms=0)
        return call()

    service.items.plan("get", frozen)
    assert not combiner.offer()
    assert round_of(service) is None
    combiner._partition.open()
    assert combiner.offer()
    assert round_of(service) is not None


def test_a_ghost_is_not_folded_where_own_offers_are_bound(service: Service) -> None:
    """The process freezes while it waits for the segment."""
    combiner, lands = combiner_of(contender(service)), dies_frozen(service, "late")
    partition = combiner._partition
    bound = partition.state.next_offset
    append(service.another(), "b")
    append(service.another(), "c")
    lands()
    combiner._wait_for_segment(bound, combiner._now())
    assert partition.state.next_offset == bound + 2


def test_a_combiner_forms_no_group_on_a_ghost(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It freezes after it read the offers. Another thread has folded a late create that ends where the log ends."""
    log = creator(service)
    combiner, partition = combiner_of(log), appender_of(log).partition
    form = combiner._form

    def frozen(*args: Any) -> Any:
        monkeypatch.setattr(combiner, "_form", form)
        service.runtime.advance(limits.ITEM_AGE_MS_MAX, monotonic_ms=0)
        partition.state = partition.state._replace(chain="0" * 64)
        return form(*args)

    leaves_an_offer(service, "c")
    monkeypatch.setattr(combiner, "_form", frozen)
    base = append(log, "mine").base_offset
    assert append(service.another(), "follows").base_offset == base + 1, "its chain value follows"
    assert combiner._form == form, "it has frozen"


def test_an_offer_below_the_log_start_is_not_acknowledged(service: Service) -> None:
    """I7: as of an own create, its outcome is unknown, though the segment is still there and lists it."""
    combiner, mine = served(service)
    (own,) = combiner.own.unanswered()
    service.log.partitions.trim(TOPIC, 0, segments(service)[-1].next_offset)
    service.runtime.advance(limits.ITEM_AGE_MS_MAX)
    combiner.own.note_done(Round(LISTS + 1, (), {own.id: LISTS}))
    assert isinstance(mine.outcome, errors.OutcomeUnknownError)


def test_no_round_is_moved_back_where_another_thread_has_just_looked(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look turns old between two steps of a combiner, and another thread begins anew at the head."""
    log = creator(service)
    partition, young_end = appender_of(log).partition, type(appender_of(log).partition).young_end
    append(service.another(), "b")
    append(service.another(), "c")
    partition.open()
    service.runtime.advance(limits.ITEM_AGE_MS_MAX - 100, monotonic_ms=0)
    leaves_an_offer(service, "left")
    leaves_an_offer(service, "left, too")
    end, stored = segments(service)[-1].next_offset, round_of(service)
    assert stored is not None
    bound = Round(end, (keys.parse_offer_item(offers_of(service)[0].key),))  # by one whose create is under way
    service.items.store.write([Put(stored.key, bound.to_value(), stored.version + 1, stored.version)])

    def looks(_: Any) -> int | None:
        monkeypatch.setattr(type(partition), "young_end", young_end)
        service.runtime.advance(200)
        partition.refresh()
        return young_end.fget(partition)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(type(partition), "young_end", property(looks))
    rounds = []
    write = service.items.store.write

    def noted(changes: Any) -> None:
        write(changes)
        rounds.extend(Round.from_value(c.value) for c in changes if isinstance(c, Put) and "bound" in c.value)

    service.items.store.write = noted  # type: ignore[method-assign]
    append(log, "mine")
    assert type(partition).young_end is young_end
    assert [one for one in rounds if one.offset < end] == [], "the round moves forward only"
    assert all(-1 not in one.done.values() for one in rounds), "what is bound to the log's end is not lost"


def test_an_offer_bound_at_its_rounds_offset_stays_bound(service: Service) -> None:
    """I16: the process that bound it may have a create under way there, which lists it. So no other may free it."""
    log, second = creator(service), service.another()
    append(second, "second")
    leaves_an_offer(service, "old")
    (old,) = (keys.parse_offer_item(item.key) for item in offers_of(service))
    binds(service, segments(service)[-1].next_offset)
    service.runtime.advance(limits.OFFER_MS + 1)  # too old to be listed
    offers(second, 1 << 62, "young")
    contends(log).own.served_at = -1
    end = append(log, "mine").base_offset
    stored = round_of(service)
    assert stored is not None
    known = Round.from_value(stored.value)
    assert known.offset <= end
    assert segments(service)[-1].metadata.offers
    assert old not in segments(service)[-1].metadata.offers
    assert old in known.bound


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_sealed_log_frees_no_offer_that_was_listed_since_the_round_was_read(
    service: Service, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    """I16: a rival lists it, the topic is deleted, and another thread of its process follows the log to the SEAL."""
    log = contender(service)
    combiner, mine = offers(log, 1 << 62, "mine")
    partition, read_round = appender_of(log).partition, combiner.round.read

    def read() -> Any:
        found = read_round()
        monkeypatch.setattr(combiner.round, "read", read_round)
        if is_listed:
            append(creator(service), "rival")
            assert len(segments(service)[-1].metadata.offers) == 1
        service.log.topics.delete(TOPIC)
        partition.catch_up()
        assert partition.state.is_sealed
        return found

    monkeypatch.setattr(combiner.round, "read", read)
    while mine.outcome is None:
        combiner._combine()
    assert type(mine.outcome) is (Appended if is_listed else StaleTopicId)


def test_a_late_create_that_is_folded_after_the_look_says_nothing_of_the_rounds_segment(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I16: what lies at the round's offset is known only from what was read before the look that shows it is kept."""
    log = creator(service)
    append(log, "a")
    combiner, base = combiner_of(log), segments(service)[-1].base_offset
    partition, is_kept = combiner._partition, round_item.is_kept
    partition.last_listed = (-1, ())

    def looks(where: Partition, offset: int) -> bool:
        found = is_kept(where, offset)
        partition.last_listed = (base, ("bound",))  # another thread, of a process that was frozen here
        return found

    monkeypatch.setattr(round_item, "is_kept", looks)
    assert list(combiner.round.listed_at(Round(base, ("bound",))) or ()) == []


def test_a_round_that_this_process_wrote_itself_is_read_again_once_the_log_is_sealed(service: Service) -> None:
    """I16: a rival may have bound the offer since, and listed it below the SEAL."""
    log = contender(service)
    combiner, mine = offers(log, 1 << 62, "mine")
    partition = appender_of(log).partition
    combiner.round._written = round_of(service)
    append(creator(service), "rival")
    assert segments(service)[-1].metadata.offers
    service.log.topics.delete(TOPIC)
    partition.catch_up()
    partition.awaited.clear()  # as if the segment was passed over by a head
    combiner.own.served_at = -1
    combiner._backoff.losses, combiner._backoff.won_at = 0, combiner._now()
    while mine.outcome is None:
        combiner._combine()
    assert type(mine.outcome) is Appended
