"""The replicator: a message is one look at its partition, and the schedule sends messages for what is due."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fenceline import errors
from fenceline.ports import Unavailable
from fenceline.regions.status import NO_ALARMS, AlarmFigures
from fenceline.service.log import Log
from fenceline_http.wiring import Service
from functions.replication.replicate import Replicating
from functions.telemetry import metric_names
from functions.telemetry.observed import running
from tests.http.conftest import service_in_memory
from tests.support.queues import FakeQueues, event, failed, settings
from tests.support.runtime import FakeRuntime


@dataclass(frozen=True)
class Ran:
    """What a run came to, as the service says it."""

    took_records: int = 0
    next_ms: int | None = None


@dataclass
class FakeReplication:
    """The replication of a service, which does what a test says."""

    runs: Callable[[str, int], Ran] = lambda topic, partition: Ran()
    replicated: Sequence[tuple[str, int]] = ()
    found: Mapping[tuple[str, int], AlarmFigures] = field(default_factory=dict)
    ran: list[tuple[str, int]] = field(default_factory=list)

    def run(self, topic: str, partition: int) -> Ran:
        self.ran.append((topic, partition))
        return self.runs(topic, partition)

    def partitions(self) -> Sequence[tuple[str, int]]:
        return self.replicated

    def alarm_figures(self, topic: str, partition: int) -> AlarmFigures:
        return self.found.get((topic, partition), NO_ALARMS)


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def queues() -> FakeQueues:
    return FakeQueues()


@pytest.fixture
def replicating(queues: FakeQueues) -> Replicating:
    return Replicating(lambda _: queues)


@pytest.fixture
def replication() -> FakeReplication:
    return FakeReplication()


@pytest.fixture
def service(runtime: FakeRuntime, replication: FakeReplication) -> Iterator[Service]:
    made = service_in_memory()
    log = Log(made.objects, made.items, runtime, region="a", item_age_ms=0)
    log.__dict__["replication"] = replication
    yield replace(made, settings=settings(), log=log)
    made.close()


def body(topic: str = "orders", partition: int = 0) -> str:
    return json.dumps({"topic": topic, "partition": partition})


def raises(error: Exception) -> Callable[[str, int], Ran]:
    def run(topic: str, partition: int) -> Ran:
        if partition == 1:
            raise error
        return Ran(took_records=1)

    return run


def test_each_partition_is_looked_at_once_however_many_messages_name_it(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues
) -> None:
    replication.runs = lambda topic, partition: Ran(took_records=5)
    report = replicating.run(event(body(), body(partition=1), body()), None, service)
    assert sorted(replication.ran) == [("orders", 0), ("orders", 1)]
    assert (failed(report), report["partitions"], report["took"]) == ([], 2, 10)
    assert queues.own.calls == 0


def test_work_that_is_due_later_is_one_delayed_message(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues, runtime: FakeRuntime
) -> None:
    """A partition that is busy for an hour has one message on its way, and not one for each look."""
    replication.runs = lambda topic, partition: Ran(next_ms=1_001)
    for _ in range(3):
        replicating.run(event(body()), None, service)
        runtime.advance(500)
    assert queues.own.sent == [({"topic": "orders", "partition": 0}, 2)]
    runtime.advance(500)
    replicating.run(event(body()), None, service)
    assert len(queues.own.sent) == 2


def test_work_that_is_due_sooner_than_the_message_on_its_way_has_its_own(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues
) -> None:
    for next_ms in (30_000, 0, 30_000):
        replication.runs = lambda topic, partition, next_ms=next_ms: Ran(next_ms=next_ms)  # type: ignore[misc]
        replicating.run(event(body()), None, service)
    assert [delay_s for _, delay_s in queues.own.sent] == [30, 1]


@pytest.mark.parametrize(
    "poison",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        body("no/name"),
        body(partition=-1),
        body(partition=10_000),
        '{"topic": "orders", "partition": "0"}',
        '{"topic": "orders", "partition": true}',
        "[" * 100_000,
    ],
)
def test_a_message_that_names_no_partition_fails_alone(
    replicating: Replicating, replication: FakeReplication, service: Service, poison: str
) -> None:
    assert failed(replicating.run(event(poison, body()), None, service)) == ["0"]
    assert replication.ran == [("orders", 0)]


def test_a_partition_that_fails_brings_its_own_messages_again_and_no_others(
    replicating: Replicating, replication: FakeReplication, service: Service
) -> None:
    replication.runs = raises(errors.StoreUnavailableError("a store"))
    report = replicating.run(event(body(), body(partition=1), body(partition=1)), None, service)
    assert (failed(report), report["took"]) == (["1", "2"], 1)
    assert report["errors"] == ["StoreUnavailableError: a store"]


def test_an_undocumented_error_is_logged_by_its_place_and_delays_no_other_partition(
    replicating: Replicating, replication: FakeReplication, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lambda counts no error. The log has it, and the message that fails each time becomes a dead letter."""
    replication.runs = raises(TypeError("secret"))
    # Powertools keeps a logger of each name, with the output that there was when it was made.
    alone = replace(service, settings=replace(service.settings, service="test-replicator-alone"))
    handler = running("replicator", replicating.run, alone)
    report = handler(event(body(), body(partition=1), body(partition=2)), _Context())
    assert (failed(report), report["took"]) == (["1"], 2)
    assert report["errors"][0].startswith("TypeError at test_replicator.py:")
    log = capsys.readouterr().out
    assert report["errors"][0] in log
    assert "secret" not in str(report) + log


