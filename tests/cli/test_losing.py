"""Commands that lose data: each asks, or takes ``--yes``, and says what it would lose."""

import io
import json
import sys

import pytest
from typer.testing import CliRunner

from fenceline import errors
from fenceline.model.record import Record
from fenceline_cli import options
from fenceline_cli.main import app
from tests.support.results import error_line, lines


@pytest.fixture
def filled(client, topic):
    """Return a topic whose partition 0 has six records, and a subscription that has acknowledged 0, 1 and 3."""
    client.create_subscription(topic, "s", initial_position="earliest")
    client.produce(topic, 0, [Record(b"%d" % n, timestamp=1_000 * (n + 1)) for n in range(6)])
    client.acknowledge(topic, "s", 0, cumulative=1)
    client.acknowledge(topic, "s", 0, individual=[3])
    return topic


@pytest.fixture
def answers(monkeypatch, url):
    """Return a function that runs a command on a terminal, where an answer is typed."""
    monkeypatch.setattr(options, "can_answer", lambda: True)
    return lambda typed, *arguments: CliRunner().invoke(
        app, [*map(str, arguments)], input=typed, env={"FENCELINE_URL": url}
    )


def state(client, topic):
    cursor = client.subscription(topic, "s").partitions[0]
    bounds = client.offsets(topic, 0).bounds
    return bounds.log_start_offset, cursor.mark_delete_offset, list(cursor.individually_acknowledged)


def seen(client, topic):
    """Return all that a command of ``LOSING`` changes; ``None`` once the topic or the subscription is gone."""
    try:
        return state(client, topic), client.topic(topic)
    except (errors.UnknownTopicOrPartitionError, errors.UnknownSubscriptionError):
        return None


LOSING = [
    ("topic", "delete", "TOPIC"),
    ("topic", "alter", "TOPIC", "--config", "retention.ms=1h"),
    ("topic", "alter", "TOPIC", "--config", "retention.bytes=1KiB"),
    ("trim", "TOPIC", "0", "3"),
    ("subscription", "seek", "TOPIC", "s", "5", "--partition", "0"),
    ("subscription", "seek", "TOPIC", "s", "earliest"),
    ("subscription", "delete", "TOPIC", "s"),
]


@pytest.mark.parametrize("arguments", LOSING, ids=" ".join)
def test_a_command_that_loses_data_is_refused_without_a_terminal(run, client, filled, arguments):
    before = seen(client, filled)
    given = [filled if one == "TOPIC" else one for one in arguments]

    assert error_line(run(*given)).endswith("; say --yes")
    assert json.loads(error_line(run(*given, "--json")))["code"] == "COMMAND_FAILED"
    assert seen(client, filled) == before

    assert run(*given, "--yes").exit_code == 0
    assert seen(client, filled) != before


@pytest.mark.parametrize("arguments", LOSING, ids=" ".join)
def test_a_command_that_loses_data_asks_on_a_terminal_and_no_changes_nothing(answers, client, filled, arguments):
    before = seen(client, filled)
    given = [filled if one == "TOPIC" else one for one in arguments]

    refused = answers("n\n", *given)
    assert refused.exit_code == 1
    assert "[y/N]" in refused.stderr
    assert seen(client, filled) == before

    assert answers("y\n", *given).exit_code == 0
    assert seen(client, filled) != before


def test_a_command_that_loses_nothing_asks_nothing(run, client, filled, topic):
    lines(run("trim", filled, 0, 0))
    lines(run("trim", filled, 1, 0))
    lines(run("subscription", "seek", filled, "s", "latest", "--partition", 1))
    lines(run("topic", "alter", filled, "--config", "retention.ms=30d"))
    lines(run("topic", "alter", filled, "--config", "retention.ms=-1", "--partitions", 3))
    client.create_topic(f"{filled}-empty")
    lines(run("topic", "alter", f"{filled}-empty", "--config", "retention.ms=1h"))
    assert client.topic(filled).partitions == 3
    assert client.topic(f"{filled}-empty").config == {"retention.ms": 3_600_000}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("5", (2, 5, 2, 0)),  # 2 and 4; 3 was acknowledged
        ("latest", (2, 6, 3, 0)),
        ("1970-01-01T00:00:05Z", (2, 4, 1, 0)),
        ("2", (2, 2, 0, 1)),  # 3 comes again
        ("earliest", (2, 0, 0, 3)),  # 0, 1 and 3
        ("-1", (2, 5, 2, 0)),
    ],
)
def test_a_dry_run_counts_what_a_seek_would_skip_or_repeat_and_moves_nothing(run, client, filled, where, expected):
    before = state(client, filled)
    asked = ("subscription", "seek", filled, "s", where, "--partition", 0, "--dry-run")

    (move,) = json.loads(lines(run(*asked, "--json"))[0])
    assert (move["from_offset"], move["to_offset"], move["skipped"], move["repeated"]) == expected
    header, row = lines(run(*asked))
    assert header.split("\t") == ["partition", "from_offset", "to_offset", "skipped", "repeated"]
    assert row.split("\t") == ["0", *map(str, expected)]
    assert state(client, filled) == before

    was_unacknowledged = {record.offset for record in client.read_subscription(filled, "s", 0).records}
    lines(run("subscription", "seek", filled, "s", where, "--partition", 0, "--yes"))
    now = {record.offset for record in client.read_subscription(filled, "s", 0).records}
    assert (len(was_unacknowledged - now), len(now - was_unacknowledged)) == expected[2:]


def test_markers_are_no_records_and_are_not_counted(run, client, topic):
    client.create_subscription(topic, "s", initial_position="earliest")
    for number in range(3):
        with client.producer(topic, access_mode="Exclusive", partitions=[0]) as producer:
            producer.send(value=b"%d" % number, partition=0)
    assert client.offsets(topic, 0).bounds.next_offset > 3
    (move,) = json.loads(
        lines(run("subscription", "seek", topic, "s", "latest", "--partition", 0, "--dry-run", "--json"))[0]
    )
    assert (move["skipped"], move["repeated"]) == (3, 0)


def test_a_seek_that_one_partition_cannot_follow_moves_none(run, client, filled):
    before = state(client, filled)
    assert "OFFSET_OUT_OF_RANGE" in error_line(run("subscription", "seek", filled, "s", 4, "--yes"))
    assert state(client, filled) == before


def test_without_a_terminal_no_question_can_be_answered(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert not options.can_answer()
