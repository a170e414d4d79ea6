"""``fenceline group`` and ``consume --group`` against a server."""

import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from fenceline.model.group import GroupMember, HeldPartition, HeldTopic
from fenceline.model.record import Record
from fenceline_cli.commands.groups.command import _refuse_members
from fenceline_cli.commands.groups.rows import lease, partition_rows, tell_lapsed, tell_skew
from fenceline_cli.output import CommandError
from tests.support.patience import wait_until
from tests.support.results import error_line, lines

pytestmark = pytest.mark.slow  # a real server

NUMBERS = itertools.count()


@pytest.fixture
def topic(client):
    """Return a topic whose two partitions have three records each."""
    name = f"groups-{next(NUMBERS)}"
    client.create_topic(name, partitions=2)
    for partition in range(2):
        client.produce(name, partition, [Record(b"%d-%d" % (partition, n)) for n in range(3)])
    return name


@pytest.fixture
def group():
    return f"group-{next(NUMBERS)}"


def join(client, group, topic, member_id="m-1", **more):
    return client.group_heartbeat(group, member_id, 0, topics=[topic], initial_position="earliest", **more)


def test_a_member_prints_its_share_commits_it_and_leaves(run, client, topic, group):
    done = run("consume", topic, "--group", group, "--from", "earliest", "--no-follow")

    assert sorted(done.stdout.split()) == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    assert f"this member of {group} has {topic}/0,1" in done.stderr
    assert {one.partition: one.offset for one in client.committed_offsets(group)} == {0: 3, 1: 3}
    assert client.group(group).group.state == "Empty"
    assert run("consume", topic, "--group", group, "--no-follow").stdout == ""


def test_a_bounded_print_commits_what_was_printed_and_no_more(run, client, topic, group):
    assert len(lines(run("consume", topic, "--group", group, "--from", "earliest", "--max", 2))) == 2
    assert sum(one.offset for one in client.committed_offsets(group)) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_leave_the_group(url, client, topic, group, number, code):
    command = [sys.executable, "-m", "fenceline_cli.main", "consume", topic, "--group", group, "--from", "earliest"]
    environment = {**os.environ, "FENCELINE_URL": url, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(6)]  # it waits for more
    process.send_signal(number)
    process.communicate(timeout=60)

    assert process.returncode == code
    assert len(set(printed)) == 6
    assert client.group(group).members == []
    # A page that was interrupted before the next one was asked for comes again.
    assert sum(one.offset for one in client.committed_offsets(group)) in (3, 6)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--partition", "0"], "leave out --partition and --compacted"),
        (["--compacted"], "leave out --partition and --compacted"),
        (["--grep", "x"], "leave out --until and --grep"),
        (["--until", "end"], "leave out --until and --grep"),
        (["--from", "5"], "--from takes earliest or latest with --group"),
        (["--subscription", "s"], "a subscription is a group already"),
    ],
)
def test_options_that_do_not_go_with_a_group_are_refused(run, client, topic, group, arguments, why):
    assert why in error_line(run("consume", topic, "--group", group, *arguments))
    assert [one.group for one in client.groups(prefix=group)] == []


def test_a_topic_that_is_not_there_is_an_error_and_nothing_to_wait_for(run, group):
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error_line(run("consume", "no-topic", "--group", group))


def test_groups_are_listed_with_state_members_and_lag(run, client, topic, group):
    join(client, group, topic)

    assert lines(run("group", "list", "--prefix", group))[1].split("\t")[:4] == [group, "native", "Stable", "1"]
    assert lines(run("group", "list", "--prefix", group, "--lag"))[1].split("\t")[-1] == "6"
    [listed] = json.loads(run("group", "list", "--prefix", group, "--lag", "--json").stdout)
    assert (listed["group"], listed["topics"], listed["lag"]) == (group, [topic], 6)
    assert lines(run("group", "list", "--prefix", group, "--state", "Empty"))[1:] == []


