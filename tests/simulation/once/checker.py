"""Judges a history of drivers: each batch once, whole and from one run, and each answer true at some moment.

Rule: shown rows are compared with raised versions. A version that was raised shows each of its rows once, and a run
that raised nothing shows none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fenceline.model.transaction import TransactionMember as Member
from fenceline.transactions.item import TransactionItem
from tests.simulation.harness.history import Operation
from tests.simulation.harness.world import EPOCH_MS
from tests.simulation.log.truth import Violation
from tests.simulation.once.clients import Stage
from tests.simulation.once.others import SHARED
from tests.simulation.once.requests import Closing, Once
from tests.simulation.once.truth import OnceTruth
from tests.simulation.transactions.checker import (
    CODES,
    _check_end,
    _check_pairs,
    _check_read,
    _check_repeats,
    _check_transaction,
    _found,
)
from tests.simulation.transactions.requests import TOPIC
from tests.simulation.transactions.truth import COMMITTED

_STORES = {"STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN"}
_REFUSED = {"INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "INVALID_TXN_STATE"}
_CODES = {
    **CODES,
    "close": {*_REFUSED, *_STORES, "CONCURRENT_TRANSACTIONS", "ALREADY_COMMITTED"},
    "extend": {*_REFUSED, *_STORES, "CONCURRENT_TRANSACTIONS"},
    "once": _STORES,
    "forget": _STORES,
    "get": {"TRANSACTIONAL_ID_NOT_FOUND", "CONCURRENT_TRANSACTIONS", *_STORES},
}


def check_all(truth: OnceTruth, operations: Sequence[Operation], stage: Stage) -> None:
    """Judge everything, after all is decided.

    Raises:
        Violation: The first promise found broken.
    """
    for operation in operations:
        if operation.code is not None and operation.code not in _CODES[operation.kind]:
            raise Violation(f"{operation}: answered {operation.code}: {operation.error}")
    found = _found(truth)
    for transaction in stage.transactions:
        _check_transaction(transaction, found)
    _check_pairs(operations)
    _check_repeats(truth, operations)
    if truth.pending():
        raise Violation(f"I14: still pending: {truth.pending()}")
    following: dict[Member, Member] = {}
    for operation in operations:
        _check_answer(truth, operations, operation, following)
    _check_batches(truth, stage, Counter(one.value for one in found.values() if one.outcome == COMMITTED))


def _check_answer(
    truth: OnceTruth, operations: Sequence[Operation], operation: Operation, following: dict[Member, Member]
) -> None:
    if operation.kind == "close":
        _check_close(truth, operation, following)
    elif not operation.is_answered:
        return
    elif operation.kind == "read":
        _check_read(truth.logs[truth.live(TOPIC), operation.partition], operations, operation)
    elif operation.kind == "end":
        _check_end(truth, operation)
    elif operation.kind == "extend":
        _check_extended(truth, operation)
    elif operation.kind == "once":
        _check_once(truth, operation)


# Batches


def _check_batches(truth: OnceTruth, stage: Stage, shown: Counter[str]) -> None:
    """Check that each version that was raised shows all of its rows once, from the run that raised it, and no other."""
    runs: dict[Once, Counter[tuple[int, int, int]]] = {}
    for value, count in shown.items():
        if "|" in value:
            app, version, index, partition, k, run_id, _ = value.split("|")
            rows = runs.setdefault(Once(app, int(version), run_id), Counter())
            rows[int(index), int(partition), int(k)] += count
    every = [once for _, once in truth.raised if once.app_id != SHARED]
    raised = set(every)
    if runs.keys() - raised:
        raise Violation(f"shown, though their version was not raised with them: {runs.keys() - raised}")
    if len(raised) < len(every) and not truth.deleted:
        raise Violation(f"raised twice: {truth.raised}")
    for once in raised:
        expected = Counter(
            (index, partition, k)
            for index, parts in enumerate(stage.cut(once.app_id, once.version))
            for partition, count in parts
            for k in range(count)
        )
        if runs.get(once, Counter()) != expected:
            raise Violation(f"not whole: {once} shows {runs.get(once)}, expected {expected}")
    for once in stage.seen:
        if not any((one.app_id, one.version) == (once.app_id, once.version) for one in raised):
            raise Violation(f"taken for committed, but it was never raised: {once}")


# Answers


def _check_close(truth: OnceTruth, operation: Operation, following: dict[Member, Member]) -> None:
    """Check an end of several: a 200 by what was decided, a refusal by what was so at some moment."""
    request: Closing = operation.request
    if operation.is_answered:
        _check_closed(truth, operation, following)
        return
    error = operation.error
    if error is None or error.next_step not in ("fix", "stop"):
        return
    moments = truth.moments(request, operation.began, operation.ended)
    if all(_takes(truth, request, step) for step in moments):
        raise Violation(f"{operation}: refused, though it was right all the time: {error}")
    if error.code == "ALREADY_COMMITTED":
        assert request.once is not None
        stored = Once(request.once.app_id, error.version, error.note)
        if error.version < request.once.version or all(
            truth.once_at(request.once.app_id, step) != stored for step in moments
        ):
            raise Violation(f"{operation}: told that {stored} is stored, which it never was")
        truth.met.add("committed before" if stored.note != request.once.note else "committed by itself before")
    else:
        if all(_is_committed(truth, request, step) for step in moments):
            raise Violation(f"{operation}: a member was blamed, though the version was committed: {error}")
        blamed = [
            one
            for one in request.members
            if one.transactional_id == error.extra.get("transactional_id", one.transactional_id)
        ]
        if all(_is_alright(truth, request, one, step) for one in blamed for step in moments):
            raise Violation(f"{operation}: {blamed} was right all the time: {error}")


def _check_closed(truth: OnceTruth, operation: Operation, following: dict[Member, Member]) -> None:
    request: Closing = operation.request
    if all(_has_nothing(truth, request, step) for step in truth.moments(request, operation.began, operation.ended)):
        raise Violation(f"{operation}: answered as if it had ended something")
    for member, pair in zip(request.members, operation.answer, strict=True):
        decided = truth.decisions.get(member.pair)
        was_idle = any(truth.is_idle(member, step) for step in truth.moments(request, operation.began, operation.ended))
        if decided is not None and decided != request.is_commit and not was_idle:
            raise Violation(f"{operation}: told one outcome, decided was the other: {member}")
        if decided is None and not was_idle:
            raise Violation(f"{operation}: told that it is ended, but nothing was decided: {member}")
        if decided is not None and not was_idle:
            item = truth.item_at(member.transactional_id, operation.ended)
            if item is not None and item.is_prepared and item.ended == member.pair:
                raise Violation(f"{operation}: told before it was finished: {item}")
            given = following.setdefault(member, Member(member.transactional_id, pair))
            if given.pair != pair:
                raise Violation(f"{operation}: answered {pair}, before that {given}")
    once = request.once
    # A repeat is answered as one where a higher version is stored, too, whatever ended its members.
    if (
        once is not None
        and not _is_repeat(truth, request, operation.began)
        and not any(
            (one.app_id, one.version) == (once.app_id, once.version) and step <= operation.ended
            for step, one in truth.raised
        )
    ):
        raise Violation(f"{operation}: told that it is committed, but the version was never raised")


def _takes(truth: OnceTruth, request: Closing, step: int) -> bool:
    """Return True if the request had to be taken, or answered again, at this moment."""
    if _is_repeat(truth, request, step):
        return True
    if _is_committed(truth, request, step):
        return False
    ongoing = [one for one in request.members if _is_ongoing(truth.item_at(one.transactional_id, step), one)]
    idle = [one for one in request.members if truth.is_idle(one, step) and not request.is_single]
    return len(ongoing) + len(idle) == len(request.members) and bool(ongoing or request.once)


def _is_committed(truth: OnceTruth, request: Closing, step: int) -> bool:
    """Return True if the version, or a higher one, was stored at this moment."""
    stored = None if request.once is None else truth.once_at(request.once.app_id, step)
    return request.once is not None and stored is not None and request.once.version <= stored.version


def _is_repeat(truth: OnceTruth, request: Closing, step: int) -> bool:
    if request.once is not None and not _is_committed(truth, request, step):
        return False
    ended = [one for one in request.members if _is_ended(truth.item_at(one.transactional_id, step), one, request)]
    return bool(ended) and all(one in ended or truth.is_idle(one, step) for one in request.members)


def _is_alright(truth: OnceTruth, request: Closing, member: Member, step: int) -> bool:
    """Return True if nothing was wrong with this member, neither by itself nor beside the others."""
    item = truth.item_at(member.transactional_id, step)
    is_apart = _is_ended(item, member, request) and not _is_repeat(truth, request, step)
    is_taken = _is_ongoing(item, member) or _is_ended(item, member, request)
    is_idle = truth.is_idle(member, step) and not request.is_single and not _has_nothing(truth, request, step)
    return (is_taken or is_idle) and not is_apart


def _has_nothing(truth: OnceTruth, request: Closing, step: int) -> bool:
    """Return True if there was nothing to end, and no version to raise."""
    return request.once is None and all(truth.is_idle(one, step) for one in request.members)


def _is_ongoing(item: TransactionItem | None, member: Member) -> bool:
    return item is not None and item.state == "Ongoing" and item.pair == member.pair


def _is_ended(item: TransactionItem | None, member: Member, request: Closing) -> bool:
    is_same = item is not None and request.is_commit == (item.state in ("PrepareCommit", "CompleteCommit"))
    return item is not None and item.ended == member.pair and is_same


def _check_extended(truth: OnceTruth, operation: Operation) -> None:
    """Check that the answer is stored, and is as long as was asked for, by a clock that may be behind."""
    request, expires_at = operation.request, operation.answer
    items = truth.items_between(request.transactional_id, operation.began, operation.ended)
    stored = [one for one in items if one is not None and one.pair == request.pair and one.expires_at == expires_at]
    if not stored:
        raise Violation(f"{operation}: told {expires_at}, stored is {items[-1]}")
    if expires_at < EPOCH_MS + operation.began_ms + request.timeout_ms - truth._skew_ms - 1:
        raise Violation(f"{operation}: shorter than it was asked for: {expires_at}")


def _check_once(truth: OnceTruth, operation: Operation) -> None:
    app: str = operation.request
    request = Closing((), True, Once(app, 0, ""))
    answered = (operation.answer.version, operation.answer.note)
    every = [truth.once_at(app, step) for step in truth.moments(request, operation.began, operation.ended)]
    if answered not in [(-1, None) if one is None else (one.version, one.note) for one in every]:
        raise Violation(f"{operation}: told {answered}, stored was {every}")
