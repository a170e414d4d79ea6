"""Public calls: arguments that no call takes, and objects in a process that did not make them."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import select
import signal
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FunctionType, SimpleNamespace

import pytest

import fenceline
import fenceline_testing
from fenceline import errors
from fenceline.client import calls
from fenceline.client import exit as program_exit
from fenceline.client.region_reader import RegionalRecord
from fenceline.client.types import CommittedOffset
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from fenceline.model.transaction import OnceMark, ProducerPair
from tests.support.patience import PATIENCE_S
from tests.support.runtime import FakeRuntime
from tests.support.wire import Wire

ENDS = {"close", "__exit__"}
# The same in every process; a child may need them to make its own.
FACTS = {"claim", "held", "is_closed", "pair", "session_id", "transactional_id", "url"}

PUBLIC = [
    getattr(fenceline, name)
    for name in fenceline.__all__
    if inspect.isclass(getattr(fenceline, name)) and getattr(fenceline, name).__module__.startswith("fenceline.client.")
    if not issubclass(getattr(fenceline, name), Exception) and name not in ("CommittedOffset", "Delivered")
]


def members_of(cls):
    """Yield the name and function of each public method and property, inherited ones included."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, property) and not name.startswith("_"):
            yield name, member.fget
        elif isinstance(member, FunctionType) and (not name.startswith("_") or name in calls._PUBLIC_SPECIAL):
            yield name, member


def arguments_of(function):
    return [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "exc")]


@pytest.fixture(scope="module")
def world():
    """One object of each public class, and all requests that were sent."""
    service = Wire()
    client = service.client(FakeRuntime(), retry_ms=0)
    with ExitStack() as stack:
        session = stack.enter_context(client.session())
        owner = stack.enter_context(client.own("t/0", session=session))
        producer = stack.enter_context(client.producer("t", owner=owner))
        transactional = stack.enter_context(client.transactional_producer("id"))
        made = {
            fenceline.Client: client,
            fenceline.Consumer: stack.enter_context(client.consumer("t", group="members")),
            fenceline.Delivery: producer.send(value=b"x"),
            fenceline.FailoverSubscriber: stack.enter_context(
                fenceline.subscribe_with_failover("t", "s", regions=[client], follow=False)
            ),
            fenceline.OpenTransaction: stack.enter_context(transactional.transaction()),
            fenceline.Owner: owner,
            fenceline.Producer: producer,
            fenceline.Reader: stack.enter_context(client.reader("t", start=0)),
            fenceline.Session: session,
            fenceline.Subscriber: stack.enter_context(client.subscribe("t", "s", follow=False)),
            fenceline.TransactionalProducer: transactional,
        }
        producer.flush()
        yield SimpleNamespace(made=made, sent=lambda: len(service.sent))


# By the argument's name, or ``call.name``: what the call takes.
RIGHT = {
    "app_id": "app",
    "before_offset": 0,
    "body": b"",
    "callback": print,
    "error": errors.ThrottledError(""),
    "group": "g",
    "key": b"k",
    "kind": "group",
    "member_epoch": 0,
    "member_id": "m",
    "members": [],
    "name": "s",
    "offset": 0,
    "offsets": [],
    "positions": [],
    "pair": ProducerPair(1, 0),
    "partition": 0,
    "producer_name": "p",
    "record": RegionalRecord(0, 0, b"", b"", [], -1, None),
    "records": [],
    "region": "a",
    "resource": "t/0",
    "resources": "t/0",
    "result": "abort",
    "session_id": "s",
    "send": print,
    "tell": print,
    "timeout_ms": 1,
    "timestamp": 0,
    "to_offset": 0,
    "topic": "t",
    "transactional_id": "id",
    "url": "http://fake",
    "value": b"v",
    "acknowledge_individually.offsets": [0],
    "add_partitions_to_transaction.partitions": [],
    "coordinator.key": "g",
    "release.resources": ["t/0"],
    "subscribe_with_failover.regions": [],
    "take.resources": {"t/0": None},
}
CALLS = [
    *((cls, name, function) for cls in PUBLIC for name, function in members_of(cls) if name != "__init__"),
    (fenceline, "Client", fenceline.Client.__init__),
    (fenceline, "subscribe_with_failover", fenceline.subscribe_with_failover),
]
WITH_ARGUMENTS = [
    pytest.param(owner, name, function, id=f"{owner.__name__}.{name}")
    for owner, name, function in CALLS
    if name != "__exit__" and arguments_of(function)  # an exit is called by Python
]


def given_to(name, function):
    """Return right arguments, for those that the call must get."""
    return {
        one.name: RIGHT[f"{name}.{one.name}"] if f"{name}.{one.name}" in RIGHT else RIGHT.get(one.name)
        for one in arguments_of(function)
        if one.default is inspect.Parameter.empty
    }


