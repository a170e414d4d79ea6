"""The decision on a request over one transaction or several, pure over their items ("The state machine").

Rule: a decision is one conditional write, or none. Only ``completed`` changes an item that is prepared, so no time-out
and no request turns an outcome that is decided into another (I10).

Rule: a pair is given to one request and its repeats. The epoch of a fencing abort is given to no producer (I13).

Rule: of several transactions all are ended, or none (I26). Each takes END_TXN as if alone. The caller is judged first,
then a repeat, then ``once``, then the members ("Several transactions"), so that a repeat gets the answer of the first
request, and a committed version refuses before any member does.

Not here: the write itself (``item_store``), and the finish after a write that prepares a transaction (``finish``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fenceline import limits
from fenceline.errors import (
    FencelineError,
    FixError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTxnStateError,
    NotAuthorizedError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from fenceline.format import item_size, keys
from fenceline.model.principal import judge
from fenceline.model.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    OnceMark,
    ProducerPair,
    TransactionMember,
)
from fenceline.transactions.committed_version import OnceItem, judge_application, raised
from fenceline.transactions.item import TopicPartitions, TransactionItem

_IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class Init:
    """A request for the next epoch; with ``pair`` the producer keeps its id (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    pair: ProducerPair | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """A request that adds partitions and groups, or asks for an admission. It begins a transaction."""

    pair: ProducerPair
    places: Sequence[TopicPartitions] = ()
    groups: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """A request that sends offsets of a group that was added."""

    pair: ProducerPair
    group: str


@dataclass(frozen=True, slots=True)
class Extend:
    """A request that no time-out is due for so long."""

    pair: ProducerPair
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """A request for an outcome; see ``decide_ends``."""

    pair: ProducerPair
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Meet:
    """A look by a process that ends what is due: a GET, a reader or the sweeper ("Meeting a transaction").

    Attributes:
        is_due: Whether the sweeper has judged an ongoing transaction due, by other clocks than ``decide``'s.
    """

    is_due: bool = False


@dataclass(frozen=True, slots=True)
class Fence:
    """An operator's request that no producer and no principal has the id."""


Request: TypeAlias = Init | Add | Send | Extend | End | Meet | Fence


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on an item. If the item is prepared then, its transaction is finished before anything else.

    Attributes:
        item: The item after this decision.
        is_change: Whether the item has to be written.
        is_answer: Whether this item answers the request. Otherwise the request is judged again, from a fresh read.
        given: The producer id that this write gives to the transactional id, if it gives a new one.
    """

    item: TransactionItem
    is_change: bool = False
    is_answer: bool = True
    given: int | None = None


def needs_producer_id(item: TransactionItem | None, request: Request) -> bool:
    """Return True if the decision may take a new producer id: for an unknown id, or after the last epoch.

    ``needing_producer_ids`` has the ends that take one.
    """
    return isinstance(request, Init) and (item is None or item.producer_epoch >= limits.PRODUCER_EPOCH_MAX)


def decide(
    item: TransactionItem | None, request: Request, now_ms: int, *, spare: int | None = None, principal: str = ""
) -> Decision:
    """Return the decision of ``request`` on the item; ``None`` is an unknown transactional id.

    Args:
        now_ms: The caller's clock. It only decides whether a time-out is tried (I9).
        spare: A producer id that was never given, where ``needs_producer_id`` is true.
        principal: The caller's (``principal.lasting``). ``""``, which operators' requests and the sweeper have, may do
            everything.

    Raises:
        NotAuthorizedError: The transactional id is another principal's. Nothing changes, not even if an end is due.
        InvalidProducerIdMappingError: The transactional id does not have the producer id. Nothing changes.
        ProducerFencedError: The pair is not the one in force, or no pair is. Nothing changes.
        InvalidTxnStateError: The transaction is in no state for the request. Nothing changes.
        InvalidRequestError: The transaction would have more members than it may. Nothing changes.
        TransactionalIdNotFoundError: ``Meet`` or ``Fence`` found no item.
    """
    if item is not None:
        judge_principal(item, principal)
    match request:
        case Init():
            return _init(item, request, now_ms, spare, principal)
        case End():
            return _end(item, request, now_ms, spare)
        case Meet():
            return _meet(item, request, now_ms)
        case Fence():
            return _fence(item, now_ms)
    found = _mapped(item, request.pair)
    if found.is_out_of_time(now_ms):
        return _fencing_abort(found, now_ms)
    _check_epoch(found, request.pair)
    if found.is_prepared:
        return Decision(found, is_answer=False)
    if isinstance(request, Send):
        return _send(found, request)
    if isinstance(request, Extend):
        return _extend(found, request, now_ms)
    return _add(found, request, now_ms)


def judge_principal(item: TransactionItem, principal: str) -> None:
    """Check that the principal may use the transactional id.

    Raises:
        NotAuthorizedError: The transactional id is another principal's.
    """
    judge(item.principal, principal, "the transactional id")


def completed(item: TransactionItem, now_ms: int) -> Decision:
    """Return the decision on a prepared transaction once its markers are durable and its offsets are settled."""
    following, given = item.pair, item.next_producer_id
    if given is not None:
        following = ProducerPair(given, 0)
    state = COMPLETE_COMMIT if item.is_commit else COMPLETE_ABORT
    return Decision(_emptied(item, following, state, now_ms), is_change=True, given=given)


def check_limits(item: TransactionItem) -> TransactionItem:
    """Return the item, if a transaction may have as many members.

    Raises:
        InvalidRequestError: The item has too many.
    """
    counts = (
        ("partitions", sum(len(one.partitions) for one in item.partitions), limits.TRANSACTION_PARTITIONS_MAX),
        ("groups", len(item.groups), limits.TRANSACTION_GROUPS_MAX),
        ("offsets of groups", sum(len(one.partitions) for one in item.cursors), limits.TRANSACTION_CURSORS_MAX),
    )
    for what, count, count_max in counts:
        if count > count_max:
            raise InvalidRequestError(
                f"a transaction may have at most {count_max} {what}; end it, and go on in the next one: count={count}"
            )
    size = item_size.size_of(keys.transaction_item(item.transactional_id), item.to_value())
    if size > limits.TRANSACTION_ITEM_BYTES_MAX:
        raise InvalidRequestError(
            f"what a transaction names takes at most {limits.TRANSACTION_ITEM_BYTES_MAX} bytes; "
            f"end it, and go on in the next one: bytes={size}"
        )
    return item


# Each request


def _init(item: TransactionItem | None, request: Init, now_ms: int, spare: int | None, principal: str) -> Decision:
    pair = request.pair
    if item is None:
        assert spare is not None
        made = TransactionItem(request.transactional_id, spare, 0, EMPTY, request.timeout_ms, principal=principal)
        return Decision(replace(made, updated_at=now_ms, kept=pair), is_change=True, given=spare)
    if item.is_out_of_time(now_ms):
        return _fencing_abort(item, now_ms)
    # model: Transaction, "kept answers a repeat"
    if pair is not None and pair == item.kept:
        if item.state == EMPTY:  # this request was answered before
            owned = replace(item, principal=item.principal or principal)
            return Decision(owned, is_change=owned != item)
    elif pair is not None and (pair != item.pair or item.is_fenced or item.is_prepared):
        raise _fenced(item, pair)
    if item.is_prepared:
        return Decision(item, is_answer=False)
    if item.state == ONGOING:
        return _fencing_abort(item, now_ms, kept=pair)
    following, given = _next_pair(item, spare)
    changed = replace(
        _emptied(item, following, EMPTY, now_ms),
        transaction_timeout_ms=request.timeout_ms,
        ended=None,
        kept=pair,
        is_fenced=False,
        principal=item.principal or principal,
    )
    return Decision(changed, is_change=True, given=given)


def _end(item: TransactionItem | None, request: End, now_ms: int, spare: int | None) -> Decision:
    """Decide an outcome. Also after its time-out a transaction's own end wins, until another request aborts it."""
    # model: Transaction, "ended answers a repeat"
    if item is not None and item.ended == request.pair:
        if request.is_commit != (item.state in (PREPARE_COMMIT, COMPLETE_COMMIT)):
            raise _wrong_state(item, "it was ended with the other result")
        return Decision(item)
    found = _mapped(item, request.pair)
    _check_epoch(found, request.pair)
    if found.is_prepared:
        raise _fenced(found, request.pair)  # this epoch was given to no producer yet
    if found.state == ONGOING:
        state = PREPARE_COMMIT if request.is_commit else PREPARE_ABORT
        is_last = found.producer_epoch == limits.PRODUCER_EPOCH_MAX
        decided = replace(
            found,
            state=state,
            producer_epoch=found.producer_epoch + 1,
            decided_at=now_ms,
            updated_at=now_ms,
            ended=request.pair,
            next_producer_id=spare if is_last else None,
        )
        return Decision(decided, is_change=True)
    if request.is_commit:
        raise _wrong_state(found, "there is nothing to commit")
    following, given = _next_pair(found, spare)
    changed = replace(_emptied(found, following, COMPLETE_ABORT, now_ms), ended=request.pair, kept=None)
    return Decision(changed, is_change=True, given=given)


def _meet(item: TransactionItem | None, request: Meet, now_ms: int) -> Decision:
    found = _known(item)
    is_due = found.is_out_of_time(now_ms) or (request.is_due and found.state == ONGOING)
    return _fencing_abort(found, now_ms, is_answer=True) if is_due else Decision(found)


def _fence(item: TransactionItem | None, now_ms: int) -> Decision:
    """Leave the id with an epoch that was given to no producer (I13), and with no principal."""
    found = _known(item)
    if found.is_prepared:
        return Decision(found, is_answer=False)
    if found.state == ONGOING:
        aborted = _fencing_abort(found, now_ms, is_answer=True)
        return replace(aborted, item=replace(aborted.item, principal=""))
    if found.is_fenced:
        freed = replace(found, principal="", updated_at=now_ms)
        return Decision(freed, is_change=True) if found.principal else Decision(found)
    # As after a fencing abort, also beyond the last epoch, because the next request for an id takes a new producer id.
    pair = ProducerPair(found.producer_id, found.producer_epoch + 1)
    fenced = _emptied(found, pair, COMPLETE_ABORT, now_ms)
    return Decision(replace(fenced, ended=None, kept=None, is_fenced=True, principal=""), is_change=True)


def _send(item: TransactionItem, request: Send) -> Decision:
    if item.state != ONGOING or request.group not in item.groups:
        raise _wrong_state(item, f"the group is no part of a transaction; add it first: group={request.group}")
    return Decision(item)


def _extend(item: TransactionItem, request: Extend, now_ms: int) -> Decision:
    """Move the time-out, later only (I28), so that a slow request, or a slow clock, shortens no earlier extension."""
    if item.state != ONGOING:
        raise _wrong_state(item, "no transaction is under way")
    expires_at = now_ms + request.timeout_ms
    if item.expires_at is not None and item.expires_at >= expires_at:
        return Decision(item)
    return Decision(replace(item, expires_at=expires_at, updated_at=now_ms), is_change=True)


def _add(item: TransactionItem, request: Add, now_ms: int) -> Decision:
    begun = item
    if item.state != ONGOING:
        begun = replace(
            _emptied(item, item.pair, ONGOING, now_ms), started_at=now_ms, ended=None, kept=None, cursors=()
        )
    partitions = _merged(begun.partitions, request.places)
    groups = tuple(dict.fromkeys((*begun.groups, *request.groups)))
    added = replace(begun, partitions=partitions, groups=groups)
    if added == item:
        return Decision(item)
    return Decision(check_limits(replace(added, updated_at=now_ms)), is_change=True)


# Shared by the requests


def _known(item: TransactionItem | None) -> TransactionItem:
    if item is None:
        raise TransactionalIdNotFoundError(
            "no transaction has this transactional id, or the id expired; ask for a producer id with it"
        )
    return item


def _mapped(item: TransactionItem | None, pair: ProducerPair) -> TransactionItem:
    if item is None or item.producer_id != pair.producer_id:
        raise InvalidProducerIdMappingError(
            "the transactional id does not have this producer id; ask for an id with the transactional id: "
            f"producer_id={pair.producer_id}"
        )
    return item


def _check_epoch(item: TransactionItem, pair: ProducerPair) -> None:
    # model: Transaction, "a fenced epoch is for markers alone"
    if item.is_fenced or item.producer_epoch != pair.producer_epoch:
        raise _fenced(item, pair)


def _fenced(item: TransactionItem, pair: ProducerPair) -> ProducerFencedError:
    return ProducerFencedError(
        "another instance of this producer came after, or the transaction timed out; this instance must stop: "
        f"producer_id={pair.producer_id} epoch={pair.producer_epoch} in_force={item.producer_epoch}"
    )


def _wrong_state(item: TransactionItem, what: str) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"the request does not fit the transaction: {what}: state={item.state} epoch={item.producer_epoch}"
    )


