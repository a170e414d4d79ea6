"""Public calls: what is checked before one of them does anything.

Rule: a call is refused at once in a process that did not make its object, and with an argument that it cannot take. No
lock is taken and nothing is sent before that.

- After ``fork()`` a child has copies of its parent's objects, over the parent's sockets and without the parent's
  threads. A call in the child raises ``RuntimeError``; ``close`` and the end of a ``with`` block do nothing.

- ``RULES`` has a rule for each argument, by its name. Where a name means something else in one call, the key of its
  rule names the call, too. ``None`` is taken where the signature says so.

- A wrong argument raises ``InvalidRequestError``, whose ``field`` is its name. The error is a ``TypeError`` or a
  ``ValueError``, too.

A class whose methods are public calls is decorated by ``public``. A method that is called for each record checks
process and arguments by itself, and is decorated by ``checks_itself``.

Not here: what only the service knows, such as which partitions there are, and its limits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from operator import index
from types import FunctionType
from typing import Any, NoReturn, TypeVar

from fenceline.errors import InvalidRequestError
from fenceline.limits import INT32_MAX, INT64_MAX, MARKER_EPOCH_MAX
from fenceline.model.group import GROUP_STATES
from fenceline.model.transaction import STATES

T = TypeVar("T", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_SHOWN_CHARS_MAX = 100


class Process:
    """This process. ``pid`` is kept, since asking the kernel for each record would take a tenth of a reader's time."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        if hasattr(os, "register_at_fork"):  # where there is fork()
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.pid = os.getpid()


HERE = Process()


class WrongTypeError(InvalidRequestError, TypeError):
    """An argument of a type that the call does not take. Nothing was sent."""


class WrongValueError(InvalidRequestError, ValueError):
    """An argument with a value that the call does not take. Nothing was sent."""


class _Unfit(Exception):
    """A sign that an argument does not fit a rule."""

    def __init__(self, kind: type[InvalidRequestError]) -> None:
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Rule:
    """A test of an argument.

    Attributes:
        allowed: In words, after "must be".
        take: Returns what the call goes on with, or raises ``_Unfit``.
    """

    allowed: str
    take: Callable[[Any], Any]


def check_here(made: Any) -> None:
    """Raise ``RuntimeError`` unless this process made ``made``, whose class is decorated by ``public``."""
    if made._made_in != HERE.pid:
        raise elsewhere(made)


def elsewhere(made: Any) -> RuntimeError:
    """Return the error of a call in a process that did not make ``made``."""
    return RuntimeError(
        f"a {type(made).__name__} works only in the process that made it; this one was forked, so make a new Client "
        f"here: made_in={made._made_in} here={os.getpid()}"
    )


def refuse(kind: type[InvalidRequestError], name: str, allowed: str, given: object) -> NoReturn:
    """Raise the error of an argument that is not as ``allowed``."""
    if issubclass(kind, TypeError):
        raise kind(f"{name} must be {allowed}: {name}=<{type(given).__name__}>", field=name)
    raise kind(f"{name} must be {allowed}: {name}={ascii(given)[:_SHOWN_CHARS_MAX]}", field=name)


def checked(name: str, rule: Rule, given: Any) -> Any:
    """Return the value with which a call goes on, in place of its argument.

    Raises:
        WrongTypeError, WrongValueError: The call does not take it.
    """
    try:
        return rule.take(given)
    except _Unfit as unfit:
        kind = unfit.kind
    refuse(kind, name, rule.allowed, given)


def integer(lowest: int, highest: int = INT64_MAX, *, what: str = "an integer") -> Rule:
    """Return the rule of integers within the bounds, both included; a ``bool`` is none."""

    def take(given: Any) -> int:
        if type(given) is not int:
            if isinstance(given, bool) or not hasattr(given, "__index__"):
                raise _Unfit(WrongTypeError)
            given = index(given)
        if not lowest <= given <= highest:
            raise _Unfit(WrongValueError)
        return int(given)

    bounds = f"from {lowest} to {highest}" if highest < INT64_MAX else f"of {lowest} or more"
    return Rule(what if lowest == -INT64_MAX else f"{what} {bounds}", take)


