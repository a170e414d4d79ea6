"""Exactly once, row by row of the table of what may die ("Exactly once on Spark")."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pyarrow as pa
import pytest

from fenceline import errors
from fenceline.model.transaction import ONGOING, OnceMark
from fenceline_spark.sink.commit import PAIRS_MAX, EndUnansweredError
from fenceline_spark.sink.messages import Batch, Inline, Large, Message, Part, Repeat
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.placing import joined, unpacked
from fenceline_spark.sink.task import write_at_least_once, write_once
from fenceline_spark.sink.transaction import OpenTransaction
from fenceline_testing import Fenceline, in_memory
from fenceline_testing.service import URL
from tests.spark.batches import QUERY, TOPIC, Run, Stopped, are_free, committed, records, rows
from tests.support.patience import PATIENCE_S

INLINE = SinkOptions(URL, topic=TOPIC, codec="none")
LARGE = replace(INLINE, inline_bytes=0)


@pytest.fixture
def fenceline() -> Iterator[Fenceline]:
    with in_memory() as lent:
        lent.client.create_topic(TOPIC, partitions=2)
        yield lent


def part(*values: str) -> list[pa.RecordBatch]:
    return [rows(*values, key=[value.encode() for value in values])]


def state(fenceline: Fenceline, transactional_id: str) -> str:
    return fenceline.client.transaction(transactional_id).state


def test_rows_of_few_bytes_are_handed_over_and_others_wait_in_a_transaction(fenceline: Fenceline) -> None:
    run = Run(fenceline, replace(INLINE, inline_bytes=100))
    small, empty, large = run.tasks(0, [part("a"), [], part("b" * 80, "c" * 80)])
    assert isinstance(small, Inline)
    assert isinstance(empty, Inline)
    assert empty.rows is None
    assert isinstance(large, Large)
    assert large.transactional_id == f"{QUERY}.2.0"
    assert sum(large.counts.values()) == 2
    assert committed(fenceline) == []
    run.committer.commit([small, empty, large])
    assert Counter(committed(fenceline)) == Counter([b"a", b"b" * 80, b"c" * 80])
    assert fenceline.client.once(QUERY).version == 0


def test_a_batch_without_rows_asks_nothing_of_the_service_at_its_commit(fenceline: Fenceline) -> None:
    run = Run(fenceline)
    messages = run.tasks(0, [[], []])
    before = len(run.carrier.log)
    run.committer.commit(messages)
    run.committer.commit([])
    assert run.carrier.log[before:] == []


def test_a_repeated_batch_writes_nothing_and_reads_its_rows_to_the_end(fenceline: Fenceline) -> None:
    Run(fenceline).write(0, [[rows("a", "x")]])
    again, taken = Run(fenceline), list[str]()

    def upstream() -> Iterator[pa.RecordBatch]:
        for value in "a", "x":
            taken.append(value)
            yield part(value)[0]
        taken.append("end")

    message = write_once(again.client, again.options, Part(again.batch(0), 0, 0), upstream(), parallel=1)
    assert isinstance(message, Repeat)
    assert taken == ["a", "x", "end"]
    again.committer.commit([message])
    assert committed(fenceline) == [b"a", b"x"]


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_batch_planned_anew_since_it_was_written_is_refused_and_no_row_skipped(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    """A checkpoint was restored from before the last batch: Spark plans that one anew, with what came meanwhile."""
    Run(fenceline, options).write(0, [part("a"), part("b")])
    with pytest.raises(errors.AlreadyCommittedError, match=r"forget spark\..* rows=3 written=2$"):
        Run(fenceline, options).write(0, [part("a"), [rows("b", "c")]])
    assert sorted(committed(fenceline)) == [b"a", b"b"]


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_driver_that_comes_second_with_other_rows_is_refused_and_they_are_not_passed_over(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    late = Run(fenceline, options)
    messages = late.tasks(0, [part("a"), part("b", "c")])
    Run(fenceline, options).write(0, [part("a"), part("b")])
    with pytest.raises(errors.AlreadyCommittedError, match=r"rows=3 written=2$"):
        late.committer.commit(messages)
    assert sorted(committed(fenceline)) == [b"a", b"b"]


def test_a_task_that_fails_amid_its_appends_frees_readers_and_is_tried_again(fenceline: Fenceline) -> None:
    run = Run(fenceline, LARGE)

    def upstream() -> Iterator[pa.RecordBatch]:
        yield rows("x" * 900_000, "y" * 900_000)
        raise OSError("the input is gone")

    with pytest.raises(OSError, match="gone"):
        write_once(run.client, run.options, Part(run.batch(0), 0, 0), upstream(), parallel=1)
    assert f"POST /v1/topics/{TOPIC}/partitions/0/records" in run.carrier.log
    assert are_free(fenceline)
    run.committer.commit([run.task(0, 0, part("a"), attempt=1)])
    assert committed(fenceline) == [b"a"]


def test_of_two_copies_of_a_task_the_one_in_the_messages_is_committed_and_the_other_fenced(
    fenceline: Fenceline,
) -> None:
    run = Run(fenceline, LARGE)
    run.write(0, [[]])
    run.write(1, [part("first")])  # from now on the batch before is this run's
    for version, winner in ((2, 0), (3, 1)):
        copies = [run.task(version, 0, part("a", "b"), attempt=attempt) for attempt in (0, 1)]
        run.committer.commit([copies[winner]])
        assert state(fenceline, f"{QUERY}.0.{1 - winner}") != ONGOING
        assert are_free(fenceline)
    assert Counter(committed(fenceline)) == Counter({b"first": 1, b"a": 2, b"b": 2})


def test_transactions_of_a_dead_run_are_fenced_after_the_next_runs_first_batch(fenceline: Fenceline) -> None:
    lost = Run(fenceline, LARGE)
    lost.task(0, 0, part("a"))
    lost.task(0, 7, part("b"), attempt=3)
    other = OpenTransaction(fenceline.client, "another-job")
    assert not are_free(fenceline)
    Run(fenceline, LARGE).write(0, [part("a", "b")])
    assert Counter(committed(fenceline)) == Counter([b"a", b"b"])
    assert are_free(fenceline)
    assert fenceline.client.transactional_producer_id("another-job", pair=other.pair)  # not fenced


def test_a_zombie_task_whose_id_was_asked_for_anew_cannot_append(fenceline: Fenceline) -> None:
    zombie, live = Run(fenceline, LARGE), Run(fenceline, LARGE)

    def upstream() -> Iterator[pa.RecordBatch]:
        yield rows("x" * 1_000_000)
        yield rows("y" * 1_000_000)
        live.write(0, [part("a")])
        yield rows("z" * 1_000_000)

    with pytest.raises(errors.FencelineError):
        write_once(zombie.client, LARGE, Part(zombie.batch(0), 0, 0), upstream(), parallel=1)
    assert committed(fenceline) == [b"a"]
    assert are_free(fenceline)


def test_a_member_that_another_attempt_fenced_fails_the_batch_whole_and_its_next_run_writes_it(
    fenceline: Fenceline,
) -> None:
    run = Run(fenceline, LARGE)
    messages = run.tasks(0, [part("a"), part("b")])
    run.task(0, 1, part("b"))  # of a stage that was tried again
    with pytest.raises(errors.ProducerFencedError, match="commitTimeoutMs") as refusal:
        run.committer.commit(messages)
    assert refusal.value.transactional_id == f"{QUERY}.1.0"
    assert committed(fenceline) == []
    run.committer.abort(run.batch(0))
    assert are_free(fenceline)
    Run(fenceline, LARGE).write(0, [part("a"), part("b")])
    assert Counter(committed(fenceline)) == Counter([b"a", b"b"])


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_zombie_drivers_end_after_the_batch_was_written_changes_nothing(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    zombie, live = Run(fenceline, options), Run(fenceline, options)
    late = zombie.tasks(0, [part("a")])
    live.write(0, [part("a")])
    zombie.committer.commit(late)
    assert committed(fenceline) == [b"a"]
    assert are_free(fenceline)


def test_a_driver_that_comes_second_ends_what_its_tasks_left_open(fenceline: Fenceline) -> None:
    live, zombie = Run(fenceline, LARGE), Run(fenceline, LARGE)
    live.write(0, [part("a")])
    late = [zombie.task(1, 0, part("b"), attempt=3)]
    live.write(1, [part("b")])  # which fences an attempt beside its own, and no open transaction of its own run
    assert not are_free(fenceline)
    zombie.committer.commit(late)
    assert committed(fenceline) == [b"a", b"b"]
    assert are_free(fenceline)


def test_only_the_first_batch_of_a_run_lists_what_runs_before_it_left_open(fenceline: Fenceline) -> None:
    run = Run(fenceline)
    for version in range(3):
        run.write(version, [part("a")])
        assert run.carrier.log.count("GET /v1/transactions") == 1
    batch = single(run)
    run.committer.commit([write_once(run.client, INLINE, Part(batch, 0, 0), iter(part("a")), parallel=1)])
    assert run.carrier.log.count("GET /v1/transactions") == 1


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_of_two_drivers_at_one_batch_one_writes_it_and_the_other_gives_way(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    one, other = Run(fenceline, options, prefix=QUERY), Run(fenceline, options, prefix=QUERY)
    # Their tasks have other ids, as those of a rival whose stage has other attempts.
    first = [one.task(0, 0, part("a"), attempt=0), one.task(0, 1, part("b"), attempt=0)]
    second = [other.task(0, 0, part("a"), attempt=2), other.task(0, 1, part("b"), attempt=2)]
    ends: list[str] = []

    def rival(request: httpx.Request) -> None:
        if request.url.path == "/v1/transactions/end" and not ends:
            ends.append("rival")
            other.committer.commit(second)

    one.carrier.on_request = rival
    one.committer.commit(first)
    assert ends == ["rival"]
    assert Counter(committed(fenceline)) == Counter([b"a", b"b"])
    assert are_free(fenceline)


def test_a_part_written_and_a_part_repeated_give_way_to_the_run_that_was_first(fenceline: Fenceline) -> None:
    late = Run(fenceline, LARGE)
    mine = late.task(0, 0, part("a"))
    Run(fenceline, LARGE, prefix=QUERY).committer.commit([Run(fenceline, LARGE).task(0, 0, part("a"), attempt=5)])
    repeat = late.task(0, 1, part("b"))
    assert isinstance(repeat, Repeat)
    late.committer.commit([mine, repeat])
    assert committed(fenceline) == [b"a"]
    assert are_free(fenceline)


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_batch_that_was_forgotten_between_its_tasks_is_not_written_in_part(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    Run(fenceline).write(0, [part("a"), part("b")])
    run = Run(fenceline, options)
    repeat = run.task(0, 0, part("a"))
    fenceline.client.forget_once(QUERY)
    with pytest.raises(errors.InvalidTxnStateError, match="start the query again"):
        run.committer.commit([repeat, run.task(0, 1, part("b"))])
    assert Counter(committed(fenceline)) == Counter([b"a", b"b"])


def test_rows_by_the_driver_are_written_again_where_a_zombie_asks_for_the_querys_id(fenceline: Fenceline) -> None:
    run, times = Run(fenceline), list[str]()

    def zombie(request: httpx.Request) -> None:
        if request.url.path in ("/v1/transactions/end", f"/v1/topics/{TOPIC}/partitions/0/records") and len(times) < 3:
            times.append(request.url.path)
            fenceline.client.transactional_producer_id(QUERY)

    run.carrier.on_request = zombie
    run.write(0, [[rows("a", "b", partition=[0, 1])]])
    assert len(times) == 3
    assert committed(fenceline) == [b"a", b"b"]
    assert are_free(fenceline)


def test_a_driver_that_is_fenced_each_time_gives_up_and_nothing_is_visible(fenceline: Fenceline) -> None:
    run, times = Run(fenceline), list[str]()

    def zombie(request: httpx.Request) -> None:
        if request.url.path == "/v1/transactions/end":
            times.append(request.url.path)
            fenceline.client.transactional_producer_id(QUERY)

    run.carrier.on_request = zombie
    with pytest.raises(errors.ProducerFencedError):
        run.write(0, [part("a")])
    assert len(times) == PAIRS_MAX
    assert committed(fenceline) == []
    assert are_free(fenceline)


class AnswerLost(httpx.BaseTransport):
    """A network that loses the first answer to an end, after which something else happens."""

    def __init__(self, run: Run, then: Callable[[], object]) -> None:
        self._inner, self._then, self._is_over = run.carrier._inner, then, False
        run.carrier._inner = self

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if request.url.path == "/v1/transactions/end" and not self._is_over:
            self._is_over = True
            self._then()
            raise httpx.ReadError("the answer was lost")
        return response


def single(run: Run) -> Batch:
    """Return the batch of a job without a version."""
    return Batch(f"spark.{run.run}", None, 0, run.run, is_stream=False)


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_write_without_a_version_is_not_written_again_where_its_end_may_have_been_decided(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    run = Run(fenceline, options)
    batch = single(run)
    message = write_once(run.client, options, Part(batch, 0, 0), iter(part("a")), parallel=1)
    name = message.transactional_id if isinstance(message, Large) else batch.prefix
    AnswerLost(run, lambda: fenceline.client.transactional_producer_id(name))
    with pytest.raises(EndUnansweredError, match="read the topics before you write the rows again"):
        run.committer.commit([message])
    assert committed(fenceline) == [b"a"]


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_version_that_is_forgotten_behind_an_unanswered_end_is_not_written_again(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    """The driver cannot tell it from an end that was not decided, so its user begins again, or does not."""
    run = Run(fenceline, options)
    messages = run.tasks(0, [part("a")])
    AnswerLost(run, lambda: fenceline.client.forget_once(QUERY))
    with pytest.raises(EndUnansweredError, match="start the query again"):
        run.committer.commit(messages)
    assert committed(fenceline) == [b"a"]
    assert are_free(fenceline)


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_an_end_that_is_never_answered_is_decided_by_the_version(fenceline: Fenceline, options: SinkOptions) -> None:
    run = Run(fenceline, options)
    messages, inner = run.tasks(0, [part("a")]), run.carrier._inner

    class Unanswered(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = inner.handle_request(request)
            if request.url.path == "/v1/transactions/end":
                raise httpx.ReadError("the answer was lost")
            return response

    run.carrier._inner = Unanswered()
    run.committer.commit(messages)
    assert committed(fenceline) == [b"a"]


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_fence_behind_an_unanswered_end_leaves_it_to_the_version_what_was_written(
    fenceline: Fenceline, is_forgotten: bool
) -> None:
    run = Run(fenceline)
    messages = run.tasks(0, [part("a")])

    def meanwhile() -> None:
        fenceline.client.transactional_producer_id(QUERY)
        if is_forgotten:
            fenceline.client.forget_once(QUERY)

    AnswerLost(run, meanwhile)
    if is_forgotten:
        with pytest.raises(EndUnansweredError):
            run.committer.commit(messages)
    else:
        run.committer.commit(messages)
    assert committed(fenceline) == [b"a"]
    assert are_free(fenceline)


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_an_end_decided_and_then_forgotten_is_refused_and_nothing_is_written_again(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch, options: SinkOptions
) -> None:
    run = Run(fenceline, options)
    messages, end = run.tasks(0, [part("a")]), run.client.end_transactions

    def twice(*args: Any, **named: Any) -> Any:
        end(*args, **named)
        fenceline.client.forget_once(QUERY)
        return end(*args, **named)

    monkeypatch.setattr(run.client, "end_transactions", twice)
    with pytest.raises(errors.InvalidTxnStateError, match="ended before"):
        run.committer.commit(messages)
    assert committed(fenceline) == [b"a"]


def test_a_write_without_a_version_fails_where_its_end_is_fenced_and_none_of_it_is_visible(
    fenceline: Fenceline,
) -> None:
    run = Run(fenceline)
    batch = single(run)
    message = write_once(run.client, INLINE, Part(batch, 0, 0), iter(part("a")), parallel=1)

    def fence(request: httpx.Request) -> None:
        if request.url.path == "/v1/transactions/end":
            fenceline.client.transactional_producer_id(batch.prefix)

    run.carrier.on_request = fence
    with pytest.raises(errors.ProducerFencedError):
        run.committer.commit([message])
    assert run.carrier.log.count("POST /v1/transactions/end") == 1
    assert committed(fenceline) == []
    assert are_free(fenceline)


def test_the_abort_of_an_overtaken_run_ends_its_own_transactions_alone(
    fenceline: Fenceline,
) -> None:
    old, live = Run(fenceline, LARGE), Run(fenceline, LARGE)
    late = [old.task(0, 0, part("a"), attempt=3)]
    live.write(0, [[]])
    fenceline.client.end_transactions([], "commit", once=OnceMark(QUERY, 0, live.run))
    messages = live.tasks(1, [part("b"), part("c")])
    old.committer.abort(old.batch(0), late)
    assert state(fenceline, f"{QUERY}.0.3") != ONGOING
    live.committer.commit(messages)
    assert Counter(committed(fenceline)) == Counter([b"b", b"c"])


def test_an_abort_ends_the_transactions_of_its_messages_even_beside_failed_tasks(fenceline: Fenceline) -> None:
    run = Run(fenceline, replace(INLINE, inline_bytes=100))
    messages = run.tasks(0, [part("a"), [], part("b" * 80, "c" * 80)])
    run.committer.abort(run.batch(0), [None, *messages])  # Spark gives None for a task that failed
    assert are_free(fenceline)
    assert committed(fenceline) == []


@pytest.mark.parametrize("moment", ["/records", "/extend"])
def test_a_task_that_is_through_after_its_batch_write_failed_frees_readers(fenceline: Fenceline, moment: str) -> None:
    """Spark ends a failed job while tasks of it run. No later batch has their ids, and they would wait an hour."""
    run, driver = Run(fenceline, LARGE), Run(fenceline, LARGE)
    batch = single(run)

    def fail(request: httpx.Request) -> None:
        if request.url.path.endswith(moment):
            run.carrier.on_request = None
            driver.committer.abort(batch)

    run.carrier.on_request = fail
    with pytest.raises(errors.FencelineError):
        write_once(run.client, LARGE, Part(batch, 0, 0), iter(part("a")), parallel=1)
    assert are_free(fenceline)
    with pytest.raises(errors.InvalidTxnStateError, match=f"the write ended before this task.* job={run.run}"):
        write_once(run.client, LARGE, Part(batch, 1, 0), iter(part("b")), parallel=1)
    assert are_free(fenceline)
    assert committed(fenceline) == []


def test_an_abort_that_does_not_learn_what_was_written_ends_what_is_open(fenceline: Fenceline) -> None:
    run = Run(fenceline, LARGE)
    run.task(0, 0, part("a"))

    def lose(request: httpx.Request) -> None:
        if request.url.path.startswith("/v1/once/"):
            raise httpx.ConnectError("no way to the service")

    run.carrier.on_request = lose
    run.committer.abort(run.batch(0))
    assert are_free(fenceline)


def test_an_old_checkpoint_is_refused_with_both_ways_out(fenceline: Fenceline) -> None:
    run = Run(fenceline)
    messages = run.tasks(4, [part("old")])
    Run(fenceline).write(5, [part("new")])
    for call in (lambda: run.committer.commit(messages), lambda: run.task(4, 0, part("old"))):
        with pytest.raises(errors.AlreadyCommittedError) as refusal:
            call()
        assert "begin with a new checkpoint" in refusal.value.detail
        assert f"fenceline spark forget {QUERY}" in refusal.value.detail
    assert committed(fenceline) == [b"new"]


@dataclass
class Job:
    """A batch write under txnAppId=loader, by one job."""

    fenceline: Fenceline
    version: int
    options: SinkOptions = INLINE
    within: str | None = None

    def __post_init__(self) -> None:
        self.run = Run(self.fenceline, self.options)

    def task(self, *values: str) -> Message:
        job, target = self.run.run, self.options.target
        batch = Batch(f"spark.{job}", "loader", self.version, job, is_stream=False, target=target, within=self.within)
        return write_once(self.run.client, self.options, Part(batch, 0, 0), iter(part(*values)), parallel=1)

    def write(self, *values: str) -> None:
        self.run.committer.commit([self.task(*values)])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that a program sees that has asked for none."""
    return [one.getMessage() for one in caplog.records if one.name == "fenceline_spark"]


