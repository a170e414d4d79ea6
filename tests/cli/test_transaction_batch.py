"""The parts of ``fenceline txn run``: batches, lines, and a command on one batch. No server is needed."""

import io
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from queue import Queue

import pytest

from fenceline.errors import SessionSeveredError, StoreUnavailableError
from fenceline.format.batch import StoredRecord
from fenceline_cli.commands.transactions import batch as transaction_batch
from fenceline_cli.commands.transactions.batch import Feed, PartitionRecords, RecordGroup, read_records, write_lines
from fenceline_cli.commands.transactions.batch_command import BatchError, Interrupted, Signals, run_command
from fenceline_cli.output import CommandError
from tests.cli.test_held import is_gone
from tests.support.patience import wait_until


@pytest.fixture(autouse=True)
def heard():
    """Let SIGINT be heard: a shell that runs the tests in the background makes them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stored(offset, value=b"v", key=None, headers=()):
    return StoredRecord(offset, 1_000, key, value, list(headers))


def page(partition, *offsets, position=None):
    return PartitionRecords(partition, [stored(offset) for offset in offsets], position or offsets[-1] + 1)


class PagesReader:
    """A reader that has the pages and the errors that a test gives it, then an end."""

    def __init__(self, *given):
        self._left = list(given)
        self.positions = {}

    def pages(self):
        while self._left:
            one = self._left.pop(0)
            if isinstance(one, Exception):
                raise one
            self.positions[one.partition] = one.position
            yield one.partition, one.records


def batches_of(*pages, records_max=1_000):
    """Return the batches of pages that have all come before the first is taken."""
    feed = Feed(PagesReader(), records_max)
    feed._pages = Queue()
    for one in pages:
        feed._pages.put(one)
    feed._pages.put(transaction_batch._Ended())
    return [
        ([(partition, record.offset) for partition, record in batch.records], batch.offsets) for batch in feed.batches()
    ]


# Batches


def test_pages_of_several_partitions_are_one_batch():
    found = batches_of(page(0, 5, 6), page(1, 0, position=3), page(0, 7))
    assert found == [([(0, 5), (0, 6), (1, 0), (0, 7)], {0: 8, 1: 3})]


@pytest.mark.parametrize("records_max", range(1, 9))
def test_a_batch_is_as_long_as_it_may_be_and_goes_on_where_the_last_one_ended(records_max):
    """An offset is committed behind the last record of the batch, and behind markers only at a page's end."""
    found = batches_of(page(0, 0, 1, 2, position=5), page(1, 4), page(0, 6, 7, position=9), records_max=records_max)

    assert [one for taken, _ in found for one in taken] == [(0, 0), (0, 1), (0, 2), (1, 4), (0, 6), (0, 7)]
    assert all(len(taken) == records_max for taken, _ in found[:-1])
    for taken, offsets in found:
        last = dict(taken)  # the last offset of each partition
        assert offsets == {n: {2: 5, 7: 9}.get(offset, offset + 1) for n, offset in last.items()}


def test_a_batch_is_bounded_in_bytes_and_in_partitions(monkeypatch):
    monkeypatch.setattr(transaction_batch, "_BYTES_MAX", 2)
    assert [taken for taken, _ in batches_of(page(0, 0), page(1, 0), page(2, 0))] == [[(0, 0), (1, 0)], [(2, 0)]]
    monkeypatch.undo()
    found = batches_of(*(page(number, 0) for number in range(40)))
    assert [len(offsets) for _, offsets in found] == [32, 8]


def test_records_that_come_alone_are_not_waited_with():
    feed = Feed(PagesReader(), 1_000)
    each = feed.batches()
    for number in range(3):
        feed._pages.put(page(0, number))
        assert next(each).offsets == {0: number + 1}


def test_a_reader_is_read_ahead_to_its_end():
    with Feed(PagesReader(*(page(0, number) for number in range(100))), 7) as feed:
        assert [record.offset for batch in feed.batches() for _, record in batch.records] == list(range(100))


def test_an_error_of_the_reader_comes_after_what_it_had_read():
    with Feed(PagesReader(page(0, 0), SessionSeveredError("severed")), 10) as feed:
        each = feed.batches()
        assert next(each).offsets == {0: 1}
        with pytest.raises(SessionSeveredError):
            next(each)


