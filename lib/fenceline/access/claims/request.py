"""A claim of write access: its form, and all that it leaves open, chosen (contract, "Sessions and producers").

Rule: all that can be judged of a claim without its topic is judged here, with the field to blame, for every caller.

Not here: whether the claim gets access (``decision``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.producer import ProducerRecord, is_legal_name
from fenceline.errors import InvalidRequestError
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.kinds import ACCESS_MODES
from fenceline.model.requests import ClaimRequest
from fenceline.model.topic import Topic


@dataclass(frozen=True, slots=True)
class ResolvedClaim:
    """A claim with all its names chosen, so that each attempt is the same claim.

    Args:
        session_id: The session that the request names, or the one that the claim makes.
        fresh_name: The producer's name, if the request names none, and the same claim was not made before.
        renews: Whether the claim renews the session's lease; false where another session's poll promotes a waiter.
    """

    request: ClaimRequest
    partitions: tuple[int, ...]
    session_id: str
    principal: str
    fresh_name: str
    renews: bool = True

    @classmethod
    def of(cls, record: ProducerRecord, *, renews: bool = True) -> ResolvedClaim:
        """Return the claim that made a record."""
        named = record.producer_name
        request = ClaimRequest(record.access_mode, record.partitions, named, record.session_id)
        return cls(request, record.partitions, record.session_id, record.principal, named, renews)

    @property
    def mode(self) -> str:
        """The mode that is granted, because three access modes ask for exclusive access."""
        return SHARED if self.request.access_mode == SHARED else EXCLUSIVE

    @property
    def makes_session(self) -> bool:
        return self.request.session_id is None

    @property
    def lease_ms(self) -> int:
        """The lease of the session that the claim makes."""
        return self.request.lease_ms or limits.LEASE_MS_DEFAULT

    def is_within(self, record: ProducerRecord) -> bool:
        """Return True if the record is of the same session, and has the partitions of this claim."""
        return record.session_id == self.session_id and set(self.partitions) <= set(record.partitions)

    def is_of(self, record: ProducerRecord) -> bool:
        """Return True if the record was made by this claim, or by the same one before."""
        is_same = record.access_mode == self.request.access_mode and record.partitions == self.partitions
        return is_same and record.session_id == self.session_id


def resolve(request: ClaimRequest, topic: Topic, principal: str, fresh_id: Callable[[], str]) -> ResolvedClaim:
    """Judge the form of a claim, and choose all that it leaves open.

    Raises:
        InvalidRequestError: With the field to blame.
    """
    check(request)
    return ResolvedClaim(
        request, _partitions_of(request, topic), request.session_id or fresh_id(), principal, fresh_id()
    )


def check(request: ClaimRequest) -> None:
    """Judge the form of a claim.

    Raises:
        InvalidRequestError: With the field to blame.
    """
    epochs, partitions = request.topic_epochs, request.partitions
    if request.access_mode not in ACCESS_MODES:
        raise _wrong("access_mode", f"one of {', '.join(ACCESS_MODES)}")
    if request.producer_name is not None and not is_legal_name(request.producer_name):
        raise _wrong(
            "producer_name", f"1 to {limits.PRODUCER_NAME_CHARS_MAX} of A-Z a-z 0-9 . _ - and neither . nor .."
        )
    if request.lease_ms is not None:
        if request.session_id is not None:
            raise _wrong("lease_ms", "left out where session_id is given: only a new session takes it")
        session_item.check_lease(request.lease_ms)
    if request.client_name is not None:
        if request.session_id is not None:
            raise _wrong("client_name", "left out where session_id is given: only a new session takes it")
        session_item.check_client_name(request.client_name)
    if not 0 <= request.wait_ms <= limits.WAIT_MS_MAX:
        raise _wrong("wait_ms", f"from 0 to {limits.WAIT_MS_MAX}")
    if epochs is not None and request.session_id is None:
        raise _wrong("topic_epochs", "left out where session_id is not given: it names the epochs of that session")
    for field_name, named in (("partitions", partitions), ("topic_epochs", epochs)):
        if named is not None and not 1 <= len(named) <= limits.CLAIM_PARTITIONS_MAX:
            raise _wrong(field_name, f"1 to {limits.CLAIM_PARTITIONS_MAX} partitions")
    if partitions is not None and len(set(partitions)) < len(partitions):
        raise _wrong("partitions", "a list with no partition twice")
    if epochs is not None and partitions is not None and set(epochs) != set(partitions):
        raise _wrong("topic_epochs", "given for exactly the partitions that partitions names")


def _wrong(field_name: str, wanted: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field_name} must be {wanted}", field=field_name)


def _partitions_of(request: ClaimRequest, topic: Topic) -> tuple[int, ...]:
    """Return the partitions that a claim is for, in order.

    Raises:
        InvalidRequestError: The claim names no partition, and the topic has more of them than one claim takes.
    """
    named = request.topic_epochs if request.partitions is None else request.partitions
    if named is not None:
        return tuple(sorted(named))
    if topic.partitions > limits.CLAIM_PARTITIONS_MAX:
        raise _wrong("partitions", f"given on a topic with more than {limits.CLAIM_PARTITIONS_MAX}")
    return tuple(range(topic.partitions))
