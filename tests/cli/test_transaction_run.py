"""``fenceline txn run``: what is read, processed and committed, and how it ends."""

import json
import shlex
import signal
import threading

import pytest
from typer.testing import CliRunner

from fenceline import errors
from fenceline.client import Client
from fenceline.client.topic_watch import LOOK_MS
from fenceline.model.record import Record
from fenceline_cli import options
from fenceline_cli.commands.transactions.batch_command import Signals
from fenceline_cli.commands.transactions.loop import JobRun
from fenceline_cli.main import app
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.results import last_line, lines
from tests.support.runtime import AheadRuntime, FakeRuntime
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request


@pytest.fixture
def service(monkeypatch):
    """A service with the topics ``t``, to read, of two partitions, and ``u``, to write to, of one."""
    service = Wire("t", partitions=2)
    service.outside.create_topic("u")
    connect_by(service, AheadRuntime(), monkeypatch)
    return service


def connect_by(service, runtime, monkeypatch):
    """Let commands reach the service, and go by this runtime."""

    def connect(url, **given):
        return Client(url, http=service, runtime=runtime, **given)

    monkeypatch.setattr(options, "Client", connect, raising=False)


def written(service):
    """Return the values that were committed to ``u``, in the order of their transactions."""
    return service.stored(topic="u", is_committed=True)


def group(service):
    """Return where the group is, by partition."""
    return {one.partition: one.offset for one in service.outside.committed_offsets("g")}


def beginnings(service):
    """Return what a run does at its beginning, as far as it did it."""
    return [one for one in service.sent if one.operation in ("createProducerId", "ownResources", "getGroupOffsets")]


PENDING = answers(errors.UnstableOffsetCommitError("an offset is pending"))


