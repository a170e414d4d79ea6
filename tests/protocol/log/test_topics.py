from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fenceline import errors
from fenceline.format import keys
from fenceline.format.control import SEAL, parse_marker
from fenceline.format.segment import parse_segment
from fenceline.log.topic_item import topic_from_value
from fenceline.model.requests import ReadRequest
from tests.support.peers import peers_named
from tests.support.runtime import START_MS
from tests.support.service import (
    REGION,
    TOPIC,
    Service,
    append,
    is_unavailable,
    loses_answer,
    moves,
    never_arrives,
    request,
    serve,
)


def objects_of(service: Service, topic_id: str) -> list[dict[str, Any]]:
    """Return the topic's objects under ``topic/``, by n."""
    store = service.objects.store
    return [json.loads(store.get(line.key).body) for line in store.list(keys.topic_prefix(topic_id))]


def item_of(service: Service, name: str = TOPIC) -> Any:
    return service.items.store.get([keys.topic_item(name)])[keys.topic_item(name)]


def sealed(service: Service, topic_id: str, partition: int) -> int:
    """Return how many SEAL markers a partition has, of which only the last marker may be one."""
    store = service.objects.store
    found = 0
    for line in store.list(keys.log_prefix(topic_id, partition), limit=100_000):
        segment = parse_segment(store.get(line.key))
        for at, header in segment.batches:
            assert not found, "nothing follows SEAL"
            found += header.is_control and parse_marker(segment.body, at, header).type == SEAL
    return found


# Create


def test_a_topic_is_what_was_asked_for(service: Service) -> None:
    made = service.log.topics.create("a.b_c-D9", partitions=3, config={"retention.ms": 5, "retention.bytes": None})
    assert (made.name, made.partitions, made.config, [*made.regions], made.created_at) == (
        "a.b_c-D9",
        3,
        {"retention.ms": 5},
        [REGION],
        START_MS,
    )
    assert service.another().topics.get("a.b_c-D9") == made
    assert made.topic_id != service.topic_id()


def test_its_object_says_what_its_item_says(service: Service) -> None:
    item = item_of(service)
    said = {name: member for name, member in item.value.items() if name != "object_n"}
    assert objects_of(service, service.topic_id()) == [said]
    assert topic_from_value(objects_of(service, service.topic_id())[0], item.version).n == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "a" * 250, "a\n", "٣", "a\0"])
def test_a_name_that_is_not_legal_is_refused_and_leads_to_nothing(service: Service, name: str) -> None:
    with pytest.raises(errors.InvalidTopicError):
        service.log.topics.create(name)
    for use in (service.log.topics.get, service.log.topics.delete, lambda n: service.log.append(n, 0, request("a"))):
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            use(name)


@pytest.mark.parametrize("name", ["a", "...", "a" * 249, "-", "_", ".a", "UPPER"])
def test_any_other_name_is_taken(service: Service, name: str) -> None:
    assert service.log.topics.create(name).name == name


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": 10_001}, "partitions"),
        ({"partitions": -1}, "partitions"),
        ({"config": {"x": 1}}, "config.x"),
        ({"regions": []}, "regions"),
        ({"regions": ["a", "a"]}, "regions"),
        ({"regions": ["A/B"]}, "regions"),
        ({"regions": [f"region-{n}" for n in range(9)]}, "regions"),
        ({"regions": [f"region-{n}" for n in range(8_000)]}, "regions"),
    ],
)
def test_invalid_options_are_refused_and_write_nothing(service: Service, options: Any, field: str) -> None:
    with pytest.raises(errors.InvalidRequestError) as refusal:
        service.log.topics.create("new", **options)
    assert refusal.value.field == field
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        service.log.topics.get("new")
    before = item_of(service)
    with pytest.raises(errors.InvalidRequestError):
        service.log.topics.alter(TOPIC, **options)
    assert item_of(service) == before


def test_a_name_is_taken_once(service: Service) -> None:
    before = service.log.topics.get(TOPIC)
    with pytest.raises(errors.TopicAlreadyExistsError):
        service.another().topics.create(TOPIC, partitions=5)
    assert service.log.topics.get(TOPIC) == before


def test_of_many_who_create_a_name_at_once_exactly_one_wins(live_service: Service) -> None:
    logs = [live_service.another() for _ in range(6)]
    for turn in range(10):
        name = f"race-{turn}"

        def create(log: Any, name: str = name) -> str | None:
            try:
                return str(log.topics.create(name).topic_id)
            except errors.TopicAlreadyExistsError:
                return None

        with ThreadPoolExecutor(len(logs)) as pool:
            won = [topic_id for topic_id in pool.map(create, logs) if topic_id is not None]
        assert won == [live_service.log.topics.get(name).topic_id]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable])
