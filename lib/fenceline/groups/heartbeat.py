"""Heartbeat: one request by which a member joins, keeps its lease, reports what it stopped, and learns what it has.

Protocol, "Groups".

Rule: each request reads, decides purely, and makes one conditional write, or none. What it changes of the group, of the
members that it removes, and of the member itself is in that write. A request that loses it reads again.

Rule: a join that loses the write waits: it makes the member's own item, for which no other request contends. The next
join that changes the group admits all that wait, so that many joins at once are a few writes of the group's item.

Not here: the decisions (``groups.membership``, ``groups.reconcile``), leaving (``groups.leaving``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline import limits
from fenceline.errors import (
    FixError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnreleasedInstanceIdError,
)
from fenceline.format import keys
from fenceline.groups import deletion, membership, positions, reads, reconcile
from fenceline.groups.group_item import GroupItem, GroupTopic, Subscriber
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

_ENDED_MAX = 40  # members removed in one write
_ADMITTED_MAX = 50  # members that waited, admitted in one write: both kinds, the group and the member fit 100 items
_WAIT_MS = 150  # at most, before a member that waits changes the group itself


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


@dataclass(slots=True)
class _Plan:
    """What one attempt will write, as it is decided."""

    before: GroupItem  # as it was read
    group: GroupItem  # as it will be
    members: dict[str, Subscriber]
    topics: dict[str, GroupTopic]
    assignor: str
    others: dict[str, MemberItem] | None = None  # the items of all other members, once they were read
    missing: list[str] = field(default_factory=list)  # members of the group that have no item
    ended: list[MemberItem] = field(default_factory=list)
    admitted: list[MemberItem] = field(default_factory=list)
    heirs: dict[str, str] = field(default_factory=dict)
    is_joined: bool = False  # whether the request's member is new to the group

    @property
    def has_room(self) -> bool:
        """Return True if the write has room to end one more member."""
        return len(self.ended) + len(self.missing) < _ENDED_MAX


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

    def attempt(self) -> Membership:
        """Read, decide, and write."""
        self._attempts += 1
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
            return self._join(group, member)
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
        subscriber = self._subscribed(group.members[member.member_id])
        owned = self._owned(group, member, is_join=is_join)
        plan = _Plan(group, group, dict(group.members), dict(group.topics), group.assignor)
        plan.members[member.member_id] = subscriber
        is_looked = is_join or member.is_renewal_due(self._now_ms) or plan.members != group.members
        if is_looked:
            plan.topics = reads.topics(self._context, plan.members.values())
        if is_join or self._is_next_dead(group) or self._lacks(group, member):
            self._read_others(plan)
        is_new = subscriber != group.members[member.member_id]
        self._change(plan, is_new=is_new)
        self._ensure_positions(plan, subscriber if is_new else None)
        return self._reconcile(plan, member, owned, is_join=is_join)

    def _subscribed(self, known: Subscriber) -> Subscriber:
        """Return the member with what this heartbeat says of it. Topics and prefixes are replaced together."""
        beat = self._beat
        if beat.instance_id not in (None, known.instance_id):
            raise InvalidRequestError(
                "a member keeps its instance id; leave instance_id out, or join with another member id: "
                f"member_id={beat.member_id}",
                field="instance_id",
            )
        if beat.topics is not None or beat.topic_prefixes is not None:
            known = known._replace(topics=_sorted(beat.topics), prefixes=_sorted(beat.topic_prefixes))
        if beat.rebalance_timeout_ms is not None:
            known = known._replace(rebalance_timeout_ms=beat.rebalance_timeout_ms)
        return known

    def _is_next_dead(self, group: GroupItem) -> bool:
        """Return True if the member after this one, in the ring of member ids, may be removed."""
        ring = sorted(group.members)
        at = ring.index(self._beat.member_id)
        following = ring[(at + 1) % len(ring)]
        if following == self._beat.member_id:
            return False
        found = reads.only_member(self._context, self._group, following)
        return found is None or reconcile.is_dead(found, group, self._now_ms)

    def _lacks(self, group: GroupItem, member: MemberItem) -> bool:
        return bool(reconcile.targeted(group, member.member_id).keys() - member.holds.keys())

    # A new member

    def _join(self, group: GroupItem | None, member: MemberItem | None) -> Membership:
        beat = self._beat
        if not (beat.topics or beat.topic_prefixes):
            raise InvalidRequestError("a join names topics or topic_prefixes, or both", field="topics")
        base = membership.empty(self._group) if group is None else group
        assignor = membership.judge_assignor(base, beat.assignor)
        plan = _Plan(base, base, dict(base.members), {}, assignor)
        self._read_others(plan)
        assert plan.others is not None
        self._take_over(plan)
        subscriber = Subscriber(
            instance_id=beat.instance_id,
            client_name=beat.client_name,
            client_host=beat.client_host,
            topics=_sorted(beat.topics),
            prefixes=_sorted(beat.topic_prefixes),
            rack=beat.rack,
            rebalance_timeout_ms=beat.rebalance_timeout_ms or limits.REBALANCE_TIMEOUT_MS_DEFAULT,
        )
        plan.members[beat.member_id] = subscriber
        made = self._made(member, subscriber)
        waiting = [one for one in plan.others.values() if one.waiting is not None and not one.is_lapsed(self._now_ms)]
        is_waiting = member is not None and member.waiting is not None
        if not is_waiting and (waiting or self._attempts > 1):
            self._wait(made)
        plan.is_joined = True
        self._admit(plan, waiting)
        self._change_by_join(plan, member)
        self._ensure_positions(plan, subscriber)
        return self._reconcile(plan, replace(made, epoch=0, waiting=None), None, is_join=True)

    def _change_by_join(self, plan: _Plan, replaced: MemberItem | None) -> None:
        """Change the group by a join, with those that it admits, or without them if the group would be too large."""
        plan.topics = reads.topics(self._context, plan.members.values())
        try:
            self._change(plan, is_new=True, replaced=replaced)
        except GroupMaxSizeReachedError:
            if not plan.admitted:
                raise
            for one in plan.admitted:
                del plan.members[one.member_id]
            plan.admitted = []
            self._change_by_join(plan, replaced)

    def _made(self, member: MemberItem | None, subscriber: Subscriber) -> MemberItem:
        """Return the item of a new member, which holds nothing, over one of its id that is in no group."""
        timeout_ms = self._beat.session_timeout_ms or limits.SESSION_TIMEOUT_MS_DEFAULT
        return MemberItem(
            group=self._group,
            member_id=self._beat.member_id,
            principal=self._principal,
            epoch=0 if member is None else member.epoch,
            previous=0,
            expires_at=self._now_ms + timeout_ms,
            session_timeout_ms=timeout_ms,
            waiting={
                "subscriber": [*subscriber],
                "assignor": self._beat.assignor,
                "is_latest": self._beat.is_latest,
            },
            version=None if member is None else member.version,
        )

    def _wait(self, made: MemberItem) -> None:
        """Make the member's own item, and let another join admit it.

        Raises:
            VersionMoved: Always, so that the next attempt looks whether that has happened.
        """
        runtime = self._context.runtime
        self._context.items.write([made.put(runtime)])
        self._has_waited = True
        runtime.sleep_ms(runtime.random() * _WAIT_MS)
        raise VersionMoved(made.key)

    def _admit(self, plan: _Plan, waiting: Sequence[MemberItem]) -> None:
        """Add members that wait to the plan, as far as the group has room. One of a static member joins by itself."""
        used = {one.instance_id for one in plan.members.values()}
        room = min(_ADMITTED_MAX, limits.GROUP_MEMBERS_MAX - len(plan.members))
        for one in waiting:
            if len(plan.admitted) >= room:
                break
            said: Mapping[str, Any] = one.waiting or {}
            subscriber = Subscriber(*said["subscriber"])
            subscriber = subscriber._replace(topics=tuple(subscriber.topics), prefixes=tuple(subscriber.prefixes))
            is_fitting = said["assignor"] in (None, plan.assignor) and one.member_id not in plan.members
            if is_fitting and (subscriber.instance_id is None or subscriber.instance_id not in used):
                used.add(subscriber.instance_id)
                plan.members[one.member_id] = subscriber
                plan.admitted.append(one)

    def _take_over(self, plan: _Plan) -> None:
        """Let a static member that starts again take the place of the one that has its instance id.

        Raises:
            UnreleasedInstanceIdError: That one is live.
        """
        beat = self._beat
        if beat.instance_id is None:
            return
        for member_id, one in [*plan.members.items()]:
            if one.instance_id != beat.instance_id or member_id == beat.member_id:
                continue
            found = (plan.others or {}).get(member_id)
            if found is not None:
                principals.judge(found.principal, self._principal, "the static member")
                if not (found.is_away or reconcile.is_dead(found, plan.before, self._now_ms)):
                    raise UnreleasedInstanceIdError(
                        "a live member has the instance id; stop it, or wait until its lease is over: "
                        f"instance_id={beat.instance_id}",
                        instance_id=beat.instance_id,
                    )
                plan.ended.append(found)
            else:
                plan.missing.append(member_id)
            del plan.members[member_id]
            plan.heirs[member_id] = beat.member_id

    # Steps of both

    def _read_others(self, plan: _Plan) -> None:
        """Read all other members' items, and take those that may be removed out of the group."""
        now_ms = self._now_ms
        self._read_others_items(plan)
        found = plan.others
        assert found is not None
        static = self._beat.instance_id if self._beat.member_epoch == 0 else None
        for member_id, one in [*plan.members.items()]:
            if member_id == self._beat.member_id or (static is not None and one.instance_id == static):
                continue
            if not plan.has_room:
                break
            if member_id not in found:
                plan.missing.append(member_id)
                del plan.members[member_id]
            elif reconcile.is_dead(found[member_id], plan.before, now_ms):
                plan.ended.append(found[member_id])
                del plan.members[member_id]
        # An item of a member of no group is left only where items were lost. It must not hold anything for good.
        left = [one for one in found.values() if one.member_id not in plan.before.members and one.holds]
        room = _ENDED_MAX - len(plan.ended) - len(plan.missing)
        plan.ended += [one for one in left if one.is_lapsed(now_ms)][:room]

    def _change(self, plan: _Plan, *, is_new: bool, replaced: MemberItem | None = None) -> None:
        """Decide the plan's group, of a size that a group may have.

        Args:
            is_new: Whether this request subscribes to something new. Then it is refused if the group would be too
                large. Where only topics grew, they stay as they were, and nothing fails.
            replaced: The item of the member's id that was in no group, and that this request writes over.

        Raises:
            GroupMaxSizeReachedError: The group has no room for what is new.
        """
        plan.group = self._changed(plan, replaced)
        if not is_new and plan.topics == plan.before.topics:
            return  # it does not grow
        try:
            membership.judge_size(plan.group)
        except GroupMaxSizeReachedError:
            if is_new:
                raise
            plan.topics = dict(plan.before.topics)
            plan.group = self._changed(plan, replaced)

    def _changed(self, plan: _Plan, replaced: MemberItem | None) -> GroupItem:
        """Return the plan's group at its next epoch if anything in it changed, or with a new target if one is due."""
        group, now_ms = plan.before, self._now_ms
        is_other = plan.members != group.members or plan.topics != group.topics
        if is_other or plan.ended or plan.missing or plan.is_joined:
            return membership.changed(
                group,
                now_ms,
                members=plan.members,
                topics=plan.topics,
                assignor=plan.assignor,
                ended=[*plan.ended, *plan.admitted, *([] if replaced is None else [replaced])],
                heirs=plan.heirs,
            )
        if membership.is_target_due(group, now_ms, self._context.runtime.random()):
            return membership.retargeted(group, now_ms)
        return group

    def _ensure_positions(self, plan: _Plan, subscriber: Subscriber | None) -> None:
        """Make the subscriptions that are missing; ``subscriber`` is ``None`` if it subscribes to nothing new."""
        new = [] if subscriber is None else [(subscriber, self._beat.is_latest)]
        for one in plan.admitted:
            new.append((plan.members[one.member_id], bool((one.waiting or {})["is_latest"])))
        positions.ensure(self._context, self._live, plan.before, plan.group, new)

    def _reconcile(
        self, plan: _Plan, member: MemberItem, owned: frozenset[Place] | None, *, is_join: bool
    ) -> Membership:
        """Decide what the member holds from now on, make the one write, and answer."""
        group, now_ms = plan.group, self._now_ms
        target = reconcile.targeted(group, member.member_id)
        gone = self._gone(group, member) if owned is not None else frozenset[str]()
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

    def _gone(self, group: GroupItem, member: MemberItem) -> frozenset[str]:
        """Return the topics that no longer exist, of what the member is asked for."""
        known = {topic.topic_id for topic in group.topics.values()}
        unknown = {topic_id: member.names[topic_id] for topic_id, _ in member.asked if topic_id not in known}
        found = self._context.read_items([keys.topic_item(name) for name in dict.fromkeys(unknown.values())])
        alive = {item.value["topic_id"] for item in found.values() if not item.value["is_going"]}
        return frozenset(unknown.keys() - alive)

    def _free(self, plan: _Plan, wanted: frozenset[Place]) -> frozenset[Place]:
        """Return what no other member's item holds; a member that this request removes holds nothing."""
        if not wanted:
            return wanted
        if plan.others is None:
            self._read_others_items(plan)
        assert plan.others is not None
        # model: Groups, "take what no other item holds"
        # model: Groups, "read the members after the group"
        ended = {one.member_id for one in plan.ended}
        held: set[Place] = set()
        for one in plan.others.values():
            if one.member_id not in ended:
                held.update(one.holds)
        free = wanted - held
        if plan.group == plan.before:
            return free
        # A take leaves the group's version as it is. So by the target before, another member may have taken what this
        # request gives to its own by a new one. That waits for the next heartbeat.
        rivals = plan.before.members.keys() - {self._beat.member_id, *ended, *plan.missing}
        return frozenset(place for place in free if _member_at(plan.before, place) not in rivals)

    def _read_others_items(self, plan: _Plan) -> None:
        plan.others = reads.members(self._context, self._group)
        plan.others.pop(self._beat.member_id, None)

    def _write(self, plan: _Plan, before: MemberItem, after: MemberItem, *, is_taking: bool) -> None:
        runtime = self._context.runtime
        changes: list[Change] = []
        if plan.group != plan.before:
            changes.append(plan.group.put(runtime))
            # model: Groups, "a removal on the member's version"
            # model: Groups, "a removal deletes the item"
            changes += [Delete(one.key, one.version or 0) for one in plan.ended]
            changes += [Check(keys.member_item(self._group, member_id), None) for member_id in plan.missing]
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


def _member_at(group: GroupItem, place: Place) -> str | None:
    """Return the member at which the target wants a partition; ``None`` if the target does not name it."""
    topic_id, partition = place
    row = group.target.get(topic_id, ())
    return row[partition] if partition < len(row) else None


def _sorted(names: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(sorted(set(names or ())))
