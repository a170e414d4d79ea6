"""``consume --format json | produce --json-lines``: a copy is what its original is, but for its place."""

import base64
import itertools
import json

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline.format.partitioner import partition_of
from fenceline.model.record import Record
from fenceline_cli.main import app
from tests.support.results import last_line, lines
from tests.support.tries import tries

NUMBERS = itertools.count()

octets = st.binary(max_size=12) | st.text(max_size=8).map(str.encode)
names = st.text(max_size=4)
records = st.builds(
    Record,
    value=octets | st.none(),
    key=octets | st.none(),
    headers=st.lists(st.tuples(names, octets | st.none()), max_size=3),
    timestamp=st.integers(0, 1_700_000_000_000),
)


def contents(client, topic, partitions=2):
    """Return what each partition holds, in order, without the offsets."""
    found = []
    for partition in range(partitions):
        page = client.read(topic, partition, offset=0, max_records=10_000)
        found.append([(r.timestamp, r.key, r.value, list(r.headers)) for r in page.records])
    return found


def copied(url, source, target, *options):
    run = CliRunner(env={"FENCELINE_URL": url})
    consumed = run.invoke(app, ["consume", source, "--format", "json"])
    assert consumed.exit_code == 0, consumed.output
    lines(run.invoke(app, ["produce", target, "--json-lines", *options], input=consumed.stdout_bytes))


def check_copies(url, given):
    """Copy records by their keys, and then all of them into one partition."""
    with Client(url) as client:
        name = f"copied-{next(NUMBERS)}"
        for topic, partitions in (("", 2), ("-copy", 2), ("-all", 1), ("-all-copy", 2)):
            client.create_topic(name + topic, partitions=partitions)
        for record in given:
            if record.key is not None:
                client.produce(name, partition_of(record.key, 2), [record])
        copied(url, name, f"{name}-copy")
        assert contents(client, f"{name}-copy") == contents(client, name)

        client.produce(f"{name}-all", 0, given)
        copied(url, f"{name}-all", f"{name}-all-copy", "--partition", "1")
        assert contents(client, f"{name}-all-copy") == [[], contents(client, f"{name}-all", 1)[0]]


@pytest.mark.slow
@tries(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=st.lists(records, min_size=1, max_size=8))
def test_a_copy_has_the_keys_values_headers_and_timestamps_of_its_original(url, given):
    check_copies(url, given)


def test_a_copy_keeps_what_is_null_what_is_empty_and_bytes_that_are_no_text(url):
    tombstones = [Record(None, b"k"), Record(b"", b""), Record(b"", None), Record(b"null", b"null", (), 1)]
    repeated = Record(b"\xff", b"k", [("h", None), ("h", b""), ("h", b"\xfe"), ("", "\u2028".encode())])
    check_copies(url, [*tombstones, repeated, Record(b"\r", b"\r\n\0", [], 0)])


def test_topic_partition_and_offset_of_a_line_are_ignored(run, client, topic):
    line = {"topic": "other", "partition": 0, "offset": 7, "topic_epoch": 3, "origin": None, "value": "v", "key": None}
    lines(run("produce", topic, "--partition", 1, "--json-lines", stdin=json.dumps({**line, "timestamp": 5})))
    assert contents(client, topic) == [[], [(5, None, b"v", [])]]


def test_a_record_without_a_time_gets_that_of_its_append(run, client, topic):
    lines(run("produce", topic, "--partition", 0, "--json-lines", stdin='{"value": "v", "timestamp": -1}'))
    ((timestamp, *_),) = contents(client, topic)[0]
    assert timestamp > 1_700_000_000_000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"value": "v", "encoding": "hex"}, "encoding must be utf8 or base64"),
        ({"value": "v", "encoding": ["base64"]}, "encoding must be utf8 or base64"),
        ({"value": "/w", "encoding": "base64"}, "value is not base64"),
        ({"value": "/w=\n=", "encoding": "base64"}, "value is not base64"),
        ({"value": None, "key": "é", "encoding": "base64"}, "key is not base64"),
        ({"value": "v", "headers": [["\ud800", None]]}, "a header's name is not valid text"),
    ],
)
def test_a_line_with_invalid_bytes_is_reported(run, topic, line, expected):
    assert expected in last_line(run("produce", topic, "--json-lines", stdin=json.dumps(line)))


def test_base64_of_a_line_is_of_key_value_and_header_values(run, client, topic):
    def of(octets):
        return base64.b64encode(octets).decode()

    line = {"value": of(b"v"), "key": of(b"\xff"), "headers": [["h", of(b"x")]], "timestamp": 1, "encoding": "base64"}
    lines(run("produce", topic, "--partition", 0, "--json-lines", stdin=json.dumps(line)))
    assert contents(client, topic)[0] == [(1, b"\xff", b"v", [("h", b"x")])]
