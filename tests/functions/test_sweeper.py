"""The handler that sweeps, called as a schedule calls it."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, fields
from typing import Any

import pytest

from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import CorruptLogError, InvalidRequestError
from fenceline.format import keys
from fenceline.model.record import Record
from fenceline.ports import Put
from fenceline.sweeper.report import SweepReport
from fenceline_http.wiring import Service
from functions.scheduled import sweep
from functions.telemetry import metric_names
from functions.telemetry.observed import FunctionFailedError, running
from tests.support.grouping import GROUP, join
from tests.support.service import LogBuilder, data


@dataclass
class Remaining:
    milliseconds: int = 300_000
    aws_request_id: str = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds


def test_a_run_does_what_is_due_and_returns_its_report(service: Service, topic: str) -> None:
    service.log.topics.alter(topic, config={"retention.bytes": 0})
    for partition in range(2):
        service.log.append(topic, partition, AppendRequest.of_records([Record(b"v")]))
    service.log.partitions.checkpoint(topic, 0)
    report = sweep.run({"version": "0", "detail-type": "Scheduled Event"}, Remaining(), service)
    assert (report["log_starts"], report["states"], report["is_whole"], report["problems"]) == (2, 2, True, [])
    assert service.log.partitions.offsets(topic, 1).bounds.log_start_offset == 1


def test_a_run_ends_in_time_and_the_next_goes_on(service: Service, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    monkeypatch.setattr(service.log.context.runtime, "monotonic_ms", lambda: next(looks))
    assert not sweep.run({}, Remaining(1), service)["is_whole"]
    assert sweep.run({"deletes_max": 5, "is_thorough": True}, Remaining(), service)["is_whole"]


def test_damage_is_an_error_when_all_the_rest_was_swept(service: Service, topic: str) -> None:
    topic_id = service.log.topics.get(topic).topic_id
    service.objects.create(keys.segment_key(topic_id, 0, 7), b"damaged", {})
    service.log.append(topic, 1, AppendRequest.of_records([Record(b"v")]))
    service.log.topics.alter(topic, config={"retention.bytes": 0})
    with pytest.raises(CorruptLogError, match="partition=0"):
        running("sweeper", sweep.run, service)({"is_thorough": True}, Remaining())
    assert service.log.partitions.offsets(topic, 1).bounds.log_start_offset == 1


def test_an_error_that_no_step_should_raise_fails_the_run_when_all_the_rest_was_swept(
    service: Service, topic: str
) -> None:
    for partition in range(2):
        service.log.append(topic, partition, AppendRequest.of_records([Record(b"v")]))
        service.log.partitions.checkpoint(topic, partition)
    key = keys.head_item(service.log.topics.get(topic).topic_id, 0)
    item = service.items.get([key])[key]
    service.items.write([Put(key, {**item.value, "origins": b"secret"}, item.version + 1, item.version)])
    service.log.topics.alter(topic, config={"retention.bytes": 0})
    with pytest.raises(FunctionFailedError, match=r"partition=0: error at checkpoint_items\.py"):
        running("sweeper", sweep.run, service)({}, Remaining())
    assert service.log.partitions.offsets(topic, 1).bounds.log_start_offset == 1


@pytest.mark.parametrize("event", [{"deletes_max": 0}, {"deletes_max": True}, {"deletes_max": "5"}, {"is_thorough": 1}])
def test_an_invalid_event_is_refused(service: Service, event: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        sweep.run(event, Remaining(), service)


def test_hanging_and_overdue_transactions_are_metrics_also_at_zero(
    service: Service, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = running("sweeper", sweep.run, service)
    counted: list[tuple[list[float], list[float]]] = []
    for epochs in ((), (3,)):
        builder = LogBuilder(topic_id=service.log.topics.get(topic).topic_id)
        for epoch in epochs:
            builder.add(data("v", producer=(7, epoch, 0), is_transactional=True))
        builder.store(service.objects)
        capsys.readouterr()
        handler({"is_thorough": True}, Remaining())
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (line,) = [line for line in lines if metric_names.TRANSACTIONS_HANGING in line]
        counted.append((line[metric_names.TRANSACTIONS_HANGING], line[metric_names.TRANSACTIONS_OVERDUE]))
    assert counted == [([0.0], [0.0]), ([1.0], [0.0])]


@pytest.mark.parametrize(
    ("is_corrupt", "unexpected", "failure"), [(True, 0, CorruptLogError), (False, 1, FunctionFailedError)]
)
def test_a_failing_run_still_logs_its_metrics(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_corrupt: bool,
    unexpected: int,
    failure: type[Exception],
) -> None:
    def damaged(*_: Any, **__: Any) -> SweepReport:
        return SweepReport(transactions_hanging=2, transactions_overdue=3, is_corrupt=is_corrupt, unexpected=unexpected)

    monkeypatch.setattr(sweep, "sweep", damaged)
    with pytest.raises(failure, match="the sweeper met"):
        running("sweeper", sweep.run, service)({}, Remaining())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (line,) = [line for line in lines if metric_names.TRANSACTIONS_HANGING in line]
    assert (line[metric_names.TRANSACTIONS_HANGING], line[metric_names.TRANSACTIONS_OVERDUE]) == ([2.0], [3.0])


def test_members_and_groups_that_do_not_settle_are_counted_where_every_group_was_seen(
    service: Service, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(event: dict[str, Any]) -> tuple[int | None, int | None]:
        report = sweep.run(event, Remaining(), service)
        assert report["problems"] == []
        return report["group_members"], report["groups_unsettled"]

    thorough = {"is_thorough": True}
    assert counted(thorough) == (None, None)  # no group was ever made
    join(service.log, "a", topic)
    join(service.log, "b", topic, session_timeout_ms=1_800_000)  # gets nothing before a gives something up
    join(service.log, "a", topic, group="other", session_timeout_ms=1_800_000)
    assert counted(thorough) == (3, 0)
    assert counted({}) == (None, None)
    now_ms = service.log.context.runtime.now_ms
    monkeypatch.setattr(service.log.context.runtime, "now_ms", lambda: now_ms() + 40_000)
    monkeypatch.setattr("fenceline.sweeper.group_expiry._UNSETTLED_MS", 0)
    assert counted(thorough) == (3, 1)
    service.log.groups.leave(GROUP, "a")
    service.log.groups.leave(GROUP, "b")
    assert counted(thorough) == (1, 0)


def test_a_count_of_some_groups_is_no_metric(
    service: Service, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(report: SweepReport) -> list[dict[str, Any]]:
        monkeypatch.setattr(sweep, "sweep", lambda *_, **__: report)
        running("sweeper", sweep.run, service)({}, Remaining())
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert not [line for line in lines(SweepReport()) if metric_names.GROUP_MEMBERS in line]
    [line] = [
        one for one in lines(SweepReport(group_members=0, groups_unsettled=2)) if metric_names.GROUP_MEMBERS in one
    ]
    assert (line[metric_names.GROUP_MEMBERS], line[metric_names.GROUPS_UNSETTLED]) == ([0.0], [2.0])


def test_every_metric_of_a_report_is_a_member_of_it() -> None:
    assert metric_names.OF_REPORTS.keys() <= {field.name for field in fields(SweepReport)}
