"""``fenceline txn`` and ``producers describe``: what they ask, what they print, and what hangs.

A service in memory answers. Its items of transactions are written as a test wants them, damage included.
"""

import json
import sys

import pytest
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline.format import batch, keys
from fenceline.model.record import Record
from fenceline.model.transaction import ProducerPair
from fenceline.ports import Delete, Put
from fenceline.transactions import item_store
from fenceline.transactions.item import ProducerIdItem, TopicPartitions, TransactionItem
from fenceline_cli import options, output
from fenceline_cli.commands.transactions import command as transactions
from fenceline_cli.main import app
from fenceline_cli.output import utc
from tests.support.results import error_line, last_line, lines
from tests.support.wire import Wire

TIMEOUT_MS = 900_000
AGE_MS = 400_000  # of a transaction that is open, unless a test says otherwise
PAIR = ProducerPair(1007, 3)


@pytest.fixture
def wire(monkeypatch):
    """A service with two topics, of two partitions each."""
    wire = Wire("t", "u", partitions=2)
    monkeypatch.setattr(options, "Client", lambda url, **given: Client(url, http=wire, **given), raising=False)
    return wire


@pytest.fixture
def run(wire, monkeypatch):
    """Return a function that runs a command against the service."""
    monkeypatch.delenv("FENCELINE_URL", raising=False)
    return lambda *arguments, typed=None: CliRunner().invoke(app, [*map(str, arguments)], input=typed)


def asked(wire):
    return [(one.request.method, one.request.url.path, one.value) for one in wire.sent]


def store(wire, name, state, producer_id, producer_epoch, *places, age_ms=AGE_MS, expires_in_ms=None):
    """Write a transactional id, and return it as the contract shows it. One that is open began ``age_ms`` ago.

    Args:
        expires_in_ms: Its extension, counted from its time-out.
    """
    is_open = state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    began = wire.clock.now_ms() - age_ms if is_open else None
    expires_at = None if expires_in_ms is None else began + TIMEOUT_MS + expires_in_ms
    topic_ids = {topic: wire.service.log.topics.get(topic).topic_id for topic, _ in places}
    found, items = item_store.read(wire.service.log.context, name), wire.service.items
    item = TransactionItem(
        name,
        producer_id,
        producer_epoch,
        state,
        TIMEOUT_MS,
        began,
        decided_at=began if state.startswith("Prepare") else None,
        partitions=tuple(
            TopicPartitions(topic_id, topic, tuple(number for name, number in places if name == topic))
            for topic, topic_id in topic_ids.items()
        ),
        groups=("g",) if is_open else (),
        expires_at=expires_at,
        version=None if found is None else found.version,
    )
    items.write([item.put(wire.clock)])
    if not items.get([keys.transactional_id_item(producer_id)]):
        items.write([ProducerIdItem(producer_id, name, 0).put(wire.clock)])
    return {
        "transactional_id": name,
        "state": state,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_timeout_ms": TIMEOUT_MS,
        "started_at": began,
        "partitions": [{"topic": topic, "partition": number} for topic, number in places],
        "groups": list(item.groups),
        **({} if expires_at is None else {"expires_at": expires_at}),
    }


@pytest.fixture
def listed(wire):
    """Four transactional ids, of which one is open and one is being ended. Return the open one."""
    store(wire, "a", "Empty", 1001, 0)
    store(wire, "c d", "PrepareAbort", 1002, 9, ("t", 1))
    store(wire, "d", "CompleteCommit", 1003, 2)
    return store(wire, "b", "Ongoing", *PAIR, ("t", 0), ("u", 1))


def test_transactions_are_listed_over_all_pages(wire, run, listed):
    for number in range(100):
        store(wire, f"e{number:03}", "Empty", 2000 + number, 0)
    header, *rows = [line.split("\t") for line in lines(run("txn", "list"))]
    assert header == [
        "transactional_id", "state", "producer_id", "producer_epoch", "timeout", "started_at", "partitions", "groups",
    ]  # fmt: skip
    assert rows[0] == ["a", "Empty", "1001", "0", "15m", "", "0", "0"]
    assert rows[1] == ["b", "Ongoing", "1007", "3", "15m", utc(listed["started_at"]), "2", "1"]
    assert [row[0] for row in rows] == ["a", "b", "c d", "d", *(f"e{number:03}" for number in range(100))]
    assert len(wire.sent) == 2
    assert json.loads(run("txn", "list", "--json").stdout)[1] == listed


