"""What the produce function takes and answers."""

from __future__ import annotations

from fenceline_http.json_schema import BOOLEAN, STRING, Named, array, described, obj
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations.shared import KNOWN, OWNER, PARTITION, STORES, TOPIC, WRITES
from fenceline_http.produce_requests import Batch, Produce, ProduceByKey, ProduceMany
from fenceline_http.route import Route
from fenceline_http.schemas import EPOCH, OFFSET, PROBLEM

_PLACE = {"topic": STRING, "partition": integer_schema()}
_APPENDED = {
    "base_offset": OFFSET,
    "next_offset": described(OFFSET, "The next offset of the partition after this batch."),
    "count": integer_schema(1),
    "duplicate": described(BOOLEAN, "Whether this batch was stored before; then the answer is the first one's."),
    "topic_epoch": EPOCH,
    "expected_offset_checked": BOOLEAN,
    "timestamp": integer_schema(-1),
}
_APPENDED_ANSWER = Named("Appended", obj(_APPENDED), "Where a batch was appended.")
# One type, which generators of clients make one class of. Either all that an append answers is in it, or the error.
_RESULT = Named(
    "ProduceResult",
    {
        **obj(_PLACE, {**_APPENDED, "error": described(PROBLEM, "Why nothing of this batch was appended.")}),
        "minProperties": len(_PLACE) + 1,
        "dependentRequired": {name: list(_APPENDED) for name in _APPENDED},
        "dependentSchemas": {"error": {"maxProperties": len(_PLACE) + 1}},
    },
    "What became of one batch: where it was appended, or `error`.",
)
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
        description="Appends one batch, whole or not at all. With `expected_offset` it lands exactly there or nowhere.",
        takes=Produce,
        batches=Batch,
        answers={200: _APPENDED_ANSWER, 202: None},
        codes=(*KNOWN, *WRITES, *OWNER, *_APPEND_CODES),
        body={"records": [{"key": "ann", "value": "1 book", "headers": [["source", "web"]]}]},
        answer=_APPENDED_EXAMPLE,
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
        takes=Batch,
        takes_batch=True,
        answers={200: _APPENDED_ANSWER, 202: None},
        codes=(*KNOWN, *WRITES, *OWNER, *_APPEND_CODES),
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
