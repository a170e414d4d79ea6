"""``topic --regions``, ``regions`` and ``replication``: what they ask, what they print, and what they refuse."""

import io
import json
import re
import sys
from dataclasses import asdict
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from fenceline import errors
from fenceline_cli import options
from fenceline_cli.commands import replication
from fenceline_cli.main import app
from tests.support.results import error_line, lines
from tests.support.runtime import AheadRuntime
from tests.support.served_regions import NOW_MS, answers, connecting, region_status, snapshot, world

SEEN = "2023-11-14T22:13:20Z"  # NOW_MS


@pytest.fixture
def regions():
    with world("a", "b", "c") as regions:
        yield regions


@pytest.fixture
def a(regions):
    return regions["a"]


@pytest.fixture
def runtime():
    return AheadRuntime()


@pytest.fixture
def run(regions, runtime, monkeypatch):
    """Return a function that runs a command against region a."""
    monkeypatch.setattr(options, "Client", connecting(regions, runtime), raising=False)
    monkeypatch.setenv("FENCELINE_URL", "http://a")
    return lambda *arguments, typed=None: CliRunner().invoke(app, [*map(str, arguments)], input=typed)


GAP = {"partition": 1, "region": "b", "from_offset": 30, "to_offset": 42, "records": 12}


def test_a_topic_is_created_in_several_regions_and_its_regions_are_changed(run, a):
    created = lines(run("topic", "create", "u", "--regions", "a, b"))
    topic = a.outside.topic("u")
    assert created == [f"created u partitions=1 topic_id={topic.topic_id} regions=a,b"]
    assert topic.regions == ["a", "b"]

    assert lines(run("topic", "alter", "u", "--regions", "a,b,c"))[0].endswith("regions=a,b,c")
    assert a.changes()[-1][2] == {"regions": ["a", "b", "c"]}
    assert a.outside.topic("u").regions == ["a", "b", "c"]


