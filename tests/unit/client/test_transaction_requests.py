"""The requests about transactions: what is asked, and what each answer becomes."""

import json

import httpx
import pytest

from fenceline import CommittedOffset, OnceMark, ProducerPair, TopicPartition, TransactionMember, errors
from fenceline.client import Client
from fenceline.client.types import Coordinator
from fenceline.model.transaction import OpenTransaction, ShownProducerState, Transaction
from tests.support.runtime import AheadRuntime
from tests.support.wire import refused

PAIR = ProducerPair(7, 3)
SHOWN = {
    "transactional_id": "a b/c",
    "state": "Ongoing",
    "producer_id": 7,
    "producer_epoch": 3,
    "transaction_timeout_ms": 60_000,
    "started_at": 5,
    "partitions": [{"topic": "t", "partition": 1}],
    "groups": ["g"],
}


def client_of(*script):
    """Return a client whose requests are answered by ``script`` in order; and what it asked."""
    asked = []

    def answer(request):
        path = request.url.raw_path.decode()
        asked.append((request.method, path, json.loads(request.content) if request.content else None))
        return script[min(len(asked), len(script)) - 1]

    return Client("http://fake", runtime=AheadRuntime(), http=httpx.MockTransport(answer)), asked


def ok(body):
    return httpx.Response(200, json=body)


def test_the_id_request_names_the_pair_only_where_one_is_given():
    client, asked = client_of(ok({"producer_id": 7, "producer_epoch": 4}))

    assert client.transactional_producer_id("a") == ProducerPair(7, 4)
    assert client.transactional_producer_id("a", timeout_ms=9, pair=PAIR) == ProducerPair(7, 4)
    assert client.producer_id() == ProducerPair(7, 4)

    plain = {"transactional_id": "a", "transaction_timeout_ms": 60_000}
    paired = {"transactional_id": "a", "transaction_timeout_ms": 9, "producer_id": 7, "producer_epoch": 3}
    assert [body for _, _, body in asked] == [plain, paired, None]


def test_a_transactional_id_is_one_part_of_each_path():
    client, asked = client_of(
        ok({"results": []}), httpx.Response(204), ok({}), ok({"producer_id": 7, "producer_epoch": 4}), ok(SHOWN)
    )
    client.add_partitions_to_transaction("a b%c", PAIR, [TopicPartition("t", 1)])
    client.add_group_to_transaction("a b%c", PAIR, "g")
    client.send_offsets_to_transaction("a b%c", PAIR, "g", [CommittedOffset("t", 1, 9)], session_id="s")
    assert client.end_transaction("a b%c", PAIR, "commit") == ProducerPair(7, 4)
    client.transaction("a b%c")

    pair = {"producer_id": 7, "producer_epoch": 3}
    offset = {"topic": "t", "partition": 1, "offset": 9, "metadata": ""}
    path = "/v1/transactions/a%20b%25c"
    assert asked == [
        ("POST", f"{path}/partitions", {**pair, "partitions": [{"topic": "t", "partition": 1}]}),
        ("POST", f"{path}/groups", {**pair, "group": "g"}),
        ("POST", f"{path}/offsets", {**pair, "group": "g", "session_id": "s", "offsets": [offset]}),
        ("POST", f"{path}/end", {**pair, "result": "commit"}),
        ("GET", path, None),
    ]


def test_several_transactions_end_by_one_request():
    ended = [{"transactional_id": "a/b", "producer_id": 7, "producer_epoch": 4}]
    client, asked = client_of(ok({"transactions": ended}))

    members = [TransactionMember("a/b", PAIR)]
    assert client.end_transactions(members, "abort") == [TransactionMember("a/b", ProducerPair(7, 4))]
    client.end_transactions(iter(members), "commit", once=OnceMark("app", 5, "run"))
    client.end_transactions([], "commit", once=OnceMark("app", 0, committed_at=9))

    entry = {"transactional_id": "a/b", "producer_id": 7, "producer_epoch": 3}
    once = {"app_id": "app", "version": 5, "note": "run"}
    assert asked == [
        ("POST", "/v1/transactions/end", {"transactions": [entry], "result": "abort"}),
        ("POST", "/v1/transactions/end", {"transactions": [entry], "result": "commit", "once": once}),
        (
            "POST",
            "/v1/transactions/end",
            {"transactions": [], "result": "commit", "once": {"app_id": "app", "version": 0}},
        ),
    ]


def test_one_transaction_ends_with_a_version():
    client, asked = client_of(ok({"producer_id": 7, "producer_epoch": 4}))

    assert client.end_transaction("a", PAIR, "commit", once=OnceMark("app", 5)) == ProducerPair(7, 4)
    body = {"producer_id": 7, "producer_epoch": 3, "result": "commit", "once": {"app_id": "app", "version": 5}}
    assert asked == [("POST", "/v1/transactions/a/end", body)]


