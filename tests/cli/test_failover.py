"""``fenceline failover``: how many records it says will repeat, what it does in which region, and what it refuses."""

import json

import pytest
import typer
from typer.testing import CliRunner

from fenceline import errors
from fenceline_cli import options
from fenceline_cli.main import app
from tests.support.results import error_line, last_line, lines
from tests.support.runtime import AheadRuntime
from tests.support.served_regions import NOW_MS, answers, connecting, region_status, snapshot, world

FROM, TO = ("--from", "a=http://a"), ("--to", "b=http://b")
MOVE = ("failover", "t", "s", *FROM, *TO)
CREATED = ("PUT", "subscriptions/s", {"initial_position": "earliest", "replicate_subscription_state": True})
MOVED = ("PUT", "subscriptions/s", {"initial_position": "earliest", "active_region": "b"})
SNAPSHOT = ("POST", "replication/snapshots", {})


@pytest.fixture
def marks():
    """The mark and the backlog of the subscription in each partition, for each region that has it."""
    return {"a": {0: (100, 3), 1: (50, 0)}, "b": {0: (80, 10), 1: (40, 2)}}


@pytest.fixture
def plain():
    """The regions where the subscription is not replicated."""
    return ""


@pytest.fixture
def regions(marks, plain):
    """Both regions have the subscription; b does not know of 7 acknowledgements in partition 0 and 2 in partition 1."""
    with world("a", "b", "c", serves="ab") as regions:
        for name, of_region in marks.items():
            regions[name].subscribe(of_region, is_replicated=name not in plain)
        regions["a"].status, regions["b"].status = {}, {"regions": [region_status("a")]}
        regions["a"].scripts["startSnapshot"] = answers(snapshot_id="snap")
        yield regions


@pytest.fixture
def runtime():
    return AheadRuntime()


@pytest.fixture
def run(regions, runtime, monkeypatch):
    """Return a function that runs a command in a terminal's place."""
    monkeypatch.setattr(options, "Client", connecting(regions, runtime), raising=False)
    return lambda *arguments, typed=None: CliRunner().invoke(app, [*map(str, arguments)], input=typed)


@pytest.fixture
def completes(regions):
    """A snapshot of a is complete at the third look, and moves the marks in b at the fourth."""
    a, b = regions["a"], regions["b"]
    looks = []

    def on_asked(method, path):
        if not path.endswith("/replication") or SNAPSHOT not in a.changes():
            return
        looks.append(path)
        if len(looks) == 1:
            a.status = {"pending": [{"snapshot_id": "snap", "partition": 1, "started_at": 1, "waiting_for": ["b"]}]}
        elif len(looks) == 3:
            a.status = {"snapshots": [snapshot(0, 98, {"b": 85}), snapshot(1, 60, {"b": 42})]}
        elif len(looks) == 4:
            b.outside.acknowledge("t", "s", 0, cumulative=84)
            b.outside.acknowledge("t", "s", 0, individual=[86])
            b.outside.acknowledge("t", "s", 1, cumulative=41)

    a.on_asked = on_asked
    return looks


def test_a_move_shows_marks_and_backlogs_and_asks_with_the_number_of_repeats(run, regions, completes, monkeypatch):
    monkeypatch.setattr(options, "can_answer", lambda: True)
    declined = run(*MOVE, typed="n\n")
    assert declined.exit_code == 1
    assert [line.split("\t") for line in declined.stdout.splitlines()[:3]] == [
        ["partition", "mark in a", "backlog in a", "mark in b", "backlog in b", "repeats"],
        ["0", "100", "3", "80", "10", "7"],
        ["1", "50", "0", "40", "2", "2"],
    ]
    assert "Move s of t from a to b? About 9 records repeat. [y/N]" in declined.stderr
    assert [region.changes() for region in regions.values()] == [[], []]

    agreed = run(*MOVE, typed="y\n")
    assert agreed.exit_code == 0
    assert agreed.stdout.splitlines()[-2:] == [
        "moved s of t active_region=b: about 1 record repeats",
        "consumers that do not move by themselves go on with --url http://b",
    ]


def test_a_move_waits_for_a_snapshot_and_for_the_marks_and_then_sets_the_active_region(run, regions, completes):
    lines(run(*MOVE, "--yes"))
    assert len(completes) == 4
    assert regions["a"].changes() == [SNAPSHOT, MOVED]
    assert regions["b"].changes() == [CREATED, MOVED]


