"""Requests of classic groups, carried out: read, decide, one conditional write, and the waits of joins and syncs.

Rule: requests of one process for one group that come together are decided together, in one read and one write. A
request that waits looks at the item every 100 ms to 1 s, and at once after a change that this process has made.

Not here: decisions (``groups.classic``), Kafka's wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.errors import FencelineError, InconsistentGroupProtocolError
from fenceline.format import keys
from fenceline.groups import classic, classic_chunks, classic_item, classic_join, deletion, reads, removal
from fenceline.groups.classic_item import Classic
from fenceline.groups.classic_join import Join
from fenceline.groups.classic_steps import Decision, Joined
from fenceline.groups.group_item import CLASSIC, NATIVE, GroupItem
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.ports import Put
from fenceline.runtime import Condition
from fenceline.subscriptions.cursors import Live

_LOOK_MS_MIN, _LOOK_MS_MAX = 100, 1_000

Decide = Callable[[Classic, int], Decision]


class MemberIdRequired(NamedTuple):
    """The answer to a JoinGroup without a member id: join again with this one (KIP-394). Nothing was stored."""

    member_id: str


@dataclass(slots=True, eq=False)
class _Request:
    decide: Decide
    answer: Joined | bytes | BaseException | None = None
    is_done: bool = False


@dataclass(slots=True)
class _Local:
    """What this process has under way for one group."""

    condition: Condition
    users: int = 0
    pending: list[_Request] = field(default_factory=list)
    is_writing: bool = False
    changes: int = 0  # that this process has made


class ClassicGroups:
    """The classic groups of this region. Safe to share between threads.

    Each method raises the decision's errors (``groups.classic``), and ContendedError, StoreUnavailableError (nothing
    was changed) or OutcomeUnknownError (the request may have been carried out, and may be sent again).

    Args:
        live: Returns the live topic of a name; for the deletion of a group that another process has begun.
    """

    def __init__(self, context: Context, live: Live) -> None:
        self._context = context
        self._live = live
        self._lock = context.runtime.lock()
        self._groups: dict[str, _Local] = {}

    def join(self, group: str, request: Join) -> Joined | MemberIdRequired:
        """Join, and wait for the next generation; ``request.member_id`` is empty for a client that has none."""
        if not request.member_id:
            fresh = self._context.runtime.fresh_id()
            if request.instance_id is None:
                return MemberIdRequired(fresh)
            request = request._replace(member_id=fresh, is_fresh=True)
        found = self._answer(
            group,
            lambda now, now_ms: classic_join.join(now, request, now_ms),
            lambda now, now_ms: classic_join.wait_to_join(now, request.member_id, request.instance_id, now_ms),
        )
        assert isinstance(found, Joined)
        return found

    def sync(
        self, group: str, member_id: str, instance_id: str | None, generation: int, assignments: Mapping[str, bytes]
    ) -> bytes:
        """Return the member's assignment: the leader gives all of them, a follower waits for the leader's."""

        def decide(now: Classic, now_ms: int) -> Decision:
            return classic.sync(now, member_id, instance_id, generation, assignments, now_ms)

        found = self._answer(group, decide, decide)
        assert isinstance(found, bytes)
        return found

    def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Renew the member's lease when a third of it is spent."""

        def decide(now: Classic, now_ms: int) -> Decision:
            return classic.heartbeat(now, member_id, instance_id, generation, now_ms)

        self._answer(group, decide, decide)

    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> None:
        """Remove members by (member id, instance id). One that is not in the group has left."""

        def decide(now: Classic, now_ms: int) -> Decision:
            return Decision(classic.leave(now, members, now_ms), b"")

        self._answer(group, decide, decide)

    def _answer(self, group: str, first: Decide, then: Decide) -> Joined | bytes:
        with self._lock:
            local = self._groups.setdefault(group, _Local(self._context.runtime.condition()))
            local.users += 1
        try:
            decide, look_ms = first, _LOOK_MS_MIN
            while True:
                seen = local.changes
                answer = self._decided(group, local, decide)
                if isinstance(answer, BaseException):
                    raise answer
                if answer is not None:
                    return answer
                decide = then
                with local.condition:
                    if local.changes == seen:  # else this process has changed the group since the look, or in it
                        local.condition.wait(look_ms / 1000)
                look_ms = min(look_ms * 2, _LOOK_MS_MAX)
        finally:
            with self._lock:
                local.users -= 1
                if not local.users:
                    del self._groups[group]

    def _decided(self, group: str, local: _Local, decide: Decide) -> Joined | bytes | BaseException | None:
        """Have a request decided, together with those that came while another write was under way."""
        request = _Request(decide)
        with local.condition:
            local.pending.append(request)
            while local.is_writing and not request.is_done:
                local.condition.wait()
            if request.is_done:
                return request.answer
            batch, local.pending, local.is_writing = local.pending, [], True
        has_changed = False
        try:
            has_changed = Attempts(self._context.runtime, "the group").until_done(lambda: self._attempt(group, batch))
        except BaseException as error:
            for one in batch:
                one.answer = error
            if not isinstance(error, FencelineError):
                raise
        finally:
            with local.condition:
                local.is_writing = False
                local.changes += has_changed
                for one in batch:
                    one.is_done = True
                local.condition.notify_all()
        return request.answer

    def _attempt(self, group: str, batch: Sequence[_Request]) -> bool:
        """Decide all of a batch on one read, write what changed, and return whether anything did."""
        item, now_ms = self._read(group), self._context.runtime.now_ms()
        before = now = classic_chunks.read(self._context, item)
        for one in batch:
            try:
                changed, answer = one.decide(now, now_ms)
                now = now if changed is None else classic_item.fitting(item, now, changed)
                one.answer = answer
            except FencelineError as error:
                one.answer = error
        if now is before:
            return False
        more: list[Put] = []
        if item.version is None and keys.ANY_GROUP not in self._context.items.get([keys.ANY_GROUP]):
            more.append(Put.replacing(keys.ANY_GROUP, {}, None, self._context.runtime.fresh_version))
        classic_chunks.write(self._context, item, now, now_ms, *more)
        return True

    def _read(self, group: str) -> GroupItem:
        item = reads.only_group(self._context, group)
        if item is not None and item.is_going:
            deletion.finish(self._context, self._live, item)
            item = None
        if item is None:
            return GroupItem(group, CLASSIC, epoch=0, assignor="")
        if item.type == NATIVE and item.members:
            item = removal.without_dead(self._context, item)
        if item.type == NATIVE and item.members:
            raise InconsistentGroupProtocolError(
                "the group's members use the other group protocol; stop the last of them first, or use another group: "
                f"group={group}"
            )
        return item
