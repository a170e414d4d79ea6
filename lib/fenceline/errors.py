"""Every error a caller can meet, and what the caller does next.

The tree::

    FencelineError                       code, status, next_step
    ├── FixError                         nothing was written; the same request fails again
    │   └── InvalidRequestError … OffsetOutOfRangeError
    ├── RetryError                       nothing was written; send it again
    │   └── ThrottledError, ContendedError, StoreUnavailableError …
    ├── OutcomeUnknownError              may have been written: check
    └── CorruptLogError                  stored data breaks an invariant: stop

The rule: a leaf fixes three things, its wire code, its HTTP status and what the caller does next. ``fix`` and
``retry`` *promise* that this request wrote no record; in doubt it is ``check``. ``TABLE`` holds every leaf by its code:
the server makes problem documents from it and the client makes the same exceptions from those (API.md, "Errors").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Literal, TypeVar

from fenceline import limits

T = TypeVar("T")

NextStep = Literal["fix", "retry", "check", "stop"]


class FencelineError(Exception):
    """An answer that is not a success.

    Args:
        detail: One sentence in lower case, with ``key=value`` last.
        extra: The members that API.md names beside ``code`` for this error, by their wire names.
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

    def problem(self) -> dict[str, Any]:
        """Return this error as a problem document (RFC 9457); a text that repeats too much of a request is cut."""
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": _cut(self.detail),
            "code": self.code,
            "next_step": self.next_step,
            **{name: _cut(value) if isinstance(value, str) else value for name, value in self.extra.items()},
        }


def _cut(text: str) -> str:
    return text if len(text) <= limits.PROBLEM_CHARS_MAX else text[: limits.PROBLEM_CHARS_MAX - 1] + "…"


def blamed(records: Iterable[tuple[int, T]] = (), say: Callable[[T], str] = str) -> dict[str, Any]:
    """Return the members that name the records to blame: the first of them, and how many there are.

    Args:
        records: (index, what is wrong) of each; none where the batch as a whole is to blame.
        say: Puts in words what is wrong with one.
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
    """The form of the request is wrong; ``field`` says where, as a path, if one field is to blame."""

    code, status, title = "INVALID_REQUEST", 400, "invalid request"


class InvalidRecordError(FixError):
    """Well-formed records that the topic does not take; ``record_errors`` and its count are those of ``blamed``."""

    code, status, title = "INVALID_RECORD", 400, "invalid record"


class InvalidTimestampError(FixError):
    """A record's timestamp lies outside the topic's bounds; ``record_errors`` and its count are those of ``blamed``."""

    code, status, title = "INVALID_TIMESTAMP", 400, "invalid timestamp"


class CorruptMessageError(FixError):
    """A binary batch that is damaged, cut short, or cannot be decoded."""

    code, status, title = "CORRUPT_MESSAGE", 400, "corrupt message"


class InvalidRequiredAcksError(FixError):
    """``acks`` is an integer other than -1, 0 and 1."""

    code, status, title = "INVALID_REQUIRED_ACKS", 400, "invalid required acks"


class InvalidTransactionTimeoutError(FixError):
    """``transaction_timeout_ms`` is not from 1 to 900000."""

    code, status, title = "INVALID_TRANSACTION_TIMEOUT", 400, "invalid transaction timeout"


class InvalidTopicError(FixError):
    """A topic name that is no legal name."""

    code, status, title = "INVALID_TOPIC_EXCEPTION", 400, "invalid topic"


class UnauthenticatedError(FixError):
    """Who sent the request is not known."""

    code, status, title = "UNAUTHENTICATED", 401, "unauthenticated"


class NotAuthorizedError(FixError):
    """Who sent the request may not do this."""

    code, status, title = "NOT_AUTHORIZED", 403, "not authorized"


class NotFoundError(FixError):
    """No such path."""

    code, status, title = "NOT_FOUND", 404, "not found"


class UnknownTopicOrPartitionError(FixError):
    """No such topic, or the topic has no such partition."""

    code, status, title = "UNKNOWN_TOPIC_OR_PARTITION", 404, "unknown topic or partition"


class UnknownSubscriptionError(FixError):
    """No such subscription."""

    code, status, title = "UNKNOWN_SUBSCRIPTION", 404, "unknown subscription"


class UnknownSessionError(FixError):
    """No such session."""

    code, status, title = "UNKNOWN_SESSION", 404, "unknown session"


class TransactionalIdNotFoundError(FixError):
    """No such transactional id."""

    code, status, title = "TRANSACTIONAL_ID_NOT_FOUND", 404, "transactional id not found"


class UnknownProducerError(FixError):
    """No producer of that *name* on the topic; never given for a producer id."""

    code, status, title = "UNKNOWN_PRODUCER", 404, "unknown producer"


class MethodNotAllowedError(FixError):
    """The path exists, but not with this method."""

    code, status, title = "METHOD_NOT_ALLOWED", 405, "method not allowed"


class UnsupportedMediaTypeError(FixError):
    """A body that is neither JSON nor version 2 of the binary type."""

    code, status, title = "UNSUPPORTED_MEDIA_TYPE", 415, "unsupported media type"


class TopicAlreadyExistsError(FixError):
    """The name is taken."""

    code, status, title = "TOPIC_ALREADY_EXISTS", 409, "topic already exists"


class OutOfOrderSequenceNumberError(FixError):
    """A producer's sequence neither follows its last nor repeats one of its last five batches."""

    code, status, title = "OUT_OF_ORDER_SEQUENCE_NUMBER", 409, "out of order sequence number"


