"""``fenceline txn`` and ``producers describe``: what they ask, what they print, and what hangs."""

import json
import sys

import httpx
import pytest
from typer.testing import CliRunner

from fenceline import errors
from fenceline.client import Client
from fenceline_cli import options, output
from fenceline_cli.commands.transactions import command as transactions
from fenceline_cli.main import app
from tests.cli.fake_listings import FakeListings, producer, transaction
from tests.support.results import error_line, last_line, lines


@pytest.fixture
def fake(monkeypatch):
    fake = FakeListings()

    def connect(url, **given):
        return Client(url, http=httpx.MockTransport(fake.answer), **given)

    monkeypatch.setattr(options, "Client", connect, raising=False)
    return fake


@pytest.fixture
def run(fake, monkeypatch):
    """Return a function that runs a command against the fake."""
    monkeypatch.delenv("FENCELINE_URL", raising=False)
    return lambda *arguments, typed=None: CliRunner().invoke(app, [*map(str, arguments)], input=typed)


OPEN = transaction("b", "Ongoing", 1007, 3, ("t", 0), ("u", 1))


@pytest.fixture
def listed(fake):
    """Four transactional ids, of which one is open and one is being ended."""
    fake.transactions = [
        transaction("a", "Empty", 1001, 0),
        OPEN,
        transaction("c/d", "PrepareAbort", 1002, 9, ("t", 1)),
        transaction("d", "CompleteCommit", 1003, 2),
    ]


def test_transactions_are_listed_over_all_pages(run, listed):
    header, *rows = [line.split("\t") for line in lines(run("txn", "list"))]
    assert header == [
        "transactional_id", "state", "producer_id", "producer_epoch", "timeout", "started_at", "partitions", "groups",
    ]  # fmt: skip
    assert rows[0] == ["a", "Empty", "1001", "0", "1m", "", "0", "0"]
    assert rows[1] == ["b", "Ongoing", "1007", "3", "1m", "1970-01-01T00:16:40Z", "2", "1"]
    assert [row[0] for row in rows] == ["a", "b", "c/d", "d"]
    assert json.loads(run("txn", "list", "--json").stdout)[1] == OPEN


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        (["--state", "Ongoing"], {"state": "Ongoing"}, ["b"]),
        (["--producer-id", 1003], {"producer_id": "1003"}, ["d"]),
        (["--longer-than", "5m"], {"longer_than_ms": "300000"}, ["b", "c/d"]),
        (["--longer-than", "1.5"], {"longer_than_ms": "1500"}, ["b", "c/d"]),
    ],
    ids=str,
)
def test_a_list_is_narrowed_by_the_service(run, fake, listed, given, asked, expected):
    found = json.loads(run("txn", "list", *given, "--json").stdout)
    assert [one["transactional_id"] for one in found] == expected
    assert fake.asked[0] == ("GET", "/v1/transactions", asked)


def test_a_transaction_is_described_with_its_end_and_its_partitions(run, listed):
    described = [line.split("\t") for line in lines(run("txn", "describe", "b"))]
    assert dict(described[:8]) == {
        "transactional_id": "b",
        "state": "Ongoing",
        "producer_id": "1007",
        "producer_epoch": "3",
        "timeout": "1m",
        "started_at": "1970-01-01T00:16:40Z",
        "times_out_at": "1970-01-01T00:17:40Z",
        "groups": "g",
    }
    assert described[8:] == [["topic", "partition"], ["t", "0"], ["u", "1"]]
    assert json.loads(run("txn", "describe", "b", "--json").stdout) == OPEN
    assert ["started_at", ""] in [line.split("\t") for line in lines(run("txn", "describe", "a"))]
    assert error_line(run("txn", "describe", "z")).startswith("TRANSACTIONAL_ID_NOT_FOUND: ")


def test_a_transaction_that_was_extended_times_out_no_earlier_than_that(run, fake):
    fake.transactions = [{**OPEN, "expires_at": 1_200_000}, {**OPEN, "transactional_id": "c", "expires_at": 1_000_001}]
    later, earlier = (dict(line.split("\t") for line in lines(run("txn", "describe", name))[:8]) for name in "bc")
    assert later["times_out_at"] == "1970-01-01T00:20:00Z"
    assert earlier["times_out_at"] == "1970-01-01T00:17:40Z"
    assert json.loads(run("txn", "describe", "b", "--json").stdout) == fake.transactions[0]


