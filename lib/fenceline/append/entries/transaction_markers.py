"""COMMIT and ABORT as entries of the queue. The end of a transaction appends one to each partition that it names.

Rule: a marker is checked at exactly the offset that it would get, and without lapses. The marker is appended where its
producer has an open transaction below the marker's epoch, and is done where the log has reached that epoch. Elsewhere
the coordinator decides: the marker is appended only while the transaction is still prepared with this epoch
("Ending a transaction").

Rule: that a marker is done without an append is answered from a verified tail only (I4), because a process that was
frozen may have folded its own late create below the log start.

Not here: which partitions a transaction names, and what follows once each has its marker; see ``transactions``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.append.entries.entry import Entry, Marked, StoredBatch
from fenceline.format import control
from fenceline.format.batch import parse_header
from fenceline.log.state import TentativeState


@dataclass(frozen=True, slots=True)
class EndEntry(Entry):
    """The marker that ends a producer's transaction.

    Args:
        producer_epoch: The bumped epoch (KIP-890).
        prepared: The coordinator's answer that the transaction is prepared with this epoch; ``None`` before it was
            asked.
    """

    producer_id: int = field()  # else the base's property would be its default
    producer_epoch: int
    is_commit: bool
    prepared: CoordinatorAnswer | None = None

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Marked | AskCoordinator:
        """Return the marker as it would be stored, ``Marked`` if it is done, or the question to the coordinator."""
        state = tentative.state
        opened = state.open_transactions.get(self.producer_id)
        if opened is not None:
            # I12: the transaction's item is prepared with this epoch until its marker is durable here.
            is_due = opened.producer_epoch < self.producer_epoch
            return self._stamped(tentative, now_ms) if is_due else Marked(state.next_offset)
        known = tentative.producers.get(self.producer_id)
        if known is not None and known.producer_epoch >= self.producer_epoch:
            return Marked(state.next_offset)  # it is in the log already, or a later one is
        # Once the producer's item has expired, the state may have forgotten a later marker of the producer, behind
        # which this marker would lower the producer's epoch (I12).
        # model: Transaction, "an unknown producer's marker reads the item"
        if self.prepared is None or not self.prepared.holds(tentative.producers_dropped):
            return AskCoordinator(tentative.producers_dropped)
        # model: Transaction, "a marker where nothing is open, too"
        return self._stamped(tentative, now_ms)

    def _stamped(self, tentative: TentativeState, now_ms: int) -> StoredBatch:
        state = tentative.state
        body = control.encode_transaction_marker(
            self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_offset=state.next_offset,
            leader_epoch=state.topic_epoch,
            now_ms=now_ms,
        )
        return StoredBatch(body, parse_header(body), Marked(state.next_offset))
