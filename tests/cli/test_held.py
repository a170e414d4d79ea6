"""``fenceline producers``, ``own`` and ``lock`` as processes: what they hold, how long, and how they end."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import datetime

import pytest

from fenceline.client import Client
from fenceline_cli.options import connect
from fenceline_cli.output import utc
from tests.support.patience import PATIENCE_S, wait_until, without_a_stall
from tests.support.results import error_line, hears_ctrl_c, last_line

NUMBERS = itertools.count()
COMMAND = [sys.executable, "-m", "fenceline_cli.main"]


@pytest.fixture
def resource():
    return f"resource-{next(NUMBERS)}"


@pytest.fixture
def start(url):
    """Return a function that starts a command as a process; each is ended with the test."""
    processes = []

    def start(*arguments):
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env={**os.environ, "FENCELINE_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hears_ctrl_c,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def is_gone(pid):
    """Return True if a process has ended, also if its parent has not waited for it yet."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_a_claim_is_listed_while_it_is_held_and_given_back_at_ctrl_c(start, run, topic):
    process = start("producers", "claim", topic, "--partition", 1, "--name", "mine")
    granted = process.stdout.readline()
    assert granted.startswith(f"granted {topic} topic_epochs=1:0 next_offsets=1:1 producer_name=mine session_id=")

    (listed,) = json.loads(run("producers", "list", topic, "--json").stdout)
    assert (listed["producer_name"], listed["state"], listed["topic_epochs"]) == ("mine", "granted", {"1": 0})
    row = run("producers", "list", topic).stdout.splitlines()[1].split("\t")
    assert row[:6] == ["mine", "Exclusive", "granted", "", "1:0", "1:1"]
    assert "PRODUCER_FENCED" in last_line(run("producers", "claim", topic, "--partition", 1))

    process.send_signal(signal.SIGINT)
    assert (*process.communicate(timeout=PATIENCE_S), process.returncode) == ("", "", 130)
    assert json.loads(run("producers", "list", topic, "--json").stdout) == []


@pytest.mark.slow
def test_a_waiting_claim_prints_its_queue_position_and_is_granted_next(start, client, topic):
    with client.producer(topic, access_mode="Exclusive"):
        process = start("producers", "claim", topic, "--mode", "WaitForExclusive", "--partition", 0)
        assert process.stderr.readline() == f"waiting for {topic}: queue_position=0\n"
    assert process.stdout.readline().startswith(f"granted {topic} topic_epochs=0:1 ")
    process.terminate()
    assert process.wait(timeout=PATIENCE_S) == 143
    assert client.producers(topic).granted == []


@pytest.mark.slow
def test_a_claim_that_is_fenced_ends_with_one_line(start, client, topic):
    process = start("producers", "claim", topic, "--lease", 9)
    assert process.stdout.readline().startswith("granted")
    with client.producer(topic, access_mode="ExclusiveWithFencing"):
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err.startswith("error: PRODUCER_FENCED: ")
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_resources_are_owned_shown_and_given_back(start, run, topic, resource):
    process = start("own", f"{topic}/0", resource, "--group", "g", "--generation", 7)
    assert process.stdout.readline().startswith(f"owned {topic}/0 generation=7 fencing_token=")
    assert process.stdout.readline().startswith(f"owned {resource} generation=7 fencing_token=")

    shown = json.loads(run("own", resource, "--group", "g", "--show", "--json").stdout)[0]
    assert (shown["generation"], shown["group"]) == (7, "g")
    assert shown["session_id"]
    assert "RESOURCE_OWNED" in last_line(run("own", resource, "--group", "g"))
    assert "STALE_GENERATION" in last_line(run("own", resource, "--group", "g", "--generation", 6))

    process.terminate()
    assert process.wait(timeout=PATIENCE_S) == 143
    row = run("own", resource, "--group", "g", "--show").stdout.splitlines()[1].split("\t")
    assert row[:3] == [resource, "g", "7"]
    assert row[-1] == ""


@pytest.mark.slow
def test_an_owner_who_is_severed_ends_with_one_line(start, client, resource):
    process = start("own", resource, "--lease", 9)
    assert process.stdout.readline().startswith("owned")
    with client.own(resource, generation=9):
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err.startswith("error: SESSION_SEVERED: ")
    assert len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("script", "exit_code"), [("exit 7", 7), ("true", 0), ("kill -9 $$", 137)])