@pytest.mark.parametrize(
    ("given", "asked_for", "expected"),
    [
        (["--state", "Ongoing"], {"state": "Ongoing"}, ["b", "z"]),
        (["--producer-id", 1003], {"producer_id": "1003"}, ["d"]),
        (["--longer-than", "5m"], {"longer_than_ms": "300000"}, ["b", "c d"]),
        (["--longer-than", "1.5"], {"longer_than_ms": "1500"}, ["b", "c d", "z"]),
    ],
    ids=str,
)
def test_a_list_is_narrowed_by_the_service(wire, run, listed, given, asked_for, expected):
    store(wire, "z", "Ongoing", 1009, 0, age_ms=100_000)
    found = json.loads(run("txn", "list", *given, "--json").stdout)
    assert [one["transactional_id"] for one in found] == expected
    assert asked(wire) == [("GET", "/v1/transactions", asked_for)]


def test_a_transaction_is_described_with_its_end_and_its_partitions(run, listed):
    described = [line.split("\t") for line in lines(run("txn", "describe", "b"))]
    assert dict(described[:8]) == {
        "transactional_id": "b",
        "state": "Ongoing",
        "producer_id": "1007",
        "producer_epoch": "3",
        "timeout": "15m",
        "started_at": utc(listed["started_at"]),
        "times_out_at": utc(listed["started_at"] + TIMEOUT_MS),
        "groups": "g",
    }
    assert described[8:] == [["topic", "partition"], ["t", "0"], ["u", "1"]]
    assert json.loads(run("txn", "describe", "b", "--json").stdout) == listed
    assert ["started_at", ""] in [line.split("\t") for line in lines(run("txn", "describe", "a"))]
    assert error_line(run("txn", "describe", "z")).startswith("TRANSACTIONAL_ID_NOT_FOUND: ")


def test_a_transaction_that_was_extended_times_out_no_earlier_than_that(wire, run):
    extended = store(wire, "b", "Ongoing", 1001, 0, expires_in_ms=200_000)
    shorter = store(wire, "c", "Ongoing", 1002, 0, expires_in_ms=-TIMEOUT_MS + 1)
    later, earlier = (dict(line.split("\t") for line in lines(run("txn", "describe", name))[:8]) for name in "bc")
    assert later["times_out_at"] == utc(extended["expires_at"])
    assert earlier["times_out_at"] == utc(shorter["started_at"] + TIMEOUT_MS)
    assert json.loads(run("txn", "describe", "b", "--json").stdout) == extended


MARK = {"app_id": "spark.q:1", "version": 7, "note": "run-2", "committed_at": 1_000_000}


@pytest.fixture
def committed(wire):
    app_id, *members = MARK.items()
    wire.service.items.write([Put(keys.once_item(app_id[1]), dict(members), 1, expected=None)])


def test_the_committed_version_of_an_application_is_shown(wire, run, committed):
    assert [line.split("\t") for line in lines(run("txn", "once", "spark.q:1"))] == [
        ["app_id", "spark.q:1"],
        ["version", "7"],
        ["note", "run-2"],
        ["committed_at", "1970-01-01T00:16:40Z"],
    ]
    assert json.loads(run("txn", "once", "spark.q:1", "--json").stdout) == MARK
    assert ["version", "-1"] in [line.split("\t") for line in lines(run("txn", "once", "other"))]
    assert {method for method, _, _ in asked(wire)} == {"GET"}


def test_the_committed_versions_of_all_applications_are_listed(wire, run, committed):
    header, row = lines(run("txn", "once"))
    assert header.split("\t") == list(MARK)
    assert row.split("\t") == ["spark.q:1", "7", "run-2", "1970-01-01T00:16:40Z"]
    assert json.loads(run("txn", "once", "--json").stdout) == [MARK]
    assert "name the APP_ID" in error_line(run("txn", "once", "--delete", "--yes"))
    assert {method for method, _, _ in asked(wire)} == {"GET"}


def test_a_committed_version_is_forgotten_after_confirmation(wire, run, committed):
    refused = run("txn", "once", "spark.q:1", "--delete")
    assert refused.exit_code == output.EXIT_FAILED
    assert "say --yes" in error_line(refused)
    assert wire.outside.once("spark.q:1").version == 7
    assert lines(run("txn", "once", "spark.q:1", "--delete", "--yes")) == ["forgot spark.q:1 version=7"]
    assert wire.outside.once("spark.q:1").version == -1
    (line,) = lines(run("txn", "once", "spark.q:1", "--delete"))
    assert line == "nothing to forget: spark.q:1 has committed no version"


