"""The coordinator of transactions: requests of a producer over its transactional id's item ("The state machine").

Rule: there is no resident coordinator. Each request reads the item, decides, and writes on the version that was read.
Any process may serve any request.

Rule: a request that finds a prepared transaction finishes it, as long as the request's time lasts. After that its
answer is ``CONCURRENT_TRANSACTIONS``, and the same request, sent again, goes on from there.

Not here: the decisions (``decide``), ends (``joint_end``), the admission of batches (``admission``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fenceline import limits
from fenceline.errors import (
    ConcurrentTransactionsError,
    ContendedError,
    CorruptLogError,
    InvalidTransactionTimeoutError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ProducerPair
from fenceline.transactions import item_store
from fenceline.transactions.decide import Add, Decision, Extend, Fence, Init, Meet, Request, Send
from fenceline.transactions.finish import finish, unfinished
from fenceline.transactions.item import TopicPartitions, TransactionItem


class TransactionCoordinator:
    """The transactions that this process serves. Safe to share between threads.

    Args:
        take_producer_id: Returns a producer id that was never given.
        principal: The caller's (``principal.lasting``); ``""`` may do everything.

    Each method may raise, besides the errors that it names:
        NotAuthorizedError: The transactional id is another principal's. Nothing was written.
        ConcurrentTransactionsError: A prepared transaction is not finished yet; the same request goes on from there.
        CorruptLogError: A partition of a prepared transaction is damaged. The transaction stays prepared.
        StoreUnavailableError, ContendedError: Nothing was written.
        OutcomeUnknownError: The store did not answer; the same request again is right in either case.
    """

    def __init__(self, partitions: Partitions, take_producer_id: Callable[[], int], principal: str = "") -> None:
        self._partitions = partitions
        self._context = partitions.context
        self._take_producer_id = take_producer_id
        self._principal = principal

    def init(self, transactional_id: str, timeout_ms: int, pair: ProducerPair | None, until_ms: int) -> ProducerPair:
        """Return the next epoch of a transactional id, after the abort of its open transaction (KIP-98, KIP-360).

        An answer that was lost costs an epoch, unless the request names its pair, because then the repeated request
        gets the same pair again.

        Args:
            pair: The pair that the producer has, to keep its id; ``None`` fences every other instance.
            until_ms: When the caller stops waiting, on the monotonic clock.

        Raises:
            InvalidTransactionTimeoutError: ``timeout_ms`` is not between 1 and 900000. Nothing was written.
            ProducerFencedError: Another instance has the id. Its transaction was not aborted.
        """
        if not 1 <= timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeoutError(
                f"transaction_timeout_ms must be between 1 and {limits.TRANSACTION_TIMEOUT_MS_MAX}: "
                f"transaction_timeout_ms={timeout_ms}"
            )
        return self._carry_out(transactional_id, Init(transactional_id, timeout_ms, pair), until_ms).pair

    def add_partitions(
        self, transactional_id: str, pair: ProducerPair, places: Sequence[TopicPartitions], until_ms: int
    ) -> None:
        """Add partitions to the transaction, which begins with the first addition. Partitions in it cost no write.

        Raises:
            InvalidProducerIdMappingError, ProducerFencedError: The producer must stop.
            InvalidRequestError: The transaction would name too much. Nothing was added.
        """
        self._carry_out(transactional_id, Add(pair, places=places), until_ms)

    def add_group(self, transactional_id: str, pair: ProducerPair, group: str, until_ms: int) -> None:
        """Add a group, whose offsets may then be sent; see ``add_partitions``."""
        self._carry_out(transactional_id, Add(pair, groups=(group,)), until_ms)

    def ongoing(self, transactional_id: str, pair: ProducerPair, group: str, until_ms: int) -> TransactionItem:
        """Return the transaction, to which offsets of ``group`` may be sent on the version that was read.

        Raises:
            InvalidProducerIdMappingError, ProducerFencedError: The producer must stop.
            InvalidTxnStateError: No transaction is ongoing, or the group is not part of it.
        """
        return self._carry_out(transactional_id, Send(pair, group), until_ms)

    def extend(self, transactional_id: str, pair: ProducerPair, timeout_ms: int, until_ms: int) -> int:
        """Let no time-out of the ongoing transaction be due before ``timeout_ms`` from now; return until when, in ms.

        The time only moves later. No outcome depends on it, because a wrong clock only tries a time-out early (I9).

        Raises:
            InvalidProducerIdMappingError, ProducerFencedError: The producer must stop.
            InvalidTxnStateError: No transaction is ongoing.
        """
        expires_at = self._carry_out(transactional_id, Extend(pair, timeout_ms), until_ms).expires_at
        assert expires_at is not None
        return expires_at

    def fence(self, transactional_id: str, until_ms: int) -> tuple[TransactionItem, TransactionItem]:
        """Abort the ongoing transaction, fence the producer, forget the principal; return the items before and after.

        An operator requests it, so no principal is checked. Repeated, it fences the producer that has the id by then.

        Raises:
            TransactionalIdNotFoundError: No transaction has the id.
        """
        met: list[TransactionItem] = []
        fenced = self._carry_out(transactional_id, Fence(), until_ms, met)
        return fence_met(met, fenced), fenced

    def get(self, transactional_id: str, until_ms: int) -> TransactionItem:
        """Return the transaction, after ending it if that is due. One that cannot be ended now is returned as it is.

        Raises:
            TransactionalIdNotFoundError: No transaction has the id.
        """
        try:
            return self._carry_out(transactional_id, Meet(), until_ms)
        except (ConcurrentTransactionsError, CorruptLogError):
            attempts = Attempts(self._context.runtime, _WHAT)
            found = attempts.until_done(lambda: item_store.read(self._context, transactional_id))
            if found is None:
                raise
            return found

    def _carry_out(
        self, transactional_id: str, request: Request, until_ms: int, met: list[TransactionItem] | None = None
    ) -> TransactionItem:
        """Decide, finish the item if it is prepared then, and judge again, until the request has its answer."""
        is_behind_decision = False
        while True:
            try:
                decision = self._decide(transactional_id, request, met)
            except (StoreUnavailableError, ContendedError) as error:
                if is_behind_decision:
                    raise unfinished(error.detail) from error
                raise
            item = decision.item
            if item.is_prepared:
                is_behind_decision = True
                item = finish(self._partitions, item, until_ms)
            if decision.is_answer:
                return item
            if self._context.runtime.monotonic_ms() >= until_ms:
                raise unfinished("other requests go on with it")

    def _decide(self, transactional_id: str, request: Request, met: list[TransactionItem] | None) -> Decision:
        """Decide and write, again where another request was faster, or where the store did not answer.

        After an unanswered write the item is read again. A refusal is final, because it says that the pair is not in
        force, so that the earlier attempt had no effect.
        """
        attempts = Attempts(self._context.runtime, _WHAT, is_refusal_final=True)
        try:
            return attempts.until_done(
                lambda: item_store.act(
                    self._context, transactional_id, request, self._take_producer_id, self._principal, met
                )
            )
        except (StoreUnavailableError, ContendedError) as error:
            if not attempts.is_unknown:
                raise
            # No new producer id can be had, which says nothing of the earlier attempt.
            raise OutcomeUnknownError(
                f"the store did not answer, and may have changed {_WHAT}; send the same request again: {error.detail}"
            ) from error


def fence_met(judged: Sequence[TransactionItem], fenced: TransactionItem) -> TransactionItem:
    """Return the item that a fence found: of all items that it judged, the last one that it had not written itself.

    With an earlier one its write lost the race. An item with the pair of ``fenced`` is its own, by a write that was not
    answered, or was fenced before. An item that was found prepared has been finished.
    """
    others = [item for item in judged if item.pair != fenced.pair] or judged[:1]
    if len(others) > 1 and others[-2].is_prepared and others[-1].state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        return others[-2]
    return others[-1]


_WHAT = "the transaction"
