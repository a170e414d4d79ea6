"""Checks that must hold in a scene, whichever process died in it.

Rule: no promise is broken, and the objects alone show all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.format.batch import headers
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.model.topic import Topic
from fenceline.recovery.rebuild import rebuild
from fenceline.recovery.verify import verify_partition
from fenceline.service.log import Log
from tests.simulation.crash.scene import Scene, read_all, request_of
from tests.support.service import REGION


def check_promises(scene: Scene, log: Log) -> None:
    """Check that every answer is so: each name leads to its topic, and each record is where it was acknowledged."""
    ledger = scene.ledger
    listed, _ = log.topics.list(limit=1_000)
    found = {topic.name: topic for topic in listed}
    for name, promised in ledger.topics.items():
        if promised.topic_id in ledger.going:
            continue  # there or not, until DELETE is answered
        assert name in found, f"no topic of the name {name}"
        assert found[name].topic_id == promised.topic_id
        assert found[name].partitions >= promised.partitions
    for topic in listed:
        assert topic.name in ledger.topics or topic.topic_id not in ledger.going, f"{topic.name} was deleted"
        assert log.topics.get(topic.name) == topic
        for partition in range(topic.partitions):
            _check_records(scene, log, topic, partition)


def _check_records(scene: Scene, log: Log, topic: Topic, partition: int) -> None:
    ledger, where = scene.ledger, (topic.topic_id, partition)
    bounds = log.partitions.offsets(topic.name, partition).bounds
    records = read_all(log, topic.name, partition, bounds.log_start_offset)
    offsets = [record.offset for record in records]
    taken = sorted([*offsets, *(o for o in _markers(scene, where) if o >= bounds.log_start_offset)])
    assert taken == list(range(bounds.log_start_offset, bounds.next_offset)), f"gaps in {where}: {taken}"
    stored = {r.offset: (r.key, r.value, tuple((n, v) for n, v in r.headers)) for r in records}
    acknowledged = ledger.acknowledged.get(where, {})
    assert bounds.next_offset > max(acknowledged, default=-1), f"acknowledged records are missing in {where}"
    for offset, payload in acknowledged.items():
        assert offset < bounds.log_start_offset or stored[offset] == payload, f"another record at {offset}"
    values = [record.value or b"" for record in records]
    assert len(set(values)) == len(values), f"a record is there twice in {where}: {values}"
    for offset, (_, value, _) in stored.items():
        assert value not in ledger.refused, f"{value!r} was refused, and is at {offset}"
        assert offset in acknowledged or value in ledger.unknown, f"no client sent {value!r}"


def _markers(scene: Scene, where: tuple[str, int]) -> list[int]:
    """Return the offsets that markers take."""
    stored = scene.objects.list(keys.log_prefix(*where), limit=100_000)
    segments = [scene.objects.get(line.key).body for line in stored]
    return [header.base_offset for body in segments for _, header in headers(body) if header.is_control]


def check_duplicates(scene: Scene, log: Log) -> None:
    """Check that each producer that sends its last acknowledged batch again is answered with that batch's offset."""
    live = {topic.topic_id: topic.name for topic in log.topics.list(limit=1_000)[0]}
    for (topic_id, partition, _), (request, original) in scene.ledger.batches.items():
        if topic_id in live:
            again = log.append(live[topic_id], partition, request)
            assert again is not None
            assert (again.duplicate, again.base_offset) == (True, original.base_offset), "a batch was stored twice"


def check_verified(scene: Scene) -> None:
    """Check that the objects are whole and joined, and that the items follow from folding them (I2, I3, I5)."""
    context = scene.process().context
    for topic in _live(scene):
        for partition in range(topic.partitions):
            verified = verify_partition(context, topic, partition)
            assert verified.broken_at is None, f"{topic.name}/{partition} at {verified.broken_at}: {verified.problem}"
            assert not verified.findings, f"{topic.name}/{partition}: {verified.findings}"
            item = scene.items.get([keys.head_item(topic.topic_id, partition)])
            heads = [Head.from_value(found.value) for found in item.values()]
            assert all(head.log_start <= head.next_offset <= verified.next_offset for head in heads)
            asked = scene.ledger.log_starts.get((topic.topic_id, partition), 0)
            assert asked <= max((head.log_start for head in heads), default=0), "an acknowledged trim was undone"


def check_rebuilt(scene: Scene) -> None:
    """Check that the objects alone show everything that was promised, as they are now."""
    with _rebuilt(scene) as log:
        check_promises(scene, log)


def check_rebuilt_equal(scene: Scene) -> None:
    """Check that the objects alone give the topics and offsets that the items give.

    Producers go on where they were.
    """
    with _rebuilt(scene) as log:
        check_promises(scene, log)
        served = scene.process().log
        topics, _ = served.topics.list(limit=1_000)
        assert log.topics.list(limit=1_000)[0] == topics
        for topic in topics:
            for partition in range(topic.partitions):
                was, now = (
                    served.partitions.offsets(topic.name, partition).bounds,
                    log.partitions.offsets(topic.name, partition).bounds,
                )
                assert now.next_offset == was.next_offset
                assert now.log_start_offset <= was.log_start_offset, "a rebuild forgets records that are still served"
        assert log.producing.new_producer_id()[0] > max(
            [*scene.ledger.producer_ids, *_producers_in_batches(scene)], default=-1
        )
        check_duplicates(scene, log)
        for topic in topics:
            tail = log.partitions.offsets(topic.name, 0).bounds.next_offset
            answer = log.append(topic.name, 0, request_of("after a rebuild"))
            assert answer is not None
            assert answer.base_offset == tail


@contextmanager
def _rebuilt(scene: Scene) -> Iterator[Log]:
    with closing(SqliteItemStore(":memory:")) as items:
        rebuild(Context(scene.objects, items, scene.runtime, REGION))
        yield Log(scene.objects, items, scene.runtime, region=REGION)


def _producers_in_batches(scene: Scene) -> list[int]:
    return [producer_id for _, _, producer_id in scene.ledger.batches]


def _live(scene: Scene) -> Sequence[Topic]:
    return scene.process().log.topics.list(limit=1_000)[0]
