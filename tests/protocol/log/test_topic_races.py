"""Creations and deletions of topics whose answers are lost, or whose process sleeps, while others act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.model.requests import ReadRequest
from fenceline.ports import NoAnswer, Put, VersionMoved
from fenceline.recovery.rebuild import rebuild
from fenceline.service.log import Log
from tests.protocol.log.test_topics import item_of, objects_of
from tests.support.claiming import code_of, refused
from tests.support.service import (
    REGION,
    TOPIC,
    Service,
    append,
    is_unavailable,
    loses_answer,
    lost_behind,
    never_arrives,
    request,
    slept_before,
)
from tests.support.sweeping import HOUR, swept

NAME = "new"


def delete(service: Service, name: str = NAME) -> str:
    """Delete a topic from another process, and return which incarnation it was."""
    topic_id = service.topic_id(name)
    service.another().topics.delete(name)
    return topic_id


def delete_and_collect(service: Service, name: str = NAME) -> str:
    """Delete a topic from another process; return when nothing is left of it but DELETE's mark."""
    topic_id = delete(service, name)
    while service.items.store.get([keys.gone_item(topic_id)]):
        service.runtime.advance(HOUR + 1)
        swept(service)
    assert [topic_object["is_going"] for topic_object in objects_of(service, topic_id)] == [True]
    return topic_id


def values_after_loss(service: Service, name: str = NAME) -> list[bytes | None]:
    """Lose all items, rebuild them, and return what the topic has."""
    items = SqliteItemStore(":memory:")
    rebuild(Context(service.objects.store, items, service.runtime, REGION))
    log = Log(service.objects.store, items, service.runtime, region=REGION)
    found = [record.value for record in log.partitions.read(name, 0, ReadRequest(offset=0)).records]
    log.close()
    items.close()
    return found


# Create


@pytest.mark.parametrize("end", [delete, delete_and_collect])
def test_a_creation_that_was_deleted_before_it_was_answered_begins_a_life_of_its_own(
    service: Service, end: Callable[[Service], str]
) -> None:
    """With the first attempt's id, the topic would be under DELETE's mark: a rebuild would find nothing of it."""
    ended: list[str] = []
    service.items.plan("write", lost_behind(lambda: ended.append(end(service))))
    made = service.log.topics.create(NAME)
    assert [made.topic_id] != ended
    service.log.append(NAME, 0, request("acknowledged"))
    assert values_after_loss(service) == [b"acknowledged"]


def test_no_two_attempts_of_a_creation_use_one_id(service: Service) -> None:
    tried: list[str] = []

    def keep(operation: str, key: str) -> None:
        if operation == "write" and "," in key:
            tried.append(key.split(",")[1])

    service.items.on_call = keep
    service.items.plan("write", never_arrives, never_arrives, never_arrives)
    made = service.log.topics.create(NAME)
    assert len(tried[:4]) == len(set(tried[:4])) == 4
    assert tried[3] == made.topic_id


def test_an_attempt_that_lands_late_brings_no_topic_back(service: Service) -> None:
    """Another attempt was answered, and its topic deleted: no caller would know of this one."""
    late: list[Callable[[], Any]] = []

    def held_up(call: Callable[[], Any]) -> Any:
        late.append(call)
        raise NoAnswer("on its way")

    service.items.plan("write", held_up, held_up)
    service.log.topics.create(NAME)
    service.log.topics.delete(NAME)
    for call in late:
        with pytest.raises(VersionMoved):
            call()
    assert code_of(lambda: service.log.topics.get(NAME)) == "UNKNOWN_TOPIC_OR_PARTITION"
    service.runtime.advance(HOUR + 1)
    for _ in range(4):
        swept(service)
        service.runtime.advance(HOUR + 1)
    assert service.items.store.query(keys.GONE) == []


def test_an_attempt_that_a_rebuild_gave_another_name_is_not_given_up(service: Service) -> None:
    """Its incarnation has begun, and has what was acknowledged in it.

    Under ``gone`` all of that would be collected.
    """
    lives: list[str] = []

    def lose_and_rebuild() -> None:
        service.another().append(NAME, 0, request("acknowledged"))
        lives.append(service.topic_id(NAME))
        service.items.store = SqliteItemStore(":memory:")
        service.another().topics.create(NAME)
        service.items.store = SqliteItemStore(":memory:")
        rebuild(Context(service.objects.store, service.items.store, service.runtime, REGION))
        service.another().topics.delete(NAME)

    service.items.plan("write", lost_behind(lose_and_rebuild))
    service.log.topics.create(NAME)
    (recovered,) = [topic.name for topic in service.log.topics.list()[0] if topic.topic_id in lives]
    for _ in range(4):
        service.runtime.advance(HOUR + 1)
        swept(service)
    assert service.values(recovered) == [b"acknowledged"]


def test_a_creation_that_others_changed_before_it_was_answered_is_created(service: Service) -> None:
    other = service.another()
    service.items.plan("write", lost_behind(lambda: other.topics.alter(NAME, partitions=3)))
    assert service.log.topics.create(NAME) == other.topics.get(NAME)
    assert [topic_object["partitions"] for topic_object in objects_of(service, service.topic_id(NAME))] == [1, 3]


