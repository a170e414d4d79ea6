"""Consumers of one group over the real service: what each is given, what it commits, and what a zombie cannot do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from fenceline import errors
from fenceline.client import Client, Consumer
from fenceline.client.transactions.errors import TransactionAbortedError
from fenceline.model.transaction import TopicPartition
from fenceline.runtime import ThreadRuntime
from tests.support.patience import wait_until
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request

HOUR_MS = 3_600_000


@pytest.fixture
def wire() -> Wire:
    """A service with 4 partitions of 10 records."""
    made = Wire(partitions=4)
    for partition in range(4):
        made.fill(*(b"%d" % n for n in range(10)), partition=partition)
    return made


def consume(wire: Wire, **options: Any) -> Consumer:
    client = wire.client(ThreadRuntime(), retry_ms=2_000)
    return client.consumer("t", **{"group": "g", "start": "earliest", **options})


def read_all(wire: Wire, **options: Any) -> list[tuple[int, int]]:
    """Return partition and offset of all that a consumer of the group reads up to the end."""
    with consume(wire, follow=False, **options) as consumer:
        return sorted((partition, record.offset) for _, partition, record in consumer)


def committed(wire: Wire, group: str = "g") -> dict[int, int]:
    return {one.partition: one.offset for one in wire.outside.committed_offsets(group)}


class Worker(threading.Thread):
    """A program that consumes in a thread until ``stop``; ``said`` has its callbacks, in order."""

    def __init__(self, wire: Wire, *, hold: Callable[[int, int], object] = lambda *_: None, **options: Any) -> None:
        super().__init__(daemon=True)
        self.said: list[tuple[str, Any]] = []
        self.error: BaseException | None = None
        self._hold = hold
        self._is_stopping = False
        self.consumer = consume(
            wire,
            on_assigned=lambda some: self.said.append(("assigned", some)),
            on_revoked=lambda some: self.said.append(("revoked", some)),
            on_lost=lambda some: self.said.append(("lost", some)),
            max_records=3,
            **options,
        )
        self.start()

    def run(self) -> None:
        try:
            for _, partition, record in self.consumer:
                self.said.append(("record", (partition, record.offset)))
                self._hold(partition, record.offset)
                if self._is_stopping:
                    return
        except BaseException as error:  # noqa: BLE001  a test looks at it
            self.error = error

    def told(self, what: str) -> list[int]:
        return sorted(one.partition for kind, some in list(self.said) if kind == what for one in some)

    @property
    def records(self) -> list[tuple[int, int]]:
        return [one for kind, one in list(self.said) if kind == "record"]

    def hear(self) -> bool:
        """Send the next heartbeat at once, for tests that do not wait for it; return True."""
        self.consumer._heart.hurry()
        return True


@contextmanager
def worker(wire: Wire, **options: Any) -> Iterator[Worker]:
    made = Worker(wire, **options)
    try:
        yield made
    finally:
        made._is_stopping = True
        made.consumer._leave()
        made.consumer._reads.wake()


def test_one_consumer_reads_all_partitions_commits_all_and_leaves(wire: Wire) -> None:
    assert read_all(wire) == [(partition, offset) for partition in range(4) for offset in range(10)]
    assert committed(wire) == dict.fromkeys(range(4), 10)
    assert wire.outside.group("g").group.state == "Empty"
    reads = wire.values("readSubscription")
    assert [one.get("require_stable") for one in reads if "offset" not in one] == ["true"] * 4
    assert read_all(wire) == []


def test_a_second_member_gets_its_share_where_the_first_has_ended(wire: Wire) -> None:
    with worker(wire) as first:
        wait_until(lambda: len(first.records) == 40)
        with worker(wire) as second:
            wait_until(lambda: first.hear() and len(second.told("assigned")) == 2)
            moved = second.told("assigned")
            for partition in range(4):
                wire.fill(b"more", partition=partition)
            wait_until(lambda: len(second.records) == 2)
            wait_until(lambda: len(first.records) == 42)

    assert first.told("revoked") == moved
    assert sorted(second.records) == [(partition, 10) for partition in moved]
    at = first.said.index(("revoked", [TopicPartition("t", partition) for partition in moved]))
    assert not [one for kind, one in first.said[at:] if kind == "record" and one[0] in moved]


def test_what_was_read_ahead_of_a_partition_that_is_asked_back_is_not_handed_out(wire: Wire) -> None:
    gate = threading.Event()
    with worker(wire, hold=lambda *_: gate.wait()) as first:
        wait_until(lambda: first.records)
        in_hand = first.records[0]
        with worker(wire) as second:
            wait_until(lambda: first.hear() and len(first.consumer._member.places._shown) == 2)
            assert second.records == []  # the first has not stopped
            gate.set()
            wait_until(lambda: len(first.records) + len(second.records) == 40)

    assert sorted(first.records + second.records) == [(p, offset) for p in range(4) for offset in range(10)]
    at = next(n for n, (kind, _) in enumerate(first.said) if kind == "revoked")
    assert first.said[at - 1] == ("record", in_hand)  # asked between this record and the next one


def test_what_is_done_is_committed_before_a_partition_is_reported_as_stopped(wire: Wire) -> None:
    with worker(wire) as first:
        wait_until(lambda: len(first.records) == 40)
        with worker(wire) as second:
            wait_until(lambda: first.hear() and second.told("assigned"))

    moved = first.told("revoked")
    operations = [(one.operation, one.value) for one in wire.sent]
    commits = [n for n, (name, _) in enumerate(operations) if name == "commitGroupOffsets"]
    released = next(
        n
        for n, (name, value) in enumerate(operations)
        if name == "heartbeatMember"
        and value["member_epoch"] > 1
        and {p for one in value.get("owned", []) for p in one["partitions"]} == {*range(4)} - {*moved}
    )
    assert commits[0] < released
    assert {partition: committed(wire)[partition] for partition in moved} == dict.fromkeys(moved, 10)


def test_a_record_is_done_once_the_next_is_asked_for(wire: Wire) -> None:
    with consume(wire, follow=False) as consumer:
        found = []
        for _, partition, record in consumer:
            found.append((partition, record.offset))
            if len(found) == 15:
                break

    partition, offset = found[-1]
    assert sum(committed(wire).values()) == 14
    assert committed(wire).get(partition, 0) == offset  # the one in hand comes again
    assert len(read_all(wire)) == 26


def test_an_iteration_that_was_left_goes_on_with_the_next_record(wire: Wire) -> None:
    found = []
    with consume(wire, follow=False) as consumer:
        while True:
            one = next(iter(consumer), None)
            if one is None:
                break
            found.append((one[1], one[2].offset))

    assert sorted(found) == [(partition, offset) for partition in range(4) for offset in range(10)]


def test_pages_hold_the_same_records_and_are_done_as_a_whole(wire: Wire) -> None:
    with consume(wire, follow=False, max_records=4) as consumer:
        sizes = [len(records) for _, _, records in consumer.pages()]

    assert sum(sizes) == 40
    assert max(sizes) == 4
    assert committed(wire) == dict.fromkeys(range(4), 10)


def test_an_exception_in_the_block_commits_what_was_done_and_leaves(wire: Wire) -> None:
    def fail_at_the_eighth() -> None:
        with consume(wire, follow=False) as consumer:
            for n, _ in enumerate(consumer):
                assert n < 7

    with pytest.raises(AssertionError):
        fail_at_the_eighth()

    assert sum(committed(wire).values()) == 7
    assert wire.outside.group("g").group.state == "Empty"


def test_manual_commits_commit_with_the_record_in_hand_or_one_offset(wire: Wire) -> None:
    with consume(wire, follow=False, commit="manual") as consumer:
        topic, partition, record = next(iter(consumer))
        assert committed(wire) == {}
        consumer.commit()
        assert committed(wire) == {partition: record.offset + 1}
        consumer.commit(topic, partition, 5)
        assert committed(wire) == {partition: 5}
        assert consumer.next_offsets() == []  # what is beyond them is committed already
        with pytest.raises(errors.InvalidRequestError, match="a topic, a partition and an offset"):
            consumer.commit(topic)
        with pytest.raises(errors.StaleMemberEpochError):
            consumer.commit("t", 99, 0)
        list(consumer)

    assert committed(wire) == {partition: 5}


def test_a_token_grows_from_holder_to_holder_and_only_the_holder_has_it(wire: Wire) -> None:
    tokens = []
    for _ in range(2):
        with consume(wire, follow=False, commit="manual") as consumer:
            list(consumer)
            tokens.append(consumer.token("t", 0))
    assert tokens[0] < tokens[1]
    with pytest.raises(errors.StaleMemberEpochError):
        consumer.token("t", 0)
    assert consumer.partitions == []


def test_a_member_that_was_removed_commits_nothing_and_is_told_and_begins_again(wire: Wire) -> None:
    gate = threading.Event()
    with worker(wire, hold=lambda *_: gate.wait(), commit="manual") as frozen:
        wait_until(lambda: frozen.records)
        before = frozen.consumer.member_id
        wire.outside.leave_group("g", before)  # as an operator removes it
        with worker(wire) as other:
            wait_until(lambda: len(other.records) == 40)
            with pytest.raises(errors.StaleMemberEpochError):
                frozen.consumer.commit()
            other.consumer.close()
        gate.set()
        wait_until(lambda: frozen.told("lost") == [0, 1, 2, 3])
        assert committed(wire) == dict.fromkeys(range(4), 10)
        assert frozen.consumer.member_id != before


def test_a_consumer_whose_process_was_frozen_beyond_its_lease_hands_out_nothing_of_what_it_had(wire: Wire) -> None:
    runtime = _Jumping()
    client = Client("http://fake", runtime=runtime, http=wire, retry_ms=2_000)
    told: list[str] = []
    with client.consumer(
        "t",
        group="g",
        start="earliest",
        commit="manual",
        on_assigned=lambda _: told.append("assigned"),
        on_lost=lambda _: told.append("lost"),
    ) as consumer:
        records = iter(consumer)
        next(records)
        wire.faults["heartbeatMember"] = [loses_the_request] * 3
        runtime.ahead_ms += HOUR_MS
        wire.clock.ahead_ms += HOUR_MS
        next(records)

    assert told == ["assigned", "lost", "assigned"]


class _Jumping(ThreadRuntime):
    """A runtime whose monotonic clock a test sets forward."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


