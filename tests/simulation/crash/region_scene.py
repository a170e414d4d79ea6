"""The regions beside that of the crash matrix, and the checks that must hold in all regions in the end.

Rule: the processes of the other regions neither die nor lose an answer. A call that the matrix's own process makes of
them is one of its calls, so the process dies before it, in it and after it.

Rule: ``regions_are_whole`` holds at the end of each cell: each region has each other one's records once, in order, no
mark is behind a record that no consumer was done with, nothing is due, and idle regions write nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fenceline import limits
from fenceline.format import control
from fenceline.format.batch import decode
from fenceline.format.segment import Segment
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.regions import due_work
from fenceline.regions.peer import PeerProblem
from fenceline.service.log import Log
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.cursor_store import StoredCursor
from tests.simulation.crash.region_rows import link_of, replicated_in, subscriptions_of
from tests.simulation.crash.scene import Process, Scene, request_of
from tests.support.peers import ObservedPeer, PeerCall, is_away
from tests.support.regions import Region, RegionWorld, WatchedPeer, with_peers
from tests.support.service import REGION, TOPIC

SUB = "s"
REPLICATION_ROUNDS_MAX = 60  # until nothing moves any longer
QUIET_MS = 31_000  # longer than a REQUEST without answers holds up the next one
ABORTED = "aborted"  # how the values begin that no region may show


@dataclass
class Beside:
    """The other regions of a scene, and what their clients and all consumers did.

    Attributes:
        away: The regions that answer nothing to this one, until all is settled.
        lost: (origin, own number) of what this region may lack: it came late, or skipped it.
        done: The values that a consumer of some region was done with, or may have been.
        is_all_done: Whether a consumer was done with all that there is, so that each mark must arrive at the end.
        on_ask: Called with the name of the operation before the next call that is made of a peer.
    """

    scene: Scene
    world: RegionWorld
    partitions: int
    away: set[str] = field(default_factory=set)
    lost: set[tuple[str, int]] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    is_all_done: bool = False
    on_ask: Callable[[str], None] | None = None

    def __getitem__(self, name: str) -> Region:
        return self.world[name]

    @property
    def names(self) -> Sequence[str]:
        return list(self.world.regions)

    def append(self, name: str, *values: str, partition: int = 0) -> None:
        """Let another region's client append a segment."""
        self.sent(*values)
        self[name].append(*values, partition=partition)

    def sent(self, *values: str) -> None:
        """Note that these may arrive here, once."""
        self.scene.ledger.unknown |= {value.encode() for value in values}

    def abort(self, name: str, value: str) -> None:
        """Let another region's client append a record in a transaction, and abort it."""
        log = self[name].log
        pair = log.transactions.init(ABORTED, 60_000, None)
        request = request_of(f"{ABORTED} {value}", producer=(*pair, 0), transactional_id=ABORTED)
        log.append(TOPIC, 0, request)
        log.transactions.end(ABORTED, pair, False)

    def run(self, name: str) -> None:
        """Let another region replicate once: it asks this one as it is now."""
        scene, region = self.scene, self[name]
        region.peers[REGION].log = _log(scene)
        for partition in range(self.partitions):
            region.own_replicator.run(TOPIC, partition)

    def acknowledge(self, name: str, log: Log, partition: int = 0) -> None:
        """Let a consumer of a region be done with all that it is shown there."""
        page = log.subscriptions.read(TOPIC, partition, SUB, ReadRequest(max_records=1_000))
        self.done |= {(record.value or b"").decode() for record in page.records}
        log.subscriptions.acknowledge(TOPIC, partition, SUB, Acknowledgement(page.position - 1))


def _log(scene: Scene) -> Log:
    """Return this region's log as others find it: in a process that does not die."""
    return Log(scene.objects, scene.items, scene.runtime, region=REGION)


def link(scene: Scene, *names: str, partitions: int = 1) -> Beside:
    """Make a topic in this region and in others, each of which has a record of its own."""
    world = RegionWorld(*names, runtimes=dict.fromkeys(names, scene.runtime))
    beside = Beside(scene, world, partitions)
    scene.on_close.append(world.close)
    scene.ledger.answers["regions"] = beside
    for region in world.regions.values():
        region.peers[REGION] = WatchedPeer(REGION, _log(scene), scene.objects)
        with_peers(region.log, region.peers)
        scene.peers[region.name] = partial(_peer, beside, region)
    process, regions = scene.process(), [REGION, *names]
    scene.create_topic(process, TOPIC, partitions=partitions, regions=regions, config={"retention.ms": -1})
    scene.append(process, TOPIC, 0, "here1")
    for name in names:
        world[name].log.topics.create(TOPIC, partitions=partitions, regions=regions)
        beside.append(name, f"{name}1")
    return beside


