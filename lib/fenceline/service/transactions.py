"""Transactions by transactional ids and by the names of topics (contract, "Producer ids, coordinators, transactions").

Rule: a request looks at the topics that it names. The partitions of an addition are judged after its producer, and the
offsets of a group before it (protocol, "The state machine").
Not here: deciding and ending a transaction (``transactions``), and batches in one (``produce``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fenceline import limits
from fenceline.errors import (
    FencelineError,
    OperationNotAttemptedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from fenceline.groups import member_guard
from fenceline.groups.member_guard import Caller
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.sharded_list import Reads
from fenceline.model.principal import lasting
from fenceline.model.requests import MemberRef
from fenceline.model.subscription import CommittedOffset
from fenceline.model.topic import Topic, unknown_partition
from fenceline.model.transaction import (
    FencedTransaction,
    OnceMark,
    OncePage,
    OpenTransactionPage,
    ProducerPair,
    TopicPartition,
    Transaction,
    TransactionMember,
    TransactionPage,
)
from fenceline.service.resolver import PartitionResolver, in_incarnations, translated
from fenceline.service.subscriptions import Subscriptions
from fenceline.transactions import committed_version, listing, open_in_partitions, pending_offsets
from fenceline.transactions.coordinator import TransactionCoordinator
from fenceline.transactions.decide import Add, JointEnd, decide
from fenceline.transactions.hanging import abort_hanging
from fenceline.transactions.item import TopicPartitions
from fenceline.transactions.joint_end import EndCoordinator


class Transactions:
    """The transactions of one deployment. Safe to share between threads.

    Errors are those of the contract. `OutcomeUnknownError` asks for the same request again.

    Where a method takes a ``principal``, it is the sender's as the gateway authorized it; ``""`` without authorization.
    A transactional id of another principal is `NotAuthorizedError`, before anything else of the transaction is judged.

    Args:
        take_producer_id: Returns a producer id that was never given.
        timeout_ms: How long a request works before it gives up.
    """

    def __init__(
        self, context: Context, resolver: PartitionResolver, take_producer_id: Callable[[], int], timeout_ms: int
    ) -> None:
        self._context = context
        self._resolver = resolver
        self._take_producer_id = take_producer_id
        self._timeout_ms = timeout_ms

    def _coordinator(self, principal: str = "") -> TransactionCoordinator:
        return TransactionCoordinator(self._resolver.partitions, self._take_producer_id, lasting(principal))

    def _deadline(self) -> int:
        return self._context.runtime.monotonic_ms() + self._timeout_ms

    # The producer's requests

    @translated
    def init(
        self, transactional_id: str, timeout_ms: int, pair: ProducerPair | None = None, *, principal: str = ""
    ) -> ProducerPair:
        """Return the next pair of a transactional id, and fence the pair before it.

        See ``TransactionCoordinator.init``.
        """
        return self._coordinator(principal).init(transactional_id, timeout_ms, pair, self._deadline())

    @translated
    def add_partitions(
        self, transactional_id: str, pair: ProducerPair, partitions: Sequence[TopicPartition], *, principal: str = ""
    ) -> Sequence[FencelineError | None]:
        """Add partitions to a transaction, all of them or none; see ``TransactionCoordinator.add_partitions``.

        Returns:
            ``None`` for each partition, in their order, where all were added. Where one is unknown, its error, and
            `OperationNotAttemptedError` for each of the others.

        Raises:
            FencelineError: The coordinator refused. Nothing was added.
        """
        until_ms, coordinator = self._deadline(), self._coordinator(principal)
        found = self._look(sorted({one.topic for one in partitions}))
        refused = [_unknown(found[one.topic], one) for one in partitions]
        if any(refused):
            self._check_producer(coordinator, transactional_id, pair, until_ms)
            others = "another partition of the request was refused, so nothing was added; send the others again"
            return [error or OperationNotAttemptedError(others) for error in refused]
        coordinator.add_partitions(transactional_id, pair, _places(found, partitions), until_ms)
        return refused

    @translated
    def add_group(self, transactional_id: str, pair: ProducerPair, group: str, *, principal: str = "") -> None:
        """Add a group to a transaction; see ``TransactionCoordinator.add_group``."""
        self._coordinator(principal).add_group(transactional_id, pair, group, self._deadline())

    def send_offsets(
        self,
        transactional_id: str,
        pair: ProducerPair,
        group: str,
        offsets: Sequence[CommittedOffset],
        *,
        session_id: str | None = None,
        member: MemberRef | None = None,
        principal: str = "",
        topic_ids: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Commit a group's offsets in a transaction, all of them or none; see ``pending_offsets.send``.

        Args:
            topic_ids: Names of topics and the ids that they must have.
        """
        until_ms = self._deadline()
        live = Subscriptions(self._context, self._resolver).live_with(topic_ids)
        judge = partial(member_guard.judge_commit, self._context, Caller(group, session_id, member, principal))
        ongoing = partial(self._coordinator(principal).ongoing, transactional_id, pair, group, until_ms)
        in_incarnations(lambda: pending_offsets.send(self._context, live, group, offsets, judge, ongoing))

    @translated
    def extend(self, transactional_id: str, pair: ProducerPair, timeout_ms: int, *, principal: str = "") -> int:
        """Let no time-out be due for ``timeout_ms``, and return until when, in ms.

        See ``TransactionCoordinator.extend``.
        """
        return self._coordinator(principal).extend(transactional_id, pair, timeout_ms, self._deadline())

    @translated
    def end(
        self,
        transactional_id: str,
        pair: ProducerPair,
        is_commit: bool,
        once: OnceMark | None = None,
        *,
        principal: str = "",
    ) -> ProducerPair:
        """Commit or abort a transaction, and return the pair for the next one; see ``EndCoordinator.end``.

        Args:
            once: A version that is raised together with the outcome.

        Raises:
            AlreadyCommittedError: That version, or a higher one, is committed.
        """
        members = (TransactionMember(transactional_id, pair),)
        (ended,) = self._end(JointEnd(members, is_commit, once, False, lasting(principal)))
        return ended.pair

    @translated
    def end_all(
        self,
        members: Sequence[TransactionMember],
        is_commit: bool,
        once: OnceMark | None = None,
        *,
        principal: str = "",
    ) -> Sequence[TransactionMember]:
        """Commit or abort several transactions by one decision; see ``EndCoordinator.end``."""
        return self._end(JointEnd(members, is_commit, once, True, lasting(principal)))

    def _end(self, request: JointEnd) -> Sequence[TransactionMember]:
        until_ms = self._deadline()
        return EndCoordinator(self._resolver.partitions, self._take_producer_id).end(request, until_ms)

    # Versions that applications have committed

    @translated
    def once(self, app_id: str, *, principal: str = "") -> OnceMark:
        """Return the version that an application has committed; −1 where it has committed none."""
        found = committed_version.read(self._context, app_id, lasting(principal))
        return OnceMark(app_id, committed_version.NONE) if found is None else found.mark

    @translated
    def list_once(self, *, start_after: str = "", limit: int = limits.LIST_DEFAULT, principal: str = "") -> OncePage:
        """Return the versions of the principal's applications, and of those that have none, by application."""
        return committed_version.list_marks(
            self._context, start_after=start_after, limit=limit, principal=lasting(principal)
        )

    @translated
    def forget_once(self, app_id: str, *, principal: str = "") -> None:
        """Forget an application's version, so that any version may be committed again. Twice does no harm."""
        committed_version.forget(self._context, app_id, lasting(principal))

    # Looks, and damage

    @translated
    def get(self, transactional_id: str, *, principal: str = "") -> Transaction:
        """Return a transaction, after ending it if that is due; see ``TransactionCoordinator.get``."""
        return self._coordinator(principal).get(transactional_id, self._deadline()).shown()

    @translated
    def fence(self, transactional_id: str) -> FencedTransaction:
        """Abort, fence and free a transactional id for an operator, and return what was met.

        See ``TransactionCoordinator.fence``.

        Raises:
            TransactionalIdNotFoundError: No transaction has the id.
        """
        before, fenced = self._coordinator().fence(transactional_id, self._deadline())
        return FencedTransaction(before.shown(), fenced.pair)

    @translated
    def list(
        self,
        *,
        state: str | None = None,
        producer_id: int | None = None,
        longer_than_ms: int | None = None,
        start_after: str = "",
        limit: int = limits.LIST_DEFAULT,
        principal: str = "",
    ) -> TransactionPage:
        """Return transactions in byte order of their ids, and whether there are more; see ``list_transactions``.

        Those of other principals are left out.
        """
        reads = Reads()
        found, has_more = listing.list_transactions(
            self._context,
            states=() if state is None else (state,),
            producer_id=producer_id,
            longer_than_ms=longer_than_ms,
            start_after=start_after,
            limit=limit,
            principal=lasting(principal),
            reads=reads,
        )
        return TransactionPage(found, has_more, reads.go_on_after if len(found) < limit else None)

    def open_in(self, topic: str, *, start_partition: int = 0, limit: int = limits.OFFSETS_MAX) -> OpenTransactionPage:
        """Return what is open in up to ``limit`` partitions from ``start_partition`` on.

        See ``open_in_partitions.list_open``. A transactional id of another principal is shown, too.
        """
        wanted = range(start_partition, start_partition + limit)
        return self._resolver.with_partitions(topic, wanted, open_in_partitions.list_open)

    def abort_hanging(self, topic: str, partition: int, pair: ProducerPair, *, principal: str = "") -> None:
        """Abort a producer's open transaction in a partition, of which no coordinator knows; see ``abort_hanging``."""
        until_ms = self._deadline()

        def abort(found: Partition) -> None:
            abort_hanging(self._resolver.partitions, found, pair, until_ms, lasting(principal))

        self._resolver.with_partition(topic, partition, abort)

    # The partitions of an addition

    def _look(self, names: Sequence[str]) -> Mapping[str, Topic | UnknownTopicOrPartitionError]:
        """Return the live topic of each name, or the error that there is none."""

        def look(name: str) -> Topic | UnknownTopicOrPartitionError:
            try:
                return self._resolver.refresh(name).item.topic
            except UnknownTopicOrPartitionError as error:
                return error

        return dict(zip(names, self._context.runtime.gather([partial(look, name) for name in names]), strict=True))

    def _check_producer(
        self, coordinator: TransactionCoordinator, transactional_id: str, pair: ProducerPair, until_ms: int
    ) -> None:
        """Judge the producer of an addition that will not be made. Its transaction is first ended, if that is due.

        Raises:
            InvalidProducerIdMappingError, ProducerFencedError: As for an addition.
        """
        try:
            item = coordinator.get(transactional_id, until_ms)
        except TransactionalIdNotFoundError:
            item = None
        decide(item, Add(pair), self._context.runtime.now_ms())


def _unknown(found: Topic | UnknownTopicOrPartitionError, wanted: TopicPartition) -> FencelineError | None:
    """Return the error for a partition that does not exist, and ``None`` for one that does."""
    if isinstance(found, UnknownTopicOrPartitionError):
        return found
    return None if wanted.partition < found.partitions else unknown_partition(found, wanted.partition)


def _places(
    found: Mapping[str, Topic | UnknownTopicOrPartitionError], wanted: Sequence[TopicPartition]
) -> list[TopicPartitions]:
    """Return the partitions by the incarnations that their topics' names lead to."""
    numbers: dict[str, list[int]] = {}
    for one in wanted:
        numbers.setdefault(one.topic, []).append(one.partition)
    return [
        TopicPartitions(topic.topic_id, topic.name, tuple(sorted(numbers[name])))
        for name, topic in found.items()
        if not isinstance(topic, UnknownTopicOrPartitionError)
    ]
