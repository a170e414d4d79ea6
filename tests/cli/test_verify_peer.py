"""``fenceline verify --peer``: which topics and partitions of two regions it compares, and what it prints."""

import json
import sys

import pytest
from typer.testing import CliRunner

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.format import control
from fenceline.format.region_markers import Skip
from fenceline.model.requests import ReadRequest
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli import options
from fenceline_cli.commands.recovery import peer as verify_peer
from fenceline_cli.main import app
from tests.cli.fake_regions import connecting, record, world
from tests.support.results import error_line, last_line, lines
from tests.support.runtime import AheadRuntime
from tests.support.service import request

PEER = ("--peer", "b=http://b")


@pytest.fixture
def regions():
    """The records of a are in both regions, in partition 0; b lacks none, and has four of c's."""
    regions = world("a", "b")
    own = [record(offset, "a", offset + 1) for offset in range(7)]
    regions["a"].logs = {0: own}
    regions["b"].logs = {0: [*(record(offset, "c", offset + 1) for offset in range(4)), *_moved(own, 4)]}
    return regions


def _moved(records, by):
    return [{**one, "offset": one["offset"] + by} for one in records]


@pytest.fixture
def run(regions, monkeypatch):
    """Return a function that runs a command against region a."""
    monkeypatch.setattr(options, "Client", connecting(regions, AheadRuntime()), raising=False)
    monkeypatch.setenv("FENCELINE_URL", "http://a")
    monkeypatch.setattr(
        verify_peer, "fetched", lambda url: regions[url.split("/")[2]].objects["/" + url.split("/", 3)[3]]
    )
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)])


def test_equal_regions_are_told_origin_by_origin(run):
    assert [line.split("\t") for line in lines(run("verify", "t", *PEER))] == [
        list(verify_peer.COLUMNS),
        ["t", "0", "a", "id-a", "1", "7", "7", "equal"],
        ["t", "0", "c", "id-c", "", "", "0", "not compared: a keeps none of them"],
    ]


def test_a_terminal_shows_each_row_in_one_line_and_what_is_wrong_after_the_table(run, regions, monkeypatch, capsys):
    for one in (*regions["a"].logs[0], *regions["b"].logs[0]):
        one["origin_topic_id"] = "0123456789abcdef0123456789abcdef"
    regions["b"].logs[0][8]["timestamp"] = 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
    with pytest.raises(SystemExit, match="1"):
        app(["verify", "t", *PEER])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 4 + 2 + 2
    assert shown[1].replace("┃", " ").split() == list(verify_peer.TERMINAL_COLUMNS)
    assert shown[3].replace("│", " ").split() == ["t", "0", "a", "01234567", "1-7", "4", "DIFFERS"]
    assert shown[-2] == "t/0 a DIFFERS: number 5 differs: offset 4 in a, offset 8 in b"


def test_all_topics_that_name_the_peer_are_compared(run, regions):
    assert len(lines(run("verify", *PEER))) == 3
    regions["a"].regions = ("a", "c")
    assert lines(run("verify", *PEER)) == ["\t".join(verify_peer.COLUMNS)]