def test_a_job_of_a_version_that_is_not_above_the_last_does_nothing_and_warns(
    fenceline: Fenceline, caplog: pytest.LogCaptureFixture
) -> None:
    Job(fenceline, 7).write("a")
    assert warnings(caplog) == []
    for version in (7, 6):
        Job(fenceline, version).write("b")
        assert "nothing was written" in warnings(caplog)[-1]
        assert f"txnAppId=loader txnVersion={version}" in warnings(caplog)[-1]
    late = Job(fenceline, 8)
    messages = [late.task("b")]
    Job(fenceline, 8).write("c")
    late.run.committer.commit(messages)
    assert "nothing was written" in warnings(caplog)[-1]
    assert len(warnings(caplog)) == 3
    assert Counter(committed(fenceline)) == Counter([b"a", b"c"])


def test_a_job_whose_own_first_request_was_decided_does_not_say_that_nothing_was_written(
    fenceline: Fenceline, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(fenceline, 7)
    message = job.task("a")
    AnswerLost(job.run, lambda: fenceline.client.transactional_producer_id(message.part.batch.prefix))
    job.run.committer.commit([message])
    (warning,) = warnings(caplog)
    assert warning.startswith("the rows are written: ")
    assert "own first request was decided" in warning
    assert committed(fenceline) == [b"a"]


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
@pytest.mark.parametrize("version", [7, 6])
def test_two_writes_to_two_topics_under_one_id_are_refused_and_never_taken_for_a_repeat(
    fenceline: Fenceline, options: SinkOptions, version: int
) -> None:
    fenceline.client.create_topic("second")
    late = Job(fenceline, version, replace(options, topic="second"))
    messages = [late.task("b")]
    Job(fenceline, 7, options).write("a")
    for write in (
        lambda: late.run.committer.commit(messages),
        lambda: Job(fenceline, version, replace(options, topic="second")).write("b"),
        lambda: Job(fenceline, version, replace(options, topic=None)).task("b"),
    ):
        with pytest.raises(errors.InvalidRequestError, match=r"its own txnAppId: .* written=7 written_to=topic=orders"):
            write()
    late.run.committer.abort(messages[0].part.batch)  # as Spark does behind a commit that failed
    Job(fenceline, 8, replace(options, topic="second")).write("c")
    assert (committed(fenceline), committed(fenceline, "second")) == ([b"a"], [b"c"])
    assert len((fenceline.client.once("loader").note or "").encode()) < 1_024


def test_two_writes_of_one_version_in_one_run_are_refused_and_in_two_runs_are_repeats(
    fenceline: Fenceline,
) -> None:
    Job(fenceline, 7, within="one").write("a")
    with pytest.raises(errors.InvalidRequestError, match="its own txnAppId"):
        Job(fenceline, 7, within="one").write("b")
    Job(fenceline, 7, within="two").write("a")
    Job(fenceline, 7).write("a")
    assert committed(fenceline) == [b"a"]


def test_a_job_without_a_version_is_written_each_time(fenceline: Fenceline) -> None:
    for options in (INLINE, LARGE):
        run = Run(fenceline, options)
        batch = Batch(f"spark.{run.run}", None, 0, run.run, is_stream=False)
        message = write_once(run.client, options, Part(batch, 0, 0), iter(part("a")), parallel=1)
        run.committer.commit([message])
    assert committed(fenceline) == [b"a", b"a"]


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_a_session_writes_exclusively_until_it_is_fenced(fenceline: Fenceline, options: SinkOptions) -> None:
    def write(options: SinkOptions) -> None:
        run = Run(fenceline, options)
        batch = Batch(f"spark.{run.run}", None, 0, run.run, is_stream=False)
        given = [rows("a", partition=[0])]
        run.committer.commit([write_once(run.client, options, Part(batch, 0, 0), given, parallel=1)])

    with fenceline.client.producer(TOPIC, access_mode="Exclusive") as first:
        assert first.claim is not None
        held = replace(options, session_id=first.claim.session_id, topic_epochs=first.claim.topic_epochs)
        write(held)
        with pytest.raises(errors.ProducerBusyError):
            write(options)  # under no session
        with (
            fenceline.client.producer(TOPIC, access_mode="ExclusiveWithFencing"),
            pytest.raises(errors.ProducerFencedError) as refusal,
        ):
            write(held)
        assert "commitTimeoutMs" not in refusal.value.detail  # which would not help
    assert committed(fenceline) == [b"a"]


def test_one_end_takes_96_large_parts_and_one_more_is_refused_before_the_end_with_a_way_out(
    fenceline: Fenceline,
) -> None:
    run = Run(fenceline, LARGE)
    messages = [run.task(0, index, [rows(f"{index}", partition=[index % 2])]) for index in range(97)]
    before = len(run.carrier.log)
    with pytest.raises(errors.InvalidRequestError, match=r"\.coalesce\(96\): tasks=97"):
        run.committer.commit(messages)
    assert run.carrier.log[before:] == []
    assert not are_free(fenceline)
    fenceline.client.transactional_producer_id(f"{QUERY}.96.0")
    run.committer.commit(messages[:96])
    assert Counter(committed(fenceline)) == Counter(str(n).encode() for n in range(96))
    assert run.carrier.log.count("POST /v1/transactions/end") == 1


def test_the_drivers_own_transactions_count_among_the_96_of_one_end(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline.limits.TRANSACTIONS_PER_END_MAX", 2)
    run = Run(fenceline, replace(INLINE, inline_bytes=100))
    large = [run.task(0, n, [rows("x" * 200, partition=[0])]) for n in range(2)]
    small = run.task(0, 2, [rows("a", "b", partition=[0, 1])])
    before = len(run.carrier.log)
    with pytest.raises(errors.InvalidRequestError, match="tasks=3"):
        run.committer.commit([*large, small])
    assert run.carrier.log[before:] == []
    monkeypatch.setattr("fenceline.limits.TRANSACTION_PARTITIONS_MAX", 1)  # so the driver opens two
    with pytest.raises(errors.InvalidRequestError, match="tasks=3"):
        run.committer.commit([large[0], small])
    assert "POST /v1/transactions/end" not in run.carrier.log
    assert committed(fenceline) == []


@pytest.mark.parametrize("inline_bytes", [100, 1_000], ids=["mixed", "inline"])
def test_rows_of_two_tasks_at_an_expected_offset_of_one_partition_are_refused(
    fenceline: Fenceline, inline_bytes: int
) -> None:
    options = replace(INLINE, inline_bytes=inline_bytes, expected_offsets={0: 0, 1: 0})
    given = [[rows("a", partition=[0])], [rows("b" * 200, "c", partition=[1, 1])]]
    Run(fenceline, options).write(0, given)
    run = Run(fenceline, replace(options, expected_offsets={0: 2, 1: 3}))  # behind the markers
    messages = run.tasks(1, [*given, [rows("d", partition=[1])]])
    with pytest.raises(errors.InvalidRequestError, match=r'repartition\("partition"\).* partition=1 tasks=2$'):
        run.committer.commit(messages)
    run.committer.abort(run.batch(1), messages)
    assert committed(fenceline) == [b"a", b"b" * 200, b"c"]


@pytest.mark.parametrize("options", [INLINE, LARGE], ids=["inline", "large"])
def test_expected_offsets_are_refused_where_the_topic_does_not_compare_them(
    fenceline: Fenceline, options: SinkOptions
) -> None:
    fenceline.client.alter_topic(TOPIC, config={"check.expected.offsets": False})
    with pytest.raises(errors.InvalidRequestError, match=r"set its check\.expected\.offsets to true: topic=orders"):
        Run(fenceline, replace(options, expected_offsets={0: 7})).write(0, [[rows("a", partition=[0])]])
    assert committed(fenceline) == []
    assert are_free(fenceline)


def test_rows_by_the_driver_over_more_partitions_than_a_transaction_takes_are_visible_by_one_end(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline.limits.TRANSACTION_PARTITIONS_MAX", 2)
    fenceline.client.create_topic("wide", partitions=5)
    options = replace(INLINE, topic="wide")
    given = [[rows("a", "b", partition=[n, (n + 1) % 5])] for n in range(5)]
    ids, times = [f"{QUERY}{more}" for more in ("", ".inline.1", ".inline.2")], list[str]()

    def zombie(request: httpx.Request) -> None:
        """Fence each of the driver's ids once, when the driver ends them."""
        if request.url.path == "/v1/transactions/end" and len(times) < 3:
            times.append(ids[len(times)])
            fenceline.client.transactional_producer_id(times[-1])

    run = Run(fenceline, options)
    run.carrier.on_request = zombie
    run.write(0, given)
    assert times == ids
    assert committed(fenceline, "wide") == [b"a", b"b", b"b", b"a", b"b", b"a", b"b", b"a", b"b", b"a"]
    assert are_free(fenceline, "wide")


def test_transactions_of_a_dead_driver_are_fenced_after_the_next_runs_first_batch(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline.limits.TRANSACTION_PARTITIONS_MAX", 1)
    lost = Run(fenceline)
    messages = lost.tasks(0, [[rows("a", "b", partition=[0, 1])]])

    def dies(request: httpx.Request) -> None:
        if request.url.path == "/v1/transactions/end":
            lost.carrier.stop()

    lost.carrier.on_request = dies
    with pytest.raises(Stopped):
        lost.committer.commit(messages)
    assert state(fenceline, f"{QUERY}.inline.1") == ONGOING
    Run(fenceline, LARGE).write(0, [[rows("a", partition=[0])]])
    assert state(fenceline, f"{QUERY}.inline.1") != ONGOING
    assert committed(fenceline) == [b"a"]


def test_rows_handed_to_the_driver_are_counted_with_all_of_their_columns(fenceline: Fenceline) -> None:
    run = Run(fenceline, replace(INLINE, topic=None, inline_bytes=5_000))
    assert isinstance(run.task(0, 0, [rows(*[None] * 100, topic=[TOPIC] * 100, key=[b"k"] * 100)]), Inline)
    fenceline.client.create_topic("t" * 200)
    assert isinstance(run.task(0, 1, [rows(*[None] * 100, topic=["t" * 200] * 100, key=[b"k"] * 100)]), Large)


def test_rows_handed_to_the_driver_lie_in_the_order_of_their_tasks(fenceline: Fenceline) -> None:
    run = Run(fenceline)
    messages = run.tasks(0, [[rows(f"{n}", partition=[0])] for n in range(4)])
    run.committer.commit(messages[::-1])
    assert committed(fenceline) == [b"0", b"1", b"2", b"3"]


def test_rows_of_many_tasks_are_placed_in_parts_that_arrow_can_hold(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline_spark.sink.driver_rows.JOINED_BYTES", 200)
    monkeypatch.setattr("fenceline_spark.sink.driver_rows.joined", lambda batches: joined(checked(batches)))

    def checked(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        assert sum(each.nbytes for each in batches) <= 200
        return batches

    Run(fenceline).write(0, [[rows(f"{n}" * 50, partition=[0])] for n in range(9)])
    assert committed(fenceline) == [b"%d" % n * 50 for n in range(9)]


def test_the_driver_weighs_the_rows_of_a_task_at_most_twice(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    weighed: Counter[int] = Counter()

    class Weighed:
        def __init__(self, batch: pa.RecordBatch) -> None:
            self.batch, self.num_rows = batch, batch.num_rows

        @property
        def nbytes(self) -> int:
            weighed[id(self)] += 1
            return int(self.batch.nbytes)

    monkeypatch.setattr(
        "fenceline_spark.sink.commit.unpacked", lambda packed: [Weighed(one) for one in unpacked(packed)]
    )
    monkeypatch.setattr("fenceline_spark.sink.driver_rows.joined", lambda parts: joined([part.batch for part in parts]))
    Run(fenceline).write(0, [[rows(f"{n}", partition=[0])] for n in range(20)])
    assert max(weighed.values()) == 2
    assert committed(fenceline) == [b"%d" % n for n in range(20)]


def test_a_slow_task_extends_its_transaction_while_it_works_and_for_the_driver_at_its_end(
    fenceline: Fenceline,
) -> None:
    run, extended = Run(fenceline, LARGE), threading.Semaphore(0)
    asked: list[bytes] = []

    def count(request: httpx.Request) -> None:
        if request.url.path.endswith("/extend"):
            asked.append(request.read())
            extended.release()

    run.carrier.on_request = count

    def upstream() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            yield rows("x" * 1_000_000, partition=[0])
        for _ in range(3):  # no row comes for as long as three extensions take
            assert extended.acquire(timeout=PATIENCE_S)

    message = write_once(run.client, LARGE, Part(run.batch(0), 0, 0), upstream(), parallel=1, extend_ms=1)
    assert b'"timeout_ms": 60000' in asked[0]
    assert b'"timeout_ms": 3600000' in asked[-1]
    run.committer.commit([message])
    assert len(committed(fenceline)) == 2


def test_a_task_whose_transaction_was_taken_fails_even_if_no_row_comes_any_more(fenceline: Fenceline) -> None:
    run = Run(fenceline, LARGE)
    refused = threading.Event()

    def upstream() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            yield rows("x" * 1_000_000, partition=[0])
        fenceline.client.transactional_producer_id(f"{QUERY}.0.0")
        refused.set()

    with pytest.raises(errors.ProducerFencedError):
        write_once(run.client, LARGE, Part(run.batch(0), 0, 0), upstream(), parallel=1)
    assert refused.is_set()
    assert are_free(fenceline)


@pytest.mark.parametrize("tasks", [1, 200])
def test_a_batch_by_the_driver_takes_two_creates_a_partition_and_six_item_writes(
    fenceline: Fenceline, tasks: int
) -> None:
    def batch(version: int) -> list[list[pa.RecordBatch]]:
        return [[rows(*(f"{version}-{index}-{n}" for n in range(4)), partition=[0, 1, 0, 1])] for index in range(tasks)]

    run, meter = Run(fenceline), fenceline.service.meter
    assert meter is not None
    for version in range(3):
        messages = run.tasks(version, batch(version))
        meter.take()
        run.committer.commit(messages)
        spent = meter.take().calls
        assert spent["objects.create"] == 4
        assert spent["items.write"] <= 6
    assert len(committed(fenceline)) == 3 * 4 * tasks


def test_at_least_once_is_visible_as_it_goes(fenceline: Fenceline) -> None:
    run, seen = Run(fenceline), list[int]()

    def upstream() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield rows("x" * 1_000_000, partition=[0])
            seen.append(len(committed(fenceline)))

    message = write_at_least_once(run.client, run.options, upstream(), first=0, parallel=1)
    assert seen == [1, 2, 3]
    assert sum(message.counts.values()) == 3
    assert len([*records(fenceline)]) == 3