def test_a_move_waits_ten_seconds_at_most(run, regions, runtime):
    regions["a"].status = {"pending": [{"snapshot_id": "snap", "partition": 0, "started_at": 1, "waiting_for": []}]}
    assert lines(run(*MOVE, "--yes"))[-2] == "moved s of t active_region=b: about 9 records repeat"
    assert 9_000 < sum(runtime.slept_ms) <= 10_000
    assert regions["b"].changes() == [CREATED, MOVED]


def test_a_move_goes_on_without_a_snapshot_where_there_is_no_room(run, regions):
    regions["a"].refusals["/v1/topics/t/replication/snapshots"] = errors.ThrottledError("8 are under way")
    assert lines(run(*MOVE, "--yes"))[-2].endswith("about 9 records repeat")
    assert regions["a"].changes()[-1] == MOVED


@pytest.mark.parametrize("path", ["replication/snapshots", "replication"])
def test_a_move_goes_on_if_the_old_region_refuses_a_snapshot_or_its_status(run, regions, path):
    """It does where each other region of the topic is suspended."""
    refusal = errors.InvalidRequestError("every other region of this topic is suspended")
    regions["a"].refusals[f"/v1/topics/t/{path}"] = refusal
    assert lines(run(*MOVE, "--yes"))[-2].endswith("about 9 records repeat")
    assert regions["a"].changes()[-1] == MOVED
    assert regions["b"].changes() == [CREATED, MOVED]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            region_status("a", lag_records=5),
            "b lacks 5 of the records that a has written; consumers in b do not see them before they have arrived",
        ),
        (
            region_status("a", lag_records=5, problem="it refused"),
            "b lacks 5 of the records that a has written; consumers in b do not see them until the link works:"
            " it refused",
        ),
        (
            region_status("a", connected=False, lag_records=None, problem="it is c"),
            "b does not hear from a; consumers in b do not see what has not arrived until the link works: it is c",
        ),
        (
            region_status("a", connected=False, lag_records=None),
            "b does not hear from a; consumers in b do not see what has not arrived until the link works",
        ),
        (
            region_status("a", suspended=True),
            "b has suspended a; consumers in b do not see what has not arrived until the link works",
        ),
        (
            region_status("a", problem="another history"),
            "b takes no records from a; consumers in b do not see what has not arrived until the link works:"
            " another history",
        ),
    ],
)
def test_a_broken_link_is_a_warning_before_the_move(run, regions, monkeypatch, row, expected):
    regions["b"].status = {"regions": [row]}
    monkeypatch.setattr(options, "can_answer", lambda: True)
    asked = run(*MOVE, typed="n\n")
    assert asked.stderr.startswith(f"warning: {expected}\nMove s of t")

    result = run(*MOVE, "--yes")
    assert (result.exit_code, result.stderr) == (0, f"warning: {expected}\n")
    assert json.loads(run(*MOVE, "--yes", "--json").stdout)["warnings"] == [expected]
    assert regions["b"].changes()[-1] == MOVED


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            region_status("b", connected=False, problem="the peer b: it is away"),
            "a does not hear from b; marks may not follow, and b may lack records: the peer b: it is away",
        ),
        (
            region_status("b", problem="the peer b: it refused"),
            "a takes no records from b; marks may not follow, and b may lack records: the peer b: it refused",
        ),
    ],
)
def test_a_link_broken_in_the_other_direction_is_a_warning_too(run, regions, row, expected):
    """It is so where the topic was deleted and created again: b is up to date with a, and yet lacks records."""
    regions["a"].status = {"regions": [row]}
    assert run(*MOVE, "--yes").stderr == f"warning: {expected}\n"


def ending_with(backlog):
    return {"a": {0: (100, 10), 1: (50, 0)}, "b": {0: (100, backlog), 1: (40, 2)}}


@pytest.mark.parametrize(
    ("marks", "lag", "lacking"),
    [(ending_with(7), 0, 3), (ending_with(7), 2, 1), (ending_with(7), 3, None), (ending_with(10), 0, None)],
)
def test_a_smaller_backlog_that_no_lag_explains_is_a_warning(run, regions, lag, lacking):
    """Records of a topic that was deleted and created again are missing for good, although both links work."""
    regions["b"].status = {"regions": [region_status("a", lag_records=lag)]}
    printed = run(*MOVE, "--yes").stderr
    expected = f"warning: the backlog in b is smaller by {lacking}: b lacks records, or more are acknowledged there\n"
    assert (expected in printed) if lacking else ("smaller" not in printed)