MARK = {"app_id": "spark.q/1", "version": 7, "note": "run-2", "committed_at": 1_000_000}


def test_what_an_application_has_committed_is_shown(run, fake):
    fake.once = {"spark.q/1": MARK}
    assert [line.split("\t") for line in lines(run("txn", "once", "spark.q/1"))] == [
        ["app_id", "spark.q/1"],
        ["version", "7"],
        ["note", "run-2"],
        ["committed_at", "1970-01-01T00:16:40Z"],
    ]
    assert json.loads(run("txn", "once", "spark.q/1", "--json").stdout) == MARK
    assert ["version", "-1"] in [line.split("\t") for line in lines(run("txn", "once", "other"))]
    assert {method for method, _, _ in fake.asked} == {"GET"}


def test_what_an_application_has_committed_is_forgotten_once_it_is_confirmed(run, fake):
    fake.once = {"spark.q/1": MARK}
    refused = run("txn", "once", "spark.q/1", "--delete")
    assert refused.exit_code == output.EXIT_FAILED
    assert "say --yes" in error_line(refused)
    assert fake.once
    assert lines(run("txn", "once", "spark.q/1", "--delete", "--yes")) == ["forgot spark.q/1 version=7"]
    assert not fake.once
    (line,) = lines(run("txn", "once", "spark.q/1", "--delete"))
    assert line == "nothing to forget: spark.q/1 has committed no version"


def test_what_was_forgotten_is_printed_as_json(run, fake):
    fake.once = {"spark.q/1": MARK}
    forgotten = json.loads(run("txn", "once", "spark.q/1", "--delete", "--yes", "--json").stdout)
    assert forgotten == {"forgotten": MARK}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a", "before=Empty: it had no open transaction"),
        (
            "b",
            "before=Ongoing: its transaction of 2 partitions and 1 group, begun at 1970-01-01T00:16:40Z, is aborted",
        ),
        ("d", "before=CompleteCommit: it had no open transaction"),
    ],
)
def test_fencing_takes_the_next_epoch_with_the_same_time_out_and_says_what_it_did(run, fake, listed, name, told):
    (line,) = lines(run("txn", "fence", name))
    assert line.startswith(f"fenced {name} producer_id=7 producer_epoch=5 {told}")
    asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    assert fake.asked[-1] == ("POST", "/v1/producer-ids", asked)

    answer = json.loads(run("txn", "fence", name, "--json").stdout)
    assert (answer["fenced"], answer["producer_id"], answer["producer_epoch"]) == (name, 7, 5)
    assert answer["before"]["transactional_id"] == name


def test_an_operator_fences_an_id_of_any_principal_by_a_route_of_its_own(run, fake, listed):
    (line,) = lines(run("txn", "fence", "--operator", "b"))
    assert line.startswith("fenced b producer_id=7 producer_epoch=5 before=Ongoing: its transaction of 2 partitions")
    assert fake.asked == [("POST", "/v1/operator/transactions/b/fence", {})]
    assert json.loads(run("txn", "fence", "--operator", "b", "--json").stdout)["before"] == OPEN


def test_an_operator_lists_the_ids_of_all_principals(run, fake, listed):
    assert len(lines(run("txn", "list", "--operator", "--state", "Ongoing"))) == 2
    assert fake.asked == [("GET", "/v1/operator/transactions", {"state": "Ongoing"})]


def test_the_help_says_what_needs_an_operator(run):
    for command in ((), ("list",), ("fence",), ("find-hanging",), ("abort",)):
        assert "/v1/operator/" in "".join(run("txn", *command, "--help").stdout.split()), command


def test_an_id_that_does_not_exist_is_not_made_by_fencing_it(run, fake):
    assert error_line(run("txn", "fence", "none")).startswith("TRANSACTIONAL_ID_NOT_FOUND: ")
    assert [method for method, _, _ in fake.asked] == ["GET"]
    assert error_line(run("txn", "fence", "--operator", "none")).startswith("TRANSACTIONAL_ID_NOT_FOUND: ")


