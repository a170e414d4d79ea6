"""``fenceline produce`` and ``consume`` against a server: lines, expected offsets, sessions, compaction."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fenceline import errors
from fenceline.client import Client
from fenceline.format.partitioner import partition_of
from fenceline.model.record import Record
from fenceline_cli.commands.produce.watch import Watch
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.results import last_line, lines

NUMBERS = itertools.count()


def next_offset(client, topic, partition=0):
    return client.offsets(topic, partition).bounds.next_offset


@contextmanager
def fed(feed):
    """A pipe that ``feed`` writes to in a thread, by ``write``, until it returns; yields where it is read."""
    read_end, write_end = os.pipe()

    def run():
        try:
            feed(lambda line: os.write(write_end, line))
        finally:
            os.close(write_end)

    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(run)
        yield f"/dev/fd/{read_end}"
        fed.result()
    os.close(read_end)


# Lines as they come


def test_a_line_is_stored_while_the_next_is_not_there_yet(run, client, topic):
    def feed(write):
        for count in range(1, 4):
            write(b"li")
            write(b"ne\n")
            wait_until(lambda count=count: next_offset(client, topic) == count)

    with fed(feed) as pipe:
        lines(run("produce", topic, "--partition", 0, "--file", pipe))

    assert [record.value for record in client.read(topic, 0, offset=0).records] == [b"line"] * 3


def test_lines_are_whole_however_their_bytes_come(run, client, topic):
    text = b"".join(b"%d\r\n" % number * 3 for number in range(3_000)) + b"a" * 200_000 + b"\r\nlast"

    def feed(write):  # a pipe holds less than that, and a block of it ends in the middle of a line
        for start in range(0, len(text), 777):
            write(text[start : start + 777])

    with fed(feed) as pipe:
        lines(run("produce", topic, "--partition", 0, "--file", pipe))

    values = [record.value for record in client.read(topic, 0, offset=0, max_records=10_000).records]
    assert b"\r\n".join(values) == text


def test_records_before_a_bad_line_are_stored_and_counted(run, client, topic):
    line = last_line(run("produce", topic, "--partition", 0, "--key-separator", ":", stdin=b"a:1\nb:2\nc\nd:4\n"))

    assert line == "line 3: the line has no key separator ':': 'c'; 2 records were acknowledged before"
    assert next_offset(client, topic) == 2


def test_a_failure_is_reported_while_the_input_is_idle(run, client, topic):
    ended = threading.Event()

    def feed(write):
        write(b"line\n")
        assert ended.wait(PATIENCE_S)

    with fed(feed) as pipe:
        result = run("produce", topic, "--partition", 0, "--expected-offset", 7, "--file", pipe)
        ended.set()

    assert last_line(result).startswith("OFFSET_MISMATCH: ")


def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_word():
    script = "import os; from fenceline.quiet_start import QuietStart\nwith QuietStart(): os.kill(os.getpid(), 2)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, preexec_fn=hears_ctrl_c)

    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def hears_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_is_pythons_again_once_a_command_was_loaded():
    script = (
        "import signal; from fenceline.quiet_start import QuietStart\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with QuietStart(): assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_version_is_printed_in_one_line(run):
    (line,) = lines(run("--version"))
    assert line.removeprefix("fenceline ").count(".") == 2


# Expected offsets


def test_batches_with_an_expected_offset_are_contiguous(run, client, topic):
    client.produce(topic, 1, [Record(b"first")])
    given = b"".join(b"%d\n" % number for number in range(25_000))  # three batches

    lines(run("produce", topic, "--partition", 1, "--expected-offset", 1, stdin=given))

    assert next_offset(client, topic, 1) == 25_001


def test_a_mismatch_is_one_line_with_the_next_offset_and_nothing_is_written(run, client, topic):
    client.produce(topic, 1, [Record(b"x"), Record(b"y")])

    line = last_line(run("produce", topic, "--partition", 1, "--expected-offset", 1, stdin=b"line\n"))

    assert line.startswith("OFFSET_MISMATCH: ")
    assert f": topic={topic} partition=1 expected=1 next=" in line
    assert "next=2" in line
    assert line.endswith("; 0 records were acknowledged before")
    assert next_offset(client, topic, 1) == 2


def test_a_rivals_record_in_between_fails_a_later_batch(run, client, topic):
    def feed(write):
        write(b"one\n")
        wait_until(lambda: next_offset(client, topic) == 1)
        client.produce(topic, 0, [Record(b"rival")])
        write(b"two\n")

    with fed(feed) as pipe:
        line = last_line(run("produce", topic, "--partition", 0, "--expected-offset", 0, "--file", pipe))

    assert "next=2" in line
    assert line.endswith("; 1 records were acknowledged before")
    assert [record.value for record in client.read(topic, 0, offset=0).records] == [b"one", b"rival"]


def test_an_expected_offset_that_would_not_be_compared_is_refused(run, client, topic):
    assert "add --partition" in last_line(run("produce", topic, "--expected-offset", 0, stdin=b"x\n"))
    client.alter_topic(topic, config={"check.expected.offsets": False})
    line = last_line(run("produce", topic, "--partition", 0, "--expected-offset", 9, stdin=b"x\n"))
    assert "set its check.expected.offsets=true" in line
    assert next_offset(client, topic) == 0


# Sessions


def test_produce_writes_under_the_session_of_a_claim(run, client, topic):
    with client.producer(topic, access_mode="Exclusive", partitions=[1]) as holder:
        assert "PRODUCER_BUSY" in last_line(run("produce", topic, "--partition", 1, stdin=b"without\n"))
        lines(run("produce", topic, "--session", holder.held.session_id, stdin=b"keyless\n"))  # where it may write

        key = next(key for key in "abcdefgh" if partition_of(key.encode(), 2) == 0)
        elsewhere = run(
            "produce", topic, "--session", holder.held.session_id, "--key-separator", ":", stdin=f"{key}:x\n"
        )
        assert "claim it, too: partition=0" in last_line(elsewhere)

        records = client.read(topic, 1, offset=0).records
        assert [(record.value, record.topic_epoch) for record in records] == [(b"keyless", 0)]


def test_a_shared_claim_is_written_under_until_an_exclusive_one_comes(run, client, topic):
    with client.producer(topic, access_mode="Shared") as holder:
        lines(run("produce", topic, "--session", holder.held.session_id, stdin=b"shared\n"))
        with client.producer(topic, access_mode="ExclusiveWithFencing"):
            line = last_line(run("produce", topic, "--session", holder.held.session_id, stdin=b"late\n"))
    assert line.startswith("PRODUCER_FENCED: ")
    assert [record.value for record in client.read(topic, 0, offset=0).records] == [b"shared"]


def test_produce_writes_under_the_session_of_an_owner_until_it_is_severed(run, client, topic):
    with client.own(f"{topic}/0") as owner:
        lines(run("produce", topic, "--session", owner.session_id, stdin=b"mine\n"))
        with client.own(f"{topic}/0", generation=9):
            line = last_line(run("produce", topic, "--session", owner.session_id, stdin=b"late\n"))
    assert line.startswith("SESSION_SEVERED: ")
    assert [record.value for record in client.read(topic, 0, offset=0).records] == [b"mine"]


def test_a_producer_that_is_fenced_while_it_waits_for_lines_ends_with_one(run, client, topic):
    with client.own(f"{topic}/0") as owner:

        def feed(write):
            write(b"mine\n")
            wait_until(lambda: next_offset(client, topic) > 1)
            with client.own(f"{topic}/0", generation=9):
                write(b"late\n")
                assert ended.wait(PATIENCE_S)

        ended = threading.Event()
        with fed(feed) as pipe:
            result = run("produce", topic, "--session", owner.session_id, "--file", pipe)
            ended.set()
    line = last_line(result)
    assert line.startswith(("SESSION_SEVERED: ", "PRODUCER_FENCED: "))
    assert line.endswith("; 1 records were acknowledged before")


def test_a_session_without_the_topic_is_reported(run, client, topic):
    with client.session() as session:
        line = last_line(run("produce", topic, "--session", session.session_id, stdin=b"x\n"))
        assert line.startswith("PRODUCER_FENCED: the session may not write to the topic")
    assert "UNKNOWN_SESSION" in last_line(run("produce", topic, "--session", "none", stdin=b"x\n"))


def test_a_group_reads_and_acknowledges_what_its_session_owns(run, client, topic):
    for partition in (0, 1):
        client.produce(topic, partition, [Record(b"%d" % partition)])
    with client.own(f"{topic}/1", group="g") as owner:
        assert lines(run("consume", topic, "--group", "g", "--session", owner.session_id)) == ["1"]
        subscribed = ("consume", topic, "--subscription", "g", "--session", owner.session_id)
        assert lines(run(*subscribed)) == ["1"]
        assert lines(run(*subscribed)) == []
        assert "owns no partition" in last_line(run("consume", topic, "--group", "h", "--session", owner.session_id))
        client.produce(topic, 1, [Record(b"2")])
        with client.own(f"{topic}/1", group="g", generation=9):
            line = last_line(run(*subscribed, "--partition", 1))
            assert line.startswith(("SESSION_SEVERED: ", "OWNER_FENCED: "))
            line = last_line(run("consume", topic, "--subscription", "g", "--partition", 1))
            assert line.startswith("OWNER_FENCED: ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--session", "s"], "--session needs a group; add the --group, or the --subscription"),
        (["--group", "g", "--subscription", "s", "--session", "x"], "leave out --group or --subscription"),
        (["--compacted", "--follow"], "leave out --follow"),
        (["--compacted", "--subscription", "s"], "leave out --follow, --subscription"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run, options, expected):
    assert expected in last_line(run("consume", "any", *options))


# Compacted


def test_a_compacted_topic_is_read_as_its_newest_records(run, client):
    name = f"table-{next(NUMBERS)}"
    client.create_topic(name, config={"cleanup.policy": "compact"})
    client.produce(name, 0, [Record(b"%d" % number, b"k%d" % (number % 3)) for number in range(700)])
    client.compact(name, 0)
    wait_until(lambda: client.offsets(name, 0).compaction_horizon == 700)
    client.produce(name, 0, [Record(b"new", b"k0")])

    read = ("consume", name, "--compacted", "--format", "key-value")
    assert sorted(lines(run(*read))) == ["k0\t699", "k0\tnew", "k1\t697", "k2\t698"]
    assert lines(run(*read, "--from", 699)) == ["k0\t699", "k0\tnew"]
    assert len(lines(run(*read, "--max", 2))) == 2
    assert len(lines(run("consume", name))) == 701


def test_a_view_compacted_again_during_a_read_is_reported(run, client, monkeypatch):
    name = f"table-{next(NUMBERS)}"
    client.create_topic(name, config={"cleanup.policy": "compact", "delete.retention.ms": 0})
    client.produce(name, 0, [Record(b"v", b"k"), Record(b"w", b"l")])
    read = Client.read

    def reads_and_then_compacts(self, *arguments, **options):
        page = read(self, *arguments, **options, max_records=1)
        client.produce(name, 0, [Record(None, b"k")])
        client.compact(name, 0)
        wait_until(lambda: client.offsets(name, 0).compaction_horizon >= 3)
        return page

    monkeypatch.setattr(Client, "read", reads_and_then_compacts)
    assert "was compacted again while it was read" in last_line(run("consume", name, "--compacted"))


def test_a_table_by_timestamp_is_printed_without_what_loses(run, client):
    name = f"table-{next(NUMBERS)}"
    config = ("compaction.order=timestamp", "delete.retention.ms=-1", "cleanup.policy=compact,delete")
    lines(run("topic", "create", name, *[part for one in config for part in ("--config", one)]))
    client.produce(name, 0, [Record(b"new", b"k", (), 1_000)])
    client.compact(name, 0)
    wait_until(lambda: client.offsets(name, 0).compaction_horizon == 1)
    client.produce(name, 0, [Record(b"old", b"k", (), 999), Record(b"w", b"l")])
    assert lines(run("consume", name, "--compacted", "--format", "key-value")) == ["k\tnew", "l\tw"]


def test_a_compaction_during_a_read_that_misses_no_delete_is_no_error(run, client, monkeypatch):
    """The view keeps the tombstone for a day; and what a key has beyond the end of before is printed, too."""
    name = f"table-{next(NUMBERS)}"
    client.create_topic(name, config={"cleanup.policy": "compact"})
    client.produce(name, 0, [Record(b"v", b"k"), Record(b"w", b"l")])
    read = Client.read

    def reads_and_then_compacts(self, *arguments, **options):
        page = read(self, *arguments, **options, max_records=1)
        if page.position == 1:
            client.produce(name, 0, [Record(None, b"k"), Record(b"x", b"l")])
            client.compact(name, 0)
            wait_until(lambda: client.offsets(name, 0).compaction_horizon == 4)
        return page

    monkeypatch.setattr(Client, "read", reads_and_then_compacts)
    result = run("consume", name, "--compacted", "--format", "key-value")
    assert lines(result) == ["k\tv", "k\tnull", "l\tx"]


def test_a_producer_of_the_client_keeps_to_its_expected_offsets(client, topic):
    with client.producer(topic, expected_offsets={0: 0}, linger_ms=0) as producer:
        assert [producer.send(value=b"x", partition=0).result().offset for _ in range(3)] == [0, 1, 2]
        client.produce(topic, 0, [Record(b"rival")])
        with pytest.raises(errors.OffsetMismatchError):
            producer.send(value=b"y", partition=0).result()
        assert producer.send(value=b"elsewhere", partition=1).result().offset == 0
        assert isinstance(producer.failure, errors.OffsetMismatchError)
        producer.renew()


# Where records were stored


def test_a_verbose_produce_says_where_each_record_was_stored(run, topic):
    printed = lines(run("produce", topic, "--partition", 1, "--verbose", stdin=b"a\nb\n"))
    assert printed[:2] == [f"{topic}/1 offset=0", f"{topic}/1 offset=1"]
    assert printed[2].startswith(f"produced 2 records to {topic}")


def test_with_json_each_stored_record_is_one_line_and_nothing_else_is(run, client, topic):
    printed = lines(
        run("produce", topic, "--key-separator", ":", "--json", stdin=b"".join(b"%d:x\n" % n for n in range(9)))
    )
    found = [json.loads(line) for line in printed]
    assert len(found) == 9
    for n, one in enumerate(found):
        assert one == {"topic": topic, "partition": partition_of(b"%d" % n, 2), "offset": one["offset"]}
        page = client.read(topic, one["partition"], offset=one["offset"], max_records=1)
        assert page.records[0].key == b"%d" % n


def test_of_records_that_fail_only_those_before_are_said_to_be_stored(run, client, topic):
    client.produce(topic, 0, [Record(b"taken")])
    ended = run("produce", topic, "--partition", 0, "--expected-offset", 0, "--json", stdin=b"a\n")
    assert ended.exit_code == 1
    assert ended.stdout == ""
    assert json.loads(ended.stderr)["code"] == "OFFSET_MISMATCH"


@pytest.mark.parametrize(
    ("trouble", "looks", "expected"),
    [
        (errors.StoreUnavailableError("the disk of the data directory is full; make room"), 1, "the disk of the data"),
        (None, 1, None),
        (None, 99, "it does not answer at http://x"),
    ],
)
def test_the_reason_why_nothing_is_stored_is_the_servers(trouble, looks, expected):
    """A full disk is reported at once, a server that says nothing after a while."""
    producer = SimpleNamespace(trouble=trouble, acknowledged=0, failure=None)
    watch = Watch(producer, "http://x", file=None, bytes_read=lambda: 0, on_failure=lambda: None)
    why = watch._why(looks)
    assert (why is None) if expected is None else (expected in why)


@pytest.mark.parametrize(("prints", "is_shown"), [(False, True), (True, False)])
def test_no_bar_is_drawn_over_lines_that_go_to_the_same_terminal(monkeypatch, prints, is_shown):
    """A bar's line has no end, so a printed line would begin behind it."""
    for stream, is_terminal in (("stdin", False), ("stdout", True), ("stderr", True)):
        monkeypatch.setattr(f"sys.{stream}", SimpleNamespace(isatty=lambda answer=is_terminal: answer))
    watch = Watch(None, "http://x", file=None, prints=prints, bytes_read=lambda: 0, on_failure=lambda: None)
    assert (watch._progress is not None) is is_shown