@pytest.mark.parametrize(("owner", "name", "function"), WITH_ARGUMENTS)
def test_a_wrong_argument_is_refused_where_it_is_given_and_nothing_is_sent(world, owner, name, function):
    """No public call is without its checks, also one that is added later."""
    call = getattr(world.made.get(owner, owner), name)
    before = world.sent()

    for argument in (one.name for one in arguments_of(function)):
        with pytest.raises(errors.InvalidRequestError, match="must be") as refused:
            call(**given_to(name, function) | {argument: object()})
        assert isinstance(refused.value, TypeError)
        assert refused.value.field == argument

    assert world.sent() == before


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda made: made.client.reader("t", start="Earliest"), "start must be 'earliest', 'latest', an offset"),
        (lambda made: made.client.reader("t", start=-1), "start must be"),
        (lambda made: made.client.reader("t", [0, 1], start={0: 5}), r"which it lacks for \[1\]"),
        (lambda made: made.client.reader("t", start={0: "5"}), "start must be"),
        (lambda made: made.client.reader("t", [0], new_from=1), "new_from must be left out by a reader that does not"),
        (lambda made: made.client.reader("t", [0], follow=True, new_from=-1), "new_from must be an integer of 0"),
        (lambda made: made.client.reader("t", [], follow=True, new_from=0), "partitions must be one at least"),
        (lambda made: made.client.reader("t", [0, 2, 1], follow=True, new_from=2), "new_from must be above each"),
        (lambda made: made.client.reader("t", "0"), "partitions must be a collection of partitions' numbers"),
        (lambda made: made.client.reader("t", isolation="committed"), "one of 'read_uncommitted', 'read_committed'"),
        (lambda made: made.client.reader("t", follow="no"), "follow must be True or False: follow=<str>"),
        (lambda made: made.client.reader("t", max_bytes=0), "max_bytes must be an integer of 1 or more: max_bytes=0"),
        (lambda made: made.client.producer("t", compression="lz5"), "one of 'none', 'gzip', 'snappy', 'lz4', 'zstd'"),
        (lambda made: made.client.producer("t", max_in_flight=0), "max_in_flight must be an integer from 1 to 10000"),
        (lambda made: made.client.producer("t", max_in_flight=True), "max_in_flight=<bool>"),
        (lambda made: made.client.producer("t", linger_ms=0.5), "linger_ms must be an integer of ms, of 0 or more"),
        (lambda made: made.client.producer("t", delivery_ms=0), "delivery_ms must be an integer of ms, of 1 or more"),
        (lambda made: made.client.producer("t", access_mode="exclusive"), "one of 'Shared', 'Exclusive', 'Wait"),
        (lambda made: made.client.producer("t", session="s1"), "session must be an instance of Session: session=<str>"),
        (lambda made: made.client.producer("t", expected_offsets={"0": 1}), "expected_offsets must be a mapping"),
        (lambda made: made.client.commit_offsets("g", [("t", 0, 1)]), "a collection of CommittedOffset, each with a"),
        (lambda made: made.client.commit_offsets("g", [CommittedOffset("t", "0", 1)]), "offsets must be"),
        (lambda made: made.client.commit_offsets("g", [CommittedOffset("t", 0, -1)]), "an offset of 0 or more"),
        (lambda made: made.client.produce("t", 0, [], producer=ProducerRef(1, 0, 2**31)), "producer must be"),
        (lambda made: made.client.produce("t", 0, [], producer=ProducerRef("1", 0, 0)), "three integers of 0 or more"),
        (lambda made: made.client.end_transactions([("i", (1, 0))], "abort"), "a collection of TransactionMember"),
        (lambda made: made.client.end_transactions([], "abort", once=OnceMark("a", -1)), "a version of 0 or more"),
        (lambda made: made.client.add_partitions_to_transaction("i", (1, 0), []), "pair must be a ProducerPair"),
        (lambda made: made.client.produce("t", 0, [b"x"]), "each record must be a fenceline.Record: record=<bytes>"),
        (lambda made: made.client.produce("t", 0, []), "no records were given; give at least one"),
        (lambda made: made.client.produce("t", 0, b"x"), "records must be a collection of Record"),
        (lambda made: made.client.produce("t", "0", []), "partition must be an integer: partition=<str>"),
        (lambda made: made.client.produce("t", 0, [], compression="LZ4"), "compression='LZ4'"),
        (
            lambda made: made.client.produce("t", 0, [], session=made.session),
            "session must be a SessionRef of text",
        ),
        (lambda made: made.client.topic("\ud800"), "name must be text without lone surrogates"),
        (lambda made: made.client.topics(prefix=b"t"), "prefix must be text"),
        (lambda made: made.client.own(["a", 1]), "a name, several names, or a mapping of names to generations"),
        (lambda made: made.client.own("a", wait_ms=-1), "wait_ms must be an integer of ms, of 0 or more: wait_ms=-1"),
        (lambda made: made.client.transactions(state="ongoing"), "state must be one of 'Empty', 'Ongoing'"),
        (lambda made: made.client.end_transaction("i", ProducerPair(1, 0), "Commit"), "one of 'commit', 'abort'"),
        (lambda made: made.producer.send(value="text"), "key and value must be bytes or None"),
        (lambda made: made.producer.send(value=b"x", headers=["a"]), "a record's header must be a name and a value"),
        (lambda made: made.producer.send(value=b"x", headers="ab"), "headers must be pairs of name and value"),
        (lambda made: made.producer.send(value=b"x", headers=iter([("a", b"")])), "headers must be pairs of name"),
        (lambda made: made.producer.send(value=b"x", headers=[("\ud800", b"")]), "without lone surrogates"),
        (lambda made: made.producer.send(value=b"x", partition="0"), "partition must be an integer: partition=<str>"),
        (lambda made: made.producer.send_many([b"x"]), "each record must be a fenceline.Record: record=<bytes>"),
        (lambda made: made.producer.send_many(Record(b"x")), "records must be a collection of Record"),
        (lambda made: made.subscriber.acknowledge(0, -1), "offset must be an integer of 0 or more: offset=-1"),
        (lambda made: made.subscriber.acknowledge_individually(0, 5), "offsets must be a collection of offsets"),
        (lambda made: fenceline.Client(None), "url must be text"),
        (
            lambda made: fenceline.Client("http://fake", timeout_ms=0),
            "timeout_ms must be an integer of ms, of 1 or more",
        ),
        (lambda made: fenceline.subscribe_with_failover("t", "s", regions=["http://a"]), "a collection of clients"),
    ],
)
def test_an_error_of_an_argument_says_what_is_allowed(world, call, expected):
    made = SimpleNamespace(
        client=world.made[fenceline.Client],
        producer=world.made[fenceline.Producer],
        session=world.made[fenceline.Session],
        subscriber=world.made[fenceline.Subscriber],
    )
    before = world.sent()
    with pytest.raises(errors.InvalidRequestError, match=expected):
        call(made)
    assert world.sent() == before