@pytest.mark.parametrize("fault", [loses_the_answer, loses_the_request])
def test_a_lost_join_is_sent_again_and_joins_once(wire: Wire, fault: Callable[..., httpx.Response]) -> None:
    wire.faults["heartbeatMember"] = [fault]
    with consume(wire, follow=False) as consumer:
        assert len(list(consumer)) == 40
        assert [one.member_id for one in wire.outside.group("g").members] == [consumer.member_id]


@pytest.mark.parametrize("error", [errors.StaleMemberEpochError("late", topic="t", partition=0)])
def test_a_page_and_a_commit_that_were_refused_as_stale_are_asked_for_again(
    wire: Wire, error: errors.FencelineError
) -> None:
    wire.faults["readSubscription"] = [answers(error)]
    wire.faults["commitGroupOffsets"] = [answers(error)]

    assert len(read_all(wire)) == 40
    assert committed(wire) == dict.fromkeys(range(4), 10)
    assert wire.count("commitGroupOffsets") == 2


def test_a_commit_by_itself_that_is_not_answered_is_made_again_later(wire: Wire) -> None:
    with consume(wire, follow=False, commit_every_ms=1) as consumer:
        wire.faults["commitGroupOffsets"] = [loses_the_request] * 2
        consumer._client._transport._retry_ms = 0
        assert len(list(consumer)) == 40
    assert committed(wire) == dict.fromkeys(range(4), 10)


