"""The crash matrix: whichever process dies at whichever call of a store or a peer, the next operation mends it.

Protocol: DESIGN.md, "What a crash leaves".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fenceline.access import fence_markers
from fenceline.access.claims.claim import Claiming
from fenceline.access.ownership import own
from fenceline.append import checks
from fenceline.append.appender import Appender
from fenceline.append.coordinator_answer import AskCoordinator
from fenceline.append.queue import Group
from fenceline.errors import AlreadyCommittedError, FencelineError, ProducerFencedError
from fenceline.format.segment import parse_segment
from fenceline.log import checkpoint
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.recovery.open_transactions import OpenTransactions
from fenceline.transactions import decide, decide_ends, finish
from fenceline.transactions.ends import JointCoordinator
from tests.simulation.crash import operations
from tests.simulation.crash.matrix import ALL_OPERATIONS, Strike, deaths_behind_writes, run_all, run_writes, table
from tests.simulation.crash.operations import Operation
from tests.simulation.crash.rows import LAST_WRITE, NOT_SERVED, ROWS, rows_of_design
from tests.simulation.crash.scene import Died, Fate, Process, Scene

pytestmark = pytest.mark.slow

BY_NAME = {operation.name: operation for operation in ALL_OPERATIONS}
READS = ("read", "look up", "look at regions")


@pytest.mark.parametrize("name", BY_NAME)
def test_a_death_at_any_write_is_mended_by_the_next_operation(name: str) -> None:
    """Nothing acknowledged is lost, doubled or moved; items agree with the state; the objects alone give the same.

    Rows of the design account for all that was left behind.
    """
    strikes = list(run_writes(BY_NAME[name]))
    assert (strikes == []) == (name in READS)
    check_left(strikes)


@pytest.mark.prove
@pytest.mark.parametrize("name", BY_NAME)
def test_a_death_at_any_store_call_is_mended_by_the_next_operation(name: str) -> None:
    """The same at reads, too. A death there leaves what the write before it has left."""
    strikes = list(run_all(BY_NAME[name]))
    assert {strike.at for strike in strikes} == set(range(1 + max(strike.at for strike in strikes)))
    check_left(strikes)


def check_left(strikes: Sequence[Strike]) -> None:
    """Check that rows account for what each death left, and that a death before a call leaves what one behind did."""
    by_fate = {(strike.at, strike.fate): strike for strike in strikes}
    behind: Strike | None = None  # the last death after a call
    for at in sorted({strike.at for strike in strikes}):
        assert (at, Fate.LOSES_ANSWER) in by_fate
        before, after = by_fate[at, Fate.DIES_BEFORE], by_fate[at, Fate.DIES_AFTER]
        assert (before.unexplained, after.unexplained) == (frozenset(), frozenset()), (at, after.call)
        # The printed table has only the deaths after a call.
        if behind is not None:
            assert before.left == behind.left, (at, after.call)
        behind = after


def test_every_row_of_the_design_that_is_served_is_seen_and_every_one_seen_is_there() -> None:
    served = {row for row in rows_of_design() if NOT_SERVED not in row}
    assert served == {*ROWS, LAST_WRITE}
    seen = {name: [strike.left for strike in deaths_behind_writes(BY_NAME[name])] for name in BY_NAME}
    assert {row for lefts in seen.values() for left in lefts for row in left} == served
    assert [seen[name] for name in READS] == [[], [], []], "reads leave nothing behind"


def test_the_matrix_is_printed_by_operation_and_call() -> None:
    operation = BY_NAME["append, warm"]
    title, line = table(operation, list(run_all(operation)))
    assert title == "append, warm: each death is mended by the next append"
    assert line.startswith("    1 create segment ")
    assert line.endswith(
        "before the acknowledgement: a segment, complete; a create, before the checkpoint: an old checkpoint"
    )


# The matrix itself can fail: each of these breaks one thing that the matrix must find.


def broken(do: Callable[[Scene, Process], object], **changes: Any) -> Operation:
    return Operation("broken", operations.cold, do, {"a read": operations.read}, **changes)


def test_an_answer_before_the_commit_is_found() -> None:
    def append_without_telling(scene: Scene, process: Process) -> None:
        request = operations.GROUP[0]
        # Its calls are not those of the process that dies.
        log = scene.process().log
        answer = log.append("orders", 0, request)
        assert answer is not None
        scene.note("orders", 0, request, answer)
        [key] = [key for key in scene.stored() if key.endswith(f"{3:020d}.log")]
        process.context.objects.delete(key)

    with pytest.raises(AssertionError, match="acknowledged records are missing"):
        list(run_writes(broken(append_without_telling)))


def test_a_record_that_stands_twice_is_found() -> None:
    def append_twice(scene: Scene, process: Process) -> None:
        scene.append(process, "orders", 0, "twice")

    operation = Operation("broken", operations.warm, append_twice, {"the same again": append_twice})
    with pytest.raises(AssertionError, match="is there twice"):
        list(run_writes(operation))


def test_a_change_that_no_row_tells_of_is_found() -> None:
    def leave_something(scene: Scene, process: Process) -> None:
        process.context.objects.create("elsewhere/forgotten", b"x", {})
        process.context.objects.create("elsewhere/forgotten too", b"x", {})

    strikes = list(run_writes(broken(leave_something)))
    assert {key for strike in strikes for key in strike.unexplained} == {"elsewhere/forgotten"}


def test_a_lost_answer_that_is_taken_for_a_rivals_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Appender, "_meet", _meet_without_write_id)
    with pytest.raises(AssertionError, match="is there twice"):
        list(run_writes(BY_NAME["append, cold"]))


def _meet_without_write_id(self: Appender, group: Group, key: str, *, was_unknown: bool) -> None:
    found = parse_segment(self._context.objects.get(key))
    self._dissolve(group)
    self.partition.fold(found)


def test_an_append_that_leans_on_a_topic_without_its_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fenceline.log.topics.make_object", lambda context, item: item)
    with pytest.raises(AssertionError, match="no topic of the name orders"):
        list(run_writes(BY_NAME["append to a topic without its object"]))


def test_a_checkpoint_that_writes_its_head_first_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    head_step = checkpoint._head_step

    def at_once(partition: Partition, state: PartitionState) -> checkpoint._Step:
        step = head_step(partition, state)
        change = step.anew(partition.context.items.get([step.key]).get(step.key))
        if change is not None:
            partition.context.items.write([change])
        return checkpoint._Step(step.key, lambda: None, lambda item: None)

    monkeypatch.setattr(checkpoint, "_head_step", at_once)
    with pytest.raises(AssertionError, match=r"a batch was stored twice|ahead of a producer"):
        list(run_writes(BY_NAME["checkpoint of many producers"]))


def test_an_owner_who_is_told_before_the_severed_session_is_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.OwnAttempt, "finish_fences", lambda self: None)
    # Otherwise the repeated request makes up for it.
    monkeypatch.setattr(fence_markers, "meet", lambda *_: None)
    with pytest.raises(AssertionError):
        list(run_writes(BY_NAME["own a lock, severing"]))


def test_a_grant_without_its_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claiming, "_append_markers", lambda self, topic, pending, until_ms: {0: 3, 1: 2})
    with pytest.raises((AssertionError, ProducerFencedError)):
        list(run_writes(BY_NAME["claim"]))


def test_an_end_that_is_complete_before_its_markers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = finish._make

    def early(context: Any, kinds: Any, until_ms: int) -> Any:
        made(context, [kinds[0][:1], kinds[1]], until_ms)
        return []

    monkeypatch.setattr(finish, "_make", early)
    with pytest.raises(AssertionError):
        list(run_writes(BY_NAME["end: commit"]))


def test_a_decision_that_its_own_repeat_does_not_find_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = decide._end
    monkeypatch.setattr(decide, "_end", lambda item, *told: ended(item and replace(item, ended=None), *told))
    with pytest.raises((AssertionError, ProducerFencedError)):
        list(run_writes(BY_NAME["end: commit"]))


def test_members_that_are_decided_one_after_another_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = JointCoordinator._write

    def write(self: JointCoordinator, decision: Any) -> Any:
        alone = [wrote(self, replace(decision, members=[one], once=None)).members[0] for one in decision.members]
        if decision.once is not None:
            wrote(self, replace(decision, members=[]))
        return replace(decision, members=alone, once=None)

    monkeypatch.setattr(JointCoordinator, "_write", write)
    with pytest.raises((AssertionError, FencelineError)):
        list(run_writes(BY_NAME["end of several: commit"]))


def test_an_end_of_several_that_its_own_repeat_does_not_find_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_ends, "_is_ended", lambda seen, member: False)
    with pytest.raises(AlreadyCommittedError):
        list(run_writes(BY_NAME["end of several: commit"]))


def test_a_version_that_is_raised_apart_from_its_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = JointCoordinator._write

    def write(self: JointCoordinator, decision: Any) -> Any:
        if decision.once is not None:
            wrote(self, replace(decision, members=[]))
        return wrote(self, replace(decision, once=None))

    monkeypatch.setattr(JointCoordinator, "_write", write)
    with pytest.raises((AssertionError, FencelineError)):
        list(run_writes(BY_NAME["end of several: commit"]))


def test_a_rebuild_that_aborts_what_was_shown_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenTransactions, "note_commits", lambda *_: None)
    with pytest.raises(AssertionError, match="torn apart"):
        list(run_writes(BY_NAME["rebuild with transactions"]))


def test_a_late_batch_that_no_admission_precedes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = checks._check_transaction

    def hasty(*told: Any) -> Any:
        verdict = judged(*told)
        return None if isinstance(verdict, AskCoordinator) else verdict

    monkeypatch.setattr(checks, "_check_transaction", hasty)
    with pytest.raises(AssertionError):
        list(run_writes(BY_NAME["transactional append"]))


def test_a_call_that_a_dead_process_makes_reaches_no_store() -> None:
    scene = Scene()
    process = operations.cold(scene)
    process.arm(Fate.DIES_BEFORE, 0)
    before = scene.stored()
    for _ in range(2):
        with pytest.raises(Died):
            scene.append(process, "orders", 0, "never")
    assert scene.stored() == before
    assert process.calls == ["get item topics"]
    scene.close()
