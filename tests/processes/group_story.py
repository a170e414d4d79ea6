"""What the members of a group reported, put together, and what a group promises of it.

A *tenure* is a member's time with a partition: from the callback that gave it the partition, under a fencing token, to
its end. It ends when the member gives the partition up, hears of its loss, is killed or is frozen.

Rule: nothing is judged by an order of arrival. Tenures are ordered by their tokens, and commits by the machine's
monotonic clock, which all processes share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fenceline import limits
from tests.processes.group_member import SESSION_TIMEOUT_MS

LEASE_S = (SESSION_TIMEOUT_MS + limits.MEMBER_GRACE_MS) / 1_000  # after which a silent member is removed
HEARTBEAT_S = SESSION_TIMEOUT_MS / 3 / 1_000
TARGET_S = limits.ASSIGNMENT_MS / 1_000
REFUSALS = {"STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"}

Event = Mapping[str, Any]
Look = tuple[float, Mapping[int, int]]


@dataclass
class Sent:
    """A commit, and its answer: ``committed``, ``refused`` or, also without one, ``unknown``."""

    offset: int
    at: float
    answer: str = "unknown"
    answered_at: float = 0.0


@dataclass
class Tenure:
    worker: str
    partition: int
    token: int
    begun_at: float
    ended_at: float | None = None  # None: it is the partition's holder
    done: list[int] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def __str__(self) -> str:
        return f"partition={self.partition} token={self.token} worker={self.worker}"


class Story:
    """All that was reported, and who was killed or frozen when."""

    def __init__(self) -> None:
        self.tenures: list[Tenure] = []
        self.late = Counter[str]()  # codes by which commits of removed members were refused
        self.beats: dict[str, list[tuple[float, float]]] = defaultdict(list)  # by worker: sent and answered
        self.silent_at: dict[str, list[float]] = defaultdict(list)  # when a worker was killed or frozen
        self._at: dict[tuple[str, int], Tenure] = {}  # what a worker believes to have
        self._sent: dict[str, Sent] = {}

    def hear(self, worker: str, event: Event) -> None:
        match event:
            case {"event": "assigned", "tokens": tokens, "at": at}:
                for partition, token in tokens.items():
                    tenure = Tenure(worker, int(partition), token, at)
                    self.tenures.append(tenure)
                    self._at[worker, int(partition)] = tenure
            case {"event": "gave up" | "lost", "partitions": partitions, "at": at}:
                for partition in partitions:
                    # Without one the partition was lost before its token was known.
                    if (ended := self._at.pop((worker, partition), None)) is not None and ended.ended_at is None:
                        ended.ended_at = at
            case {"event": "did", "partition": partition, "offsets": offsets}:
                self._at[worker, partition].done += offsets
            case {"event": "sends", "partition": partition, "offset": offset, "at": at}:
                self._sent[worker] = Sent(offset, at)
                self._at[worker, partition].sent.append(self._sent[worker])
            case {"event": "committed" | "refused" | "unknown" as answer, "at": at}:
                self._sent[worker].answer, self._sent[worker].answered_at = answer, at
                if event.get("is_late"):
                    self.late[event["code"]] += 1
            case {"event": "beat", "sent": sent, "at": at}:
                self.beats[worker].append((sent, at))

    def silence(self, worker: str, at: float) -> None:
        """End what a worker has, because it was killed or frozen."""
        self.silent_at[worker].append(at)
        for tenure in self.tenures:
            if tenure.worker == worker and tenure.ended_at is None:
                tenure.ended_at = at

    def holders(self) -> dict[int, str]:
        """Return who has each partition, as far as it was reported."""
        return {tenure.partition: tenure.worker for tenure in self.tenures if tenure.ended_at is None}

    def by_partition(self) -> dict[int, list[Tenure]]:
        """Return the tenures of each partition in their order."""
        found: dict[int, list[Tenure]] = defaultdict(list)
        for tenure in sorted(self.tenures, key=lambda one: (one.token, one.begun_at)):
            found[tenure.partition].append(tenure)
        return found


def compare(story: Story, ends: Mapping[int, int], looks: Sequence[Look]) -> None:
    """Compare a story with what a group promises.

    Args:
        ends: The next offset of each partition.
        looks: What the group had committed, by partition, each with the time before the request; the last one is from
            after the end.
    """
    for partition, tenures in story.by_partition().items():
        _one_holder_by_token(tenures)
        _handled(partition, tenures, ends[partition])
        _fenced(tenures)
        _committed_once_in_order(tenures)
        _held(story, tenures)
    assert story.by_partition().keys() == ends.keys(), "a partition was never held"
    _looks(story, looks)
    assert looks[-1][1] == dict(ends), "not all is committed"


def _one_holder_by_token(tenures: Sequence[Tenure]) -> None:
    for before, after in pairwise(tenures):
        assert before.token < after.token or before.worker == after.worker, f"two members under one token: {after}"


def _handled(partition: int, tenures: Sequence[Tenure], end: int) -> None:
    """Each record at least once, and in the order of the log by the member that has the partition."""
    handled = {offset for tenure in tenures for offset in tenure.done}
    assert handled == {*range(end)}, f"partition={partition} not handled: {sorted({*range(end)} - handled)[:10]}"
    for tenure in tenures:
        offsets = tenure.done
        assert not offsets or offsets == [*range(offsets[0], offsets[-1] + 1)], f"handled out of order: {tenure}"


def _committed_once_in_order(tenures: Sequence[Tenure]) -> None:
    """Each tenure begins where the group had committed, and each of its commits goes on from the one before.

    So each offset is committed by one commit. A commit without an answer may have been made or not.
    """
    committed, unknown = 0, set[int]()
    for tenure in tenures:
        if tenure.done:
            began = tenure.done[0]
            is_possible = began == committed or (began > committed and began in unknown)
            assert is_possible, f"began at {began}, but {committed} was committed: {tenure}"
            committed = began
        for sent in tenure.sent:
            if sent.answer == "committed":
                assert sent.offset > committed, f"committed {sent.offset} after {committed}: {tenure}"
                committed = sent.offset
            elif sent.answer == "unknown":
                unknown.add(sent.offset)


def _fenced(tenures: Sequence[Tenure]) -> None:
    for number, tenure in enumerate(tenures):
        later = [one.begun_at for one in tenures[number + 1 :] if one.token > tenure.token]
        landed = [one for one in tenure.sent if one.answer == "committed" and later and one.at > min(later)]
        assert not landed, f"a removed member's commit took effect: offset={landed[0].offset} {tenure}"


def _held(story: Story, tenures: Sequence[Tenure]) -> None:
    """The next member has the partition once the lease is over and two heartbeats are answered.

    What a heartbeat takes is counted by the members' own heartbeats in that time, because a machine under load sends
    and answers them late: from one that was sent to the answer of the next. Another second is for a target, because a
    group has a new one at most once a second, and two members may be removed at once. So the bound is 12 s on an idle
    machine, and far more on one that lets members wait for answers beyond their leases.
    """
    assert tenures[-1].ended_at is None, f"no member has it: {tenures[-1]}"
    for before, after in pairwise(tenures):
        if before.ended_at is not None:
            gap, most = after.begun_at - before.ended_at, bound(story, before.ended_at, after.begun_at)
            assert gap <= most, f"no member had it for {gap:.1f} s, which is more than {most:.1f} s: {after}"


def bound(story: Story, start: float, end: float) -> float:
    """Return for how many seconds a partition may be without a member, by the heartbeats of that time."""
    rounds = [
        answered - sent
        for worker, beats in story.beats.items()
        for (sent, _), (_, answered) in pairwise(beats)
        if sent < end and answered > start and not any(sent < at < answered for at in story.silent_at[worker])
    ]
    return LEASE_S + TARGET_S + 2 * max([HEARTBEAT_S, *rounds])


def _looks(story: Story, looks: Sequence[Look]) -> None:
    """What is committed never goes back, and a commit shows in each look that was begun after its answer."""
    for (_, before), (at, after) in pairwise(looks):
        back = [partition for partition, offset in before.items() if after.get(partition, 0) < offset]
        assert not back, f"what is committed went back: partitions={back} at={at}"
    for tenure in story.tenures:
        for sent in tenure.sent:
            if sent.answer == "committed":
                unseen = [
                    at for at, seen in looks if at > sent.answered_at and seen.get(tenure.partition, 0) < sent.offset
                ]
                assert not unseen, f"a commit of {sent.offset} does not show: {tenure}"
