"""The command line against a server: what is printed, what is stored, and what errors say."""

import bz2
import gzip
import itertools
import json
import os
import signal
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline.format.partitioner import partition_of
from fenceline_cli.main import app
from tests.support.patience import PATIENCE_S
from tests.support.results import error_line, lines

NUMBERS = itertools.count()
COMMAND = [sys.executable, "-m", "fenceline_cli.main"]


def test_a_topic_is_created_listed_described_altered_and_deleted(run):
    settings = ("--config", "retention.ms=5", "--config", "cleanup.policy=compact")
    created = run("topic", "create", "life", "--partitions", 3, *settings)
    assert lines(created)[0].startswith("created life partitions=3 topic_id=")

    header, row = lines(run("topic", "list", "--prefix", "life"))
    assert header.split("\t") == ["topic", "partitions", "config", "created_at"]
    assert row.split("\t")[:3] == ["life", "3", "retention.ms=5 cleanup.policy=compact"]

    changes = ("--config", "check.expected.offsets=false", "--unset", "retention.ms")
    altered = run("topic", "alter", "life", "--partitions", 4, *changes)
    assert "partitions=4 config=" in lines(altered)[0]
    described = json.loads(run("topic", "describe", "life", "--json").stdout)
    assert described["config"] == {"cleanup.policy": "compact", "check.expected.offsets": False}
    assert [row["partition"] for row in described["offsets"]] == [0, 1, 2, 3]
    assert "cleanup.policy=compact" in run("topic", "describe", "life").stdout

    assert lines(run("topic", "delete", "life", "--yes")) == ["deleted life"]
    assert json.loads(run("topic", "list", "--prefix", "life", "--json").stdout) == []


