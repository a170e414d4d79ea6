"""What one request makes of several transactions: one pure decision over their items ("Several transactions").

Rule: all of them are decided, or none (I26). Each member takes END_TXN as it would alone (``decide``). A member without
a transaction under way is passed over.

Rule: the caller is judged first, then a repeat, then ``once``, then the members. So a repeat is answered as the request
was. A version that is committed refuses before any member does.

Not here: the write itself, and what is read for it (``ends``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fenceline import limits
from fenceline.errors import FencelineError, FixError, InvalidRequestError, InvalidTxnStateError, NotAuthorizedError
from fenceline.format import item_size, keys
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, OnceMark, TransactionMember
from fenceline.transactions.decide import Decision, End, decide, judge_principal
from fenceline.transactions.item import TransactionItem
from fenceline.transactions.once import OnceItem, judge_application, raised

_IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class Ends:
    """A request for one outcome of all members, and for a version to be raised with it.

    Attributes:
        is_passing_over: A member without a transaction under way is passed over. Otherwise it is judged as alone.
        principal: The caller's (``principal.lasting``).
    """

    members: Sequence[TransactionMember]
    is_commit: bool
    once: OnceMark | None = None
    is_passing_over: bool = True
    principal: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a request over several transactions has read."""

    items: Mapping[str, TransactionItem] = field(default_factory=dict)  # by transactional id: those that exist
    once: OnceItem | None = None


@dataclass(frozen=True, slots=True)
class EndsDecision:
    """What becomes of the members, in their order, and of the application's version.

    Attributes:
        once: To be written with the members; ``None`` if it stays as it is.
    """

    members: Sequence[Decision]
    once: OnceItem | None = None

    @property
    def is_change(self) -> bool:
        return self.once is not None or any(one.is_change for one in self.members)


def needing_producer_ids(seen: Seen, request: Ends) -> Iterator[str]:
    """Yield the transactional ids whose end takes a new producer id: it is at the last epoch."""
    for member in request.members:
        item = seen.items.get(member.transactional_id)
        is_last = item is not None and item.pair == member.pair and item.producer_epoch >= limits.PRODUCER_EPOCH_MAX
        if is_last and not (request.is_passing_over and _is_idle(item, member)):
            yield member.transactional_id


def decide_ends(
    seen: Seen, request: Ends, now_ms: int, *, spares: Mapping[str, int] | None = None, is_resumed: bool = False
) -> EndsDecision:
    """Return what ``request`` makes of all of its members and of ``once``.

    Args:
        spares: A producer id that was never given, for each that ``needing_producer_ids`` says.
        is_resumed: An earlier attempt of this request was not answered by the store.

    Raises:
        NotAuthorizedError: A member, which the error's ``transactional_id`` names, or the application is another
            principal's. Nothing changes.
        AlreadyCommittedError: The version, or a higher one, is committed. Nothing changes.
        InvalidProducerIdMappingError, ProducerFencedError, InvalidTxnStateError: Of the member that the error's
            ``transactional_id`` names. Nothing changes.
        InvalidRequestError: The items are too large for one write. Nothing changes.
    """
    _judge_principal(seen, request)
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
        return EndsDecision(decisions)  # no transaction depends on which request raised it
    once = None if request.once is None else raised(seen.once, request.once, now_ms)
    for member, verdict in zip(request.members, verdicts, strict=True):
        if isinstance(verdict, FencelineError):
            raise _named(verdict, member)
    if repeats:
        what = "others of the request are still under way" if is_under_way else "not with this version of once"
        raise _named(InvalidTxnStateError(f"the transaction was ended before, and {what}"), repeats[0])
    if once is None and not is_under_way:
        # A late repeat of it would end half of what has begun with these pairs meanwhile.
        # model: Once, "an end of nothing is refused"
        nothing = InvalidTxnStateError("no member has a transaction under way, so there is nothing to end")
        raise _named(nothing, request.members[0])
    if once is not None:
        once = replace(once, principal=once.principal or request.principal)
    decision = EndsDecision(decisions, once)
    _check_size(decision)
    return decision


def _judge_principal(seen: Seen, request: Ends) -> None:
    """Judge the caller before anything else, also where a member is passed over, and where the request is a repeat.

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
    seen: Seen, request: Ends, member: TransactionMember, now_ms: int, spares: Mapping[str, int]
) -> Decision | FencelineError:
    """Return what the request makes of one member, or why it is refused."""
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


def _is_ended(seen: Seen, member: TransactionMember) -> bool:
    """Return True if an END_TXN of this pair has decided: the pair was given to one producer (I13)."""
    item = seen.items.get(member.transactional_id)
    return item is not None and item.ended == member.pair


def _is_committed(seen: Seen, request: Ends) -> bool:
    """Return True if the version, or a higher one, is stored; or if none is asked for."""
    wanted, stored = request.once, seen.once
    return wanted is None or (stored is not None and stored.mark.version >= wanted.version)


def _is_raised(seen: Seen, request: Ends) -> bool:
    """Return True if what is stored is what the request would have stored."""
    wanted, stored = request.once, seen.once
    if wanted is None or stored is None:
        return False
    return (stored.mark.version, stored.mark.note) == (wanted.version, wanted.note)


def _named(error: FencelineError, member: TransactionMember) -> FencelineError:
    """Return the error, with the member that it is about."""
    name = member.transactional_id
    return type(error)(f"{error.detail} transactional_id={name}", **{**error.extra, "transactional_id": name})


def _check_size(decision: EndsDecision) -> None:
    items = [one.item for one in decision.members]
    sizes = [item_size.size_of(keys.transaction_item(one.transactional_id), one.to_value()) for one in items]
    if len(sizes) > 1 and sum(sizes) > limits.END_BYTES_MAX:
        raise InvalidRequestError(
            f"the transactions of one end have together at most {limits.END_BYTES_MAX} bytes of names; end fewer of "
            f"them at once: bytes={sum(sizes)}",
            field="transactions",
        )
