"""``fenceline subscription`` and ``consume --subscription`` against a server."""

import itertools
import json

import pytest

from fenceline.client import Client
from fenceline.client.reader_watch import ReaderWatch
from fenceline.client.subscriber import Subscriber
from fenceline.model.record import Record
from tests.support.results import error_line, lines

pytestmark = pytest.mark.slow  # a real server

NUMBERS = itertools.count()


@pytest.fixture
def topic(url):
    """Return a topic whose partition 0 has six records, ``0`` to ``5``, at times 1000 to 6000; partition 1 is empty."""
    name = f"topic-{next(NUMBERS)}"
    with Client(url) as client:
        client.create_topic(name, partitions=2)
        client.produce(name, 0, [Record(b"%d" % n, timestamp=1_000 * (n + 1)) for n in range(6)])
    return name


def test_a_subscription_is_created_listed_and_deleted(run, topic):
    assert lines(run("subscription", "create", topic, "s")) == [f"subscribed s to {topic} mark_delete_offsets=0:6,1:0"]
    assert lines(run("subscription", "create", topic, "early", "--from", "earliest"))[0].endswith("=0:0,1:0")
    assert lines(run("subscription", "create", topic, "early"))[0].endswith("=0:0,1:0")  # it stays where it is

    assert lines(run("subscription", "list", topic))[1:] == ["early\tfalse\t", "s\tfalse\t"]
    assert [one["name"] for one in json.loads(run("subscription", "list", topic, "--json").stdout)] == ["early", "s"]

    assert lines(run("subscription", "delete", topic, "s", "--yes")) == [f"deleted s of {topic}"]
    assert "UNKNOWN_SUBSCRIPTION" in error_line(run("subscription", "backlog", topic, "s"))


def test_a_subscription_shows_its_backlog_and_is_moved(run, topic):
    run("subscription", "create", topic, "s", "--from", "earliest")
    backlog = json.loads(run("subscription", "backlog", topic, "s", "--json").stdout)
    assert [(one["partition"], one["mark_delete_offset"], one["backlog"]) for one in backlog] == [(0, 0, 6), (1, 0, 0)]

    moved = run("subscription", "seek", topic, "s", 4, "--yes", "--partition", 0)
    assert lines(moved) == [f"moved s on {topic}/0 mark_delete_offset=4"]
    assert lines(run("subscription", "backlog", topic, "s"))[1].startswith("0\t4\t\t2\t2")
    assert lines(run("subscription", "seek", topic, "s", "@1970-01-01T00:00:03Z", "--yes"))[0].endswith("=2")
    assert [line.split("=")[1] for line in lines(run("subscription", "seek", topic, "s", "latest", "--yes"))] == [
        "6",
        "0",
    ]
    assert [line.split("=")[1] for line in lines(run("subscription", "seek", topic, "s", "earliest", "--yes"))] == [
        "0",
        "0",
    ]


def test_the_lag_of_subscriptions_is_shown_for_a_topic_and_for_all(run, topic):
    run("subscription", "create", topic, "a", "--from", "earliest")
    run("subscription", "create", topic, "b")
    expected = [(topic, "a", 6), (topic, "b", 0)]
    for arguments in (("list", topic, "--lag"), ("backlog", topic), ("list", "--lag")):
        found = json.loads(run("subscription", *arguments, "--json").stdout)
        mine = [one for one in found if one["topic"] == topic]
        assert [(one["topic"], one["name"], one["backlog"]) for one in mine] == expected
        assert [one["oldest_unread_at"] is None for one in mine] == [False, True]
    header, first, second = lines(run("subscription", "backlog", topic))
    assert header.split("\t")[:5] == ["topic", "name", "backlog", "oldest_unread_at", "owner"]
    assert first.startswith(f"{topic}\ta\t6\t2")
    assert second == f"{topic}\tb\t0\t\t\tfalse\t"
    assert "--lag" in error_line(run("subscription", "list"))
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error_line(run("subscription", "backlog", "none"))