@pytest.mark.parametrize("store", ["items", "objects"])
def test_a_topic_whose_creation_lost_an_answer_is_created_once(service: Service, store: str, fault: Any) -> None:
    """The caller is not answered that the topic exists, which would be its own doing."""
    getattr(service, store).plan("write" if store == "items" else "create", fault)
    made = service.log.topics.create("new")
    assert service.another().topics.get("new") == made
    assert len(objects_of(service, made.topic_id)) == 1


def test_a_creation_that_no_store_takes_is_an_error(service: Service) -> None:
    service.items.always("write", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        service.log.topics.create("new")
    service.items.always("write", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        service.log.topics.create("new")


# List


def test_topics_are_listed_in_the_byte_order_of_their_names(service: Service) -> None:
    names = ["a", "a-b", "a.b", "a_b", "ab", "B", "_", "0", "zz", "Z"]
    for name in names:
        service.log.topics.create(name)
    expected = sorted([*names, TOPIC], key=str.encode)
    found, more = service.another().topics.list()
    assert ([topic.name for topic in found], more) == (expected, False)
    some, more = service.log.topics.list(prefix="a", limit=3)
    assert ([topic.name for topic in some], more) == (["a", "a-b", "a.b"], True)
    rest, more = service.log.topics.list(prefix="a", start_after="a.b", limit=2)
    assert ([topic.name for topic in rest], more) == (["a_b", "ab"], False)


def test_a_name_of_any_length_is_a_bounded_key_when_listing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item store's keys have bounds, which no request may run into."""
    service.log.topics.create("b")
    store, asked = service.items.store, []

    def query(partition: str, *, start_after: str, prefix: str, limit: int) -> Any:
        asked.extend([len(start_after.encode()), len(prefix.encode())])
        return real(partition, start_after=start_after, prefix=prefix, limit=limit)

    real = store.query
    monkeypatch.setattr(store, "query", query)
    assert service.log.topics.list(prefix="b" * 2_000) == ([], False)
    assert [topic.name for topic in service.log.topics.list(start_after="a" + "\U0010ffff" * 2_000)[0]] == ["b", TOPIC]
    assert service.log.topics.list(start_after="\U0010ffff" * 2_000) == ([], False)
    assert max(asked) <= 1_024


def test_a_topic_that_is_going_is_in_no_list_and_shortens_no_page(service: Service) -> None:
    for name in "abcdef":
        service.log.topics.create(name)
        service.log.append(name, 0, request("x"))
    service.objects.always("create", is_unavailable, prefix="log/")
    for name in "bcd":
        with pytest.raises(errors.OutcomeUnknownError, match="marked as deleted"):  # with part of it done
            service.log.topics.delete(name)
    service.objects.always("create", None)
    found, more = service.log.topics.list(limit=3)
    assert ([topic.name for topic in found], more) == (["a", "e", "f"], True)
    found, more = service.log.topics.list(limit=4)
    assert ([topic.name for topic in found], more) == (["a", "e", "f", TOPIC], False)
    for name in "bcd":
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            service.log.topics.get(name)
        with pytest.raises(errors.TopicAlreadyExistsError):
            service.log.topics.create(name)


# Alter


def test_a_change_keeps_what_it_does_not_name(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"retention.ms": 5, "cleanup.policy": "compact"})
    service.log.topics.alter(TOPIC, partitions=4)
    log = service.another(peers=peers_named("us"))
    log.topics.alter(TOPIC, regions=["us", REGION])
    changed = service.log.topics.alter(TOPIC, config={"retention.ms": None})
    assert (changed.partitions, changed.config, [*changed.regions]) == (
        4,
        {"cleanup.policy": "compact"},
        ["us", REGION],
    )
    assert service.another().topics.get(TOPIC) == changed


def test_each_change_has_an_object_and_none_has_two(service: Service) -> None:
    for partitions in (2, 2, 3):
        service.log.topics.alter(TOPIC, partitions=partitions)
    assert [found["partitions"] for found in objects_of(service, service.topic_id())] == [1, 2, 3]
    assert [found["n"] for found in objects_of(service, service.topic_id())] == [0, 1, 2]


def test_partitions_only_grow(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=3)
    before = item_of(service)
    assert service.log.topics.alter(TOPIC, partitions=3).partitions == 3
    assert item_of(service) == before
    with pytest.raises(errors.InvalidRequestError) as refusal:
        service.log.topics.alter(TOPIC, partitions=2)
    assert refusal.value.field == "partitions"


def test_changes_at_once_are_all_made(live_service: Service) -> None:
    names = ["retention.ms", "retention.bytes", "max.message.bytes", "producer.id.expiration.ms"]
    logs = [live_service.another() for _ in names]
    with ThreadPoolExecutor(4) as pool:
        changes = [
            pool.submit(log.topics.alter, TOPIC, config={name: 7}) for log, name in zip(logs, names, strict=True)
        ]
        for change in changes:
            change.result()
    assert live_service.log.topics.get(TOPIC).config == dict.fromkeys(names, 7)
    assert len(objects_of(live_service, live_service.topic_id())) == 5


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_change_survives_one_fault(service: Service, fault: Any) -> None:
    service.items.plan("write", fault)
    service.log.topics.alter(TOPIC, partitions=2)
    assert [found["partitions"] for found in objects_of(service, service.topic_id())] == [1, 2]


def with_missing_object(service: Service, change: Callable[[], Any]) -> None:
    """Write the item, and let the process die before the object."""
    service.objects.always("create", is_unavailable)
    with pytest.raises(errors.OutcomeUnknownError):
        change()
    service.objects.always("create", None)


def test_a_missing_object_is_made_up_by_the_next_change_first(service: Service) -> None:
    """No n is ever left out."""
    with_missing_object(service, lambda: service.log.topics.alter(TOPIC, partitions=2))
    assert [found["partitions"] for found in objects_of(service, service.topic_id())] == [1]
    service.another().topics.alter(TOPIC, partitions=3)
    assert [found["partitions"] for found in objects_of(service, service.topic_id())] == [1, 2, 3]


def test_a_change_that_changes_nothing_makes_a_missing_object_up_too(service: Service) -> None:
    with_missing_object(service, lambda: service.log.topics.alter(TOPIC, partitions=2))
    service.log.topics.alter(TOPIC, partitions=2)
    assert len(objects_of(service, service.topic_id())) == 2


def test_nothing_is_acknowledged_under_a_topic_whose_object_is_missing(service: Service) -> None:
    """Otherwise a rebuild would not find it: the first appender that meets the item makes the missing object."""
    with_missing_object(service, lambda: service.log.topics.create("other"))
    log = service.another()
    service.objects.always("create", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        log.append("other", 0, request("a"))
    service.objects.always("create", None)
    log.append("other", 0, request("a"))
    assert [found["name"] for found in objects_of(service, service.topic_id("other"))] == ["other"]
    before = service.count()["objects.create"]
    log.append("other", 0, request("b"))
    assert service.count()["objects.create"] == before + 1


def test_an_unknown_topic_is_not_altered(service: Service) -> None:
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        service.log.topics.alter("none", partitions=2)


# Delete


def test_a_deleted_topic_is_unknown_everywhere_and_its_name_is_free(service: Service) -> None:
    append(service.log, "a")
    other = service.another()
    assert append(other, "b").base_offset == 1
    service.log.topics.delete(TOPIC)
    uses = [
        lambda log: log.topics.get(TOPIC),
        lambda log: append(log, "c"),
        lambda log: log.partitions.read(TOPIC, 0, ReadRequest(offset=0)),
        lambda log: log.partitions.offsets(TOPIC, 0),
        lambda log: log.partitions.segments(TOPIC, 0),
        lambda log: log.partitions.trim(TOPIC, 0, 0),
        lambda log: log.topics.alter(TOPIC, partitions=2),
        lambda log: log.topics.delete(TOPIC),
        lambda log: log.partitions.compact(TOPIC, 0),
    ]
    for log in (service.log, other, service.another()):
        for use in uses:
            with pytest.raises(errors.UnknownTopicOrPartitionError):
                use(log)
    assert TOPIC not in [topic.name for topic in service.log.topics.list()[0]]


def test_every_partition_is_sealed_once_behind_its_records(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=3)
    append(service.log, "a")
    topic_id = service.topic_id()
    service.log.topics.delete(TOPIC)
    assert [sealed(service, topic_id, partition) for partition in range(3)] == [1, 1, 1]


def test_the_mark_is_an_object_too(service: Service) -> None:
    topic_id = service.topic_id()
    service.log.topics.delete(TOPIC)
    assert [found["is_going"] for found in objects_of(service, topic_id)] == [False, True]


def test_a_life_that_is_over_waits_to_be_collected(service: Service) -> None:
    topic_id = service.topic_id()
    service.log.topics.delete(TOPIC)
    key = keys.gone_item(topic_id)
    gone = service.items.store.get([key])[key].value
    assert (gone["topic_id"], gone["partitions"], gone["gone_at"]) == (topic_id, 1, START_MS)


def test_a_topic_created_anew_shares_nothing_with_its_earlier_life(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=2, config={"retention.ms": 5})
    append(service.log, "a", "b", producer=(7, 3, 9))
    service.log.partitions.trim(TOPIC, 0, 1)
    first = service.topic_id()
    other = service.another()
    append(other, "c")
    service.log.topics.delete(TOPIC)
    service.another().topics.create(TOPIC)
    assert service.topic_id() != first
    assert service.log.topics.get(TOPIC).config == {}
    for n, log in enumerate((service.log, other, service.another())):
        assert log.partitions.offsets(TOPIC, 0).bounds.next_offset == n
        assert append(log, "new", producer=(7, 0, n)).base_offset == n
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            log.append(TOPIC, 1, request("x"))
    assert service.values() == [b"new"] * 3


@pytest.mark.parametrize("seals_before_fault", [0, 1, 2])
@pytest.mark.parametrize("fault", [is_unavailable, never_arrives])
def test_a_delete_that_stopped_half_way_is_resumed_by_the_next(
    service: Service, fault: Any, seals_before_fault: int
) -> None:
    """The topic is marked as going, its name still taken; what is sealed stays sealed, and is sealed once."""
    service.log.topics.alter(TOPIC, partitions=3)
    append(service.log, "a")
    topic_id = service.topic_id()

    seals_left = seals_before_fault

    def seals_some(call: Any) -> Any:
        nonlocal seals_left
        seals_left -= 1
        return call() if seals_left >= 0 else fault(call)

    service.objects.always("create", seals_some, prefix="log/")
    with pytest.raises(errors.FencelineError) as raised:
        service.log.topics.delete(TOPIC)
    assert raised.value.next_step in ("retry", "check")
    assert sum(sealed(service, topic_id, partition) for partition in range(3)) == seals_before_fault
    service.objects.always("create", None)
    with pytest.raises(errors.TopicAlreadyExistsError):
        service.another().topics.create(TOPIC)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        append(service.another(), "b")
    service.another().topics.delete(TOPIC)
    assert [sealed(service, topic_id, partition) for partition in range(3)] == [1, 1, 1]
    assert service.log.topics.create(TOPIC).topic_id != topic_id


def test_deletes_at_once_are_answered_or_find_nothing(live_service: Service) -> None:
    live_service.log.topics.alter(TOPIC, partitions=4)
    append(live_service.log, "a")
    topic_id = live_service.topic_id()
    logs = [live_service.another() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        failures = [deleted.exception() for deleted in [pool.submit(log.topics.delete, TOPIC) for log in logs]]
    assert None in failures
    assert all(one is None or isinstance(one, errors.UnknownTopicOrPartitionError) for one in failures)
    assert [sealed(live_service, topic_id, partition) for partition in range(4)] == [1] * 4


def test_appends_beside_a_delete_are_stored_before_its_seal_or_refused(live_service: Service) -> None:
    service = live_service
    topic_id = service.topic_id()
    logs = [service.another() for _ in range(3)]
    acknowledged = []

    def work(log: Any) -> None:
        for _ in range(2_000):
            try:
                acknowledged.append(append(log, "x").base_offset)
            except (errors.UnknownTopicOrPartitionError, errors.OutcomeUnknownError):
                return

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, log) for log in logs]
        while len(acknowledged) < 20:
            assert not all(worker.done() for worker in workers)
            threading.Event().wait(0.001)
        service.log.topics.delete(TOPIC)
        for worker in workers:
            worker.result()
    assert sealed(service, topic_id, 0) == 1
    prefix = keys.log_prefix(topic_id, 0)
    last = service.objects.store.list(prefix, limit=100_000)[-1].key
    assert max(acknowledged) < keys.parse_segment_key(last)[2]
    assert len(set(acknowledged)) == len(acknowledged)


def test_a_deleted_log_is_whole_until_it_is_collected() -> None:
    service = serve()
    topic_id = service.log.topics.create(TOPIC).topic_id
    append(service.log, "a")
    service.log.topics.delete(TOPIC)
    assert len(service.objects.store.list(keys.log_prefix(topic_id, 0))) == 2
    service.close()
