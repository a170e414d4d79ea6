"""A consumer: the records of the partitions that its group gives it, while members come and go (KIP-848).

Rule: the program learns of its partitions in its own thread, between two records (``share``).

- Each page and each commit names the member and its epoch. The service refuses those of a member that does not hold the
  partition, so a program that was frozen commits nothing over the work of another.

- The lease is looked at before each record, because a frozen program does not notice how long it was frozen.

Not here: what answers mean (``member``), the thread of heartbeats (``heartbeats``), reading ahead (``reads``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.calls import WrongValueError, check_here, public
from fenceline.client.consumer.commits import OUTDATED, Commits
from fenceline.client.consumer.heartbeats import Heartbeats, Joining
from fenceline.client.consumer.places import Place
from fenceline.client.consumer.positions import Positions, entries
from fenceline.client.consumer.reads import Reads, Rest
from fenceline.client.consumer.share import Options, Share
from fenceline.client.session import GIVE_BACK_MS
from fenceline.client.types import CommittedOffset
from fenceline.model.results import ReadRecord
from fenceline.model.transaction import TopicPartition

_LOOK_MS = 60_000

# After these a later page will be there.
_PASSING = (
    errors.RetryError,
    errors.OutcomeUnknownError,
    errors.UnknownTopicIdError,
    errors.UnknownTopicOrPartitionError,
)


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
        self._is_closed = False
        self._heart = Heartbeats(client, joining, self._reads.wake)
        self._member = self._heart.member
        every_ms = options.commit_every_ms if options.commit == "auto" else None
        self._commits = Commits(client, joining.group, self._heart, self._positions, every_ms)
        self._share = Share(self._runtime, self._heart, self._reads, self._positions, self._commits, options)
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
            self._commits.send_quietly(within_ms=GIVE_BACK_MS)  # what is done was done in spite of the exception
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
        return self._share.partitions

    def token(self, topic: str, partition: int) -> int:
        """Return a fencing token for what the program does outside of fenceline for a partition.

        It only grows from one holder of the partition to the next, so a store that keeps the highest token can refuse a
        member that was frozen.

        Raises:
            StaleMemberEpochError: This member does not have the partition.
        """
        return self._share.held(topic, partition)[1].token

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
                    if self._reads.rest is not rest or self._share.must_look():
                        break
                else:
                    self._reads.rest = None
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
                if self._reads.rest is rest:
                    self._reads.rest = None
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
            self._commits.send(self._positions.due(with_record_in_hand=True), is_strict=True)
            return
        if topic is None or partition is None or offset is None:
            raise WrongValueError("commit takes a topic, a partition and an offset, or none of them", field="offset")
        place, _ = self._share.held(topic, partition)
        self._commits.send({place: offset}, is_strict=True)

    def next_offsets(self) -> Sequence[CommittedOffset]:
        """Return what ``commit`` would commit now: for a transaction of fenceline or of another store.

        ``OpenTransaction.send_offsets`` takes the consumer itself, and names the member.
        """
        return entries(self._positions.due(with_record_in_hand=True))

    def rewind(self) -> None:
        """Go back to what the group has committed, in all partitions: after a transaction was aborted."""
        self._share.begin_again()

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
                self._commits.send_last()
            finally:
                self._leave()

    # For a transaction

    def send_in(self, send: Callable[[Sequence[CommittedOffset], str, int], None]) -> None:
        """Send what ``next_offsets`` returns by a transaction, as this member."""
        self._commits.send_in(send)

    # Pages

    def _next_rest(self) -> Rest | None:
        """Return what is left of a page, after the program has learned of its partitions; ``None`` at the end."""
        check_here(self)
        if self._is_closed:
            raise RuntimeError("the consumer was closed, so it shows nothing more; make a new one")
        self._positions.finish()
        self._share.look()
        while self._reads.rest is None:
            if not self._read_next():
                return None
            self._share.look()
        return self._reads.rest

    def _read_next(self) -> bool:
        """Wait for a page or for a change of partitions; return False at the end."""
        now_ms = self._runtime.monotonic_ms()
        if self._reads.is_over and self._is_complete():
            self._commits.send_last()
            return False
        found = self._reads.next_within(self._wait_ms(now_ms))
        if found is None:
            return True
        place, position, page = found
        if isinstance(page, BaseException):
            self._refused(place, position, page)
            return True
        self._reads.took(place, page)
        if not page.records and page.position != position:
            self._positions.pass_by(place, page.position)
        return True

    def _is_complete(self) -> bool:
        with self._heart.lock:
            return self._member.is_complete

    def _wait_ms(self, now_ms: int) -> int:
        """Return how long to wait for a page, until something else is due."""
        due_ms = [now_ms + _LOOK_MS, *self._reads.due_ms()]
        if self._positions.due():
            due_ms.append(self._commits.due_ms)
        if self._member.lease_until_ms is not None:
            due_ms.append(self._member.lease_until_ms)
        return max(min(due_ms) - now_ms, 1)

    def _refused(self, place: Place, position: int | None, error: BaseException) -> None:
        """Read a partition again later if its page's refusal may pass; raise it else."""
        if isinstance(error, errors.OffsetOutOfRangeError) and position is not None:
            self._reads.want(place, None)  # retention, a trim or a seek moved the mark past this position
            return
        if isinstance(error, OUTDATED):
            answers = self._heart.hurry() + 1
        elif isinstance(error, _PASSING) and self._options.reading.is_following:
            answers = 0
        else:
            self._reads.want(place, position)  # for a caller that goes on
            raise error
        self._reads.put_off(place, position, answers, self._runtime.monotonic_ms())

    def _named_member(self) -> tuple[str, int]:
        with self._heart.lock:
            return self._member.member_id, self._member.epoch

    def _leave(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._reads.close()
            self._heart.leave(is_coming_back=self._is_static)
            with self._heart.lock:
                self._member.places.leave()