def test_shared_silences_the_warning_of_another_reader(run, topic, monkeypatch):
    made = []

    class Spy(ReaderWatch):
        def __init__(self, *args, is_shared):
            super().__init__(*args, is_shared=is_shared)
            made.append(is_shared)

    monkeypatch.setattr("fenceline.client.subscriber.ReaderWatch", Spy)
    run("subscription", "create", topic, "s", "--from", "earliest")
    run("consume", topic, "--subscription", "s", "--max", 1)
    run("consume", topic, "--subscription", "s", "--max", 1, "--shared")
    assert made == [False, True]
    assert "--subscription" in error_line(run("consume", topic, "--shared"))


@pytest.mark.parametrize(("options", "warnings"), [([], 1), (["--shared"], 0)])
def test_another_reader_of_a_subscription_is_told_on_stderr(url, run, topic, monkeypatch, options, warnings):
    run("subscription", "create", topic, "s", "--from", "earliest")
    before = Subscriber.acknowledge
    with Client(url) as client:
        ahead = ReaderWatch(client, topic, "s", "other-reader", None, is_shared=True)

        def acknowledge(self, partition, offset):
            """Acknowledge as the command does, after another reader has passed the record."""
            ahead.acknowledge(partition, cumulative=offset)
            return before(self, partition, offset)

        monkeypatch.setattr(Subscriber, "acknowledge", acknowledge)
        monkeypatch.setattr(Subscriber, "pages", lambda self: ((number, [one]) for number, one in self))
        done = run("consume", topic, "--subscription", "s", *options)

    assert len(done.stdout.split()) == 6
    assert done.stderr.count("warning: another reader acknowledges the same partition") == warnings
    assert done.stderr.count("--group") == warnings


def test_ranges_that_were_acknowledged_by_themselves_are_shown(run, url, topic):
    run("subscription", "create", topic, "s", "--from", "earliest")
    with Client(url) as client:
        client.acknowledge(topic, "s", 0, individual=[1, 3, 4])
    assert lines(run("subscription", "backlog", topic, "s"))[1].startswith("0\t0\t1-1,3-4\t3\t2")


def test_consuming_a_subscription_acknowledges_what_was_printed(run, topic):
    assert lines(run("consume", topic, "--subscription", "s", "--max", 2)) == ["0", "1"]
    assert lines(run("consume", topic, "--subscription", "s", "--max", 3)) == ["2", "3", "4"]
    assert lines(run("consume", topic, "--subscription", "s")) == ["5"]
    assert lines(run("consume", topic, "--subscription", "s")) == []
    assert lines(run("consume", topic, "--subscription", "late", "--from", "latest")) == []
    assert lines(run("consume", topic)) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["subscription", "create", "none", "s"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["subscription", "list", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["subscription", "backlog", "TOPIC", "none"], "UNKNOWN_SUBSCRIPTION"),
        (["subscription", "delete", "TOPIC", "none"], "say --yes"),
        (["subscription", "delete", "TOPIC", "none", "--yes"], "UNKNOWN_SUBSCRIPTION"),
        (["subscription", "seek", "TOPIC", "none", "0"], "UNKNOWN_SUBSCRIPTION"),
        (["subscription", "seek", "TOPIC", "s", "somewhere"], "WHERE is earliest, latest, an offset"),
        (["subscription", "seek", "TOPIC", "s", "@noon"], "WHERE @ takes a time in ISO form"),
        (["subscription", "seek", "TOPIC", "s", "0", "--partition", "2"], "has no partition 2"),
        (["consume", "TOPIC", "--subscription", "s", "--from", "3"], "--from takes earliest or latest"),
        (["consume", "TOPIC", "--subscription", "a b"], "INVALID_REQUEST"),
    ],
)
def test_an_error_is_one_line(run, topic, arguments, expected):
    given = [topic if argument == "TOPIC" else argument for argument in arguments]
    assert expected in error_line(run(*given))
