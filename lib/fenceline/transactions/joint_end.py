"""The end of transactions: of one, or of several by one decision, also with a version ("Several transactions", "Once").

Rule: all members are decided by one write, and then finished. The end of one transaction is a joint end of one member.

Rule: an answer without a write comes from two reads that agree, because the items of one read are not of one moment, so
that a decision that is made meanwhile could look like a mixture that never existed.

Not here: the decision (``decide``), a producer's other requests (``coordinator``), and the markers (``finish``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fenceline.errors import AlreadyCommittedError, FencelineError
from fenceline.format import keys
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.transaction import TransactionMember
from fenceline.ports import ItemKey, VersionMoved
from fenceline.transactions import item_store
from fenceline.transactions.committed_version import once_from_item
from fenceline.transactions.decide import EndsDecision, JointEnd, SeenTransactions, decide_ends, needing_producer_ids
from fenceline.transactions.finish import finish_all
from fenceline.transactions.item import transaction_from_item

_WHAT = "the transactions"


class EndCoordinator:
    """The ends of transactions that this process serves. Safe to share between threads.

    Args:
        take_producer_id: Returns a producer id that was never given.
    """

    def __init__(self, partitions: Partitions, take_producer_id: Callable[[], int]) -> None:
        self._partitions = partitions
        self._context = partitions.context
        self._take_producer_id = take_producer_id

    def end(self, request: JointEnd, until_ms: int) -> Sequence[TransactionMember]:
        """End all of the request's transactions, or none, and return each with the pair of its next one.

        On return every marker is durable and every pending offset is settled. The same request again gets the same
        answer, until the next transaction of a member begins.

        Args:
            until_ms: When the caller stops waiting, on the monotonic clock.

        Raises:
            AlreadyCommittedError: The version of ``once``, or a higher one, is committed. This attempt wrote nothing.
            NotAuthorizedError: A member, or the application, is another principal's. Nothing was written.
            InvalidProducerIdMappingError, ProducerFencedError, InvalidTxnStateError: One member is refused. Nothing was
                written.
            InvalidRequestError: The items are too large for one write. Nothing was written.
            ConcurrentTransactionsError: All are decided, and some are not finished; the same request goes on.
            CorruptLogError: A partition is damaged; its transaction stays decided.
            StoreUnavailableError, ContendedError: Nothing was written.
            OutcomeUnknownError: The store did not answer; the same request again is right in either case.
        """
        decision = self._decide(request)
        ended = finish_all(self._partitions, [one.item for one in decision.members], until_ms)
        return [TransactionMember(item.transactional_id, item.pair) for item in ended]

    def _decide(self, request: JointEnd) -> EndsDecision:
        """Decide and write, again where another request was faster, or where the store did not answer.

        After an unanswered write the items are read again. If the members are ended by these pairs, with this result,
        the request has succeeded, because one write decides them all. Any refusal then becomes an unknown outcome,
        except that of a committed version, which says what is stored in either case.
        """
        attempts = Attempts(self._context.runtime, "the transaction" if request.is_of_one else _WHAT)
        while True:
            with attempts:
                try:
                    return self._attempt(request, is_resumed=attempts.is_unknown)
                except AlreadyCommittedError as error:
                    already = error  # is raised outside of the attempts, which would make it an unknown outcome
                    break
        raise already

    def _attempt(self, request: JointEnd, *, is_resumed: bool) -> EndsDecision:
        """Read the items, decide, and write the decision: one attempt."""
        seen = self._read(request)
        needing = needing_producer_ids(seen, request)
        spares = {one: self._take_producer_id() for one in needing} if needing else {}
        try:
            decision = decide_ends(seen, request, self._context.runtime.now_ms(), spares=spares, is_resumed=is_resumed)
        except FencelineError:
            self._check_moment(request, seen)
            raise
        if decision.is_change:
            return self._write(decision)
        self._check_moment(request, seen)
        return decision

    def _read(self, request: JointEnd) -> SeenTransactions:
        wanted = [keys.transaction_item(one.transactional_id) for one in request.members]
        mark_key = None if request.once is None else keys.once_item(request.once.app_id)
        if mark_key is not None:
            wanted.append(mark_key)
        found = dict(self._context.items.get(wanted)) if wanted else {}
        mark = None if mark_key is None else found.pop(mark_key, None)
        items = {key.sort: transaction_from_item(item) for key, item in found.items()}
        return SeenTransactions(items, None if mark is None else once_from_item(mark))

    def _check_moment(self, request: JointEnd, seen: SeenTransactions) -> None:
        """Check that all items that were read existed at one moment: they are unchanged, and no version is used twice.

        Raises:
            VersionMoved: They may never have existed together. The request is judged again.
        """
        # model: Once, "two reads that agree"
        if len(request.members) + (request.once is not None) > 1 and self._read(request) != seen:
            raise VersionMoved(ItemKey(_WHAT, ""))

    def _write(self, decision: EndsDecision) -> EndsDecision:
        """Write the decision on the versions that were read, and return it with the items as they are stored."""
        once = () if decision.once is None else (decision.once.put(self._context.runtime),)
        return EndsDecision(item_store.write_all(self._context, decision.members, once), decision.once)
