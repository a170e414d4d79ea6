"""The commands for regions against two servers that replicate: what is written, moved and compared."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

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
    name = request.node.name
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


def test_ctrl_c_ends_a_watch_without_a_word(urls, topic):
    command = [
        sys.executable,
        "-m",
        "fenceline_cli.main",
        "replication",
        "status",
        topic,
        "--watch",
        "--url",
        urls["a"],
    ]
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