def test_a_call_takes_each_form_of_its_arguments(world):
    class Index:
        """As numpy's integers."""

        def __index__(self):
            return 7

    took = {
        "partitions": ([0, 1], (0, 1), {0: "a", 1: "b"}, range(2), iter([0, 1])),
        "start": ("earliest", "latest", 0, {0: 1}),
        "resources": ("a", ["a", "b"], {"a": None, "b": 3}),
        "expected_offset": (-1, 5, [5, -1], (5, 6)),
        "offset": (0, 2**63 - 1, Index()),
        "config": ({"retention.ms": -1, "cleanup.policy": None, "check.expected.offsets": True},),
    }
    for name, values in took.items():
        for value in values:
            calls.checked(name, calls.RULES[name], value)
    assert calls.checked("offset", calls.RULES["offset"], Index()) == 7
    assert calls.checked("partitions", calls.RULES["partitions"], iter([3, 4])) == [3, 4]


def test_each_rule_is_that_of_a_public_call():
    named = {
        one for _, name, function in CALLS for arg in arguments_of(function) for one in (arg.name, f"{name}.{arg.name}")
    }
    assert set(calls.RULES) <= named | {"__init__.timeout_ms"}


@pytest.mark.parametrize(
    ("owner", "name"),
    [pytest.param(cls, name, id=f"{cls.__name__}.{name}") for cls, name, _ in CALLS if cls in PUBLIC],
)
def test_in_another_process_each_call_raises_one_error_and_an_end_does_nothing(world, owner, name, monkeypatch):
    made = world.made[owner]
    before = world.sent()
    monkeypatch.setattr(calls.HERE, "pid", -1)
    is_property = isinstance(inspect.getattr_static(owner, name), property)
    if is_property:
        call = partial(getattr, made, name)
    else:
        call = partial(getattr(made, name), **given_to(name, inspect.getattr_static(owner, name)))

    if is_property and name in FACTS:
        call()
    elif name in ENDS:
        assert call() is None
    else:
        with pytest.raises(RuntimeError, match="works only in the process that made it"):
            call()
    assert world.sent() == before


@contextmanager
def held_by_another_thread(*locks):
    """Hold locks as a thread does that a child is forked beside."""
    holding, done = threading.Event(), threading.Event()

    def hold():
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            holding.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(PATIENCE_S)
    yield
    done.set()
    thread.join()