def test_a_creation_being_deleted_before_its_answer_is_of_unknown_outcome(service: Service) -> None:
    def begin_to_delete() -> None:
        service.objects.always("create", is_unavailable, prefix="log/")
        with pytest.raises(errors.OutcomeUnknownError):
            service.another().topics.delete(NAME)
        service.objects.always("create", None)
        assert item_of(service, NAME).value["is_going"]

    service.items.plan("write", lost_behind(begin_to_delete))
    refusal = refused(lambda: service.log.topics.create(NAME))
    assert (refusal.code, "another request has deleted it since" in refusal.detail) == ("OUTCOME_UNKNOWN", True)


def test_a_creation_whose_name_was_taken_afterwards_is_of_unknown_outcome(service: Service) -> None:
    """The creation may have been carried out, and deleted by the creator that has the name now: here it was."""

    def replace() -> None:
        delete(service)
        service.another().topics.create(NAME, partitions=2)

    service.items.plan("write", lost_behind(replace))
    assert code_of(lambda: service.log.topics.create(NAME)) == "OUTCOME_UNKNOWN"
    assert service.log.topics.get(NAME).partitions == 2


@pytest.mark.parametrize("end", [delete, delete_and_collect])
def test_a_creation_deleted_before_its_object_was_made_is_of_unknown_outcome(
    service: Service, end: Callable[[Service], str]
) -> None:
    """Its object, made after the mark, brings it back in no rebuild."""
    service.objects.plan("create", slept_before(lambda: end(service)))
    assert code_of(lambda: service.log.topics.create(NAME)) == "OUTCOME_UNKNOWN"
    assert code_of(lambda: service.log.topics.get(NAME)) == "UNKNOWN_TOPIC_OR_PARTITION"
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        values_after_loss(service)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable])
def test_a_creation_whose_note_of_its_object_failed_is_created(service: Service, fault: Any) -> None:
    service.items.plan("write", lambda call: call(), fault)
    assert service.log.topics.create(NAME) == service.another().topics.get(NAME)


# Objects


def test_an_object_of_another_change_is_not_taken_for_ones_own(service: Service) -> None:
    """A change whose item was lost since has left such an object: the next change takes the number after it."""
    topic_id = service.topic_id()
    before = item_of(service)
    service.log.topics.alter(TOPIC, partitions=5)
    changed = item_of(service)
    service.items.store.write([Put(before.key, before.value, changed.version + 1, changed.version)])
    service.another().topics.alter(TOPIC, config={"retention.ms": 7})
    objects = objects_of(service, topic_id)
    assert [(one["n"], one["partitions"], one["config"]) for one in objects] == [
        (0, 1, {}),
        (1, 5, {}),
        (2, 1, {"retention.ms": 7}),
    ]
    append(service.another(), "a")
    assert values_after_loss(service, TOPIC) == [b"a"]


def test_a_topic_whose_objects_say_that_it_was_deleted_is_not_changed(service: Service) -> None:
    topic_id = service.topic_id()
    before = item_of(service)
    service.log.topics.delete(TOPIC)
    service.items.store.write([Put(before.key, before.value, 1, expected=None)])
    log = service.another()
    assert code_of(lambda: log.topics.alter(TOPIC, partitions=2)) == "CORRUPT_LOG"
    assert [topic_object["is_going"] for topic_object in objects_of(service, topic_id)] == [False, True]


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_deletion_beside_a_change_that_takes_another_number_is_no_damage(service: Service, moment: int) -> None:
    """A process that has an old item sees DELETE's mark.

    The mark is one of a live item only if that item is still the same.
    """
    topic_id, other = service.topic_id(), service.another()
    before = item_of(service)
    service.log.topics.alter(TOPIC, partitions=5)
    changed, altered = item_of(service), {**before.value, "n": 1, "object_n": 0, "config": {"retention.ms": 7}}
    service.items.store.write([Put(before.key, altered, changed.version + 1, changed.version)])
    seen: list[str] = []

    def on_call(operation: str, key: str) -> None:
        if "topic/" in key:
            seen.append(operation)
            if len(seen) == moment:
                other.topics.delete(TOPIC)

    log = service.another()
    service.objects.on_call = on_call
    error = ended(lambda: log.topics.alter(TOPIC, config={"retention.bytes": 5}))
    assert len(seen) >= moment
    assert error in (None, "CONTENDED", "OUTCOME_UNKNOWN", "UNKNOWN_TOPIC_OR_PARTITION")
    assert [topic_object["is_going"] for topic_object in objects_of(service, topic_id)][-1]


def ended(call: Callable[[], Any]) -> str | None:
    """Return the code of the error that a call ends with, if it ends with one."""
    try:
        call()
    except errors.FencelineError as error:
        return error.code
    return None


def _altered_often(service: Service) -> Any:
    """Alter a topic six times, and return its item from before."""
    before = item_of(service)
    for partitions in range(2, 8):
        service.log.topics.alter(TOPIC, partitions=partitions)
    return before


