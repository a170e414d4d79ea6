"""Commands about transactions against a server: open ones, decided ones, and one that hangs."""

import json
import sqlite3

import pytest

from fenceline.client import Client
from fenceline.format import keys
from fenceline_cli.dev_server.process import ServerProcess
from tests.cli.conftest import NUMBERS
from tests.support.results import error_line, lines


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def url(data):
    with ServerProcess(data) as server:
        yield server.url


@pytest.fixture
def transactional_id():
    return f"id-{next(NUMBERS)}"


@pytest.fixture
def producer(client, transactional_id):
    with client.transactional_producer(transactional_id) as producer:
        yield producer


@pytest.fixture
def opened(client, topic, producer):
    """Return an open transaction with ``c`` at offset 3, between ``a`` and ``b``, committed, and ``d``, of another."""

    def write(txn, *values):
        for value in values:
            txn.send(topic, value=value, partition=0)
        txn.flush()

    with producer.transaction() as txn:
        write(txn, b"a", b"b")
    with producer.transaction() as txn:
        write(txn, b"c")
        with client.producer(topic) as another:
            another.send(value=b"d", partition=0)
        yield txn


@pytest.fixture
def consume(run, topic):
    return lambda *options: "".join(lines(run("consume", topic, "--isolation", "read_committed", *options)))


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ([], "ab", "abcd"),
        (["--from", "latest"], "", ""),
        (["--from", "-1"], "b", "d"),  # a marker is behind it, before the commit and after it
        (["--from", "-2"], "ab", "cd"),
        (["--from", "-3"], "ab", "bcd"),
        (["--from", "-99"], "ab", "abcd"),
        (["--until", "end"], "ab", "abcd"),
        (["--until", "1"], "a", "a"),
        (["--until", "4"], "ab", "abc"),
        (["--until", "5"], "ab", "abcd"),
        (["--follow", "--until", "end"], "ab", "abcd"),
        (["--follow", "--max", "2"], "ab", "ab"),
        (["--compacted"], "ab", "abcd"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_reader_of_committed_records_ends_where_the_first_open_transaction_begins(
    consume, opened, topic, client, options, before, after
):
    assert client.offsets(topic, 0).bounds.last_stable_offset == 3
    assert consume("--partition", 0, *options) == before
    opened.commit()
    assert consume("--partition", 0, *options) == after


def test_an_aborted_record_is_never_printed_and_a_subscription_passes_it(run, consume, opened, topic):
    opened.abort()
    assert consume() == "abd"
    subscribed = ["consume", topic, "--subscription", "s", "--isolation", "read_committed"]
    assert "".join(lines(run(*subscribed))) == "abd"
    assert lines(run(*subscribed)) == []
    assert "".join(lines(run("consume", topic))) == "abcd"


def test_an_open_transaction_is_listed_described_and_in_the_partitions_producers(
    run, opened, producer, topic, transactional_id
):
    (one,) = json.loads(run("txn", "list", "--state", "Ongoing", "--producer-id", producer.pair[0], "--json").stdout)
    assert (one["transactional_id"], one["state"]) == (transactional_id, "Ongoing")
    assert one["partitions"] == [{"topic": topic, "partition": 0}]
    assert json.loads(run("txn", "describe", transactional_id, "--json").stdout) == one
    assert json.loads(run("txn", "list", "--longer-than", "1h", "--json").stdout) == []

    states = json.loads(run("producers", "describe", topic, "--json").stdout)
    (state,) = [one for one in states if one["producer_id"] == producer.pair[0]]
    assert (state["partition"], state["producer_epoch"], state["current_txn_start_offset"]) == (0, producer.pair[1], 3)


def test_what_holds_readers_of_a_topic_up_is_listed(run, opened, producer, topic, transactional_id):
    (one,) = json.loads(run("txn", "open", topic, "--json").stdout)
    assert (one["partition"], one["start_offset"], one["is_hanging"]) == (0, 3, False)
    assert (one["producer_id"], one["producer_epoch"], one["transactional_id"]) == (*producer.pair, transactional_id)
    header, row = lines(run("txn", "open", topic))
    assert header.split("\t") == list(one)
    pid, epoch = map(str, producer.pair)
    assert [*row.split("\t")[:4], *row.split("\t")[5:]] == ["0", pid, epoch, "3", transactional_id, "false"]


def test_fencing_aborts_what_is_open_and_keeps_what_was_committed(run, consume, opened, transactional_id):
    printed = run("txn", "fence", transactional_id).stdout
    assert " before=Ongoing: its transaction of 1 partition and 0 groups, begun at " in printed
    assert consume() == "abd"
    assert "before=Empty: it had no open transaction" in run("txn", "fence", transactional_id).stdout
    opened.outcome = "aborted"


def test_an_open_transaction_does_not_hang_and_is_not_aborted_as_such(run, opened, producer, topic):
    assert json.loads(run("txn", "find-hanging", topic, "--json").stdout) == []
    pair = ["--producer-id", producer.pair[0], "--producer-epoch", producer.pair[1]]
    assert error_line(run("txn", "abort", topic, "-p", 0, *pair, "--yes")).startswith("INVALID_TXN_STATE: ")


def test_a_hanging_transaction_is_ended_by_the_printed_command(run, consume, data, topic, url):
    """Damage: the items of its coordinator are gone."""
    with Client(url) as client, client.transactional_producer(transactional_id := f"{topic}-id") as producer:
        txn = producer.transaction()
        with txn:
            txn.send(topic, value=b"lost", partition=1)
            txn.flush()
            client.producer(topic).send(value=b"kept", partition=1).result()
            assert consume() == ""
            forget(data, keys.transaction_item(transactional_id), keys.transactional_id_item(producer.pair[0]))
            txn.outcome = "aborted"

    verified = run("verify", topic, "--data", data, "--workers", 1)
    assert verified.exit_code == 1
    assert "\tFOUND: a transaction hangs, and no coordinator will end it" in verified.stdout
    swept = run("sweep", "--data", data, "--json")
    assert (swept.exit_code, json.loads(swept.stdout)["transactions_hanging"]) == (1, 1)
    assert [one["is_hanging"] for one in json.loads(run("txn", "open", topic, "--json").stdout)] == [True]
    found = run("txn", "find-hanging", "--json")
    assert found.exit_code == 1
    (one,) = json.loads(found.stdout)
    assert (one["topic"], one["partition"], one["start_offset"], one["transactional_id"]) == (topic, 1, 0, None)
    program, *words = one["command"].split()
    assert program == "fenceline"
    assert "say --yes" in error_line(run(*words))
    lines(run(*words, "--yes"))

    assert consume() == "kept"
    assert lines(run("txn", "find-hanging"))[1:] == []
    assert error_line(run(*words, "--yes")).startswith("INVALID_TXN_STATE: ")
    assert run("verify", topic, "--data", data, "--workers", 1).exit_code == 0


def forget(data, *items):
    """Delete items behind the server's back."""
    with sqlite3.connect(data / "items.sqlite3") as connection:
        for key in items:
            (name,) = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            deleted = connection.execute(f"DELETE FROM {name} WHERE partition = ? AND sort = ?", key)
            assert deleted.rowcount == 1
    connection.close()
