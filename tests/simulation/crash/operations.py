"""Every operation of the log, as an entry of the crash matrix: its set-up, the operation, and the mends.

Rule: an entry's ``do`` is run once for each of its store calls and each fate of that call. After it a new process does
each of ``mends``. ``holds`` is the operation's own promise once it was mended.

Not here: what holds for every operation (``crash/checks.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pytest

from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.append.group import Ticket
from fenceline.errors import (
    OffsetMismatchError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from fenceline.format import keys
from fenceline.format.segment import parse_segment
from fenceline.limits import GC_GRACE_MS, STATE_MS
from fenceline.log.checkpoint_items import Head
from fenceline.model.requests import ReadRequest
from fenceline.recovery.rebuild import rebuild
from tests.simulation.crash.scene import Died, Fate, Process, Scene, read_all, request_of
from tests.support.service import TOPIC, appender_of
from tests.support.sweeping import strict_sweep

Action = Callable[[Scene, Process], object]


@dataclass(frozen=True)
class Operation:
    """One row of the matrix."""

    name: str
    set_up: Callable[[Scene], Process]  # returns the process that will do it
    do: Action
    mends: Mapping[str, Action]
    holds: Action = lambda scene, process: None
    items_at_once: int = 3  # in a transaction, so that many items are written in several steps


# Set-ups


def cold(scene: Scene) -> Process:
    """Make two partitions with records, plain and idempotent; the process knows nothing of them."""
    _with_records(scene)
    return scene.process()


def warm(scene: Scene) -> Process:
    """Make the same, by a process that has just written there."""
    return _with_records(scene)


def _with_records(scene: Scene) -> Process:
    process = scene.process()
    scene.create_topic(process, TOPIC, partitions=2)
    scene.append(process, TOPIC, 0, "a0", "a1")
    scene.append(process, TOPIC, 0, "b0", producer=(7, 0, 0))
    scene.append(process, TOPIC, 1, "c0")
    return process


def beside_rivals(scene: Scene) -> Process:
    """Make the same, by a process that lost its last creates to rivals: it offers what it appends next."""
    process = _with_records(scene)
    _meet_rivals(process)
    return process


def beside_an_offer(scene: Scene) -> Process:
    """Make the same, and an offer of another process, which has died since."""
    process, other = _with_records(scene), scene.process()
    scene.append(other, TOPIC, 0, "d0")
    scene.append(process, TOPIC, 0, "e0")
    _meet_rivals(process)
    appender = appender_of(other.log, topic_id=scene.topic(TOPIC).topic_id)
    entry = other.log.producing.prepared(appender.partition, scene.topic(TOPIC), request_of("left"), is_new=True)
    appender.queue.add(Ticket(entry, 1 << 62))
    assert appender.meet_rivals().offer()
    scene.ledger.unknown.add(b"left")
    return process


def _meet_rivals(process: Process) -> None:
    appender = appender_of(process.log)
    backoff = appender.contention.backoff
    backoff._creates_ms.clear()
    backoff.answered(100)  # else offers are not worth their writes: calls take no time here
    appender.meet_rivals().own.served_at = backoff.won_at + 1  # as if a rival had committed its last append


def nothing_there(scene: Scene) -> Process:
    return scene.process()


def ids_given(scene: Scene) -> Process:
    """Let another process have a block of ids, and give one out."""
    scene.new_producer_id(scene.process())
    return scene.process()


def name_used_before(scene: Scene) -> Process:
    process = _with_records(scene)
    scene.delete_topic(process, TOPIC)
    return process


def only_an_item(scene: Scene) -> Process:
    """Let the topic's maker die between its item and its object; the client got no answer."""
    maker = scene.process()
    maker.arm(Fate.DIES_BEFORE, 1)
    with suppress(Died):
        maker.log.topics.create(TOPIC)
    return scene.process()


