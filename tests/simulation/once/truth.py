"""The truth of versions, and of transactions that end together, judged at the moment of each write.

Rule: the truth is made from the writes that were really made, and from the requests that were really sent. A write that
decides or raises something must be the whole of what one of these requests asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fenceline.model.transaction import ProducerPair
from fenceline.model.transaction import TransactionMember as Member
from fenceline.ports import Change, Delete, Item, Put
from fenceline.transactions.item import TransactionItem, transaction_from_item
from tests.simulation.harness.history import ENDLESS, History
from tests.simulation.harness.world import EPOCH_MS, World
from tests.simulation.log.truth import Violation
from tests.simulation.once.requests import Closing, Once
from tests.simulation.transactions.truth import TransactionTruth

IDLE = ("Empty", "CompleteCommit", "CompleteAbort")
ONCE = "once/"


@dataclass(frozen=True)
class Written:
    """The decision of one write: the outcome of each transactional id, and the version that it raises."""

    ended: Mapping[str, tuple[ProducerPair, bool]]
    once: Once | None


class OnceTruth(TransactionTruth):
    """The versions, beside the items of transactions and the logs.

    Args:
        skew_ms: The most by which a clock is ahead.
        is_punctual: No write lands late, so no transaction is aborted before it is due, unless by an id request.
    """

    def __init__(self, world: World, history: History, skew_ms: float, *, is_punctual: bool) -> None:
        super().__init__(world)
        self._history = history
        self._skew_ms = skew_ms
        self._is_punctual = is_punctual
        self._stored: dict[str, Once] = {}
        self._marks: dict[str, list[tuple[int, Once | None]]] = {}  # (step, what was stored), by application
        self.raised: list[tuple[int, Once]] = []
        self.deleted: list[str] = []
        self._decided_by: dict[str, str] = {}  # the process that decided, by transactional id
        self.met: set[str] = set()  # what is worth to be met by some seed

    def on_write(self, changes: Sequence[Change]) -> None:
        try:
            self._judge(changes)
        except Violation as violation:
            self._world.failures.append(violation)
        super().on_write(changes)

    def _judge(self, changes: Sequence[Change]) -> None:
        ended: dict[str, tuple[ProducerPair, bool]] = {}
        once = None
        for change in changes:
            if isinstance(change, Put) and change.key.partition.startswith("transactions/"):
                after = transaction_from_item(Item(change.key, change.version, change.value))
                self._judge_item(self._items.get(change.key), after, ended)
            elif change.key.partition.startswith(ONCE):
                once = self._take_once(change) or once
        if once is not None or len(ended) > 1 or any(self._is_of_many(*one) for one in ended.items()):
            self._judge_whole(Written(ended, once))

    def _judge_item(
        self, before: TransactionItem | None, after: TransactionItem, ended: dict[str, tuple[ProducerPair, bool]]
    ) -> None:
        was = before if before is not None and before.state == "Ongoing" else None
        if was is not None and after.is_prepared:
            if after.ended is None:
                self._judge_due(was)
            else:
                ended[after.transactional_id] = after.ended, after.is_commit
                self._decided_by[after.transactional_id] = self._process()
                if was.is_out_of_time(EPOCH_MS + int(self._world.now)):
                    self.met.add("ended by its producer, though due")
        elif (
            before is not None
            and before.is_prepared
            and self._decided_by.get(after.transactional_id) != self._process()
        ):
            self.met.add("finished by another process")
        if after.state in IDLE and after.expires_at is not None:
            raise Violation(f"I28: an extension outlives its transaction: {after}")
        if after.state == "Ongoing":
            known = 0 if was is None else was.expires_at or 0
            if (after.expires_at or 0) < known or (was is None and after.expires_at is not None):
                raise Violation(f"I28: an extension that no request asked for: {before} {after}")

    def _process(self) -> str:
        task = self._world.current
        return "" if task is None or task.process is None else task.process.name

    def _judge_due(self, before: TransactionItem) -> None:
        """Judge an abort that no END_TXN asked for: an id request did, or the time-out is due by some clock (I28)."""
        due_at = max((before.started_at or 0) + before.transaction_timeout_ms, before.expires_at or 0)
        is_due = EPOCH_MS + self._world.now + self._skew_ms >= due_at
        is_asked = any(
            one.kind == "init" and one.ended == ENDLESS and one.request.transactional_id == before.transactional_id
            for one in self._history.operations
        )
        if before.expires_at is not None:
            self.met.add("extended, and aborted by an id request" if is_asked else "extended, and due")
        if self._is_punctual and not is_due and not is_asked:
            raise Violation(f"I28: aborted before it was due: {before}")

    def _take_once(self, change: Change) -> Once | None:
        app, before = change.key.sort, self._stored.get(change.key.sort)
        marks = self._marks.setdefault(app, [])
        if isinstance(change, Delete):
            if not any(one.kind == "forget" and one.request == app for one in self._history.operations):
                raise Violation(f"I27: deleted, though no request asked for it: {before}")
            self._stored.pop(app, None)
            self.deleted.append(app)
            marks.append((self._world.step, None))
            return None
        if not isinstance(change, Put):
            return None
        once = Once(app, int(str(change.value["version"])), str(change.value["note"]))
        if before is not None and once.version <= before.version:
            raise Violation(f"I27: not raised, from {before} to {once}")
        self._stored[app] = once
        marks.append((self._world.step, once))
        self.raised.append((self._world.step, once))
        return once

    def _is_of_many(self, transactional_id: str, ended: tuple[ProducerPair, bool]) -> bool:
        """Return True if no request asked for this end by itself."""
        return not any(
            one.kind == "end"
            and (one.request.transactional_id, one.request.pair, one.request.is_commit) == (transactional_id, *ended)
            for one in self._history.operations
        )

    def _judge_whole(self, written: Written) -> None:
        """Judge that one request asked for all of it, and that the write left out nothing of that request (I26)."""
        asked = [one.request for one in self._history.operations if isinstance(one.request, Closing)]
        fitting = [one for one in asked if one.once == written.once and self._fits(one, written)]
        if not fitting:
            raise Violation(f"I26: no request asked for just this: {written}")
        if written.once is not None:
            self.met.add("raised with members" if written.ended else "raised alone")
        if len(written.ended) < len(fitting[0].members):
            self.met.add("a member is passed over")

    def _fits(self, request: Closing, written: Written) -> bool:
        ended = {member.transactional_id: (member.pair, request.is_commit) for member in request.members}
        return all(ended.get(name) == found for name, found in written.ended.items()) and all(
            member.transactional_id in written.ended
            or (not request.is_single and self.is_idle(member, self._world.step))
            for member in request.members
        )

    # The truth at a moment

    def item_at(self, transactional_id: str, step: int) -> TransactionItem | None:
        return self.items_between(transactional_id, step, step)[0]

    def once_at(self, app: str, step: int) -> Once | None:
        before = [once for at, once in self._marks.get(app, []) if at <= step]
        return before[-1] if before else None

    def is_idle(self, member: Member, step: int) -> bool:
        """Return True if the pair was in force then, and no transaction of it was under way."""
        item = self.item_at(member.transactional_id, step)
        return item is not None and item.state in IDLE and item.pair == member.pair and not item.is_fenced

    def moments(self, request: Closing, start: int, end: int) -> list[int]:
        """Return steps between which nothing changed of what a request is judged by."""
        changes = [
            *(at for member in request.members for at, _ in self._versions.get(member.transactional_id, [])),
            *(at for at, _ in self._marks.get("" if request.once is None else request.once.app_id, [])),
        ]
        return sorted({start, *(at for at in changes if start < at <= end)})