def test_a_locked_command_passes_on_its_exit_code_and_frees_the_lock(run, client, resource, script, exit_code):
    assert run("lock", resource, "--", "sh", "-c", script).exit_code == exit_code
    assert client.ownership(resource).session_id is None


@pytest.mark.slow
def test_a_locked_command_knows_its_lock_and_gets_its_own_options(start, client, resource):
    process = start("lock", resource, "--generation", 4, "--", "printenv", "--null", "FENCELINE_RESOURCE")
    assert process.communicate(timeout=PATIENCE_S) == (f"{resource}\0", "")
    process = start("lock", resource, "--", "sh", "-c", "echo $FENCELINE_GENERATION $FENCELINE_FENCING_TOKEN")
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == f"5 {client.ownership(resource).fencing_token}\n"


@pytest.mark.slow
def test_a_command_may_take_longer_than_its_lease(start, resource):
    def attempt():
        process = start("lock", resource, "--lease", 1, "--", "sh", "-c", "sleep 2; echo done")
        assert (*process.communicate(timeout=PATIENCE_S), process.returncode) == ("done\n", "", 0)

    without_a_stall(attempt)


@pytest.mark.slow
def test_a_command_waits_for_the_lock_with_a_line_and_runs_when_it_is_free(start, client, resource):
    with client.own(resource):
        process = start("lock", resource, "--", "echo", "ran")
        assert process.stderr.readline().startswith(f"waiting for {resource}: ")
        time.sleep(0.2)
        assert process.poll() is None
    assert process.communicate(timeout=PATIENCE_S)[0] == "ran\n"
    assert process.returncode == 0


@pytest.mark.slow
def test_a_command_that_cannot_be_run_is_reported_and_frees_the_lock(start, client, resource):
    process = start("lock", resource, "--", "/no/such")
    assert process.communicate(timeout=PATIENCE_S) == (
        "",
        "error: the command /no/such cannot be run: No such file or directory\n",
    )
    assert process.returncode == 127
    assert client.ownership(resource).session_id is None


@pytest.mark.slow
def test_a_command_is_ended_with_all_it_started_when_the_lock_is_lost(start, client, resource):
    process = start("lock", resource, "--lease", 9, "--", "sh", "-c", "sleep 600 & echo $!; trap '' TERM; wait; wait")
    child = int(process.stdout.readline())
    with client.own(resource, generation=9):
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75
    assert err.startswith("error: SESSION_SEVERED: ")
    assert "the lock was lost, so the command was ended" in err
    wait_until(lambda: is_gone(child))


@pytest.mark.slow
def test_signals_reach_the_command_which_ends_as_it_likes(start, resource):
    process = start("lock", resource, "--", "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done")
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(timeout=PATIENCE_S) == 9


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_command_does_not_outlive_a_lease_that_is_not_renewed(start, client, resource, number):
    """The next holder of the lock finds the command gone."""

    def attempt():
        process = start("lock", resource, "--lease", 1, "--", "sh", "-c", "echo $$; sleep 600")
        command = int(process.stdout.readline())
        process.send_signal(number)
        try:
            with client.own(resource, wait_ms=60_000):
                assert is_gone(command)
        finally:
            process.send_signal(signal.SIGCONT)

    without_a_stall(attempt)


# Where nothing is held: what is shown, and what a refusal says


def test_producers_access_shows_each_partitions_holder_queue_and_groups(run, client, topic):
    owner = client.create_session(client_name="worker-7:311").session_id
    client.take(owner, {f"{topic}/0": None}, group="billing")
    with client.producer(topic, access_mode="Exclusive", partitions=[1], producer_name="mine") as producer:
        client.claim(topic, access_mode="WaitForExclusive", partitions=[1])
        free, held = json.loads(run("producers", "access", topic, "--json").stdout)
        rows = [line.split("\t") for line in run("producers", "access", topic).stdout.splitlines()]

        assert (free["holder"], free["owner"], free["waiting"]) == (None, None, 0)
        assert [(one["group"], one["client_name"], one["session_id"]) for one in free["group_owners"]] == [
            ("billing", "worker-7:311", owner)
        ]
        assert (held["holder"]["session_id"], held["waiting"]) == (producer.claim.session_id, 1)
        assert rows[1] == ["0", "-1", "Shared", "", "", "", "", "0", "billing"]
        expires_at, since = rows[2][6], utc(held["holder"]["since"])
        assert rows[2] == ["1", "0", "Exclusive", "mine", "", since, expires_at, "1", ""]
        assert rows[0][6:] == ["expires_at", "waiting", "groups"]


