"""The sweeper meets transactions: it ends what is due, reports what hangs or stays, and deletes ids that expired.

Protocol, "Meeting a transaction", "Hanging transactions" and "The state machine".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from fenceline.ports import Delete
from fenceline.service.log import Log
from fenceline.sweeper.report import SweepReport
from fenceline.transactions.hanging import find
from fenceline.transactions.item import TopicPartitions, TransactionItem
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, LogBuilder, Service, append, data, is_unavailable, serve
from tests.support.sweeping import Died, head_of, swept
from tests.support.transacting import TIMEOUT_MS, Producer, committed, opened, outcomes

DAY = 24 * limits.GC_GRACE_MS


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    # Everything is kept, so nothing but transactions is ever due in a partition.
    made.log.topics.create(TOPIC, partitions=4, config={"retention.ms": -1})
    yield made
    made.close()


def producer(service: Service, name: str = "orders", *partitions: int, log: Log | None = None) -> Producer:
    """Return a producer with an open transaction that has a record in each of these partitions."""
    made = Producer(service, log or service.log, name)
    made.begin()
    for partition in partitions:
        made.send(f"{name}{partition}", partition)
    return made


def settle(service: Service) -> None:
    """Let the thorough round pass that is due at first, with each checkpoint at its log's end."""
    assert swept(service).is_thorough
    assert swept(service).is_thorough is False


def dies_after_its_decision(service: Service, one: Producer, *, is_commit: bool = True) -> None:
    """Let END_TXN die before its first marker."""

    def die(operation: str, key: str) -> None:
        if operation == "create":
            raise Died

    service.objects.on_call = die
    with pytest.raises(Died):
        one.outcome(is_commit=is_commit)
    service.objects.on_call = None
    service.log = service.another()  # nothing of that process goes on


# What is open in a partition


