"""A consumer: the records of the partitions that its group gives it, while members come and go (KIP-848).

Rule: the program learns of its partitions in its own thread, between two records. After ``on_revoked`` was called with
a partition, no record of it is handed out, also none that was read ahead. Only after that, and after a commit, is the
partition reported as stopped, so another member begins it where this one ended.

- Each page and each commit names the member and its epoch. The service refuses those of a member that does not hold the
  partition, so a program that was frozen commits nothing over the work of another.

- The lease is looked at before each record, because a frozen program does not notice how long it was frozen.

Not here: what answers mean (``member``), the thread of heartbeats (``heartbeats``), reading ahead (``reads``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fenceline import errors, limits
from fenceline.client.api import ApiClient
from fenceline.client.calls import WrongValueError, check_here, public
from fenceline.client.consumer.heartbeats import Heartbeats, Joining
from fenceline.client.consumer.member import Changes, Place
from fenceline.client.consumer.positions import Positions, entries
from fenceline.client.consumer.reads import ReadOptions, Reads
from fenceline.client.session import GIVE_BACK_MS
from fenceline.client.transport import log
from fenceline.client.types import CommittedOffset
from fenceline.model.results import ReadRecord
from fenceline.model.transaction import TopicPartition

Commit = Literal["auto", "manual"]
OnPartitions = Callable[[Sequence[TopicPartition]], object]

_AGAIN_MS = 500  # after a page that was refused
_ANSWER_MS = 100  # between two looks for the answer of a heartbeat that a page waits for
_LOOK_MS = 60_000
_COMMIT_TRIES = 3
_COMMIT_RETRY_MS = 10_000

# After these a heartbeat says what the member still has, or a later page will be there.
_OUTDATED = (errors.StaleMemberEpochError, errors.UnknownMemberIdError)
_PASSING = (
    errors.RetryError,
    errors.OutcomeUnknownError,
    errors.UnknownTopicIdError,
    errors.UnknownTopicOrPartitionError,
)


@dataclass(frozen=True, slots=True)
class Options:
    """How a consumer reads, and the program's callbacks."""

    reading: ReadOptions
    commit: Commit
    commit_every_ms: int
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    on_lost: OnPartitions | None