def test_producers_history_shows_who_could_write_newest_first(run, client, topic):
    for name in "abc":
        with client.producer(topic, access_mode="ExclusiveWithFencing", partitions=[1], producer_name=name) as producer:
            producer.send(value=b"1", partition=1).result()
    found = json.loads(run("producers", "access", topic, "--history", "--json").stdout)
    assert [(one["partition"], one["producer_name"], one["topic_epoch"], one["records"]) for one in found] == [
        (1, "c", 2, 1),
        (1, "b", 1, 1),
        (1, "a", 0, 1),
    ]
    header, row = (
        line.split("\t")
        for line in run("producers", "access", topic, "--history", "--partition", 1, "--limit", 1).stdout.splitlines()
    )
    assert header[:5] == ["partition", "offset", "time", "topic_epoch", "access_mode"]
    names = ["c", found[0]["client_name"] or "", found[0]["session_id"]]
    assert row == ["1", str(found[0]["offset"]), utc(found[0]["timestamp"]), "2", "Exclusive", *names, "1"]
    assert run("producers", "access", topic, "--history", "--partition", 0).stdout.count("\n") == 1
    assert "has no partition 9" in last_line(run("producers", "access", topic, "--history", "--partition", 9))
    assert "limit" in run("producers", "access", topic, "--history", "--limit", 0).stderr


def test_live_sessions_and_locks_are_listed_and_one_is_shown(run, client, topic, resource):
    with client.own([resource, f"{topic}/0"]) as owner:
        listed = json.loads(run("session", "list", "--json").stdout)
        (one,) = [one for one in listed if one["session_id"] == owner.session_id]
        state = client.session_state(owner.session_id)
        assert (one["since"], one["client_name"], one["holds"]) == (state.since, client.client_name, 2)
        rows = [line.split("\t") for line in run("session", "list").stdout.splitlines()]
        assert rows[0] == ["session_id", "client_name", "since", "expires_at", "holds"]
        assert [row[-1] for row in rows if row[0] == owner.session_id] == ["2"]

        shown = dict(line.split("\t") for line in run("session", "show", owner.session_id).stdout.splitlines())
        assert (shown["state"], shown["since"]) == ("live", utc(state.since))
        assert {resource, f"{topic}/0", "resource"} <= shown.keys()
        whole = json.loads(run("session", "show", owner.session_id, "--json").stdout)
        assert sorted(hold["resource"] for hold in whole["holds"]) == sorted([resource, f"{topic}/0"])

        locks = json.loads(run("own", "--show", "--json").stdout)
        assert [asdict(client.ownership(resource))] == [one for one in locks if one["resource"] == resource]
        assert not [one for one in locks if one["resource"] == f"{topic}/0"]
        assert resource in run("own", "--show").stdout
        assert resource not in run("own", "--show", "--group", "g").stdout
    assert resource not in run("own", "--show").stdout
    assert run("session", "show", owner.session_id).stdout.splitlines()[2] == "state\tclosed"
    assert "UNKNOWN_SESSION" in last_line(run("session", "show", "nothing"))
    assert "name a RESOURCE" in last_line(run("own"))


def test_producers_list_shows_the_holder_and_the_queue(run, client, topic):
    with client.producer(topic, access_mode="Exclusive", partitions=[1], producer_name="mine") as producer:
        waiter = client.claim(topic, access_mode="WaitForExclusive", partitions=[1], producer_name="next")
        holder, queued = json.loads(run("producers", "list", topic, "--json").stdout)
        rows = [line.split("\t") for line in run("producers", "list", topic).stdout.splitlines()]

        assert (holder["producer_name"], holder["state"], holder["topic_epochs"]) == ("mine", "granted", {"1": 0})
        assert (queued["producer_name"], queued["state"], queued["queue_position"]) == ("next", "queued", 0)
        session_id = producer.claim.session_id
        assert rows[1][:8] == ["mine", "Exclusive", "granted", "", "1:0", "1:1", rows[1][6], session_id]
        assert rows[2][:8] == ["next", "WaitForExclusive", "queued", "0", "", "", rows[2][6], waiter.session_id]
        assert [row[8:] for row in rows[1:]] == [["", utc(holder["since"])], ["", utc(queued["since"])]]
        assert rows[0][8:] == ["client_name", "since"]
        assert rows[0][6] == "expires_at"
        assert abs(datetime.fromisoformat(rows[1][6]).timestamp() * 1_000 - holder["expires_at"]) < 30_000