def of(allowed: str, is_one: Callable[[Any], bool]) -> Rule:
    """Return the rule of what ``is_one`` says is one."""

    def take(given: Any) -> Any:
        if not is_one(given):
            raise _Unfit(WrongTypeError)
        return given

    return Rule(allowed, take)


def made_of(*names: str) -> Rule:
    """Return the rule of instances of our classes, by name: the class need not be loaded to be asked for."""

    def is_one(given: Any) -> bool:
        classes = (one for one in type(given).__mro__ if one.__module__.startswith("fenceline."))
        return any(one.__name__ in names for one in classes)

    return of("an instance of " + " or ".join(names), is_one)


def words(*allowed: str) -> Rule:
    """Return the rule of a word that is one of these."""

    def take(given: Any) -> str:
        if not isinstance(given, str):
            raise _Unfit(WrongTypeError)
        if given not in allowed:
            raise _Unfit(WrongValueError)
        return given

    return Rule("one of " + ", ".join(map(repr, allowed)), take)


def each(rule: Rule, allowed: str) -> Rule:
    """Return the rule of a collection of what ``rule`` takes. It becomes a list, so that it can be gone through again.

    Neither text nor bytes are one, although Python can go through them.
    """

    def take(given: Any) -> list[Any]:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise _Unfit(WrongTypeError)
        return [rule.take(one) for one in list(given)]

    return Rule(allowed, take)


def by(key: Rule, value: Rule, allowed: str) -> Rule:
    """Return the rule of a mapping."""

    def take(given: Any) -> dict[Any, Any]:
        if not isinstance(given, Mapping):
            raise _Unfit(WrongTypeError)
        return {key.take(one): value.take(given[one]) for one in given}

    return Rule(allowed, take)


def either(allowed: str, *rules: Rule) -> Rule:
    """Return the rule of what one of ``rules`` takes, tried in order."""

    def take(given: Any) -> Any:
        kind: type[InvalidRequestError] = WrongTypeError
        for rule in rules:
            try:
                return rule.take(given)
            except _Unfit as unfit:
                kind = unfit.kind if kind is WrongTypeError else kind
        raise _Unfit(kind)

    return Rule(allowed, take)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise _Unfit(WrongTypeError)
    if not given.isascii() and any("\ud800" <= one <= "\udfff" for one in given):  # what UTF-8 does not have
        raise _Unfit(WrongValueError)
    return given


def shape(name: str, allowed: str, **fields: Rule) -> Rule:
    """Return the rule of instances of one of our classes, by the fields that are looked at."""
    instance = made_of(name)

    def take(given: Any) -> Any:
        instance.take(given)
        for field, rule in fields.items():
            value = getattr(given, field)
            if type(rule.take(value)) is not type(value):  # it would have to be replaced
                raise _Unfit(WrongTypeError)
        return given

    return Rule(allowed, take)


def pairs(first: Rule, second: Rule, allowed: str) -> Rule:
    """Return the rule of collections of two that belong together."""

    def take(given: Any) -> Any:
        if not isinstance(given, tuple) or len(given) != 2:
            raise _Unfit(WrongTypeError)
        return first.take(given[0]), second.take(given[1])

    return each(Rule("", take), allowed)