def test_producers_are_described_by_partition(run, fake):
    fake.states = {("t", 0): [producer(n, 1) for n in range(1001, 1004)], ("t", 1): [producer(1007, 3, start=12)]}
    header, *rows = [line.split("\t") for line in lines(run("producers", "describe", "t"))]
    assert header == [
        "partition", "producer_id", "producer_epoch", "last_sequence", "last_append", "current_txn_start_offset",
    ]  # fmt: skip
    assert [row[1] for row in rows] == ["1001", "1002", "1003", "1007"]
    assert rows[0] == ["0", "1001", "1", "3", "1970-01-01T00:33:20Z", ""]
    assert rows[3] == ["1", "1007", "3", "3", "1970-01-01T00:33:20Z", "12"]
    (one,) = json.loads(run("producers", "describe", "t", "-p", 1, "--json").stdout)
    assert one == {"partition": 1, **producer(1007, 3, start=12)}
    assert "has no partition 2" in error_line(run("producers", "describe", "t", "--partition", 2))


# What hangs


def opened(fake, *states, place=("t", 0), ends=(0, 20, 12)):
    fake.states[place] = list(states)
    fake.ends[place] = ends


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (None, "no transactional id has its producer id"),
        (
            transaction("b", "CompleteAbort", 1007, 4),
            "its transactional id went on: CompleteAbort at epoch 4",
        ),
        (transaction("b", "Empty", 1007, 5), "its transactional id went on: Empty at epoch 5"),
        (transaction("b", "Ongoing", 1007, 4), "its transactional id went on: Ongoing at epoch 4"),
        (
            transaction("b", "PrepareCommit", 1007, 5),
            "its transactional id went on: PrepareCommit at epoch 5",
        ),
        (transaction("b", "Ongoing", 1007, 3), None),
        (transaction("b", "PrepareCommit", 1007, 4), None),
        (transaction("b", "PrepareAbort", 1007, 4), None),
        (transaction("b", "Ongoing", 1008, 9), "no transactional id has its producer id"),
    ],
    ids=lambda value: value and (value if isinstance(value, str) else f"{value['state']} {value['producer_epoch']}"),
)
def test_what_hangs_is_told_with_the_command_that_ends_it(run, fake, owner, why):
    """Each case of "Hanging": the id is gone, has another producer id, or is past the epoch."""
    opened(fake, producer(1001, 0), producer(1007, 3, start=12))
    fake.transactions = [] if owner is None else [owner]
    found = run("txn", "find-hanging", "--json")
    if why is None:
        assert (found.exit_code, json.loads(found.stdout)) == (0, [])
        assert len(lines(run("txn", "find-hanging"))) == 1
        return

    assert found.exit_code == 1
    (one,) = json.loads(found.stdout)
    command = "fenceline txn abort t -p 0 --producer-id 1007 --producer-epoch 3"
    place = {"topic": "t", "partition": 0, "producer_id": 1007, "producer_epoch": 3, "start_offset": 12}
    name = "b" if owner is not None and owner["producer_id"] == 1007 else None
    assert one == {**place, "last_timestamp": 2_000_000, "transactional_id": name, "why": why, "command": command}
    printed = run("txn", "find-hanging", "t", "-p", 0)
    assert printed.exit_code == 1
    assert printed.stdout.splitlines()[1].split("\t")[-2:] == [why, command]


def test_a_command_names_the_service_that_it_was_found_on(run, fake, monkeypatch):
    opened(fake, producer(1007, 3, start=12))
    (one,) = json.loads(run("txn", "find-hanging", "--json", "--url", "http://there:1").stdout)
    assert one["command"].endswith(" --producer-epoch 3 --url http://there:1")
    monkeypatch.setenv("FENCELINE_URL", "http://there:1")
    (one,) = json.loads(run("txn", "find-hanging", "--json").stdout)
    assert one["command"].endswith(" --producer-epoch 3")


