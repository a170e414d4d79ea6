"""Two stores, clocks moved by hand, processes that die at a planned call, and a ledger of promises.

Rule: a process that died makes no further call, whatever its ``finally`` blocks try. An answer to a client is noted
when it comes, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, TypeVar

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.append.group import Ticket
from fenceline.errors import FencelineError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.topic_item import topic_from_item
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended, ProducerRef, ReadRecord
from fenceline.model.topic import Topic
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.ports import Check, ItemKey, NoAnswer, StoreFact, Unavailable
from fenceline.regions.peer import Peer, PeerProblem
from fenceline.service.log import Log
from tests.support.runtime import FakeRuntime
from tests.support.service import REGION, appender_of

T = TypeVar("T")

Payload = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Died(BaseException):
    """The process has died. No protocol code may catch it."""


class Fate(Enum):
    """The fate of one call of a store or of a peer."""

    DIES_BEFORE = "dies before it"
    DIES_AFTER = "dies after it"
    LANDS_LATE = "dies in it; it lands after all was mended"
    LOSES_ANSWER = "its answer is lost, the process goes on"

    @property
    def is_death(self) -> bool:
        return self is not Fate.LOSES_ANSWER


class Process:
    """One process on the stores: a log of its own, whose calls are counted once it is armed."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.calls: list[str] = []  # since it was armed
        self.writes: list[int] = []  # those of them that change something
        self.late: Callable[[], Any] | None = None
        self.lost: Exception | None = None  # raised in place of an answer that was lost
        self.is_dead = False
        self._fate: Fate | None = None
        self._at = -1
        peers = {name: make(self) for name, make in scene.peers.items()}
        objects = ObservedObjects(scene.objects, self._ask_objects)
        items = ObservedItems(scene.items, self._ask_items)
        self.log = Log(objects, items, scene.runtime, region=REGION, peers=peers)

    @property
    def context(self) -> Context:
        return self.log.context

    def arm(self, fate: Fate | None, at: int) -> None:
        """Count calls from here on, and let the one numbered ``at`` go as ``fate`` says."""
        self.calls, self.writes, self._fate, self._at = [], [], fate, at

    def call(self, name: str, make: Callable[[], T], lost: Exception, *, is_write: bool = False) -> T:
        if self.is_dead:
            raise Died
        at = len(self.calls)
        self.calls.append(name)
        if is_write:
            self.writes.append(at)
        if self._fate is None or at != self._at:
            return make()
        if self._fate is Fate.LANDS_LATE and is_write:
            self.late = make
        if self._fate in (Fate.DIES_AFTER, Fate.LOSES_ANSWER):
            with suppress(StoreFact, PeerProblem):
                make()
        if self._fate is Fate.LOSES_ANSWER:
            self.lost = lost
            raise lost
        self.is_dead = True
        raise Died

    def _ask_objects(self, call: ObjectCall) -> Any:
        lost = {"create": NoAnswer("made, and the answer was lost"), "delete": Unavailable("it may have been deleted")}
        return self.call(
            f"{call.method} {_kind(call.key)}",
            call,
            lost.get(call.method, Unavailable("no answer")),
            is_write=call.method in lost,
        )

    def _ask_items(self, call: ItemCall) -> Any:
        if call.method == "query":
            return self.call(f"query items {call.argument.split('/')[0]}", call, Unavailable("no answer"))
        written = [change.key for change in call.changes if not isinstance(change, Check)]
        self.scene.item_keys.update(written)
        is_write = call.method == "write"
        names = ", ".join(dict.fromkeys(map(_item_kind, written if is_write else call.keys)))
        lost = NoAnswer("written, and the answer was lost") if is_write else Unavailable("no answer")
        return self.call(f"{call.method} item {names}", call, lost, is_write=is_write)

    def land(self) -> None:
        """Let the call that was under way when the process died reach its store."""
        late, self.late = self.late, None
        if late is not None:
            with suppress(StoreFact):
                late()


def _kind(key: str) -> str:
    return {"log": "segment", "state": "state", "topic": "topic object"}.get(key.split("/")[0], key.split("/")[0])


