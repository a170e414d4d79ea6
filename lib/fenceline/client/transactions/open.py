"""A transaction that is open: what a program writes in it, and its end.

Rule: the block commits only if everything in it succeeded; otherwise it aborts.

- The commit is sent once each record was acknowledged and each offset was accepted.

- An exception that leaves the block aborts, and is raised as it was.

- If a record or an offset fails, and the program goes on inside the block, then its end aborts and raises
  ``TransactionAbortedError``.

Not here: epochs, and what an answer to an end means; see ``instance``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn

from fenceline import errors, limits
from fenceline.client.api import ApiClient
from fenceline.client.calls import PARTITION, TEXT, WrongValueError, check_here, checks_itself, public
from fenceline.client.calls import checked as checked_argument
from fenceline.client.delivery import Delivery
from fenceline.client.partition_picker import PartitionPicker
from fenceline.client.records import checked, in_chunks
from fenceline.client.session import Holding, Session
from fenceline.client.transactions.batches import TransactionSender, Writes
from fenceline.client.transactions.errors import TransactionAbortedError, refusal_in
from fenceline.client.transactions.instance import Instance
from fenceline.client.transactions.partition_pickers import PartitionPickers
from fenceline.client.types import CommittedOffset
from fenceline.model.record import Headers, Record
from fenceline.model.transaction import ProducerPair

if TYPE_CHECKING:
    from fenceline.client.consumer.consumer import Consumer

Outcome = Literal["not begun", "open", "committed", "aborted", "unknown"]


@public
class OpenTransaction:
    """Records and offsets that show all together or not at all, made by ``TransactionalProducer.transaction``.

    A context manager, entered once, by the thread that uses it. Nothing is sent to the service before the first record
    or offset, so an empty transaction costs no request.

    Attributes:
        outcome: ``not begun``, ``open``, ``committed``, ``aborted``; ``unknown`` after a commit that was not answered.
    """

    def __init__(
        self,
        client: ApiClient,
        instance: Instance,
        sender: TransactionSender,
        pickers: PartitionPickers,
        *,
        delivery_ms: int,
    ) -> None:
        self._client = client
        self._instance = instance
        self._sender = sender
        self._pickers = pickers
        self._delivery_ms = delivery_ms
        self._groups: set[str] = set()
        self._thread = -1
        self._is_cut_short = False
        self._writes = Writes(ProducerPair(-1, -1))
        self.outcome: Outcome = "not begun"

    def __enter__(self) -> OpenTransaction:
        if self.outcome != "not begun":
            raise RuntimeError("a transaction is entered once; ask the producer for another one")
        self._writes = Writes(self._instance.begin())
        self._pickers.renew()
        self._thread = threading.get_ident()
        self.outcome = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outcome != "open":
            if self._is_cut_short and exception is None:
                raise RuntimeError("the producer was closed inside the block, so nothing of it was committed")
            return
        if exception is None:
            self.commit()
            return
        self.abort()
        if isinstance(exception, TransactionAbortedError):
            self._instance.check()  # the answer to the abort says more: this instance is fenced

    @checks_itself
    def send(
        self,
        topic: str,
        *,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Send one record in the background, and return at once unless the buffer is full.

        The delivery is done once the record is stored. Readers of what is committed see it once the transaction is
        committed.

        Args:
            headers: Pairs of name and value, or a mapping.
            timestamp: In ms; left out, it is now.
            partition: The record's partition, instead of its key's.

        Raises:
            TransactionAbortedError: An earlier record or offset has failed. End the block.
            UnknownTopicOrPartitionError: There is no such topic, or it has no such partition. Nothing was sent, and
                the transaction goes on.
            RuntimeError: The transaction is not open, or belongs to another thread.
        """
        check_here(self)
        if timestamp is None:
            timestamp = self._client.runtime.now_ms()
        record = checked(Record(value, key, headers, timestamp))
        if partition is not None:
            partition = checked_argument("partition", PARTITION, partition)
        picker = self._picker(checked_argument("topic", TEXT, topic))
        if partition is None:
            partition = picker.partition_of(record.key)
        return self._sender.put(picker, self._writes.to(topic, picker.known(partition)), [record])

    def send_many(self, topic: str, records: Iterable[Record], *, partition: int | None = None) -> None:
        """Send many records in the background, each to its key's partition or all to ``partition``; see ``send``."""
        picker = self._picker(topic)
        for some in in_chunks(records):
            self._check()
            for number, group in picker.split(some, partition).items():
                self._sender.put(picker, self._writes.to(topic, picker.known(number)), group)

    def send_offsets(
        self,
        group: str | Consumer,
        offsets: Iterable[CommittedOffset] | None = None,
        *,
        session: Session | Holding | None = None,
        session_id: str | None = None,
    ) -> None:
        """Move a group's offsets with the transaction: they take effect if it is committed.

        Each offset is the next one that the group will read: the last one whose work is done, plus 1. A consumer gives
        its group, its own offsets and its member, and is made with ``commit="manual"``. If the transaction is aborted,
        call the consumer's ``rewind``.

        Args:
            group: The group's name, or the consumer that read the records.
            offsets: Left out with a consumer, and only then.
            session: The session, or the owner, that reads these partitions for the group. The service then refuses a
                worker that was severed. If another process keeps the session, give its ``session_id`` instead.

        Raises:
            TransactionAbortedError: The service refused the offsets, or an earlier record has failed. End the block.
                Its ``reason`` is ``OwnerFencedError``, ``SessionSeveredError``, ``SessionExpiredError``,
                ``StaleMemberEpochError`` or ``UnknownMemberIdError`` where another worker has the partitions now.
            StaleMemberEpochError: The consumer has lost a partition whose records it handed out. Abort the transaction.
            ProducerFencedError: This instance is fenced for good. Nothing of the transaction will ever show.
            RuntimeError: The transaction is not open, or belongs to another thread.
        """
        self._check()
        if not isinstance(group, str):
            if offsets is not None or session is not None or session_id is not None:
                raise WrongValueError(
                    "a consumer has its offsets and its member; leave out the others", field="offsets"
                )
            name = group.group
            group.send_in(lambda some, member_id, epoch: self._send_offsets(name, some, None, member_id, epoch))
            return
        if offsets is None:
            raise WrongValueError("offsets are left out only with a consumer", field="offsets")
        self._send_offsets(group, list(offsets), session_id if session is None else session.session_id)

    def _send_offsets(
        self,
        group: str,
        entries: Sequence[CommittedOffset],
        session_id: str | None,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> None:
        where = (self._instance.transactional_id, self._writes.pair, group)
        try:
            for at in range(0, len(entries), limits.PARTITIONS_PER_COMMIT_MAX):
                self._writes.begin()
                if group not in self._groups:
                    self._client.add_group_to_transaction(*where, retry_ms=self._delivery_ms)
                    self._groups.add(group)
                some = entries[at : at + limits.PARTITIONS_PER_COMMIT_MAX]
                self._client.send_offsets_to_transaction(
                    *where,
                    some,
                    session_id=session_id,
                    member_id=member_id,
                    member_epoch=member_epoch,
                    retry_ms=self._delivery_ms,
                )
        except errors.FencelineError as error:
            self._writes.fail(error)
            if isinstance(refusal := refusal_in(error), errors.ProducerFencedError):
                raise self._instance.fence(refusal) from error
            self._raise_failure()

    def flush(self) -> None:
        """Send all records given so far, and wait until each is acknowledged or failed.

        Raises:
            TransactionAbortedError: One has failed. End the block.
        """
        self._check()
        self._sender.flush(self._writes)
        if self._writes.failure is not None:
            self._raise_failure()

    def commit(self) -> None:
        """Flush, commit, and wait until readers of what is committed see all of it. The block's end does the same.

        The commit is sent again until it is answered, for as long as the producer's ``delivery_ms``. Once that was in
        vain, ``outcome`` is ``unknown``, and ``commit`` may be called again: it is the same commit.

        Raises:
            TransactionAbortedError: A record or an offset has failed, or the service refused. Nothing is committed.
            ProducerFencedError: This instance is fenced for good. Nothing is committed.
            CommitOutcomeUnknownError: No answer says whether it was decided.
            RuntimeError: The transaction is over, or belongs to another thread.
        """
        if self.outcome == "unknown":
            self._check_thread()
        else:
            self._flush_or_abort()
        try:
            self.outcome = "unknown"  # until it is known, also if an interrupt comes
            if self._writes.is_begun:
                self._instance.commit(self._writes.pair)
            else:
                self._instance.end_unsent()
            self.outcome = "committed"
        except (TransactionAbortedError, errors.ProducerFencedError):
            self.outcome = "aborted"
            raise
        finally:
            self._instance.leave()

    def abort(self) -> None:
        """Drop what was not sent, and abort. Without an answer within 10 s the next transaction goes on with it.

        Raises:
            RuntimeError: The transaction is over, or belongs to another thread.
        """
        self._check_open()
        self.outcome = "aborted"  # whatever is answered: only `commit` could commit it
        try:
            if self._sender.drop(self._writes):
                self._instance.abort()
            else:
                self._instance.end_unsent()
        finally:
            self._instance.leave()

    def abort_by_close(self) -> None:
        """Abort as ``abort`` does; the block's end then raises, since its caller expects a commit."""
        self._is_cut_short = True
        self.abort()

    def _flush_or_abort(self) -> None:
        try:
            self.flush()
        except BaseException as error:
            if self.outcome == "open":
                self.abort()
            if isinstance(error, TransactionAbortedError):
                self._instance.check()
            raise

    def _picker(self, topic: str) -> PartitionPicker:
        self._check()
        try:
            return self._pickers.of(topic)
        except errors.FixError:
            raise
        except errors.FencelineError as error:
            self._writes.fail(error)
            self._raise_failure()

    def _check(self) -> None:
        self._check_open()
        self._instance.check()
        if self._writes.failure is not None:
            self._raise_failure()

    def _check_open(self) -> None:
        if self.outcome == "not begun":
            raise RuntimeError("the transaction has not begun; use it as: with producer.transaction() as txn")
        self._check_thread()
        if self.outcome != "open":
            raise RuntimeError(f"the transaction is over, so nothing was sent; begin another: outcome={self.outcome}")

    def _check_thread(self) -> None:
        if self._thread != threading.get_ident():
            raise RuntimeError(
                "a transaction belongs to the thread that began it; give each thread a producer with a transactional "
                f"id of its own: transactional_id={self._instance.transactional_id}"
            )

    def _raise_failure(self) -> NoReturn:
        failure = self._writes.failure
        assert failure is not None
        if not isinstance(failure, errors.FencelineError):
            raise failure
        detail = (
            f"a part of the transaction failed, so nothing of it will be committed; end the block, then begin another: "
            f"code={failure.code} detail={failure.detail}"
        )
        raise TransactionAbortedError(detail) from failure
