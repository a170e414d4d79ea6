"""Judges a history of transactions: atomic, exactly once, and each answer true at some moment.

Rule: each check cites the promise that it proves (protocol, "Promises"). Unknown outcomes may go either way, but only
one way in all partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fenceline import limits
from fenceline.transactions.item import TransactionItem
from tests.simulation.harness.history import Operation, text_of
from tests.simulation.log.truth import Violation
from tests.simulation.transactions.clients import GROUP, INPUT
from tests.simulation.transactions.requests import TOPIC, Transaction
from tests.simulation.transactions.truth import ABORTED, COMMITTED, OPEN, Log, Stored, TransactionTruth

_STORES = {"STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN"}
_MACHINE = {"INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"}
_APPENDS = {"INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_TOPIC_OR_PARTITION"}
_OWNERS = {"SESSION_SEVERED", "SESSION_EXPIRED", "OWNER_FENCED"}
CODES = {
    "create": {"TOPIC_ALREADY_EXISTS", *_STORES},
    "delete": {"UNKNOWN_TOPIC_OR_PARTITION", *_STORES},
    "init": {"PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", *_STORES},
    "add": {*_MACHINE, *_STORES},
    "add-group": {*_MACHINE, *_STORES},
    "send-offsets": {*_MACHINE, *_STORES, *_OWNERS, "THROTTLED", "OFFSET_OUT_OF_RANGE"},
    "send": {*_MACHINE, *_APPENDS, *_STORES, "PRODUCER_BUSY"},
    "plain": {"PRODUCER_FENCED", "PRODUCER_BUSY", *_STORES},
    "end": {*_MACHINE, *_STORES},
    "committed": {"UNSTABLE_OFFSET_COMMIT", *_STORES},
    "commit": {"OFFSET_OUT_OF_RANGE", *_STORES},
    "seek": {"OFFSET_OUT_OF_RANGE", "UNKNOWN_SUBSCRIPTION", *_STORES},
    "acknowledge": {"OFFSET_OUT_OF_RANGE", "UNKNOWN_SUBSCRIPTION", *_STORES},
    "unsubscribe": {"UNKNOWN_SUBSCRIPTION", *_STORES},
    "read": {"OFFSET_OUT_OF_RANGE", *_STORES},
    "offsets": _STORES,
    "trim": {"OFFSET_OUT_OF_RANGE", *_STORES},
    "sweep": _STORES,
    "session": _STORES,
    "own": {*_OWNERS, *_STORES, "STALE_GENERATION"},
    "claim": {"PRODUCER_FENCED", *_STORES},
    "close": {*_OWNERS, *_STORES},
    "abort-by-hand": {"INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", *_STORES},
    "fence-by-hand": {"TRANSACTIONAL_ID_NOT_FOUND", "CONCURRENT_TRANSACTIONS", *_STORES},
    "guess": {*_MACHINE, *_APPENDS, *_STORES, "PRODUCER_BUSY"},
}


def check(truth: TransactionTruth, operations: Sequence[Operation], transactions: Sequence[Transaction]) -> None:
    """Judge everything, after all is decided.

    Raises:
        Violation: The first promise found broken.
    """
    for operation in operations:
        if operation.code is not None and operation.code not in CODES[operation.kind]:
            raise Violation(f"{operation}: answered {operation.code}: {operation.error}")
    found = _found(truth)
    for transaction in transactions:
        _check_transaction(transaction, found)
    _check_pairs(operations)
    _check_repeats(truth, operations)
    for operation in operations:
        if operation.kind == "read" and operation.is_answered:
            _check_read(truth.logs[truth.live(TOPIC), operation.partition], operations, operation)
        if operation.kind == "end" and operation.is_answered:
            _check_end(truth, operation)
        if operation.kind == "abort-by-hand" and operation.is_answered:
            raise Violation(f"{operation}: aborted by hand, though nothing can hang")


def _found(truth: TransactionTruth) -> dict[str, Stored]:
    """Return every record by its value: each is stored at most once, whatever was sent again (exactly once)."""
    found: dict[str, Stored] = {}
    gone: dict[str, Stored] = {}
    for log in truth.logs.values():
        is_served = truth.is_served(log.topic_id)
        for one in log.records:
            if one.value.startswith("out|"):
                continue  # a processor's: an input is processed again after an abort
            if is_served and one.value in found:
                raise Violation(f"stored twice: {one} and {found[one.value]}")
            if is_served and one.outcome == OPEN:
                raise Violation(f"never decided: {one}")
            # A batch of a deleted topic may be sent again, to the topic that was created after it.
            (found if is_served else gone)[one.value] = one
    return {**gone, **found}


def _check_transaction(transaction: Transaction, found: dict[str, Stored]) -> None:
    """Check that it is all or nothing, and that its client got the right answers."""
    outcomes: set[str] = set()
    for batch in transaction.batches:
        stored = [found[text] for text in batch.values if text in found]
        if any(text.startswith("out|") for text in batch.values):
            return
        if stored and len(stored) != len(batch.values):
            raise Violation(f"a part of a batch is stored: {batch} {stored}")
        if batch.is_acknowledged and not stored:
            raise Violation(f"acknowledged, but not in the log: {transaction} {batch}")
        if batch.is_refused and stored:
            raise Violation(f"each sending was refused, but it is stored: {transaction} {batch} {stored}")
        for one in stored:
            if one.transaction != transaction.pair:
                raise Violation(f"stored in another transaction: {transaction} {one}")
            if one.outcome != OPEN:  # in a deleted topic, where nothing is decided any longer
                outcomes.add(one.outcome)
    if len(outcomes) > 1:
        raise Violation(f"decided in two ways: {transaction} {outcomes}")
    expected = COMMITTED if transaction.asked else ABORTED
    if transaction.answered and outcomes - {expected}:
        raise Violation(f"told {expected}, but it is {outcomes}: {transaction}")
    if (transaction.asked is not True or transaction.is_refused) and COMMITTED in outcomes:
        raise Violation(f"committed, but no commit that was asked for was taken: {transaction}")


def _check_end(truth: TransactionTruth, operation: Operation) -> None:
    """Check an answer of END_TXN by the decision that was written for its pair (I10)."""
    ending = operation.request
    decided = truth.decisions.get(tuple(ending.pair))
    if decided is None and ending.is_commit:
        raise Violation(f"{operation}: told that it is committed, but nothing was decided")
    if decided is not None and decided != ending.is_commit:
        raise Violation(f"{operation}: told one outcome, decided was the other")


def _check_pairs(operations: Sequence[Operation]) -> None:
    """Check that each pair is one instance's, and no marker's (I13)."""
    holders: dict[tuple[int, int], str] = {}
    for operation in operations:
        is_given = operation.kind in ("init", "end") and operation.is_answered
        if is_given and operation.answer.producer_epoch > limits.PRODUCER_EPOCH_MAX:
            raise Violation(f"{operation}: {operation.answer} is a marker's epoch")
        if operation.kind == "init" and operation.is_answered:
            pair, instance = tuple(operation.answer), operation.request.instance
            other = holders.setdefault((pair[0], pair[1]), instance)
            if other != instance:
                raise Violation(f"{operation}: {pair} was given to {other}, too")


def _check_repeats(truth: TransactionTruth, operations: Sequence[Operation]) -> None:
    """Check that no request is refused that is right, or is a repeat (I13): an end by `ended`, an id by `kept`."""
    for operation in operations:
        if operation.kind not in ("end", "init") or operation.error is None or operation.error.next_step != "fix":
            continue
        request = operation.request
        items = truth.items_between(request.transactional_id, operation.began, operation.ended)
        takes = _takes_end if operation.kind == "end" else _takes_init
        if all(item is not None and takes(item, request) for item in items):
            raise Violation(f"{operation}: refused, though it was right all the time: {operation.error}")


def _takes_end(item: TransactionItem, request: Any) -> bool:
    """Return True if an END_TXN has to be taken, or answered again."""
    if item.ended == request.pair:
        return bool(request.is_commit == (item.state in ("PrepareCommit", "CompleteCommit")))
    return item.state == "Ongoing" and item.pair == request.pair


def _takes_init(item: TransactionItem, request: Any) -> bool:
    """Return True if a request for an id has to be taken, or answered again."""
    is_present = item.pair == request.pair and not item.is_fenced and not item.is_prepared
    return request.pair is None or is_present or (item.kept == request.pair and item.state != "Ongoing")


def _check_read(log: Log, operations: Sequence[Operation], operation: Operation) -> None:
    """Check a page: committed records alone, all of them, and bounds that were true at some moment (I4)."""
    page, request = operation.answer, operation.request
    bounds = page.bounds
    records = [(record.offset, text_of(record).decode()) for record in page.records]
    is_true = any(
        following == bounds.next_offset and max(stable, bounds.log_start_offset) == bounds.last_stable_offset
        for following, stable in log.bounds_between(operation.began, operation.ended)
    )
    if not is_true:
        raise Violation(f"{operation}: bounds that were never true: {bounds}")
    end = bounds.last_stable_offset if request.is_read_committed else bounds.next_offset
    start = request.offset
    if start is None:
        start = _tail(log, operation, records)
    if page.position > max(end, start):
        raise Violation(f"{operation}: position {page.position} beyond {end}")
    shown = log.data(start, page.position, is_committed=request.is_read_committed)
    if records != shown:
        raise Violation(f"{operation}: answered {records}, but the log has {shown}")
    if page.position == start < end:
        raise Violation(f"{operation}: stays at {start}, and the end is {end}")


def _tail(log: Log, operation: Operation, records: Sequence[tuple[int, str]]) -> int:
    """Return where a read from the tail began: at an end that the log had meanwhile, because a reader may wait for
    one."""
    page, request = operation.answer, operation.request
    ends = {
        stable if request.is_read_committed else following
        for following, stable in log.bounds_between(operation.began, operation.ended)
    }
    starts: set[int] = {max(end - request.tail_offset, page.bounds.log_start_offset) for end in ends}
    first = min([page.position, *(offset for offset, _ in records)])
    if not starts or min(starts) > first:
        raise Violation(f"{operation}: began before {starts}: {records}")
    return max(start for start in starts if start <= first)


def check_processed(truth: TransactionTruth) -> None:
    """Check that each input below the group's offset has exactly one committed output (exactly once)."""
    topic_id = truth.live(TOPIC)
    outputs: Counter[int] = Counter()
    for (where, _), log in truth.logs.items():
        if where == topic_id:
            outputs.update(
                int(one.value.split("|")[1])
                for one in log.records
                if one.outcome == COMMITTED and one.value.startswith("out|")
            )
    if truth.pending():
        raise Violation(f"I14: still pending: {truth.pending()}")
    mark = truth.mark(GROUP, topic_id, INPUT)
    log = truth.logs.get((topic_id, INPUT), Log(topic_id, INPUT))
    inputs = {offset for offset, _ in log.data(0, mark, is_committed=True)}
    if outputs != Counter(inputs):
        missing, extra = sorted(inputs - outputs.keys()), {o: n for o, n in outputs.items() if n > 1 or o not in inputs}
        raise Violation(f"the offset is {mark}; without an output {missing}; too many outputs {extra}")