def _peer(beside: Beside, region: Region, process: Process) -> ObservedPeer:
    """Return another region as a process of the matrix asks it: each call is one of the process's calls."""
    log = region.service.another(region=region.name)

    def ask(call: PeerCall) -> Any:
        what = f"segments of {call.origin}" if call.method == "segments" else call.method
        if beside.on_ask is not None:
            beside.on_ask(what)
        is_gone = call.peer in beside.away
        answer = partial(is_away, call) if is_gone else partial(call, log, region.service.objects)
        return process.call(f"ask {call.peer}: {what}", answer, PeerProblem("no answer"))

    return ObservedPeer(region.name, ask)


def beside_of(scene: Scene) -> Beside:
    """Return the other regions of a scene."""
    found: Beside = scene.ledger.answers["regions"]
    return found


def run(scene: Scene, process: Process) -> None:
    """Let a process of this region replicate once."""
    for partition in range(beside_of(scene).partitions):
        process.log.replication.run(TOPIC, partition)


def run_until(scene: Scene, has_come: Callable[[], bool], *, here: bool = True) -> None:
    """Let regions replicate in turn until something has come; this one takes part unless told otherwise."""
    beside, process = beside_of(scene), scene.process()
    for _ in range(REPLICATION_ROUNDS_MAX):
        if has_come():
            return
        for name in beside.names:
            beside.run(name)
        if here:
            run(scene, process)
        scene.runtime.advance(limits.SNAPSHOT_MS)
    raise AssertionError("it never comes")


def has_marker(scene: Scene, kind: int, *, is_foreign: bool = False) -> bool:
    """Return True if this region's log has a marker of that kind, of its own or of another region."""
    return any(
        found == kind and one.is_foreign(key) is is_foreign
        for one in replicated_in(scene.stored())
        for key, _, found, _ in one.markers
    )


def settle(scene: Scene, process: Process) -> None:
    """Let all regions replicate until nothing is due anywhere, and look that silence stays silent."""
    beside = beside_of(scene)
    beside.away.clear()
    beside.on_ask = None
    quiet = 0
    for _ in range(REPLICATION_ROUNDS_MAX):
        before = _written(scene)
        run(scene, process)
        for name in beside.names:
            beside.run(name)
        quiet = quiet + 1 if _written(scene) == before else 0
        if quiet == 3:
            return
        scene.runtime.advance(QUIET_MS if quiet else limits.SNAPSHOT_MS)
    raise AssertionError("I24: the regions never fall silent")


def _written(scene: Scene) -> Any:
    calls = [region.service.count() for region in beside_of(scene).world.regions.values()]
    return scene.stored(), [(one["objects.create"], one["items.write"]) for one in calls]


def regions_are_whole(scene: Scene, process: Process) -> None:
    """Assert that each region has exactly what it must have, each record once, and that nothing is due."""
    beside = beside_of(scene)
    for region in process.log.topics.get(TOPIC).regions:
        if region != REGION:
            process.log.replication.resume(TOPIC, region)
    _marks_are_sound(scene)
    settle(scene, process)
    for partition in range(beside.partitions):
        _records_have_arrived(scene, partition)
    _marks_are_sound(scene)
    _nothing_is_due(scene, process)
    for one in replicated_in(scene.stored()):
        _markers_are_there_once(one.markers)


def _logs(scene: Scene, partition: int) -> dict[str, list[Segment]]:
    beside = beside_of(scene)
    topic_id = scene.topic(TOPIC).topic_id
    here = {(one.topic_id, one.partition): one for one in replicated_in(scene.stored())}[topic_id, partition]
    there = {name: beside[name].segments(TOPIC, partition) for name in beside.names}
    return {REGION: list(here.segments.values()), **there}


def _texts(segment: Segment) -> list[tuple[int, str]]:
    return [
        (header.base_offset + at, (record.value or b"").decode())
        for position, header in segment.batches
        if not header.is_control
        for at, record in enumerate(decode(segment.body, position))
    ]


def _own(segments: Sequence[Segment]) -> dict[int, str]:
    """Return a region's own records by number, aborted ones left out."""
    found = {}
    for segment in segments:
        if segment.metadata.replicated is None:
            for number, (_, text) in enumerate(_texts(segment), segment.metadata.own_records_below + 1):
                found[number] = text
    return {number: text for number, text in found.items() if not text.startswith(ABORTED)}