def test_the_number_behind_more_objects_than_one_listing_has_is_found(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the first listing is not the newest: its number is taken, and so is the next one, for ever."""
    before = _altered_often(service)
    changed = item_of(service)
    service.items.store.write([Put(before.key, before.value, changed.version + 1, changed.version)])
    monkeypatch.setattr(limits, "LIST_MAX", 3)
    service.another().topics.alter(TOPIC, config={"retention.ms": 7})
    objects = objects_of(service, service.topic_id())
    assert [(one["n"], one["partitions"]) for one in objects] == [*((n, n + 1) for n in range(7)), (7, 1)]


def test_a_mark_behind_more_objects_than_one_listing_has_is_found(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id, before = service.topic_id(), _altered_often(service)
    service.log.topics.delete(TOPIC)
    service.items.store.write([Put(before.key, before.value, 1, expected=None)])
    monkeypatch.setattr(limits, "LIST_MAX", 3)
    log = service.another()
    assert code_of(lambda: log.topics.alter(TOPIC, partitions=9)) == "CORRUPT_LOG"
    monkeypatch.undo()
    assert objects_of(service, topic_id)[-1]["is_going"]


# Change


@pytest.mark.parametrize("is_made", [True, False])
def test_a_change_that_may_have_been_made_is_of_unknown_outcome(service: Service, is_made: bool) -> None:
    """A rival has more partitions by then: the same change again would take some away."""
    other = service.another()

    def grow(call: Callable[[], Any]) -> Any:
        if is_made:
            call()
        other.topics.alter(TOPIC, partitions=5)
        raise NoAnswer("lost")

    service.items.plan("write", grow)
    change = {"partitions": 3, "config": {"retention.ms": 7}}
    assert code_of(lambda: service.log.topics.alter(TOPIC, **change)) == "OUTCOME_UNKNOWN"  # type: ignore[arg-type]
    assert service.log.topics.get(TOPIC).config == ({"retention.ms": 7} if is_made else {})


def test_a_change_of_a_topic_deleted_afterwards_is_of_unknown_outcome(service: Service) -> None:
    service.items.plan("write", lost_behind(lambda: delete(service, TOPIC)))
    assert code_of(lambda: service.log.topics.alter(TOPIC, partitions=2)) == "OUTCOME_UNKNOWN"


def test_a_partition_keeps_nothing_of_the_next_life_of_its_topics_name(service: Service) -> None:
    service.log.topics.create(NAME)
    partition = Partition(service.another().context, NAME, service.topic_id(NAME), 0)
    partition.refresh()
    delete_and_collect(service)
    service.log.topics.create(NAME, config={"cleanup.policy": "compact"})
    for _ in range(2):
        with pytest.raises(StaleTopicId):
            partition.refresh()
    assert (partition.topic.topic_id, dict(partition.topic.config)) == (partition.topic_id, {})


def test_a_change_is_not_made_again_in_a_later_life(service: Service) -> None:
    def replace() -> None:
        delete(service, TOPIC)
        service.another().topics.create(TOPIC)

    service.items.plan("write", lost_behind(replace))
    assert code_of(lambda: service.log.topics.alter(TOPIC, partitions=2)) == "OUTCOME_UNKNOWN"
    assert service.log.topics.get(TOPIC).partitions == 1


@pytest.mark.parametrize(
    "change", [lambda log: log.topics.alter(TOPIC, partitions=5), lambda log: log.topics.delete(TOPIC)]
)
def test_a_change_in_the_item_without_its_object_is_of_unknown_outcome(
    service: Service, change: Callable[[Log], Any]
) -> None:
    """The item says it since a request that was cut off. ``retry`` would say that nothing was changed."""
    topic_id = service.topic_id()
    service.objects.always("create", is_unavailable, prefix="topic/")
    for _ in range(2):
        assert code_of(lambda: change(service.another())) == "OUTCOME_UNKNOWN"
    service.objects.always("create", None)
    change(service.another())
    assert [topic_object["n"] for topic_object in objects_of(service, topic_id)] == [0, 1]


# Delete


def test_a_deletion_that_others_completed_before_it_was_answered_is_done(service: Service) -> None:
    topic_id, other = service.topic_id(), service.another()
    service.items.plan("write", lost_behind(lambda: other.topics.delete(TOPIC)))
    service.log.topics.delete(TOPIC)
    assert [topic_object["is_going"] for topic_object in objects_of(service, topic_id)] == [False, True]
    assert code_of(lambda: service.log.topics.delete(TOPIC)) == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_deletion_whose_mark_was_not_answered_ends_no_later_life(service: Service, fault: Any) -> None:
    """Others deleted the topic, and created another under its name, which this request never met."""
    other = service.another()

    def replaced(call: Callable[[], Any]) -> Any:
        try:
            return fault(call)
        finally:
            other.topics.delete(TOPIC)
            other.topics.create(TOPIC, partitions=2)
            append(other, "kept")

    service.items.plan("write", replaced)
    service.log.topics.delete(TOPIC)
    assert service.log.topics.get(TOPIC).partitions == 2
    assert service.values() == [b"kept"]
    assert append(service.log, "next").base_offset == 1
