"""Every error that a caller can get, and what the caller does next ("Errors").

The tree::

    FencelineError: has a code, a status and a next step
        FixError: no record was written; the same request fails again
            InvalidRequestError … OffsetOutOfRangeError
        RetryError: no record was written; send it again
            ThrottledError, ContendedError, StoreUnavailableError …
        OutcomeUnknownError: it may have been written; check
        CorruptLogError: stored data breaks an invariant; stop

Rule: a leaf fixes three things: its wire code, its HTTP status, and what the caller does next. ``fix`` and ``retry``
*promise* that this request wrote no record. In doubt the step is ``check``. ``TABLE`` holds every leaf by its code. The
server makes problem documents from it, and the client makes the same exceptions from those (contract, "Errors").

Not here: what a store can answer; see ``ports``.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar, Literal, TypeVar

from fenceline import limits

T = TypeVar("T")

_VALUES = re.compile(r": (?=[a-z_]+=)")
# Control characters, ends of lines, what no encoding has, and what hides text or turns its direction (Unicode's Cf).
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)

NextStep = Literal["fix", "retry", "check", "stop"]


class FencelineError(Exception):
    """An answer that is not a success.

    Args:
        detail: One sentence in lower case, with ``key=value`` last: what happened, and what to do.
        extra: The members that the contract names beside ``code`` for this error, by their wire names.
    """

    code: ClassVar[str]
    status: ClassVar[int]
    next_step: ClassVar[NextStep]
    title: ClassVar[str]

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def __getattr__(self, name: str) -> Any:
        extra: dict[str, Any] = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(name)

    def name_place(self, topic: str, partition: int) -> None:
        """Name the partition that this error is about, in words and in ``extra``, unless it is named."""
        if self.code not in PLACED or "partition" in self.extra:
            return
        self.extra |= {"topic": topic, "partition": partition}
        self.detail = _placed(self.detail, f"topic={topic}", f"partition={partition}")
        self.args = (self.detail,)

    def problem(self) -> dict[str, Any]:
        """Return this error as a problem document (RFC 9457).

        A text that is too long, such as one of the request, is cut. Unprintable characters in ``detail`` are replaced.
        """
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": printable(_cut(self.detail)),
            "code": self.code,
            "next_step": self.next_step,
            **({"help": help_path(self.code)} if self.code in TABLE else {}),
            **{name: _cut(value) if isinstance(value, str) else value for name, value in self.extra.items()},
        }


def help_path(code: str) -> str:
    """Return the path, on every server, at which a page explains the error."""
    return f"/docs/errors#{code.lower()}"


def _placed(detail: str, topic: str, partition: str) -> str:
    """Return ``detail`` with its place as the first of its values, because the last one may be a text of a caller."""
    said = detail.split()
    if topic in said and partition in said:
        return detail
    if topic in said:
        return re.sub(rf"(?<!\S){re.escape(topic)}(?!\S)", f"{topic} {partition}", detail, count=1)
    values = _VALUES.search(detail)
    if values is None:
        return f"{detail}: {topic} {partition}"
    return f"{detail[: values.end()]}{topic} {partition} {detail[values.end() :]}"


def printable(text: str) -> str:
    """Return a text of another program without the characters that steer a terminal or hide what it shows."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _cut(text: str) -> str:
    return text if len(text) <= limits.PROBLEM_TEXT_CHARS_MAX else text[: limits.PROBLEM_TEXT_CHARS_MAX - 1] + "…"


