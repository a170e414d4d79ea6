"""Members of groups in a simulation: clients of the contract, outside the processes, with what they believe.

Rule: a client has one member. It works on what the last answer showed, stops what is no longer shown before it reports
so, drops all when an answer says that it was removed, and when its lease is over by its own clock.

Not here: what may not happen (``groups/truth.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fenceline.errors import (
    FencedMemberEpochError,
    FencelineError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from fenceline.groups.member_item import Place
from fenceline.model.requests import Heartbeat, MemberRef, OwnedPartitions, ReadRequest
from fenceline.model.subscription import CommittedOffset
from tests.simulation.groups.truth import Client, Commit, GroupTruth
from tests.simulation.harness.world import NoReply
from tests.simulation.log.clients import Field

GROUP = "billing"
TOPIC, OTHER = "t", "clicks"
TRIES_MAX = 12


@dataclass
class Stage(Field):
    """A field, and what the observer shares with the clients."""

    truth: GroupTruth = field(default_factory=lambda: None)  # type: ignore[assignment]
    timeouts_ms: tuple[int, ...] = (6_000,)
    rebalance_timeouts_ms: tuple[int, ...] = (60_000,)
    stop_ms: float = 2_000  # at most, to stop the work on a partition
    freeze_ms: float = 0  # at most, for which a client stands still now and then
    death: float = 0.0  # how often a client dies
    haste: float = 1.0  # by which a client's pauses are shorter
    is_static: bool = False
    has_other: bool = False
    reuses_ids: bool = False
    sent: list[tuple[str, Callable[[Any], Any]]] = field(default_factory=list)  # for the ghost
    is_over: bool = False

    def call(self, name: str, kind: str, request: Any, run: Callable[[Any], Any]) -> Any:
        self.sent.append((kind, run))
        return self.ask(name, kind, GROUP, 0, request, run)

    def member_id(self, name: str) -> str:
        return self.fresh(f"{name}.")


class Member:
    """One client, over all lives of its member."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self.client = Client(name)
        stage.truth.clients.append(self.client)
        self.epoch = 0
        self.is_settled = False
        self.names: dict[str, str] = {}
        self.shown: set[Place] = set()
        self._wait_ms = 500.0
        self._heard_ms = stage.world.now
        self._timeout_ms = stage.rng.choice(stage.timeouts_ms)
        self._rebalance_ms = stage.rng.choice(stage.rebalance_timeouts_ms)
        self._begin_anew()

    # The life of a member

    def live(self) -> None:
        """Do a number of rounds: a heartbeat, some commits and reads, and trouble of its own."""
        stage = self._stage
        for _ in range(stage.rounds):
            if stage.is_over:
                break
            self._trouble()
            self.beat()
            for _ in range(stage.rng.choice((0, 1, 2))):
                self._work()
            stage.world.sleep(stage.rng.random() * 2 * self._wait_ms / stage.haste)

    def _trouble(self) -> None:
        stage, rng = self._stage, self._stage.rng
        if stage.freeze_ms and rng.random() < 0.1:
            stage.world.sleep(rng.random() * stage.freeze_ms)
        if rng.random() < stage.death:
            if rng.random() < 0.5:
                self._leave()
            self._begin_anew()
        if stage.world.now - self._heard_ms > self._timeout_ms:
            self._begin_anew()

    def _leave(self) -> None:
        stage, member_id = self._stage, self.client.member_id
        self._stop(set(self.client.works_on))
        is_coming_back = stage.is_static and stage.rng.random() < 0.7
        if not is_coming_back:
            stage.truth.leaving.add(member_id)
        with suppress(FencelineError, NoReply):
            stage.call(
                self._name,
                "leave",
                f"{member_id} back={is_coming_back}",
                lambda log: log.groups.leave(GROUP, member_id, is_coming_back=is_coming_back),
            )

    def _begin_anew(self) -> None:
        """Drop all, and take a fresh member id."""
        self._drop()
        if not self.client.member_id or not self._stage.reuses_ids:
            self.client.member_id = self._stage.member_id(self._name)

    def _drop(self) -> None:
        self.client.works_on.clear()
        self.shown = set()
        self.epoch, self.is_settled, self._wait_ms = 0, False, 500.0
        self._heard_ms = self._stage.world.now

    def _stop(self, places: set[Place]) -> None:
        self.client.works_on -= places

    # Heartbeats

    def beat(self) -> None:
        """Send one heartbeat, and follow its answer; without an answer the next one is the same."""
        stage = self._stage
        stopping = self.client.works_on - self.shown
        if stopping and stage.rng.random() < 0.7:
            stage.world.sleep(stage.rng.random() * stage.stop_ms)
            self._stop(stopping)
        began = stage.world.step
        try:
            answer = self._send()
        except FencedMemberEpochError:
            self._drop()
        except UnknownMemberIdError:
            self._begin_anew()
        except UnreleasedInstanceIdError:
            stage.world.sleep(stage.rng.random() * 2_000)
        except (FencelineError, NoReply):
            pass
        else:
            self._follow(answer, began)

    def _send(self) -> Any:
        stage = self._stage
        joins = self.epoch == 0
        topics = (TOPIC, OTHER) if stage.has_other and stage.rng.random() < 0.9 else (TOPIC,)
        request = Heartbeat(
            self.client.member_id,
            self.epoch,
            topics=topics if joins else None,
            owned=None if joins or (self.is_settled and stage.rng.random() < 0.5) else self._owned(),
            instance_id=self._name if stage.is_static else None,
            session_timeout_ms=self._timeout_ms if joins else None,
            rebalance_timeout_ms=self._rebalance_ms if joins else None,
            is_latest=False,
        )
        said = None if request.owned is None else [(one.topic, list(one.partitions)) for one in request.owned]
        return stage.call(
            self._name,
            "heartbeat",
            f"{request.member_id} epoch={request.member_epoch} owned={said}",
            lambda log: log.groups.heartbeat(GROUP, request),
        )

    def _owned(self) -> Sequence[OwnedPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic_id, partition in sorted(self.client.works_on):
            by_topic.setdefault(topic_id, []).append(partition)
        return [OwnedPartitions(self.names[topic_id], numbers, topic_id) for topic_id, numbers in by_topic.items()]

    def _follow(self, answer: Any, began: int) -> None:
        self.client.heard_at = began
        self._heard_ms = self._stage.world.now
        self.epoch, self.is_settled = answer.member_epoch, answer.is_settled
        self._wait_ms = answer.heartbeat_interval_ms
        self.names |= {one.topic_id: one.topic for one in answer.partitions}
        self.shown = {(one.topic_id, part.partition) for one in answer.partitions for part in one.partitions}
        try:
            self._stage.truth.begins(self.client, self.shown - self.client.works_on)
        except Exception as violation:  # noqa: BLE001  the seed fails with it, not the client
            self._stage.world.failures.append(violation)

    # Work

    def _work(self) -> None:
        stage, rng = self._stage, self._stage.rng
        if not self.client.works_on or not self.epoch:
            return
        topic_id, partition = rng.choice(sorted(self.client.works_on))
        place = self.names[topic_id], partition
        member = MemberRef(self.client.member_id, self.epoch)
        with suppress(StaleMemberEpochError, FencelineError, NoReply):
            if rng.random() < 0.7:
                commit(stage, self._name, place, member)
            else:
                request = ReadRequest(member=member)
                stage.call(
                    self._name,
                    "read",
                    f"{place} {member}",
                    lambda log: log.subscriptions.read(*place, GROUP, request),
                )


def commit(stage: Stage, name: str, place: tuple[str, int], member: MemberRef | None) -> None:
    """Commit one offset, whose metadata names this sending."""
    made = Commit(
        stage.fresh("commit"),
        None if member is None else member.member_id,
        0 if member is None else member.member_epoch,
    )
    stage.truth.commits[made.id] = made
    offsets = [CommittedOffset(*place, 0, made.id)]
    stage.call(name, "commit", f"{place} {made}", lambda log: log.subscriptions.commit(GROUP, offsets, member=member))


# Others


def haunt(stage: Stage, name: str) -> None:
    """Send again, at any time, what any client has sent before: no client waits for the answer."""
    for _ in range(3 * stage.rounds):
        stage.world.sleep(stage.rng.random() * 2_000)
        if stage.sent and not stage.is_over:
            kind, run = stage.rng.choice(stage.sent[-60:])
            with suppress(FencelineError, NoReply):
                stage.ask(name, f"late {kind}", GROUP, 0, "", run)


def commit_without(stage: Stage, name: str) -> None:
    """Commit without a member, which is taken only while the group has none."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 4_000)
        with suppress(FencelineError, NoReply):
            commit(stage, name, (TOPIC, 0), None)


def change_topics(stage: Stage, name: str) -> None:
    """Let topics grow, go and come."""
    for step in range(stage.rounds // 2):
        stage.world.sleep(stage.rng.random() * 8_000)
        grown = partial(_grow, partitions=5 + step)
        with suppress(FencelineError, NoReply):
            if stage.has_other and stage.rng.random() < 0.6:
                stage.ask(name, "delete topic", OTHER, 0, "", lambda log: log.topics.delete(OTHER))
                stage.world.sleep(stage.rng.random() * 3_000)
                stage.ask(name, "create topic", OTHER, 0, "", lambda log: log.topics.create(OTHER, partitions=2))
            else:
                stage.ask(name, "alter topic", TOPIC, 0, 5 + step, grown)


def _grow(log: Any, partitions: int) -> object:
    return log.topics.alter(TOPIC, partitions=partitions)


def delete_group(stage: Stage, name: str) -> None:
    """Delete the group, which is refused while it has members."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 6_000)
        with suppress(FencelineError, NoReply):
            stage.ask(name, "delete group", GROUP, 0, "", lambda log: log.groups.delete(GROUP))


def look(stage: Stage, name: str) -> None:
    """Look at groups, which changes nothing."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 3_000)
        with suppress(FencelineError, NoReply):
            stage.ask(name, "list groups", GROUP, 0, "", lambda log: log.groups.list())
        with suppress(FencelineError, NoReply):
            stage.ask(name, "get group", GROUP, 0, "", lambda log: log.groups.get(GROUP))


def settle(stage: Stage, members: Sequence[Member], rounds: int) -> None:
    """Let all members go on in turn until each is settled (G6).

    Raises:
        AssertionError: They never are.
    """
    for _ in range(rounds):
        for one in members:
            one.beat()
        stage.world.sleep(500)
        if all(one.is_settled and one.client.works_on == one.shown for one in members):
            return
    raise AssertionError(f"G6: not settled: {[(one.client, one.epoch, one.is_settled) for one in members]}")
