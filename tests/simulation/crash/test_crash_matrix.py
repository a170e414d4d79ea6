"""The crash matrix: whichever process dies at whichever call of a store or a peer, the next operation mends it.

Protocol, "What a crash leaves".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fenceline.access import fence_markers
from fenceline.access.claims.claim import Claiming
from fenceline.access.ownership import own
from fenceline.append import commit
from fenceline.append.group import Group
from fenceline.errors import AlreadyCommittedError, FencelineError, ProducerFencedError
from fenceline.format.segment import parse_segment
from fenceline.log import checkpoint
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.transactions.joint_end import EndCoordinator
from tests.simulation.crash import operations
from tests.simulation.crash.matrix import ALL_OPERATIONS, Strike, deaths_behind_writes, run_all, run_writes, table
from tests.simulation.crash.operations import Operation
from tests.simulation.crash.rows import LAST_WRITE, NOT_SERVED, ROWS, rows_of_design
from tests.simulation.crash.scene import Died, Fate, Process, Scene
from tests.simulation.groups import test_guards as groups
from tests.simulation.harness.guards import SwitchOff
from tests.simulation.once import test_guards as once
from tests.simulation.regions import test_guards as regions
from tests.simulation.transactions import test_guards as transactions

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


@pytest.mark.prove
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


# The matrix itself can fail. Each of these breaks one thing that the matrix must find.


def broken(do: Callable[[Scene, Process], object], **changes: Any) -> Operation:
    return Operation("broken", operations.cold, do, {"a read": operations.read}, **changes)


@pytest.mark.parametrize(
    ("guard", "operation", "found", "message"),
    [
        (transactions.completes_before_the_markers, "end: commit", AssertionError, None),
        (transactions.forgets_which_end_decided, "end: commit", (AssertionError, ProducerFencedError), None),
        (
            transactions.forgets_the_commits_in_a_rebuild,
            "rebuild with transactions",
            AssertionError,
            "torn apart",
        ),
        (transactions.admits_without_asking, "transactional append", AssertionError, None),
        (once.writes_each_member_by_itself, "end of several: commit", (AssertionError, FencelineError), None),
        (once.forgets_which_end_decided, "end of several: commit", AlreadyCommittedError, None),
        (regions.looks_at_no_cursor_later, "SNAPSHOT and UPDATE", AssertionError, "I24"),
        (groups.takes_what_another_holds, "group: target", AssertionError, "G1"),
        (groups.removes_a_member_and_leaves_its_item, "group: target", AssertionError, "G1"),
        (groups.commits_on_any_version_of_the_member, "group: commit as a member", AssertionError, "G2"),
    ],
)
def test_a_guard_of_the_simulation_is_found_by_the_matrix_too(
    monkeypatch: pytest.MonkeyPatch, guard: SwitchOff, operation: str, found: type[Exception], message: str | None
) -> None:
    guard(monkeypatch)
    with pytest.raises(found, match=message):
        list(run_writes(BY_NAME[operation]))


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


def test_a_record_that_is_in_the_log_twice_is_found() -> None:
    def append_twice(scene: Scene, process: Process) -> None:
        scene.append(process, "orders", 0, "twice")

    operation = Operation("broken", operations.warm, append_twice, {"the same again": append_twice})
    with pytest.raises(AssertionError, match="is there twice"):
        list(run_writes(operation))


def test_a_change_that_no_row_explains_is_found() -> None:
    def leave_something(scene: Scene, process: Process) -> None:
        process.context.objects.create("elsewhere/forgotten", b"x", {})
        process.context.objects.create("elsewhere/forgotten too", b"x", {})

    strikes = list(run_writes(broken(leave_something)))
    assert {key for strike in strikes for key in strike.unexplained} == {"elsewhere/forgotten"}


def test_a_lost_answer_that_is_taken_for_a_rivals_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "resolve_existing_segment", _resolve_without_write_id)
    with pytest.raises(AssertionError, match="is there twice"):
        list(run_writes(BY_NAME["append, cold"]))


def _resolve_without_write_id(partition: Partition, group: Group, *, was_unknown: bool) -> commit.Lost:
    key = partition.segment_key(group.base.next_offset)
    return commit.Lost(parse_segment(partition.context.objects.get(key)))


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


def test_an_owner_granted_before_the_severed_session_is_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.OwnAttempt, "finish_fences", lambda self: None)
    # Otherwise the repeated request makes up for it.
    monkeypatch.setattr(fence_markers, "finish_all", lambda *_: None)
    with pytest.raises(AssertionError):
        list(run_writes(BY_NAME["own a lock, severing"]))


def test_a_grant_without_its_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claiming, "_append_markers", lambda self, topic, pending, until_ms: {0: 3, 1: 2})
    with pytest.raises((AssertionError, ProducerFencedError)):
        list(run_writes(BY_NAME["claim"]))


def test_a_version_that_is_raised_apart_from_its_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = EndCoordinator._write

    def write(self: EndCoordinator, decision: Any) -> Any:
        if decision.once is not None:
            wrote(self, replace(decision, members=[]))
        return wrote(self, replace(decision, once=None))

    monkeypatch.setattr(EndCoordinator, "_write", write)
    with pytest.raises((AssertionError, FencelineError)):
        list(run_writes(BY_NAME["end of several: commit"]))


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
