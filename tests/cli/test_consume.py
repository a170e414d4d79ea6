"""``fenceline consume``: where it begins and ends, what it leaves out, and how a record becomes a line."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline.client.topic_watch import LOOK_MS
from fenceline.errors import StoreUnavailableError
from fenceline.format.batch import StoredRecord
from fenceline.model.record import Record
from fenceline_cli import options, output, positions, record_lines
from fenceline_cli.commands.consume import reading
from fenceline_cli.commands.consume.reading import pages_through
from fenceline_cli.main import app
from fenceline_cli.output import CommandError
from tests.support.patience import wait_until
from tests.support.results import error_line, lines
from tests.support.runtime import FakeRuntime

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def numbered(client, topic):
    """Return a topic of ten records, ``0`` to ``9``, a second apart, in partition 0; in 1 are ``a`` to ``c``."""
    client.produce(topic, 0, [Record(b"%d" % n, timestamp=T0 + 1_000 * n) for n in range(10)])
    client.produce(topic, 1, [Record(b"abc"[n : n + 1], timestamp=T0 + 1_000 * n) for n in range(3)])
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "-3"], "789"),
        (["--from=-3", "--until", "-1"], "78"),
        (["--from", "-99"], "0123456789"),
        (["--from", "2", "--until", "5"], "234"),
        (["--from", "5", "--until", "5"], ""),
        (["--from", "5", "--until", "2"], ""),
        (["--until", "end"], "0123456789"),
        (["--until", "latest"], "0123456789"),
        (["--until", "earliest"], ""),
        (["--from", "2023-11-14T22:13:22Z", "--until", "@2023-11-14T22:13:25"], "234"),
        (["--until", "2023-11-14T23:13:25+01:00"], "01234"),
        (["--until", "2030-01-01"], "0123456789"),
        (["--until", "-1h"], "0123456789"),
        (["--from", "-1h"], ""),
        (["--from", "8", "--until", "99"], "89"),
        (["--follow", "--until", "end"], "0123456789"),
        (["--follow", "--until", "4", "--from", "2"], "23"),
        (["--follow", "--until", "2023-11-14T22:13:25Z"], "01234"),
        (["--until", "8", "--max", "2"], "01"),
        (["--grep", "[2-4]"], "234"),
        (["--grep", "[2-4]", "--max", "2"], "23"),
        (["--grep", "none"], ""),
        (["--compacted", "--until", "3"], "012"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_records_come_from_where_up_to_where_they_are_asked_for(run, numbered, options, expected):
    assert "".join(lines(run("consume", numbered, "--partition", 0, *options))) == expected


def test_the_last_five_are_each_partitions(run, numbered):
    assert sorted(lines(run("consume", numbered, "--from", "-2"))) == ["8", "9", "b", "c"]
    assert sorted(lines(run("consume", numbered, "--from", "1", "--until", "2"))) == ["1", "b"]


@pytest.mark.parametrize("until", ["5", "2023-11-14T22:13:25Z"])
def test_a_follower_ends_when_the_end_that_it_was_given_is_there(run, client, topic, until):
    def write():
        wait_until(lambda: threading.active_count() > 2)
        for n in range(7):
            client.produce(topic, 0, [Record(b"%d" % n, timestamp=T0 + 1_000 * n)])

    writer = threading.Thread(target=write)
    writer.start()
    assert lines(run("consume", topic, "--partition", 0, "--follow", "--until", until)) == ["0", "1", "2", "3", "4"]
    writer.join()


@pytest.mark.slow  # a poll is held for ten seconds
@pytest.mark.parametrize(
    "given",
    [
        ["--from", "latest"],
        ["--from", "latest", "--until", "2100-01-01"],
        ["--from", "latest", "--until", "1"],
        ["--subscription", "s", "--from", "latest"],
    ],
)
def test_a_follower_prints_partitions_that_are_added_from_their_beginning(run, client, topic, monkeypatch, given):
    clock, is_over = FakeRuntime(), threading.Event()
    monkeypatch.setattr(options, "Client", lambda url, **more: Client(url, runtime=clock, **more), raising=False)

    def grow():
        wait_until(lambda: clock._conditions)  # on which the command waits between its looks
        client.alter_topic(topic, partitions=3)
        client.produce(topic, 2, [Record(b"first"), Record(b"second")])
        wait_until(lambda: is_over.is_set() or clock.pass_ms(LOOK_MS))

    growth = threading.Thread(target=grow)
    growth.start()
    assert lines(run("consume", topic, "--follow", "--max", 1, *given)) == ["first"]
    is_over.set()
    growth.join()


def test_keys_are_searched_as_values_are_and_bytes_need_not_be_text(run, client, topic):
    client.produce(
        topic, 0, [Record(None, b"ann"), Record(b"\xffann\xfe", None), Record(b"bob", b"\xff"), Record(None)]
    )
    found = [
        json.loads(line)["offset"] for line in lines(run("consume", topic, "--grep", "^ann|\xe9|xan|ann", "--json"))
    ]
    assert found == [0, 1]


@pytest.mark.parametrize(
    ("options", "exit_code", "expected"),
    [
        (["--from", "-5x"], 1, "--from takes a number with a unit (ms, s, m, h, d)"),
        (["--until", "noon"], 1, "--until takes earliest, latest, an offset"),
        (["--until", "2026-13-01"], 1, "--until takes a time in ISO form"),
        (["--grep", "("], 2, "takes a regular expression"),
        (["--format", "csv"], 2, "value, key-value, json, or a template"),
        (["--format", "%q"], 2, "%q has no meaning. A template holds %t topic"),
        (["--format", "%s\\q"], 2, "\\q has no meaning"),
        (["--format", "%s%"], 2, "% has no meaning"),
        (["--subscription", "s", "--until", "3"], 1, "leave out --until and --grep"),
        (["--subscription", "s", "--grep", "3"], 1, "leave out --until and --grep"),
    ],
)
def test_an_invalid_position_pattern_or_format_is_reported(run, options, exit_code, expected):
    assert expected in error_line(run("consume", "any", *options), exit_code=exit_code)


def test_a_time_ago_is_counted_from_now():
    before = time.time_ns() // 1_000_000
    place = positions.parse("-1.5h", "--from")
    assert place.kind == "time"
    assert before <= place.number + 5_400_000 <= time.time_ns() // 1_000_000
    assert positions.parse("-99999d", "--from").number == 0
    for text in ("", "-", "--5", "5-", "٣", "²", "1e3", "9" * 20, "@"):
        with pytest.raises(CommandError):
            positions.parse(text, "--from")


# Formats


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%t %p %o %k %s\\n", b"orders 3 42 k\xff v\n\n"),
        ("%K:%S %T%%\\t[%h]\\\\", b"2:2 7%\t[a=1,a=,b=NULL]\\"),
        ("%s\\x00\\x7C", b"v\n\0|"),
        ("é%s\n", "é".encode() + b"v\n\n"),
    ],
)
def test_a_template_is_filled_in_as_kcat_does(template, expected):
    record = StoredRecord(42, 7, b"k\xff", b"v\n", [("a", b"1"), ("a", b""), ("b", None)])
    assert record_lines.compiled(template, "orders")(3, record) == expected


def test_null_is_empty_in_a_template_and_has_the_length_minus_one():
    line_of = record_lines.compiled("%k %s %K %S|", "t")
    assert line_of(0, StoredRecord(0, 0, None, None, [])) == b"  -1 -1|"
    assert line_of(0, StoredRecord(0, 0, b"", b"", [])) == b"  0 0|"


def test_records_are_printed_by_a_template_with_no_more_than_it_says(run, numbered):
    printed = run("consume", numbered, "--partition", 0, "--until", 2, "--format", "%t/%p@%o=%s;")
    assert printed.stdout == f"{numbered}/0@0=0;{numbered}/0@1=1;"


def test_json_is_a_format_by_two_names(run, numbered):
    by_format = run("consume", numbered, "--partition", 0, "--format", "json").stdout
    assert run("consume", numbered, "--partition", 0, "--json").stdout == by_format


# A reader that hangs up


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["consume", "TOPIC"], ["topic", "list"], ["produce", "TOPIC"]], ids=" ".join)
def test_a_pipe_that_is_closed_is_no_error(url, numbered, arguments):
    """The reading end is closed before the command begins: no write of it can succeed."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    given = [numbered if one == "TOPIC" else one for one in arguments]
    with os.fdopen(write_end) as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "fenceline_cli.main", *given, "--url", url],
            input=b"line\n",
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


# Completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fenceline", "to"], {"topic"}),
        (["fenceline", "topic", "de"], {"delete", "describe"}),
        (["fenceline", "consume", "TOPIC", "--fo"], {"--follow", "--format"}),
        (["fenceline", "consume", "TOPIC", "--isolation", "read_c"], {"read_committed"}),
        (["fenceline", "consume", "TOP"], {"TOPIC"}),
        (["fenceline", "topic", "describe", "TOPIC"], {"TOPIC"}),
    ],
)
def test_bash_completes_commands_options_and_topics(url, numbered, words, expected):
    words = [numbered if word in ("TOPIC", "TOP") else word for word in words]
    assert completed(words, url) >= {numbered if one == "TOPIC" else one for one in expected}


def test_completion_is_silent_where_no_server_is():
    assert completed(["fenceline", "consume", ""], "http://127.0.0.1:1") == set()
    assert completed(["fenceline", "consume", ""], "nonsense") == set()


def completed(words, url):
    env = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_FENCELINE_COMPLETE": "complete_bash"}
    result = CliRunner().invoke(app, [], prog_name="fenceline", env={**env, "FENCELINE_URL": url})
    assert (result.exit_code, result.stderr) == (0, "")
    return set(result.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion_script(monkeypatch, shell):
    from typer.completion import get_completion_script

    script = get_completion_script(prog_name="fenceline", complete_var="_FENCELINE_COMPLETE", shell=shell)
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    shown = CliRunner().invoke(app, ["--show-completion"], prog_name="fenceline")
    assert (shown.exit_code, shown.stdout.strip()) == (0, script.strip())


# Outages


class _Away:
    """A client whose service is away for so many requests."""

    def __init__(self, times):
        self.left = times

    def topic(self, _name):
        if self.left:
            self.left -= 1
            raise StoreUnavailableError("no fenceline answers")


class _Interrupted:
    """A reader that yields pages, and raises errors in their place."""

    def __init__(self, *script):
        self.script = list(script)

    def pages(self):
        while self.script:
            one = self.script.pop(0)
            if isinstance(one, Exception):
                raise one
            yield one


AWAY = StoreUnavailableError("the service is away")


@pytest.mark.parametrize(
    ("script", "away", "expected"),
    [
        (["a", AWAY, "b"], 3, 1),
        (["a", AWAY, AWAY, "b"], 3, 1),  # both partitions fail in one outage
        (["a", AWAY, "b"], 0, 0),  # it was over at once
        (["a", AWAY, AWAY, AWAY, AWAY, "b"], 0, 1),  # the service answers, but never these requests
    ],
)
def test_a_reader_that_follows_reports_an_outage_once_and_goes_on(monkeypatch, capsys, script, away, expected):
    monkeypatch.setattr(reading, "_PAUSE_S", 0)
    seen = list(pages_through(_Interrupted(*script), reading.Outages(_Away(away), "t", 2)))
    assert seen == ["a", "b"]
    assert capsys.readouterr().err.count("waiting for the service") == expected


def test_each_outage_has_its_line(monkeypatch, capsys):
    monkeypatch.setattr(reading, "_PAUSE_S", 0)
    client = _Away(1)
    reader = _Interrupted(AWAY, AWAY, "a", AWAY, "b")
    for page in pages_through(reader, reading.Outages(client, "t", 1)):
        client.left = 2 if page == "a" else 0
    assert capsys.readouterr().err.count("waiting for the service") == 2


def test_an_outage_of_a_topic_without_new_records_has_its_line_also_after_an_earlier_one(monkeypatch, capsys):
    """No page between them says that the first is over."""
    now, client = [0.0], _Away(0)
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr(reading, "time", clock)
    through = reading.Outages(client, "t", 1)
    for after_s, away, expected in ((100, 0, 0), (1, 0, 1), (100, 0, 0), (100, 2, 1)):
        now[0], client.left = now[0] + after_s, away
        through.wait(AWAY)
        assert capsys.readouterr().err.count("waiting for the service") == expected


def test_a_reader_that_does_not_follow_ends_at_an_outage():
    with pytest.raises(StoreUnavailableError):
        list(pages_through(_Interrupted("a", AWAY), None))


# What a terminal can carry


def test_a_cell_is_one_line_because_control_characters_are_escaped(capsys):
    output.print_rows(("name", "count"), [("a\tb\nc\x1b[31m", 1), ("café", 2)])
    assert capsys.readouterr().out.splitlines() == ["name\tcount", "a\\tb\\nc\\x1b[31m\t1", "café\t2"]


def test_a_table_shows_a_name_as_it_is():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(output.table_of(("name",), [("[red]x[/red]",), ("a\nb",)]))
    shown = console.export_text()
    assert "[red]x[/red]" in shown
    assert "a\\nb" in shown


@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "utf-8"])
def test_text_that_the_terminal_lacks_is_escaped_and_ends_no_command(monkeypatch, encoding):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    output.carry_any_text()
    output.print_rows(("name",), [("snow☃",)])
    output.print_json({"name": "snow☃"})
    sys.stdout.flush()
    _, row, line = raw.getvalue().decode(encoding).splitlines()
    assert row == ("snow☃" if encoding == "utf-8" else "snow\\u2603")
    assert json.loads(line) == {"name": "snow☃"}


def test_a_command_whose_extra_is_not_installed_says_which(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "fenceline_cli.dev_server.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ended = CliRunner().invoke(app, ["dev", "--data", str(tmp_path), "--port", "0"])
    assert 'run pip install "fenceline-log[server]"' in error_line(ended)
