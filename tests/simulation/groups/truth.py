"""The truth of groups in a simulation: every write of their items, judged in its turn, and every client's belief.

Rule: the observer sees what no process sees: the items after each write, and what each client believes to work on.
A commit's metadata names its sending, so that the observer knows which member and epoch it was made for.

Not here: the clients (``groups/clients.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.format import keys
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import MemberItem, Place
from fenceline.ports import Change, Check, Delete, Item, Put
from tests.simulation.harness.world import EPOCH_MS, World
from tests.simulation.log.truth import Violation


@dataclass(frozen=True)
class Commit:
    """A commit, as it was sent: its id is its metadata."""

    id: str
    member_id: str | None
    epoch: int


@dataclass(eq=False)
class Client:
    """A client as the observer sees it: its member, what it believes to work on, and since when."""

    name: str
    member_id: str = ""
    works_on: set[Place] = field(default_factory=set)
    heard_at: int = 0  # the step at which its last answered request began


class GroupTruth:
    """The items of all groups, and what was promised of them."""

    def __init__(self, world: World, skew_ms: float) -> None:
        self._world = world
        self._skew_ms = skew_ms
        self.groups: dict[str, GroupItem] = {}
        self.members: dict[tuple[str, str], MemberItem] = {}
        self.commits: dict[str, Commit] = {}
        self.clients: list[Client] = []
        self.leaving: set[str] = set()  # members whose leaving, or taking over, was ever asked for
        self.removed_at: dict[str, int] = {}  # step of the last deletion of a member's item
        self.removals = 0
        self._epochs: dict[tuple[str, str], int] = {}  # the highest epoch of each member id in any life
        self._tokens: dict[
            tuple[str, Place], tuple[int, str]
        ] = {}  # (token, member id) of each partition's last holder

    def on_write(self, changes: Sequence[Change]) -> None:
        """Judge a write that was made."""
        try:
            self._follow(changes)
        except Violation as violation:
            self._world.failures.append(violation)

    def _follow(self, changes: Sequence[Change]) -> None:
        touched: set[str] = set()
        for change in changes:
            kind, _, name = change.key.partition.partition("/")
            if kind == "groups" and change.key.sort != "any" and not isinstance(change, Check):
                self._group(change)
                touched.add(change.key.sort)
            elif kind == "group" and not isinstance(change, Check):
                self._member(change)
                touched.add(name)
        for name in touched:
            self._judge(name)
        for change in changes:
            if isinstance(change, Put) and change.key.partition.startswith("cursors/"):
                self._commit(change)

    def _group(self, change: Put | Delete) -> None:
        name = change.key.sort
        before = self.groups.get(name)
        if isinstance(change, Delete):
            self.groups.pop(name, None)
            return
        after = GroupItem.from_item(Item(change.key, change.version, change.value))
        if before is not None and after.epoch < before.epoch:
            raise Violation(f"the group's epoch went back: {before} {after}")
        self.groups[name] = after

    def _member(self, change: Put | Delete) -> None:
        key = keys.parse_member_item(change.key)
        before = self.members.get(key)
        if isinstance(change, Delete):
            if before is not None:
                self._removed(key, before)
            self.members.pop(key, None)
            return
        after = MemberItem.from_item(Item(change.key, change.version, change.value))
        highest = self._epochs.get(key, 0)
        if after.waiting is None and (after.epoch < highest or (before is None and after.epoch <= highest)):
            raise Violation(f"G2: the member came to an epoch of a life before: highest={highest} {after}")
        self._epochs[key] = max(highest, after.epoch)
        was = {} if before is None else before.holds
        for place in after.holds.keys() - was.keys():
            token, holder = self._tokens.get((key[0], place), (0, ""))
            new = after.holds[place].token
            if new < token or (new == token and holder != key[1]):
                raise Violation(f"the token of {place} did not grow: {token} of {holder}, {new} of {key[1]}")
            self._tokens[key[0], place] = new, key[1]
        self.members[key] = after

    def _removed(self, key: tuple[str, str], item: MemberItem) -> None:
        """Judge the end of a member (G5): it asked for it, or some process could find its lease over."""
        self.removed_at[key[1]] = self._world.step
        self.removals += 1
        now_ms = EPOCH_MS + self._world.now + self._skew_ms
        group = self.groups.get(key[0])
        one = None if group is None else self._before(key[0], key[1])
        is_late = item.expires_at < now_ms
        is_overdue = bool(item.asked) and (one is None or item.asked_at + one < now_ms)
        if not (is_late or is_overdue or item.is_away or item.waiting is not None or key[1] in self.leaving):
            raise Violation(f"G5: a member that renewed its lease was removed: {item}")

    def _before(self, group: str, member_id: str) -> int | None:
        return None  # the time-out of a member that is gone by now is not known: then any asked one may go

    def _judge(self, name: str) -> None:
        group = self.groups.get(name)
        held: dict[Place, str] = {}
        for (of, member_id), item in self.members.items():
            if of != name:
                continue
            if item.holds and (group is None or member_id not in group.members or item.waiting is not None):
                raise Violation(f"G4: an item of a member of no group holds something: {item}")
            for place in item.holds:
                other = held.setdefault(place, member_id)
                if other != member_id:
                    raise Violation(f"G1: two members hold {place}: {other} and {member_id}")

    # Commits

    def _commit(self, change: Put) -> None:
        value: Any = change.value
        commit = self.commits.get(str(value.get("metadata", "")))
        if commit is None:
            return
        name = change.key.partition.removeprefix("cursors/")
        topic_id, _, partition = keys.parse_cursor_item(change.key)
        if commit.member_id is None:
            if (group := self.groups.get(name)) is not None and group.members:
                raise Violation(f"G2: a commit without a member while the group has members: {commit} {group.members}")
            return
        item = self.members.get((name, commit.member_id))
        held = None if item is None else item.holds.get((topic_id, partition))
        if item is None or held is None or not held.since <= commit.epoch <= item.epoch:
            raise Violation(f"G2: {commit} took effect on {(topic_id, partition)}, held: {held} by {item}")

    # Beliefs

    def begins(self, client: Client, places: set[Place]) -> None:
        """Judge what a client begins to work on (G3).

        Raises:
            Violation: Another client works on it, too, and neither was removed without having heard of it.
        """
        client.works_on |= places
        for other in self.clients:
            both = other.works_on & places
            if other is not client and both and not (self._is_unheard(other) or self._is_unheard(client)):
                raise Violation(f"G3: {client.name} and {other.name} both work on {sorted(both)}")

    def _is_unheard(self, client: Client) -> bool:
        return self.removed_at.get(client.member_id, -1) >= client.heard_at
