"""What a command loads before it does anything, how it ends, and what it says of both: no server is needed."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fenceline import Record, errors
from fenceline_cli import output
from fenceline_cli.command_table import COMMANDS
from fenceline_cli.main import app
from tests.support.results import error_line, lines

# What only some commands need, and what takes longest to load.
NOT_FOR_HELP = (
    "aiokafka",
    "httpx",
    "rich",
    "asyncio",
    "botocore",
    "aws_lambda_powertools",
    "uvicorn",
    "moto",
    "pydantic",
)
# Of the log, what a client of it has no use for; of the codec's package, its client of Kafka.
NOT_FOR_A_COMMAND = (
    "asyncio",
    "aiokafka.client",
    "packaging",
    "fenceline.append.entries.batch",
    "fenceline.log.context",
    "fenceline.log.state",
    "fenceline.log.checkpoint_items",
    "fenceline.format.control",
    "fenceline.read.offsets",
    "fenceline.log.partition",
    "fenceline.read.reader",
    "fenceline.format.segment",
    "fenceline.log.tail",
)
NOT_WITHOUT_RECORDS = ("aiokafka", "cramjam", "fenceline.format.batch", "fenceline.format.compression")
NOT_FOR_A_CLIENT = ("rich", "botocore", "aws_lambda_powertools", "uvicorn", "moto", "pydantic", "click.core")


def loaded_by(*arguments, stdin=None):
    """Return the names of all modules that a process has loaded when it ends, and its exit code."""
    program = (
        "import sys; from fenceline_cli.main import app\n"
        "try: app(sys.argv[1:], prog_name='fenceline')\n"
        "except SystemExit as end: code = end.code\n"
        "sys.stderr.write('\\n'.join([str(code), *sys.modules]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    printed = ended.stderr.splitlines()
    start = max(n for n, line in enumerate(printed) if line.isdecimal())
    return set(printed[start + 1 :]), int(printed[start])


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["topic", "create", "--help"]], ids=" ".join)
def test_help_loads_no_more_than_it_shows(arguments):
    modules, code = loaded_by(*arguments)
    assert code == 0
    assert not modules & set(NOT_FOR_HELP)
    own = {
        name.removeprefix("fenceline_cli.commands.") for name in modules if name.startswith("fenceline_cli.commands.")
    }
    assert own <= {"topics", "topics.command", "topics.partitions", "topics.settings"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["produce", "consume", "offsets", "subscription", "own", "lock", "producers", "txn"])
def test_help_of_a_command_that_asks_a_service_loads_no_client(name):
    modules, code = loaded_by(name, "--help")
    assert code == 0
    assert not modules & set(NOT_FOR_HELP)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["topic", "list"], ["produce", "x"], ["consume", "x"]], ids=" ".join)
def test_a_command_that_asks_a_service_loads_no_server_and_draws_nothing(arguments):
    modules, code = loaded_by(*arguments, "--url", "http://127.0.0.1:1", stdin="")
    assert code == output.EXIT_UNAVAILABLE
    assert not modules & set(NOT_FOR_A_CLIENT)
    assert "httpx" in modules
    assert "aiokafka" not in modules or arguments[0] == "produce"
    assert not any(name.partition(".")[0] == "benchmarks" for name in modules)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "describe", "TOPIC"],
        ["topic", "alter", "TOPIC", "--config", "retention.ms=7d", "--yes"],
        ["offsets", "TOPIC"],
        ["trim", "TOPIC", "0", "0", "--yes"],
        ["subscription", "list", "TOPIC"],
        ["producers", "list", "TOPIC"],
        ["producers", "describe", "TOPIC"],
        ["producers", "access", "TOPIC"],
        ["producers", "access", "TOPIC", "--history"],
        ["txn", "list"],
        ["txn", "open", "TOPIC"],
        ["txn", "find-hanging"],
        ["session", "list"],
        ["txn", "once", "an-application"],
        ["own", "--show", "TOPIC/0"],
        ["lock", "a-resource", "--", sys.executable, "-c", "pass"],
        ["consume", "TOPIC", "--subscription", "billing"],
        ["consume", "TOPIC", "--compacted"],
        ["consume", "TOPIC", "--from", "earliest"],
        ["produce", "TOPIC"],
        ["txn", "run", "--in", "TOPIC", "--out", "TOPIC", "--group", "g", "--once", "--", "cat"],
    ],
    ids=lambda arguments: " ".join(arguments[:2] if arguments[0] != "consume" else arguments),
)
def test_a_command_that_is_answered_loads_no_more_of_the_log_than_it_shows(url, client, topic, arguments):
    client.produce(topic, 0, [Record(b"a value")])
    command, *rest = [topic if word == "TOPIC" else word.replace("TOPIC", topic) for word in arguments]
    at = rest.index("--") if "--" in rest else len(rest)
    modules, code = loaded_by(command, *rest[:at], "--url", url, *rest[at:], stdin="a line\n")
    assert code == 0
    assert not modules & {*NOT_FOR_A_CLIENT, *NOT_FOR_A_COMMAND}
    carries_batches = arguments in (["produce", "TOPIC"], ["consume", "TOPIC", "--from", "earliest"])
    carries_batches = carries_batches or arguments[:2] == ["txn", "run"]
    assert modules & set(NOT_WITHOUT_RECORDS) == (set(NOT_WITHOUT_RECORDS) if carries_batches else set())


@pytest.mark.slow
def test_modules_that_the_codec_skips_can_still_be_imported():
    program = (
        "import sys\n"
        "from fenceline_cli.codec_alone import load_codec\n"
        "load_codec()\n"
        "load_codec()\n"
        "assert 'fenceline.format.batch' in sys.modules and 'asyncio' not in sys.modules\n"
        "import aiokafka.util\n"
        "flag = aiokafka.util.NO_EXTENSIONS\n"
        "assert 'asyncio' not in sys.modules\n"
        "assert callable(aiokafka.util.create_task) and 'asyncio' in sys.modules\n"
        "assert flag is aiokafka.util.NO_EXTENSIONS\n"
        "assert not hasattr(aiokafka.util, 'bogus')\n"
        "from aiokafka import AIOKafkaConsumer\n"
        "assert AIOKafkaConsumer.__module__ == 'aiokafka.consumer.consumer' and aiokafka.__version__\n"
        "import aiokafka.record.default_records\n"
        "assert aiokafka.record.default_records.DefaultRecordBatchBuilder\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_loaded_modules_are_frozen_for_the_garbage_collector():
    program = (
        "import gc\n"
        "from fenceline.quiet_start import QuietStart\n"
        "with QuietStart(): pass\n"
        "assert gc.isenabled() and gc.get_freeze_count() == 0\n"
        "with QuietStart(): import colorsys\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_each_command_that_is_listed_can_be_called_and_each_that_can_be_called_is_listed():
    listed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).stdout
    for name, (module, what) in COMMANDS.items():
        assert f"  {name} " in listed
        assert what in listed
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0, shown.output
        apps = __import__(f"fenceline_cli.commands.{module}", fromlist=["app"]).app
        names = (
            {apps.info.name}
            if isinstance(apps.info.name, str)
            else {c.name or c.callback.__name__ for c in apps.registered_commands}
        )
        assert names <= set(COMMANDS)
        assert name in names


# How it ends


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnknownTopicOrPartitionError("no such topic"), 1),
        (errors.StoreUnavailableError("no connection"), 3),
        (errors.OutcomeUnknownError("the answer was lost"), 4),
        (errors.CorruptLogError("the service answered with bytes that are no record batches"), 5),
    ],
    ids=lambda value: getattr(value, "code", value),
)
def test_each_next_step_has_an_exit_code_that_help_states(monkeypatch, error, code):
    def connect(_url):
        raise error

    monkeypatch.setattr("fenceline_cli.commands.topics.command.connect", connect)

    assert error_line(CliRunner().invoke(app, ["topic", "list"]), exit_code=code).startswith(f"{error.code}: ")
    problem = json.loads(error_line(CliRunner().invoke(app, ["topic", "list", "--json"]), exit_code=code))
    assert problem.items() >= error.problem().items()
    assert problem["what_to_do"]
    stated = [line.split() for line in lines(CliRunner().invoke(app, ["--help"])) if f"({error.next_step})" in line]
    assert [words[0] for words in stated] == [str(code)]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["bogus", "--json"], 2, ("USAGE", "No such command 'bogus'")),
        (["topic", "list", "--json", "--bogus"], 2, ("USAGE", "No such option: --bogus")),
        (["topic", "alter", "x", "--json"], 1, ("COMMAND_FAILED", "nothing to alter")),
        (["lock", "r", "--bogus", "--", "x", "--json"], 2, None),
    ],
)
def test_an_error_without_a_service_is_json_too(arguments, code, expected):
    line = error_line(CliRunner().invoke(app, arguments, prog_name="fenceline"), exit_code=code)
    if expected is None:
        assert line.startswith("No such option")
        return
    problem = json.loads(line)
    assert (problem["code"], problem["next_step"], problem["status"]) == (expected[0], "fix", None)
    assert problem["detail"].startswith(expected[1])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["--version"], ["check-store", "--data", "."]])
def test_output_into_a_closed_pipe_is_no_error(tmp_path, arguments):
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "fenceline_cli.main", *arguments]
    with os.fdopen(write_end) as pipe:
        ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_output_that_was_closed_before_is_no_error():
    command = f"{sys.executable} -m fenceline_cli.main --version >&-"
    ended = subprocess.run(command, shell=True, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