def _taken(segments: Sequence[Segment], origin: str) -> dict[str, list[tuple[int, str]]]:
    """Return (number, value) of what was taken from a region, by the life of its topic, in order."""
    found: dict[str, list[tuple[int, str]]] = {}
    for segment in segments:
        source = segment.metadata.replicated
        if source is not None and segment.metadata.origin == origin:
            texts = _texts(segment)
            numbers = range(source.count - len(texts) + 1, source.count + 1)
            found.setdefault(source.topic_id, []).extend(zip(numbers, (text for _, text in texts), strict=True))
    return found


def _topic_id(scene: Scene, region: str) -> str:
    return scene.topic(TOPIC).topic_id if region == REGION else beside_of(scene)[region].service.topic_id()


def _records_have_arrived(scene: Scene, partition: int) -> None:
    """Assert that each region has the present records of each other one (I17), and of earlier lives none twice."""
    beside, logs = beside_of(scene), _logs(scene, partition)
    for target, segments in logs.items():
        for origin in logs.keys() - {target}:
            taken, life = _taken(segments, origin), _topic_id(scene, origin)
            for found in taken.values():
                assert [number for number, _ in found] == sorted({number for number, _ in found}), "I17: not once"
            lost = {number for name, number in beside.lost if (name, target) == (origin, REGION)}
            wanted = [(n, text) for n, text in sorted(_own(logs[origin]).items()) if n not in lost]
            assert taken.get(life, []) == wanted, f"I17: {target} of {origin}: {taken} {wanted}"


def _marks_are_sound(scene: Scene) -> None:
    """Assert that no mark of any region is behind a record that no consumer was done with (I22)."""
    beside = beside_of(scene)
    for partition in range(beside.partitions):
        for region, segments in _logs(scene, partition).items():
            mark = _mark(scene, region, partition)
            for offset, text in (one for segment in segments for one in _texts(segment)):
                is_passed = mark is not None and offset < mark
                assert text in beside.done or not is_passed, f"I22: {text} was passed in {region} at {mark}"


def _mark(scene: Scene, region: str, partition: int) -> int | None:
    """Return the mark of a region's subscription; ``None`` if there is none."""
    log = _log(scene) if region == REGION else beside_of(scene)[region].log
    found = cursor_store.find(log.context, _topic_id(scene, region), SUB)
    if found is None:
        return None
    (stored,) = cursor_store.read_each(log.context, [StoredCursor(found, partition)])
    return stored.cursor.mark


def _nothing_is_due(scene: Scene, process: Process) -> None:
    beside, stored = beside_of(scene), scene.stored()
    for one in replicated_in(stored):
        look = scene.process().log.replication._replicator.find_work(TOPIC, one.partition)
        assert not look.is_due, f"still due: {look}"
        assert one.state.regions.unanswered == ()
        assert all(asked.local is None for asked in one.state.regions.asked)
        assert one.is_applied
        # A dead process's lease stays where nothing is left to do. It has lapsed.
        assert link_of(stored, one.link_place).until <= scene.runtime.now_ms()
        assert [value["due"] for _, value in one.cursors() if value.get("due")] == []
        for name in beside.names:
            assert not _due_there(beside[name], one.partition)
    for subscription in subscriptions_of(stored):
        assert set(beside.names) <= set(subscription.told), f"some region may not know of {subscription.name}"
        assert None not in [_mark(scene, name, 0) for name in beside.names], "a region never heard of a subscription"
    if beside.is_all_done:
        _all_is_passed(scene)


def _due_there(region: Region, partition: int) -> bool:
    here = region.own_replicator._open(TOPIC, partition)
    assert here is not None
    return due_work.is_due(here.job)


def _all_is_passed(scene: Scene) -> None:
    """Assert that the last position has arrived in every region (I24), each of which has the subscription."""
    for partition in range(beside_of(scene).partitions):
        for region, segments in _logs(scene, partition).items():
            mark = _mark(scene, region, partition)
            assert mark is not None, f"{region} has no subscription"
            unread = [text for segment in segments for offset, text in _texts(segment) if offset >= mark]
            assert unread == [], f"I24: {region} would show again at {mark}: {unread}"


ONCE: Mapping[int, Callable[[Mapping[str, Any]], Any]] = {
    control.SNAPSHOT_REQUEST: lambda value: value["id"],
    control.SNAPSHOT_RESPONSE: lambda value: (value["id"], value["to"], value["topic_id"]),
    control.SNAPSHOT: lambda value: value["id"],
    control.SKIP: lambda value: (value["origin"], value["to"]),
}


def _markers_are_there_once(markers: Sequence[tuple[str, int, int, Mapping[str, Any]]]) -> None:
    counts = Counter((kind, ONCE[kind](value)) for _, _, kind, value in markers if kind in ONCE)
    assert all(count == 1 for count in counts.values()), f"a marker twice: {counts}"