def test_working_links_are_not_warned_of(run, regions):
    regions["a"].status = {"regions": [region_status("b", lag_records=7)]}
    assert run(*MOVE, "--yes").stderr == ""
    assert json.loads(run(*MOVE, "--yes", "--json").stdout)["warnings"] == []


def test_a_move_that_another_one_has_undone_meanwhile_is_not_said_to_be_made(run, regions):
    b = regions["b"]

    def on_asked(method, path):
        if method == "GET" and MOVED in b.changes():
            b.outside.set_active_region("t", "s", "a")

    b.on_asked = on_asked
    result = run(*MOVE, "--yes")
    expected = "s of t is active in a by now, not in b: another command moved it meanwhile"
    assert (result.exit_code, result.stderr) == (0, f"warning: {expected}\n")
    assert "moved s" not in result.stdout

    printed = json.loads(run(*MOVE, "--yes", "--json").stdout)
    assert (printed["active_region"], printed["warnings"]) == ("a", [expected])


def test_the_help_promises_only_what_has_arrived(run):
    printed = " ".join(run("failover", "--help").stdout.split())
    assert "no record is lost" not in printed
    assert "No record that has arrived in the other region is lost." in printed
    assert "A record that has not arrived there comes when the region that is left is back." in printed


def test_a_lost_region_is_left_with_an_upper_bound_of_repeats(run, regions):
    regions["a"].is_down = True
    result = run(*MOVE, "--yes")
    assert result.exit_code == 0
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("warning: a does not answer, so consumers there may go on; b last saw it at 2023-11-14T")
    assert "STORE_UNAVAILABLE: region a: " in warning
    assert warning.endswith("(start the server of region a, or name another with --from a=URL)")
    assert result.stdout.splitlines()[1] == "0\t\t\t80\t10\t10"
    assert result.stdout.splitlines()[-2] == "moved s of t active_region=b: at most 12 records repeat"
    assert regions["b"].changes() == [CREATED, MOVED]
    assert regions["a"].sent == []


@pytest.mark.parametrize("marks", [{}])
def test_a_missing_subscription_is_created_at_earliest(run, regions):
    regions["a"].is_down = True
    b = regions["b"]
    for partition, (start, end) in {0: (4, 9), 1: (7, 7)}.items():
        b.fill(*[b"a record"] * end, partition=partition)
        b.outside.trim("t", partition, start)
    moved = json.loads(run(*MOVE, "--yes", "--json").stdout)
    assert (moved["created"], moved["repeats_before"], moved["at_most"]) == (True, 5, True)
    assert (moved["answered"], moved["told"], moved["snapshot_id"]) == (False, False, None)
    assert moved["last_seen_at"] == NOW_MS
    assert b.changes() == [CREATED, MOVED]


@pytest.mark.parametrize("marks", [{"b": {0: (80, 10), 1: (40, 2)}}])
def test_a_region_that_is_lost_with_its_stores_has_nothing_to_say(run, regions):
    result = run(*MOVE, "--yes")
    assert result.stdout.splitlines()[-2] == "moved s of t active_region=b: at most 12 records repeat"
    assert "a was not told, so consumers there may go on: it has no such subscription" in result.stderr
    assert regions["a"].changes() == []  # a subscription that is created there would be at its latest, or repeat all


def test_a_region_that_lacks_the_topic_is_said_to_lack_the_topic(run, regions):
    regions["a"].outside.delete_topic("t")
    assert "a was not told, so consumers there may go on: it has no such topic" in run(*MOVE, "--yes").stderr


@pytest.mark.parametrize("plain", ["b"])
def test_a_plain_subscription_is_not_taken_for_a_replicated_one(run, regions):
    """Its mark may be beyond records that no consumer was offered."""
    line = error_line(run(*MOVE, "--yes"))
    assert "s is not replicated in b" in line
    assert "'fenceline subscription create t s --replicated --url http://b'" in line
    assert regions["a"].changes() + regions["b"].changes() == []


@pytest.mark.parametrize("plain", ["a"])
def test_a_plain_subscription_that_is_left_has_no_snapshot_and_is_warned_of(run, regions):
    result = run(*MOVE, "--yes")
    warning, command = result.stderr.split("; run ")
    assert (result.exit_code, warning.partition(", ")[0]) == (0, "warning: s is not replicated in a")
    assert command == "'fenceline subscription create t s --replicated --url http://a'\n"
    assert regions["a"].changes() == [MOVED]


