"""What the produce function takes and answers."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline import limits
from fenceline.model.record import Record
from fenceline_http.declared import Body, Members, Query, object_of, optional, required, required_by
from fenceline_http.fields import TEXT, integer, list_of, refuse
from fenceline_http.json_schema import BOOLEAN, STRING, Named, array, described, obj
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations.shared import KNOWN, OWNER, PARTITION, STORES, TOPIC, WRITES
from fenceline_http.produce_requests import (
    ACKS,
    ACKS_WORD,
    ENCODING,
    EXPECTED,
    EXPECTED_WORDS,
    RECORDS,
    Expected,
    refuse_unanswerable,
)
from fenceline_http.route import Route
from fenceline_http.schemas import EPOCH, INT16_MAX, OFFSET, PROBLEM

_PLACE = {"topic": STRING, "partition": integer_schema()}


# What is sent


class Producer(Members):
    """Makes a batch idempotent: sent twice, it is stored once."""

    producer_id: int = required(integer())
    producer_epoch: int = required(integer(0, INT16_MAX))
    sequence: int = required(integer(0, limits.INT32_MAX))


class Session(Members):
    """The session that was granted the partition, and the epoch of the grant."""

    session_id: str = required(TEXT)
    topic_epoch: int = required(integer(-1))


class _Batch(Members):
    """Records for one partition, and what is said of them."""

    encoding: str = optional(ENCODING, default="utf8")
    records: Sequence[Record] = required_by("encoding", RECORDS)
    expected_offset: Expected | None = optional(
        EXPECTED, "The offset that the batch must land at, or one for each record; -1 is not checked."
    )
    producer: Producer | None = optional(object_of(Producer))
    session: Session | None = optional(object_of(Session))

    def check_expected(self, acks: int, field: str) -> None:
        expected, count = self.expected_offset, len(self.records)
        if isinstance(expected, list) and len(expected) != count:
            refuse(field, f"one offset, or a list of one for each of the {count} records")
        refuse_unanswerable(expected, acks, field)


class Produce(_Batch, Body):
    """One batch of records."""

    acks: int = optional(ACKS, default=-1)
    transactional_id: str | None = optional(TEXT, "The transaction that the batch belongs to.")

    def check(self) -> None:
        self.check_expected(self.acks, "expected_offset")


class Batch(Query):
    """The parameters of a binary batch."""

    acks: int = optional(ACKS_WORD, "For a binary batch: as the field of the JSON body.", default=-1)
    expected_offset: Expected | None = optional(
        EXPECTED_WORDS, "For a binary batch: as the field of the JSON body; a list is separated by commas."
    )
    session_id: str | None = optional(TEXT, "For a binary batch: the session that was granted the partition.")
    topic_epoch: int | None = optional(integer(-1), "For a binary batch: the epoch that the session was granted.")
    transactional_id: str | None = optional(TEXT, "For a binary batch: as the field of the JSON body.")

    def check(self) -> None:
        if (self.session_id is None) != (self.topic_epoch is None):
            refuse("session_id" if self.session_id is None else "topic_epoch", "given with the other of the pair")
        refuse_unanswerable(self.expected_offset, self.acks, "expected_offset")


class ProduceEntry(_Batch):
    """One batch of several, for one partition."""

    topic: str = required(TEXT)
    partition: int = required(integer())


class ProduceMany(Body):
    """Batches for several partitions. Each succeeds or fails by itself."""

    acks: int = optional(ACKS, default=-1)
    transactional_id: str | None = optional(TEXT)
    partitions: Sequence[ProduceEntry] = required(
        list_of(object_of(ProduceEntry), 1, limits.PARTITIONS_PER_PRODUCE_MAX)
    )

    def check(self) -> None:
        seen = set()
        for index, entry in enumerate(self.partitions):
            place = entry.topic, entry.partition
            if place in seen:
                refuse(f"partitions[{index}].partition", "named once in a request")
            seen.add(place)
            entry.check_expected(self.acks, f"partitions[{index}].expected_offset")


class ProduceByKey(Body):
    """Records for the partitions of their keys."""

    acks: int = optional(ACKS, default=-1)
    encoding: str = optional(ENCODING, default="utf8")
    records: Sequence[Record] = required_by("encoding", RECORDS)


# What is answered

_APPENDED = {
    "base_offset": OFFSET,
    "next_offset": described(OFFSET, "The next offset of the partition after this batch."),
    "count": integer_schema(1),
    "duplicate": described(BOOLEAN, "Whether this batch was stored before; then the answer is the first one's."),
    "topic_epoch": EPOCH,
    "expected_offset_checked": BOOLEAN,
    "timestamp": integer_schema(-1),
}
_RESULT = Named("ProduceResult", {"anyOf": [obj({**_PLACE, **_APPENDED}), obj({**_PLACE, "error": PROBLEM})]})

_RESULTS = array(_RESULT)

_APPEND_CODES = (
    "INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE", "INVALID_REQUIRED_ACKS", "PRODUCER_FENCED",
    "PRODUCER_BUSY", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", "OFFSET_MISMATCH", "MESSAGE_TOO_LARGE",
)  # fmt: skip

_APPENDED_EXAMPLE = {
    "base_offset": 0,
    "next_offset": 1,
    "count": 1,
    "duplicate": False,
    "topic_epoch": -1,
    "expected_offset_checked": False,
    "timestamp": -1,
}

ROUTES = (
    Route(
        "POST",
        f"{PARTITION}/records",
        "produce.append",
        operation="appendRecords",
        tag="Records",
        summary="Append one batch",
        description="Appends one batch, whole or not at all. With `expected_offset` it lands exactly there or nowhere. "
        "A batch that a Kafka producer encoded can be sent as it is, under its own content type.",
        takes=Produce,
        batches=Batch,
        answers={200: Named("Appended", obj(_APPENDED), "Where a batch was appended."), 202: None},
        codes=(*KNOWN, *WRITES, *OWNER, *_APPEND_CODES),
        body={"records": [{"key": "ann", "value": "1 book", "headers": [["source", "web"]]}]},
        answer=_APPENDED_EXAMPLE,
    ),
    Route(
        "POST",
        "/v1/produce",
        "produce.produce",
        operation="appendBatches",
        tag="Records",
        summary="Append batches to several partitions",
        description="Appends up to 50 batches, each to another partition. Each succeeds or fails by itself; "
        "`results` are in the order of the request.",
        takes=ProduceMany,
        answers={200: Named("ProduceResults", obj({"results": _RESULTS})), 202: None},
        codes=(*STORES, "INVALID_REQUIRED_ACKS"),
        body={
            "partitions": [
                {"topic": "orders", "partition": 0, "records": [{"key": "ann", "value": "1 book"}]},
                {"topic": "orders", "partition": 1, "records": [{"key": "bob", "value": "2 books"}]},
            ]
        },
        answer={
            "results": [
                {"topic": "orders", "partition": 0, **_APPENDED_EXAMPLE},
                {"topic": "orders", "partition": 1, **_APPENDED_EXAMPLE},
            ]
        },
    ),
    Route(
        "POST",
        f"{TOPIC}/records",
        "produce.append_by_key",
        operation="appendByKey",
        tag="Records",
        summary="Append each record to the partition of its key",
        description="Appends each record to the partition of its key, by Kafka's murmur2. Records without a key share "
        "one partition, chosen at random. Each partition succeeds or fails by itself; `record_partitions` says where "
        "each record went.",
        takes=ProduceByKey,
        answers={
            200: Named("ProducedByKey", obj({"results": _RESULTS, "record_partitions": array(integer_schema())})),
            202: None,
        },
        codes=(*KNOWN, *STORES, "CONTENDED", "INVALID_REQUIRED_ACKS"),
        body={"records": [{"key": "ann", "value": "1 book"}, {"key": "ann", "value": "2 books"}]},
        answer={
            "results": [{"topic": "orders", "partition": 1, **_APPENDED_EXAMPLE, "next_offset": 2, "count": 2}],
            "record_partitions": [1, 1],
        },
    ),
)
