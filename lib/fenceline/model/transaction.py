"""Answers about transactions and their producers (contract, "Producer ids, coordinators, transactions").

Rule: the fields are the contract's, and a value never changes: it is what was true when the request was answered.

Not here: how a transaction is decided and ended, and how it is stored; see ``transactions``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fenceline import limits
from fenceline.answers import INLINE, LEFT_OUT, After, OneOf, Titled, Whole
from fenceline.errors import InvalidRequestError
from fenceline.model.kinds import (
    Offset,
    PartitionNumber,
    ProducerEpoch,
    SubscriptionName,
    TopicName,
    TransactionalId,
    Url,
)

# Stored: never rename.
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
DEAD = "Dead"  # the item is gone: never stored, but a listing may ask for it
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD)
SHOWN_STATES = tuple(state for state in STATES if state != DEAD)

_UNCARRIED = re.compile("[/\x00-\x1f\x7f]")  # what no path carries


@Titled("ProducerId")
class ProducerPair(NamedTuple):
    """A producer id, and one of its epochs.

    Attributes:
        producer_id: The id that the transactional id was given.
        producer_epoch: The epoch of one of its transactions.
    """

    producer_id: int
    producer_epoch: ProducerEpoch


class TopicPartition(NamedTuple):
    """A partition, by its topic's name.

    Attributes:
        topic: The topic's name.
        partition: The partition's number, from 0.
    """

    topic: TopicName
    partition: PartitionNumber


class TransactionMember(NamedTuple):
    """A transactional id with its producer's pair: one of several transactions that end together.

    Attributes:
        transactional_id: The transactional id.
        pair: The pair of the transaction that is to end.
    """

    transactional_id: TransactionalId
    pair: Annotated[ProducerPair, INLINE]


@Titled("OnceMark", "The version that an application has committed; -1, and nulls, where it has committed none.")
@dataclass(frozen=True, slots=True)
class OnceMark:
    """The version that an application has committed. It only grows, together with what it commits.

    Attributes:
        version: 0 to 2⁶³−1; −1 where the application has none.
        note: Up to 1,024 bytes of text that say which run committed it.
        committed_at: In ms; ``None`` in a request, and where there is none.
    """

    app_id: TransactionalId
    version: Annotated[int, Whole(-1)]
    note: str | None = None
    committed_at: int | None = None


@Titled("OnceMarks")
class OncePage(NamedTuple):
    """Versions that applications have committed, by application."""

    versions: Sequence[OnceMark]
    has_more: bool
    go_on_after: Annotated[
        TransactionalId | None, LEFT_OUT, "Where the next page begins, if not after the last one of these."
    ] = None


@Titled(
    "Transaction",
    "The transaction of a transactional id. The lists are empty before it begins and after it is complete.",
)
@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id's transaction, as it is shown."""

    transactional_id: TransactionalId
    state: Annotated[str, OneOf(*SHOWN_STATES)]
    producer_id: int
    producer_epoch: ProducerEpoch
    transaction_timeout_ms: Annotated[int, Whole(1, limits.TRANSACTION_TIMEOUT_MS_MAX)]
    started_at: int | None  # ms; None, and the lists empty, but in Ongoing and while it is prepared
    partitions: Sequence[TopicPartition] = ()
    groups: Sequence[SubscriptionName] = ()
    expires_at: Annotated[int | None, LEFT_OUT, "Where it was extended: its time-out is not due before."] = None  # ms


@Titled("Transactions")
class TransactionPage(NamedTuple):
    """Some of the transactions, by transactional id in byte order.

    Attributes:
        go_on_after: The id up to which the listing has looked; also a page without transactions may have it.
    """

    transactions: Sequence[Transaction]
    has_more: bool
    go_on_after: Annotated[
        TransactionalId | None, LEFT_OUT, "Where the next page begins, if not after the last one of these."
    ] = None


@Titled("FencedTransactionalId", "The pair in force, which no producer has, and the transaction that was met.")
class FencedTransaction(NamedTuple):
    """The transaction that an operator's fence found, and the pair now in force, which no producer has."""

    before: Annotated[Transaction, After("pair")]
    pair: Annotated[ProducerPair, INLINE]


@Titled(
    "Coordinator",
    "Where a group or a transactional id is coordinated. Any function can do it, so the endpoint is this one.",
)
class Coordinator(NamedTuple):
    """The address that serves a group or a transactional id: always this service, because every endpoint serves all."""

    key: TransactionalId
    shard: Annotated[int, Whole(0, 49)]
    region: str
    endpoint: Url


@dataclass(frozen=True, slots=True)
class ShownProducerState:
    """One producer's state in a partition, as it is shown."""

    producer_id: int
    producer_epoch: ProducerEpoch
    last_sequence: Annotated[int, Whole(-1, limits.INT32_MAX)]  # -1 right after a marker
    last_timestamp: Annotated[int, Whole(-1)]  # ms, appended-at of its last append
    current_txn_start_offset: Annotated[int, Whole(-1)]  # -1 without an open transaction


@Titled("OpenTransaction", "A transaction that is open in a partition.")
class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition.

    Attributes:
        start_offset: Where its first batch is. Readers of what is committed wait there, or before it.
        since: When that batch was appended, in ms.
        transactional_id: The id that its producer id was given to; ``None`` if none is known.
        is_hanging: Whether no transactional id can end it any more.
    """

    partition: PartitionNumber
    pair: Annotated[ProducerPair, INLINE]
    start_offset: Offset
    since: int
    transactional_id: TransactionalId | None = None
    is_hanging: bool = False


@Titled("OpenTransactions")
class OpenTransactionPage(NamedTuple):
    """What is open in some partitions of a topic, by partition and by first offset.

    Attributes:
        next_partition: The first partition that was not looked at; ``None`` if there is none.
    """

    transactions: Sequence[OpenTransaction]
    has_more: bool
    next_partition: Annotated[
        PartitionNumber | None, LEFT_OUT, "Where the next page begins, as its `start_partition`."
    ] = None


def check_transactional_id(text: str) -> str:
    """Return ``text``, a transactional id that every path can carry.

    Raises:
        InvalidRequestError: This text can't be a transactional id.
    """
    if (
        not 1 <= len(text.encode()) <= limits.TRANSACTIONAL_ID_BYTES_MAX
        or text in (".", "..")
        or _UNCARRIED.search(text)
    ):
        raise InvalidRequestError(
            f"a transactional id has 1 to {limits.TRANSACTIONAL_ID_BYTES_MAX} bytes of UTF-8, no '/' and no control "
            "characters, and is neither '.' nor '..'; choose another",
            field="transactional_id",
        )
    return text
