"""Appends to a topic by its name: its incarnation, its configuration, its session, and then the partition's appender.

Rule: accept a batch by the cached configuration, and before refusing it, read the topic's present item (protocol, "Old
knowledge of a topic"). The appender judges by the log. Facts that only items have are read here, outside the queue, so
that no batch waits for the admission of another: a session's principal, whether the session was severed, and whether an
exclusive session that the log names has ended.

Not here: placing records by their keys (``by_key``), and the order of appends (``append.appender``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from fenceline.access.session_cache import SessionCache, admit
from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.appender import Appender, appender_of
from fenceline.append.checks import AdmitFirst, SessionStatus, names_expectation
from fenceline.append.entries.batch import AppendRequest, BatchEntry, prepare
from fenceline.errors import (
    FencelineError,
    FixError,
    InvalidProducerEpochError,
    InvalidRequestError,
    OutOfOrderSequenceNumberError,
    ProducerBusyError,
    ProducerFencedError,
    SessionExpiredError,
    ThrottledError,
    naming,
)
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.tail import verified_tail
from fenceline.model.results import Appended, SessionRef
from fenceline.model.topic import Topic
from fenceline.service.resolver import (
    INCARNATIONS_PER_REQUEST,
    Known,
    PartitionResolver,
    always_another_incarnation,
    translated,
)
from fenceline.transactions.producer_ids import ProducerIds

if TYPE_CHECKING:
    from fenceline.model.record import Record
    from fenceline.service.by_key import Share, Shares
    from fenceline.transactions.admission import Admissions


class AppendCaller(NamedTuple):
    """The caller of an append: its session, its principal, and when it stops waiting, on the monotonic clock."""

    session: SessionRef | None
    principal: str
    until_ms: int


class Producing:
    """Appends for one process."""

    def __init__(self, context: Context, resolver: PartitionResolver, item_age_ms: int, timeout_ms: int) -> None:
        self._context = context
        self._resolver = resolver
        self._item_age_ms = item_age_ms
        self._timeout_ms = timeout_ms
        self._producer_ids = ProducerIds(context)
        self.sessions = SessionCache(resolver.partitions)

    @cached_property
    def admissions(self) -> Admissions:
        """Return the admissions of this process to transactions, made for the first batch that asks for one."""
        from fenceline.transactions.admission import Admissions

        return Admissions(self._resolver.partitions, self._producer_ids.take)

    def deadline(self) -> int:
        """Return the time when a request that begins now gives up, on the monotonic clock."""
        return self._context.runtime.monotonic_ms() + self._timeout_ms

    def append(
        self,
        topic: str,
        partition: int,
        request: AppendRequest,
        *,
        acks: int = -1,
        principal: str = "",
        until_ms: int | None = None,
        topic_id: str | None = None,
    ) -> Appended | None:
        """Append one batch. An acknowledged batch is in the object store and will be read back.

        Args:
            acks: With 0 the answer is ``None``, whether or not the batch is appended, once its partition was found.
            principal: The sender's, which must be the session's, too; ``""`` without authorization.
            until_ms: When the caller stops waiting, on the monotonic clock; with ``None``, at ``deadline``.
            topic_id: The one incarnation that may take the batch; with ``None``, the one to which the name leads.

        Raises:
            FencelineError: As the contract says under "Produce".
        """
        if request.transactional_id is not None and acks != -1:
            raise InvalidRequestError(f"a transactional batch needs acks -1: acks={acks}", field="acks")
        caller = AppendCaller(request.session, principal, self.deadline() if until_ms is None else until_ms)
        try:
            return self._in_incarnation(topic, partition, request, caller, acks=acks, topic_id=topic_id)
        except FencelineError as error:
            error.name_place(topic, partition)
            raise

    def _in_incarnation(
        self,
        topic: str,
        partition: int,
        request: AppendRequest,
        caller: AppendCaller,
        *,
        acks: int,
        topic_id: str | None,
    ) -> Appended | None:
        for _ in range(INCARNATIONS_PER_REQUEST):
            known, is_new = self._resolved(topic, partition, topic_id)
            if topic_id not in (None, known.item.topic.topic_id):
                break  # another incarnation, whose number of partitions may differ
            try:
                appended = self._append(known, partition, request, caller, is_new=is_new)
                return None if acks == 0 else appended
            except StaleTopicId:
                self._resolver.forget(topic, known.item)
            except FencelineError:
                if acks == 0:
                    return None
                raise
        if acks == 0:
            return None
        raise always_another_incarnation(topic)

    @translated
    def share_out(self, topic: str, records: Sequence[Record]) -> tuple[Shares, int]:
        """Place records by their keys, from a look at the topic that began after the call; see ``by_key.share_out``.

        Returns:
            The shares, and the time after which ``append_share`` begins no further append.
        """
        from fenceline.service.by_key import share_out

        until_ms = self.deadline()
        found = self._resolver.refresh(topic).item.topic
        return share_out(found, records, self._context.runtime.random()), until_ms

    def append_share(
        self, shares: Shares, share: Share, until_ms: int, *, acks: int = -1, principal: str = ""
    ) -> Appended | None:
        """Append one partition's records; see ``append``.

        Raises:
            ThrottledError: The request's time was over before this share was begun. Nothing was written.
        """
        if self._context.runtime.monotonic_ms() + self._context.create_ms >= until_ms:
            what = "the request ran out of time before it reached this partition; send this partition's records again"
            with naming(shares.topic.name, share.partition):
                raise ThrottledError(what)
        return self.append(
            shares.topic.name,
            share.partition,
            share.request,
            acks=acks,
            principal=principal,
            until_ms=until_ms,
            topic_id=shares.topic.topic_id,
        )

    @translated
    def new_producer_id(self) -> tuple[int, int]:
        """Return a new (producer id, producer epoch) (KIP-98)."""
        return self._producer_ids.take(), 0

    @translated
    def _resolved(self, topic: str, partition: int, topic_id: str | None) -> tuple[Known, bool]:
        """Return the topic as ``PartitionResolver.resolve`` does, or after a look where it seems to lack the partition.

        The remembered item may be older than the look that placed the batch, if another thread's look was slow. An
        older item does not show that the topic's object still lacks that partition.
        """
        if topic_id is None:
            return self._resolver.resolve(topic, partition)
        known, is_new = self._resolver.resolve(topic, 0)
        if known.item.topic.topic_id == topic_id and partition >= known.item.topic.partitions:
            return self._resolver.refresh(topic), True
        return known, is_new

    @translated
    def _append(
        self, known: Known, partition: int, request: AppendRequest, caller: AppendCaller, *, is_new: bool
    ) -> Appended:
        if known.item.object_n != known.item.n:
            # The request that wrote the item crashed before the object, from which a rebuild must find the batches that
            # are acknowledged here.
            topics.make_object(self._context, known.item)
            self._resolver.forget(known.item.topic.name)
        topic = known.item.topic
        appender = appender_of(self._resolver.partitions, topic.name, topic.topic_id, partition)
        entry = self.prepared(appender.partition, topic, request, is_new=is_new)
        try:
            return self._send(appender, entry, caller)
        except (InvalidProducerEpochError, OutOfOrderSequenceNumberError):
            # Looked at, because a remembered producer expires by the topic's configuration, which may be old.
            entry = prepare(appender.partition.refresh().topic, request, self._context.runtime.now_ms())
            return self._send(appender, entry, caller)

    def prepared(self, partition: Partition, topic: Topic, request: AppendRequest, *, is_new: bool) -> BatchEntry:
        """Judge a request by the topic's configuration. A refusal, or an expectation, takes a look of its own."""
        now_ms = self._context.runtime.now_ms
        if not is_new and (self._item_age_ms == 0 or names_expectation(request.expected_offset)):
            topic, is_new = partition.refresh().topic, True
        try:
            return prepare(topic, request, now_ms())
        except FencelineError:
            if is_new:
                raise
        self._resolver.forget(topic.name)
        return prepare(partition.refresh().topic, request, now_ms())

    def _send(self, appender: Appender, entry: BatchEntry, caller: AppendCaller) -> Appended:
        """Append a batch under the session that it names, or under none.

        Raises:
            UnknownSessionError, NotAuthorizedError, SessionSeveredError, ProducerFencedError, SessionExpiredError: The
                session may not write here. Nothing was written.
            ProducerBusyError: The batch has no session, and another session is exclusive here. Nothing was written.
            FencelineError, StaleTopicId: As ``Appender.append``.
            Unavailable: The item store could not be asked. Nothing was written.
        """
        ref = caller.session
        if ref is None:
            return self._append_admitted(appender, entry, caller)
        partition, sessions = appender.partition, self.sessions
        status, is_new = sessions.status(ref, partition, caller.principal)
        sessions.hold_back(ref.session_id, caller.until_ms)
        try:
            answer = self._append_admitted(appender, _under(entry, status), caller)
        except (ProducerFencedError, SessionExpiredError):
            # Only a fresh look shows whether the session was severed, or fenced, or granted access since.
            fresh = status if is_new else sessions.read_status(ref, partition, caller.principal)
            if fresh == status:
                raise
            answer = self._append_admitted(appender, _under(entry, fresh), caller)
        sessions.renew(ref, partition)
        return answer

    def _append_admitted(self, appender: Appender, entry: BatchEntry, caller: AppendCaller) -> Appended:
        """Append a batch, after the admissions that its check asks for.

        Where the log names an exclusive session, its end is written first. Where the batch would open a transaction
        here, the coordinator must name the partition first ("Admission").
        """
        partition, is_verified = appender.partition, False
        if entry.terms.transactional_id is not None:
            entry = self._admitted_early(appender, entry, caller)
        while True:
            known = partition.state
            answer = appender.append(entry, caller.until_ms)
            if isinstance(answer, AdmitFirst):
                try:
                    ended = admit(self._resolver.partitions, partition, answer)
                except ProducerBusyError:
                    state = verified_tail(partition).state
                    if (state.session_id, state.topic_epoch) == (answer.session_id, answer.topic_epoch):
                        raise
                    continue  # I4: the state that named that session was stale
                entry = replace(entry, terms=entry.terms._replace(ended=ended))
                continue
            if isinstance(answer, AskCoordinator):
                try:
                    entry = self._admitted(partition, entry, answer, caller)
                except FixError:
                    # I4: the state that asked for admission may be stale. Verify the tail first, because the log may
                    # have another writer, a marker, or this batch itself.
                    if is_verified or verified_tail(partition).state is known:
                        raise
                    is_verified = True
                continue
            assert isinstance(answer, Appended)
            return answer

    def _admitted_early(self, appender: Appender, entry: BatchEntry, caller: AppendCaller) -> BatchEntry:
        """Return the batch with its admission, where that can be asked for while the batch would wait in the queue.

        A refusal is left to the queue's check, because the group that is created meanwhile may have the batch itself.
        """
        asked = appender.question(entry)
        if asked is None:
            return entry
        try:
            return self._admitted(appender.partition, entry, asked, caller)
        except FixError:
            return entry

    def _admitted(
        self, partition: Partition, entry: BatchEntry, asked: AskCoordinator, caller: AppendCaller
    ) -> BatchEntry:
        from fenceline.model.transaction import ProducerPair

        header, transactional_id = entry.batch.header, entry.terms.transactional_id
        assert transactional_id is not None
        pair = ProducerPair(header.producer_id, header.producer_epoch)
        admit = self.admissions.admit
        if caller.principal:
            from fenceline.model.principal import lasting

            admit = partial(admit, principal=lasting(caller.principal))
        admission = admit(partition, transactional_id, pair, asked, caller.until_ms)
        return replace(entry, terms=entry.terms._replace(admission=admission))


def _under(entry: BatchEntry, status: SessionStatus) -> BatchEntry:
    return replace(entry, terms=entry.terms._replace(session=status))
