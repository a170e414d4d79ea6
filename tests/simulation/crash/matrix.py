"""The crash matrix: for every call of a store or a peer, the process dies before it, in it and after it.

Each cell begins from the same set-up. A row of the table in the protocol, "What a crash leaves", must account for what
the dead process changed. Then a new process does the mending operation, and everything that was promised must hold.

``python -m tests.simulation.crash.matrix`` prints it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from fenceline import limits
from fenceline.errors import FencelineError, OutcomeUnknownError, RetryError
from fenceline.format import keys, partitioner
from fenceline.groups import listing as group_listing
from fenceline.ports import StoreFact
from fenceline.recovery import group_findings
from fenceline.sweeper import group_expiry
from fenceline.transactions import expiry, listing
from tests.simulation.crash import checks
from tests.simulation.crash.access_operations import ACCESS_OPERATIONS
from tests.simulation.crash.group_operations import GROUP_OPERATIONS
from tests.simulation.crash.once_operations import ONCE_OPERATIONS
from tests.simulation.crash.operations import OPERATIONS, Operation
from tests.simulation.crash.region_operations import REGION_OPERATIONS
from tests.simulation.crash.rows import Stored, explain, rows_of_design
from tests.simulation.crash.scene import Died, Fate, Process, Scene
from tests.simulation.crash.transaction_operations import TRANSACTION_OPERATIONS

MINUTE_MS = 60_000
PAUSES_MS = (MINUTE_MS, 120 * MINUTE_MS)
"""Between the death and the next process: the shortest that makes every look old, and one beyond ``gc_grace``."""

COUNTERS_OF_SHARDS = (partitioner, keys, expiry, listing, group_expiry, group_findings, group_listing)
"""Each module that has the count by name. A first import while the count is small would keep it for ever."""

Mends = Sequence[tuple[str, int]]  # names of operations that mend, each after a pause

ALL_OPERATIONS = [
    *OPERATIONS,
    *ACCESS_OPERATIONS,
    *TRANSACTION_OPERATIONS,
    *ONCE_OPERATIONS,
    *REGION_OPERATIONS,
    *GROUP_OPERATIONS,
]


@dataclass(frozen=True)
class Strike:
    """One fate of one call of an operation, and what it left behind."""

    operation: str
    at: int
    call: str
    fate: Fate
    left: frozenset[str]  # rows of the protocol's table, where the process died
    unexplained: frozenset[str]  # changed keys that no row accounts for


def run_all(operation: Operation) -> Iterator[Strike]:
    """Run an operation whole, and then once for each of its calls and fates, and each mend and pause.

    If two deaths left the same in the stores, one is mended for both, because a dead process leaves nothing else. A
    process that goes on mends most by itself, so only the first of the mends follows, after the shorter pause.

    Raises:
        AssertionError: Something that was promised does not hold; its notes name the cell.
    """
    return _run(operation, is_whole=True)


def run_writes(operation: Operation) -> Iterator[Strike]:
    """Do the same at the calls that change something; only the first of the mends precedes a late landing.

    Deaths at writes leave all that any death can, because a death at a read leaves what the write before it has left.
    """
    return _run(operation, is_whole=False)


def _run(operation: Operation, *, is_whole: bool) -> Iterator[Strike]:
    with _few(operation):
        calls, writes = _whole(operation)
        mended: set[str] = set()
        for at, call in enumerate(calls):
            for fate in Fate:
                if at not in writes and (fate is Fate.LANDS_LATE or not is_whole):
                    continue
                try:
                    yield _strike(operation, at, call, fate, writes, mended, _mends(operation, fate, is_whole=is_whole))
                except (AssertionError, FencelineError) as error:
                    error.add_note(f"{operation.name}: call {at + 1} of {len(calls)}, {call}: {fate.value}")
                    raise


def deaths_behind_writes(operation: Operation) -> Iterator[Strike]:
    """Let the process die after each call that changes something, and mend nothing: all that can be left behind."""
    with _few(operation):
        calls, writes = _whole(operation)
        for at in writes:
            yield _strike(operation, at, calls[at], Fate.DIES_AFTER, writes, set(), [])


@contextmanager
def _few(operation: Operation) -> Iterator[None]:
    """Let few items go in one transaction, and coordinators have few shards, each of which a sweep asks for."""
    with ExitStack() as patched:
        patched.enter_context(patch.object(limits, "TRANSACTION_ITEMS_MAX", operation.items_at_once))
        for module in COUNTERS_OF_SHARDS:
            patched.enter_context(patch.object(module, "COORDINATOR_SHARDS", 2))
        yield


def _whole(operation: Operation) -> tuple[list[str], list[int]]:
    with closing(Scene()) as scene:
        process = operation.set_up(scene)
        process.arm(None, -1)
        operation.do(scene, process)
        calls, writes = list(process.calls), list(process.writes)
        _check(scene)
        return calls, writes


def _mends(operation: Operation, fate: Fate, *, is_whole: bool) -> Mends:
    """Return the mends that follow a fate: the name of each, after a pause."""
    mends = [(name, pause_ms) for name in operation.mends for pause_ms in PAUSES_MS]
    if fate is Fate.LOSES_ANSWER:
        return mends[:1]
    return mends if is_whole or fate is not Fate.LANDS_LATE else mends[: len(PAUSES_MS)]


def _strike(
    operation: Operation, at: int, call: str, fate: Fate, writes: list[int], mended: set[str], mends: Mends
) -> Strike:
    """Return the changes that a fate left, after each of ``mends`` has mended them, unless they are among
    ``mended``."""
    with ExitStack() as opened:
        scene, victim, before = _struck(operation, at, call, fate, opened)
        left = scene.stored()
        rows: set[str] = set()
        unexplained: set[str] = set()
        if fate.is_death:
            done = [write for write in writes if write < at + (fate is Fate.DIES_AFTER)]
            rows, unexplained = explain(before, left, is_all_written=done == writes)
        same = repr((sorted(left.items()), victim.late is None or at)) if fate.is_death else f"{at}"
        if mends and same not in mended:
            mended.add(same)
            checks.check_rebuilt(scene)
            for name, pause_ms in mends:
                if scene.is_closed:
                    scene, victim, _ = _struck(operation, at, call, fate, opened)
                _mend(operation, scene, victim, fate, name, pause_ms)
                scene.close()
    return Strike(operation.name, at, call, fate, frozenset(rows), frozenset(unexplained))


def _struck(operation: Operation, at: int, call: str, fate: Fate, opened: ExitStack) -> tuple[Scene, Process, Stored]:
    """Return the scene after the operation, which ``opened`` closes, its process, and what was stored before."""
    scene = opened.enter_context(closing(Scene()))
    victim = operation.set_up(scene)
    before = scene.stored()
    victim.arm(fate, at)
    _attempt(operation, scene, victim)
    assert victim.calls[at] == call, "the run is not the one whose calls were counted"
    return scene, victim, before


def _mend(operation: Operation, scene: Scene, victim: Process, fate: Fate, name: str, pause_ms: int) -> None:
    try:
        scene.runtime.advance(pause_ms)
        operation.mends[name](scene, scene.process())
        victim.land()
        operation.holds(scene, scene.process())
        if fate is Fate.LANDS_LATE:
            _append_to_all(scene, scene.process(), "behind what came late")
        if not victim.is_dead:
            _append_to_all(scene, victim, "by the process that went on")
        _check(scene)
    except (AssertionError, FencelineError) as error:
        error.add_note(f"mended after {pause_ms} ms by {name}")
        raise


def _attempt(operation: Operation, scene: Scene, victim: Process) -> None:
    try:
        operation.do(scene, victim)
    except Died:
        assert victim.is_dead
    except (RetryError, OutcomeUnknownError, StoreFact):
        assert not victim.is_dead  # what a lost answer may become: never a refusal
    else:
        assert not victim.is_dead, "the process died, and its client was answered"


def _append_to_all(scene: Scene, process: Process, value: str) -> None:
    """Append to every topic that a client can reach: it takes records, and is whole from then on."""
    for topic in process.log.topics.list()[0]:
        scene.append(process, topic.name, 0, value)


def _check(scene: Scene) -> None:
    checks.check_promises(scene, scene.process().log)
    checks.check_duplicates(scene, scene.process().log)
    checks.check_verified(scene)
    checks.check_rebuilt_equal(scene)


def table(operation: Operation, strikes: Sequence[Strike]) -> Iterator[str]:
    """Yield the matrix as text: each call, and what a death after it (so, before the next one) left behind."""
    design = rows_of_design()
    yield f"{operation.name}: each death is mended by {'; by '.join(operation.mends)}"
    for strike in strikes:
        if strike.fate is Fate.DIES_AFTER:
            left = "; ".join(f"{row}: {design[row][0]}" for row in sorted(strike.left)) or "nothing"
            yield f"  {strike.at + 1:3} {strike.call:32} {left}"


def main() -> int:
    count, failed = 0, []
    for operation in ALL_OPERATIONS:
        try:
            strikes = list(run_all(operation))
        except (AssertionError, FencelineError) as error:
            failed.append(operation.name)
            traceback.print_exception(error)
            continue
        count += len(strikes)
        print(*table(operation, strikes), "", sep="\n")
    print(f"{len(ALL_OPERATIONS)} operations, {count} strikes; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