def test_partitions_that_the_other_region_lacks_are_named(run, regions):
    regions["b"].recreate(partitions=1, regions=["a", "b", "c"])
    regions["b"].subscribe({0: (80, 10)})
    result = run(*MOVE, "--yes")
    assert "warning: b has no partition 1; its records wait until it has" in result.stderr
    assert result.stdout.splitlines()[2] == "1\t50\t0\t\t\t0"


def test_a_move_is_not_made_unasked(run, regions):
    line = last_line(run(*MOVE))
    assert "this moves s of t from a to b, and about 9 records repeat; say --yes" in line
    assert regions["a"].changes() + regions["b"].changes() == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/topics/t/replication", "interrupted: nothing was moved\n"),
        ("PUT", "interrupted: it may have been moved; run the command again\n"),
    ],
)
def test_ctrl_c_says_whether_anything_was_moved(run, regions, path, expected):
    region = regions["b" if path == "PUT" else "a"]

    def on_asked(method, asked):
        if path == method or (path == asked and SNAPSHOT in region.changes()):
            raise KeyboardInterrupt

    region.on_asked = on_asked
    result = run(*MOVE, "--yes")
    assert (result.exit_code, result.stderr) == (130, expected)


def press_ctrl_c(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [MOVE, ("topic", "delete", "t", "--url", "http://a")])
def test_ctrl_c_at_the_question_ends_the_command_as_anywhere_else(run, regions, monkeypatch, command):
    monkeypatch.setattr(options, "can_answer", lambda: True)
    monkeypatch.setitem(typer.confirm.__globals__, "echo", press_ctrl_c)  # while the question is asked
    result = run(*command)
    assert (result.exit_code, "Aborted" in result.stderr) == (130, False)
    assert [region.changes() for region in regions.values()] == [[], []]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda a, b: [one.outside.delete_subscription("t", "s") for one in (a, b)],
            "neither a nor b has a subscription s of t",
        ),
        (
            lambda a, b: b.outside.alter_topic("t", regions=["b", "c"]),
            "topic t in b is not connected with a: regions=b,c",
        ),
        (
            lambda a, b: setattr(b, "refusals", {"/v1/topics/t": errors.UnknownTopicOrPartitionError("none")}),
            "UNKNOWN_TOPIC_OR_PARTITION: region b: none (",
        ),
        (
            lambda a, b: setattr(a, "refusals", {"/v1/topics/t/subscriptions/s": errors.InvalidRequestError("bad")}),
            "INVALID_REQUEST: region a: bad (",
        ),
    ],
)
def test_a_subscription_that_cannot_be_moved_is_reported_in_one_line(run, regions, change, expected):
    change(regions["a"], regions["b"])
    assert expected in error_line(run(*MOVE, "--yes"))
    assert regions["a"].changes() + regions["b"].changes() == []


def test_the_region_that_takes_over_must_answer(run, regions):
    regions["b"].is_down = True
    line = error_line(run(*MOVE, "--yes"), exit_code=3)
    assert line.startswith("STORE_UNAVAILABLE: region b: ")
    assert line.endswith("(start the server of region b, or name another with --to b=URL)")
    problem = json.loads(run(*MOVE, "--yes", "--json").stderr)
    assert (problem["code"], problem["next_step"], problem["region"]) == ("STORE_UNAVAILABLE", "retry", "b")
    assert problem["what_to_do"] == "start the server of region b, or name another with --to b=URL"
    assert regions["a"].changes() == []


@pytest.mark.parametrize(
    ("options_", "expected"),
    [
        (["--from", "a", *TO], "takes REGION=URL, as in b=http://127.0.0.1:8081: 'a'"),
        (["--from", "=http://a", *TO], "takes REGION=URL"),
        (["--from", "a=localhost:80", *TO], "takes REGION=URL"),
        (["--from", "a=ftp://a", *TO], "takes REGION=URL"),
        ([*FROM, "--to", "a=http://b"], "--from and --to are one region; name two: a"),
        ([*FROM], "Missing option '--to'"),
        (["--from", "c=http://a", *TO], "the service at http://a is region a, not c; give --from a=http://a"),
        ([*FROM, "--to", "c=http://b"], "the service at http://b is region b, not c; give --to b=http://b"),
    ],
)
def test_wrong_options_are_misuse_and_change_nothing(run, regions, options_, expected):
    line = error_line(run("failover", "t", "s", *options_, "--yes"), exit_code=2)
    assert expected in line
    assert regions["a"].changes() + regions["b"].changes() == []