def test_a_service_that_is_away_is_tried_again_where_the_reading_was(monkeypatch):
    monkeypatch.setattr(transaction_batch, "_PAUSE_S", 0.001)
    away = StoreUnavailableError("no connection")
    outages = []
    with Feed(PagesReader(page(0, 0), away, away, page(0, 1)), 1, on_away=outages.append) as feed:
        assert [batch.offsets for batch in feed.batches()] == [{0: 1}, {0: 2}]
    assert outages == [away, away]
    with Feed(PagesReader(page(0, 0), away), 1) as feed, pytest.raises(StoreUnavailableError):
        list(feed.batches())


def test_a_loss_ends_a_feed_that_waits_and_one_that_has_more():
    feed = Feed(PagesReader(), 1)
    feed._pages.put(page(0, 0))
    feed._pages.put(page(0, 1))
    each = feed.batches()
    next(each)
    feed.fail(SessionSeveredError("severed"))
    with pytest.raises(SessionSeveredError):
        next(each)


def test_an_ended_feed_does_not_report_its_closed_client():
    outages, error = [], SessionSeveredError("severed")
    feed = Feed(PagesReader(StoreUnavailableError("bad file descriptor")), 1, on_away=outages.append)
    feed.fail(error)
    with feed, pytest.raises(SessionSeveredError):
        list(feed.batches())
    feed._thread.join(10)
    assert (outages, feed._thread.is_alive()) == ([], False)


def test_a_feed_that_is_left_reads_no_further(monkeypatch):
    monkeypatch.setattr(transaction_batch, "_LOOK_S", 0.001)
    endless = PagesReader(*itertools.repeat(page(0, 0), 1_000))
    with Feed(endless, 1) as feed:
        next(feed.batches())
    feed._thread.join(10)
    assert not feed._thread.is_alive()


# Lines


def lines_of(format_, *records):
    file = io.BytesIO()
    write_lines(RecordGroup([(3, record) for record in records]), format_, "t", file)
    return file.getvalue()


def test_a_value_is_its_bytes_and_a_line():
    assert lines_of("value", stored(0, b"a\tb"), stored(1, b""), stored(2, b"\xff\0")) == b"a\tb\n\n\xff\0\n"
    assert lines_of("key-value", stored(0, b"a\tb", b"k"), stored(1, b"\xff", b"")) == b"k\ta\tb\n\t\xff\n"


@pytest.mark.parametrize(
    ("format_", "record", "expected"),
    [
        ("value", stored(12, None), "is a tombstone"),
        ("value", stored(12, b"a\nb"), "has a line break in its value"),
        ("value", stored(12, b"a\r"), "has a line break in its value"),
        ("key-value", stored(12, None, b"k"), "is a tombstone"),
        ("key-value", stored(12, b"a\n", b"k"), "has a line break in its value"),
        ("key-value", stored(12, b"a"), "has no key"),
        ("key-value", stored(12, b"a", b"k\n"), "has a line break or a tab in its key"),
        ("key-value", stored(12, b"a", b"k\tl"), "has a line break or a tab in its key"),
    ],
    ids=str,
)
def test_a_record_that_no_line_can_carry_is_refused_with_its_place(format_, record, expected):
    with pytest.raises(CommandError) as refused:
        lines_of(format_, record)
    assert f"the record at offset 12 of t/3 {expected}" in str(refused.value)
    assert "use --format json" in str(refused.value)


@pytest.mark.parametrize("format_", ["value", "key-value", "json"])
def test_a_format_prints_records_that_it_reads_back(format_):
    whole = [stored(0, b"a\tb", b"k"), stored(1, b"", b""), stored(2, b"\xff\xfe", b"\xff")]
    if format_ == "json":
        whole += [
            stored(3, None),
            stored(4, b"a\nb\r", None, [("h", b"\xff"), ("n", None)]),
            stored(5, b"a\r", b"\n\t"),
        ]
    printed = lines_of(format_, *whole)
    back = [record for some in read_records([printed[:5], printed[5:-1]], format_) for record in some]
    for record, given in zip(back, whole, strict=True):
        key = None if format_ == "value" else given.key
        assert (record.value, record.key) == (given.value, key)
        if format_ == "json":
            assert (record.timestamp, list(record.headers)) == (given.timestamp, list(given.headers))