@pytest.fixture(autouse=True)
def heard():
    """Let SIGINT be heard: a shell that runs the tests in the background makes them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(*given, command="cat", target="u"):
    """Process topic ``t`` for group ``g`` up to its present end."""
    words = ["txn", "run", "--in", "t", "--out", target, "--group", "g", "--once", *map(str, given)]
    return CliRunner().invoke(app, [*words, "--", *shlex.split(command)])


def test_output_is_committed_with_the_offsets_of_its_input(service):
    service.fill(b"a", b"b")
    service.fill(b"c", partition=1)
    (printed,) = lines(run(command="tr a-z A-Z"))
    assert printed.endswith(" committed, 3 records read and 3 written")
    assert sorted(written(service)) == [b"A", b"B", b"C"]
    assert group(service) == {0: 2, 1: 1}
    assert {body["group"] for body in service.values("commitTransactionOffsets")} == {"g"}


def test_a_second_run_goes_on_where_the_first_one_ended(service):
    service.fill(b"a", b"b")
    lines(run())
    assert lines(run()) == ["0 transactions were committed, 0 records read and 0 written"]
    service.fill(b"c")
    printed = json.loads(run("--json").stdout)
    assert printed == {"transactional_id": "g:u", "transactions": 1, "read": 1, "written": 1}
    assert written(service) == [b"a", b"b", b"c"]


def test_batches_are_as_long_as_they_may_be_each_with_a_transaction_and_a_command(service):
    service.fill(*(b"%d" % number for number in range(10)))
    printed = lines(run("--batch", 4, command="wc -l"))
    assert printed == ["3 transactions were committed, 10 records read and 3 written"]
    assert [int(value) for value in written(service)] == [4, 4, 2]
    committed = [one["offset"] for body in service.values("commitTransactionOffsets") for one in body["offsets"]]
    assert committed == [4, 8, 10]


def test_a_batch_without_output_commits_its_offsets(service):
    service.fill(b"a")
    assert lines(run(command="true")) == ["1 transaction was committed, 1 record read and 0 written"]
    assert (written(service), group(service)) == ([], {0: 1})


def test_the_transactional_id_is_the_groups_and_the_outputs_unless_it_is_given(service):
    run()
    run("--transactional-id", "mine")
    assert [one.transactional_id for one in service.outside.transactions()] == ["g:u", "mine"]


def test_a_name_that_makes_no_transactional_id_is_refused(service):
    refused = CliRunner().invoke(
        app, ["txn", "run", "--in", "t", "--out", "u", "--group", "a/b", "--once", "--", "cat"]
    )
    assert "give --transactional-id: a/b" in last_line(refused)
    assert service.sent == []


def test_an_earlier_run_is_fenced_and_severed_before_the_offsets_are_looked_at(service):
    """KIP-447: what it sent before is decided, and what it sends later is refused."""
    service.faults["getGroupOffsets"] = [PENDING] * 3
    service.fill(b"a")
    ended = run()
    first, second, third, *_ = beginnings(service)
    assert [one.operation for one in (first, second, third)] == ["createProducerId", "ownResources", "getGroupOffsets"]
    assert third.value["require_stable"] == "true"
    assert ended.exit_code == 0
    (owning,) = service.values("ownResources")
    assert owning["group"] == "g"
    assert owning["resources"] == [{"resource": f"t/{n}", "generation": 0} for n in (0, 1)]
    assert [body["session_id"] for body in service.values("commitTransactionOffsets")] == [owning["session_id"]]
    assert [one.names["session_id"] for one in service.requests("closeSession")] == [owning["session_id"]]


def test_offsets_that_stay_pending_are_waited_for(service):
    service.faults["getGroupOffsets"] = [PENDING] * 30  # more than a single request tries
    service.fill(b"a")
    ended = run()
    assert (ended.exit_code, written(service)) == (0, [b"a"])
    assert ended.stderr.splitlines() == ["waiting for the transaction of an earlier run to end: an offset is pending"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_group_without_an_offset_begins_where_it_was_said(service, start):
    service.fill(b"a")
    lines(run("--from", start))
    assert written(service) == ([b"a"] if start == "earliest" else [])
    service.fill(b"b")
    lines(run("--from", "latest"))  # the first run has set where it begins
    assert written(service) == ([b"a", b"b"] if start == "earliest" else [b"b"])


def test_only_committed_records_are_read(service):
    service.fill(b"a")
    service.open_transaction(b"b")
    lines(run())
    assert (written(service), group(service)) == ([b"a"], {0: 1})


# What a command does


@pytest.mark.parametrize(
    ("command", "exit_code", "expected"),
    [
        ("sh -c 'cat; exit 3'", 3, "the command sh ended with exit code 3, so its batch was aborted"),
        ("sh -c 'kill -9 $$'", 137, "the command sh ended with exit code 137, so its batch was aborted"),
        ("/no/such/command", 127, "the command /no/such/command cannot be run: No such file or directory"),
    ],
)
def test_a_command_that_fails_commits_nothing_and_passes_its_code_on(service, command, exit_code, expected):
    service.fill(b"a")
    assert last_line(run(command=command), exit_code).startswith(expected)
    assert (written(service), group(service)) == ([], {})
    lines(run())
    assert written(service) == [b"a"]


def test_an_exit_code_is_reported_as_json_too(service):
    service.fill(b"a")
    problem = json.loads(last_line(run("--json", command="sh -c 'exit 2'"), 2))
    assert (problem["code"], problem["exit_code"]) == ("COMMAND_FAILED", 2)


def test_transactions_committed_before_a_failure_stay_and_are_counted(service, tmp_path):
    service.fill(b"a", b"b", b"c")
    command = f"sh -c 'cat; if test -e {tmp_path}/once; then exit 9; fi; touch {tmp_path}/once'"
    line = last_line(run("--batch", 2, command=command), 9)
    assert line.endswith("; 1 transaction was committed, 2 records read and 2 written before")
    assert (written(service), group(service)) == ([b"a", b"b"], {0: 2})


@pytest.mark.parametrize("command", ["true", "sh -c 'echo x'", "sh -c 'exec <&-; echo x'"])
def test_a_command_need_not_read_its_batch(service, command):
    service.fill(*[b"y" * 1_000] * 900)
    lines(run(command=command))
    assert written(service) == ([] if command == "true" else [b"x"])


def test_output_may_be_far_larger_than_input(service):
    service.fill(b"a")
    assert lines(run(command="seq 20000")) == ["1 transaction was committed, 1 record read and 20000 written"]
    assert len(written(service)) == 20_000


# Formats


WHOLE = [
    Record(b"\xff\n", b"k", [("h", b"\xfe")], 1_000),
    Record(None, b"k", [], 2_000),
    Record(b"a\nb\r", None, [], 3_000),
]


def test_json_copies_every_record(service):
    service.fill(*WHOLE)
    lines(run("--format", "json"))
    assert sorted(map(str, written(service))) == sorted(str(record.value) for record in WHOLE)


@pytest.mark.parametrize("record", WHOLE, ids=str)
def test_a_record_that_no_line_can_carry_stops_its_whole_batch(service, record, tmp_path):
    service.fill(b"a", record)
    line = last_line(run(command=f"touch {tmp_path}/ran"))
    assert "the record at offset 1 of t/0 " in line
    assert line.endswith("use --format json, which carries every record")
    assert (written(service), group(service), list(tmp_path.iterdir())) == ([], {}, [])


def test_keys_pass_before_a_tab(service):
    service.fill(Record(b"1", b"ann"), Record(b"2", b"bob"))
    lines(run("--format", "key-value", command="awk -F'\\t' '{print $1 FS $2 * 2}'"))
    assert sorted(written(service)) == [b"2", b"4"]


def test_output_that_is_no_record_aborts_its_transaction(service):
    service.fill(b"a")
    command = """sh -c 'echo "{\\"value\\": \\"x\\"}"; echo nonsense'"""
    line = last_line(run("--format", "json", command=command))
    assert line.startswith("in the command's output, line 2: the line is not JSON")
    assert line.endswith("; its batch was aborted")
    assert (written(service), group(service)) == ([], {})


# The service


def test_a_lost_answer_to_a_commit_repeats_nothing(service):
    service.fill(b"a")
    service.faults["endTransaction"] = [loses_the_answer, loses_the_request, loses_the_answer]
    lines(run())
    assert (written(service), group(service)) == ([b"a"], {0: 1})


@pytest.mark.parametrize(
    ("operation", "error", "exit_code", "expected"),
    [
        (
            "createProducerId",
            errors.InvalidTransactionTimeoutError("too long"),
            1,
            "INVALID_TRANSACTION_TIMEOUT: too long",
        ),
        ("addTransactionGroup", errors.ProducerFencedError("another epoch"), 1, "PRODUCER_FENCED: "),
        (
            "commitTransactionOffsets",
            errors.SessionSeveredError("severed"),
            1,
            "SESSION_SEVERED: severed (a later run has taken over",
        ),
        (
            "commitTransactionOffsets",
            errors.OwnerFencedError("not owned"),
            1,
            "OWNER_FENCED: not owned (a later run has taken over",
        ),
        ("endTransaction", errors.ProducerFencedError("another epoch"), 1, "PRODUCER_FENCED: "),
        ("commitTransactionOffsets", errors.CorruptLogError("damaged"), 5, "CORRUPT_LOG: damaged"),
    ],
)
def test_a_refusal_ends_it_with_nothing_committed(service, operation, error, exit_code, expected):
    service.fill(b"a")
    service.faults[operation] = [answers(error)]
    assert last_line(run(), exit_code).startswith(expected)
    assert (written(service), group(service)) == ([], {})


def test_input_deleted_by_retention_is_an_error_and_not_skipped(service):
    service.fill(b"a", b"b")
    lines(run())
    service.fill(b"c", b"d")
    # Retention comes after the look at the group's offsets: that look shows no offset below the log's start.
    service.faults["readRecords"] = [lambda carry_out: (service.outside.trim("t", 0, 3), carry_out())[1]] * 2
    line = last_line(run())
    assert line.startswith("OFFSET_OUT_OF_RANGE: ")
    assert "'fenceline subscription seek t g earliest'" in line


@pytest.mark.parametrize("given", [["--in", "none"], ["--out", "none"]], ids=" ".join)
def test_a_topic_that_does_not_exist_takes_nothing_from_an_earlier_run(service, given):
    refused = run(*given)
    assert refused.exit_code == 1
    assert beginnings(service) == []


def test_a_topic_is_not_read_and_written_without_an_end(service):
    words = ["txn", "run", "--in", "t", "--out", "t", "--group", "g", "--", "cat"]
    assert "it would read what it writes" in last_line(CliRunner().invoke(app, words))
    service.fill(b"a")
    lines(run(target="t"))  # with --once it ends


# Signals


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_amid_a_transaction_aborts_it(service, number, exit_code):
    service.fill(b"a")
    service.faults["commitTransactionOffsets"] = [lambda carry_out: (carry_out(), signal.raise_signal(number))[0]]
    ended = run()
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert ended.stderr == "interrupted: 0 transactions were committed, 0 records read and 0 written\n"
    assert service.outside.transaction("g:u").state == "CompleteAbort"
    assert (written(service), group(service)) == ([], {})


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_commit_that_has_begun_is_carried_through(service, number, exit_code):
    service.fill(b"a", b"b")
    service.faults["endTransaction"] = [lambda carry_out: (signal.raise_signal(number), carry_out())[1]]
    ended = run("--batch", 1)
    assert ended.exit_code == exit_code
    assert ended.stderr == "interrupted: 1 transaction was committed, 1 record read and 1 written\n"
    assert (written(service), group(service)) == ([b"a"], {0: 1})


def test_a_second_signal_amid_a_commit_ends_it_and_says_what_is_not_known(service):
    service.fill(b"a")

    def interrupt_twice(carry_out):
        answer = carry_out()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return answer

    service.faults["endTransaction"] = [interrupt_twice]
    ended = run()
    assert ended.exit_code == 130
    assert ended.stderr.rstrip().endswith("; one more may have been, since its answer did not come")
    assert lines(run()) == ["0 transactions were committed, 0 records read and 0 written"]
    assert written(service) == [b"a"]


def test_a_signal_amid_the_start_is_one_line_as_well(service, monkeypatch):
    hold_back = Signals.hold_back

    def interrupted(signals):
        hold_back(signals)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Signals, "hold_back", interrupted)
    service.fill(b"a")
    ended = run()
    assert (ended.exit_code, len(ended.stderr.splitlines())) == (143, 1)
    assert written(service) == []


def clock_of(service, monkeypatch):
    """Return a clock that the command's client goes by."""
    clock = FakeRuntime()
    connect_by(service, clock, monkeypatch)
    return clock


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_partition_that_is_added_to_the_input_is_taken_and_read_from_its_beginning(service, monkeypatch, start):
    clock, is_over = clock_of(service, monkeypatch), threading.Event()
    service.faults["endTransaction"] = [None, lambda carry_out: (signal.raise_signal(signal.SIGINT), carry_out())[1]]

    def grow():
        wait_until(lambda: group(service).keys() == {0, 1} if start == "latest" else service.count("ownResources"))
        service.fill(b"before")
        wait_until(lambda: written(service) == [b"before"])
        service.grow(3)
        service.fill(b"added", partition=2)
        wait_until(lambda: is_over.is_set() or clock.pass_ms(LOOK_MS))

    growth = threading.Thread(target=grow)
    growth.start()
    words = ["txn", "run", "--in", "t", "--out", "u", "--group", "g", "--from", start, "--", "cat"]
    assert CliRunner().invoke(app, words).exit_code == 130
    is_over.set()
    growth.join()
    assert written(service) == [b"before", b"added"]
    assert group(service)[2] == 1
    own = [[one["resource"] for one in body["resources"]] for body in service.values("ownResources")]
    assert own == [["t/0", "t/1"], ["t/2"]]
    assert service.values("ownResources")[1]["resources"] == [{"resource": "t/2", "generation": 0}]


def test_a_run_ends_if_it_may_not_take_a_partition_that_was_added(service, monkeypatch):
    clock, is_over, own = clock_of(service, monkeypatch), threading.Event(), JobRun.owners
    refused = []

    def refuse_more(self, session, partitions):
        if list(partitions) == [2]:
            refused.append(partitions)
            raise errors.NotAuthorizedError("not this one")
        return own(self, session, partitions)

    monkeypatch.setattr(JobRun, "owners", refuse_more)

    def grow():
        wait_until(lambda: service.count("ownResources"))
        service.grow(3)
        wait_until(lambda: refused or clock.pass_ms(LOOK_MS))
        if not is_over.wait(PATIENCE_S):
            signal.raise_signal(signal.SIGINT)

    growth = threading.Thread(target=grow)
    growth.start()
    ended = CliRunner().invoke(app, ["txn", "run", "--in", "t", "--out", "u", "--group", "g", "--", "cat"])
    is_over.set()
    growth.join()
    assert (ended.exit_code, "not this one" in ended.stderr) == (1, True)