def place_of(error: BaseException) -> str:
    """Return the type and the place of an undocumented error, and not its text, which may hold a key or a value."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__} at {where}"


def blamed(records: Iterable[tuple[int, T]] = (), say: Callable[[T], str] = str) -> dict[str, Any]:
    """Return the members that name the wrong records: the first of them, and how many there are.

    Args:
        records: (index, what is wrong) of each; none if the batch as a whole is wrong.
        say: Says in words what is wrong with one.
    """
    left = iter(records)
    first = [{"index": index, "message": say(what)} for index, what in islice(left, limits.RECORD_ERRORS_MAX)]
    return {"record_errors": first, "record_errors_count": len(first) + sum(1 for _ in left)}


class FixError(FencelineError):
    """Nothing was written, and the same request will fail again."""

    next_step = "fix"


class RetryError(FencelineError):
    """Nothing was written; send the request again."""

    next_step = "retry"


class InvalidRequestError(FixError):
    """The request has a wrong form. ``field`` is the path of the wrong field, if it is one field."""

    code, status, title = "INVALID_REQUEST", 400, "invalid request"


class InvalidRecordError(FixError):
    """The topic does not take a record, though it is well-formed. ``record_errors`` names the records."""

    code, status, title = "INVALID_RECORD", 400, "invalid record"


class InvalidTimestampError(FixError):
    """A record's timestamp lies outside the topic's bounds. ``record_errors`` names the records."""

    code, status, title = "INVALID_TIMESTAMP", 400, "invalid timestamp"


class CorruptMessageError(FixError):
    """A binary batch is damaged or cut short, or cannot be decoded."""

    code, status, title = "CORRUPT_MESSAGE", 400, "corrupt message"


class InvalidRequiredAcksError(FixError):
    """``acks`` is an integer other than -1, 0 and 1."""

    code, status, title = "INVALID_REQUIRED_ACKS", 400, "invalid required acks"


class InvalidTransactionTimeoutError(FixError):
    """``transaction_timeout_ms`` is not between 1 and 900000."""

    code, status, title = "INVALID_TRANSACTION_TIMEOUT", 400, "invalid transaction timeout"


class InvalidTopicError(FixError):
    """The topic's name is not legal."""

    code, status, title = "INVALID_TOPIC_EXCEPTION", 400, "invalid topic"


class UnauthenticatedError(FixError):
    """The server does not know which principal sent the request."""

    code, status, title = "UNAUTHENTICATED", 401, "unauthenticated"


class NotAuthorizedError(FixError):
    """The principal that sent the request may not do this."""

    code, status, title = "NOT_AUTHORIZED", 403, "not authorized"


class NotFoundError(FixError):
    """The path does not exist."""

    code, status, title = "NOT_FOUND", 404, "not found"


class UnknownTopicOrPartitionError(FixError):
    """The topic does not exist, or does not have the partition."""

    code, status, title = "UNKNOWN_TOPIC_OR_PARTITION", 404, "unknown topic or partition"


class UnknownTopicIdError(FixError):
    """The topic was deleted, and another one has its name: the request names the id of the earlier one."""

    code, status, title = "UNKNOWN_TOPIC_ID", 404, "unknown topic id"


class UnknownSubscriptionError(FixError):
    """The subscription does not exist."""

    code, status, title = "UNKNOWN_SUBSCRIPTION", 404, "unknown subscription"


class UnknownSessionError(FixError):
    """The session does not exist."""

    code, status, title = "UNKNOWN_SESSION", 404, "unknown session"


class TransactionalIdNotFoundError(FixError):
    """The transactional id does not exist."""

    code, status, title = "TRANSACTIONAL_ID_NOT_FOUND", 404, "transactional id not found"


class UnknownProducerError(FixError):
    """The topic has no producer of that *name*. Never given for a producer id."""

    code, status, title = "UNKNOWN_PRODUCER", 404, "unknown producer"


class MethodNotAllowedError(FixError):
    """The path exists, but not with this method."""

    code, status, title = "METHOD_NOT_ALLOWED", 405, "method not allowed"


class UnsupportedMediaTypeError(FixError):
    """The body is neither JSON nor version 2 of the binary type."""

    code, status, title = "UNSUPPORTED_MEDIA_TYPE", 415, "unsupported media type"


class TopicAlreadyExistsError(FixError):
    """Another topic has the name."""

    code, status, title = "TOPIC_ALREADY_EXISTS", 409, "topic already exists"


class OutOfOrderSequenceNumberError(FixError):
    """The producer's sequence neither follows its last one nor repeats one of its last five batches."""

    code, status, title = "OUT_OF_ORDER_SEQUENCE_NUMBER", 409, "out of order sequence number"


