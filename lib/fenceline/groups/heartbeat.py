"""Heartbeat: one request by which a member joins, keeps its lease, reports what it stopped, and learns what it has.

Protocol, "Groups".

Rule: each request reads, decides purely, and makes one conditional write, or none. What it changes of the group, of the
members that it removes, and of the member itself is in that write. A request that loses it reads again.

Rule: a join that loses the write waits: it makes the member's own item, for which no other request contends. So does
one that meets another join of the group in its process, because it would lose. The next join that changes the group
admits all that wait, so that many joins at once are a few writes of the group's item.

Not here: the decisions (``heartbeat_plan``, ``membership``, ``reconcile``), leaving (``leaving``).
"""

from __future__ import annotations

from dataclasses import replace

from fenceline.errors import FixError, GroupMaxSizeReachedError, InvalidRequestError
from fenceline.format import keys
from fenceline.groups import deletion, membership, positions, reads, reconcile, removal
from fenceline.groups.group_item import GroupItem
from fenceline.groups.heartbeat_plan import Plan, joining
from fenceline.groups.member_item import MemberItem, Place
from fenceline.groups.membership import Standing
from fenceline.groups.shown import membership_of
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.model import principal as principals
from fenceline.model.group import Membership
from fenceline.model.requests import Heartbeat
from fenceline.ports import Change, Check, Delete, Put, VersionMoved
from fenceline.subscriptions.cursors import Live

_WAIT_MS = 150  # at most, before a member that waits changes the group itself
_TURNS_WAITED = 4  # attempts that leave the change to another join of the process


def heartbeat(context: Context, live: Live, group: str, beat: Heartbeat, principal: str) -> Membership:
    """Carry a heartbeat out, and return what the member is to work on.

    Args:
        principal: The caller's (``principal.lasting``).

    Raises:
        NotAuthorizedError: The member is another principal's.
        InconsistentGroupProtocolError: The group has classic members.
        UnknownMemberIdError, FencedMemberEpochError: The member is not in the group, or the epoch is not its own.
        InvalidRequestError: A join names no topics, or the report names what the member does not hold.
        UnsupportedAssignorError, UnreleasedInstanceIdError, GroupMaxSizeReachedError: The member cannot join so.
        ContendedError, StoreUnavailableError: The member is as it was. But a join may wait in its own item, so that
            another join admits it; the same join again goes on from there.
        OutcomeUnknownError: The change may have been made; the same heartbeat again is right in either case.
    """
    request = _Request(context, live, group, beat, principal)
    return Attempts(context.runtime, "the group").until_done(request.attempt)


def join_turn(group: str) -> str:
    """Return the turn that a join of the group takes in its process."""
    return f"{group}: a join"


