"""The fake service with coordinators: transactional ids, their state machine, admission and pending offsets.

Rule: it decides as DESIGN.md says ("The state machine"), ends at once, and keeps the records of a transaction in lists.
A test may give the next answers of an endpoint a fault, lose them, or fence an id behind its producer's back.

Not here: markers, time-outs and sessions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from fenceline import OpenTransaction, errors
from fenceline.format import batch
from fenceline.format.batch import BatchHeader
from tests.support.fake_service import FakeService, Fault, refused

_TRANSACTION = re.compile(r"/v1/transactions/([^/]+)(?:/(partitions|groups|offsets|end))?")
Place = tuple[str, int]


@dataclass
class Coordinated:
    """What a transactional id's item holds."""

    producer_id: int
    producer_epoch: int = 0
    state: str = "Empty"
    partitions: list[Place] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    records: list[tuple[Place, bytes | None]] = field(default_factory=list)
    ended: tuple[int, int, str] | None = None
    kept: tuple[int, int] | None = None
    is_fenced: bool = False


@dataclass
class FakeTransactions(FakeService):
    """A service whose topics ``t``, ``u`` and ``v`` have the same partitions."""

    coordinated: dict[str, Coordinated] = field(default_factory=dict)
    committed: list[tuple[Place, bytes | None]] = field(default_factory=list)
    committed_offsets: list[dict[str, Any]] = field(default_factory=list)
    coordinator_faults: dict[str, list[Fault | None]] = field(default_factory=dict)  # by what is asked for, in order
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    sequences: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.path)
        body = json.loads(request.content) if request.content[:1] == b"{" else {}
        if path == "/v1/producer-ids" and "transactional_id" in body:
            return self._fault("ids", body, lambda: self._init(body["transactional_id"], body))
        if (found := _TRANSACTION.fullmatch(path)) is not None:
            what = found[2]
            return self._fault(what, body, lambda: getattr(self, f"_do_{what}")(found[1], body))
        if (found := re.fullmatch(r"/v1/topics/([uv])", path)) is not None:
            described = super().answer(httpx.Request(request.method, "http://fake/v1/topics/t")).json()
            return httpx.Response(200, json={**described, "name": found[1]})
        return super().answer(request)

    def _fault(self, what: str, body: dict[str, Any], carry_out: Any) -> httpx.Response:
        def locked() -> httpx.Response:
            with self._lock:
                try:
                    answer: httpx.Response = carry_out()
                except errors.FencelineError as error:
                    return refused(error)
                return answer

        with self._lock:
            self.asked.append((what, body))
            faults = self.coordinator_faults.get(what, [])
            fault = faults.pop(0) if faults else None
        return locked() if fault is None else fault(locked)

    def count(self, what: str) -> int:
        return sum(one == what for one, _ in self.asked)

    def fence(self, transactional_id: str) -> None:
        """Do what an id request of another instance does."""
        with self._lock:
            self._init(transactional_id, {})

    def time_out(self, transactional_id: str) -> None:
        """Do what a meeting does with a transaction that was open for too long."""
        with self._lock:
            item = self.coordinated[transactional_id]
            self._end_it(item, "abort")
            item.is_fenced, item.ended = True, None

    def _init(self, transactional_id: str, body: dict[str, Any]) -> httpx.Response:
        item = self.coordinated.get(transactional_id)
        pair = (body["producer_id"], body["producer_epoch"]) if "producer_id" in body else None
        if item is None:
            self._ids += 1
            item = self.coordinated[transactional_id] = Coordinated(self._ids, kept=pair)
            return _pair(item)
        if pair is not None and pair == item.kept and item.state == "Empty":
            return _pair(item)
        if pair is not None and (pair != (item.producer_id, item.producer_epoch) or item.is_fenced):
            raise errors.ProducerFencedError("the pair is not the present one")
        if item.state == "Ongoing":
            self._end_it(item, "abort")
        self._next_epoch(item)
        item.state, item.ended, item.kept, item.is_fenced = "Empty", None, pair, False
        return _pair(item)

    def _next_epoch(self, item: Coordinated) -> None:
        item.producer_epoch += 1
        if item.producer_epoch > 32766:
            self._ids += 1
            item.producer_id, item.producer_epoch = self._ids, 0

    def _judged(self, transactional_id: str, body: dict[str, Any]) -> Coordinated:
        item = self.coordinated.get(transactional_id)
        if item is None or item.producer_id != body["producer_id"]:
            raise errors.InvalidProducerIdMappingError("another producer id")
        if item.is_fenced or item.producer_epoch != body["producer_epoch"]:
            raise errors.ProducerFencedError("another epoch")
        return item

    def _begun(self, transactional_id: str, body: dict[str, Any]) -> Coordinated:
        item = self._judged(transactional_id, body)
        if item.state != "Ongoing":
            item.state, item.ended, item.kept = "Ongoing", None, None
        return item

    def _do_partitions(self, transactional_id: str, body: dict[str, Any]) -> httpx.Response:
        wanted = [(one["topic"], one["partition"]) for one in body["partitions"]]
        unknown = [place for place in wanted if place[1] >= self.partitions]
        results: list[dict[str, Any]] = [{"topic": topic, "partition": partition} for topic, partition in wanted]
        if unknown:
            for place, result in zip(wanted, results, strict=True):
                is_unknown = place in unknown
                error = errors.UnknownTopicOrPartitionError if is_unknown else errors.OperationNotAttemptedError
                result["error"] = error("refused").problem()
        else:
            item = self._begun(transactional_id, body)
            item.partitions += [place for place in wanted if place not in item.partitions]
        return httpx.Response(200, json={"results": results})

    def _do_groups(self, transactional_id: str, body: dict[str, Any]) -> httpx.Response:
        self._begun(transactional_id, body).groups.append(body["group"])
        return httpx.Response(204)

    def _do_offsets(self, transactional_id: str, body: dict[str, Any]) -> httpx.Response:
        item = self._judged(transactional_id, body)
        if item.state != "Ongoing" or body["group"] not in item.groups:
            raise errors.InvalidTxnStateError("the group was not added")
        item.offsets += [{"group": body["group"], **one} for one in body["offsets"]]
        return httpx.Response(200, json={})

    def _do_end(self, transactional_id: str, body: dict[str, Any]) -> httpx.Response:
        item = self.coordinated.get(transactional_id)
        pair = (body["producer_id"], body["producer_epoch"])
        if item is not None and item.ended is not None and item.ended[:2] == pair:
            if item.ended[2] != body["result"]:
                raise errors.InvalidTxnStateError("it was ended the other way")
            return _pair(item)
        item = self._judged(transactional_id, body)
        if item.state != "Ongoing" and body["result"] == "commit":
            raise errors.InvalidTxnStateError("there is nothing to commit")
        self._end_it(item, body["result"])
        item.ended = (*pair, body["result"])
        return _pair(item)

    def _end_it(self, item: Coordinated, result: str) -> None:
        if result == "commit":
            self.committed += item.records
            self.committed_offsets += item.offsets
        item.partitions, item.groups, item.offsets, item.records = [], [], [], []
        item.state = "CompleteCommit" if result == "commit" else "CompleteAbort"
        self._next_epoch(item)

    def _produce(self, request: httpx.Request, topic: str, partition: int) -> httpx.Response:
        transactional_id = request.url.params.get("transactional_id")
        assert (transactional_id is not None) == batch.parse_header(request.content).is_transactional
        return super()._produce(request, topic, partition)

    def _append(self, topic: str, partition: int, body: bytes, header: BatchHeader) -> httpx.Response:
        if not header.is_transactional:
            return super()._append(topic, partition, body, header)
        with self._lock:
            found = [item for item in self.coordinated.values() if item.producer_id == header.producer_id]
            item = found[0] if found else None
            if item is None or item.is_fenced or item.producer_epoch != header.producer_epoch:
                return refused(errors.ProducerFencedError("another epoch"))
            place = (topic, partition)
            if place not in item.partitions:
                item.state, item.ended, item.kept = "Ongoing", None, None
                item.partitions.append(place)
            key = (topic, partition, header.producer_id, header.producer_epoch)
            if header.base_sequence < self.sequences.get(key, 0):
                return self._appended(0, header.count, is_duplicate=True)
            if header.base_sequence > self.sequences.get(key, 0):
                return refused(errors.OutOfOrderSequenceNumberError("a gap"))
            self.sequences[key] = header.base_sequence + header.count
            item.records += [(place, record.value) for record in batch.decode(body)]
            return self._appended(header.base_sequence, header.count, is_duplicate=False)


def block(txn: OpenTransaction, *steps: Callable[[OpenTransaction], object]) -> None:
    """Take these steps within the block of ``txn``."""
    with txn:
        for step in steps:
            step(txn)


def raises(error: BaseException) -> Callable[[OpenTransaction], None]:
    """Return the step of a program that fails with ``error``."""

    def step(txn: OpenTransaction) -> None:
        raise error

    return step


def _pair(item: Coordinated) -> httpx.Response:
    return httpx.Response(200, json={"producer_id": item.producer_id, "producer_epoch": item.producer_epoch})