def test_a_forgotten_version_is_printed_as_json(run, committed):
    forgotten = json.loads(run("txn", "once", "spark.q:1", "--delete", "--yes", "--json").stdout)
    assert forgotten == {"forgotten": MARK}


@pytest.mark.parametrize(
    ("name", "pair", "said"),
    [
        ("a", (1001, 1), "before=Empty: it had no open transaction"),
        ("b", (1007, 5), "before=Ongoing: its transaction of 2 partitions and 1 group, begun at BEGAN, is aborted"),
        ("d", (1003, 3), "before=CompleteCommit: it had no open transaction"),
    ],
)
def test_fencing_takes_the_next_epoch_with_the_same_time_out_and_says_what_it_did(wire, run, listed, name, pair, said):
    (line,) = lines(run("txn", "fence", name))
    said = said.replace("BEGAN", utc(listed["started_at"]))
    assert line.startswith(f"fenced {name} producer_id={pair[0]} producer_epoch={pair[1]} {said}")
    given = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS}
    assert asked(wire)[-1] == ("POST", "/v1/producer-ids", given)
    now = wire.outside.transaction(name)
    assert (now.state, now.producer_id, now.producer_epoch) == ("Empty", *pair)

    answer = json.loads(run("txn", "fence", name, "--json").stdout)
    assert (answer["fenced"], answer["producer_id"], answer["producer_epoch"]) == (name, pair[0], pair[1] + 1)
    assert answer["before"]["transactional_id"] == name


@pytest.mark.parametrize("is_json", [False, True])
def test_an_operator_fences_an_id_of_any_principal_by_a_route_of_its_own(wire, run, listed, is_json):
    result = run("txn", "fence", "--operator", "b", *(["--json"] if is_json else []))
    assert asked(wire) == [("POST", "/v1/operator/transactions/b/fence", {})]
    assert wire.outside.transaction("b").producer_epoch > PAIR.producer_epoch
    if is_json:
        assert json.loads(result.stdout)["before"] == listed
    else:
        (line,) = lines(result)
        assert line.startswith("fenced b producer_id=1007 producer_epoch=")
        assert " before=Ongoing: its transaction of 2 partitions" in line


def test_an_operator_lists_the_ids_of_all_principals(wire, run, listed):
    assert len(lines(run("txn", "list", "--operator", "--state", "Ongoing"))) == 2
    assert asked(wire) == [("GET", "/v1/operator/transactions", {"state": "Ongoing"})]


def test_the_help_says_what_needs_an_operator(run):
    for command in ((), ("list",), ("fence",), ("find-hanging",), ("abort",)):
        assert "/v1/operator/" in "".join(run("txn", *command, "--help").stdout.split()), command


def test_an_id_that_does_not_exist_is_not_made_by_fencing_it(wire, run):
    assert error_line(run("txn", "fence", "none")).startswith("TRANSACTIONAL_ID_NOT_FOUND: ")
    assert [method for method, _, _ in asked(wire)] == ["GET"]
    assert error_line(run("txn", "fence", "--operator", "none")).startswith("TRANSACTIONAL_ID_NOT_FOUND: ")
    assert list(wire.outside.transactions()) == []


# What partitions know, and what hangs


def send(wire, pair, name=None, topic="t", partition=0):
    """Append a batch of four records, in a transaction if its id has a name."""
    records = [Record(b"a record")] * 4
    body = batch.encode(
        records, now_ms=wire.clock.now_ms(), base_sequence=0, is_transactional=name is not None, **pair._asdict()
    ).body
    wire.outside.produce_batch(topic, partition, body, transactional_id=name)


def begin(wire, pair=PAIR, name="b", before=12):
    """Leave a transaction open in the first partition of ``t``, after some records."""
    if before:
        wire.fill(*[b"before"] * before)
    store(wire, name, "Ongoing", *pair, ("t", 0), age_ms=0)
    send(wire, pair, name)


def forget(wire, name="b", producer_id=PAIR.producer_id):
    """Let a transactional id be gone, as damage does."""
    found = wire.service.items.get(doomed := [keys.transaction_item(name), keys.transactional_id_item(producer_id)])
    wire.service.items.write([Delete(key, found[key].version) for key in doomed])