def test_a_refusal_that_lasts_is_raised_to_the_program(wire: Wire) -> None:
    with consume(wire) as consumer:
        wire.scripts["heartbeatMember"] = lambda *_: answers(errors.NotAuthorizedError("no longer"))(lambda: None)  # type: ignore[arg-type,return-value]
        consumer._heart.hurry()
        with pytest.raises(errors.NotAuthorizedError):
            for _ in consumer:
                pass


def test_a_static_member_that_starts_again_has_its_partitions_at_once(wire: Wire) -> None:
    with worker(wire, instance_id="w-1") as first, worker(wire, instance_id="w-2") as second:
        wait_until(lambda: first.hear() and len(first.consumer.partitions) == len(second.consumer.partitions) == 2)
        had = first.consumer.partitions
        first.consumer.close()
        members = wire.outside.group("g").members
        assert sorted((one.instance_id, one.is_away) for one in members) == [("w-1", True), ("w-2", False)]
        with worker(wire, instance_id="w-1") as again:
            wait_until(lambda: again.consumer.partitions == had)
            assert len(second.consumer.partitions) == 2


def test_an_instance_id_in_use_is_waited_for(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    with worker(wire, instance_id="w-1") as first:
        wait_until(lambda: first.consumer.partitions)
        with worker(wire, instance_id="w-1") as second:
            assert "waits for its instance id" in caplog.text
            assert second.consumer.member_epoch == 0
            first.consumer.close()
            wait_until(lambda: len(second.consumer.partitions) == 4)


def test_a_topic_that_comes_later_and_partitions_that_are_added_are_read(wire: Wire) -> None:
    client = wire.client(ThreadRuntime())
    found: set[tuple[str, int]] = set()
    with client.consumer(prefix="log-", group="g", session_timeout_ms=6_000) as consumer:
        thread = threading.Thread(target=lambda: _read_until_closed(consumer, found), daemon=True)
        thread.start()
        wire.service.log.topics.create("log-a", partitions=2)
        wire.fill(b"x", topic="log-a", partition=1)
        wire.clock.ahead_ms += 3_000
        wait_until(lambda: len(consumer.partitions) == 2)
        wire.service.log.topics.alter("log-a", partitions=3)
        wire.clock.ahead_ms += 3_000
        wait_until(lambda: len(consumer.partitions) == 3)


def _read_until_closed(consumer: Consumer, found: set[tuple[str, int]]) -> None:
    with suppress(RuntimeError):
        for topic, partition, _ in consumer:
            found.add((topic, partition))


def test_a_consumer_that_follows_polls_all_of_its_partitions_by_one_request_as_its_member(wire: Wire) -> None:
    with worker(wire) as only:
        wait_until(lambda: len(only.records) == 40)
        first = wire.values("pollRecords")[0]

    assert wire.count("readSubscription") == 0
    assert [(one["partition"], one["subscription"]) for one in first["positions"]] == [(n, "g") for n in range(4)]
    assert all(one["require_stable"] and one["topic_id"] for one in first["positions"])
    assert (first["member_id"], first["member_epoch"]) == (only.consumer.member_id, 1)


def test_a_polled_page_that_is_refused_as_stale_is_asked_for_again(wire: Wire) -> None:
    wire.faults["pollRecords"] = [answers(errors.StaleMemberEpochError("late", topic="t", partition=0))]
    with worker(wire) as only:
        wait_until(lambda: len(only.records) == 40)
    assert only.told("lost") == []


def test_a_consumer_of_a_service_without_polls_reads_each_partition_alone(wire: Wire) -> None:
    wire.scripts["pollRecords"] = lambda *_: answers(errors.NotFoundError("an older service"))(lambda: None)  # type: ignore[arg-type,return-value]
    with worker(wire) as only:
        wait_until(lambda: len(only.records) == 40)
    assert wire.count("readSubscription") >= 4


def test_a_heartbeat_whose_answer_was_lost_is_followed_by_one_that_reports_all(wire: Wire) -> None:
    with worker(wire, session_timeout_ms=6_000) as only:
        wait_until(lambda: len(only.records) == 40)
        sent = wire.count("heartbeatMember")
        wire.faults["heartbeatMember"] = [loses_the_answer]
        only.hear()
        wait_until(lambda: wire.count("heartbeatMember") > sent + 1)

    lost, after = wire.values("heartbeatMember")[sent : sent + 2]
    assert "owned" not in lost
    assert [one["partitions"] for one in after["owned"]] == [[0, 1, 2, 3]]
    assert only.told("lost") == []


def test_a_heartbeat_that_was_contended_is_sent_again_and_was_not_lost(wire: Wire) -> None:
    with worker(wire) as only:
        wait_until(lambda: len(only.records) == 40)
        sent = wire.count("heartbeatMember")
        wire.faults["heartbeatMember"] = [answers(errors.ContendedError("another came first"))]
        only.hear()
        wait_until(lambda: wire.count("heartbeatMember") > sent + 1)

    assert "owned" not in wire.values("heartbeatMember")[sent + 1]


def test_a_transaction_names_the_member_and_that_of_a_zombie_aborts(wire: Wire) -> None:
    client = wire.client(ThreadRuntime())
    wire.service.log.topics.create("out")
    with (
        client.transactional_producer("x") as producer,
        consume(wire, commit="manual", follow=False) as consumer,
    ):
        records = iter(consumer)
        _, partition, record = next(records)
        with producer.transaction() as txn:
            txn.send("out", value=record.value)
            txn.send_offsets(consumer)
        assert committed(wire) == {partition: 1}
        assert consumer.next_offsets() == []
        sent = wire.values("commitTransactionOffsets")[-1]
        assert (sent["member_id"], sent["member_epoch"]) == (consumer.member_id, consumer.member_epoch)

        next(records)
        wire.outside.leave_group("g", consumer.member_id)
        with pytest.raises(TransactionAbortedError), producer.transaction() as txn:
            txn.send_offsets(consumer)
        with producer.transaction() as txn:
            with pytest.raises(errors.InvalidRequestError, match="leave out the others"):
                txn.send_offsets(consumer, [])
            with pytest.raises(errors.InvalidRequestError, match="only with a consumer"):
                txn.send_offsets("g")


def test_a_consumer_that_is_rewound_shows_again_what_is_not_committed(wire: Wire) -> None:
    with consume(wire, commit="manual", follow=False) as consumer:
        seen = []
        for n, (_, partition, record) in enumerate(consumer):
            if n == 15:
                consumer.rewind()
                continue
            seen.append((partition, record.offset))

    assert len(seen) == 15 + 40
    assert sorted(seen[15:]) == [(partition, offset) for partition in range(4) for offset in range(10)]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"group": ""}, "group"),
        ({"group": "a b"}, "name"),
        ({"topics": []}, "topics"),
        ({"topics": None}, "topics"),
        ({"topics": ["no/topic"]}, "topics[0]"),
        ({"start": "middle"}, "start"),
        ({"commit": "never"}, "commit"),
        ({"session_timeout_ms": 5_999}, "session_timeout_ms"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms"),
        ({"on_lost": 5}, "on_lost"),
        ({"prefix": "no/prefix"}, "topic_prefixes[0]"),
        ({"instance_id": "\n"}, "instance_id"),
    ],
)
def test_a_wrong_argument_is_refused_and_no_group_is_made(wire: Wire, given: dict[str, Any], field: str) -> None:
    client = wire.client(ThreadRuntime())
    with pytest.raises(errors.InvalidRequestError) as refusal:
        client.consumer(**{"topics": "t", "group": "g", **given})
    assert field in (refusal.value.extra.get("field"), "group", "name")
    assert wire.outside.groups() == []


def test_an_assignor_that_the_group_does_not_use_is_refused(wire: Wire) -> None:
    with pytest.raises(errors.UnsupportedAssignorError):
        consume(wire, assignor="best")


def test_a_closed_consumer_shows_nothing_more_and_closing_twice_is_no_error(wire: Wire) -> None:
    consumer = consume(wire)
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="was closed"):
        next(iter(consumer))
    assert wire.count("leaveGroup") == 1


def test_closing_tells_the_program_and_commits_before_it_leaves(wire: Wire) -> None:
    revoked: list[Sequence[TopicPartition]] = []
    with consume(wire, follow=False, on_revoked=revoked.append) as consumer:
        list(consumer)
    assert [one.partition for one in revoked[0]] == [0, 1, 2, 3]


def test_an_error_of_on_revoked_reaches_the_program_and_the_partition_is_given_up_all_the_same(wire: Wire) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    first = consume(wire, on_revoked=fail)
    records = iter(first)
    next(records)
    with worker(wire) as second:
        first._heart.hurry()
        with pytest.raises(ZeroDivisionError):
            for _ in records:
                pass
        wait_until(lambda: len(second.told("assigned")) == 2)
    first._leave()