def test_a_transaction_past_its_time_out_is_aborted_in_the_next_round(service: Service) -> None:
    one = producer(service, "orders", 0, 2)
    append(service.log, "plain")
    settle(service)
    service.runtime.advance(TIMEOUT_MS - (service.runtime.now_ms() - (one.stored().started_at or 0)))
    assert swept(service).transactions == 0
    assert opened(service) == [one.pair.producer_id]
    service.runtime.advance(1)
    report = swept(service)
    assert (report.transactions, report.transactions_overdue, report.problems) == (1, 0, [])
    assert (opened(service), opened(service, 2)) == ([], [])
    assert outcomes(service, 2) == [("abort", 1)]
    assert one.stored().state == COMPLETE_ABORT
    assert committed(service) == ["plain"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_is_finished_in_the_next_round(service: Service, is_commit: bool) -> None:
    """END_TXN died behind its decision, before its first marker (T 12)."""
    one = producer(service, "orders", 0, 1)
    settle(service)
    dies_after_its_decision(service, one, is_commit=is_commit)
    assert one.stored().state == (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
    assert swept(service).transactions == 1
    assert one.stored().state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    assert (committed(service), committed(service, 1)) == ((["orders0"], ["orders1"]) if is_commit else ([], []))


def test_an_open_transaction_that_is_not_due_is_read_once_in_a_run(service: Service) -> None:
    """Two calls for all that is open in a partition, and none for what another partition has shown."""
    names = [f"p{n}" for n in range(8)]
    for name in names:
        producer(service, name, 0, 1, 2)
    settle(service)
    looks: list[str] = []
    service.items.on_call = lambda operation, key: looks.append(key) if operation == "get" else None
    report = swept(service)
    service.items.on_call = None
    assert (report.transactions, report.partitions, report.problems) == (0, 4, [])
    assert len([key for key in looks if "p0" in key.split(",")]) == 1
    assert len(looks) <= 5


def test_a_run_remembers_a_bounded_number_of_producer_ids(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_FOUND_MAX", 3)
    some = [producer(service, f"p{n}", n % 4, (n + 1) % 4) for n in range(8)]
    settle(service)
    looks: list[str] = []
    service.items.on_call = lambda operation, key: looks.append(key) if operation == "get" else None
    assert swept(service).transactions == 0
    assert len([key for key in looks if "p0" in key.split(",")]) == 2, "it is forgotten, and read once more"
    service.items.on_call = None
    service.runtime.advance(2 * TIMEOUT_MS)
    assert swept(service).transactions == len(some)


def test_a_transaction_after_the_checkpoint_is_found_once_the_checkpoint_moves(service: Service) -> None:
    """A process that died before it wrote any checkpoint: the run that writes it meets what is open there."""
    one = producer(service, "orders", 3)
    service.runtime.advance(2 * TIMEOUT_MS)
    report = swept(service, is_thorough=False)
    assert (report.checkpoints, report.transactions) == (1, 1)
    assert opened(service, 3) == []
    assert one.stored().state == COMPLETE_ABORT


def test_a_transaction_in_trouble_delays_no_other_and_no_other_step(service: Service) -> None:
    """``CORRUPT_LOG`` in one partition keeps its transaction prepared. That is reported, and tried once in a run."""
    bad, good = producer(service, "bad", 0, 1, 2), producer(service, "good", 0, 1)
    settle(service)
    damaged = keys.segment_key(service.topic_id(), 2, 1)
    service.objects.store.create(damaged, b"damaged", {})
    service.log.topics.alter(TOPIC, config={"retention.bytes": 0})
    service.runtime.advance(2 * TIMEOUT_MS)
    tries: list[str] = []
    service.objects.on_call = lambda operation, key: tries.append(key) if (operation, key) == ("get", damaged) else None
    report = swept(service, is_thorough=True)
    service.objects.on_call = None
    assert (report.transactions, report.is_corrupt, report.is_whole) == (1, True, True)
    assert (bad.stored().state, good.stored().state) == (PREPARE_ABORT, COMPLETE_ABORT)
    reported = [problem for problem in report.problems if f"producer_id={bad.pair.producer_id}:" in problem]
    assert len(reported) == 1
    assert report.log_starts >= 1, "the partition's other steps were taken"
    assert report.transactions_overdue == 0


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_transaction_due_for_five_minutes_is_overdue_and_counted_once_in_a_run(
    service: Service, is_prepared: bool
) -> None:
    one = producer(service, "orders", 0, 1)
    settle(service)
    if is_prepared:
        dies_after_its_decision(service, one)
    # Neither its items, nor its markers, can be written.
    service.items.always("write", is_unavailable, "orders")
    service.objects.always("create", is_unavailable, "log/")
    service.runtime.advance(limits.TRANSACTION_OVERDUE_MS + (0 if is_prepared else TIMEOUT_MS) - 120_000)
    assert swept(service).transactions_overdue == 0
    service.runtime.advance(120_001)
    report = swept(service, is_thorough=True)
    assert (report.transactions, report.transactions_overdue) == (0, 1)
    assert any(f"transaction of producer_id={one.pair.producer_id}: " in problem for problem in report.problems)
    service.items.always("write", None)
    service.objects.always("create", None)
    report = swept(service)
    assert (report.transactions, report.transactions_overdue) == (1, 0)


def test_one_in_trouble_that_takes_a_run_s_time_is_not_always_the_first(service: Service) -> None:
    """Whatever comes first, the others have their turn in some run."""
    stuck, other = producer(service, "stuck", 0), producer(service, "other", 0)
    settle(service)

    def takes_long(call: Callable[[], Any]) -> Any:
        service.runtime.advance(limits.SWEEP_MEETING_MS)
        return is_unavailable(call)

    service.items.always("write", takes_long, "stuck")
    service.runtime.advance(2 * TIMEOUT_MS)
    for _ in range(20):
        swept(service, duration_ms=limits.SWEEP_MEETING_MS)
        if other.stored().state == COMPLETE_ABORT:
            break
    assert (stuck.stored().state, other.stored().state) == (ONGOING, COMPLETE_ABORT)


def test_a_run_works_for_a_bounded_time_on_one_transaction(service: Service) -> None:
    one = producer(service, "stuck", 0, 1)
    settle(service)
    service.objects.always("create", is_unavailable, keys.log_prefix(service.topic_id(), 1))
    service.runtime.advance(2 * TIMEOUT_MS)
    before = service.runtime.monotonic_ms()
    report = swept(service)
    assert service.runtime.monotonic_ms() - before < 2 * limits.SWEEP_MEETING_MS
    assert (report.is_whole, one.stored().state, opened(service)) == (True, PREPARE_ABORT, [])


# What hangs


def hang(service: Service, *parts: Any, partition: int = 0) -> None:
    """Make a log whose transactions no coordinator knows."""
    builder = LogBuilder(topic_id=service.topic_id(), partition=partition)
    for part in parts:
        builder.add(part)
    builder.store(service.objects.store)


def test_a_hanging_transaction_is_reported_in_each_round_and_never_ended(service: Service) -> None:
    hang(
        service,
        data("a", producer=(9, 4, 0), is_transactional=True),
        data("b", producer=(7, 3, 0), is_transactional=True),
    )
    settle(service)
    for is_thorough in (False, True):
        report = swept(service, is_thorough=is_thorough)
        assert report.transactions_hanging == 2
        (problem,) = report.problems
        assert f"topic={TOPIC} partition=0: transactions hang" in problem
        assert problem.endswith("count=2 producer_id=9 producer_epoch=4 first_offset=0")
        assert not report.is_corrupt
    assert (opened(service), outcomes(service)) == ([7, 9], [])


def test_a_transaction_that_ended_after_the_checkpoint_does_not_hang(service: Service) -> None:
    """The head shows it open, its items say that it is past: the log is looked at once more."""
    one = producer(service, "orders", 0)
    settle(service)
    one.end()
    assert head_of(service.items.store, service.topic_id()).state.open_transactions
    report = swept(service)
    assert (report.transactions_hanging, report.problems) == (0, [])


def test_an_id_that_was_given_after_the_run_had_looked_does_not_hang(service: Service) -> None:
    """Items are read anew before the log is looked at: what a run remembers of them is from its first look."""
    producer(service, "orders", 0, 1)
    settle(service)
    forgotten: list[None] = []

    def forget(operation: str, key: str) -> None:
        """Let the first look find nothing, as if it came before the id was given."""
        if operation == "get" and key.startswith("0" * 19) and not forgotten:
            forgotten.append(None)
            service.items.plan("get", lambda call: {})

    service.items.on_call = forget
    report = swept(service)
    service.items.on_call = None
    assert forgotten
    assert (report.transactions_hanging, report.problems) == (0, [])


# Every id, hourly


def test_a_transaction_without_records_is_aborted_within_the_hour(service: Service) -> None:
    """A partition was added and got no batch: no head shows it."""
    one = producer(service)
    one.add(0, 1)
    settle(service)
    service.runtime.advance(TIMEOUT_MS + 1)
    assert swept(service).transactions == 0
    assert one.stored().state == ONGOING
    assert swept(service, is_thorough=True).transactions == 1
    assert one.stored().state == COMPLETE_ABORT
    assert outcomes(service) == [("abort", 1)]


def test_both_items_of_an_id_go_seven_days_after_its_last_request(service: Service) -> None:
    one, alive = producer(service, "over", 0), producer(service, "alive")
    one.end()
    settle(service)
    service.runtime.advance(7 * DAY - 1)
    swept(service, is_thorough=True)
    assert one.stored()
    alive.begin()
    service.runtime.advance(1 + (one.stored().updated_at + 7 * DAY - service.runtime.now_ms()))
    assert swept(service).items == 0, "ids expire in a thorough round"
    report = swept(service, is_thorough=True)
    assert (report.is_whole, report.problems) == (True, [])
    assert find(service.log.context, [one.pair.producer_id])[one.pair.producer_id] == (None, None)
    assert alive.stored()
    former = one.pair.producer_id
    assert one.begin().producer_id > former


def test_a_round_without_any_producer_id_asks_no_shard(service: Service) -> None:
    append(service.log, "plain")
    shards: list[str] = []
    service.items.on_call = lambda operation, key: shards.append(key) if operation == "query" else None
    assert swept(service).is_thorough
    assert not [key for key in shards if key.startswith(("transactions/", "producer-ids/"))]
    service.log.producing.new_producer_id()
    assert swept(service, is_thorough=True).is_whole
    assert len([key for key in shards if key.startswith(("transactions/", "producer-ids/"))]) == 100


def test_runs_that_are_cut_off_go_on_where_they_were(service: Service) -> None:
    """Each meets some; together they meet every id once, and end the round."""
    some = [producer(service, f"p{n}") for n in range(40)]
    for one in some:
        one.add(0)
    settle(service)
    service.runtime.advance(TIMEOUT_MS + 1)
    service.items.on_call = lambda operation, key: service.runtime.advance(10)
    runs: list[SweepReport] = [swept(service, duration_ms=600, is_thorough=True)]
    position = service.items.store.get([keys.SWEEP_CURSOR])[keys.SWEEP_CURSOR].value
    assert (position["place"], position["after"]) > ("transactions", "00/")
    while not runs[-1].is_whole:
        runs.append(swept(service, duration_ms=600))
        assert len(runs) < 100
    assert len(runs) > 3
    assert sum(run.transactions for run in runs) == 40
    assert {one.stored().state for one in some} == {COMPLETE_ABORT}


def test_a_transaction_that_the_item_of_its_producer_id_does_not_lead_to_is_finished(service: Service) -> None:
    """A rebuild found a producer id open at two epochs, and made a transaction for each."""
    service.log.producing.new_producer_id()
    hang(service, data("a", producer=(70, 3, 0), is_transactional=True))
    named = (TopicPartitions(service.topic_id(), TOPIC, (0,)),)
    item = TransactionItem("recovered-70-3", 70, 4, PREPARE_COMMIT, 60_000, decided_at=0, partitions=named)
    service.items.store.write([item.put(service.runtime)])
    report = swept(service, is_thorough=True)
    assert report.transactions == 1
    assert (committed(service), outcomes(service)) == (["a"], [("commit", 4)])


def test_a_transaction_whose_id_expired_hangs(service: Service) -> None:
    """Only damage makes this: an id expires from a state in which nothing of it is open."""
    one = producer(service, "orders", 0)
    settle(service)
    stored = one.stored()
    assert stored.version is not None
    service.items.store.write([Delete(keys.transaction_item("orders"), stored.version)])
    assert swept(service).transactions_hanging == 1


def test_a_stale_look_at_a_prepared_transaction_does_no_harm(service: Service) -> None:
    """What this run remembers as prepared has been finished, and the next transaction is open at its epoch."""
    one = producer(service, "orders", 0, 1)
    settle(service)
    dies_after_its_decision(service, one)
    one.log = service.log

    def finish_and_begin(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("log/"):
            service.objects.on_call = None
            one.end()
            one.send("next", 0)
            one.send("next", 1)

    service.objects.on_call = finish_and_begin
    report = swept(service)
    assert (report.problems, report.transactions_hanging) == ([], 0)
    assert one.stored().state == ONGOING
    assert outcomes(service) == [("commit", 1)]
    assert opened(service) == opened(service, 1) == [one.pair.producer_id]
    one.end()
    assert committed(service) == ["orders0", "next"]


def test_the_end_of_a_server_ends_a_run_between_two_transactions(service: Service) -> None:
    some = [producer(service, f"p{n}", 0) for n in range(5)]
    settle(service)
    service.runtime.advance(2 * TIMEOUT_MS)
    log = service.another()

    def stop(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("log/"):
            log.context.stopping.is_set = True

    service.objects.on_call = stop
    report = swept(service, log)
    assert (report.is_whole, report.transactions) == (False, 1)
    assert sum(one.stored().state == COMPLETE_ABORT for one in some) == 1


def test_a_marker_that_another_process_appended_meanwhile_is_not_repeated(service: Service) -> None:
    """A thorough round meets the id again after it met the partition: one marker in each."""
    producer(service, "orders", 0, 1)
    settle(service)
    service.runtime.advance(2 * TIMEOUT_MS)
    swept(service, is_thorough=True)
    swept(service, is_thorough=True)
    assert outcomes(service) == outcomes(service, 1) == [("abort", 1)]


# Wrong clocks


def clock(service: Service, ahead_ms: int) -> FakeRuntime:
    """Return the clocks of a process whose wall clock is wrong."""
    made = FakeRuntime()
    made.wall_ms = service.runtime.wall_ms + ahead_ms
    return made


@pytest.mark.parametrize("is_thorough", [False, True])
def test_a_transaction_begun_by_a_fast_clock_is_reported_and_ended_by_the_next_run(
    service: Service, is_thorough: bool
) -> None:
    """It would hold its readers for 30 days. Its time-out never counts from that time."""
    settle(service)
    one = producer(service, "orders", 0, 1, log=service.another(runtime=clock(service, 30 * DAY)))
    append(service.log, "plain")
    service.runtime.advance(limits.CHECKPOINT_MS)
    assert committed(service) == []
    report = swept(service, is_thorough=is_thorough)
    assert (report.transactions, report.transactions_ahead, report.transactions_overdue) == (1, 1, 0)
    (problem,) = report.problems
    assert f"producer_id={one.pair.producer_id}" in problem
    assert one.stored().state == COMPLETE_ABORT
    assert committed(service) == ["plain"]
    assert swept(service, is_thorough=is_thorough).transactions_ahead == 0


def test_an_extension_by_a_clock_that_is_ahead_does_not_count_and_the_time_out_does(service: Service) -> None:
    settle(service)
    one = producer(service, "orders", 0)
    extended = replace(one.stored(), expires_at=service.runtime.now_ms() + 30 * DAY)
    service.items.store.write([extended.put(service.runtime)])
    service.runtime.advance(limits.CHECKPOINT_MS)
    report = swept(service)
    assert (report.transactions, report.transactions_ahead) == (0, 1)
    service.runtime.advance(TIMEOUT_MS + 1)
    assert swept(service).transactions == 1
    assert one.stored().state == COMPLETE_ABORT


def test_a_transaction_extended_to_the_limit_is_not_ahead(service: Service) -> None:
    """I28: also by a clock that is ahead as far as clocks may be."""
    settle(service)
    off_ms = limits.TRANSACTION_AHEAD_MS
    one = producer(service, "orders", 0, log=service.another(runtime=clock(service, off_ms)))
    one.coordinator.extend("orders", one.pair, limits.EXTENSION_MS_MAX, one.until_ms)
    service.runtime.advance(off_ms + limits.EXTENSION_MS_MAX)
    report = swept(service)
    assert (report.transactions, report.transactions_ahead, report.problems) == (0, 0, [])
    service.runtime.advance(1)
    assert swept(service).transactions == 1


def test_a_sweeper_whose_clock_is_ahead_ends_nothing_early(service: Service) -> None:
    """A time-out is over when the store's clock says so, too."""
    settle(service)
    one = producer(service, "orders", 0)
    service.runtime.advance(limits.CHECKPOINT_MS)
    report = swept(service, service.another(runtime=clock(service, 30 * DAY)))
    assert (report.transactions, report.transactions_ahead) == (0, 0)
    service.runtime.advance(TIMEOUT_MS + 1)
    assert swept(service, service.another(runtime=clock(service, 30 * DAY))).transactions == 1
    assert one.stored().state == COMPLETE_ABORT


def test_a_sweeper_whose_clock_is_behind_takes_no_transaction_for_one_that_is_ahead(service: Service) -> None:
    settle(service)
    one = producer(service, "orders", 0)
    service.runtime.advance(2 * TIMEOUT_MS)
    report = swept(service, service.another(runtime=clock(service, -30 * DAY)))
    assert (report.transactions, report.transactions_ahead, one.stored().state) == (0, 0, ONGOING)


def test_a_sweeper_that_was_frozen_asks_the_store_for_its_time_before_it_calls_a_time_ahead(service: Service) -> None:
    """What was begun meanwhile is later than the time with which its run began, and in order."""
    settle(service)
    old = producer(service, "old", 0)
    begun: list[Producer] = []

    def thaw(operation: str, key: str) -> None:
        if operation == "query" and key.startswith("transactions/") and not begun:
            service.runtime.advance(DAY, monotonic_ms=0)
            begun.append(producer(service, "new", 1))

    service.items.on_call = thaw
    report = swept(service, is_thorough=True)
    service.items.on_call = None
    assert (report.transactions_ahead, report.problems) == (0, [])
    assert begun[0].stored().state == ONGOING
    assert old.stored().state == COMPLETE_ABORT


def test_the_store_is_asked_once_for_all_that_were_read_together(service: Service) -> None:
    """However many clocks are wrong: each time that is asked for costs three calls."""
    settle(service)
    ahead = service.another(runtime=clock(service, 30 * DAY))
    for n in range(5):
        producer(service, f"p{n}", 0, log=ahead)
    service.runtime.advance(limits.CHECKPOINT_MS)
    asked: list[str] = []

    def note(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(keys.CLOCK_PREFIX):
            asked.append(key)

    service.objects.on_call = note
    report = swept(service)
    service.objects.on_call = None
    assert (report.transactions, report.transactions_ahead) == (5, 5)
    assert len(asked) == 2, "as the run began, and behind the look at the five"


@pytest.mark.parametrize("is_thorough", [False, True])
def test_the_store_is_asked_anew_for_what_is_read_later(service: Service, is_thorough: bool) -> None:
    """A run that has asked is frozen before it looks at the next partition, or at the next page of ids."""
    settle(service)
    names = sorted((f"p{n}" for n in range(9)), key=lambda name: keys.transaction_item(name).partition)
    ahead = producer(service, names[0], log=service.another(runtime=clock(service, 30 * DAY)))
    one = producer(service, names[-1])
    for at, each in enumerate([ahead, one]):
        each.add(at)
        if not is_thorough:
            each.send("v", at)
    service.runtime.advance(limits.CHECKPOINT_MS)
    page = keys.transaction_item(one.transactional_id).partition
    look = ("query", page) if is_thorough else ("get", f"{one.pair.producer_id:020d}")
    begun: list[Producer] = []

    def thaw(operation: str, key: str) -> None:
        if (operation, key) == look and not begun:
            begun.append(one)
            service.runtime.advance(DAY, monotonic_ms=0)
            one.end(is_commit=False)
            one.add(1)

    service.items.on_call = thaw
    report = swept(service, is_thorough=is_thorough)
    service.items.on_call = None
    assert begun
    assert (report.transactions_ahead, one.stored().state) == (1, ONGOING)


def test_a_transaction_read_again_is_judged_by_a_later_time_of_the_store(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two reads of a transaction that is due, the run is frozen, and the next one begins."""
    settle(service)
    producer(service, "ahead", 0, log=service.another(runtime=clock(service, 30 * DAY)))
    one = producer(service, "one", 0)
    service.runtime.advance(limits.CHECKPOINT_MS + TIMEOUT_MS)
    first, begun = f"{one.pair.producer_id:020d}", list[Producer]()

    def thaw(operation: str, key: str) -> None:
        if operation == "get" and key == first and not begun:
            begun.append(one)
            service.runtime.advance(DAY, monotonic_ms=0)
            one.end(is_commit=False)
            one.send("next", 1)

    monkeypatch.setattr(type(service.runtime), "random", lambda _: 0.0)  # the one that is ahead is met first
    service.items.on_call = thaw
    report = swept(service)
    service.items.on_call = None
    assert begun
    assert (report.transactions_ahead, one.stored().state) == (1, ONGOING)


def test_an_end_decided_by_a_fast_clock_is_finished_by_a_reader_or_overdue(
    service: Service,
) -> None:
    """A reader leaves what is young to its producer, and a time of tomorrow is not young for a day."""
    settle(service)
    one = producer(service, "orders", 0, 1, log=service.another(runtime=clock(service, DAY)))
    dies_after_its_decision(service, one)
    service.runtime.advance(limits.CHECKPOINT_MS)
    service.objects.always("create", is_unavailable, keys.log_prefix(service.topic_id(), 1))
    report = swept(service)
    assert (report.transactions, report.transactions_ahead, report.transactions_overdue) == (0, 1, 1)
    service.objects.always("create", None)
    assert committed(service) == ["orders0"]
