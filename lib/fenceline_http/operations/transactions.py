"""The transactions function's requests and answers: producer ids, coordinators, transactions.

Rule: the whole form of a request is judged here, before any store is asked. The handler judges a transactional id in a
path.

Not here: the ends of transactions (``ends``), batches in one (``produce_requests``), and the producers of a partition
(``read``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fenceline import limits
from fenceline.errors import InvalidTransactionTimeoutError
from fenceline.model.transaction import (
    ONGOING,
    STATES,
    Coordinator,
    FencedTransaction,
    OpenTransaction,
    OpenTransactionPage,
    ProducerPair,
    TopicPartition,
    Transaction,
    TransactionPage,
)
from fenceline_http.json_schema import STRING, Named, array, obj
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations import ends
from fenceline_http.operations.ends import (
    ID_EXAMPLE,
    OF_PRODUCER,
    PAIR_EXAMPLE,
    PRODUCER_EPOCH,
    TRANSACTION,
    TRANSACTIONS,
    OfProducer,
)
from fenceline_http.operations.shared import (
    KNOWN,
    LIMIT_TEXT,
    MEMBER,
    OTHER_ID,
    OWNER,
    PARTITION,
    STORES,
    TOPIC,
    WRITES,
    OffsetToCommit,
    OfMember,
)
from fenceline_http.request_schema import Body, Members, Nothing, Query, object_of, optional, required
from fenceline_http.route import Route
from fenceline_http.schemas import PROBLEM
from fenceline_http.value_kinds import GROUP, TEXT, TRANSACTIONAL_ID, choice, integer, list_of, refuse, size

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


class PartitionToAdd(Members):
    """A partition to add."""

    topic: str = required(TEXT)
    partition: int = required(integer())


class AddPartitions(OfProducer, Body):
    """Partitions to add to a transaction, all of them or none."""

    partitions: Sequence[PartitionToAdd] = required(
        list_of(object_of(PartitionToAdd, is_named=False), 1, limits.PARTITIONS_PER_ADDITION_MAX, of="partitions")
    )

    def check(self) -> None:
        _refuse_twice("partitions", ((one.topic, one.partition) for one in self.partitions))


class AddGroup(OfProducer, Body):
    """A group to add to a transaction, before the offsets that are committed for it."""

    group: str = required(GROUP)


class SendOffsets(OfProducer, OfMember, Body):
    """Offsets of a group that take effect if the transaction commits: all of them or none."""

    group: str = required(GROUP)
    session_id: str | None = optional(TEXT)
    offsets: Sequence[OffsetToCommit] = required(
        list_of(object_of(OffsetToCommit, is_named=False), 1, limits.PARTITIONS_PER_COMMIT_MAX, of="offsets")
    )

    def check(self) -> None:
        super().check()
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


class OpenTransactionsQuery(Query):
    """Some partitions of a topic."""

    start_partition: int = optional(integer(), "The first partition to look at.", default=0)
    limit: int = optional(
        size(limits.OFFSETS_MAX, limits.OFFSETS_MAX), "The most partitions to look at.", default=limits.OFFSETS_MAX
    )


def _refuse_twice(member: str, places: Iterable[tuple[str, int]]) -> None:
    seen = set()
    for index, place in enumerate(places):
        if place in seen:
            refuse(f"{member}[{index}].partition", "named once in a request")
        seen.add(place)


# Answers


_PLACES_EXAMPLE = [{"topic": "orders", "partition": 0}]
_EXAMPLE = Transaction(
    ID_EXAMPLE,
    ONGOING,
    **PAIR_EXAMPLE,
    transaction_timeout_ms=limits.TRANSACTION_TIMEOUT_MS_DEFAULT,
    started_at=1_700_000_000_000,
    partitions=[TopicPartition("orders", 0)],
    groups=["billing"],
)

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
        answers={200: ProducerPair(**PAIR_EXAMPLE)},
        codes=(*WRITES, "INVALID_TRANSACTION_TIMEOUT", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS"),
        body={"transactional_id": ID_EXAMPLE, "transaction_timeout_ms": limits.TRANSACTION_TIMEOUT_MS_DEFAULT},
    ),
    Route(
        "GET",
        "/v1/coordinators/group/{key}",
        "transactions.group_coordinator",
        operation="findGroupCoordinator",
        tag="Groups",
        summary="Find a group's coordinator",
        description="Returns the shard that coordinates a group, and where. Kafka places groups in the same way.",
        answers={200: Coordinator("billing", 39, "us-east-1", "https://example.com")},
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
        answers={200: Coordinator(ID_EXAMPLE, 25, "us-east-1", "https://example.com")},
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
            *OTHER_ID,
            *WRITES,
            *OWNER,
            *MEMBER,
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
        answers={200: TransactionPage([_EXAMPLE], has_more=False)},
        codes=(*STORES, "CONTENDED"),
        query={"state": "Ongoing"},
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
        answers={200: _EXAMPLE},
        codes=(*WRITES, "TRANSACTIONAL_ID_NOT_FOUND", "CONCURRENT_TRANSACTIONS"),
    ),
    Route(
        "GET",
        f"{TOPIC}/open-transactions",
        "transactions.list_open",
        operation="listOpenTransactions",
        tag="Transactions",
        summary="List what is open in the partitions of a topic",
        description="Lists the transactions that are open in partitions of a topic, by partition and by first offset. "
        "The first one of a partition holds its last stable offset. `limit` counts partitions; where `has_more` is "
        "true, continue with `next_partition`.",
        takes=OpenTransactionsQuery,
        answers={
            200: OpenTransactionPage(
                [OpenTransaction(0, ProducerPair(**PAIR_EXAMPLE), 7, 1_700_000_000_000, ID_EXAMPLE)], has_more=False
            )
        },
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"start_partition": 0},
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
        answers={200: TransactionPage([_EXAMPLE], has_more=False)},
        codes=(*STORES, "CONTENDED"),
        query={"longer_than_ms": 60_000},
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
        answers={200: FencedTransaction(_EXAMPLE, ProducerPair(1_001, 1))},
        codes=(*WRITES, "TRANSACTIONAL_ID_NOT_FOUND", "CONCURRENT_TRANSACTIONS"),
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