def test_what_is_ended_while_it_is_looked_at_does_not_hang(run, fake):
    opened(fake, producer(1007, 3, start=12))
    fake.transactions = [transaction("b", "Ongoing", 1007, 3, ("t", 0))]

    def end(path):
        if path == "/v1/operator/transactions":
            fake.transactions = [transaction("b", "CompleteCommit", 1007, 4)]
            fake.states["t", 0] = [producer(1007, 4)]

    fake.on_asked = end
    found = run("txn", "find-hanging", "--json")
    assert (found.exit_code, json.loads(found.stdout)) == (0, [])


def test_one_listing_explains_all_that_is_open(run, fake):
    """A request for each open transaction would look through all ids each time."""
    numbers = range(1001, 1030)
    opened(fake, *(producer(number, 3, start=12) for number in numbers))
    fake.transactions = [transaction(f"id-{number}", "Ongoing", number, 3, ("t", 0)) for number in numbers]
    fake.page_size = 1_000
    lines(run("txn", "find-hanging"))
    asked = [(path, params) for _, path, params in fake.asked if path.endswith("/transactions")]
    assert asked == [("/v1/operator/transactions", {"longer_than_ms": "0"})]


@pytest.mark.parametrize(
    ("ends", "is_looked_at"),
    [((0, 20, 12), True), ((0, 20, 20), False), ((0, 0, 0), False), ((20, 20, 20), True), ((5, 20, 20), False)],
)
def test_only_partitions_that_may_have_an_open_transaction_are_asked(run, fake, ends, is_looked_at):
    """A trim may have passed all that a transaction wrote: it is open all the same."""
    opened(fake, producer(1007, 3, start=12), ends=ends)
    assert run("txn", "find-hanging").exit_code == (1 if is_looked_at else 0)
    asked = {path for _, path, _ in fake.asked if path.endswith("producer-states")}
    assert asked == ({"/v1/topics/t/partitions/0/producer-states"} if is_looked_at else set())


def test_a_partition_is_of_a_topic(run):
    assert "--partition needs a topic" in error_line(run("txn", "find-hanging", "--partition", 1))


ABORT = ("txn", "abort", "t", "-p", 0, "--producer-id", 1007, "--producer-epoch", 3)


def test_aborting_asks_or_takes_yes(run, fake, monkeypatch):
    opened(fake, producer(1007, 3, start=12))
    assert error_line(run(*ABORT)).endswith("with its records from offset 12 on; say --yes")
    monkeypatch.setattr(options, "can_answer", lambda: True)
    refused = run(*ABORT, typed="n\n")
    assert refused.exit_code == 1
    assert "Readers will not see its records from offset 12 on. [y/N]" in refused.stderr
    assert not any(method == "POST" for method, _, _ in fake.asked)

    assert run(*ABORT, typed="y\n").exit_code == 0
    assert lines(run(*ABORT, "--yes")) == ["aborted t/0 producer_id=1007 producer_epoch=3"]
    pair = {"producer_id": 1007, "producer_epoch": 3}
    place = {"topic": "t", "partition": 0}
    assert fake.asked[-1] == ("POST", "/v1/operator/abort-transaction", {**place, **pair})
    told = json.loads(run(*ABORT, "--yes", "--json").stdout)
    assert told == {"aborted": {"topic": "t", "partition": 0, **pair}}


@pytest.mark.parametrize(
    "state", [[], [producer(1007, 3)], [producer(1007, 2, start=12)]], ids=["none", "ended", "other"]
)
def test_what_is_not_open_is_refused_by_the_service_without_a_question(run, fake, state):
    opened(fake, *state)
    fake.refusal = errors.InvalidTxnStateError("no such transaction is open here")
    assert last_line(run(*ABORT)).startswith("INVALID_TXN_STATE: ")


def test_a_table_on_a_narrow_terminal_cuts_no_name_short(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    output.print_rows(("transactional_id", "n"), [("x" * 100, 1)])
    shown = capsys.readouterr().out
    assert (shown.count("x"), "…" in shown) == (100, False)


def test_a_terminal_is_told_that_nothing_hangs(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    transactions._print_hanging([], "http://there:1")
    assert capsys.readouterr().out == "no transaction hangs\n"
