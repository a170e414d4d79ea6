"""``fenceline txn run`` as a process: killed, stopped, interrupted and taken over, at any moment.

Rule: what is asserted holds whatever the moment was. Where a moment matters, the process is stopped there first.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline_cli.commands.transactions import loop as transaction_loop
from fenceline_cli.dev_server.process import ServerProcess
from fenceline_cli.main import app
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.results import hears_ctrl_c, lines

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "fenceline_cli.main", "txn", "run"]
NUMBERS = itertools.count()


@pytest.fixture
def target(client):
    name = f"out-{next(NUMBERS)}"
    client.create_topic(name, partitions=2)
    return name


@pytest.fixture
def start(url, topic, target):
    """Return a function that starts ``txn run`` as a process; each is ended with the test."""
    processes = []

    def start(*options, command=("cat",)):
        process = subprocess.Popen(
            [*COMMAND, "--in", topic, "--out", target, "--group", "g", *map(str, options), "--", *command],
            env={**os.environ, "FENCELINE_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hears_ctrl_c,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()  # a command that it has left behind may hold the other end
        process.stderr.close()


@pytest.fixture
def written(run, target):
    """Return a function that returns the committed values of the output."""
    return lambda: sorted(lines(run("consume", target, "--isolation", "read_committed")))


def give(client, topic, count, start=0):
    for partition in range(2):
        records = [Record(b"%06d" % number) for number in range(start, start + count) if number % 2 == partition]
        client.produce(topic, partition, records)


def numbers(count):
    return [f"{number:06}" for number in range(count)]


def group_offsets(client, topic):
    return {one.partition: one.offset for one in client.committed_offsets("g", topic=topic, require_stable=True)}


# For ten batches of one record, each with an output that takes long to write.
LONG = ["seq", "1000000", "1030000"]
LENGTH = 30_001


def give_ten(client, topic):
    client.produce(topic, 0, [Record(value.encode()) for value in numbers(10)])


def assert_each_once(values):
    """Assert that some first records of ten have the whole long output, and the others are copied."""
    count, rest = divmod(sum(len(value) == 7 for value in values), LENGTH)
    assert rest == 0
    assert [value for value in values if len(value) == 6] == numbers(10)[count:]


def stopped_amid_a_transaction(client, process, target):
    """Stop the process where its transaction is open: readers and time-outs may still end it."""

    def is_stopped():
        if not is_open(client, target):
            return False
        process.send_signal(signal.SIGSTOP)
        if is_open(client, target):
            return True
        process.send_signal(signal.SIGCONT)
        return False

    wait_until(is_stopped)


def is_open(client, target):
    return any(one.transactional_id == f"g:{target}" for one in client.transactions(state="Ongoing"))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.prove) for seed in (1, 2))])
def test_killed_at_any_moment_and_started_again_it_repeats_nothing_and_leaves_nothing_out(
    start, run, client, topic, target, written, seed
):
    chance = random.Random(seed)
    give(client, topic, 600)
    for _ in range(6):
        before = len(written())
        process = start("--batch", 20, command=["sh", "-c", "sleep 0.02; cat"])
        wait_until(lambda before=before: len(written()) > before or before == 600)
        try:
            process.wait(chance.random() * 0.1)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    lines(run("txn", "run", "--in", topic, "--out", target, "--group", "g", "--once", "--", "cat"))
    assert written() == numbers(600)
    assert group_offsets(client, topic) == {0: 300, 1: 300}


def test_a_run_killed_amid_its_command_processes_the_batch_again_without_the_late_output(
    start, client, topic, written, tmp_path
):
    give(client, topic, 10)
    begun, go, ended = (tmp_path / name for name in ("begun", "go", "ended"))
    wait = f"cat; touch {begun}; while ! test -e {go}; do sleep 0.01; done; echo late; touch {ended}"
    process = start("--batch", 5, command=["sh", "-c", wait])
    wait_until(begun.exists)
    process.kill()
    process.wait()
    assert written() == []
    assert start("--once").wait(PATIENCE_S) == 0
    go.touch()
    wait_until(ended.exists)
    assert written() == numbers(10)


def test_killed_amid_a_transaction_nothing_of_it_shows(start, client, topic, target, written):
    give_ten(client, topic)
    process = start("--batch", 1, command=LONG)
    stopped_amid_a_transaction(client, process, target)
    process.kill()
    process.wait()
    assert start("--once").wait(PATIENCE_S) == 0
    assert_each_once(written())
    assert group_offsets(client, topic)[0] == 10


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_aborts_the_open_transaction_at_once(start, client, topic, target, written, number, exit_code):
    give_ten(client, topic)
    process = start("--batch", 1, command=LONG)
    stopped_amid_a_transaction(client, process, target)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (exit_code, "")
    assert not is_open(client, target)  # long before its time-out
    count = sum(one.offset for one in client.committed_offsets("g", topic=topic))
    assert len(written()) == count * LENGTH
    if "may have been" not in err:  # else its commit was not answered in time
        progress = transaction_loop.Progress(transactions=count, read=count, written=count * LENGTH)
        assert err.endswith(f"{progress}\n")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_that_waits_for_records(start, client, topic, written, number, exit_code):
    give(client, topic, 4)
    process = start()
    wait_until(lambda: len(written()) == 4)
    give(client, topic, 4, start=4)
    wait_until(lambda: len(written()) == 8)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (exit_code, "")
    assert err.endswith("8 records read and 8 written\n")


@pytest.mark.parametrize("options", [[], ["--transactional-id", "another"]], ids=["same id", "another id"])
def test_a_later_run_takes_over_from_one_that_waits(start, client, topic, target, written, options):
    give(client, topic, 4)
    earlier = start()
    wait_until(lambda: len(written()) == 4)
    later = start(*options)
    _, printed = earlier.communicate(timeout=PATIENCE_S)
    assert earlier.returncode == 1
    assert "(a later run has taken over" in printed
    assert len(printed.splitlines()) == 1
    give(client, topic, 4, start=4)
    wait_until(lambda: len(written()) == 8)
    later.terminate()
    later.wait(PATIENCE_S)
    assert written() == numbers(8)


@pytest.mark.parametrize("options", [[], ["--transactional-id", "another"]], ids=["same id", "another id"])
@pytest.mark.parametrize("where", ["amid its command", "amid its transaction"])
def test_a_run_that_was_stopped_and_taken_over_writes_nothing_when_it_goes_on(
    start, client, topic, target, written, tmp_path, where, options
):
    give_ten(client, topic)
    mark = tmp_path / "begun"
    if where == "amid its command":
        earlier = start(command=["sh", "-c", f"cat; touch {mark}; sleep 0.1"])
        wait_until(mark.exists)
        earlier.send_signal(signal.SIGSTOP)
    else:
        earlier = start("--batch", 1, "--timeout", "10s", command=LONG)
        stopped_amid_a_transaction(client, earlier, target)
    try:
        later = start("--once", *options)
        assert later.wait(PATIENCE_S) == 0
    finally:
        earlier.send_signal(signal.SIGCONT)
    _, printed = earlier.communicate(timeout=PATIENCE_S)
    assert earlier.returncode == 1
    assert "(a later run has taken over" in printed
    assert_each_once(written())


def test_uncommitted_input_is_not_processed(start, client, topic, written):
    with client.transactional_producer(f"{topic}-in") as producer:
        for outcome in ("commit", "abort"):
            with producer.transaction() as txn:
                txn.send(topic, value=outcome.encode(), partition=0)
                txn.flush()
                assert start("--once").wait(PATIENCE_S) == 0
                assert written() == (["commit"] if outcome == "abort" else [])
                if outcome == "abort":
                    txn.abort()
            assert start("--once").wait(PATIENCE_S) == 0
    assert written() == ["commit"]


def test_stderr_of_the_command_is_passed_on(start, client, topic):
    give(client, topic, 2)
    process = start("--once", "--json", command=["sh", "-c", "echo careful >&2; cat"])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (json.loads(out)["written"], set(err.splitlines())) == (2, {"careful"})


def test_a_server_that_is_away_ends_it_as_other_commands_and_it_goes_on_later(start, topic):
    process = start("--once", "--url", "http://127.0.0.1:1")
    _, printed = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert "start a server with 'fenceline dev --data DIR'" in printed


def test_a_follower_of_committed_records_waits_for_what_is_not_decided(url, client, topic):
    words = ["consume", topic, "--partition", "0", "--follow", "--until", "2", "--isolation", "read_committed"]
    client.produce(topic, 0, [Record(b"a")])
    with client.transactional_producer(f"{topic}-in") as producer, producer.transaction() as txn:
        txn.send(topic, value=b"b", partition=0)
        txn.flush()
        process = subprocess.Popen(
            [*COMMAND[:3], *words, "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "a\n"
    assert process.communicate(timeout=PATIENCE_S) == ("b\n", "")
    assert process.returncode == 0


def test_a_rebuild_says_how_many_open_transactions_it_has_decided(tmp_path):
    with (
        ServerProcess(tmp_path) as server,
        Client(server.url) as client,
        client.transactional_producer("id") as producer,
    ):
        client.create_topic("t")
        txn = producer.transaction()
        with txn:
            txn.send("t", value=b"a")
            txn.flush()
            txn.outcome = "aborted"  # as after a kill: nothing ends it
    for path in tmp_path.glob("items.sqlite3*"):
        path.unlink()
    rebuilt = lines(CliRunner().invoke(app, ["rebuild", "--data", str(tmp_path)]))
    assert rebuilt[1].startswith("decided transactions=1 ")
    with ServerProcess(tmp_path) as server, Client(server.url) as client:
        assert [one.state for one in client.transactions()] == ["PrepareAbort"]
        assert client.read("t", 0, offset=0, isolation="read_committed", wait_ms=2_000).records == []
        wait_until(lambda: client.offsets("t", 0).bounds.last_stable_offset == 2)
