"""Settings, durations and sizes: with units, with their defaults, from one table."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fenceline.model.topic_config import NAMES
from fenceline_cli import units
from fenceline_cli.commands.topics import settings as settings_text
from fenceline_cli.main import app
from tests.support.results import error_line, lines


def in_force(shown):
    rows = [line.split("\t") for line in shown]
    start = rows.index(list(settings_text.COLUMNS))
    return {name: (value, origin) for name, value, origin in rows[start + 1 : start + 1 + len(NAMES)]}


def test_settings_take_units(run):
    given = {
        "retention.ms": ("7d", 604_800_000),
        "retention.bytes": ("10GiB", 10 * 2**30),
        "max.message.bytes": ("2MiB", 2 * 2**20),
        "message.timestamp.after.max.ms": ("1.5h", 5_400_000),
        "producer.id.expiration.ms": ("90000", 90_000),
        "message.timestamp.before.max.ms": ("30s", 30_000),
    }
    options = [part for name, (text, _) in given.items() for part in ("--config", f"{name}={text}")]
    created = json.loads(lines(run("topic", "create", "with-units", *options, "--json"))[0])
    assert created["config"] == {name: number for name, (_, number) in given.items()}

    options = ("--config", "retention.ms=-1", "--config", "max.message.bytes=64KB")
    altered = json.loads(lines(run("topic", "alter", "with-units", *options, "--json"))[0])
    assert (altered["config"]["retention.ms"], altered["config"]["max.message.bytes"]) == (-1, 64_000)


@pytest.mark.parametrize("command", ["create", "alter"])
def test_the_help_of_a_topic_fits_a_terminal(command):
    shown = CliRunner().invoke(app, ["topic", command, "--help"], env={"COLUMNS": "80"}).stdout
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert "orders --config retention.ms=1h \\\n" in shown or "--partitions 8 \\\n" in shown


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("retention.ms=7w", "retention.ms takes a number with a unit (ms, s, m, h, d)"),
        ("retention.ms=7D", "(ms, s, m, h, d)"),
        ("retention.ms=", "(ms, s, m, h, d)"),
        ("retention.ms=-7d", "(ms, s, m, h, d)"),
        ("retention.ms=0.5ms", "takes a whole number of ms"),
        ("retention.bytes=10G", "(B, KB, KiB, MB, MiB, GB, GiB, TB, TiB)"),
        ("max.message.bytes=2d", "(B, KB, KiB, MB, MiB, GB, GiB, TB, TiB)"),
        ("max.message.bytes=5MiB", "max.message.bytes must be from 0 to 4194304"),
        ("check.expected.offsets=7d", "check.expected.offsets must be true or false"),
        ("no.such=7d", "unknown config name"),
    ],
)
def test_an_unknown_unit_is_reported_with_the_known_ones(run, client, setting, expected):
    line = error_line(run("topic", "create", "refused", "--config", setting))
    assert line.startswith("INVALID_REQUEST: ")
    assert expected in line
    line = json.loads(error_line(run("topic", "create", "refused", "--config", setting, "--json")))
    assert (line["code"], line["field"]) == ("INVALID_REQUEST", f"config.{setting.partition('=')[0]}")
    assert "refused" not in {topic.name for topic in client.topics()}


@pytest.mark.parametrize("command", ["create", "alter"])
def test_help_lists_every_setting_with_its_default(command):
    shown = CliRunner().invoke(app, ["topic", command, "--help"]).stdout
    for name, spec in NAMES.items():
        assert re.search(
            rf"^ *{re.escape(name)}={re.escape(settings_text.shown(name, spec.default))}( |$)", shown, re.M
        )
        assert spec.what in shown
        assert all(choice in shown for choice in spec.choices)


def test_a_topic_is_described_with_every_setting_in_force(run):
    lines(run("topic", "create", "described", "--config", "retention.ms=90m", "--config", "cleanup.policy=compact"))

    printed = json.loads(lines(run("topic", "describe", "described", "--json"))[0])
    assert printed["config"] == {"retention.ms": 5_400_000, "cleanup.policy": "compact"}
    assert printed["effective_config"] == {**{name: spec.default for name, spec in NAMES.items()}, **printed["config"]}

    shown = in_force(lines(run("topic", "describe", "described")))
    assert shown.keys() == NAMES.keys()
    assert shown["retention.ms"] == ("90m", "set")
    assert shown["cleanup.policy"] == ("compact", "set")
    assert shown["max.message.bytes"] == ("1MiB", "default")
    assert shown["retention.bytes"] == ("-1", "default")
    assert shown["check.expected.offsets"] == ("true", "default")


@given(amount=st.integers(1, 2**63 - 1), kind=st.sampled_from(["ms", "bytes"]))
def test_a_shown_amount_is_parsed_back(amount, kind):
    assert units.parse(units.shown(amount, kind), kind, plain="ms" if kind == "ms" else "B") == amount


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["lock", "r", "--lease", "30x", "--", "true"], "(ms, s, m, h, d)"),
        (["lock", "r", "--lease", "0.5", "--", "true"], "a lease lasts from 1s to 5m"),
        (["own", "r", "--lease", "6m"], "a lease lasts from 1s to 5m"),
        (["own", "r", "--wait", "soon"], "(ms, s, m, h, d)"),
        (["producers", "claim", "t", "--wait", "-1"], "(ms, s, m, h, d)"),
        (["sweep", "--data", ".", "--seconds", "1MiB"], "(ms, s, m, h, d)"),
        (["sweep", "--data", ".", "--seconds", "0"], "at least 1s"),
    ],
    ids=" ".join,
)
def test_an_invalid_duration_is_reported(arguments, expected):
    line = error_line(CliRunner().invoke(app, arguments, prog_name="fenceline"), exit_code=2)
    assert expected in line


@pytest.mark.parametrize(("text", "expected"), [("30", 30), ("0.2", 0.2), ("1500ms", 1.5), ("2m", 120), ("0", 0)])
def test_a_plain_number_of_a_lease_or_a_wait_is_seconds(text, expected):
    assert units.seconds(text) == expected