def test_a_partition_that_does_not_exist_here_is_no_failure(
    replicating: Replicating, replication: FakeReplication, service: Service
) -> None:
    """The peer has more partitions, or this region has not created the topic yet."""
    replication.runs = raises(errors.UnknownTopicOrPartitionError("none"))
    assert failed(replicating.run(event(body(partition=1)), None, service)) == []


def test_the_schedule_names_each_partition_once_in_five_minutes_and_takes_nothing_itself(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues
) -> None:
    replication.replicated = [("orders", number) for number in range(40)]
    named = []
    for minute in range(5):
        report = replicating.run({"time": f"2026-01-01T00:0{minute}:00Z"}, None, service)
        found = queues.own.taken()
        assert report == {"partitions": 40, "due": len(found)}
        assert 0 < len(found) < 20
        named += found
    assert sorted(named) == [*replication.replicated]
    assert replication.ran == []
    assert service.log.context.events.latest_ms == 1_767_225_840_000


def test_the_schedule_names_all_partitions_of_a_topic_whose_cursors_travel_each_minute(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues
) -> None:
    """An acknowledgement creates no object, and so makes no news."""
    for name, is_replicated in (("orders", True), ("plain", False)):
        service.log.topics.create(name, partitions=3)
        service.log.subscriptions.subscribe(name, "billing", replicate_subscription_state=is_replicated)
        replication.replicated = [*replication.replicated, *((name, number) for number in range(3))]
    plain = 0
    for minute in range(5):
        replicating.run({"time": f"2026-01-01T00:0{minute}:00Z"}, None, service)
        found = queues.own.taken()
        assert [partition for name, partition in found if name == "orders"] == [0, 1, 2]
        plain += len(found) - 3
    assert plain == 3


def test_a_call_by_hand_names_every_partition(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues
) -> None:
    replication.replicated = [("orders", number) for number in range(40)]
    replicating.run({}, None, service)
    assert queues.own.taken() == [*replication.replicated]


def test_a_region_without_such_topics_sends_no_message(
    replicating: Replicating, service: Service, queues: FakeQueues
) -> None:
    assert replicating.run({"time": "2026-01-01T00:00:00Z"}, None, service) == {"partitions": 0, "due": 0}
    assert queues.own.calls == 0


def test_the_own_queue_that_takes_nothing_brings_all_messages_again(
    replicating: Replicating, replication: FakeReplication, service: Service, queues: FakeQueues
) -> None:
    replication.runs = lambda topic, partition: Ran(next_ms=1)
    queues.own.is_away = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            replicating.run(event(body()), None, service)


def test_gaps_other_histories_lag_and_damage_are_metrics(
    replicating: Replicating, replication: FakeReplication, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    replication.found = {("orders", 0): AlarmFigures(1, 0, 400_000), ("orders", 2): AlarmFigures(0, 2, 7)}
    replication.runs = raises(errors.CorruptLogError("damaged"))
    handler = running("replicator", replicating.run, service)
    report = handler(event(*(body(partition=number) for number in range(3))), _Context())
    assert metric_names.OF_REPLICATION.keys() <= report.keys()
    metrics: dict[str, Any] = {}
    for line in capsys.readouterr().out.splitlines():
        metrics |= json.loads(line)
    assert {name: metrics[name] for name in _ALARMS} == dict(
        zip(_ALARMS, ([1.0], [2.0], [400_000.0], [1.0]), strict=True)
    )


_ALARMS = (
    metric_names.REPLICATION_GAPS,
    metric_names.OTHER_HISTORIES,
    metric_names.REPLICATION_LAG_MS,
    metric_names.CORRUPT_LOG,
)


class _Context:
    aws_request_id = "request-1"