def test_a_committed_version_is_shown_and_forgotten():
    shown = {"app_id": "a b", "version": 5, "note": None, "committed_at": 9, "later": "unknown"}
    client, asked = client_of(ok(shown), httpx.Response(204))

    assert client.once("a b") == OnceMark("a b", 5, None, 9)
    client.forget_once("a b")
    assert asked == [("GET", "/v1/once/a%20b", None), ("DELETE", "/v1/once/a%20b", None)]


def test_an_extension_says_until_when():
    client, asked = client_of(LOST, ok({"expires_at": 99}))

    assert client.extend_transaction("a b", PAIR, 20_000) == 99
    body = {"producer_id": 7, "producer_epoch": 3, "timeout_ms": 20_000}
    assert asked == [("POST", "/v1/transactions/a%20b/extend", body)] * 2


def test_a_transaction_that_was_extended_says_until_when():
    client, _ = client_of(ok({**SHOWN, "expires_at": 77}), ok(SHOWN))

    assert client.transaction("a").expires_at == 77
    assert client.transaction("a").expires_at is None


@pytest.mark.parametrize("call", ["end", "end-all"])
@pytest.mark.parametrize("before", ["LOST", "UNDECIDED"])
def test_a_version_that_is_committed_is_reported_as_such_after_a_lost_answer_too(call, before):
    """It says what is stored, and by which note: that is true whatever became of the lost request."""
    already = refused(errors.AlreadyCommittedError("it is committed", version=7, note="run-2"))
    client, asked = client_of({"LOST": LOST, "UNDECIDED": UNDECIDED}[before], already)

    with pytest.raises(errors.AlreadyCommittedError) as caught:
        CALLS[call](client)

    assert (caught.value.version, caught.value.note) == (7, "run-2")
    assert len(asked) == 2


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_transactional_id_that_no_path_carries_is_refused_before_anything_is_sent(name):
    client, asked = client_of(ok({}))

    with pytest.raises(errors.InvalidRequestError):
        client.end_transaction(name, PAIR, "abort")
    assert asked == []


def test_a_refused_partition_is_raised_and_not_those_that_were_not_attempted():
    beside = errors.OperationNotAttemptedError("not attempted").problem()
    unknown = errors.UnknownTopicOrPartitionError("no such topic").problem()
    results = [{"topic": "t", "partition": n, "error": problem} for n, problem in enumerate([beside, unknown, beside])]
    client, _ = client_of(ok({"results": results}))

    with pytest.raises(errors.UnknownTopicOrPartitionError, match="no such topic"):
        client.add_partitions_to_transaction("a", PAIR, [TopicPartition("t", n) for n in range(3)])


def test_transactions_are_listed_page_by_page_by_what_is_asked_for():
    second = {**SHOWN, "transactional_id": "b", "state": "Empty", "started_at": None, "partitions": [], "groups": []}
    client, asked = client_of(
        ok({"transactions": [SHOWN], "has_more": True}), ok({"transactions": [second], "has_more": False})
    )

    found = list(client.transactions(state="Ongoing", longer_than_ms=5))

    assert found == [
        Transaction("a b/c", "Ongoing", 7, 3, 60_000, 5, [TopicPartition("t", 1)], ["g"]),
        Transaction("b", "Empty", 7, 3, 60_000, None, [], []),
    ]
    assert [path for _, path, _ in asked] == [
        "/v1/transactions?state=Ongoing&longer_than_ms=5",
        "/v1/transactions?state=Ongoing&longer_than_ms=5&start_after=a+b%2Fc",
    ]


def test_a_list_goes_on_where_the_service_stopped_looking_also_behind_an_empty_page():
    client, asked = client_of(
        ok({"transactions": [SHOWN], "has_more": True, "go_on_after": "k"}),
        ok({"transactions": [], "has_more": True, "go_on_after": "m/1"}),
        ok({"transactions": [], "has_more": False}),
    )

    assert len(list(client.transactions(as_operator=True))) == 1
    assert [path for _, path, _ in asked] == [
        "/v1/operator/transactions",
        "/v1/operator/transactions?start_after=k",
        "/v1/operator/transactions?start_after=m%2F1",
    ]


def test_an_operator_fences_an_id_and_hears_what_was_met():
    client, asked = client_of(ok({"producer_id": 7, "producer_epoch": 4, "before": SHOWN}))

    before, pair = client.fence_transactional_id("a b/c")

    assert (before.transactional_id, before.state, pair) == ("a b/c", "Ongoing", ProducerPair(7, 4))
    assert asked == [("POST", "/v1/operator/transactions/a%20b%2Fc/fence", None)]


