"""Judges a history of exclusive access: the log first, then the items, then every answer.

Rule: each check cites the promise or invariant that it proves (docs/protocol). A refusal, and a grant, must
have been true at some moment between the request and the answer, by some process's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fenceline.access.rules import AccessItem
from fenceline.access.session_item import SessionItem
from tests.simulation.access import items as access_items
from tests.simulation.access import log as access_log
from tests.simulation.access.refusals import CODES, REFUSALS, TimedAnswer
from tests.simulation.access.requests import Claim, Own
from tests.simulation.access.truth import AccessTruth, Entry
from tests.simulation.harness.history import Operation
from tests.simulation.log.truth import Truth, Violation

TROUBLE = {"STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"}


def check(truth: Truth, access: AccessTruth, operations: Sequence[Operation], *, skew_ms: float, is_calm: bool) -> None:
    """Judge everything.

    Raises:
        Violation: The first promise found broken.
    """
    (life,) = truth.lives
    sendings = {o.request.id: o for o in operations if o.kind == "append"}
    partitions = {p: found for (topic_id, p), found in access.partitions.items() if topic_id == life.topic_id}
    for number in sorted(partitions):
        access_log.check_log(access, (life.topic_id, number), sendings)
    access_items.check(access, operations, skew_ms)
    access_log.check_stored_once(truth, sendings)
    access_log.check_severed(access, partitions, operations, sendings)
    for operation in operations:
        if operation.kind == "refused":
            continue
        timed = TimedAnswer(access, life.topic_id, operation, skew_ms, operations)
        if operation.error is not None:
            _check_refusal(timed, truth, is_calm=is_calm)
        elif operation.is_answered and operation.kind in _ANSWERS:
            _ANSWERS[operation.kind](truth, timed)
    _check_tokens(operations)


def _check_refusal(timed: TimedAnswer, truth: Truth, *, is_calm: bool) -> None:
    operation, error = timed.operation, timed.operation.error
    assert error is not None
    if error.code not in CODES[operation.kind]:
        raise Violation(f"{operation}: answered {error.code}: {error}")
    if is_calm and error.code in TROUBLE:
        raise Violation(f"{operation}: answered {error.code}, but nothing failed")
    is_stored = operation.kind == "append" and operation.request.id in truth.found
    if is_stored and error.next_step in ("fix", "retry"):
        raise Violation(f"{operation}: answered {error.code}, which wrote nothing, but it is stored")
    judge = REFUSALS.get(error.code)
    reason = None if judge is None else judge(timed)
    if reason is not None:
        raise Violation(f"{operation}: answered {error.code} ({error}), but {reason}")


def _check_append(truth: Truth, timed: TimedAnswer) -> None:
    operation = timed.operation
    sending, answer = operation.request, operation.answer
    if answer.duplicate:
        originals = [
            batch.base_offset
            for log, batch in (place for places in truth.found.values() for place in places)
            if log.partition == operation.partition and batch.producer == sending.producer
        ]
        if answer.base_offset not in originals:
            raise Violation(f"{operation}: answered as a duplicate of {answer.base_offset}, but there is {originals}")
        return
    if sending.id not in truth.found:
        raise Violation(f"{operation}: acknowledged at {answer.base_offset}, but it is not in the log")
    _, batch = truth.found[sending.id][0]
    entries = timed.partition(operation.partition).entries
    entry = next(e for e in entries if e.base_offset == batch.base_offset)
    if (entry.base_offset, entry.leader_epoch) != (answer.base_offset, answer.topic_epoch):
        raise Violation(f"{operation}: acknowledged as {answer}, but it is stored as {entry}")
    if entry.step > operation.ended:
        raise Violation(f"{operation}: acknowledged before it was stored")
    is_shared_again = sending.session is None and entry.before.session_id is not None
    if answer.next_offset != entry.next_offset + is_shared_again:
        raise Violation(f"{operation}: answered that {answer.next_offset} is next after {entry}")


def _check_granted(_: Truth, timed: TimedAnswer) -> None:
    """Check a claim, or a poll, that was answered as granted: by its marker, and in force at some moment."""
    operation, producer = timed.operation, timed.operation.answer
    if producer.state != "granted":
        return
    mode = operation.request.mode if isinstance(operation.request, Claim) else "Exclusive"
    for p, epoch in producer.topic_epochs.items():
        name = (producer.session_id, producer.producer_name)
        reason = _not_granted(timed, p, name, epoch, producer.next_offsets[p], is_exclusive=mode != "Shared")
        if reason is not None:
            raise Violation(f"{operation}: answered {producer}, but {reason}")


def _not_granted(
    timed: TimedAnswer,
    partition: int,
    name: tuple[str, str],
    epoch: int,
    next_offset: int | None,
    *,
    is_exclusive: bool,
) -> str | None:
    found, began, ended = timed.partition(partition), timed.operation.began, timed.operation.ended
    session_id = name[0]
    if is_exclusive and next_offset is not None:
        marker = found.marker_at(next_offset - 1)
        if marker is None or (marker.after.session_id, marker.after.epoch) != (session_id, epoch):
            return f"right before {next_offset} there is no marker of it"
        if marker.step > ended:
            return "its marker came later"
    if next_offset is not None:
        late = [e for e in found.entries if e.base_offset >= next_offset and e.leader_epoch < epoch]
        foreign = [e for e in found.entries if e.base_offset >= next_offset and _is_before(e, session_id, epoch)]
        if late or foreign:
            return f"not all of earlier epochs lies below {next_offset}: {[*late, *foreign][0]}"
    moments = sorted({began, *(s for s in (*found.log.steps, *found.items.steps) if began < s <= ended)})
    in_log = {s for s in moments if found.log.at(s).takes(session_id, epoch, is_exclusive=is_exclusive)}
    in_item = {s for s in moments if _is_granted(found.items.at(s), name, epoch, is_exclusive=is_exclusive)}
    # A severed sharer's fence raises the epoch in the log alone: a shared grant may be after it at once.
    if not (in_log & in_item if is_exclusive else in_log and in_item):
        states = [(found.log.at(s), found.items.at(s)) for s in moments]
        return f"the log and the item never said so: {states}"
    return None


def _is_granted(item: AccessItem, name: tuple[str, str], epoch: int, *, is_exclusive: bool) -> bool:
    held = [item.granted] if is_exclusive else item.shared
    return any(h is not None and (h.name, h.epoch, h.is_ended) == (name, epoch, False) for h in held)


def _is_before(entry: Entry, session_id: str, epoch: int) -> bool:
    """Return True if the entry is a record under exclusive access that a grant of this epoch came after."""
    before = entry.before
    is_data = entry.attempt is not None
    return is_data and before.session_id not in (None, session_id) and before.epoch <= epoch


def _check_owned(_: Truth, timed: TimedAnswer) -> None:
    operation = timed.operation
    request: Own = operation.request
    if [one.resource for one in operation.answer] != [name for name, _ in request.resources]:
        raise Violation(f"{operation}: answered {operation.answer}")
    for one, (name, asked) in zip(operation.answer, request.resources, strict=True):
        if asked not in (None, 0) and one.generation < asked:
            raise Violation(f"{operation}: answered {one} where {asked} was asked for")
        if request.group is None and "/" in name:
            partition = int(name.split("/")[1])
            reason = _held_by_owner(timed, partition, one.fencing_token)
            if reason is not None:
                raise Violation(f"{operation}: answered {one}, but {reason}")
        key = access_items.owner_key(timed.access, name, request.group)
        owned = timed.access.owner(key).between(operation.began, operation.ended)
        if not any(
            (o.session_id, o.generation, o.fencing_token) == (request.session_id, one.generation, one.fencing_token)
            for o in owned
        ):
            raise Violation(f"{operation}: answered {one}, but the item said {owned}")


def _held_by_owner(timed: TimedAnswer, partition: int, token: int) -> str | None:
    """Return why an owner never had write access, if so; a producer of its session, which it keeps, counts, too."""
    session_id = timed.operation.request.session_id
    found = timed.partition(partition)
    items = found.items.between(timed.operation.began, timed.operation.ended)
    names = {i.granted.producer_name for i in items if i.granted is not None and i.granted.session_id == session_id}
    reasons = [_not_granted(timed, partition, (session_id, n), token, None, is_exclusive=True) for n in names or {""}]
    return None if None in reasons else reasons[0]


def _check_read(_: Truth, timed: TimedAnswer) -> None:
    """Check that a reader owned the group when the last of what it was shown was there.

    A reader without a session may read only while no live session owned the group.
    """
    operation, request, page = timed.operation, timed.operation.request, timed.operation.answer
    partition = timed.partition(operation.partition)
    tails = zip(partition.tails.steps, partition.tails.values, strict=True)
    shown = next(step for step, tail in tails if tail >= page.bounds.next_offset)
    start, end = max(operation.began, shown), operation.ended
    owners = timed.access.owner(access_items.owner_key(timed.access, f"t/{operation.partition}", request.group))
    owned = owners.between(start, end)
    if request.session_id is None:
        surely = {one.session_id for one in owned if one.session_id and timed.was_surely_live(one.session_id)}
        if len(owned) == len(surely):
            raise Violation(f"{operation}: read without a session, but {surely} owned it all the time")
        return
    session = timed.access.session(request.session_id)
    moments = {start, *(s for s in (*owners.steps, *session.steps) if start < s <= end)}
    if not any(owners.at(s).session_id == request.session_id and not _is_over(session.at(s)) for s in moments):
        raise Violation(f"{operation}: shown {page} as the group, but its owner was {owned}")


def _is_over(session: SessionItem | None) -> bool:
    return session is None or session.is_final


def _check_heartbeat(_: Truth, timed: TimedAnswer) -> None:
    session = timed.access.session(timed.operation.request).at(timed.operation.began)
    if _is_over(session):
        raise Violation(f"{timed.operation}: renewed, but it had ended: {session}")


def _check_tokens(operations: Sequence[Operation]) -> None:
    """Check that fencing tokens only grow, from one answer to a later request's, and that sessions' tokens differ."""
    answered = [o for o in operations if o.kind == "own" and o.is_answered]
    found = [(o, one.fencing_token, (o.request.group, one.resource)) for o in answered for one in o.answer]
    for earlier, token, resource in found:
        for later, other, its_resource in found:
            is_same = earlier.request.session_id == later.request.session_id
            if resource != its_resource or (is_same and other >= token):
                continue
            if (earlier.ended < later.began and other < token) or (other == token and not is_same):
                raise Violation(f"{later}: token {other} of {resource}, after {token} in the answer to {earlier}")


_ANSWERS: Mapping[str, Callable[[Truth, TimedAnswer], None]] = {
    "append": _check_append,
    "claim": _check_granted,
    "poll": _check_granted,
    "own": _check_owned,
    "read": _check_read,
    "heartbeat": _check_heartbeat,
}
