"""The plan of a heartbeat: what one attempt changes of its group, decided purely (protocol, "Groups").

Rule: a plan ends and admits at most as many members as one write has room for. A later heartbeat goes on.

Not here: what the member holds (``groups.reconcile``), reads and writes (``groups.heartbeat``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fenceline import limits
from fenceline.errors import GroupMaxSizeReachedError, InvalidRequestError, UnreleasedInstanceIdError
from fenceline.groups import membership, reconcile
from fenceline.groups.group_item import GroupItem, Subscriber
from fenceline.groups.member_item import MemberItem, Place
from fenceline.model import principal as principals
from fenceline.model.requests import Heartbeat

_ENDED_MAX = 40  # members removed in one write
_ADMITTED_MAX = 50  # members that waited, admitted in one write: both kinds, the group and the member fit 100 items


class Plan:
    """What one attempt will write, as it is decided.

    Attributes:
        before, group: The group as it was read, and as it will be.
        members, topics, assignor: What the group will have.
        others: The items of all other members, once they were read.
        ended: By id, the items of the members that end, as they were judged; ``None`` for a member that has none.
        admitted: The members that waited, and wait no longer.
    """

    def __init__(self, group: GroupItem, beat: Heartbeat) -> None:
        self._beat = beat
        self._member_id = beat.member_id
        self.before = self.group = group
        self.members = dict(group.members)
        self.topics = dict(group.topics)
        self.assignor = group.assignor
        self.others: dict[str, MemberItem] | None = None
        self.ended: dict[str, MemberItem | None] = {}
        self.admitted: list[MemberItem] = []
        self._is_joined = False  # True if the heartbeat's own member is new to the group
        self._replaced: MemberItem | None = None  # then the item of its id that was in no group
        self._heirs: dict[str, str] = {}

    def subscribe(self, known: Subscriber | None) -> Subscriber:
        """Set what the heartbeat says of its member, and return it. Topics and prefixes are replaced together.

        Args:
            known: The member as the group has it; ``None``: it is new.
        """
        beat = self._beat
        if known is None:
            timeout_ms = limits.REBALANCE_TIMEOUT_MS_DEFAULT
            known = Subscriber(beat.instance_id, beat.client_name, beat.client_host, (), (), beat.rack, timeout_ms)
        elif beat.instance_id not in (None, known.instance_id):
            raise InvalidRequestError(
                "a member keeps its instance id; leave instance_id out, or join with another member id: "
                f"member_id={beat.member_id}",
                field="instance_id",
            )
        if beat.topics is not None or beat.topic_prefixes is not None:
            known = known._replace(topics=_sorted(beat.topics), prefixes=_sorted(beat.topic_prefixes))
        if beat.rebalance_timeout_ms is not None:
            known = known._replace(rebalance_timeout_ms=beat.rebalance_timeout_ms)
        self.members[beat.member_id] = known
        return known

    def end_dead(self, now_ms: int) -> None:
        """End the members that may be removed; not the one from which a static member takes over (``take_over``)."""
        instance_id = self._beat.instance_id if self._beat.member_epoch == 0 else None
        found = self.others or {}
        for member_id, one in [*self.members.items()]:
            if member_id == self._member_id or (instance_id is not None and one.instance_id == instance_id):
                continue
            if len(self.ended) == _ENDED_MAX:
                break
            item = found.get(member_id)
            if item is None or reconcile.is_dead(item, self.before, now_ms):
                self._end(member_id, item)
        # An item of a member of no group is left only where items were lost. It must not hold anything for good.
        left = [one for one in found.values() if one.member_id not in self.before.members and one.holds]
        lapsed = [one for one in left if one.is_lapsed(now_ms)]
        self.ended.update((one.member_id, one) for one in lapsed[: _ENDED_MAX - len(self.ended)])

    def take_over(self, principal: str, now_ms: int) -> None:
        """Let a static member that starts again take the place of the one that has its instance id.

        Raises:
            NotAuthorizedError: That one is another principal's.
            UnreleasedInstanceIdError: That one is live.
        """
        instance_id = self._beat.instance_id
        for member_id, one in [*self.members.items()]:
            if instance_id is None or one.instance_id != instance_id or member_id == self._member_id:
                continue
            found = (self.others or {}).get(member_id)
            if found is not None:
                principals.judge(found.principal, principal, "the static member")
                if not (found.is_away or reconcile.is_dead(found, self.before, now_ms)):
                    raise UnreleasedInstanceIdError(
                        "a live member has the instance id; stop it, or wait until its lease is over: "
                        f"instance_id={instance_id}",
                        instance_id=instance_id,
                    )
            self._end(member_id, found)
            self._heirs[member_id] = self._member_id

    def _end(self, member_id: str, item: MemberItem | None) -> None:
        self.ended[member_id] = item
        del self.members[member_id]

    def waiting(self, now_ms: int) -> Sequence[MemberItem]:
        """Return the members that wait to be admitted."""
        others = (self.others or {}).values()
        return [one for one in others if one.waiting is not None and not one.is_lapsed(now_ms)]

    def join(self, replaced: MemberItem | None, waiting: Iterable[MemberItem]) -> None:
        """Add the heartbeat's own member, and those that wait, as far as the group has room.

        A static member that waits joins by itself.

        Args:
            replaced: The item of the member's id, which is in no group.
        """
        self._is_joined, self._replaced = True, replaced
        used = {one.instance_id for one in self.members.values()}
        room = min(_ADMITTED_MAX, limits.GROUP_MEMBERS_MAX - len(self.members))
        for one in waiting:
            if len(self.admitted) >= room:
                break
            said = one.waiting or {}
            subscriber = Subscriber.of(said["subscriber"])
            is_fitting = said["assignor"] in (None, self.assignor) and one.member_id not in self.members
            if is_fitting and (subscriber.instance_id is None or subscriber.instance_id not in used):
                used.add(subscriber.instance_id)
                self.members[one.member_id] = subscriber
                self.admitted.append(one)

    def admit_none(self) -> None:
        """Let those that were admitted wait on."""
        for one in self.admitted:
            del self.members[one.member_id]
        self.admitted = []

    def newcomers(self, *, is_new: bool) -> Sequence[tuple[Subscriber, bool]]:
        """Return the members that subscribe to something new, and whether each begins at the last stable offset."""
        own = [(self.members[self._member_id], self._beat.is_latest)] if is_new else []
        return own + [(self.members[one.member_id], bool((one.waiting or {})["is_latest"])) for one in self.admitted]

    def change(self, now_ms: int, chance: Callable[[], float], *, is_new: bool) -> None:
        """Decide the group, of a size that a group may have.

        Args:
            chance: Returns a random number in [0, 1).
            is_new: Whether the request subscribes to something new. Then it is refused if the group would be too
                large. Where only topics grew, they stay as they were, and nothing fails.

        Raises:
            GroupMaxSizeReachedError: The group has no room for what is new.
        """
        self.group = self._changed(now_ms, chance)
        if not is_new and self.topics == self.before.topics:
            return  # it does not grow
        try:
            membership.judge_size(self.group)
        except GroupMaxSizeReachedError:
            if is_new:
                raise
            self.topics = dict(self.before.topics)
            self.group = self._changed(now_ms, chance)

    def _changed(self, now_ms: int, chance: Callable[[], float]) -> GroupItem:
        """Return the group at its next epoch if anything in it changed, or with a new target if one is due."""
        group = self.before
        is_other = self.members != group.members or self.topics != group.topics
        if is_other or self.ended or self._is_joined:
            return membership.changed(
                group,
                now_ms,
                members=self.members,
                topics=self.topics,
                assignor=self.assignor,
                ended=[one for one in (*self.ended.values(), *self.admitted, self._replaced) if one is not None],
                heirs=self._heirs,
            )
        if membership.is_target_due(group, now_ms, chance()):
            return membership.retargeted(group, now_ms)
        return group

    def free(self, wanted: frozenset[Place]) -> frozenset[Place]:
        """Return what no other member's item holds; a member that ends holds nothing."""
        # model: Groups, "take what no other item holds"
        # model: Groups, "read the members after the group"
        others = (self.others or {}).values()
        free = wanted - {place for one in others if one.member_id not in self.ended for place in one.holds}
        if self.group == self.before:
            return free
        # A take leaves the group's version as it is. So by the target before, another member may have taken what this
        # request gives to its own by a new one. That waits for the next heartbeat.
        rivals = self.before.members.keys() - {self._member_id, *self.ended}
        return frozenset(place for place in free if _member_at(self.before, place) not in rivals)


def joining(group: str, beat: Heartbeat, subscriber: Subscriber, principal: str, now_ms: int) -> MemberItem:
    """Return the item of a new member, which holds nothing, and waits to be admitted."""
    timeout_ms = beat.session_timeout_ms or limits.SESSION_TIMEOUT_MS_DEFAULT
    return MemberItem(
        group=group,
        member_id=beat.member_id,
        principal=principal,
        epoch=0,
        previous=0,
        expires_at=now_ms + timeout_ms,
        session_timeout_ms=timeout_ms,
        waiting={"subscriber": [*subscriber], "assignor": beat.assignor, "is_latest": beat.is_latest},
    )


def _member_at(group: GroupItem, place: Place) -> str | None:
    """Return the member at which the target wants a partition; ``None`` if the target does not name it."""
    topic_id, partition = place
    row = group.target.get(topic_id, ())
    return row[partition] if partition < len(row) else None


def _sorted(names: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(sorted(set(names or ())))
