"""The commands for regions against two servers that replicate: what is written, moved and compared."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
from contextlib import ExitStack, suppress

import pytest
from typer.testing import CliRunner

from fenceline_cli.dev_server.process import ServerProcess
from fenceline_cli.main import app
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.results import error_line, hears_ctrl_c, lines

pytestmark = pytest.mark.slow  # real servers


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """Two regions, each of which has the other one as its peer."""
    with ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in "ab"]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    urls = {name: f"http://127.0.0.1:{port}" for name, port in zip("ab", ports, strict=True)}
    with ExitStack() as running:
        for name, other, port in zip("ab", "ba", ports, strict=True):
            options = ["--region", name, "--peers", f"{other}={urls[other]}"]
            directory = tmp_path_factory.mktemp(name)
            running.enter_context(ServerProcess(directory, port=port, options=options))
        yield urls


@pytest.fixture
def run(urls):
    """Return a function that runs a command in a region."""

    def run(region, *arguments, stdin=None):
        url = urls[region]
        return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env={"FENCELINE_URL": url})

    return run


@pytest.fixture
def topic(run, request):
    name = request.node.name.translate({ord("["): "-", ord("]"): None})
    for region in "ab":
        assert lines(run(region, "topic", "create", name, "--regions", "a,b"))[0].endswith("regions=a,b")
    return name


def settle(run, topic):
    """Wait until each region has all that the other one has."""

    def has_all(region):
        status = json.loads(run(region, "replication", "status", topic, "--json").stdout)
        return all(one["connected"] and one["lag_records"] == 0 for one in status["regions"])

    for region in "ab":
        wait_until(lambda region=region: has_all(region))


def test_a_subscription_moves_to_another_region_and_loses_nothing(run, urls, topic):
    lines(run("a", "subscription", "create", topic, "s", "--replicated", "--from", "earliest"))
    given = {region: [f"{region}{number}" for number in range(40)] for region in "ab"}
    for region in "ab":
        lines(run(region, "produce", topic, stdin="\n".join(given[region])))
    settle(run, topic)

    here = lines(run("a", "consume", topic, "--subscription", "s", "--max", 60))
    move = ["failover", topic, "s", "--from", f"a={urls['a']}", "--to", f"b={urls['b']}", "--yes", "--json"]
    moved = json.loads(run("a", *move).stdout)
    there = lines(run("b", "consume", topic, "--subscription", "s"))

    assert (moved["answered"], moved["told"], moved["created"]) == (True, True, False)
    assert {*here, *there} == {*given["a"], *given["b"]}
    assert 20 <= len(there) <= 20 + moved["repeats"]
    for name in "ab":
        assert lines(run(name, "subscription", "list", topic))[1] == "s\ttrue\tb"


def test_regions_that_have_replicated_are_equal(run, urls, topic):
    for region in "ab":
        lines(run(region, "produce", topic, stdin="\n".join(map(str, range(50)))))
    settle(run, topic)

    compared = json.loads(run("a", "verify", topic, "--peer", f"b={urls['b']}", "--json").stdout)
    assert [(one["origin"], one["records"], one["differs_at"]) for one in compared] == [
        ("a", 50, None),
        ("b", 50, None),
    ]
    assert lines(run("b", "verify", topic, "--peer", f"a={urls['a']}"))[1].endswith("50\tequal")


def test_a_region_is_suspended_and_a_snapshot_needs_another_region(run, topic):
    assert lines(run("a", "regions", "suspend", topic, "b"))[0].startswith(f"suspended b for {topic}")
    assert [line.split("\t")[:2] for line in lines(run("a", "regions", "list", topic))[1:]] == [
        ["a", "here"],
        ["b", "suspended"],
    ]
    lines(run("a", "regions", "resume", topic, "b"))
    assert "snapshot_id=" in lines(run("a", "replication", "snapshot", topic))[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("topic", "create", "x", "--regions", "a,x"), "INVALID_REQUEST"),
        (("topic", "create", "x", "--regions", "b"), "INVALID_REQUEST"),
        (("regions", "suspend", "TOPIC", "a"), "INVALID_REQUEST"),
        (("regions", "suspend", "TOPIC", "x"), "INVALID_REQUEST"),
        (("replication", "skip", "TOPIC", "-p", "0", "--from", "b", "--to", "1", "--yes"), "INVALID_REQUEST"),
        (("replication", "skip", "TOPIC", "-p", "0", "--from", "b", "--to", "1"), "has no gap of b"),
        (("replication", "status", "none"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_refusal_is_one_line(run, urls, arguments, expected):
    run("a", "topic", "create", "refusing", "--regions", "a,b")
    run("b", "topic", "create", "refusing", "--regions", "a,b")
    settle(run, "refusing")
    given = ["refusing" if one == "TOPIC" else one for one in arguments]
    assert expected in error_line(run("a", *given))


def watching(url, topic):
    return [sys.executable, "-m", "fenceline_cli.main", "replication", "status", topic, "--watch", "--url", url]


def test_ctrl_c_ends_a_watch_without_a_word(urls, topic):
    command = watching(urls["a"], topic)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c
    ) as process:
        try:
            assert process.stdout.readline().startswith("time\tregion\t")
            assert process.stdout.readline().split("\t")[1] == "b"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "")


ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.mark.parametrize("columns", [100, 40])
def test_a_terminal_is_redrawn_on_a_screen_of_its_own_and_keeps_what_was_drawn_last(urls, topic, columns):
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    env = {**os.environ, "TERM": "xterm"}
    env.pop("COLUMNS", None)
    command = watching(urls["a"], topic)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, preexec_fn=hears_ctrl_c
    ) as process:
        os.close(theirs)
        drawn = b""
        try:
            while drawn.count(b"in region a") < 3:  # three looks
                drawn += os.read(terminal, 65_536)
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # EIO: its end
                while chunk := os.read(terminal, 65_536):
                    drawn += chunk
            assert process.wait(PATIENCE_S) == 130
        finally:
            process.kill()
            os.close(terminal)
    before, _, rest = drawn.partition(ALTERNATE)
    looks, _, last = rest.partition(BACK)
    assert b"in region a" not in before
    assert looks.count(b"in region a") >= 3
    assert last.count(b"in region a") == 1
    assert b"connected" in last
    assert b"error" not in last