def test_a_group_is_shown_with_who_has_what(run, client, topic, group):
    join(client, group, topic, client_name="web-1")
    client.group_heartbeat(group, "m-2", 0, topics=[topic], client_name="web-2")
    wait_until(lambda: len(client.group(group).members[1].target) == 1 or not client.group_heartbeat(group, "m-1", 1))

    shown = lines(run("group", "show", group))
    assert shown[0].startswith(f"{group}: Reconciling, 2 members, lag 6, epoch ")
    rows = [row.split("\t") for row in shown[2:]]
    assert [row[:5] for row in rows] == [[topic, "0", "0", "3", "web-1"], [topic, "1", "0", "3", "web-1"]]
    assert sorted(row[7] for row in rows) == ["", "web-2"]
    as_json = json.loads(run("group", "show", group, "--json").stdout)
    assert (as_json["state"], as_json["lag"], len(as_json["partitions"])) == ("Reconciling", 6, 2)


def test_members_are_listed_with_their_leases(run, client, topic, group):
    join(client, group, topic, instance_id="w-1", client_name="web-1")

    [row] = [one.split("\t") for one in lines(run("group", "members", group))[1:]]
    assert row[:3] == ["m-1", "w-1", "web-1"]
    assert row[5].endswith("s left")
    assert row[6] == f"{topic}/0,1"
    [member] = json.loads(run("group", "members", group, "--json").stdout)
    assert member["session_timeout_ms"] == 45_000
    topic_id = client.topic(topic).topic_id
    parts = [{"partition": n, "since": 1, "token": 1} for n in range(2)]
    assert member["partitions"] == [{"topic": topic, "topic_id": topic_id, "partitions": parts}]
    assert member["target"] == [{"topic": topic, "topic_id": topic_id, "partitions": [0, 1]}]
    assert member["asked"] == []