def test_no_output_is_no_record_and_a_line_that_is_no_record_is_named():
    assert list(read_records([], "json")) == []
    with pytest.raises(CommandError, match="line 2: the line is not JSON"):
        list(read_records([b'{"value": "a"}\nnonsense\n'], "json"))


# The command


@contextmanager
def run_on(command, stdin=b""):
    """Run a command, and lend what it prints."""
    with tempfile.TemporaryFile() as file, Signals() as signals:
        file.write(stdin)
        file.seek(0)
        with run_command(command, file, signals) as blocks:
            yield blocks


def output_of(program, stdin=b""):
    with run_on([sys.executable, "-c", program], stdin) as blocks:
        return b"".join(blocks)


@pytest.mark.slow
def test_a_command_reads_its_batch_and_its_end():
    assert output_of("import sys; print(len(sys.stdin.read()))", b"x" * 1_000_000) == b"1000000\n"


@pytest.mark.slow
def test_a_command_need_not_read_and_may_print_far_more_than_a_pipe_holds():
    printed = output_of("import os\nfor _ in range(64): os.write(1, b'y' * 1_000_000)", b"x" * 1_000_000)
    assert printed == b"y" * 64_000_000


@pytest.mark.slow
def test_output_of_a_process_left_behind_is_dropped(tmp_path):
    """It shares the file: what it prints must not replace what was printed in time."""
    go = tmp_path / "go"
    program = (
        "import os, time\n"
        "os.write(1, b'in time ' * 100_000)\n"
        f"if not os.fork():\n"
        f"    while not os.path.exists({str(go)!r}): time.sleep(0.001)\n"
        f"    os.write(1, b'too late'); open({str(go)!r} + '.done', 'w')\n"
    )
    with run_on([sys.executable, "-c", program]) as blocks:
        first = next(blocks)
        go.touch()
        wait_until((tmp_path / "go.done").exists)
        assert first + b"".join(blocks) == b"in time " * 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "exit_code", "expected"),
    [
        (["sh", "-c", "echo x; exit 3"], 3, "the command sh ended with exit code 3"),
        (["sh", "-c", "kill -9 $$"], 137, "the command sh ended with exit code 137"),
        (["/no/such/command"], 127, "the command /no/such/command cannot be run: No such file or directory"),
        (["/"], 127, "the command / cannot be run: Permission denied"),
    ],
    ids=str,
)
def test_a_command_that_fails_is_an_error_with_its_code(command, exit_code, expected):
    with pytest.raises(BatchError) as failed, run_on(command):
        pass
    assert (failed.value.exit_code, str(failed.value)) == (exit_code, expected)


@pytest.mark.slow
@pytest.mark.parametrize("trap", ["", "trap '' INT TERM; "], ids=["ends", "ignores it"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_all_that_it_started(tmp_path, monkeypatch, number, trap):
    monkeypatch.setattr("fenceline_cli.commands.transactions.batch_command.COMMAND_GRACE_S", 0.2)
    pids = tmp_path / "pids"
    command = ["sh", "-c", f"{trap}sleep 1000 & echo $$ $! >{pids}; wait; sleep 1000"]

    def interrupt():
        wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted) as stopped, run_on(command):
        pass
    thread.join()
    assert stopped.value.number == number
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: is_gone(pid))


# Signals


def test_a_signal_is_held_back_until_it_is_let_go():
    with Signals() as signals:
        signals.hold_back()
        os.kill(os.getpid(), signal.SIGTERM)
        signals.let_go()
        with pytest.raises(Interrupted) as stopped:
            signals.check()
    assert stopped.value.number == signal.SIGTERM


def test_a_second_signal_waits_for_nothing():
    with Signals() as signals:
        signals.hold_back()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_held_back_signal_interrupts_after_a_grace_period(monkeypatch):
    monkeypatch.setattr("fenceline_cli.commands.transactions.batch_command.COMMIT_GRACE_S", 0.001)
    with Signals() as signals:
        signals.hold_back()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            time.sleep(60)


def test_handlers_are_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    with Signals():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)] == before
