"""Judges a history: every answer must have been true at some moment between the request and the answer.

Rule: each check cites the promise or the invariant that it proves (docs/protocol). Unknown outcomes may go
either way, but only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fenceline.model.results import Bounds
from tests.simulation.harness.history import Attempt, Operation, text_of
from tests.simulation.log.truth import Life, PartitionLog, Truth, Violation

APPEND_CODES = {
    "OFFSET_MISMATCH",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "STORE_UNAVAILABLE",
    "CONTENDED",
    "OUTCOME_UNKNOWN",
}
READ_CODES = {"OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION", "STORE_UNAVAILABLE", "VIEW_MOVED"}
CODES: Mapping[str, set[str]] = {
    "append": APPEND_CODES,
    "read": READ_CODES,
    "poll": READ_CODES,
    "offsets": READ_CODES,
    "compact": {*READ_CODES, "CONTENDED", "OUTCOME_UNKNOWN"},
    "trim": {*READ_CODES, "CONTENDED", "OUTCOME_UNKNOWN"},
    "create": {"TOPIC_ALREADY_EXISTS", "STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN"},
    "delete": {"UNKNOWN_TOPIC_OR_PARTITION", "STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN"},
    "producer-id": {"STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN"},
}
TROUBLE = {"STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"}


def check(truth: Truth, operations: Sequence[Operation], *, is_calm: bool = False) -> None:
    """Judge every operation.

    Args:
        is_calm: Nothing was made to fail, so no answer may report trouble.

    Raises:
        Violation: The first promise found broken.
    """
    _check_stored_once(truth, operations)
    for operation in operations:
        if operation.kind == "refused":
            continue
        if operation.code is not None and operation.code not in CODES[operation.kind]:
            raise Violation(f"{operation}: answered {operation.code}: {operation.error}")
        if is_calm and operation.code in TROUBLE:
            raise Violation(f"{operation}: answered {operation.code}, but nothing failed")
        if operation.error is not None:
            _check_error(truth, operations, operation)
        elif operation.is_answered:
            _ANSWERS[operation.kind](truth, operations, operation)


def _check_stored_once(truth: Truth, operations: Sequence[Operation]) -> None:
    """Check exactly-once: an attempt at most once at all, a batch at most once in each incarnation, as it was sent."""
    appends = {operation.request.id: operation for operation in operations if operation.kind == "append"}
    seen: dict[tuple[str, str, int], str] = {}
    for attempt_id, places in truth.found.items():
        operation = appends.get(attempt_id)
        if operation is None:
            raise Violation(f"no client sent what is stored: {attempt_id}")
        attempt: Attempt = operation.request
        if len(places) > 1:
            raise Violation(f"{operation}: stored {len(places)} times: {[batch.base_offset for _, batch in places]}")
        log, batch = places[0]
        if list(batch.values) != attempt.values or log.partition != operation.partition:
            raise Violation(f"{operation}: stored otherwise than it was sent: {batch}")
        sent = [(record.key, record.value is None) for record in attempt.records]
        if attempt.is_keyed and list(zip(batch.keys, batch.tombstones, strict=True)) != sent:
            raise Violation(f"{operation}: stored with other keys than it was sent: {batch}")
        if attempt.expected is not None and batch.base_offset != attempt.expected:
            raise Violation(f"{operation}: expected {attempt.expected}, stored at {batch.base_offset}")
        if truth.segment_step(log, batch) < operation.began or log.life.name != operation.topic:
            raise Violation(f"{operation}: stored in {log} before it was sent")
        if truth.segment_step(log, batch) > log.life.ended:
            raise Violation(f"{operation}: stored in {log}, which was deleted before")
        other = seen.setdefault((attempt.batch, log.life.topic_id, log.partition), attempt_id)
        if other != attempt_id:
            raise Violation(f"{operation}: batch {attempt.batch} stored twice, as {other} and {attempt_id}")


def _check_error(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    error = operation.error
    assert error is not None
    if operation.kind == "append" and error.next_step in ("fix", "retry") and operation.request.id in truth.found:
        raise Violation(f"{operation}: answered {error.code}, which wrote nothing, but it is stored")
    if error.code == "UNKNOWN_TOPIC_OR_PARTITION":
        for life in truth.lives:
            if life.name == operation.topic and life.created <= operation.began and life.may_end > operation.ended:
                raise Violation(f"{operation}: answered {error.code}, but the topic lived all the time")
    elif error.code == "TOPIC_ALREADY_EXISTS":
        if not truth.candidates(operation):
            raise Violation(f"{operation}: answered {error.code}, but there was none")
    elif error.code in ("OFFSET_MISMATCH", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"):
        _any_life(truth, operation, lambda log: _refused(log, operation))
    elif error.code == "VIEW_MOVED":
        request = operation.request
        since = request.compacted_since
        is_behind = since is not None and error.compaction_horizon < since  # another topic has the name
        if since is None or not (is_behind or error.deletes_to > max(request.offset, since)):
            raise Violation(f"{operation}: answered {error.code}, but no tombstone is missing: {error}")
    elif error.code == "OFFSET_OUT_OF_RANGE":
        _any_life(truth, operation, lambda log: _out_of_range(log, operations, operation))


def _refused(log: PartitionLog, operation: Operation) -> str | None:
    """Return why a refusal was true at no moment between call and return, if so (I4)."""
    attempt: Attempt = operation.request
    error, began, ended = operation.error, operation.began, operation.ended
    assert error is not None
    if attempt.producer is not None:
        producer_id, epoch, first = attempt.producer
        states = log.producer_between(producer_id, began, ended)
        verdicts = [state.judge(epoch, first, attempt.count)[0] for state in states]
        if error.code != "OFFSET_MISMATCH" and error.code not in verdicts:
            return f"told {error.code}, but it was {verdicts}"
        if error.code == "OFFSET_MISMATCH" and "APPEND" not in verdicts:
            return f"told {error.code}, but before that comes {verdicts}"
    if error.code == "OFFSET_MISMATCH":
        if error.next_offset == attempt.expected:
            return "told a mismatch with what it expected"
        if not log.was_next(error.next_offset, began, ended):
            return f"told that {error.next_offset} is next, but it was {log.tail_at(began)} to {log.tail_at(ended)}"
    return None


def _out_of_range(log: PartitionLog, operations: Sequence[Operation], operation: Operation) -> str | None:
    error = operation.error
    assert error is not None
    offset = operation.request.offset if operation.kind in ("read", "poll") else operation.request
    if offset is None:  # from the tail, and trimmed away while it waited
        offset = error.log_start_offset - 1
    is_moved = operation.kind == "read" and operation.request.is_compacted and offset < error.log_start_offset
    if error.log_start_offset <= offset <= error.next_offset or is_moved:
        return f"answered that {offset} is out of [{error.log_start_offset}, {error.next_offset}]"
    return _not_the_tail(log, error.next_offset, operation.began, operation.ended) or _not_the_start(
        error.log_start_offset, operations, operation
    )


def _check_append(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    attempt: Attempt = operation.request
    answer = operation.answer
    if answer.count != attempt.count or answer.next_offset != answer.base_offset + attempt.count:
        raise Violation(f"{operation}: {answer} does not fit")
    if answer.expected_offset_checked != (attempt.expected is not None and not answer.duplicate):
        raise Violation(f"{operation}: {answer}: it is wrong about whether the expectation was checked")
    if answer.duplicate:
        _any_life(truth, operation, lambda log: _duplicate(log, operation))
        return
    if attempt.id not in truth.found:
        raise Violation(f"{operation}: acknowledged at {answer.base_offset}, but it is not in the log")
    log, batch = truth.found[attempt.id][0]
    if batch.base_offset != answer.base_offset:
        raise Violation(f"{operation}: acknowledged at {answer.base_offset}, but it is at {batch.base_offset}")
    if truth.segment_step(log, batch) > operation.ended:
        raise Violation(f"{operation}: acknowledged before it was stored")
    if log.life not in truth.candidates(operation):
        raise Violation(f"{operation}: acknowledged in {log}, an incarnation that was over")


def _duplicate(log: PartitionLog, operation: Operation) -> str | None:
    attempt: Attempt = operation.request
    if attempt.producer is None:
        return "answered as a duplicate without a producer"
    producer_id, epoch, first = attempt.producer
    states = log.producer_between(producer_id, operation.began, operation.ended)
    verdicts = [state.judge(epoch, first, attempt.count) for state in states]
    if ("DUPLICATE", operation.answer.base_offset) not in verdicts:
        return f"answered as a duplicate of {operation.answer.base_offset}, but it was {verdicts}"
    return None


def _check_read(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    page, request = operation.answer, operation.request
    _any_life(truth, operation, lambda log: _page(log, operations, operation))
    waited_ms = operation.ended_ms - operation.began_ms
    if not page.records and waited_ms < request.wait_ms and page.position == request.offset:
        raise Violation(f"{operation}: answered with nothing after {waited_ms:.0f} ms")


def _check_poll(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    """Check a page as that of a read; an answer without one says that the log ended where the reader was."""
    if operation.answer is not None:
        _any_life(truth, operation, lambda log: _page(log, operations, operation))
        return
    start, began, ended = operation.request.offset, operation.began, operation.ended
    _any_life(truth, operation, lambda log: _not_the_tail(log, start, began, ended))
    # In whole milliseconds, as the service's clock counts.
    if int(operation.ended_ms) - int(operation.began_ms) < operation.request.wait_ms:
        raise Violation(f"{operation}: answered with nothing before its time was over")


def _page(log: PartitionLog, operations: Sequence[Operation], operation: Operation) -> str | None:
    """Return what is wrong with a page.

    Reads are prefixes that never shrink, and hold what was acknowledged before they began.
    """
    page, request, bounds = operation.answer, operation.request, operation.answer.bounds
    if request.is_compacted:
        return _compacted_page(log, operations, operation)
    records = [(record.offset, text_of(record)) for record in page.records]
    start = request.offset
    # It shows so many before the end at some moment; what came while it waited is shown, too.
    if start is None:
        start = records[0][0] if records else page.position
        is_tail = log.was_tail(start + request.tail_offset, operation.began, operation.ended)
        is_whole = start == bounds.log_start_offset and log.tail_at(operation.began) <= start + request.tail_offset
        if not is_tail and not is_whole:
            return f"read from {start}, which was never {request.tail_offset} before the end"
    if records != log.data(start, page.position):
        return f"answered {records}, but the log has {log.data(start, page.position)}"
    if page.position > bounds.next_offset or (page.position == start < bounds.next_offset):
        return f"position {page.position} after a read from {start} to {bounds.next_offset}"
    if len(records) > request.max_records or bounds.last_stable_offset != bounds.next_offset:
        return f"too many records, or a last stable offset where no transaction is: {bounds}"
    if not bounds.log_start_offset <= start:
        return f"answered from {start} below the log start {bounds.log_start_offset}"
    return _bounds(log, operations, operation, bounds)


def _compacted_page(log: PartitionLog, operations: Sequence[Operation], operation: Operation) -> str | None:
    """Return what is wrong with a page of a view.

    It shows what the view of some moment of this read has, and the log after it; trimmed records may go.
    """
    page, request, bounds = operation.answer, operation.request, operation.answer.bounds
    records = [(record.offset, text_of(record)) for record in page.records]
    start = max(request.offset, bounds.log_start_offset)
    trims = [o for o in operations if (o.kind, o.topic, o.partition) == ("trim", operation.topic, operation.partition)]
    trimmed = max((o.request for o in trims if o.began < operation.ended), default=0)
    horizon, deletes_to = page.compaction_horizon, page.deletes_to
    if horizon not in log.horizons_between(operation.began, operation.ended) or deletes_to > horizon:
        return f"answered of a view up to {horizon} without tombstones below {deletes_to}, which was not in force"
    view = log.compacted(start, page.position, horizon, deletes_to)
    if not set(records) <= set(view) or not set(view) - set(records) <= {r for r in view if r[0] < trimmed}:
        return f"answered {records} of a view up to {horizon}, but it has {view}"
    if records != sorted(records) or len(records) > request.max_records:
        return f"answered {records}, out of order or too many"
    if page.position > bounds.next_offset or (page.position == start < bounds.next_offset):
        return f"position {page.position} after a read from {start} to {bounds.next_offset}"
    return _bounds(log, operations, operation, bounds)


def _check_compact(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    """Check that it covers what was in the log when it was asked for: a log as small as these at once."""
    _any_life(truth, operation, lambda log: _covered(log, operation))


def _covered(log: PartitionLog, operation: Operation) -> str | None:
    reached, wanted = max(log.horizons_between(operation.ended, operation.ended)), log.tail_at(operation.began)
    return None if reached >= wanted else f"compacted to {reached}, but the log had {wanted}"


def _check_offsets(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    bounds, horizon = operation.answer.bounds, operation.answer.compaction_horizon

    def judge(log: PartitionLog) -> str | None:
        horizons = log.horizons_between(operation.began, operation.ended)
        if horizon not in horizons:
            return f"answered a compaction horizon of {horizon}, but it was {sorted(horizons)}"
        return _bounds(log, operations, operation, bounds)

    _any_life(truth, operation, judge)


def _bounds(log: PartitionLog, operations: Sequence[Operation], operation: Operation, bounds: Bounds) -> str | None:
    began, ended = operation.began, operation.ended
    return _not_the_tail(log, bounds.next_offset, began, ended) or _not_the_start(
        bounds.log_start_offset, operations, operation
    )


def _not_the_tail(log: PartitionLog, offset: int, began: int, ended: int) -> str | None:
    if log.was_tail(offset, began, ended):
        return None
    return f"I4: answered that the next offset is {offset}, but it was {log.tail_at(began)} to {log.tail_at(ended)}"


def _not_the_start(offset: int, operations: Sequence[Operation], operation: Operation) -> str | None:
    """Return why an answered log start is wrong.

    It must be one that a client asked for, and never below one that was answered before.
    """
    trims = [o for o in operations if (o.kind, o.topic, o.partition) == ("trim", operation.topic, operation.partition)]
    asked = {o.request for o in trims if o.began < operation.ended and o.code != "OFFSET_OUT_OF_RANGE"}
    if offset and offset not in asked:
        return f"answered a log start of {offset}, which no client asked for"
    # A trim counts only for the incarnation that it met. If that can't be known, the trim is not held against a later
    # one.
    deletes = [o for o in operations if o.kind == "delete" and o.topic == operation.topic]
    for trim in trims:
        is_later = trim.is_answered and trim.ended < operation.began and offset < trim.answer
        if is_later and not any(delete.overlaps(trim.began, operation.ended) for delete in deletes):
            return f"answered a log start of {offset} after #{trim.id} had answered {trim.answer}"
    return None


def _check_trim(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    _any_life(truth, operation, lambda log: _trimmed(log, operations, operation))


def _trimmed(log: PartitionLog, operations: Sequence[Operation], operation: Operation) -> str | None:
    if operation.answer < operation.request:
        return f"trimmed to {operation.answer}"
    if operation.request > log.tail_at(operation.ended):
        return f"trimmed beyond the tail {log.tail_at(operation.ended)}"
    return _not_the_start(operation.answer, operations, operation)


def _check_create(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    for life in truth.lives:
        is_other = life.name == operation.topic and life.topic_id != operation.answer.topic_id
        if is_other and life.created <= operation.began and life.may_end > operation.ended:
            raise Violation(f"{operation}: created, but {life} lived all the time")


def _check_delete(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    """Check that after 202 every partition that was written to is sealed: an old process can no longer append."""
    for log in truth.logs.values():
        life = log.life
        is_sealed = log.batches[-1].is_seal and log.steps[-1] < operation.ended
        if life.name == operation.topic and life.ended == operation.ended and not is_sealed:
            raise Violation(f"{operation}: answered, but {log} is not sealed")


def _check_producer_id(truth: Truth, operations: Sequence[Operation], operation: Operation) -> None:
    same = [o for o in operations if o.kind == "producer-id" and o.is_answered and o.answer == operation.answer]
    if len(same) > 1:
        raise Violation(f"{operation}: answered the same producer id as another: {operation.answer}")


def _any_life(truth: Truth, operation: Operation, judge: Callable[[PartitionLog], str | None]) -> None:
    """Check that the answer is true of one of the incarnations that the operation may have met."""
    lives: Sequence[Life] = truth.candidates(operation)
    if not lives:
        raise Violation(f"{operation}: answered, but there was no such topic")
    reasons = [judge(truth.log(life, operation.partition)) for life in lives]
    if None not in reasons:
        outcome = operation.error or operation.answer
        raise Violation(f"{operation}: {'; '.join(str(reason) for reason in reasons)} (answer: {outcome})")


_ANSWERS: Mapping[str, Callable[[Truth, Sequence[Operation], Operation], None]] = {
    "append": _check_append,
    "read": _check_read,
    "poll": _check_poll,
    "offsets": _check_offsets,
    "compact": _check_compact,
    "trim": _check_trim,
    "create": _check_create,
    "delete": _check_delete,
    "producer-id": _check_producer_id,
}