class InvalidProducerEpochError(FixError):
    """A producer epoch below the one in the log."""

    code, status, title = "INVALID_PRODUCER_EPOCH", 409, "invalid producer epoch"


class InvalidProducerIdMappingError(FixError):
    """The producer id is not the one of this transactional id."""

    code, status, title = "INVALID_PRODUCER_ID_MAPPING", 409, "invalid producer id mapping"


class InvalidTxnStateError(FixError):
    """The transaction is in no state for this request."""

    code, status, title = "INVALID_TXN_STATE", 409, "invalid transaction state"


class ProducerFencedError(FixError):
    """Somebody came after this producer; ``topic_epochs`` or ``topic_epoch`` are those now in force."""

    code, status, title = "PRODUCER_FENCED", 409, "producer fenced"


class ProducerBusyError(FixError):
    """Somebody else has access, and may give it up."""

    code, status, title = "PRODUCER_BUSY", 409, "producer busy"


class StaleGenerationError(FixError):
    """A generation below the last granted one; ``resource`` and ``generation`` tell which."""

    code, status, title = "STALE_GENERATION", 409, "stale generation"


class ResourceOwnedError(FixError):
    """Another session owns ``resource``, with ``generation``."""

    code, status, title = "RESOURCE_OWNED", 409, "resource owned"


class SessionSeveredError(FixError):
    """Another session took what this one owned; it has ended for good."""

    code, status, title = "SESSION_SEVERED", 409, "session severed"


class SessionExpiredError(FixError):
    """The session's lease lapsed, or it was closed."""

    code, status, title = "SESSION_EXPIRED", 409, "session expired"


class OwnerFencedError(FixError):
    """Reading or committing as a group that this session does not own; ``resource`` tells which."""

    code, status, title = "OWNER_FENCED", 409, "owner fenced"


class ConcurrentTransactionsError(RetryError):
    """The previous transaction of this id is still being finished."""

    code, status, title = "CONCURRENT_TRANSACTIONS", 409, "concurrent transactions"


class UnstableOffsetCommitError(RetryError):
    """The group's offsets are pending in an open transaction."""

    code, status, title = "UNSTABLE_OFFSET_COMMIT", 409, "unstable offset commit"


class OffsetMismatchError(FixError):
    """The expected offset is not the next offset, which ``next_offset`` tells (KIP-27)."""

    code, status, title = "OFFSET_MISMATCH", 412, "offset mismatch"


class MessageTooLargeError(FixError):
    """The batch as it would be stored has more than ``bytes_max`` bytes."""

    code, status, title = "MESSAGE_TOO_LARGE", 413, "message too large"


class RecordListTooLargeError(FixError):
    """The request's body has more than ``bytes_max`` bytes."""

    code, status, title = "RECORD_LIST_TOO_LARGE", 413, "record list too large"


class OffsetOutOfRangeError(FixError):
    """An offset outside ``[log_start_offset, next_offset]``."""

    code, status, title = "OFFSET_OUT_OF_RANGE", 416, "offset out of range"


class ThrottledError(RetryError):
    """Too much at once."""

    code, status, title = "THROTTLED", 429, "throttled"


class StoreUnavailableError(RetryError):
    """A store could not be reached; nothing of this request left for it."""

    code, status, title = "STORE_UNAVAILABLE", 503, "store unavailable"


class ContendedError(RetryError):
    """Rivals won every attempt until the time was over."""

    code, status, title = "CONTENDED", 503, "contended"


class OutcomeUnknownError(FencelineError):
    """The store did not answer in time: the request may have been carried out."""

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