TEXT = Rule("text without lone surrogates", _text)
FLAG = of("True or False", lambda given: isinstance(given, bool))
OCTETS = of("bytes", lambda given: isinstance(given, bytes))
CALLABLE = of("something that can be called", callable)
OFFSET = integer(0)
MS = integer(0, what="an integer of ms,")
MS_AT_LEAST_ONE = integer(1, what="an integer of ms,")
COUNT = integer(1)
ANY_INTEGER = integer(-INT64_MAX)  # the service knows which
PARTITION = ANY_INTEGER  # which there are, the topic says
PARTITIONS = each(PARTITION, "a collection of partitions' numbers")
PAIR = shape(
    "ProducerPair",
    "a ProducerPair of two integers of 0 or more",
    producer_id=integer(0),
    producer_epoch=integer(0, MARKER_EPOCH_MAX),
)
NAMES = each(TEXT, "a collection of names")
SETTING = of("a text, an integer, True or False, or None", lambda given: isinstance(given, (str, int, type(None))))
NOTHING = of("None", lambda given: given is None)
GENERATIONS = by(TEXT, either("", NOTHING, integer(0)), "a mapping of names to generations or None")
COMMITTED = each(
    shape("CommittedOffset", "", topic=TEXT, partition=ANY_INTEGER, offset=OFFSET, metadata=TEXT),
    "a collection of CommittedOffset, each with a topic, a partition and an offset of 0 or more, and metadata as text",
)
SESSION_REF = shape("SessionRef", "a SessionRef of text and an epoch", session_id=TEXT, topic_epoch=integer(-1))
# Each record is checked where it is taken (``records``): a collection may be larger than memory.
RECORDS = of(
    "a collection of Record",
    lambda given: isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)),
)
OF_A_RECORD = of("part of a record", lambda _: True)
EXPECTED = integer(-1)