def _item_kind(key: ItemKey) -> str:
    return key.sort.split("/")[0] if key.partition.startswith("partition/") else key.partition.split("/")[0]


@dataclass
class Ledger:
    """The answers to clients, by topic id and partition."""

    acknowledged: dict[tuple[str, int], dict[int, Payload]] = field(default_factory=dict)
    batches: dict[tuple[str, int, int], tuple[AppendRequest, Appended]] = field(default_factory=dict)  # by producer
    unknown: set[bytes] = field(default_factory=set)  # values that may be in the log, once
    refused: set[bytes] = field(default_factory=set)  # values that were promised not to be in it
    topics: dict[str, Topic] = field(default_factory=dict)  # by name, from the last answer
    log_starts: dict[tuple[str, int], int] = field(default_factory=dict)  # from the last answers
    going: set[str] = field(default_factory=set)  # topic ids whose deletion a client has begun
    producer_ids: list[int] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)  # answers about sessions, claims and subscriptions


class Scene:
    """A service's whole world."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime(count(1))  # ids of its own: a cell is the same whatever ran before it
        self.objects = SqliteObjectStore(":memory:", now_ms=self.runtime.now_ms, secret=b"secret")
        self.items = SqliteItemStore(":memory:")
        self.item_keys: set[ItemKey] = set()
        self.ledger = Ledger()
        self.peers: dict[str, Callable[[Process], Peer]] = {}  # by name: the other regions, as a process asks them
        self.on_close: list[Callable[[], None]] = []
        self.is_closed = False
        self._lost_items: list[SqliteItemStore] = []
        self._processes: list[Process] = []

    def process(self) -> Process:
        made = Process(self)
        self._processes.append(made)
        return made

    def land(self) -> None:
        """Let every call that is under way reach its store: after that no process of before does anything."""
        for process in self._processes:
            process.land()

    def lose_items(self) -> None:
        """Put an empty item store in the place of this one; processes made from now on use it."""
        self._lost_items.append(self.items)
        self.items = SqliteItemStore(":memory:")

    def close(self) -> None:
        self.is_closed = True
        for close in self.on_close:
            close()
        self.on_close.clear()
        self.objects.close()
        for items in (self.items, *self._lost_items):
            items.close()

    def stored(self) -> dict[str, Any]:
        """Return everything that is stored: objects by key, items as ``partition#sort``."""
        found: dict[str, Any] = {}
        for line in self.objects.list("", limit=100_000):
            stored = self.objects.get(line.key)
            found[line.key] = (stored.body, dict(stored.metadata))
        wanted, step = sorted(self.item_keys), limits.TRANSACTION_ITEMS_MAX
        for at in range(0, len(wanted), step):
            for key, item in self.items.get(wanted[at : at + step]).items():
                found[f"{key.partition}#{key.sort}"] = (item.version, dict(item.value))
        return found

    # Requests of clients, each of which notes its answer

    def create_topic(self, process: Process, name: str, **options: Any) -> Topic:
        made = process.log.topics.create(name, **options)
        self.ledger.topics[name] = made
        return made

    def alter_topic(self, process: Process, name: str, **options: Any) -> Topic:
        altered = process.log.topics.alter(name, **options)
        self.ledger.topics[name] = altered
        return altered

    def delete_topic(self, process: Process, name: str) -> None:
        known = self.ledger.topics.get(name)
        if known is not None:
            self.ledger.going.add(known.topic_id)
        process.log.topics.delete(name)
        del self.ledger.topics[name]

    def trim(self, process: Process, name: str, partition: int, before_offset: int) -> int:
        log_start = process.log.partitions.trim(name, partition, before_offset)
        self.ledger.log_starts[self.topic(name).topic_id, partition] = log_start
        return log_start

    def new_producer_id(self, process: Process) -> int:
        producer_id, _ = process.log.producing.new_producer_id()
        self.ledger.producer_ids.append(producer_id)
        return producer_id

    def append(
        self, process: Process, name: str, partition: int, *values: str, expected: int | None = None,
        producer: tuple[int, int, int] | None = None, transactional_id: str | None = None,
    ) -> Appended:  # fmt: skip
        request = request_of(*values, expected=expected, producer=producer, transactional_id=transactional_id)
        sent = {record.value or b"" for record in request.records}
        may_stand = sent & (self.ledger.unknown | self._acknowledged_values())  # by an earlier attempt
        self.ledger.unknown |= sent
        self.ledger.refused -= sent  # sent again: only this attempt's answer counts
        try:
            answer = process.log.append(name, partition, request)
        except FencelineError as error:
            if error.next_step in ("fix", "retry") and not may_stand:
                self.ledger.unknown -= sent
                self.ledger.refused |= sent
            raise
        assert answer is not None
        self.note(name, partition, request, answer)
        return answer

    def append_group(self, process: Process, name: str, partition: int, requests: Sequence[AppendRequest]) -> None:
        """Append a group for one partition: one segment, led by the caller whose request came last."""
        log = process.log
        for request in requests:
            self.ledger.unknown |= {record.value or b"" for record in request.records}
        known, _ = log._resolver.resolve(name, partition)
        appender = appender_of(log, partition, topic=name, topic_id=known.item.topic.topic_id)
        tickets = []
        for request in requests[:-1]:
            entry = log.producing.prepared(appender.partition, known.item.topic, request, is_new=True)
            tickets.append(Ticket(entry, log.producing.deadline()))
            appender.queue.add(tickets[-1])
        answer = log.append(name, partition, requests[-1])
        for request, outcome in zip(requests, [*(ticket.outcome for ticket in tickets), answer], strict=True):
            assert isinstance(outcome, Appended), outcome
            self.note(name, partition, request, outcome)

    def topic(self, name: str) -> Topic:
        """Return the topic as it was promised: by its maker's answer, or by the first answer that depended on it."""
        if name not in self.ledger.topics:
            key = keys.topic_item(name)
            self.ledger.topics[name] = topic_from_item(self.items.get([key])[key]).topic
        return self.ledger.topics[name]

    def _acknowledged_values(self) -> set[bytes]:
        return {value or b"" for found in self.ledger.acknowledged.values() for _, value, _ in found.values()}

    def note(self, name: str, partition: int, request: AppendRequest, answer: Appended) -> None:
        topic_id = self.topic(name).topic_id
        payloads = self.ledger.acknowledged.setdefault((topic_id, partition), {})
        assert answer.count == len(request.records)
        for offset, record in enumerate(request.records, answer.base_offset):
            payload = (record.key, record.value, tuple(record.headers))
            assert payloads.setdefault(offset, payload) == payload, f"two records were acknowledged at {offset}"
            self.ledger.unknown.discard(record.value or b"")
        # The end of a transaction ends what is a duplicate in it.
        if request.producer is not None and request.transactional_id is None:
            self.ledger.batches[topic_id, partition, request.producer.producer_id] = (request, answer)


def request_of(
    *values: str,
    expected: int | None = None,
    producer: tuple[int, int, int] | None = None,
    transactional_id: str | None = None,
) -> AppendRequest:
    """Return a request of one record per value, each with a header and a key.

    The key is the value's part before its first colon.
    """
    records = [Record(v.encode(), key=v.split(":")[0].encode(), headers=[("h", v[:1].encode())]) for v in values]
    ref = None if producer is None else ProducerRef(*producer)
    return AppendRequest.of_records(records, expected_offset=expected, producer=ref, transactional_id=transactional_id)


def read_all(log: Log, name: str, partition: int, offset: int, *, is_compacted: bool = False) -> list[ReadRecord]:
    """Return every record from ``offset`` to the end."""
    found: list[ReadRecord] = []
    while True:
        request = ReadRequest(offset=offset, max_records=10_000, is_compacted=is_compacted)
        page = log.partitions.read(name, partition, request)
        found += page.records
        if page.position == page.bounds.next_offset:
            return found
        assert page.position > offset
        offset = page.position
