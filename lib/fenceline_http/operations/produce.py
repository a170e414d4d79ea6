"""The produce function's requests and answers."""

from __future__ import annotations

from dataclasses import asdict, replace

from fenceline.model.results import Appended
from fenceline_http.json_schema import STRING, Named, Schema, array, described, integer, members, obj
from fenceline_http.operations.shared import KNOWN, OWNER, PARTITION, STORES, TOPIC, WRITES
from fenceline_http.produce_requests import BatchQuery, Produce, ProduceByKey, ProduceMany
from fenceline_http.route import Route
from fenceline_http.schemas import PROBLEM


def _result() -> Schema:
    """Return a type with all that an append answers, or the error, of which generators of clients make one class.

    A result is not declared as a class, because no annotation can state which of its members go together.
    """
    place = {"topic": STRING, "partition": integer()}
    appended, _ = members(Appended)
    return {
        **obj(place, {**appended, "error": described(PROBLEM, "Why nothing of this batch was appended.")}),
        "minProperties": len(place) + 1,
        "dependentRequired": {name: list(appended) for name in appended},
        "dependentSchemas": {"error": {"maxProperties": len(place) + 1}},
    }


_RESULTS = array(Named("ProduceResult", _result, "What became of one batch: where it was appended, or `error`."))

_APPEND_CODES = (
    "INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE", "INVALID_REQUIRED_ACKS", "PRODUCER_FENCED",
    "PRODUCER_BUSY", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", "OFFSET_MISMATCH", "MESSAGE_TOO_LARGE",
)  # fmt: skip

_EXAMPLE = Appended(0, 1, 1, duplicate=False, topic_epoch=-1, expected_offset_checked=False, timestamp=-1)


def _placed(partition: int, appended: Appended = _EXAMPLE) -> dict[str, object]:
    return {"topic": "orders", "partition": partition, **asdict(appended)}


ROUTES = (
    Route(
        "POST",
        f"{PARTITION}/records",
        "produce.append",
        operation="appendRecords",
        tag="Records",
        summary="Append one batch",
        description="Appends one batch, whole or not at all. With `expected_offset` it lands exactly there or nowhere.",
        takes=Produce,
        batches=BatchQuery,
        answers={200: _EXAMPLE, 202: None},
        codes=(*KNOWN, *WRITES, *OWNER, *_APPEND_CODES),
        body={"records": [{"key": "ann", "value": "1 book", "headers": [["source", "web"]]}]},
    ),
    Route(
        "POST",
        f"{PARTITION}/batches",
        "produce.append_batch",
        operation="appendBatch",
        tag="Records",
        summary="Append one batch as a Kafka producer encodes it",
        description="Appends one record batch (version 2), which is stored as it is, whole or not at all. Producer id, "
        "epoch, sequence and the transactional bit are in the batch.",
        takes=BatchQuery,
        takes_batch=True,
        answers={200: _EXAMPLE, 202: None},
        codes=(*KNOWN, *WRITES, *OWNER, *_APPEND_CODES),
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
        answer={"results": [_placed(0), _placed(1)]},
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
            200: Named("ProducedByKey", obj({"results": _RESULTS, "record_partitions": array(integer())})),
            202: None,
        },
        codes=(*KNOWN, *STORES, "CONTENDED", "INVALID_REQUIRED_ACKS"),
        body={"records": [{"key": "ann", "value": "1 book"}, {"key": "ann", "value": "2 books"}]},
        answer={
            "results": [_placed(1, replace(_EXAMPLE, next_offset=2, count=2))],
            "record_partitions": [1, 1],
        },
    ),
)