# By the argument's name; ``call.name`` where the name means something else in one call.
RULES: Mapping[str, Rule] = {
    "access_mode": words("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"),
    "ack_every_ms": MS,
    "app_id": TEXT,
    "assignor": TEXT,
    "as_operator": FLAG,
    "batch_bytes": COUNT,
    "batches": FLAG,
    "before_offset": OFFSET,
    "body": OCTETS,
    "buffer_bytes": COUNT,
    "callback": CALLABLE,
    "client_name": TEXT,
    "compacted": FLAG,
    "compacted_since": OFFSET,
    "compaction_order": words("offset", "timestamp"),
    "compression": words("none", "gzip", "snappy", "lz4", "zstd"),
    "commit": words("auto", "manual"),
    "commit_every_ms": MS_AT_LEAST_ONE,
    "config": by(TEXT, SETTING, "a mapping of names to settings: text, integers, True or False, None for a default"),
    "counts": FLAG,
    "cumulative": OFFSET,
    "delivery_ms": MS_AT_LEAST_ONE,
    "effect": words("none", "repeatable", "ends", "once"),
    "error": made_of("FencelineError"),
    "expected_offset": either(
        "an integer of -1 or more, or one for each record", EXPECTED, each(EXPECTED, "one for each record")
    ),
    "expected_offsets": by(PARTITION, OFFSET, "a mapping of partitions' numbers to offsets of 0 or more"),
    "follow": FLAG,
    "generation": integer(0),
    "group": TEXT,
    "headers": OF_A_RECORD,
    "holding": made_of("Holding"),
    "http": of("an httpx.BaseTransport", lambda given: callable(getattr(given, "handle_request", None))),
    "idempotent": FLAG,
    "identity": FLAG,
    "idle_delay_ms": MS_AT_LEAST_ONE,
    "individual": each(OFFSET, "a collection of offsets of 0 or more"),
    "initial_position": words("latest", "earliest"),
    "instance_id": TEXT,
    "is_coming_back": FLAG,
    "isolation": words("read_uncommitted", "read_committed"),
    "key": OF_A_RECORD,
    "kind": words("group", "transaction"),
    "lease_ms": MS,
    "limit": COUNT,
    "linger_ms": MS,
    "longer_than_ms": MS,
    "max_bytes": COUNT,
    "max_delay_ms": MS,
    "max_in_flight": integer(1, 10_000),
    "max_records": COUNT,
    "member_epoch": OFFSET,
    "member_id": TEXT,
    "members": pairs(TEXT, PAIR, "a collection of TransactionMember"),
    "name": TEXT,
    "new_from": integer(0),
    "offset": OFFSET,
    "offsets": COMMITTED,
    "on_assigned": CALLABLE,
    "on_fenced": CALLABLE,
    "on_growth": CALLABLE,
    "on_lost": CALLABLE,
    "on_queued": CALLABLE,
    "on_restart": CALLABLE,
    "on_retry": CALLABLE,
    "on_revoked": CALLABLE,
    "on_severed": CALLABLE,
    "on_wait": CALLABLE,
    "once": shape(
        "OnceMark",
        "an OnceMark of a text, a version of 0 or more, and a note as text",
        app_id=TEXT,
        version=integer(0),
        note=either("", NOTHING, TEXT),
    ),
    "origin": TEXT,
    "owned": each(
        shape("NamedPartitions", "", topic=TEXT, topic_id=TEXT),
        "a collection of NamedPartitions, each with a topic, its id or an empty text, and numbers of partitions",
    ),
    "owner": made_of("Owner"),
    "pair": PAIR,
    "partition": PARTITION,
    "partitioner": CALLABLE,
    "partitions": PARTITIONS,
    "positions": each(
        shape("PollPosition", "", topic=TEXT, partition=PARTITION, offset=either("", NOTHING, OFFSET)),
        "a collection of PollPosition, each with a topic, a partition and an offset of 0 or more, or None",
    ),
    "prefix": TEXT,
    "producer": shape(
        "ProducerRef",
        "a ProducerRef of three integers of 0 or more",
        producer_id=integer(0),
        producer_epoch=integer(0, MARKER_EPOCH_MAX),
        sequence=integer(0, INT32_MAX),
    ),
    "producer_id": integer(0),
    "producer_name": TEXT,
    "reader_id": TEXT,
    "rebalance_timeout_ms": ANY_INTEGER,
    "record": made_of("RegionalRecord"),
    "records": RECORDS,
    "region": TEXT,
    "regions": NAMES,
    "replicate_subscription_state": FLAG,
    "require_stable": FLAG,
    "resource": TEXT,
    "resources": either("a name, several names, or a mapping of names to generations", TEXT, GENERATIONS, NAMES),
    "result": words("commit", "abort"),
    "retry_ms": MS,
    "runtime": of("a Runtime", lambda given: callable(getattr(given, "monotonic_ms", None))),
    "send": CALLABLE,
    "session": made_of("Session"),
    "shared": FLAG,
    "session_id": TEXT,
    "session_timeout_ms": ANY_INTEGER,
    "silent_ms": MS_AT_LEAST_ONE,
    "start": either(
        "'earliest', 'latest', an offset of 0 or more, or a mapping of partitions' numbers to such offsets",
        words("earliest", "latest"),
        OFFSET,
        by(PARTITION, OFFSET, ""),
    ),
    "start_after": TEXT,
    "start_partition": integer(0),
    "state": words(*STATES),
    "tail_offset": OFFSET,
    "tell": CALLABLE,
    "timeout_ms": MS,
    "timestamp": MS,
    "to_offset": OFFSET,
    "topic": TEXT,
    "topic_prefixes": NAMES,
    "topics": NAMES,
    "topic_epochs": by(PARTITION, ANY_INTEGER, "a mapping of partitions' numbers to epochs"),
    "transactional_id": TEXT,
    "url": TEXT,
    "value": OF_A_RECORD,
    "value_bytes_max": OFFSET,
    "wait_ms": MS,
    # where the name means something else
    "__init__.timeout_ms": MS_AT_LEAST_ONE,
    "acknowledge_individually.offsets": each(OFFSET, "a collection of offsets of 0 or more"),
    "acknowledge_individually.records": each(made_of("RegionalRecord"), "a collection of RegionalRecord"),
    "add_partitions_to_transaction.partitions": pairs(
        TEXT, PARTITION, "a collection of TopicPartition, each with a topic's name and a partition's number"
    ),
    "alter_topic.partitions": ANY_INTEGER,
    "consumer.prefix": either("text, or a collection of texts", TEXT, NAMES),
    "consumer.start": words("earliest", "latest"),
    "consumer.topics": either("a topic's name, or a collection of names", TEXT, NAMES),
    "coordinator.key": TEXT,
    "create_topic.partitions": ANY_INTEGER,
    "extend_transaction.timeout_ms": ANY_INTEGER,
    "groups.state": words(*GROUP_STATES),
    "produce.session": SESSION_REF,
    "produce_batch.session": SESSION_REF,
    "release.resources": NAMES,
    "send_offsets.group": either("a group's name, or a Consumer", TEXT, made_of("Consumer")),
    "send_offsets.session": made_of("Session", "Holding"),
    "subscribe_with_failover.regions": each(made_of("ApiClient"), "a collection of clients, one for each region"),
    "take.resources": GENERATIONS,
    "transactional_producer.timeout_ms": ANY_INTEGER,
    "transactional_producer_id.timeout_ms": ANY_INTEGER,
}


