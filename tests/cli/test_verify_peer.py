"""``fenceline verify --peer``: which topics and partitions of two regions it compares, and what it prints."""

import json
import sys
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli import options
from fenceline_cli.commands.recovery import peer as verify_peer
from fenceline_cli.main import app
from tests.support.regions import WatchedPeer, with_peers
from tests.support.results import error_line, last_line, lines
from tests.support.runtime import AheadRuntime
from tests.support.served_regions import connecting, world
from tests.support.service import request

PEER = ("--peer", "b=http://b")


@pytest.fixture
def empty():
    """Regions a and b, whose topic names a third one, too. Nothing was written."""
    with world("a", "b", "c", serves="ab") as regions:
        yield regions


@pytest.fixture
def regions(empty):
    """The records of a are in both regions, in partition 0; b lacks none, and has four of c's, which come first."""
    a, b = (one.region for one in empty.values())
    b.peers["c"].log.append("t", 0, request(*"wxyz"))
    b.pull("t")
    a.append(*"abcdefg", topic="t")
    b.pull("t")
    return empty


def topic_id(regions, name):
    """Return the topic's id in a region, served or not."""
    return regions["b"].region.peers[name].log.topics.get("t").topic_id


@pytest.fixture
def run(empty, monkeypatch):
    """Return a function that runs a command against region a."""
    monkeypatch.setattr(options, "Client", connecting(empty, AheadRuntime()), raising=False)
    monkeypatch.setenv("FENCELINE_URL", "http://a")

    def fetched(url):
        parts = urlsplit(url)
        return empty[parts.hostname].service.objects.get(unquote(parts.path.removeprefix("/objects/"))).body

    monkeypatch.setattr(verify_peer, "fetched", fetched)
    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)])


def changed(region, offset, **members):
    """Let a region answer with another record at this offset; without members, with none."""

    def change(page):
        page["records"] = [
            {**one, **members} if one["offset"] == offset else one
            for one in page["records"]
            if members or one["offset"] != offset
        ]

    region.change_pages(change)


def test_equal_regions_are_listed_origin_by_origin(run, regions):
    assert [line.split("\t") for line in lines(run("verify", "t", *PEER))] == [
        list(verify_peer.COLUMNS),
        ["t", "0", "a", topic_id(regions, "a"), "1", "7", "7", "equal"],
        ["t", "0", "c", topic_id(regions, "c"), "", "", "0", "not compared: a keeps none of them"],
    ]


def test_a_terminal_shows_each_row_in_one_line_and_what_is_wrong_after_the_table(run, regions, monkeypatch, capsys):
    changed(regions["b"], 8, timestamp=1)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
    with pytest.raises(SystemExit, match="1"):
        app(["verify", "t", *PEER])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 4 + 2 + 2
    short = topic_id(regions, "a")[:8]
    assert shown[1].replace("┃", " ").split() == list(verify_peer.TERMINAL_COLUMNS)
    assert shown[3].replace("│", " ").split() == ["t", "0", "a", short, "1-7", "4", "DIFFERS"]
    assert shown[-2] == "t/0 a DIFFERS: number 5 differs: offset 4 in a, offset 8 in b"


def test_all_topics_that_name_the_peer_are_compared(run, regions):
    assert len(lines(run("verify", *PEER))) == 3
    regions["a"].outside.alter_topic("t", regions=["a", "c"])
    assert lines(run("verify", *PEER)) == ["\t".join(verify_peer.COLUMNS)]