def test_producers_of_a_partition_are_listed_page_by_page_by_their_ids():
    states = [
        {
            "producer_id": n,
            "producer_epoch": 2,
            "last_sequence": -1,
            "last_timestamp": 8,
            "current_txn_start_offset": -1,
        }
        for n in (4, 9)
    ]
    client, asked = client_of(
        ok({"producers": states[:1], "has_more": True}), ok({"producers": states[1:], "has_more": False})
    )

    assert list(client.producer_states("t", 1)) == [ShownProducerState(n, 2, -1, 8, -1) for n in (4, 9)]
    assert [path for _, path, _ in asked] == [
        "/v1/topics/t/partitions/1/producer-states",
        "/v1/topics/t/partitions/1/producer-states?start_after=4",
    ]


def test_open_transactions_are_listed_page_by_page_by_partitions():
    shown = {
        "partition": 1,
        **PAIR._asdict(),
        "start_offset": 4,
        "since": 8,
        "transactional_id": None,
        "is_hanging": True,
    }
    client, asked = client_of(
        ok({"transactions": [], "has_more": True, "next_partition": 1}),
        ok({"transactions": [shown], "has_more": False}),
    )

    assert list(client.open_transactions("t")) == [OpenTransaction(1, PAIR, 4, 8, None, True)]
    assert [path for _, path, _ in asked] == [
        "/v1/topics/t/open-transactions?start_partition=0",
        "/v1/topics/t/open-transactions?start_partition=1",
    ]


def test_a_hanging_transaction_is_aborted_by_its_pair():
    client, asked = client_of(httpx.Response(204))
    client.abort_hanging_transaction("t", 1, PAIR)

    body = {"producer_id": 7, "producer_epoch": 3}
    assert asked == [("POST", "/v1/topics/t/partitions/1/abort-transaction", body)]


def test_an_operator_aborts_a_hanging_transaction_of_any_principal():
    client, asked = client_of(httpx.Response(204))
    client.abort_hanging_transaction("t", 1, PAIR, as_operator=True)

    body = {"topic": "t", "partition": 1, "producer_id": 7, "producer_epoch": 3}
    assert asked == [("POST", "/v1/operator/abort-transaction", body)]


def test_a_fence_whose_answer_was_lost_is_not_sent_again():
    """It would fence the producer that came after it, and show what the first one left as what was met."""
    client, asked = client_of(httpx.Response(502), ok({"before": SHOWN, "producer_id": 7, "producer_epoch": 5}))
    with pytest.raises(errors.OutcomeUnknownError):
        client.fence_transactional_id("a b/c")
    assert len(asked) == 1


def test_a_coordinator_is_looked_up_by_kind_and_key():
    client, asked = client_of(ok({"key": "a/b", "shard": 9, "region": "local", "endpoint": "http://fake"}))

    assert client.coordinator("transaction", "a/b") == Coordinator("a/b", 9, "local", "http://fake")
    assert asked == [("GET", "/v1/coordinators/transaction/a%2Fb", None)]


CALLS = {
    "id": lambda client: client.transactional_producer_id("a", pair=PAIR),
    "add": lambda client: client.add_partitions_to_transaction("a", PAIR, []),
    "group": lambda client: client.add_group_to_transaction("a", PAIR, "g"),
    "offsets": lambda client: client.send_offsets_to_transaction("a", PAIR, "g", []),
    "end": lambda client: client.end_transaction("a", PAIR, "commit"),
    "end-all": lambda client: client.end_transactions([TransactionMember("a", PAIR)], "commit"),
    "extend": lambda client: client.extend_transaction("a", PAIR, 1),
}
UNDECIDED = refused(errors.ConcurrentTransactionsError("it is being finished"))
LOST = httpx.Response(502)
REFUSED = refused(errors.ProducerFencedError("another instance came"))


@pytest.mark.parametrize(
    ("call", "before", "expected"),
    [
        ("id", LOST, errors.ProducerFencedError),  # true of the instance, whatever became of the lost one
        ("id", UNDECIDED, errors.ProducerFencedError),
        ("add", LOST, errors.OutcomeUnknownError),
        ("group", LOST, errors.OutcomeUnknownError),
        ("offsets", LOST, errors.OutcomeUnknownError),
        ("offsets", UNDECIDED, errors.ProducerFencedError),
        ("end", LOST, errors.OutcomeUnknownError),
        ("end-all", LOST, errors.OutcomeUnknownError),
        ("end-all", UNDECIDED, errors.OutcomeUnknownError),
        ("extend", LOST, errors.ProducerFencedError),  # true of the producer, whatever became of the lost one
        ("end", UNDECIDED, errors.OutcomeUnknownError),  # it may be decided, and another instance finished it
        ("end", refused(errors.StoreUnavailableError("away")), errors.ProducerFencedError),
    ],
)
def test_a_refusal_after_another_answer_says_as_much_as_can_be_known(call, before, expected):
    client, asked = client_of(before, REFUSED)

    with pytest.raises(errors.FencelineError) as caught:
        CALLS[call](client)

    assert type(caught.value) is expected
    assert len(asked) == 2
    if expected is errors.OutcomeUnknownError:
        assert isinstance(caught.value.__cause__, errors.ProducerFencedError)
