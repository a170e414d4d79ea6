"""Records a run of transactions for Transaction: writes of its item and of a cursor, batches and markers, and answers.

Limits: one transactional id, one partition, one group. A batch that joins what is open is no line. Neither is a write
that changes nothing of what the model knows. Judging and admissions are not recorded: a line says what came of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

from fenceline.errors import FencelineError
from fenceline.format.control import ABORT, COMMIT, parse_marker
from fenceline.log.state import PartitionState, apply_batch
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT, ProducerPair
from fenceline.ports import Change, Delete, Item, Put
from fenceline.transactions.item import TransactionItem, transaction_from_item
from models.traces import Event, Recording
from tests.models.recorders.playing import Guard, add_processes, new_run, playing
from tests.simulation.harness.real import segment_of
from tests.simulation.harness.scenario import StoreRun
from tests.simulation.harness.stores import Faults
from tests.simulation.harness.world import NoReply
from tests.simulation.transactions import clients, rivals, test_guards
from tests.simulation.transactions.clients import INPUT, OFFSET_MAX, Stage
from tests.simulation.transactions.requests import TOPIC, Asking, Ending
from tests.simulation.transactions.scenario import TransactionPlan

WITHOUT: Mapping[str, Guard] = {
    "admit before the create": test_guards.admits_without_asking,
    "a higher epoch refuses, lapsed or not": test_guards.forgets_the_epoch_of_what_lapsed,
    "a new state voids an admission": test_guards.admits_for_ever,
    "decide on the version that was read": test_guards.writes_over_another_decision,
    "an unknown producer's marker reads the item": test_guards.appends_a_marker_without_a_read,
    "Complete after the cursors": test_guards.completes_before_the_cursors,
    "the item in the write of an offset": test_guards.sends_offsets_beside_the_item,
    "the later commit stays": test_guards.settles_in_the_order_of_the_ends,
}
PLACE = "p0"  # the partition, in the model's words
ID = "id0"
PRODUCERS = 3
ROUNDS = 2
COMMITS = 2
NONE = -1
TIMEOUTS_MS = (500, 3_000)
PATIENCE_MS = 20_000
FREEZES_MS = (3_000, 20_000, 90_000)


def record(seed: int, without: str = "") -> Recording:
    """Play one seed, with one guard of the code switched off if it is named, and return what the model knows of it."""
    plan = _plan(Random(f"trace {seed}"))
    run = new_run(seed, plan)
    lines = Lines(run)
    run.items.on_write, run.objects.on_create = lines.wrote, lines.created
    with playing(run, WITHOUT[without] if without else None) as patch:
        lines.observe(patch)
        _play(run, plan)
    return Recording("Transaction", lines.events)


def _plan(rng: Random) -> TransactionPlan:
    faults = Faults(
        answer_lost=0.03,
        slow=0.03,
        freeze=0.01,
        freeze_at_append=0.2,
        freeze_ms=rng.choice(FREEZES_MS),
        lands_after_ms_max=10_000,
    )
    return TransactionPlan(
        processes=3,
        partitions=1,
        rounds=ROUNDS,
        casts=(),
        faults=faults,
        patience_ms=PATIENCE_MS,
        checkpoint_segments=rng.choice((1, 16)),
        timeouts_ms=TIMEOUTS_MS,
        expiration_ms=rng.choice((1, 86_400_000)),
        lapse_margin_ms=1_000,
        skew_ms=0,
    )


@dataclass
class Lines:
    """What happened so far, in the model's words."""

    run: StoreRun[TransactionPlan]
    events: list[Event] = field(default_factory=list)
    item: Event = field(default_factory=lambda: _item(TransactionItem(ID, 0, 0, "Empty", 1)))
    cursor: Event = field(default_factory=lambda: _cursor({}))
    state: PartitionState = field(default_factory=PartitionState)

    def observe(self, patch: pytest.MonkeyPatch) -> None:
        """Note the answers to id requests and ends: the pair, in the process that gives it."""
        end, ask = Ending.made, Asking.made

        def end_noted(ending: Ending, log: Any) -> Any:
            pair = end(ending, log)
            kind = "commit" if ending.is_commit else "abort"
            self.add("ended", of=ending.pair.producer_epoch, kind=kind, epoch=pair.producer_epoch)
            return pair

        def ask_noted(asking: Asking, log: Any) -> Any:
            pair: ProducerPair = ask(asking, log)
            self.add("given", to=asking.instance, epoch=pair.producer_epoch)
            return pair

        patch.setattr(Ending, "made", end_noted)
        patch.setattr(Asking, "made", ask_noted)

    def add(self, event: str, **told: Any) -> None:
        self.events.append({"event": event, **told})

    def wrote(self, changes: Sequence[Change]) -> None:
        item, cursor = self.item, self.cursor
        for change in changes:
            if isinstance(change, Put) and change.key.partition.startswith("transactions/"):
                item = _item(transaction_from_item(Item(change.key, change.version, change.value)))
            elif isinstance(change, Put) and change.key.partition.startswith("cursors/"):
                cursor = _cursor(change.value)
            elif isinstance(change, Delete) and change.key.sort.startswith("producer/"):
                self.add("forgotten")
        if item != self.item or cursor != self.cursor:
            self.add("wrote", item=item, cursor=cursor)
        self.item, self.cursor = item, cursor

    def created(self, key: str) -> None:
        if not key.startswith("log/"):
            return
        segment = segment_of(self.run.objects.created[-1])
        for position, header in segment.batches:
            opened = self.state.open_transactions.get(header.producer_id)
            if header.is_control:
                marker = parse_marker(segment.body, position, header)
                if marker.type in (ABORT, COMMIT):
                    kind = "commit" if marker.type == COMMIT else "abort"
                    self.add("marker", kind=kind, epoch=header.producer_epoch)
            elif header.is_transactional and (opened is None or opened.producer_epoch != header.producer_epoch):
                self.add("batch", epoch=header.producer_epoch)
            self.state = apply_batch(
                self.state, header, segment.body, position, metadata=segment.metadata, region=segment.metadata.origin
            ).state