def returned_by_a_child(program):
    """Run ``program`` in a fork of this process, and return what it returns."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, json.dumps(program()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        assert select.select([reading], [], [], PATIENCE_S)[0], "the child hangs"
        return json.loads(os.read(reading, 1_000_000))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)


def outcome_of(call):
    try:
        return repr(call())
    except (RuntimeError, errors.FencelineError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_is_refused_at_once_and_leaves_its_parents_connections_alone():
    with fenceline_testing.serving() as server, ExitStack() as stack:
        client = stack.enter_context(server.another_client())
        client.create_topic("t")
        session = stack.enter_context(client.session())
        owner = stack.enter_context(client.own("lock"))
        producer = stack.enter_context(client.producer("t", linger_ms=0))
        transactional = stack.enter_context(client.transactional_producer("id"))
        txn = stack.enter_context(transactional.transaction())
        txn.send("t", value=b"committed").result(60_000)
        reader = stack.enter_context(client.reader("t", follow=True))
        subscriber = stack.enter_context(client.subscribe("t", "s", initial_position="earliest"))
        records, pages = iter(reader), client.reader("t", start=0).pages()
        delivery = producer.send(value=b"0")
        delivery.result(60_000)
        assert next(records)[1].value == b"committed"
        topics, shown, each = client.topics(), subscriber.pages(), iter(subscriber)
        uses = {
            "a request": partial(client.topic, "t"),
            "a list": partial(next, topics),
            "a record": partial(producer.send, value=b"from the child"),
            "records": partial(producer.send_many, [Record(b"from the child")]),
            "a flush": producer.flush,
            "a delivery": delivery.result,
            "another block": producer.__enter__,
            "a record in a transaction": partial(txn.send, "t", value=b"from the child"),
            "a commit": txn.commit,
            "an abort": txn.abort,
            "the next record": partial(next, records),
            "the first page": partial(next, pages),
            "another iteration": partial(list, subscriber),
            "the first records": partial(next, shown),
            "the first record": partial(next, each),
            "an acknowledgement": partial(subscriber.acknowledge, 0, 0),
            "the session": partial(getattr, session, "left_ms"),
            "the owner": owner.check,
        }
        ends = [producer, txn, transactional, reader, subscriber, owner, session, client]

        def child():
            outcomes = {what: outcome_of(use) for what, use in uses.items()}
            outcomes |= {
                f"the end of {type(one).__name__}": outcome_of(partial(one.__exit__, None, None, None)) for one in ends
            }
            outcomes |= {
                f"close of {type(one).__name__}": outcome_of(one.close) for one in ends if hasattr(one, "close")
            }
            program_exit.flush_all()
            with fenceline.Client(client.url) as own, own.producer("t") as ours:
                outcomes["its own"] = ours.send(value=b"from the child's own").result(60_000).offset
            return outcomes

        locks = (producer._lock, producer._queue._changed, session._changed, session._lock, owner._lock)
        with held_by_another_thread(*locks):
            outcomes = returned_by_a_child(child)

        refused = {what for what, said in outcomes.items() if "works only in the process that made it" in str(said)}
        assert refused == set(uses)
        assert outcomes.pop("its own") == 2
        assert {said for what, said in outcomes.items() if what not in uses} == {"None"}
        for n in range(3, 20):
            assert producer.send(value=b"%d" % n).result(60_000).offset == n
        owner.check()
        txn.commit()
        values = [record.value for record in client.read("t", 0, offset=0).records]
    assert values == [b"committed", b"0", b"from the child's own", *(b"%d" % n for n in range(3, 20))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_of_multiprocessing_append_by_clients_of_their_own_alone():
    """Over one connection they would mix up each other's answers: an append acknowledged at another's offset."""
    with fenceline_testing.serving() as server, server.another_client() as client:
        client.create_topic("t")
        client.produce("t", 0, [Record(b"-1")])
        forking = multiprocessing.get_context("fork")
        said = forking.SimpleQueue()

        def work():
            for _ in range(5):
                said.put(outcome_of(partial(client.produce, "t", 0, [Record(b"from a child")])))

        children = [forking.Process(target=work) for _ in range(3)]
        for child in children:
            child.start()
        acknowledged = {client.produce("t", 0, [Record(b"%d" % n)]).base_offset: b"%d" % n for n in range(30)}
        for child in children:
            child.join(PATIENCE_S)
            assert child.exitcode == 0
        stored = {record.offset: record.value for record in client.read("t", 0, offset=0).records}

    assert stored == acknowledged | {0: b"-1"}
    assert {said.get().partition(":")[0] for _ in range(15)} == {"RuntimeError"}