@pytest.fixture
def hanging(wire):
    """A transaction is open at offset 12 of the first partition of ``t``, and its transactional id is gone."""
    begin(wire)
    forget(wire)


def test_producers_are_described_by_partition(wire, run):
    for producer_id in range(1001, 1102):
        send(wire, ProducerPair(producer_id, 1))
    store(wire, "b", "Ongoing", *PAIR, ("t", 1), age_ms=0)
    wire.fill(*[b"before"] * 12, partition=1)
    send(wire, PAIR, "b", partition=1)
    header, *rows = [line.split("\t") for line in lines(run("producers", "describe", "t"))]
    assert header == [
        "partition", "producer_id", "producer_epoch", "last_sequence", "last_append", "current_txn_start_offset",
    ]  # fmt: skip
    assert [row[1] for row in rows] == [*map(str, range(1001, 1102)), "1007"]
    states = [next(iter(wire.outside.producer_states("t", partition))) for partition in (0, 1)]
    assert rows[0] == ["0", "1001", "1", "3", utc(states[0].last_timestamp), ""]
    assert rows[-1] == ["1", "1007", "3", "3", utc(states[1].last_timestamp), "12"]
    (one,) = json.loads(run("producers", "describe", "t", "-p", 1, "--json").stdout)
    times = {"last_timestamp": states[1].last_timestamp}
    assert one == {"partition": 1, **PAIR._asdict(), "last_sequence": 3, **times, "current_txn_start_offset": 12}
    assert "has no partition 2" in error_line(run("producers", "describe", "t", "--partition", 2))


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (None, "no transactional id has its producer id"),
        (("CompleteAbort", 1007, 4), "its transactional id went on: CompleteAbort at epoch 4"),
        (("Empty", 1007, 5), "its transactional id went on: Empty at epoch 5"),
        (("Ongoing", 1007, 4), "its transactional id went on: Ongoing at epoch 4"),
        (("PrepareCommit", 1007, 5), "its transactional id went on: PrepareCommit at epoch 5"),
        (("Ongoing", 1007, 3), None),
        (("PrepareCommit", 1007, 4), None),
        (("PrepareAbort", 1007, 4), None),
        (("Ongoing", 1008, 9), "no transactional id has its producer id"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else value,
)
def test_a_hanging_transaction_is_listed_with_the_command_that_ends_it(wire, run, owner, why):
    """Each case of "Hanging": the id is gone, has another producer id, or is past the epoch."""
    send(wire, ProducerPair(1001, 0))
    begin(wire, before=8)
    if owner is None:
        forget(wire)
    else:
        store(wire, "b", *owner)
    found = run("txn", "find-hanging", "--json")
    if why is None:
        assert (found.exit_code, json.loads(found.stdout)) == (0, [])
        assert len(lines(run("txn", "find-hanging"))) == 1
        return

    assert found.exit_code == 1
    (one,) = json.loads(found.stdout)
    command = "fenceline txn abort t -p 0 --producer-id 1007 --producer-epoch 3"
    place = {"topic": "t", "partition": 0, "producer_id": 1007, "producer_epoch": 3, "start_offset": 12}
    name = "b" if owner is not None and owner[1] == 1007 else None
    (state,) = [one for one in wire.outside.producer_states("t", 0) if one.producer_id == 1007]
    last_timestamp = state.last_timestamp
    assert one == {**place, "last_timestamp": last_timestamp, "transactional_id": name, "why": why, "command": command}
    printed = run("txn", "find-hanging", "t", "-p", 0)
    assert printed.exit_code == 1
    assert printed.stdout.splitlines()[1].split("\t")[-2:] == [why, command]


def test_a_command_names_the_service_that_it_was_found_on(run, hanging, monkeypatch):
    (one,) = json.loads(run("txn", "find-hanging", "--json", "--url", "http://there:1").stdout)
    assert one["command"].endswith(" --producer-epoch 3 --url http://there:1")
    monkeypatch.setenv("FENCELINE_URL", "http://there:1")
    (one,) = json.loads(run("txn", "find-hanging", "--json").stdout)
    assert one["command"].endswith(" --producer-epoch 3")


def test_a_transaction_that_ends_during_the_search_does_not_hang(wire, run):
    begin(wire)

    def end(_sent, carry_out):
        if wire.outside.transaction("b").state == "Ongoing":
            wire.outside.end_transaction("b", PAIR, "commit")
        return carry_out()

    wire.scripts["listTransactionsOfAll"] = end
    found = run("txn", "find-hanging", "--json")
    assert (found.exit_code, json.loads(found.stdout)) == (0, [])
    assert wire.outside.transaction("b").state == "CompleteCommit"