@pytest.mark.parametrize(("change", "expected"), [
    ({"value": "b3RoZXI="}, "DIFFERS: number 5 differs: offset 4 in a, offset 8 in b"),
    ({}, "DIFFERS: b lacks number 5, which is in a at offset 4"),
], ids=["another value", "lacking"])  # fmt: skip
def test_the_first_difference_is_printed_and_the_exit_code_is_1(run, regions, change, expected):
    changed(regions["b"], 8, **change)
    result = run("verify", "t", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split("\t")[5:] == ["7", "4", expected]
    (row, _) = json.loads(run("verify", "t", *PEER, "--json").stdout)
    assert (row["differs_at"], row["records"], row["origin"], row["partition"]) == (5, 4, "a", 0)
    assert row["problem"] == expected.removeprefix("DIFFERS: ")


def test_skipped_records_are_found_in_their_marker(run, empty):
    """Region c's records are in both; b gave two of them up, which c had trimmed before b took them."""
    a, b = (one.region for one in empty.values())
    c = b.peers["c"].log
    c.append("t", 0, request("u", "v", "w"))
    b.pull("t")
    c.append("t", 0, request("x", "y"))
    a.pull("t")
    c.partitions.trim("t", 0, 5)
    c.append("t", 0, request("1", "2", "3", "4"))
    b.pull("t")
    assert [gap.to_offset for gap in empty["b"].outside.replication("t").gaps] == [5]
    empty["b"].outside.skip("t", 0, "c", 5)
    for region in (b, a):
        region.pull("t")
    (row,) = [line.split("\t") for line in lines(run("verify", "t", *PEER))[1:] if "\tc\t" in line]
    assert row[4:] == ["1", "9", "7", "equal"]


def test_partitions_that_one_region_lacks_are_named(run, regions):
    regions["a"].grow(3)
    assert lines(run("verify", "t", *PEER))[-1].split("\t")[1] == "2"
    assert lines(run("verify", "t", *PEER))[-1].endswith("not compared: b has no such partition")
    regions["b"].grow(4)
    assert lines(run("verify", "t", *PEER))[-1].endswith("not compared: a has no such partition")


@pytest.mark.parametrize("lacking", ["a", "b"])
def test_a_partition_with_records_that_one_region_lacks_is_a_difference(run, regions, lacking):
    having = regions["b" if lacking == "a" else "a"]
    having.grow(3)
    assert run("verify", "t", *PEER).exit_code == 0
    having.fill(b"a record", partition=2)
    result = run("verify", "t", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith(f"DIFFERS: {lacking} has no such partition")


@pytest.mark.parametrize(("lacking", "having"), [("a", "b"), ("b", "a")])
def test_a_link_that_stopped_at_a_gap_is_a_difference(run, empty, lacking, having):
    empty[having].region.append("1", "2", topic="t")
    empty[lacking].region.pull("t")
    empty[having].region.append(*"3456789x", topic="t")
    empty[having].outside.trim("t", 0, 10)
    empty[having].region.append("11", topic="t")
    result = run("verify", "t", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].endswith(
        f"no record in common: {lacking} lacks number 11, which {having} keeps"
    )


def test_missing_records_differ_and_trimmed_ones_do_not(run, empty):
    a, b = (one.region for one in empty.values())
    b.append("1", topic="t")
    assert run("verify", "t", *PEER).exit_code == 1
    a.pull("t")
    a.log.partitions.trim("t", 0, empty["a"].outside.offsets("t", 0).next_offset)
    assert lines(run("verify", "t", *PEER))[1].endswith("not compared: a keeps none of them")


def test_a_topic_that_the_peer_lacks_is_a_difference(run, regions):
    regions["b"].outside.delete_topic("t")
    assert "b has no topic t; create it there with --regions" in error_line(run("verify", "t", *PEER))
    result = run("verify", *PEER)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split("\t")[-1] == "DIFFERS: b has no such topic"
    assert json.loads(run("verify", *PEER, "--json").stdout)[0]["problem"] == "b has no such topic"


def test_a_topic_that_only_the_peer_has_is_a_difference(run, regions):
    regions["a"].outside.delete_topic("t")
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
def test_a_comparison_that_cannot_run_is_reported_in_one_line(run, regions, arguments, expected, exit_code):
    assert expected in error_line(run("verify", *arguments), exit_code=exit_code)


def test_a_topic_of_other_regions_is_not_compared(run, regions):
    regions["a"].outside.alter_topic("t", regions=["a", "c"])
    assert "topic t is not connected with b" in error_line(run("verify", "t", *PEER))


def test_a_service_older_than_regions_is_named(run, regions):
    regions["b"].change_pages(lambda page: [one.pop("number") for one in page["records"]])
    assert "the service of b knows no numbers of records; upgrade it first" in last_line(run("verify", "t", *PEER))


def test_the_own_region_is_read_from_its_stores(run, empty, tmp_path):
    objects, items = open_directory(str(tmp_path), now_ms=ThreadRuntime().now_ms)
    log = Log(objects, items, ThreadRuntime(), region="local")
    object.__setattr__(log.context, "peers", frozenset({"b"}))
    topic_id = log.topics.create("t", regions=["local", "b"]).topic_id
    log.append("t", 0, request("x", "y", "z"))
    empty["b"].fill(*[b"older"] * 9)
    empty["b"].outside.trim("t", 0, 9)
    take_from(empty["b"].region, "local", log)
    log.close()
    objects.close()
    items.close()

    equal = lines(run("verify", "--data", tmp_path, *PEER))
    assert equal[1].split("\t") == ["t", "0", "local", topic_id, "1", "3", "3", "equal"]
    changed(empty["b"], 10, timestamp=1)
    assert run("verify", "--data", tmp_path, *PEER).exit_code == 1


def take_from(region, name, log):
    """Let a region have one more peer, whose topic it names, and take its records."""
    region.peers[name] = WatchedPeer(name, log, log.context.objects)
    with_peers(region.log, region.peers)
    region.log.topics.alter("t", regions=["b", name])
    region.replicator().run("t", 0)


def test_a_peer_that_does_not_answer_is_named_with_its_option(run, regions):
    regions["b"].is_down = True
    line = error_line(run("verify", "t", *PEER), exit_code=3)
    assert line.startswith("STORE_UNAVAILABLE: region b: ")
    assert line.endswith("(start the server of region b, or name another with --peer b=URL)")
