"""The notifier: a new segment of a topic in several regions is reported to these regions, and to no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fenceline.format import keys
from fenceline.ports import NoAnswer, Unavailable
from fenceline.service.log import Log
from fenceline_http.wiring import Service
from functions.replication.notify import Notifier
from functions.telemetry import metric_names
from functions.telemetry.observed import running
from tests.http.conftest import service_in_memory
from tests.support.queues import FakeQueues, event, failed, news, news_of, settings
from tests.support.runtime import FakeRuntime


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def queues() -> FakeQueues:
    return FakeQueues()


@pytest.fixture
def notifier(queues: FakeQueues) -> Notifier:
    return Notifier(lambda _: queues)


@pytest.fixture
def service(runtime: FakeRuntime) -> Iterator[Service]:
    made = service_in_memory()
    log = Log(made.objects, made.items, runtime, region="a", item_age_ms=0, peers=dict.fromkeys("bc"))  # type: ignore[arg-type]
    yield replace(made, settings=settings(), log=log)
    made.close()


def create(service: Service, name: str, *regions: str) -> str:
    """Create a topic in these regions beside a, and return its id."""
    service.log.topics.create(name, partitions=4, regions=["a", *regions])
    return service.log.topics.get(name).topic_id


def test_each_region_of_the_topic_is_informed_once_of_each_partition(
    notifier: Notifier, queues: FakeQueues, service: Service
) -> None:
    topic_id = create(service, "orders", "b")
    report = notifier.run(event(news((topic_id, 0), (topic_id, 3)), news((topic_id, 0))), None, service)
    assert queues.own.taken() == queues.peers["b"].taken() == [("orders", 0), ("orders", 3)]
    assert queues.peers["c"].calls == 0
    assert failed(report) == []
    assert (report["messages"], report["partitions"], report["unsent"]) == (2, 2, {})


def test_a_topic_of_one_region_is_news_to_none(notifier: Notifier, queues: FakeQueues, service: Service) -> None:
    topic_id = create(service, "here")
    assert failed(notifier.run(event(news((topic_id, 0)), news(("gone", 0))), None, service)) == []
    assert (queues.own.calls, queues.peers["b"].calls) == (0, 0)


def test_a_topics_object_is_read_once_in_a_minute(
    notifier: Notifier, queues: FakeQueues, service: Service, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = create(service, "orders")
    notifier.run(event(news((topic_id, 0))), None, service)
    service.log.topics.alter("orders", regions=["a", "b"])
    listed = []
    kept = service.objects.list

    def counted(*about: object) -> object:
        listed.append(about)
        return kept(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(service.objects, "list", counted)
    runtime.advance(59_999)
    notifier.run(event(news((topic_id, 0))), None, service)
    assert (queues.own.calls, listed) == (0, [])
    runtime.advance(1)
    notifier.run(event(news((topic_id, 0))), None, service)
    assert queues.peers["b"].taken() == [("orders", 0)]


def test_a_peer_that_is_away_stops_nothing_and_is_left_alone_for_a_while(
    notifier: Notifier, queues: FakeQueues, service: Service, runtime: FakeRuntime
) -> None:
    """I25: its own schedule finds what these messages would have said."""
    topic_id = create(service, "orders", "b", "c")
    queues.peers["b"].is_away = True
    for _ in range(2):
        report = notifier.run(event(news((topic_id, 1))), None, service)
        assert (failed(report), report["unsent"]) == ([], {"b": 1})
        assert queues.own.taken() == queues.peers["c"].taken() == [("orders", 1)]
    assert queues.peers["b"].calls == 1
    queues.peers["b"].is_away = False
    runtime.advance(30_000)
    notifier.run(event(news((topic_id, 1))), None, service)
    assert queues.peers["b"].taken() == [("orders", 1)]


def test_messages_that_a_peers_queue_did_not_take_are_a_metric(
    notifier: Notifier, queues: FakeQueues, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    topic_id = create(service, "orders", "b", "c")
    handler = running("notifier", notifier.run, service)

    def metrics() -> list[object]:
        handler(event(news((topic_id, 0), (topic_id, 1))), SimpleNamespace(aws_request_id="request-1"))
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [line[metric_names.UNSENT] for line in lines if metric_names.UNSENT in line]

    assert metrics() == []
    queues.peers["b"].is_away = queues.peers["c"].is_away = True
    assert metrics() == [[4.0]]


def test_the_own_queue_that_takes_nothing_brings_all_messages_again(
    notifier: Notifier, queues: FakeQueues, service: Service
) -> None:
    topic_id = create(service, "orders", "b")
    queues.own.is_away = True
    with pytest.raises(Unavailable):
        notifier.run(event(news((topic_id, 1))), None, service)


def test_a_store_that_fails_brings_all_messages_again(
    notifier: Notifier, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise NoAnswer("no answer")

    monkeypatch.setattr(service.objects, "list", away)
    with pytest.raises(NoAnswer):
        notifier.run(event(news(("any", 1))), None, service)


@pytest.mark.parametrize(
    "body", ["", "no JSON", "[]", "{}", '{"Records": 1}', '{"Records": [{"s3": {}}]}', '{"Records": [null]}']
)
def test_an_invalid_message_fails_alone(notifier: Notifier, queues: FakeQueues, service: Service, body: str) -> None:
    topic_id = create(service, "orders", "b")
    assert failed(notifier.run(event(body, news((topic_id, 2))), None, service)) == ["0"]
    assert queues.own.taken() == [("orders", 2)]


def test_events_of_foreign_objects_are_ignored(notifier: Notifier, queues: FakeQueues, service: Service) -> None:
    topic_id = create(service, "orders", "b")
    trial = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"})
    others = news_of("log/by-hand.log", "log/a/b/c.log", "topic/x/1.json", "log/a/0/0.log/extra")
    assert failed(notifier.run(event(trial, others, news((topic_id, 0), bucket="another")), None, service)) == []
    assert queues.own.calls == 0


def test_a_damaged_topic_object_fails_its_messages_alone(
    notifier: Notifier, queues: FakeQueues, service: Service
) -> None:
    topic_id = create(service, "orders", "b")
    service.objects.create(keys.topic_key("damaged", 0), b"{", {})
    report = notifier.run(event(news(("damaged", 0)), news((topic_id, 2))), None, service)
    assert failed(report) == ["0"]
    assert queues.peers["b"].taken() == [("orders", 2)]


def test_a_topic_that_is_deleted_is_news_to_none(notifier: Notifier, queues: FakeQueues, service: Service) -> None:
    topic_id = create(service, "orders", "b")
    service.log.topics.delete("orders")
    assert failed(notifier.run(event(news((topic_id, 0))), None, service)) == []
    assert queues.own.calls == 0


def test_the_queues_clock_goes_on_while_the_function_is_frozen(notifier: Notifier, service: Service) -> None:
    """I4, I7: what was looked at before is old by the time of the newest message."""
    notifier.run(event(news(("any", 0)), sent_ms=1_700_000_000_000), None, service)
    assert service.log.context.events.latest_ms == 1_700_000_000_000