def test_a_topic_is_not_deleted_unasked(run, topic):
    assert "say --yes" in error_line(run("topic", "delete", topic))
    assert run("topic", "describe", topic).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["topic", "describe", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["topic", "create", "bad/name"], "INVALID_TOPIC_EXCEPTION"),
        (["topic", "create", "x", "--config", "retention.ms"], "--config takes NAME=VALUE"),
        (["topic", "create", "x", "--config", "retention.ms=soon"], "INVALID_REQUEST"),
        (["topic", "alter", "x"], "nothing to alter"),
        (["produce", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["produce", "x", "--file", "/no/such/file"], "No such file or directory: /no/such/file"),
        (["produce", "x", "--json-lines", "--key-separator", ","], "a JSON line names its own key"),
        (["produce", "x", "--key-separator", ""], "--key-separator is empty"),
        (["consume", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["offsets", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["trim", "none", "0", "1"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["topic", "list", "--url", "nonsense"], "INVALID_REQUEST"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(run, arguments, expected):
    assert expected in error_line(run(*arguments))


def test_an_error_without_a_server_says_how_to_start_one_and_that_it_may_be_tried_again(run):
    line = error_line(run("topic", "list", "--url", "http://127.0.0.1:1"), exit_code=3)
    assert "start a server with 'fenceline dev --data DIR'" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bogus"], "(see 'fenceline --help')"),
        (["--bogus"], "(see 'fenceline --help')"),
        (["trim", "x", "y", "1"], "(see 'fenceline trim --help')"),
        (["topic", "create", "x", "--partitions", "0"], "(see 'fenceline topic create --help')"),
        (["topic", "create"], "Missing argument 'TOPIC' (see 'fenceline topic create --help')"),
    ],
)
def test_a_misused_command_is_reported_in_one_line(arguments, expected):
    result = CliRunner().invoke(app, arguments, prog_name="fenceline")

    assert expected in error_line(result, exit_code=2)


@pytest.mark.parametrize("pack", [None, "gz", "bz2"])
def test_lines_of_a_file_come_back_as_they_were(run, topic, tmp_path, pack):
    text = "".join(f"line {number} é\n" for number in range(1_000)).encode()
    file = tmp_path / ("in" if pack is None else f"in.{pack}")
    file.write_bytes({None: bytes, "gz": gzip.compress, "bz2": bz2.compress}[pack](text))

    produced = run("produce", topic, "--file", file, "--partition", 1)

    assert lines(produced)[0].startswith(f"produced 1000 records to {topic} in ")
    assert len(lines(produced)) == 1
    assert produced.stderr == ""
    assert run("consume", topic).stdout_bytes == text


def test_keys_before_a_separator_go_to_kafkas_partitions_and_line_ends_are_left_out(run, topic):
    lines(run("produce", topic, "--key-separator", "::", stdin=b"a::1\r\nb::2::3\n::4\nc::"))

    records = [json.loads(line) for line in lines(run("consume", topic, "--format", "json"))]

    assert {record["key"]: record["value"] for record in records} == {"a": "1", "b": "2::3", "": "4", "c": ""}
    assert all(record["partition"] == partition_of(record["key"].encode(), 2) for record in records)


def test_json_lines_carry_keys_tombstones_headers_and_timestamps(run, topic):
    given = [
        {"key": "k", "value": "é", "headers": [["h", "x"], ["n", None]], "timestamp": 1_700_000_000_000},
        {"key": "k", "value": None, "headers": [], "timestamp": 1_700_000_000_001},
    ]
    lines(run("produce", topic, "--json-lines", stdin="".join(json.dumps(one) + "\n" for one in given)))

    records = [json.loads(line) for line in lines(run("consume", topic, "--format", "json"))]

    partition = partition_of(b"k", 2)
    assert records == [{"partition": partition, "offset": offset, **one} for offset, one in enumerate(given)]
    assert lines(run("consume", topic)) == ["é", "null"]
    assert lines(run("consume", topic, "--format", "key-value")) == ["k\té", "k\tnull"]


@pytest.mark.parametrize(
    ("options", "line", "expected"),
    [
        (["--key-separator", ","], "none", "no key separator ','"),
        (["--json-lines"], "{", "not JSON"),
        (["--json-lines"], "[]", "a record must be an object"),
        (["--json-lines"], "{}", "a record must be an object"),
        (["--json-lines"], '{"value": "x", "other": 1}', "a record must be an object"),
        (["--json-lines"], '{"value": 1}', "value must be text or null"),
        (["--json-lines"], '{"value": "\\ud800"}', "value is not valid text"),
        (["--json-lines"], '{"value": "x", "key": []}', "key must be text or null"),
        (["--json-lines"], '{"value": "x", "timestamp": "now"}', "timestamp must be an integer"),
        (["--json-lines"], '{"value": "x", "timestamp": true}', "timestamp must be an integer"),
        (["--json-lines"], '{"value": "x", "timestamp": -7}', "timestamp"),
        (["--json-lines"], '{"value": "x", "headers": {"a": "b"}}', "headers must be a list"),
        (["--json-lines"], '{"value": "x", "headers": 7}', "headers must be a list"),
        (["--json-lines"], '{"value": "x", "headers": [["a"]]}', "a header must be [name, value]"),
    ],
)
def test_a_line_that_is_no_record_is_named_by_its_number(run, topic, options, line, expected):
    good = '{"value": "x"}' if options == ["--json-lines"] else "a,b"

    printed = error_line(run("produce", topic, *options, stdin=f"{good}\n{line}\n"))

    assert printed.startswith("line 2: ")
    assert expected in printed
    assert "records were acknowledged" in printed


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_damaged_compressed_file_is_reported(run, topic, tmp_path, suffix, pack):
    file = tmp_path / f"in.{suffix}"
    for content in (pack(os.urandom(5_000))[:-300], b"no such thing at all"):
        file.write_bytes(content)
        assert "the compressed input is damaged" in error_line(run("produce", topic, "--file", file))


def test_consume_begins_and_ends_where_its_options_say(run, topic):
    given = [json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1_000}) for n in range(10)]
    lines(run("produce", topic, "--json-lines", "--partition", 0, stdin="\n".join(given)))

    assert lines(run("consume", topic, "--from", "7", "--partition", 0)) == ["7", "8", "9"]
    assert lines(run("consume", topic, "--from", "latest")) == []
    assert lines(run("consume", topic, "--max", 2)) == ["0", "1"]
    assert lines(run("consume", topic, "--from", "@2023-11-14T22:13:26Z")) == ["6", "7", "8", "9"]
    assert lines(run("consume", topic, "--from", "@2023-11-14T22:13:26")) == ["6", "7", "8", "9"]
    assert lines(run("consume", topic, "--from", "@2023-11-15T00:13:27+02:00")) == ["7", "8", "9"]
    assert lines(run("consume", topic, "--from", "@2030-01-01")) == []
    assert lines(run("consume", topic, "--follow", "--max", 10)) == [str(n) for n in range(10)]
    assert "OFFSET_OUT_OF_RANGE" in error_line(run("consume", topic, "--from", "11", "--partition", 0))
    assert "has no partition 2; it has 0 to 1" in error_line(run("consume", topic, "--partition", 2))
    assert "--from takes" in error_line(run("consume", topic, "--from", "somewhere"))
    assert "--from @ takes" in error_line(run("consume", topic, "--from", "@noon"))


def test_bytes_that_are_no_text_are_printed_as_base64_in_json_and_as_they_are_otherwise(run, topic):
    lines(run("produce", topic, stdin=b"\xff\xfe\n"))

    record = json.loads(run("consume", topic, "--format", "json").stdout)

    assert (record["value"], record["encoding"]) == ("//4=", "base64")
    assert run("consume", topic).stdout_bytes == b"\xff\xfe\n"


def test_offsets_follow_produce_and_trim(run, topic):
    lines(run("produce", topic, "--partition", 1, stdin="a\nb\nc\n"))

    assert lines(run("trim", topic, 1, 2, "--yes")) == [f"trimmed {topic}/1 log_start_offset=2"]

    both = json.loads(run("offsets", topic, "--json").stdout)
    assert [(row["partition"], row["log_start_offset"], row["next_offset"]) for row in both] == [(0, 0, 0), (1, 2, 3)]
    assert lines(run("offsets", topic, "--partition", 1))[1].split("\t")[:3] == ["1", "2", "3"]
    assert lines(run("consume", topic)) == ["c"]


def test_dev_serves_the_given_directory_port_and_workers(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("fenceline_cli.dev_server.server.serve", lambda *arguments: seen.append(arguments) or 3)

    result = CliRunner().invoke(app, ["dev", "--data", str(tmp_path / "d"), "--port", "99", "--workers", "2"])

    assert result.exit_code == 3
    ((settings, host, port, workers),) = seen
    assert (settings.data_dir, settings.item_age_ms) == (str(tmp_path / "d"), 0)
    assert (host, port, workers) == ("127.0.0.1", 99, 2)


def test_dev_allows_the_given_origins_and_hosts(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr("fenceline_cli.dev_server.server.serve", lambda *_, **named: seen.update(named) or 0)
    pages = ["--cors-origin", "http://localhost:3000", "--cors-origin", "https://example.com"]

    result = CliRunner().invoke(app, ["dev", "--data", str(tmp_path / "d"), *pages, "--allowed-host", "build-box"])

    assert result.exit_code == 0
    assert seen == {"cors_origins": ["http://localhost:3000", "https://example.com"], "allowed_hosts": ["build-box"]}


def commands(command, path=("fenceline",)):
    if not hasattr(command, "commands"):
        yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize("path", list(commands(get_command(app))), ids=" ".join)
def test_every_command_teaches_with_an_example(path):
    result = CliRunner().invoke(app, [*path[1:], "--help"], env={"COLUMNS": "200"})

    assert result.exit_code == 0
    assert f"Example: {' '.join(path)} " in f"{result.stdout} ".replace("\n", " ")


@pytest.mark.slow
def test_a_reader_that_hangs_up_is_no_error(url, run, topic):
    lines(run("produce", topic, stdin=(b"x" * 100 + b"\n") * 20_000))
    command = " ".join([*COMMAND, "consume", topic, "--url", url])

    ended = subprocess.run(f"{command} | head -1", shell=True, capture_output=True, check=False)

    assert ended.stdout == b"x" * 100 + b"\n"
    assert ended.stderr == b""


def hears_ctrl_c():
    """A shell that runs the tests in the background has them ignore it, and what they start as well."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_ends_a_follower_without_a_word(url, topic):
    with (
        Client(url) as client,
        subprocess.Popen(
            [*COMMAND, "consume", topic, "--follow", "--url", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=hears_ctrl_c,
        ) as process,
    ):
        try:
            with client.producer(topic) as producer:
                producer.send(value=b"seen")
            assert process.stdout.readline() == b"seen\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()

    assert (process.returncode, out, err) == (130, b"", b"")