class InvalidProducerEpochError(FixError):
    """The producer epoch is below the producer's epoch in the log."""

    code, status, title = "INVALID_PRODUCER_EPOCH", 409, "invalid producer epoch"


class InvalidProducerIdMappingError(FixError):
    """The producer id belongs to another transactional id."""

    code, status, title = "INVALID_PRODUCER_ID_MAPPING", 409, "invalid producer id mapping"


class InvalidTxnStateError(FixError):
    """The state of the transaction does not allow this request."""

    code, status, title = "INVALID_TXN_STATE", 409, "invalid transaction state"


class ProducerFencedError(FixError):
    """Another writer came after this producer. ``topic_epochs`` or ``topic_epoch`` are the epochs now in force."""

    code, status, title = "PRODUCER_FENCED", 409, "producer fenced"


class ProducerBusyError(FixError):
    """Another session has access, and may give it up."""

    code, status, title = "PRODUCER_BUSY", 409, "producer busy"


class StaleGenerationError(FixError):
    """The generation is below the last granted ``generation`` of ``resource``."""

    code, status, title = "STALE_GENERATION", 409, "stale generation"


class ResourceOwnedError(FixError):
    """Another session owns ``resource`` with ``generation``."""

    code, status, title = "RESOURCE_OWNED", 409, "resource owned"


class SessionSeveredError(FixError):
    """Another session took what this session owned. This session has ended for good."""

    code, status, title = "SESSION_SEVERED", 409, "session severed"


class SessionExpiredError(FixError):
    """The session's lease lapsed, or it was closed."""

    code, status, title = "SESSION_EXPIRED", 409, "session expired"


class OwnerFencedError(FixError):
    """The session reads or commits as a group, but does not own the group's ``resource``."""

    code, status, title = "OWNER_FENCED", 409, "owner fenced"


class UnknownMemberIdError(FixError):
    """The group has no such member, or it has members and the request names none. Join with ``member_epoch`` 0."""

    code, status, title = "UNKNOWN_MEMBER_ID", 404, "unknown member id"


class GroupIdNotFoundError(FixError):
    """No group has this name."""

    code, status, title = "GROUP_ID_NOT_FOUND", 404, "group id not found"


class FencedMemberEpochError(FixError):
    """The member epoch is neither the member's nor the one before it: stop all work, and join with epoch 0."""

    code, status, title = "FENCED_MEMBER_EPOCH", 409, "fenced member epoch"


class StaleMemberEpochError(FixError):
    """Another member holds ``topic``'s ``partition``, or this one took it after the epoch that the request names."""

    code, status, title = "STALE_MEMBER_EPOCH", 409, "stale member epoch"


class UnreleasedInstanceIdError(FixError):
    """A live member of the group has ``instance_id``."""

    code, status, title = "UNRELEASED_INSTANCE_ID", 409, "unreleased instance id"


class FencedInstanceIdError(FixError):
    """Another member took ``instance_id`` over."""

    code, status, title = "FENCED_INSTANCE_ID", 409, "fenced instance id"


class InconsistentGroupProtocolError(FixError):
    """The group's members speak the other group protocol, native or classic."""

    code, status, title = "INCONSISTENT_GROUP_PROTOCOL", 409, "inconsistent group protocol"


class NonEmptyGroupError(FixError):
    """The group has members."""

    code, status, title = "NON_EMPTY_GROUP", 409, "non-empty group"


class GroupMaxSizeReachedError(FixError):
    """The group's item has no room for another member, or for more partitions."""

    code, status, title = "GROUP_MAX_SIZE_REACHED", 409, "group max size reached"


class UnsupportedAssignorError(FixError):
    """The service has no assignor of this name, or the group uses another one."""

    code, status, title = "UNSUPPORTED_ASSIGNOR", 400, "unsupported assignor"


class RebalanceInProgressError(RetryError):
    """A classic group is rebalancing."""

    code, status, title = "REBALANCE_IN_PROGRESS", 409, "rebalance in progress"


