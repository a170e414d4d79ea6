"""The guard of a group's reads and commits: only the session that owns the partition passes.

Rule: a read is judged before and after it. A commit carries the owner's items as conditions of its write (protocol,
"Reads and commits as a group").

Not here: how the session came to own the partition (``own``), and the members of groups, which are judged after it
(``groups.member_guard``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fenceline.access import fence_markers, session_item
from fenceline.access.resources import OwnershipItem
from fenceline.access.session_item import SessionItem, judge_live, session_from_item
from fenceline.errors import OwnerFencedError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.ports import Check

_ONLY_OWNER = "only the session that owns a partition reads and commits there as its group"


class Incarnation(Protocol):
    """A topic, or a partition of it: its name, and its incarnation."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> str: ...


def guard_group(
    context: Context, topic: Incarnation, partition: int, group: str, session_id: str | None, principal: str
) -> Sequence[Check]:
    """Judge a read or a commit as ``group`` now, and renew the session's lease if a third of it is spent.

    Returns:
        The conditions for the transaction of a commit. A read has none, because it is judged again after it.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The session, in this order.
        OwnerFencedError: Another session owns the group's reads here, or this session does not.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: A store failed. At most a lease was changed.
    """
    resource = f"{topic.name}/{partition}"
    key = keys.ownership_item(topic.topic_id, partition, group)
    # A refusal is final, because it refuses a read or a commit, and nothing of either is written here.
    attempts = Attempts(context.runtime, "the session", is_refusal_final=True)
    while True:
        with attempts:
            wanted = [] if session_id is None or not keys.is_session_id(session_id) else [keys.session_item(session_id)]
            found = context.items.get([key, *wanted])
            owner = OwnershipItem.from_item(found.get(key)).session_id
            held = Check(key, found[key].version if key in found else None)
            if session_id is None:
                return [held, *_judge_unowned(context, owner, resource)]
            session = next((session_from_item(found[one]) for one in wanted if one in found), None)
            known = _judge_session(context, session, session_id, principal)
            if owner != session_id:
                raise _fenced(
                    resource,
                    f"this session does not own the partition; own it first: {_ONLY_OWNER}",
                )
            renewed = _renew(context, known)
            return [held, Check(renewed.key, renewed.version)]


def guard_session(context: Context, session_id: str, principal: str) -> None:
    """Judge, and renew, a session that reads as no group; see ``guard_group``."""
    # A refusal is final, because it refuses a read or a commit, and nothing of either is written here.
    attempts = Attempts(context.runtime, "the session", is_refusal_final=True)
    while True:
        with attempts:
            session = fence_markers.read_sessions(context, [session_id]).get(session_id)
            _renew(context, _judge_session(context, session, session_id, principal))
            return


def _judge_session(context: Context, session: SessionItem | None, session_id: str, principal: str) -> SessionItem:
    if session is not None and session.fences:
        fence_markers.finish_all(Partitions(context), [session])
    return judge_live(session, session_id, principal, context.runtime.now_ms())


def _judge_unowned(context: Context, owner: str | None, resource: str) -> Sequence[Check]:
    """Judge a request without a session, which passes only while no owner is live. A lapsed owner may come back."""
    known = fence_markers.read_sessions(context, [owner]).get(owner) if owner is not None else None
    if known is None:
        return ()
    fence_markers.finish_all(Partitions(context), [known])
    if known.is_live(context.runtime.now_ms()):
        raise _fenced(resource, f"another session owns the partition; wait until that ends: {_ONLY_OWNER}")
    return () if known.is_final else [Check(known.key, known.version)]


def _renew(context: Context, session: SessionItem) -> SessionItem:
    now_ms = context.runtime.now_ms()
    if not session.is_renewal_due(now_ms):
        return session
    renewed = session_item.renewed(session, now_ms)
    put = renewed.put(context.runtime)
    context.items.write([put])
    return renewed.written(put)


def _fenced(resource: str, why: str) -> OwnerFencedError:
    return OwnerFencedError(f"{why}: resource={resource}", resource=resource)