def _fencing_abort(
    item: TransactionItem, now_ms: int, *, kept: ProducerPair | None = None, is_answer: bool = False
) -> Decision:
    """Return the abort that leaves the epoch to the markers alone (I13).

    After the last epoch it takes no new producer id, because the next request for an id does.
    """
    aborted = replace(
        item,
        state=PREPARE_ABORT,
        producer_epoch=item.producer_epoch + 1,
        decided_at=now_ms,
        updated_at=now_ms,
        ended=None,
        kept=kept,
        is_fenced=True,
    )
    return Decision(aborted, is_change=True, is_answer=is_answer)


def _next_pair(item: TransactionItem, spare: int | None) -> tuple[ProducerPair, int | None]:
    """Return the pair of the next epoch, and its producer id if that is a new one."""
    if item.producer_epoch < limits.PRODUCER_EPOCH_MAX:
        return ProducerPair(item.producer_id, item.producer_epoch + 1), None
    assert spare is not None
    return ProducerPair(spare, 0), spare


def _emptied(item: TransactionItem, pair: ProducerPair, state: str, now_ms: int) -> TransactionItem:
    """Return the item in ``state`` with ``pair``, and with no members of a transaction."""
    return replace(
        item,
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        state=state,
        started_at=None,
        decided_at=None,
        updated_at=now_ms,
        partitions=(),
        groups=(),
        cursors=(),
        next_producer_id=None,
        expires_at=None,
    )