def test_a_view_is_shown_again_each_second(url, client, topic, group):
    join(client, group, topic)
    command = [sys.executable, "-m", "fenceline_cli.main", "group", "show", group, "--watch"]
    environment = {**os.environ, "FENCELINE_URL": url, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    heads = [line for line in (process.stdout.readline() for _ in range(8)) if line.startswith(group)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert len(heads) == 2
    assert process.returncode == 130


def test_a_group_is_reset_while_it_has_no_members(run, client, topic, group):
    join(client, group, topic)
    refused = error_line(run("group", "reset", group, topic, "--to", "latest", "--yes"))
    assert "has 1 member; stop them first" in refused
    client.leave_group(group, "m-1")

    assert [row.split("\t") for row in lines(run("group", "reset", group, topic, "--to", -1, "--dry-run"))[1:]] == [
        ["0", "0", "2", "2", "0"],
        ["1", "0", "2", "2", "0"],
    ]
    asked = error_line(run("group", "reset", group, topic, "--to", "latest"))
    assert f"{group} skips 6 records of {topic}, and gets 0 again" in asked
    assert client.committed_offsets(group) == []
    moved = run("group", "reset", group, topic, "--to", "latest", "--partition", 1, "--yes")
    assert lines(moved)[-1] == f"reset {group} on {topic}/1 offset=3"
    assert json.loads(run("group", "reset", group, topic, "--to", 1, "--yes", "--json").stdout) == [
        {"partition": 0, "offset": 1},
        {"partition": 1, "offset": 1},
    ]


def test_a_reset_of_what_is_not_there_says_so(run, topic, group):
    assert "has never read" in error_line(run("group", "reset", group, topic, "--to", "latest", "--yes"))
    run("subscription", "create", topic, group)
    wrong = run("group", "reset", group, topic, "--to", "latest", "--partition", 9, "--yes")
    assert "it has 0 to 1" in error_line(wrong)
    assert "WHERE" not in error_line(run("group", "reset", group, topic, "--to", "nowhere"))


def test_a_member_is_removed_after_a_question(run, client, topic, group):
    join(client, group, topic)
    assert "its 2 partitions go to others" in error_line(run("group", "remove", group, "m-1"))
    assert "has no such member" in error_line(run("group", "remove", group, "m-2", "--yes"))
    assert len(client.group(group).members) == 1

    assert lines(run("group", "remove", group, "m-1", "--yes")) == [f"removed m-1 from {group}"]
    assert client.group(group).members == []


def test_a_group_is_deleted_with_its_offsets_after_a_question(run, client, topic, group):
    join(client, group, topic)
    assert "stop them first" in error_line(run("group", "delete", group, "--yes"))
    client.leave_group(group, "m-1")
    client.seek(topic, group, 0, offset=1)
    assert f"deletes the group's offsets on {topic} for good" in error_line(run("group", "delete", group))

    assert lines(run("group", "delete", group, "--yes")) == [f"deleted {group}"]
    assert client.committed_offsets(group) == []
    assert "GROUP_ID_NOT_FOUND" in error_line(run("group", "show", group))
    assert "GROUP_ID_NOT_FOUND" in error_line(run("group", "delete", group, "--yes"))


class Group:
    """A client whose group has these members."""

    def __init__(self, *expires_at):
        self.members = [member(member_id=f"m-{n}", expires_at=at) for n, at in enumerate(expires_at)]

    def group(self, name):
        return self


@pytest.mark.parametrize("expires_at", [[], [3_999], [3_999, 1_000]])
def test_members_whose_leases_are_over_are_not_in_the_way(monkeypatch, expires_at):
    monkeypatch.setattr("fenceline_cli.commands.groups.command.clock_ms", lambda: 5_000)
    assert refusal_of(Group(*expires_at)) is None


def refusal_of(group):
    try:
        _refuse_members(group, "g")
    except CommandError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(("expires_at", "count"), [([4_000], "1 member;"), ([6_000, 1_000], "2 members;")])
def test_one_live_member_is_in_the_way(monkeypatch, expires_at, count):
    monkeypatch.setattr("fenceline_cli.commands.groups.command.clock_ms", lambda: 5_000)
    assert refusal_of(Group(*expires_at)).startswith(f"the group g has {count} stop them first")


def test_a_lease_that_is_over_is_told_with_who_removes_the_member(capsys):
    found = [member(member_id="a", client_name="web-1", expires_at=2_000), member(expires_at=4_500), member()]
    tell_lapsed("g", found, 5_000)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("the lease of web-1 is over for 3s: the next heartbeat of another member removes it")
    assert line.endswith("'fenceline group remove g a'")


def member(**more):
    given = {
        "member_id": "m",
        "instance_id": None,
        "client_name": None,
        "client_host": None,
        "member_epoch": 1,
        "expires_at": 50_000,
        "session_timeout_ms": 45_000,
        "is_away": False,
        "partitions": [],
        "asked": [],
        "target": [],
    }
    return GroupMember(**{**given, **more})


def test_a_lease_beyond_now_and_its_time_out_names_the_clock(capsys):
    tell_skew([member(member_id="a"), member(member_id="b", expires_at=3_650_000)], 5_000)
    assert capsys.readouterr().err.startswith("a clock is wrong: the lease of b ends 3600s later than now")


@pytest.mark.parametrize(
    ("more", "shown"),
    [({}, "45s left"), ({"is_away": True}, "away, 45s left"), ({"expires_at": 3_000}, "over for 2s")],
)
def test_a_lease_is_shown_by_what_is_left_of_it(more, shown):
    assert lease(member(**more), 5_000) == shown


def test_a_partition_that_nobody_has_is_shown_with_its_lag():
    held = [HeldTopic("t", "id", [HeldPartition(1, 4, 7)])]
    rows = partition_rows([member(partitions=held)], {("t", 0): (0, 5), ("t", 1): (8, 2)})
    assert rows == [["t", 0, 0, 5, None, None, None, None], ["t", 1, 8, 2, "m", 4, 7, None]]