def test_one_listing_explains_all_that_is_open(wire, run):
    """A request for each open transaction would look through all ids each time."""
    for producer_id in range(1001, 1030):
        begin(wire, ProducerPair(producer_id, 3), f"id-{producer_id}", before=0)
    lines(run("txn", "find-hanging"))
    listings = [(path, given) for _, path, given in asked(wire) if path.endswith("/transactions")]
    assert listings == [("/v1/operator/transactions", {"longer_than_ms": "0"})]


@pytest.mark.parametrize(
    ("ends", "is_looked_at"),
    [((0, 20, 12), True), ((0, 20, 20), False), ((0, 0, 0), False), ((20, 20, 20), True), ((5, 20, 20), False)],
)
def test_only_partitions_that_may_have_an_open_transaction_are_asked(wire, run, ends, is_looked_at):
    """A trim may have passed all that a transaction wrote: it is open all the same."""
    start, end, _ = ends
    if is_looked_at:
        begin(wire)
        forget(wire)
        wire.fill(*[b"after"] * 4)
    elif end:
        wire.fill(*[b"a record"] * end)
    if start:
        wire.outside.trim("t", 0, start)
    bounds = wire.outside.offsets("t", 0).bounds
    assert (bounds.log_start_offset, bounds.next_offset, bounds.last_stable_offset) == ends
    assert run("txn", "find-hanging").exit_code == (1 if is_looked_at else 0)
    looked_at = {path for _, path, _ in asked(wire) if path.endswith("producer-states")}
    assert looked_at == ({"/v1/topics/t/partitions/0/producer-states"} if is_looked_at else set())


def test_a_partition_is_of_a_topic(run):
    assert "--partition needs a topic" in error_line(run("txn", "find-hanging", "--partition", 1))


ABORT = ("txn", "abort", "t", "-p", 0, "--producer-id", 1007, "--producer-epoch", 3)


def test_aborting_asks_and_a_no_aborts_nothing(wire, run, hanging, monkeypatch):
    assert error_line(run(*ABORT)).endswith("with its records from offset 12 on; say --yes")
    monkeypatch.setattr(options, "can_answer", lambda: True)
    refused = run(*ABORT, typed="n\n")
    assert refused.exit_code == 1
    assert "Readers will not see its records from offset 12 on. [y/N]" in refused.stderr
    assert not any(method == "POST" for method, _, _ in asked(wire))


@pytest.mark.parametrize("options_", [[], ["--yes"], ["--yes", "--json"]], ids=str)
def test_aborting_takes_a_yes(wire, run, hanging, monkeypatch, options_):
    monkeypatch.setattr(options, "can_answer", lambda: True)
    aborted = run(*ABORT, *options_, typed="y\n")
    assert aborted.exit_code == 0, aborted.output
    place, pair = {"topic": "t", "partition": 0}, PAIR._asdict()
    if "--json" in options_:
        assert json.loads(aborted.stdout) == {"aborted": {**place, **pair}}
    else:
        assert aborted.stdout.splitlines()[-1] == "aborted t/0 producer_id=1007 producer_epoch=3"
    assert asked(wire)[-1] == ("POST", "/v1/operator/abort-transaction", {**place, **pair})
    bounds = wire.outside.offsets("t", 0).bounds
    assert bounds.last_stable_offset == bounds.next_offset


@pytest.mark.parametrize("state", ["none", "ended", "another epoch's"])
def test_the_service_refuses_to_abort_a_transaction_that_is_not_open(wire, run, state):
    if state != "none":
        begin(wire, PAIR if state == "ended" else PAIR._replace(producer_epoch=2))
    if state == "ended":
        wire.outside.end_transaction("b", PAIR, "commit")
    assert last_line(run(*ABORT)).startswith("INVALID_TXN_STATE: ")


def test_a_table_on_a_narrow_terminal_cuts_no_name_short(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    output.print_rows(("transactional_id", "n"), [("x" * 100, 1)])
    shown = capsys.readouterr().out
    assert (shown.count("x"), "…" in shown) == (100, False)


def test_a_terminal_shows_that_no_transaction_hangs(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    transactions._print_hanging([], "http://there:1")
    assert capsys.readouterr().out == "no transaction hangs\n"