@pytest.mark.parametrize("command", ["create", "alter"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [("", "names with commas"), ("a,,b", "names with commas"), ("a,b,a", "leave out one a")],
)
def test_an_invalid_list_of_regions_is_misuse(run, a, command, given, expected):
    line = error_line(run("topic", command, "t", "--regions", given), exit_code=2)
    assert expected in line
    assert f"(see 'root topic {command} --help')" in line.replace("fenceline", "root")
    assert a.sent == []


@pytest.mark.parametrize("command", ["suspend", "resume"])
@pytest.mark.parametrize("given", ["a/b", "", "X Y"])
def test_an_invalid_region_name_is_quoted_as_given(run, a, command, given):
    line = error_line(run("regions", command, "t", given), exit_code=2)
    assert f"a region's name must be 1 to 63 of the characters a-z 0-9 -, not {given!r}" in line
    assert a.sent == []


def test_a_terminal_shows_the_problem_of_a_region_after_the_table(run, a, monkeypatch, capsys):
    problem = "this region has no peer of this name; configure one, or take the name out of the topic's regions"
    a.status = {"regions": [region_status("b", problem=problem)]}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
    with pytest.raises(SystemExit, match="0"):
        app(["regions", "list", "t"])
    shown = capsys.readouterr().out
    assert SEEN in shown
    assert f"\nb: {problem}\n" in shown


@pytest.mark.parametrize("command", [["regions", "list"], ["regions", "list", "--json"], ["replication", "status"]])
def test_no_problem_of_an_older_service_steers_a_terminal(run, a, command):
    a.status = {"regions": [region_status("b", problem="x\x1b]0;owned\x07\u202ey")]}
    shown = run(*command[:2], "t", *command[2:]).output
    assert "x\N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}y" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_an_error_of_a_service_steers_no_terminal(run, a):
    a.refusals["/v1/topics"] = errors.InvalidRequestError("\x1b[2J\u202e", field="regions")
    assert error_line(run("topic", "create", "t", "--regions", "a,x")).isprintable()


def test_a_region_that_is_no_peer_is_refused_by_the_service(run):
    assert "INVALID_REQUEST: regions may name this region and its peers: region=x" in error_line(
        run("topic", "create", "u", "--regions", "a,x")
    )


@pytest.mark.parametrize(
    ("options_", "asked"),
    [
        ([], {"initial_position": "latest"}),
        (["--replicated"], {"initial_position": "latest", "replicate_subscription_state": True}),
        (["--not-replicated"], {"initial_position": "latest", "replicate_subscription_state": False}),
    ],
    ids=str,
)
def test_a_subscription_is_replicated_if_it_is_asked_for(run, a, options_, asked):
    lines(run("subscription", "create", "t", "s", *options_))
    assert a.changes() == [("PUT", "subscriptions/s", asked)]


def test_regions_are_listed_with_the_own_one_first(run, a):
    away = region_status("b", connected=False, lag_records=None, lag_ms=None, last_seen_at=None, problem="no answer")
    a.status = {"regions": [away, region_status("c", lag_records=7), region_status("d", suspended=True)]}
    assert [line.split("\t") for line in lines(run("regions", "list", "t"))] == [
        ["region", "state", "lag_records", "last_seen_at", "problem"],
        ["a", "here", "", "", ""],
        ["b", "away", "", "", "no answer"],
        ["c", "connected", "7", SEEN, ""],
        ["d", "suspended", "0", SEEN, ""],
    ]
    listed = json.loads(run("regions", "list", "t", "--json").stdout)
    assert listed == {"region": "a", "regions": a.status["regions"]}


def test_a_region_is_suspended_and_resumed(run, a):
    a.region.log.replication.run("t", 0)  # asks the others, and is answered
    assert lines(run("regions", "suspend", "t", "b")) == ["suspended b for t; 'fenceline regions resume t b' ends it"]
    assert [one.suspended for one in a.outside.replication("t").regions] == [True, False]
    assert lines(run("regions", "resume", "t", "b")) == ["resumed b for t state=connected"]
    assert [one.suspended for one in a.outside.replication("t").regions] == [False, False]
    suspended = json.loads(run("regions", "suspend", "t", "b", "--json").stdout)
    assert suspended == asdict(a.outside.replication("t").regions[0])
    assert suspended["suspended"]
    paths = [path for _, path, _ in a.changes()]
    assert paths == [f"replication/regions/b/{what}" for what in ("suspend", "resume", "suspend")]

    assert "INVALID_REQUEST: this is the region that was asked" in error_line(run("regions", "suspend", "t", "a"))


@pytest.fixture
def busy(a):
    """Region a lacks records of b, has a gap, snapshots, and one under way."""
    a.status = {
        "regions": [region_status("b", lag_records=20, lag_ms=1500, problem="gap", answered_at=NOW_MS)],
        "gaps": [GAP],
        "skipped_records": 3,
        "snapshots": [
            snapshot(1, 90, {"b": 70}, final=False),
            snapshot(0, 8, {"b": 5, "c": 6}, snapshot_id="old"),
            snapshot(0, 10, {"c": 8, "b": 7}),
        ],
        "pending": [{"snapshot_id": "next", "partition": 0, "started_at": NOW_MS, "waiting_for": ["b", "c"]}],
    }
    return a.status


def test_a_status_shows_lag_problems_gaps_and_the_newest_snapshots(run, busy):
    assert [line.split("\t") for line in lines(run("replication", "status", "t"))] == [
        ["region", "a"],
        ["skipped_records", "3"],
        list(replication.REGION_COLUMNS),
        ["b", "true", "false", "20", "1500", SEEN, SEEN, "gap"],
        [*replication.GAP_COLUMNS, "command"],
        ["1", "b", "30", "42", "12", "fenceline replication skip t -p 1 --from b --to 42"],
        list(replication.SNAPSHOT_COLUMNS),
        ["0", "snap", "10", "b:7 c:8", SEEN, "true"],
        ["1", "snap", "90", "b:70", SEEN, "false"],
        list(replication.PENDING_COLUMNS),
        ["0", "next", SEEN, "b c"],
    ]
    assert json.loads(run("replication", "status", "t", "--json").stdout) == {"region": "a", **busy}


@pytest.fixture
def three_looks(a, runtime, monkeypatch):
    """Ctrl-C ends the third pause; the second look finds no answer."""
    pauses = iter([lambda: setattr(a, "is_down", True), lambda: setattr(a, "is_down", False), None])
    slept = runtime.sleep_ms

    def sleep_ms(duration_ms):
        slept(duration_ms)
        if duration_ms == 1_000:
            act = next(pauses)
            if act is None:
                raise KeyboardInterrupt
            act()

    monkeypatch.setattr(runtime, "sleep_ms", sleep_ms)


def test_a_watch_prints_a_line_for_each_region_until_ctrl_c_and_outlasts_a_silence(run, busy, three_looks):
    result = run("replication", "status", "t", "--watch")
    assert result.exit_code == 130
    header, *rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert header == list(replication.WATCH_COLUMNS)
    assert [row[1:] for row in rows] == 2 * [["b", "true", "false", "20", "1500", "gap"]]
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("warning: STORE_UNAVAILABLE")


def test_a_watch_of_json_is_an_object_a_line(run, busy, three_looks):
    result = run("replication", "status", "t", "--watch", "--json")
    assert result.exit_code == 130
    assert [json.loads(line)["region"] for line in result.stdout.splitlines()] == ["a", "a", "a"]


def test_a_watch_needs_one_answer_to_begin(run, a):
    a.is_down = True
    assert "STORE_UNAVAILABLE" in error_line(run("replication", "status", "t", "--watch"), exit_code=3)


def test_a_terminal_shows_what_a_look_found_and_that_it_is_old(busy):
    from rich.console import Console

    from fenceline.client.types import replication_of

    found = replication_of([{"region": "a", **busy, "has_more": False}])
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(replication.drawn("t", found, "STORE_UNAVAILABLE: away", width=80))
    shown = [line.strip() for line in console.export_text().splitlines()]
    assert shown[:2] == ["t in region a   skipped records: 3", "no newer answer: STORE_UNAVAILABLE: away"]
    assert "│ b      │ connected │             20 │     1,500 │ 22:13:20Z │" in shown
    assert "│         0 │ snap │          10 │ b:7 c:8 │ 22:13:20Z │ true  │" in shown
    assert "│         0 │ next │ 22:13:20Z │ b c         │" in shown
    assert shown[-2:] == ["b: gap", "fenceline replication skip t -p 1 --from b --to 42"]


def test_a_narrow_terminal_shows_the_same_without_a_broken_word(run, busy, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "44")
    with pytest.raises(SystemExit, match="0"):
        app(["replication", "status", "t"])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "│" not in shown
    assert max(map(len, shown.splitlines())) <= 44
    words = " ".join(shown.split())
    for some in ("region b, state connected", "lag in ms 1500", "from_offset 30, to_offset 42", "offsets b:7 c:8"):
        assert some in words


def test_a_terminal_that_cannot_be_redrawn_gets_a_line_for_each_region(run, a, busy, three_looks, monkeypatch):
    monkeypatch.setattr(replication, "sys", Mock(stdout=Mock(isatty=lambda: True)))
    monkeypatch.setenv("TERM", "dumb")
    header, *_ = run("replication", "status", "t", "--watch").stdout.splitlines()
    assert header.split("\t") == list(replication.WATCH_COLUMNS)


def test_a_snapshot_is_started(run, a):
    a.scripts["startSnapshot"] = answers(snapshot_id="snap")
    assert lines(run("replication", "snapshot", "t")) == ["started a snapshot of t snapshot_id=snap"]
    assert json.loads(run("replication", "snapshot", "t", "--json").stdout) == {"snapshot_id": "snap", "topic": "t"}
    a.refusals["/v1/topics/t/replication/snapshots"] = errors.InvalidRequestError("the topic is in one region")
    assert "INVALID_REQUEST" in error_line(run("replication", "snapshot", "t"))


SKIP = ("replication", "skip", "t", "-p", 1, "--from", "b", "--to", 42)


@pytest.fixture
def skips(a):
    """A skip gives up 12 records."""
    a.scripts["skipGap"] = answers(skipped_records=12)


def test_a_gap_is_given_up_after_a_question_that_says_how_many(run, a, busy, skips, monkeypatch):
    assert "gives up 12 records of b in t/1 for good; say --yes" in error_line(run(*SKIP))
    monkeypatch.setattr(options, "can_answer", lambda: True)
    declined = run(*SKIP, typed="n\n")
    assert declined.exit_code == 1
    assert "Give up 12 records of b in t/1, up to its offset 42?" in declined.stderr
    assert a.changes() == []

    agreed = run(*SKIP, typed="y\n")
    assert agreed.stdout.splitlines()[1:] == ["skipped 12 records of b in t/1 to_offset=42"]
    assert a.changes() == [("POST", "partitions/1/replication/skip", {"region": "b", "to_offset": 42})]
    answer = json.loads(run(*SKIP, "--yes", "--json").stdout)
    assert answer == {"topic": "t", "partition": 1, "region": "b", "skipped_records": 12}


def test_a_batch_that_is_refused_is_given_up_after_a_question(run, a, busy, skips, monkeypatch):
    problem = "a batch of the source is refused, and so on: from=40 to=44 reason=deltas partition=0"
    a.status["regions"][0]["problem"] = problem
    monkeypatch.setattr(options, "can_answer", lambda: True)
    skip = ("replication", "skip", "t", "-p", 0, "--from", "b", "--to")
    assert "t/0 has no gap of b" in error_line(run(*skip, 43))
    a.status["regions"][0]["problem"] = problem.replace("partition=0", "partition=01")  # of another one
    assert "t/0 has no gap of b" in error_line(run(*skip, 44))
    a.status["regions"][0]["problem"] = problem
    agreed = run(*skip, 44, typed="y\n")
    assert "Give up the batch that is refused of b in t/0, up to its offset 44?" in agreed.stderr
    assert a.changes() == [("POST", "partitions/0/replication/skip", {"region": "b", "to_offset": 44})]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"-p": 0}, "t/0 has no gap of b; 'fenceline replication status t' shows"),
        ({"--from": "c"}, "t/1 has no gap of c"),
        ({"--to": 41}, "ends at offset 42; give that as --to"),
    ],
    ids=str,
)
def test_an_invalid_gap_is_not_skipped(run, a, busy, changed, expected):
    given = {"-p": 1, "--from": "b", "--to": 42, **changed}
    assert expected in error_line(run("replication", "skip", "t", *[one for pair in given.items() for one in pair]))
    assert a.changes() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("replication", "skip", "t", "-p", 1, "--from", "b"),
        ("replication", "skip", "t", "-p", -1, "--from", "b", "--to", 1),
        ("replication", "skip", "t", "-p", 0, "--from", "b", "--to", "x"),
        ("regions", "suspend", "t"),
        ("replication", "status"),
    ],
    ids=str,
)
def test_a_misused_command_asks_nothing(run, a, arguments):
    assert "--help')" in error_line(run(*arguments), exit_code=2)
    assert a.sent == []