def rule_of(call: str, name: str) -> Rule:
    """Return the rule of an argument of a public call.

    Raises:
        KeyError: It has none.
    """
    found = RULES.get(f"{call}.{name}") or RULES.get(name)
    if found is None:
        raise KeyError(f"an argument of a public call has no rule; add one to RULES in {__name__}: {call}.{name}")
    return found


def checks_itself(method: F) -> F:
    """Mark a method that is called for each record, and checks process and arguments itself."""
    method.checks_itself = True  # type: ignore[attr-defined]
    return method


def public(cls: T) -> T:
    """Let each public method of ``cls``, and each property that may change, be checked first.

    Raises:
        KeyError: An argument has no rule.
    """
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and (not name.startswith("_") or name in _PUBLIC_SPECIAL):
            if not hasattr(member, "checks_itself"):
                setattr(cls, name, _guarded(name, member))
        elif isinstance(member, property) and not name.startswith("_") and name not in _FACTS:
            setattr(cls, name, property(_guarded(name, member.fget), doc=member.__doc__))
    return cls


def call(function: F) -> F:
    """Let a public function's arguments be checked first."""
    check = _checks(function.__name__, function)

    @wraps(function)
    def checked_call(*args: Any, **kwargs: Any) -> Any:
        return function(*check(args, kwargs), **kwargs)

    return checked_call  # type: ignore[return-value]


_PUBLIC_SPECIAL = frozenset({"__init__", "__enter__", "__exit__", "__iter__"})
_ENDS = frozenset({"close", "__exit__"})
# Properties that stay true in every process, or that a child needs to make objects of its own.
_FACTS = frozenset({"claim", "held", "is_closed", "pair", "session_id", "transactional_id", "url"})


def _guarded(name: str, method: Callable[..., Any] | None) -> Callable[..., Any]:
    assert method is not None
    check = _checks(name, method)
    is_start, is_end = name == "__init__", name in _ENDS

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_start:
            self._made_in = HERE.pid
        elif is_end and self._made_in != HERE.pid:
            return None
        else:
            check_here(self)
        return method(self, *check(args, kwargs), **kwargs)

    return guarded


def _checks(name: str, function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]:
    """Return a function that checks the arguments of a call: it returns the positional ones, and replaces the others.

    An argument that was left out is not looked at, nor one that the function does not have: Python refuses that.
    """
    given = [one for one in signature(function).parameters.values() if one.name != "self"]
    named = [one for one in given if one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    is_internal = function.__name__ == "__init__" and "url" not in {one.name for one in named}
    if is_internal or name == "__exit__":  # made by a public call, which has checked; or called by Python
        return lambda args, _: args
    rules = {one.name: rule_of(name, one.name) for one in named}
    optional = {one.name for one in named if str(one.annotation).endswith("None")}
    places = [one.name for one in named if one.kind is Parameter.POSITIONAL_OR_KEYWORD]

    def check_one(name: str, value: Any) -> Any:
        return value if value is None and name in optional else checked(name, rules[name], value)

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        for key, value in kwargs.items():
            if key in rules:
                kwargs[key] = check_one(key, value)
        if len(args) > len(places):
            return args
        return [check_one(key, value) for key, value in zip(places, args, strict=False)]

    return check
