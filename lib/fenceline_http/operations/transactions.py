"""What the transactions function takes and answers: producer ids, coordinators, transactions.

Rule: the form of a request is judged here, whole, before any store is asked. A transactional id in a path is judged by
the handler.

Not here: the ends of transactions (``ends``), batches in one (``produce_requests``), and the producers of a partition
(``read``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fenceline import limits
from fenceline.errors import InvalidTransactionTimeoutError
from fenceline.model.transaction import STATES
from fenceline_http.declared import Body, Members, Nothing, Query, object_of, optional, required
from fenceline_http.fields import GROUP, TEXT, TRANSACTIONAL_ID, choice, integer, list_of, refuse, size
from fenceline_http.json_schema import BOOLEAN, STRING, Named, array, described, nullable, obj, words
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations import ends
from fenceline_http.operations.ends import (
    ID_EXAMPLE,
    OF_PRODUCER,
    PAIR,
    PAIR_EXAMPLE,
    PRODUCER_EPOCH,
    TRANSACTION,
    TRANSACTIONS,
    OfProducer,
)
from fenceline_http.operations.shared import KNOWN, LIMIT_TEXT, OWNER, PARTITION, STORES, WRITES, CommittedOffset
from fenceline_http.route import Route
from fenceline_http.schemas import INT16_MAX, PROBLEM, SUBSCRIPTION_NAME, TOPIC_NAME
from fenceline_http.schemas import TRANSACTIONAL_ID as TRANSACTIONAL_ID_SCHEMA

_OPERATOR = "/v1/operator"


class ProducerIdRequest(Body, is_optional=True):
    """A producer id to give out. Without a transactional id, the rest is judged by its form alone."""

    transactional_id: str | None = optional(TRANSACTIONAL_ID)
    transaction_timeout_ms: int = optional(
        integer(-limits.INT64_MAX - 1), default=limits.TRANSACTION_TIMEOUT_MS_DEFAULT
    )
    producer_id: int | None = optional(integer())
    producer_epoch: int | None = optional(PRODUCER_EPOCH)

    def check(self) -> None:
        producer_id, timeout_ms = self.producer_id, self.transaction_timeout_ms
        if (producer_id is None) != (self.producer_epoch is None):
            refuse(
                "producer_id" if producer_id is None else "producer_epoch",
                "given: producer_id and producer_epoch go together",
            )
        if producer_id is not None and self.transactional_id is None:
            refuse("producer_id", "left out without a transactional_id")
        if self.transactional_id is not None and not 1 <= timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeoutError(
                f"transaction_timeout_ms must be from 1 to {limits.TRANSACTION_TIMEOUT_MS_MAX}: "
                f"transaction_timeout_ms={timeout_ms}"
            )


class Place(Members):
    """A partition to add."""

    topic: str = required(TEXT)
    partition: int = required(integer())


class AddPartitions(OfProducer, Body):
    """Partitions to add to a transaction, all of them or none."""

    partitions: Sequence[Place] = required(
        list_of(object_of(Place, is_named=False), 1, limits.PARTITIONS_PER_ADDITION_MAX, of="partitions")
    )

    def check(self) -> None:
        _refuse_twice("partitions", ((one.topic, one.partition) for one in self.partitions))


class AddGroup(OfProducer, Body):
    """A group to add to a transaction, before the offsets that are committed for it."""

    group: str = required(GROUP)


class SendOffsets(OfProducer, Body):
    """Offsets of a group that take effect if the transaction commits: all of them or none."""

    group: str = required(GROUP)
    session_id: str | None = optional(TEXT)
    offsets: Sequence[CommittedOffset] = required(
        list_of(object_of(CommittedOffset, is_named=False), 1, limits.PARTITIONS_PER_COMMIT_MAX, of="offsets")
    )

    def check(self) -> None:
        _refuse_twice("offsets", ((one.topic, one.partition) for one in self.offsets))


class AbortTransaction(OfProducer, Body):
    """The producer whose hanging transaction is to end."""


class AbortAnywhere(OfProducer, Body):
    """The producer whose hanging transaction an operator ends, and where."""

    topic: str = required(TEXT)
    partition: int = required(integer())


class TransactionList(Query):
    """Some of the transactions."""

    state: str | None = optional(choice(STATES), "Only transactions in this state.")
    producer_id: int | None = optional(integer(), "Only the transaction of this producer id.")
    longer_than_ms: int | None = optional(
        integer(), "Only transactions that are ongoing, or being finished, for longer than this, in milliseconds."
    )
    start_after: str = optional(TEXT, "Continue after this transactional id.", default="")
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


def _refuse_twice(member: str, places: Iterable[tuple[str, int]]) -> None:
    seen = set()
    for index, place in enumerate(places):
        if place in seen:
            refuse(f"{member}[{index}].partition", "named once in a request")
        seen.add(place)


# What is answered

_COORDINATOR = Named(
    "Coordinator",
    obj(
        {
            "key": TRANSACTIONAL_ID_SCHEMA,
            "shard": integer_schema(0, 49),
            "region": STRING,
            "endpoint": {"type": "string", "format": "uri"},
        }
    ),
    "Where a group or a transactional id is coordinated. Any function can do it, so the endpoint is this one.",
)
_PLACE = {"topic": TOPIC_NAME, "partition": integer_schema(0, limits.PARTITIONS_MAX - 1)}
_TRANSACTION_SHOWN = Named(
    "Transaction",
    obj(
        {
            "transactional_id": TRANSACTIONAL_ID_SCHEMA,
            "state": words(*(state for state in STATES if state != "Dead")),
            "producer_id": integer_schema(),
            "producer_epoch": integer_schema(0, INT16_MAX),
            "transaction_timeout_ms": integer_schema(1, limits.TRANSACTION_TIMEOUT_MS_MAX),
            "started_at": nullable(integer_schema()),
            "partitions": array(obj(_PLACE)),
            "groups": array(SUBSCRIPTION_NAME),
        },
        {"expires_at": described(integer_schema(), "Where it was extended: its time-out is not due before.")},
    ),
    "The transaction of a transactional id. The lists are empty before it begins and after it is complete.",
)

_TRANSACTIONS_SHOWN = Named(
    "Transactions",
    obj(
        {"transactions": array(_TRANSACTION_SHOWN), "has_more": BOOLEAN},
        {
            "go_on_after": described(
                TRANSACTIONAL_ID_SCHEMA, "Where the next page begins, if not after the last one of these."
            )
        },
    ),
)

_PLACES_EXAMPLE = [{"topic": "orders", "partition": 0}]
_EXAMPLE = {
    "transactional_id": ID_EXAMPLE,
    "state": "Ongoing",
    **PAIR_EXAMPLE,
    "transaction_timeout_ms": limits.TRANSACTION_TIMEOUT_MS_DEFAULT,
    "started_at": 1_700_000_000_000,
    "partitions": _PLACES_EXAMPLE,
    "groups": ["billing"],
}

ROUTES = (
    Route(
        "POST",
        "/v1/producer-ids",
        "transactions.new_producer_id",
        operation="createProducerId",
        tag="Producers",
        summary="Get a producer id",
        description="Returns an id that no other producer has. With it and sequence numbers, a batch sent twice is "
        "stored once. With a `transactional_id` it returns the id's next epoch, and fences the producer before it.",
        takes=ProducerIdRequest,
        answers={200: PAIR},
        codes=(*WRITES, "INVALID_TRANSACTION_TIMEOUT", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS"),
        body={"transactional_id": ID_EXAMPLE, "transaction_timeout_ms": limits.TRANSACTION_TIMEOUT_MS_DEFAULT},
        answer=PAIR_EXAMPLE,
    ),
    Route(
        "GET",
        "/v1/coordinators/group/{key}",
        "transactions.group_coordinator",
        operation="findGroupCoordinator",
        tag="Groups",
        summary="Find a group's coordinator",
        description="Returns the shard that coordinates a group, and where. Kafka places groups in the same way.",
        answers={200: _COORDINATOR},
        answer={"key": "billing", "shard": 39, "region": "us-east-1", "endpoint": "https://example.com"},
    ),
    Route(
        "GET",
        "/v1/coordinators/transaction/{key}",
        "transactions.transaction_coordinator",
        operation="findTransactionCoordinator",
        tag="Transactions",
        summary="Find a transactional id's coordinator",
        description="Returns the shard that coordinates a transactional id, and where. Kafka places ids in the same "
        "way.",
        answers={200: _COORDINATOR},
        answer={"key": ID_EXAMPLE, "shard": 25, "region": "us-east-1", "endpoint": "https://example.com"},
    ),
    Route(
        "POST",
        f"{TRANSACTION}/partitions",
        "transactions.add_partitions",
        operation="addTransactionPartitions",
        tag="Transactions",
        summary="Add partitions, all of them or none",
        description="Adds partitions to a transaction, or begins one with them. Where one is unknown, none is added. "
        "A produce adds its partition by itself.",
        takes=AddPartitions,
        answers={
            200: Named(
                "AddedPartitions",
                obj({"results": array(obj({"topic": STRING, "partition": integer_schema()}, {"error": PROBLEM}))}),
            )
        },
        codes=(*WRITES, *OF_PRODUCER),
        body={**PAIR_EXAMPLE, "partitions": _PLACES_EXAMPLE},
        answer={"results": _PLACES_EXAMPLE},
    ),
    Route(
        "POST",
        f"{TRANSACTION}/groups",
        "transactions.add_group",
        operation="addTransactionGroup",
        tag="Transactions",
        summary="Add a group",
        description="Adds a group to a transaction, or begins one with it. Its offsets can then be committed in the "
        "transaction.",
        takes=AddGroup,
        answers={204: None},
        codes=(*WRITES, *OF_PRODUCER),
        body={**PAIR_EXAMPLE, "group": "billing"},
    ),
    Route(
        "POST",
        f"{TRANSACTION}/offsets",
        "transactions.send_offsets",
        operation="commitTransactionOffsets",
        tag="Transactions",
        summary="Commit a group's offsets in the transaction",
        description="Commits offsets of up to 32 partitions, all of them or none. They take effect if and when the "
        "transaction commits.",
        takes=SendOffsets,
        answers={200: Nothing.schema()},
        codes=(
            *KNOWN,
            *WRITES,
            *OWNER,
            *OF_PRODUCER,
            "INVALID_TXN_STATE",
            "OWNER_FENCED",
            "OFFSET_OUT_OF_RANGE",
        ),
        body={
            **PAIR_EXAMPLE,
            "group": "billing",
            "offsets": [{"topic": "orders", "partition": 0, "offset": 1}],
        },
        answer={},
    ),
    *ends.ROUTES,
    Route(
        "GET",
        TRANSACTIONS,
        "transactions.list_transactions",
        operation="listTransactions",
        tag="Transactions",
        summary="List transactions by their ids",
        description="Lists transactions in byte order of their transactional ids: the caller's, and those of no "
        "principal.",
        takes=TransactionList,
        answers={200: _TRANSACTIONS_SHOWN},
        codes=(*STORES, "CONTENDED"),
        query={"state": "Ongoing"},
        answer={"transactions": [_EXAMPLE], "has_more": False},
    ),
    Route(
        "GET",
        TRANSACTION,
        "transactions.show_transaction",
        operation="getTransaction",
        tag="Transactions",
        summary="Show a transaction",
        description="Shows the transaction of a transactional id. What is due of it is done first: it is aborted past "
        "its time-out, and finished once it is decided.",
        answers={200: _TRANSACTION_SHOWN},
        codes=(*WRITES, "TRANSACTIONAL_ID_NOT_FOUND", "CONCURRENT_TRANSACTIONS"),
        answer=_EXAMPLE,
    ),
    Route(
        "POST",
        f"{PARTITION}/abort-transaction",
        "transactions.abort_hanging",
        operation="abortTransaction",
        tag="Transactions",
        summary="Abort a hanging transaction in one partition",
        description="Aborts what a producer has open in a partition, where no coordinator knows of it. It is for "
        "damage: no transaction hangs otherwise. Of another principal's id the operators' route does it.",
        takes=AbortTransaction,
        answers={204: None},
        codes=(*KNOWN, *WRITES, "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"),
        body=PAIR_EXAMPLE,
    ),
    Route(
        "GET",
        f"{_OPERATOR}/transactions",
        "transactions.list_for_operator",
        operation="listTransactionsOfAll",
        tag="Operators",
        summary="List the transactions of all principals",
        description="Lists transactions in byte order of their transactional ids, those of every principal.",
        takes=TransactionList,
        answers={200: _TRANSACTIONS_SHOWN},
        codes=(*STORES, "CONTENDED"),
        query={"longer_than_ms": 60_000},
        answer={"transactions": [_EXAMPLE], "has_more": False},
    ),
    Route(
        "POST",
        f"{_OPERATOR}/transactions/{{transactional_id}}/fence",
        "transactions.fence",
        operation="fenceTransactionalId",
        tag="Operators",
        summary="Fence a transactional id of any principal",
        description="Aborts the transaction of a transactional id if it is under way, and fences its producer. The id "
        "then belongs to no principal, until the next request for it.",
        answers={
            200: Named(
                "FencedTransactionalId",
                obj(
                    {
                        "producer_id": integer_schema(),
                        "producer_epoch": integer_schema(0, INT16_MAX),
                        "before": _TRANSACTION_SHOWN,
                    }
                ),
                "The pair in force, which no producer has, and the transaction that was met.",
            )
        },
        codes=(*WRITES, "TRANSACTIONAL_ID_NOT_FOUND", "CONCURRENT_TRANSACTIONS"),
        answer={**PAIR_EXAMPLE, "producer_epoch": 1, "before": _EXAMPLE},
    ),
    Route(
        "POST",
        f"{_OPERATOR}/abort-transaction",
        "transactions.abort_for_operator",
        operation="abortTransactionOfAny",
        tag="Operators",
        summary="Abort a hanging transaction of any principal in one partition",
        description="Aborts what a producer has open in a partition, where no coordinator knows of it, as "
        "`abort-transaction` of a partition does.",
        takes=AbortAnywhere,
        answers={204: None},
        codes=(*KNOWN, *WRITES, "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"),
        body={"topic": "orders", "partition": 0, **PAIR_EXAMPLE},
    ),
)