class _Request:
    """One heartbeat, over several attempts."""

    def __init__(self, context: Context, live: Live, group: str, beat: Heartbeat, principal: str) -> None:
        self._context = context
        self._live = live
        self._group = group
        self._beat = beat
        self._principal = principal
        self._attempts = 0
        self._has_waited = False  # True once this request made the member's item, to be admitted
        self._pause_ms = 0.0  # before the next attempt

    def attempt(self) -> Membership:
        """Read, decide, and write."""
        self._attempts += 1
        if self._pause_ms:
            self._context.runtime.sleep_ms(self._pause_ms)
            self._pause_ms = 0.0
        beat = self._beat
        group, member = reads.group_and_member(self._context, self._group, beat.member_id)
        if member is not None:
            principals.judge(member.principal, self._principal, "the member")
        if group is not None and group.is_going:
            deletion.finish(self._context, self._live, group)
            raise VersionMoved(group.key)
        try:
            return self._answered(group, member)
        except FixError:
            if beat.member_epoch == 0 and member is not None and member.waiting is not None:
                # No other join may admit what was refused. If one just has, this write fails, and the next attempt
                # joins again.
                self._context.items.write([Delete(member.key, member.version or 0)])
            raise

    def _answered(self, group: GroupItem | None, member: MemberItem | None) -> Membership:
        beat = self._beat
        standing = membership.stand(group, member, beat.member_id, beat.member_epoch)
        if standing is Standing.NEW:
            with self._context.turns.take(join_turn(self._group)) as is_turn:
                # It waits for no turn for long: one that has the turn may be stuck.
                return self._join(group, member, is_turn=is_turn or self._attempts > _TURNS_WAITED)
        assert group is not None
        assert member is not None
        if standing is Standing.REPEATED:
            return self._repeat(group, member)
        if standing is Standing.AGAIN and self._has_waited:
            standing = Standing.PRESENT  # admitted by another request
        return self._go_on(group, member, is_join=standing is Standing.AGAIN)

    @property
    def _now_ms(self) -> int:
        return self._context.runtime.now_ms()

    # A member that the group has

    def _repeat(self, group: GroupItem, member: MemberItem) -> Membership:
        """Renew the lease, if that is due, and answer as before: what the request reports is not believed."""
        if member.is_renewal_due(self._now_ms):
            member = member.renewed(self._now_ms)
            self._context.items.write([member.put(self._context.runtime)])
        return membership_of(member, group)

    def _go_on(self, group: GroupItem, member: MemberItem, *, is_join: bool) -> Membership:
        membership.judge_assignor(group, self._beat.assignor)
        known = group.members[member.member_id]
        plan = Plan(group, self._beat)
        is_new = plan.subscribe(known) != known
        owned = self._owned(group, member, is_join=is_join)
        if is_join or is_new or member.is_renewal_due(self._now_ms):
            plan.topics = reads.topics(self._context, plan.members.values())
        lacks = bool(reconcile.targeted(group, member.member_id).keys() - member.holds.keys())
        if is_join or lacks or self._is_next_dead(group):
            self._end_dead(plan)
        plan.change(self._now_ms, self._context.runtime.random, is_new=is_new)
        self._ensure_positions(plan, is_new=is_new)
        return self._reconcile(plan, member, owned, is_join=is_join)

    def _is_next_dead(self, group: GroupItem) -> bool:
        """Return True if the member after this one, in the ring of member ids, may be removed."""
        ring = sorted(group.members)
        following = ring[(ring.index(self._beat.member_id) + 1) % len(ring)]
        if following == self._beat.member_id:
            return False
        found = reads.only_member(self._context, self._group, following)
        return found is None or reconcile.is_dead(found, group, self._now_ms)

    # A new member

    def _join(self, group: GroupItem | None, member: MemberItem | None, *, is_turn: bool) -> Membership:
        """Change the group by this join, and by those that wait; or wait for another join to do so.

        Args:
            is_turn: Whether it may change the group. Else another join of the process does so, and this one would lose.
        """
        beat = self._beat
        if not (beat.topics or beat.topic_prefixes):
            raise InvalidRequestError("a join names topics or topic_prefixes, or both", field="topics")
        base = membership.empty(self._group) if group is None else group
        plan = Plan(base, beat)
        plan.assignor = membership.judge_assignor(base, beat.assignor)
        self._end_dead(plan)
        plan.take_over(self._principal, self._now_ms)
        made = joining(self._group, beat, plan.subscribe(None), self._principal, self._now_ms)
        waiting, is_waiting = plan.waiting(self._now_ms), False
        if member is not None:  # of an earlier life, or one that waits
            made = replace(made, epoch=member.epoch, version=member.version)
            is_waiting = member.waiting is not None
        is_first = self._attempts == 1 and not waiting  # so it may well be alone
        if not is_turn or not (is_first or is_waiting):
            plan.join(member, ())
            self._change_by_join(plan)  # a join for which the group has no room is refused at once
            self._wait(made, is_made=is_waiting)
        plan.join(member, waiting)
        self._change_by_join(plan)
        self._ensure_positions(plan, is_new=True)
        return self._reconcile(plan, replace(made, epoch=0, waiting=None), None, is_join=True)

    def _change_by_join(self, plan: Plan) -> None:
        """Change the group by a join, with those that it admits, or without them if the group would be too large."""
        plan.topics = reads.topics(self._context, plan.members.values())
        try:
            plan.change(self._now_ms, self._context.runtime.random, is_new=True)
        except GroupMaxSizeReachedError:
            if not plan.admitted:
                raise
            plan.admit_none()
            self._change_by_join(plan)

    def _wait(self, made: MemberItem, *, is_made: bool) -> None:
        """Let another join admit this one, by the member's own item.

        Raises:
            VersionMoved: Always, so that the next attempt looks whether that has happened.
        """
        runtime = self._context.runtime
        if not is_made:
            self._context.items.write([made.put(runtime)])
            self._has_waited = True
        self._pause_ms = runtime.random() * _WAIT_MS
        raise VersionMoved(made.key)

    # Steps of both

    def _end_dead(self, plan: Plan) -> None:
        """Read all other members' items, and take those that may be removed out of the group."""
        now_ms = self._now_ms  # before the reads: a lease that ends meanwhile is not over
        self._read_others(plan)
        plan.end_dead(now_ms)

    def _read_others(self, plan: Plan) -> None:
        found = reads.members(self._context, self._group)
        plan.others = {member_id: one for member_id, one in found.items() if member_id != self._beat.member_id}

    def _ensure_positions(self, plan: Plan, *, is_new: bool) -> None:
        positions.ensure(self._context, self._live, plan.before, plan.group, plan.newcomers(is_new=is_new))

    def _reconcile(
        self, plan: Plan, member: MemberItem, owned: frozenset[Place] | None, *, is_join: bool
    ) -> Membership:
        """Decide what the member holds from now on, make the one write, and answer."""
        group, now_ms = plan.group, self._now_ms
        target = reconcile.targeted(group, member.member_id)
        gone = reads.gone_topics(self._context, group, member) if owned is not None else frozenset[str]()
        after = reconcile.released(member, owned, gone, now_ms)
        after = reconcile.asked(after, target.keys(), now_ms)
        free = self._free(plan, reconcile.missing(after, target.keys()))
        after = reconcile.reconciled(member, after, group, free, target, is_join=is_join)
        if self._beat.session_timeout_ms is not None:
            after = replace(after, session_timeout_ms=self._beat.session_timeout_ms)
        if after != member or after.is_renewal_due(now_ms) or after.is_away:
            after = after.renewed(now_ms)
        self._write(plan, member, after, is_taking=bool(free))
        return membership_of(after, group)

    def _owned(self, group: GroupItem, member: MemberItem, *, is_join: bool) -> frozenset[Place] | None:
        """Return what the client reports to work on. A join reports nothing: a late one would release too much."""
        # model: Groups, "a join releases nothing"
        if is_join or self._beat.owned is None or self._beat.member_epoch == 0:
            return None
        return reconcile.reported(member, group, self._beat.owned)

    def _free(self, plan: Plan, wanted: frozenset[Place]) -> frozenset[Place]:
        """Return what of it no other member's item holds."""
        if wanted and plan.others is None:
            self._read_others(plan)
        return plan.free(wanted) if wanted else wanted

    def _write(self, plan: Plan, before: MemberItem, after: MemberItem, *, is_taking: bool) -> None:
        runtime = self._context.runtime
        changes: list[Change] = []
        if plan.group != plan.before:
            changes += [plan.group.put(runtime), *removal.endings(self._group, plan.ended)]
            admitted = [replace(one, epoch=plan.group.epoch, waiting=None) for one in plan.admitted]
            changes += [one.renewed(self._now_ms).put(runtime) for one in admitted]
            if plan.before.version is None and keys.ANY_GROUP not in self._context.items.get([keys.ANY_GROUP]):
                changes.append(Put.replacing(keys.ANY_GROUP, {}, None, runtime.fresh_version))
        elif is_taking:  # model: Groups, "take on the group's version"
            changes.append(Check(plan.group.key, plan.group.version))
        if after != before or after.version is None:  # model: Groups, "a member on the version that was read"
            changes.append(after.put(runtime))
        if changes:
            self._context.items.write(changes)
