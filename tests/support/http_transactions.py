"""Transactions over HTTP: a producer with a transactional id, as a caller that speaks the contract would write it.

Rule: nothing here retries, and every answer is the test's to judge.
"""

from __future__ import annotations

from typing import Any

from fenceline.format.batch import encode
from fenceline.model.record import Record
from tests.support.http_events import BATCH_TYPE, Answer, call

ID = "loader-1"


def records(topic: str, partition: int = 0) -> str:
    return f"/v1/topics/{topic}/partitions/{partition}/records"


def init(transactional_id: str = ID, **more: Any) -> Answer:
    return call("POST", "/v1/producer-ids", value={"transactional_id": transactional_id, **more})


class Producer:
    """A producer with a transactional id. ``pair`` is the one that its next request names."""

    def __init__(self, transactional_id: str = ID, **more: Any) -> None:
        self.transactional_id = transactional_id
        self.pair: dict[str, int] = init(transactional_id, **more).json
        self._sequences: dict[tuple[str, int], int] = {}

    def post(self, what: str, **fields: Any) -> Answer:
        return call("POST", f"/v1/transactions/{self.transactional_id}/{what}", value={**self.pair, **fields})

    def add(self, *places: tuple[str, int]) -> Answer:
        return self.post("partitions", partitions=[{"topic": topic, "partition": number} for topic, number in places])

    def add_group(self, group: str) -> Answer:
        return self.post("groups", group=group)

    def send_offset(self, group: str, offset: int, topic: str = "orders", partition: int = 0, **more: Any) -> Answer:
        offsets = [{"topic": topic, "partition": partition, "offset": offset}]
        return self.post("offsets", **{"group": group, "offsets": offsets, **more})

    def produce(self, *values: str, topic: str = "orders", partition: int = 0, **more: Any) -> Answer:
        """Send a batch. Its sequence follows that of the last accepted one of the same transaction."""
        place = topic, partition
        sequence = self._sequences.get(place, 0)
        body = {
            "records": [{"value": value} for value in values],
            "producer": {**self.pair, "sequence": sequence},
            "transactional_id": self.transactional_id,
            **more,
        }
        answer = call("POST", records(topic, partition), value=body)
        if answer.status == 200:
            self._sequences[place] = sequence + len(values)
        return answer

    def produce_batch(self, *values: bytes, sequence: int = 0, query: dict[str, Any] | None = None) -> Answer:
        body = encode(
            [Record(value) for value in values],
            now_ms=1_700_000_000_000,
            producer_id=self.pair["producer_id"],
            producer_epoch=self.pair["producer_epoch"],
            base_sequence=sequence,
            is_transactional=True,
        ).body
        given = {"transactional_id": self.transactional_id} if query is None else query
        return call("POST", records("orders"), given, headers={"content-type": BATCH_TYPE}, body=body)

    def end(self, result: str) -> Answer:
        """Commit or abort. The pair of the answer is the one of the next transaction."""
        answer = self.post("end", result=result)
        if answer.status == 200:
            self.pair = answer.json
            self._sequences.clear()
        return answer

    def shown(self) -> Any:
        return call("GET", f"/v1/transactions/{self.transactional_id}").json


def read(topic: str = "orders", partition: int = 0, **query: Any) -> Any:
    """Return a page of what is committed."""
    return call("GET", records(topic, partition), {"offset": 0, "isolation": "read_committed", **query}).json


def values(topic: str = "orders", partition: int = 0, **query: Any) -> list[str]:
    return [record["value"] for record in read(topic, partition, **query)["records"]]