@public
class Consumer:
    """A member of a group, made by ``Client.consumer``, for one thread; a context manager that leaves the group.

    Iterating yields ``(topic, partition, record)``, and ``pages`` the same in lists, which is faster. A record is done
    once the program asks for the next one. A consumer that does not follow ends at the next offsets of each partition's
    first answer.

    With ``commit="auto"`` the consumer commits what is done every 5 s, before it gives a partition up, and at the end.
    So a record is handled again if the program ends during its work, and none is left out.

    Attributes:
        group: The group's name.
    """

    def __init__(self, client: ApiClient, joining: Joining, options: Options) -> None:
        self._client = client
        self._runtime = client.runtime
        self.group = joining.group
        self._is_static = joining.instance_id is not None
        self._options = options
        self._positions = Positions()
        self._reads = Reads(client, joining.group, options.reading, self._named_member)
        self._rest: tuple[Place, Iterator[ReadRecord], int] | None = None  # unread end of a page, and its position
        self._ends: dict[Place, int] = {}
        self._open: set[Place] = set()
        self._blocked: list[tuple[Place, int | None, int, int]] = []  # with the answers and the time to wait for
        self._seen = -1  # the member's changes that the program knows
        self._commit_due_ms = self._runtime.monotonic_ms() + options.commit_every_ms
        self._is_closed = False
        self._heart = Heartbeats(client, joining, self._reads.wake)
        self._member = self._heart.member
        try:
            self._heart.join()
        except errors.FencelineError:
            raise
        except BaseException:  # such as Ctrl-C: the join may have been carried out
            self._heart.leave(is_coming_back=False)
            raise

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, exception: type[BaseException] | None, *exc: object) -> None:
        if exception is None:
            self.close()
            return
        try:
            self._commit_quietly(within_ms=GIVE_BACK_MS)  # what is done was done in spite of the exception
        finally:
            self._leave()

    @property
    def member_id(self) -> str:
        """The id under which the group knows this member. After a loss it is another one."""
        return self._member.member_id

    @property
    def member_epoch(self) -> int:
        """The member epoch of the last answer, which commits name; 0 while the member joins again."""
        return self._member.epoch

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """What this member works on, in order."""
        with self._heart.lock:
            return _named(sorted(self._member.working))

    def token(self, topic: str, partition: int) -> int:
        """Return a fencing token for what the program does outside of fenceline for a partition.

        It only grows from one holder of the partition to the next, so a store that keeps the highest token can refuse a
        member that was frozen.

        Raises:
            StaleMemberEpochError: This member does not have the partition.
        """
        with self._heart.lock:
            for place, held in self._member.working.items():
                if (place.topic, place.partition) == (topic, partition):
                    return held.token
        raise _not_held(topic, partition)

    def __iter__(self) -> Iterator[tuple[str, int, ReadRecord]]:
        """Yield each record with its topic and partition.

        Raises:
            OwnerFencedError: A session owns a partition for this group by ``own``.
            UnknownSubscriptionError: The group's subscription was deleted.
            NotAuthorizedError: The service no longer lets this principal read, or be in the group.
            UnreleasedInstanceIdError: Another live member has the instance id, for longer than a session time-out.
            FencelineError: As ``commit``, of what was committed by itself. Iterate again: nothing is lost.
        """
        try:
            while (rest := self._next_rest()) is not None:
                place, records, position = rest
                for record in records:
                    self._positions.hand_out(place, record.offset + 1)
                    yield place.topic, place.partition, record
                    check_here(self)
                    self._positions.finish()
                    if self._rest is not rest or self._must_look():
                        break
                else:
                    self._rest = None
                    self._positions.pass_by(place, position)
        finally:
            self._reads.pause()

    def pages(self) -> Iterator[tuple[str, int, Sequence[ReadRecord]]]:
        """Yield records in lists, each with its topic and partition. All of a list is done when the next is asked for.

        Raises as iterating does.
        """
        try:
            while (rest := self._next_rest()) is not None:
                place, records, position = rest
                page = list(records)
                if page:
                    self._positions.hand_out(place, page[-1].offset + 1)
                    yield place.topic, place.partition, page
                    check_here(self)
                    self._positions.finish()
                if self._rest is rest:
                    self._rest = None
                    self._positions.pass_by(place, position)
        finally:
            self._reads.pause()

    def commit(self, topic: str | None = None, partition: int | None = None, offset: int | None = None) -> None:
        """Commit all that was handed out, with the record in hand; or one offset, which the group will read next.

        Args:
            topic, partition, offset: All three, or none.

        Raises:
            StaleMemberEpochError: This member does not have a partition any more. Nothing of it was committed, and
                another member handles its records again. ``on_lost`` comes next.
            OffsetOutOfRangeError: ``offset`` is beyond the log; nothing was committed.
            OwnerFencedError: A session owns a partition for this group; nothing was committed.
        """
        if topic is None and partition is None and offset is None:
            self._commit(self._positions.due(with_record_in_hand=True), is_strict=True)
            return
        if topic is None or partition is None or offset is None:
            raise WrongValueError("commit takes a topic, a partition and an offset, or none of them", field="offset")
        with self._heart.lock:
            found = [one for one in self._member.working if (one.topic, one.partition) == (topic, partition)]
        if not found:
            raise _not_held(topic, partition)
        self._commit({found[0]: offset}, is_strict=True)

    def next_offsets(self) -> Sequence[CommittedOffset]:
        """Return what ``commit`` would commit now: for a transaction of fenceline or of another store.

        ``OpenTransaction.send_offsets`` takes the consumer itself, and names the member.
        """
        return entries(self._positions.due(with_record_in_hand=True))

    def rewind(self) -> None:
        """Go back to what the group has committed, in all partitions: after a transaction was aborted."""
        with self._heart.lock:
            places = [*self._member.working]
        self._drop(places)
        self._begin(places)

    def close(self) -> None:
        """Leave the group, so that others get its partitions at once. A member with an instance id is coming back.

        ``on_revoked`` is called first. With ``commit="auto"`` what is done is committed. The record in hand counts as
        done only if ``commit`` was called.

        Raises:
            FencelineError: As ``commit``; the consumer has left all the same.
        """
        if self._is_closed:
            return
        try:
            if self.partitions and self._options.on_revoked is not None:
                self._options.on_revoked(self.partitions)
        finally:
            try:
                if self._options.commit == "auto":
                    self._commit(self._positions.due())
            finally:
                self._leave()

    # For a transaction

    def send_in(self, send: Callable[[Sequence[CommittedOffset], str, int], None]) -> None:
        """Send what ``next_offsets`` returns by a transaction, as this member."""
        due = self._positions.due(with_record_in_hand=True)
        with self._heart.lock:
            member_id, epoch = self._member.member_id, self._member.epoch
            lost = [*self._member.has_lost, *(place for place in due if place not in self._member.working)]
        if lost:
            raise _not_held(lost[0].topic, lost[0].partition)
        if due:
            send(entries(due), member_id, epoch)
            self._positions.committed(due)

    # Pages

    def _next_rest(self) -> tuple[Place, Iterator[ReadRecord], int] | None:
        """Return what is left of a page, after the program has learned of its partitions; ``None`` at the end."""
        check_here(self)
        if self._is_closed:
            raise RuntimeError("the consumer was closed, so it shows nothing more; make a new one")
        self._positions.finish()
        self._look()
        while self._rest is None:
            if not self._read_next():
                return None
            self._look()
        return self._rest

    def _read_next(self) -> bool:
        """Wait for a page or for a change of partitions; return False at the end."""
        now_ms = self._runtime.monotonic_ms()
        if not self._options.reading.is_following and not self._open and self._is_complete():
            if self._options.commit == "auto":
                self._commit(self._positions.due())
            return False
        found = self._reads.next_within(self._wait_ms(now_ms))
        if found is None:
            return True
        place, position, page = found
        if isinstance(page, BaseException):
            self._refused(place, position, page)
            return True
        bounds = page.bounds
        end = bounds.last_stable_offset if self._options.reading.isolation == "read_committed" else bounds.next_offset
        if self._options.reading.is_following or page.position < self._ends.setdefault(place, end):
            self._reads.want(place, page.position)  # fetched during this page's use
        else:
            self._open.discard(place)
        if page.records:
            self._rest = (place, iter(page.records), page.position)
        elif page.position != position:
            self._positions.pass_by(place, page.position)
        return True

    def _is_complete(self) -> bool:
        with self._heart.lock:
            return self._member.is_complete

    def _wait_ms(self, now_ms: int) -> int:
        """Return how long to wait for a page, until something else is due."""
        due_ms = [now_ms + _LOOK_MS, *(at_ms for *_, at_ms in self._blocked)]
        if self._options.commit == "auto" and self._positions.due():
            due_ms.append(self._commit_due_ms)
        if self._member.lease_until_ms is not None:
            due_ms.append(self._member.lease_until_ms)
        return max(min(due_ms) - now_ms, 1)

    def _refused(self, place: Place, position: int | None, error: BaseException) -> None:
        """Read a partition again later if its page's refusal may pass; raise it else."""
        if isinstance(error, errors.OffsetOutOfRangeError) and position is not None:
            self._reads.want(place, None)  # retention, a trim or a seek moved the mark past this position
            return
        if isinstance(error, _OUTDATED):
            answers = self._heart.hurry() + 1
        elif isinstance(error, _PASSING) and self._options.reading.is_following:
            answers = 0
        else:
            self._reads.want(place, position)  # for a caller that goes on
            raise error
        self._blocked.append((place, position, answers, self._runtime.monotonic_ms() + _AGAIN_MS))

    def _named_member(self) -> tuple[str, int]:
        with self._heart.lock:
            return self._member.member_id, self._member.epoch

    # Callbacks of the program

    def _must_look(self) -> bool:
        """Return whether anything comes before the next record."""
        member, now_ms = self._member, self._runtime.monotonic_ms()
        lease_until_ms = member.lease_until_ms
        return (
            member.changes_count != self._seen
            or (lease_until_ms is not None and now_ms >= lease_until_ms)
            or (now_ms >= self._commit_due_ms and self._options.commit == "auto")
            or member.failure is not None
        )

    def _look(self) -> None:
        """Tell the program of its partitions, commit what is due, and read on what was refused for a while."""
        while self._must_tell(changes := self._changes()):
            if changes.lost:
                self._lose(changes.lost)
            elif changes.revoked:
                self._give_up(changes.revoked)
            else:
                self._take(changes.assigned)
        self._heart.check()
        now_ms = self._runtime.monotonic_ms()
        if self._options.commit == "auto" and now_ms >= self._commit_due_ms:
            self._commit_quietly()
            self._commit_due_ms = now_ms + self._options.commit_every_ms
        blocked, self._blocked = self._blocked, []
        for place, position, answers, at_ms in blocked:
            if now_ms >= at_ms and self._member.answers >= answers:
                self._reads.want(place, position)
            elif place in self._member.working:
                self._blocked.append((place, position, answers, max(at_ms, now_ms + _ANSWER_MS)))

    def _changes(self) -> Changes:
        with self._heart.lock:
            self._seen = self._member.changes_count
            return self._member.changes(self._runtime.monotonic_ms())

    def _must_tell(self, changes: Changes) -> bool:
        return bool(changes.lost or changes.revoked or changes.assigned)

    def _lose(self, places: Sequence[Place]) -> None:
        self._drop(places)
        with self._heart.lock:
            self._member.told(places)
        self._heart.hurry()
        if self._options.on_lost is not None:
            self._options.on_lost(_named(places))

    def _give_up(self, places: Sequence[Place]) -> None:
        try:
            if self._options.on_revoked is not None:
                self._options.on_revoked(_named(places))
        finally:
            try:
                self._commit_quietly()
            finally:
                self._drop(places)
                with self._heart.lock:
                    self._member.stopped(places, self._runtime.monotonic_ms())
                self._heart.hurry()

    def _take(self, places: Sequence[Place]) -> None:
        with self._heart.lock:
            fresh = self._member.begun(places)
        self._begin(fresh)
        if fresh and self._options.on_assigned is not None:
            self._options.on_assigned(_named(fresh))

    def _begin(self, places: Sequence[Place]) -> None:
        self._positions.begin(places)
        self._open.update(places)
        self._reads.begin(places)

    def _drop(self, places: Sequence[Place]) -> None:
        gone = {*places}
        self._reads.drop(places)
        self._positions.drop(places)
        self._open -= gone
        self._ends = {place: end for place, end in self._ends.items() if place not in gone}
        self._blocked = [one for one in self._blocked if one[0] not in gone]
        if self._rest is not None and self._rest[0] in gone:
            self._rest = None

    # Commits

    def _commit_quietly(self, *, within_ms: int = _COMMIT_RETRY_MS) -> None:
        """Commit what is done, if that is the consumer's own part; without an answer it is committed with the next."""
        if self._options.commit == "manual":
            return
        try:
            self._commit(self._positions.due(), within_ms=within_ms)
        except (errors.RetryError, errors.OutcomeUnknownError) as error:
            log.warning("the consumer could not commit; it tries again: group=%s why=%s", self.group, error.code)

    def _commit(
        self, offsets: Mapping[Place, int], *, is_strict: bool = False, within_ms: int = _COMMIT_RETRY_MS
    ) -> None:
        """Commit offsets; where the member's epoch was outdated, after the next heartbeat.

        Args:
            is_strict: Refuse all if the member lost a partition; else commit the others.

        Raises:
            StaleMemberEpochError: The member lost a partition; only with ``is_strict``.
        """
        for _ in range(_COMMIT_TRIES):
            with self._heart.lock:
                member_id, epoch = self._member.member_id, self._member.epoch
                held = {place: offset for place, offset in offsets.items() if place in self._member.working}
            if is_strict and (lost := [place for place in offsets if place not in held]):
                raise _not_held(lost[0].topic, lost[0].partition)
            try:
                self._send_commit(held, member_id, epoch, within_ms)
                return
            except _OUTDATED:
                answers = self._heart.hurry()
                self._heart.wait_for_answer(answers, within_ms)
        if is_strict:
            place = next(iter(offsets))
            raise _not_held(place.topic, place.partition)

    def _send_commit(self, offsets: Mapping[Place, int], member_id: str, epoch: int, within_ms: int) -> None:
        some = [*offsets.items()]
        for at in range(0, len(some), limits.PARTITIONS_PER_COMMIT_MAX):
            part = dict(some[at : at + limits.PARTITIONS_PER_COMMIT_MAX])
            self._client.commit_offsets(
                self.group, entries(part), member_id=member_id, member_epoch=epoch, retry_ms=within_ms
            )
            self._positions.committed(part)

    def _leave(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._reads.close()
            self._heart.leave(is_coming_back=self._is_static)
            with self._heart.lock:
                self._member.leave()


def _named(places: Sequence[Place]) -> list[TopicPartition]:
    return [TopicPartition(place.topic, place.partition) for place in places]


def _not_held(topic: str, partition: int) -> errors.StaleMemberEpochError:
    return errors.StaleMemberEpochError(
        f"this member does not have the partition now, so nothing was committed: topic={topic} partition={partition}",
        topic=topic,
        partition=partition,
    )