@pytest.mark.parametrize(("change", "expected"), [
    ({"value": b"other"}, "DIFFERS: number 5 differs: offset 4 in a, offset 8 in b"),
    (None, "DIFFERS: b lacks number 5, which is in a at offset 4"),
], ids=["another value", "lacking"])  # fmt: skip
def test_the_first_number_that_differs_is_told_and_the_exit_code_is_1(run, regions, change, expected):
    log = regions["b"].logs[0]
    if change is None:
        del log[8]
    else:
        log[8] = record(8, "a", 5, **change)
    result = run("verify", "t", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split("\t")[5:] == ["7", "4", expected]
    (row, _) = json.loads(run("verify", "t", *PEER, "--json").stdout)
    assert (row["differs_at"], row["records"], row["origin"], row["partition"]) == (5, 4, "a", 0)
    assert row["problem"] == expected.removeprefix("DIFFERS: ")


def test_what_was_given_up_is_found_in_its_marker(run, regions):
    """Region c's records are in both; b gave two of them up."""
    regions["a"].logs = {0: [record(offset, "c", offset + 1) for offset in range(9)]}
    b = regions["b"]
    b.logs = {0: [*(record(n, "c", n + 1) for n in range(3)), *(record(n + 4, "c", n + 6) for n in range(4))]}
    skip = Skip("c", "id-c", 3, 5, 2).to_value()
    b.objects = {"/objects/3": control.encode_marker(control.SKIP, skip, base_offset=3, leader_epoch=-1, now_ms=1)}
    shape = {"bytes": 9, "origin": "b", "aborted": []}
    b.segments = {0: [
        {"base_offset": 0, "next_offset": 3, "records": 3, "url": "/objects/0", **shape},
        {"base_offset": 3, "next_offset": 4, "records": 0, "url": "/objects/3", **shape},
        {"base_offset": 4, "next_offset": 8, "records": 4, "url": "/objects/4", **shape},
    ]}  # fmt: skip
    assert lines(run("verify", "t", *PEER))[1].split("\t")[4:] == ["1", "9", "7", "equal"]


def test_partitions_that_one_region_lacks_are_named(run, regions):
    regions["b"].partitions = 1
    assert lines(run("verify", "t", *PEER))[-1].split("\t")[1] == "1"
    assert lines(run("verify", "t", *PEER))[-1].endswith("not compared: b has no such partition")
    regions["b"].partitions = 3
    assert lines(run("verify", "t", *PEER))[-1].endswith("not compared: a has no such partition")


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_a_partition_with_records_that_one_region_lacks_is_a_difference(run, regions, lacking):
    regions[lacking].partitions = 1
    having = regions["b" if lacking == "a" else "a"]
    assert run("verify", "t", *PEER).exit_code == 0
    having.logs[1] = [record(0, having.name, 1)]
    result = run("verify", "t", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith(f"DIFFERS: {lacking} has no such partition")


@pytest.mark.parametrize(("lacking", "having"), [("a", "b"), ("b", "a")])
def test_a_link_that_stopped_at_a_gap_is_a_difference(run, regions, lacking, having):
    regions[lacking].logs = {0: [record(offset, having, offset + 1) for offset in range(2)]}
    regions[having].logs, regions[having].log_starts = {0: [record(10, having, 11)]}, {0: 10}
    result = run("verify", "t", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].endswith(
        f"no record in common: {lacking} lacks number 11, which {having} keeps"
    )


def test_what_a_region_never_took_is_a_difference_and_what_it_trimmed_is_none(run, regions):
    regions["a"].logs, regions["b"].logs = {}, {0: [record(0, "b", 1)]}
    assert run("verify", "t", *PEER).exit_code == 1
    regions["a"].log_starts = {0: 4}
    assert lines(run("verify", "t", *PEER))[1].endswith("not compared: a keeps none of them")


def test_a_topic_that_the_peer_lacks_is_a_difference(run, regions):
    regions["b"].missing = True
    assert "b has no topic t; create it there with --regions" in error_line(run("verify", "t", *PEER))
    result = run("verify", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split("\t")[-1] == "DIFFERS: b has no such topic"
    assert json.loads(run("verify", *PEER, "--json").stdout)[0]["problem"] == "b has no such topic"


def test_a_topic_that_only_the_peer_has_is_a_difference(run, regions):
    regions["a"].missing = True
    result = run("verify", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split("\t")[-1] == "DIFFERS: a has no such topic"


@pytest.mark.parametrize(
    ("arguments", "expected", "exit_code"),
    [
        (("--peer", "b"), "takes REGION=URL", 2),
        (("--peer", "c=http://b"), "region b, not c; give --peer b=http://b", 2),
        (("--peer", "a=http://a"), "both services are region a; give the URL of another region", 2),
        (("none", *PEER), "UNKNOWN_TOPIC_OR_PARTITION", 1),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(run, arguments, expected, exit_code):
    assert expected in error_line(run("verify", *arguments), exit_code=exit_code)


def test_a_topic_of_other_regions_is_not_compared(run, regions):
    regions["a"].regions = ("a", "c")
    assert "topic t is not connected with b" in error_line(run("verify", "t", *PEER))


def test_a_service_of_before_regions_is_named(run, regions):
    for one in regions["b"].logs[0]:
        del one["number"]
    assert "the service of b knows no numbers of records; upgrade it first" in last_line(run("verify", "t", *PEER))


def test_the_own_region_is_read_from_its_stores(run, regions, tmp_path):
    objects, items = open_directory(str(tmp_path), now_ms=ThreadRuntime().now_ms)
    log = Log(objects, items, ThreadRuntime(), region="local")
    object.__setattr__(log.context, "peers", frozenset({"b"}))
    topic_id = log.topics.create("t", regions=["local", "b"]).topic_id
    log.append("t", 0, request("x", "y", "z"))
    stored = log.partitions.read("t", 0, ReadRequest(offset=0)).records
    log.close()
    objects.close()
    items.close()
    copies = [record(9 + n, "local", n + 1, value=one.value, timestamp=one.timestamp) for n, one in enumerate(stored)]
    regions["b"].logs = {0: [{**one, "origin_topic_id": topic_id} for one in copies]}
    regions["b"].log_starts = {0: 9}
    regions["b"].partitions = 1

    equal = lines(run("verify", "--data", tmp_path, *PEER))
    assert equal[1].split("\t") == ["t", "0", "local", topic_id, "1", "3", "3", "equal"]
    regions["b"].logs[0][1]["timestamp"] = 1
    assert run("verify", "--data", tmp_path, *PEER).exit_code == 1


def test_a_peer_that_does_not_answer_is_named_with_its_option(run, regions):
    regions["b"].is_down = True
    told = error_line(run("verify", "t", *PEER), exit_code=3)
    assert told.startswith("STORE_UNAVAILABLE: region b: ")
    assert told.endswith("(start the server of region b, or name another with --peer b=URL)")