def _epoch(pair: ProducerPair | None) -> int:
    return NONE if pair is None else pair.producer_epoch


def _item(item: TransactionItem) -> Event:
    is_decided = item.state not in ("Empty", ONGOING)
    outcome = "commit" if item.state in (PREPARE_COMMIT, COMPLETE_COMMIT) else "abort"
    return {
        "state": item.state.removesuffix("Commit").removesuffix("Abort"),
        "epoch": item.producer_epoch,
        "result": outcome if is_decided else "none",
        "named": frozenset({PLACE} if item.partitions else ()),
        "cursor": bool(item.cursors),
        "ended": _epoch(item.ended),
        "kept": _epoch(item.kept),
        "fenced": item.is_fenced,
    }


def _cursor(value: Mapping[str, Any]) -> Event:
    """Return a cursor as a line has it: what is pending is a tuple of one, or of none."""
    pending = tuple({"epoch": epoch, "number": number} for epoch, number, *_ in value.get("pending", {}).values())
    return {"sent": value.get("sent", 0), "settled": value.get("settled", 0), "pending": pending}


def _commit_at_once(stage: Stage, name: str) -> None:
    """Commit offsets of the group beside those that are pending."""
    for _ in range(COMMITS):
        stage.world.sleep(stage.rng.random() * 3_000)
        offset = CommittedOffset(TOPIC, INPUT, int(stage.rng.random() * OFFSET_MAX), stage.fresh(name))
        with suppress(FencelineError, NoReply):
            stage.tell(name, "commit", offset, partial(rivals._commit, [offset]))


def _play(run: StoreRun[TransactionPlan], plan: TransactionPlan) -> None:
    add_processes(run)
    stage = Stage(
        run.world,
        run.history,
        run.processes,
        PATIENCE_MS,
        ROUNDS,
        partitions=1,
        timeouts_ms=TIMEOUTS_MS,
        has_rivals=True,
    )
    config = {"producer.id.expiration.ms": plan.expiration_ms}
    run.do(lambda: stage.tell("setup", "create", config, lambda log: log.topics.create(TOPIC, config=config)))
    run.faults = plan.faults
    producers = [partial(clients.transact, stage, f"producer{number}", ID) for number in range(PRODUCERS)]
    run.do(*producers, partial(_commit_at_once, stage, "committer"), partial(rivals.sweep_all, stage, "sweeper"))