def fifteen_segments(scene: Scene) -> Process:
    """Write so many segments that the next one makes a checkpoint due."""
    process = scene.process()
    scene.create_topic(process, TOPIC)
    for n in range(15):
        scene.append(process, TOPIC, 0, f"a{n}", producer=(7 + n % 3, 0, n // 3))
    return process


FIVE_PRODUCERS = [request_of(f"p{n}", producer=(100 + n, 0, 0)) for n in range(5)]


def many_producers(scene: Scene) -> Process:
    """Make more producers than one transaction takes here."""
    process = scene.process()
    scene.create_topic(process, TOPIC)
    scene.append_group(process, TOPIC, 0, FIVE_PRODUCERS)
    return process


def trimmed_before(scene: Scene) -> Process:
    """Make an object under ``state/``, old enough for another."""
    process = _with_records(scene)
    scene.trim(process, TOPIC, 0, 1)
    scene.append(process, TOPIC, 0, "d0", producer=(7, 0, 1))
    scene.runtime.advance(STATE_MS)
    scene.append(process, TOPIC, 0, "e0")
    return process


def trimmed_just_now(scene: Scene) -> Process:
    """Make an object under ``state/``, too young for another."""
    process = _with_records(scene)
    scene.trim(process, TOPIC, 0, 1)
    return process


def keyed(scene: Scene) -> Process:
    """Make a compacted topic in which keys come back."""
    process = scene.process()
    scene.create_topic(process, TOPIC, config={"cleanup.policy": "compact"})
    scene.append(process, TOPIC, 0, "k1:a", "k2:b", "k3:c")
    scene.append(process, TOPIC, 0, "k1:d", producer=(7, 0, 0))
    return scene.process()


def compacted_before(scene: Scene) -> Process:
    """Make a view, and something after it."""
    process = keyed(scene)
    process.log.partitions.compact_now(TOPIC, 0)
    scene.append(process, TOPIC, 0, "k2:e", "k1:f")
    return scene.process()


def retained(scene: Scene) -> Process:
    """Make more than ``retention.bytes`` keeps."""
    process = scene.process()
    scene.create_topic(process, TOPIC, config={"retention.bytes": 1})
    for n in range(3):
        scene.append(process, TOPIC, 0, f"a{n}", producer=(7, 0, n))
    scene.runtime.advance(STATE_MS)
    return scene.process()


def collectable(scene: Scene) -> Process:
    """Let two trims leave behind what is old enough to go."""
    trim(scene, trimmed_before(scene))
    scene.runtime.advance(2 * GC_GRACE_MS)
    return scene.process()


def views_left_behind(scene: Scene) -> Process:
    """Let a newer view be in force for long, and a compaction die."""
    process = compacted_before(scene)
    process.log.partitions.compact(TOPIC, 0)
    scene.runtime.advance(2 * GC_GRACE_MS)
    return scene.process()


def life_over(scene: Scene) -> Process:
    """Delete a topic, and let the sweeper wait for long; another topic lives."""
    process = _with_records(scene)
    scene.create_topic(process, "another")
    scene.append(process, "another", 0, "x0", "x1", producer=(7, 0, 0))
    scene.delete_topic(process, "another")
    sweep_all(scene, process)
    scene.runtime.advance(2 * GC_GRACE_MS)
    return scene.process()


def life_emptied(scene: Scene) -> Process:
    """Leave nothing of a deleted topic but what shows that it is over, and that for long."""
    process = life_over(scene)
    sweep_all(scene, process)
    scene.runtime.advance(2 * GC_GRACE_MS)
    return scene.process()


def items_lost(scene: Scene) -> Process:
    """Make two incarnations of one name, a trim, producers: and then lose all items."""
    process = name_used_before(scene)
    scene.create_topic(process, TOPIC, partitions=2)
    scene.append_group(process, TOPIC, 0, FIVE_PRODUCERS)
    scene.append(process, TOPIC, 1, "d0", "d1")
    scene.trim(process, TOPIC, 1, 1)
    scene.lose_items()
    return scene.process()


# Operations and mends


def append_plain(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "new")


def append_more(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "more")


def append_expecting(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "new", expected=3)


def append_expecting_again(scene: Scene, process: Process) -> None:
    """Append again: it lands now, or it had landed and the mismatch names the tail."""
    landed = read_all(process.log, TOPIC, 0, 3)
    if not landed:
        assert scene.append(process, TOPIC, 0, "new", expected=3).base_offset == 3
        return
    assert [record.value for record in landed] == [b"new"]
    with pytest.raises(OffsetMismatchError) as refusal:
        scene.append(process, TOPIC, 0, "new", expected=3)
    assert refusal.value.next_offset == 4


def append_idempotent(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "n0", "n1", producer=(7, 0, 1))


def append_idempotent_again(scene: Scene, process: Process) -> None:
    """Append again: it lands now, or it had landed and is a duplicate of itself.

    The producer goes on after it.
    """
    had_landed = process.log.partitions.offsets(TOPIC, 0).bounds.next_offset == 5
    answer = scene.append(process, TOPIC, 0, "n0", "n1", producer=(7, 0, 1))
    assert (answer.base_offset, answer.duplicate) == (3, had_landed)
    assert scene.append(process, TOPIC, 0, "n2", producer=(7, 0, 3)).base_offset == 5


GROUP = [
    request_of("g0", producer=(7, 0, 1)),
    request_of("g1", "g2", producer=(8, 0, 0)),
    request_of("g3", producer=(7, 0, 2)),
]


def append_group(scene: Scene, process: Process) -> None:
    scene.append_group(process, TOPIC, 0, GROUP)


def append_group_one_by_one(scene: Scene, process: Process) -> None:
    """Send a group's batches one by one: the group is in the log whole or not at all."""
    had_landed = process.log.partitions.offsets(TOPIC, 0).bounds.next_offset == 7
    for request in GROUP:
        answer = process.log.append(TOPIC, 0, request)
        assert answer is not None
        assert answer.duplicate == had_landed
        scene.note(TOPIC, 0, request, answer)


def append_sixteenth(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "a15", producer=(7, 0, 5))


def append_behind_it(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "more", producer=(99, 0, 0))


def checkpoint(scene: Scene, process: Process) -> None:
    process.log.partitions.checkpoint(TOPIC, 0)


def checkpoint_reaches_the_end(scene: Scene, process: Process) -> None:
    end = process.log.partitions.offsets(TOPIC, 0).bounds.next_offset
    assert process.log.partitions.checkpoint(TOPIC, 0) == end
    assert head_of(scene, process.log.topics.get(TOPIC).topic_id, 0).next_offset == end


def head_of(scene: Scene, topic_id: str, partition: int) -> Head:
    [item] = scene.items.get([keys.head_item(topic_id, partition)]).values()
    return Head.from_value(item.value)


def trim(scene: Scene, process: Process) -> None:
    assert scene.trim(process, TOPIC, 0, 2) == 2


def trim_further(scene: Scene, process: Process) -> None:
    """Trim further, ten minutes on: that makes the object that another trim owed."""
    scene.runtime.advance(STATE_MS)
    scene.append(process, TOPIC, 0, "more")
    assert scene.trim(process, TOPIC, 0, 3) == 3
    topic_id = process.log.topics.get(TOPIC).topic_id
    assert keys.state_key(topic_id, 0, 3) in scene.stored()


def sweep_makes_the_state(scene: Scene, process: Process) -> None:
    """Sweep: that makes the object that a trim owed."""
    scene.runtime.advance(STATE_MS)
    sweep_all(scene, process)
    topic_id = process.log.topics.get(TOPIC).topic_id
    log_start = process.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset
    assert log_start in (0, 2)
    assert log_start == 0 or keys.state_key(topic_id, 0, log_start) in scene.stored()


def read_trimmed(scene: Scene, process: Process) -> None:
    """Read: the log start is where it was, or where it had to go."""
    page = process.log.partitions.read(TOPIC, 0, ReadRequest(tail_offset=2**31))
    assert page.bounds.log_start_offset in (0, 1, 2)


def read(scene: Scene, process: Process) -> None:
    for partition in range(process.log.topics.get(TOPIC).partitions):
        start = process.log.partitions.offsets(TOPIC, partition).bounds.log_start_offset
        read_all(process.log, TOPIC, partition, start)


def look_up(scene: Scene, process: Process) -> None:
    process.log.topics.list()
    process.log.partitions.offset_at(TOPIC, 0, 0)
    process.log.partitions.segments(TOPIC, 0)


def create_topic(scene: Scene, process: Process) -> None:
    scene.create_topic(process, TOPIC, partitions=2, config={"retention.ms": 7})


def create_topic_again(scene: Scene, process: Process) -> None:
    """Create again: the topic is created now, or it has the name and is the one asked for; records live in it."""
    topic_is_there(scene, process)
    assert scene.append(process, TOPIC, 0, "first").base_offset == 0


def delete_and_collect(scene: Scene, process: Process) -> None:
    """Delete what its maker was never answered, if it is there; all of it is collected."""
    for topic in process.log.topics.list()[0]:
        scene.ledger.going.add(topic.topic_id)
        process.log.topics.delete(topic.name)
        scene.ledger.topics.pop(topic.name, None)
    for _ in range(4):
        sweep_once(scene, process)
        scene.runtime.advance(2 * GC_GRACE_MS)


def use_topic(scene: Scene, process: Process) -> None:
    """Let the client look instead: what the name leads to can be used, and is then in the objects, too."""
    listed, _ = process.log.topics.list()
    for topic in listed:
        assert scene.append(process, topic.name, 1, "first").base_offset == 0


def topic_is_there(scene: Scene, process: Process) -> None:
    """Assert that the name was free, or is taken by the topic that was asked for, whole."""
    with suppress(TopicAlreadyExistsError):
        create_topic(scene, process)
    found = process.log.topics.get(TOPIC)
    assert (found.partitions, found.config) == (2, {"retention.ms": 7})


def alter_topic(scene: Scene, process: Process) -> None:
    scene.alter_topic(process, TOPIC, partitions=3, config={"retention.ms": 7})


def alter_topic_otherwise(scene: Scene, process: Process) -> None:
    """Make another change, which keeps what it does not name."""
    was = process.log.topics.get(TOPIC)
    now = scene.alter_topic(process, TOPIC, config={"retention.bytes": 9})
    assert now.config == {**was.config, "retention.bytes": 9}
    assert now.partitions == was.partitions


def append_to_new_partition(scene: Scene, process: Process) -> None:
    topic = process.log.topics.get(TOPIC)
    scene.append(process, TOPIC, topic.partitions - 1, "more")


def altered_whole_or_not_at_all(scene: Scene, process: Process) -> None:
    found = process.log.topics.get(TOPIC)
    assert (found.partitions, found.config.get("retention.ms")) in ((2, None), (3, 7))


def delete_topic(scene: Scene, process: Process) -> None:
    scene.delete_topic(process, TOPIC)


def delete_topic_again(scene: Scene, process: Process) -> None:
    try:
        scene.delete_topic(process, TOPIC)
    except UnknownTopicOrPartitionError:
        scene.ledger.topics.pop(TOPIC, None)


def delete_topic_after_an_append(scene: Scene, process: Process) -> None:
    """Append, then delete: until DELETE was begun the topic is there; after it nothing more is acknowledged in it."""
    with suppress(UnknownTopicOrPartitionError):
        scene.append(process, TOPIC, 1, "more")
    delete_topic_again(scene, process)


def delete_topic_after_a_create(scene: Scene, process: Process) -> None:
    """Create, then delete: the name is not given away before every partition is sealed."""
    with suppress(TopicAlreadyExistsError):
        scene.create_topic(process, TOPIC)
        return
    delete_topic_again(scene, process)


def delete_topic_after_a_sweep(scene: Scene, process: Process) -> None:
    """Sweep, then delete: if DELETE was begun, the sweeper ends it."""
    known = process.log.topics.list()[0]
    sweep_all(scene, process)
    assert process.log.topics.list()[0] == known
    if known:
        delete_topic_again(scene, process)
    else:
        scene.ledger.topics.pop(TOPIC, None)
        assert scene.items.get([keys.topic_item(TOPIC)]) == {}, "its name is still taken"


def deleted_for_good(scene: Scene, process: Process) -> None:
    """Assert that every partition of the old incarnation is sealed, and that its items wait to be collected.

    The next incarnation begins empty.
    """
    topic_id = f"{1:032x}"
    gone = scene.items.get([keys.gone_item(topic_id)])
    assert gone, "what was deleted is not handed to collection"
    for partition in range(2):
        segments = [key for key in scene.stored() if key.startswith(keys.log_prefix(topic_id, partition))]
        assert _is_sealed(scene, segments[-1])
    if TOPIC not in scene.ledger.topics:
        with pytest.raises(UnknownTopicOrPartitionError):
            process.log.topics.get(TOPIC)
        scene.create_topic(process, TOPIC)
    found = process.log.topics.get(TOPIC)
    assert found.topic_id != topic_id
    assert process.log.partitions.offsets(TOPIC, 0).bounds.next_offset == 0


def _is_sealed(scene: Scene, key: str) -> bool:
    segment = parse_segment(scene.objects.get(key))
    [(_, header)] = segment.batches
    return header.is_control


def new_producer_id(scene: Scene, process: Process) -> None:
    scene.new_producer_id(process)


def new_producer_ids(scene: Scene, process: Process) -> None:
    """Allocate ids: none is given out twice, whichever process died with a block of them."""
    for _ in range(2):
        scene.new_producer_id(process)
    assert len(set(scene.ledger.producer_ids)) == len(scene.ledger.producer_ids)


def rebuild_items(scene: Scene, process: Process) -> None:
    rebuild(process.context)


def rebuild_into_an_empty_store(scene: Scene, process: Process) -> None:
    """Throw away what is left of a rebuild, and do it again, before anything is served."""
    scene.lose_items()
    assert isinstance(scene.items, SqliteItemStore)
    rebuild(scene.process().context)


def compact(scene: Scene, process: Process) -> None:
    process.log.partitions.compact(TOPIC, 0)


def compact_reaches_the_end(scene: Scene, process: Process) -> None:
    process.log.partitions.compact(TOPIC, 0)
    head = head_of(scene, process.log.topics.get(TOPIC).topic_id, 0)
    assert head.compaction_horizon == process.log.partitions.offsets(TOPIC, 0).bounds.next_offset


def append_keyed(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "k3:new")


def a_view_tells_the_same_table(scene: Scene, process: Process) -> None:
    """Read the view, and go on in the log: it has the newest value of each key, as a read of the whole log has."""
    whole = {record.key: record.value for record in read_all(process.log, TOPIC, 0, 0)}
    compacted = read_all(process.log, TOPIC, 0, 0, is_compacted=True)
    assert {record.key: record.value for record in compacted} == whole
    offsets = [record.offset for record in compacted]
    assert offsets == sorted(set(offsets))


def sweep_once(scene: Scene, process: Process) -> None:
    strict_sweep(process.log, duration_ms=600_000, is_thorough=True)


def sweep_all(scene: Scene, process: Process) -> None:
    """Sweep to the end of the round that a dead run left, and through one more."""
    for _ in range(2):
        report = strict_sweep(process.log, duration_ms=600_000, is_thorough=True)
        assert report is not None
        assert (report.is_whole, report.problems) == (True, [])


def sweep_until_all_is_collected(scene: Scene, process: Process) -> None:
    """Sweep until every object that is not needed is gone, and no other."""
    sweep_all(scene, process)
    for _ in range(2):
        scene.runtime.advance(2 * GC_GRACE_MS)
        sweep_once(scene, process)
    stored = scene.stored()
    topic_id = process.log.topics.get(TOPIC).topic_id
    assert {key.split("/")[1] for key in stored if key.startswith(("log/", "state/"))} == {topic_id}
    marks = [key for key in stored if key.startswith("topic/") and key.split("/")[1] != topic_id]
    assert len({key.split("/")[1] for key in marks}) == len(marks), "of a deleted topic only DELETE's mark stays"
    assert all(json.loads(scene.objects.get(key).body)["is_going"] for key in marks)
    assert not any(key.startswith((keys.CLOCK_PREFIX, f"{keys.GONE}#")) for key in stored)
    log_start = process.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset
    bases = [keys.parse_segment_key(key)[2] for key in sorted(stored) if key.startswith(keys.log_prefix(topic_id, 0))]
    assert bases[1:2] == [] or bases[1] > log_start, "a segment below the log start is still there"


SAME = "the same again"
SWEEPER = "the sweeper"
APPEND = "the next append"

# A further operation is a further entry, and the changes that it leaves are further rows in crash/rows.py and
# the protocol.
OPERATIONS = [
    Operation("append, cold", cold, append_plain, {APPEND: append_more, "a read": read, SWEEPER: sweep_all}),
    Operation("append, warm", warm, append_plain, {APPEND: append_more}),
    Operation("append at an expected offset", cold, append_expecting, {SAME: append_expecting_again}),
    Operation("idempotent append, cold", cold, append_idempotent, {SAME: append_idempotent_again}),
    Operation("idempotent append, warm", warm, append_idempotent, {SAME: append_idempotent_again}),
    Operation("group of appends", warm, append_group, {SAME: append_group_one_by_one}),
    Operation("append with a checkpoint", fifteen_segments, append_sixteenth, {
        SAME: append_sixteenth, APPEND: append_behind_it,
    }),
    Operation("append, offered", beside_rivals, append_plain, {APPEND: append_more, SWEEPER: sweep_all}),
    Operation("idempotent append, offered", beside_rivals, append_idempotent, {SAME: append_idempotent_again}),
    Operation("append beside an offer", beside_an_offer, append_plain, {APPEND: append_more}),
    Operation("append to a topic without its object", only_an_item, append_plain, {APPEND: append_more}),
    Operation("checkpoint", cold, checkpoint, {SAME: checkpoint_reaches_the_end, APPEND: append_more}),
    Operation("checkpoint of many producers", many_producers, checkpoint, {
        SAME: checkpoint_reaches_the_end, APPEND: append_behind_it,
    }),
    Operation("trim, cold", cold, trim, {
        SAME: trim, "the next trim": trim_further, "a read": read_trimmed, APPEND: append_more,
        SWEEPER: sweep_makes_the_state,
    }),
    Operation("trim, warm", warm, trim, {SAME: trim}),
    Operation("trim, the second", trimmed_before, trim, {SAME: trim, "the next trim": trim_further}),
    Operation("trim, the second in ten minutes", trimmed_just_now, trim, {SAME: trim, "the next trim": trim_further}),
    Operation("create topic", nothing_there, create_topic, {
        SAME: create_topic_again, APPEND: use_topic, SWEEPER: sweep_all,
    }, topic_is_there),
    Operation("create topic, frozen until it is collected", nothing_there, create_topic, {
        "DELETE and collection": delete_and_collect,
    }),
    Operation("create topic, of a deleted name", name_used_before, create_topic, {
        SAME: create_topic_again, APPEND: use_topic,
    }, topic_is_there),
    Operation("alter topic", warm, alter_topic, {
        SAME: alter_topic, "the next change": alter_topic_otherwise, APPEND: append_to_new_partition,
        SWEEPER: sweep_all,
    }, altered_whole_or_not_at_all),
    Operation("delete topic", cold, delete_topic, {
        SAME: delete_topic_again,
        "an append, and the same again": delete_topic_after_an_append,
        "a create, and the same again": delete_topic_after_a_create,
        SWEEPER: delete_topic_after_a_sweep,
    }, deleted_for_good),
    Operation("compaction, the first", keyed, compact, {
        SAME: compact_reaches_the_end, APPEND: append_keyed, "a read": read,
    }, a_view_tells_the_same_table),
    Operation("compaction, the next", compacted_before, compact, {
        SAME: compact_reaches_the_end, APPEND: append_keyed,
    }, a_view_tells_the_same_table),
    Operation("sweep: retention", retained, sweep_once, {APPEND: append_more, SAME: sweep_all}),
    Operation("sweep: collection", collectable, sweep_once, {
        APPEND: append_more, SAME: sweep_until_all_is_collected, "the next trim": trim_further,
    }),
    Operation("sweep: compaction", keyed, sweep_once, {SAME: sweep_all}, a_view_tells_the_same_table),
    Operation("sweep: old views", views_left_behind, sweep_once, {
        APPEND: append_keyed, SAME: sweep_until_all_is_collected,
    }, a_view_tells_the_same_table),
    Operation("sweep: a deleted topic", life_over, sweep_once, {
        APPEND: append_more, SAME: sweep_until_all_is_collected,
    }),
    Operation("sweep: the end of a deleted topic", life_emptied, sweep_once, {
        APPEND: append_more, SAME: sweep_until_all_is_collected,
    }),
    Operation("new producer id", ids_given, new_producer_id, {SAME: new_producer_ids}),
    Operation("rebuild", items_lost, rebuild_items, {SAME: rebuild_into_an_empty_store}),
    Operation("read", cold, read, {SAME: read}),
    Operation("look up", cold, look_up, {SAME: look_up}),
]  # fmt: skip