class ViewMovedError(FixError):
    """What is shown may lack tombstones that the reader has not read, or has another order: begin with an empty table.

    ``compaction_horizon`` is that of the view in force. Below ``deletes_to`` tombstones may be missing.
    """

    code, status, title = "VIEW_MOVED", 409, "view moved"


class OperationNotAttemptedError(FixError):
    """Another part of the request was refused, so this part was not attempted. Only in results."""

    code, status, title = "OPERATION_NOT_ATTEMPTED", 409, "operation not attempted"


class AlreadyCommittedError(FixError):
    """This version of ``once``, or a higher one, is stored: ``version`` and ``note`` are what is stored.

    It says what is stored, not by which request. After a lost answer it may have been an earlier sending of this one.
    """

    code, status, title = "ALREADY_COMMITTED", 409, "already committed"


class ConcurrentTransactionsError(RetryError):
    """The server is still finishing the previous transaction of this id."""

    code, status, title = "CONCURRENT_TRANSACTIONS", 409, "concurrent transactions"


class UnstableOffsetCommitError(RetryError):
    """An open transaction holds pending offsets of the group."""

    code, status, title = "UNSTABLE_OFFSET_COMMIT", 409, "unstable offset commit"


class OffsetMismatchError(FixError):
    """The expected offset is not the next offset of the partition, which is ``next_offset`` (KIP-27)."""

    code, status, title = "OFFSET_MISMATCH", 412, "offset mismatch"


class MessageTooLargeError(FixError):
    """The batch, as it would be stored, has more than ``bytes_max`` bytes."""

    code, status, title = "MESSAGE_TOO_LARGE", 413, "message too large"


class RecordListTooLargeError(FixError):
    """The request's body has more than ``bytes_max`` bytes."""

    code, status, title = "RECORD_LIST_TOO_LARGE", 413, "record list too large"


class OffsetOutOfRangeError(FixError):
    """The offset lies outside ``[log_start_offset, next_offset]``."""

    code, status, title = "OFFSET_OUT_OF_RANGE", 416, "offset out of range"


class ThrottledError(RetryError):
    """The caller asks for too much at once, or a list has no room."""

    code, status, title = "THROTTLED", 429, "throttled"


class StoreUnavailableError(RetryError):
    """The server could not reach a store, or the store refused before it did anything."""

    code, status, title = "STORE_UNAVAILABLE", 503, "store unavailable"


class ContendedError(RetryError):
    """Rivals won every attempt until the request's time was over."""

    code, status, title = "CONTENDED", 503, "contended"


class OutcomeUnknownError(FencelineError):
    """A store did not answer in time: the request may have been carried out."""

    code, status, title, next_step = "OUTCOME_UNKNOWN", 504, "outcome unknown", "check"


class CorruptLogError(FencelineError):
    """Stored data breaks an invariant."""

    code, status, title, next_step = "CORRUPT_LOG", 500, "corrupt log", "stop"


def _leaves(root: type[FencelineError]) -> Iterator[type[FencelineError]]:
    for child in root.__subclasses__():
        if "code" in child.__dict__:
            yield child
        yield from _leaves(child)


TABLE: Mapping[str, type[FencelineError]] = {leaf.code: leaf for leaf in _leaves(FencelineError)}

# The errors that name the partition, where a request for one partition is refused.
PLACED = frozenset(
    leaf.code
    for leaf in (
        InvalidRecordError,
        InvalidTimestampError,
        OutOfOrderSequenceNumberError,
        InvalidProducerEpochError,
        InvalidTxnStateError,
        ProducerFencedError,
        ProducerBusyError,
        UnstableOffsetCommitError,
        StaleMemberEpochError,
        OffsetMismatchError,
        MessageTooLargeError,
        OffsetOutOfRangeError,
        ThrottledError,
        StoreUnavailableError,
        ContendedError,
        OutcomeUnknownError,
        CorruptLogError,
    )
)


@contextmanager
def naming(topic: str, partition: int) -> Iterator[None]:
    """Have each error of the block name the partition, as ``FencelineError.name_place`` does."""
    try:
        yield
    except FencelineError as error:
        error.name_place(topic, partition)
        raise