@pytest.mark.parametrize("mode", ["Shared", "Exclusive"])
def test_a_refused_claim_is_reported_in_one_line(run, client, topic, mode):
    with client.producer(topic, access_mode="Exclusive"):
        line = last_line(run("producers", "claim", topic, "--partition", 1, "--mode", mode))
    assert line.startswith("PRODUCER_BUSY: " if mode == "Shared" else "PRODUCER_FENCED: ")


def test_a_claim_whose_wait_ends_is_reported_in_one_line(run, client, topic):
    with client.producer(topic, access_mode="Exclusive"):
        result = run("producers", "claim", topic, "--mode", "WaitForExclusive", "--wait", 0.2)
        assert "PRODUCER_BUSY: the claim was still queued" in result.stderr.splitlines()[-1]
        assert result.exit_code == 1
        assert client.producers(topic).waiting == []


def test_a_lock_not_acquired_in_time_is_reported_in_one_line(run, client, resource):
    with client.own(resource):
        line = last_line(run("lock", resource, "--wait", 0, "--", "echo", "ran"), exit_code=75)
    assert line.startswith("RESOURCE_OWNED: ")


def test_a_refused_ownership_is_reported_and_the_owner_shown(run, client, topic, resource):
    with client.own([f"{topic}/0", resource], group="g", generation=7) as owner:
        assert "RESOURCE_OWNED: " in last_line(run("own", resource, "--group", "g"))
        assert "STALE_GENERATION: " in last_line(run("own", resource, "--group", "g", "--generation", 6))
        shown = json.loads(run("own", resource, f"{topic}/0", "--group", "g", "--show", "--json").stdout)
        assert [one["generation"] for one in shown] == [7, 7]
        assert {one["session_id"] for one in shown} == {owner.session_id}

    token = owner.owned[resource].fencing_token
    row = run("own", resource, "--group", "g", "--show").stdout.splitlines()[1].split("\t")
    assert row == [resource, "g", "7", str(token), "", "", "", ""]


def test_the_holding_client_is_shown_with_since_and_until(url, run, topic, resource):
    with Client(url, client_name="web-3:4711") as named, named.own(resource, lease_ms=300_000) as owner:
        now = named.ownership(resource)
        (row,) = [line.split("\t") for line in run("own", resource, "--show").stdout.splitlines()[1:]]
        assert row[4:] == [owner.session_id, "web-3:4711", utc(now.since), utc(now.until)]
        line = last_line(run("lock", resource, "--wait", 0, "--", "echo", "ran"), exit_code=75)
        assert f"session_id={owner.session_id[:8]} client_name=web-3:4711" in line
        for command in (["lock", resource, "--wait", 0.2, "--", "echo", "ran"], ["own", resource, "--wait", 0.2]):
            waiting, *_ = run(*command).stderr.splitlines()
            held = f"held by web-3:4711 since {utc(now.since)} until {utc(now.until)} unless renewed"
            assert waiting == f"waiting for {resource}: {held}"
        with named.producer(topic, access_mode="Exclusive"):
            (row,) = [line.split("\t") for line in run("producers", "list", topic).stdout.splitlines()[1:]]
            assert row[8] == "web-3:4711"
            refused = last_line(run("producers", "claim", topic, "--mode", "Shared"))
            assert "client_name=web-3:4711" in refused


def test_a_command_holds_under_its_host_and_pid(url, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "web-3\x1b[2J" + "x" * 300)
    with connect(url) as client:
        shown = client.session_state(client.create_session().session_id)
    assert shown.client_name == "web-3?[2J" + "x" * 191 + f":{os.getpid()}"


def test_own_runs_no_command_and_names_the_one_that_does(run):
    """What follows ``--`` would be owned as resources, and the command would never run."""
    ended = run("own", "leader", "--", "./job.sh", "-x")
    assert "fenceline lock leader -- ./job.sh -x" in error_line(ended, 2)
    assert run("own", "leader", "--show").exit_code == 0