def _merged(known: Sequence[TopicPartitions], added: Iterable[TopicPartitions]) -> tuple[TopicPartitions, ...]:
    """Return the partitions of both, by incarnation; ``known`` itself if nothing is new."""
    merged = {one.topic_id: one for one in known}
    for one in added:
        before = merged.get(one.topic_id)
        numbers = {*one.partitions, *(() if before is None else before.partitions)}
        merged[one.topic_id] = TopicPartitions(one.topic_id, one.topic, tuple(sorted(numbers)))
    return tuple(merged.values())


# The end of one transaction, or of several by one decision


@dataclass(frozen=True, slots=True)
class JointEnd:
    """A request for one outcome of all members, and for a version to be raised with it.

    Attributes:
        is_passing_over: Whether a member without a transaction under way is passed over. Otherwise it is judged as if
            alone.
        principal: The caller's (``principal.lasting``).
    """

    members: Sequence[TransactionMember]
    is_commit: bool
    once: OnceMark | None = None
    is_passing_over: bool = True
    principal: str = ""

    @property
    def is_of_one(self) -> bool:
        """Return True if the request is about one transaction and nothing else, so that no error names its member."""
        return self.once is None and not self.is_passing_over


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The items that a request over several transactions has read."""

    items: Mapping[str, TransactionItem] = field(default_factory=dict)  # by transactional id: those that exist
    once: OnceItem | None = None


@dataclass(frozen=True, slots=True)
class EndsDecision:
    """The decisions on the members, in their order, and on the application's version.

    Attributes:
        once: The item to be written with the members; ``None`` if it stays as it is.
    """

    members: Sequence[Decision]
    once: OnceItem | None = None

    @property
    def is_change(self) -> bool:
        return self.once is not None or any(one.is_change for one in self.members)


def needing_producer_ids(seen: SeenTransactions, request: JointEnd) -> list[str]:
    """Return the transactional ids whose end takes a new producer id, because they are at the last epoch."""
    needing: list[str] = []
    for member in request.members:
        item = seen.items.get(member.transactional_id)
        is_last = item is not None and item.producer_epoch >= limits.PRODUCER_EPOCH_MAX and item.pair == member.pair
        if is_last and not (request.is_passing_over and _is_idle(item, member)):
            needing.append(member.transactional_id)
    return needing


def decide_ends(
    seen: SeenTransactions,
    request: JointEnd,
    now_ms: int,
    *,
    spares: Mapping[str, int] | None = None,
    is_resumed: bool = False,
) -> EndsDecision:
    """Return the decision of ``request`` on all of its members and on ``once``.

    Args:
        spares: A producer id that was never given, for each transactional id of ``needing_producer_ids``.
        is_resumed: Whether an earlier attempt of this request was not answered by the store.

    Raises:
        NotAuthorizedError: A member, which the error's ``transactional_id`` names, or the application is another
            principal's. Nothing changes.
        AlreadyCommittedError: The version, or a higher one, is committed. Nothing changes.
        InvalidProducerIdMappingError, ProducerFencedError, InvalidTxnStateError: The member that the error's
            ``transactional_id`` names, where there may be several, is refused. Nothing changes.
        InvalidRequestError: The items are too large for one write. Nothing changes.
    """
    if request.is_of_one:  # no other member, and no version, must agree with it
        (member,) = request.members
        item, spare = seen.items.get(member.transactional_id), (spares or {}).get(member.transactional_id)
        end = End(member.pair, request.is_commit)
        return EndsDecision((decide(item, end, now_ms, spare=spare, principal=request.principal),))
    _judge_principals(seen, request)
    verdicts = [_judged(seen, request, member, now_ms, spares or {}) for member in request.members]
    decisions = [one for one in verdicts if isinstance(one, Decision)]
    repeats = [member for member in request.members if _is_ended(seen, member)]
    is_whole = len(decisions) == len(verdicts)
    is_under_way = any(one.is_change for one in decisions)
    # model: Once, "a repeat is judged before the version"
    if repeats and is_whole and not is_under_way and _is_committed(seen, request):
        return EndsDecision(decisions)
    # model: Once, "a version alone answers its repeat"
    # model: Once, "a version is no evidence for a member under way"
    if is_resumed and is_whole and not is_under_way and _is_raised(seen, request):
        return EndsDecision(decisions)  # no transaction depends on which request raised the version
    once = None if request.once is None else raised(seen.once, request.once, now_ms)
    for member, verdict in zip(request.members, verdicts, strict=True):
        if isinstance(verdict, FencelineError):
            raise _named(verdict, member)
    if repeats:
        what = "others of the request are still under way" if is_under_way else "not with this version of once"
        raise _named(InvalidTxnStateError(f"the transaction was ended before, and {what}"), repeats[0])
    if once is None and not is_under_way:
        # Refused, because a late repeat of the request would end some of the transactions that have begun with these
        # pairs meanwhile, and not the others.
        # model: Once, "an end of nothing is refused"
        nothing = InvalidTxnStateError("no member has a transaction under way, so there is nothing to end")
        raise _named(nothing, request.members[0])
    if once is not None:
        once = replace(once, principal=once.principal or request.principal)
    decision = EndsDecision(decisions, once)
    _check_size(decision)
    return decision


def _judge_principals(seen: SeenTransactions, request: JointEnd) -> None:
    """Judge the caller before anything else, also for a member that is passed over, and for a repeat.

    Raises:
        NotAuthorizedError: A member or the application is another principal's.
    """
    for member in request.members:
        item = seen.items.get(member.transactional_id)
        try:
            if item is not None:
                judge_principal(item, request.principal)
        except NotAuthorizedError as error:
            raise _named(error, member) from None
    judge_application(seen.once, request.principal)


def _judged(
    seen: SeenTransactions, request: JointEnd, member: TransactionMember, now_ms: int, spares: Mapping[str, int]
) -> Decision | FencelineError:
    """Return the decision on one member, or its refusal."""
    item = seen.items.get(member.transactional_id)
    if item is not None and request.is_passing_over and _is_idle(item, member):
        return Decision(item)
    try:
        return decide(item, End(member.pair, request.is_commit), now_ms, spare=spares.get(member.transactional_id))
    except FixError as refusal:
        return refusal


def _is_idle(item: TransactionItem | None, member: TransactionMember) -> bool:
    """Return True if the pair is in force, and no transaction of it is under way."""
    return item is not None and item.pair == member.pair and not item.is_fenced and item.state in _IDLE


def _is_ended(seen: SeenTransactions, member: TransactionMember) -> bool:
    """Return True if an END_TXN of this pair has decided: the pair was given to one producer (I13)."""
    item = seen.items.get(member.transactional_id)
    return item is not None and item.ended == member.pair


def _is_committed(seen: SeenTransactions, request: JointEnd) -> bool:
    """Return True if the version, or a higher one, is stored, or if none is asked for."""
    wanted, stored = request.once, seen.once
    return wanted is None or (stored is not None and stored.mark.version >= wanted.version)


def _is_raised(seen: SeenTransactions, request: JointEnd) -> bool:
    """Return True if the stored version and note are those of the request."""
    wanted, stored = request.once, seen.once
    if wanted is None or stored is None:
        return False
    return (stored.mark.version, stored.mark.note) == (wanted.version, wanted.note)


def _named(error: FencelineError, member: TransactionMember) -> FencelineError:
    """Return the error with the name of its member."""
    name = member.transactional_id
    return type(error)(f"{error.detail} transactional_id={name}", **{**error.extra, "transactional_id": name})


def _check_size(decision: EndsDecision) -> None:
    if len(decision.members) < 2:
        return  # each item is small enough by itself
    items = [one.item for one in decision.members]
    sizes = [item_size.size_of(keys.transaction_item(one.transactional_id), one.to_value()) for one in items]
    if sum(sizes) > limits.JOINT_END_BYTES_MAX:
        raise InvalidRequestError(
            f"the transactions of one end have together at most {limits.JOINT_END_BYTES_MAX} bytes of names; end fewer "
            f"of them at once: bytes={sum(sizes)}",
            field="transactions",
        )
