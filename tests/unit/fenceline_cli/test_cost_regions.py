"""What replication costs is computed from what is counted: creates, copies, looks and traffic."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fenceline import limits
from fenceline_cli import prices
from fenceline_cli.commands.cost import command as cost
from fenceline_cli.commands.cost import regions as cost_regions
from fenceline_cli.main import app
from tests.support.results import error_line, lines


@pytest.fixture(autouse=True)
def few_looks_and_no_checkpoint_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_MS", 10**9)
    monkeypatch.setattr(cost_regions, "APPENDS", 2)
    monkeypatch.setattr(cost_regions, "SNAPSHOTS", 2)
    monkeypatch.setattr(cost, "SIZES_KIB", (64,))


def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing cost anything."""
    for name in (
        "S3_PUT", "S3_GET", "DYNAMODB_WRITE_UNIT", "DYNAMODB_READ_UNIT", "API_REQUEST", "LAMBDA_REQUEST",
        "LAMBDA_GB_SECOND", "LOG_GB", "SQS_REQUEST", "TRANSFER_GB",
    ):  # fmt: skip
        monkeypatch.setattr(prices, name, 0.0)


@pytest.mark.parametrize("regions", [2, 3])
def test_an_append_is_created_once_in_each_other_region(regions: int) -> None:
    found = cost_regions.measured(regions, [64])
    one, many = found.rows
    assert one.counted["put"] == regions - 1
    assert many.counted["put"] == pytest.approx((regions - 1) / 16, abs=0.001)  # of 1 MiB
    assert one.counted["message"] == regions * (regions + 1)  # for each of its segments: news, and each region
    assert one.per_gib > many.per_gib


@pytest.mark.parametrize(("regions", "copies"), [(2, 2), (3, 6)])
def test_a_snapshot_is_one_create_more_than_there_are_regions_and_their_copies(regions: int, copies: int) -> None:
    counted = cost_regions.measured(regions, []).snapshot_counted
    assert counted["put"] == regions + 1 + copies


def test_traffic_between_regions_is_paid_for_each_region(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch)
    monkeypatch.setattr(prices, "TRANSFER_GB", 2.0)
    monkeypatch.setattr(prices, "SEGMENT_ENTRY_BYTES", 0)
    one, _ = cost_regions.measured(3, [64]).rows
    assert one.per_gib == pytest.approx(2 * 2.0 * prices.GIB / prices.GB, rel=0.01)


def test_messages_are_paid_by_their_sends_receives_and_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch)
    monkeypatch.setattr(prices, "SQS_REQUEST", 0.5)
    one, _ = cost_regions.measured(2, [64]).rows
    assert one.per_million == pytest.approx(0.5 * 3 * 6 * prices.MILLION)


@pytest.mark.parametrize(
    ("month", "looks"),
    [("quiet_month", cost_regions.QUIET_LOOKS_PER_MONTH), ("consumed_month", cost_regions.CONSUMED_LOOKS_PER_MONTH)],
)
def test_a_topic_without_writes_costs_its_looks_and_the_schedule(
    monkeypatch: pytest.MonkeyPatch, month: str, looks: int
) -> None:
    """Each look asks each peer for its topic and for segments."""
    free(monkeypatch)
    monkeypatch.setattr(prices, "LAMBDA_REQUEST", 1.0)
    calls = 3 * looks + 3 * 2 * 2 * looks + 3 * cost_regions.SCHEDULE_PER_MONTH
    assert getattr(cost_regions.measured(3, []), month) == pytest.approx(calls)


def test_a_look_that_finds_nothing_writes_nothing() -> None:
    """What it asks of each store and peer is what deployed functions ask (``tests/functions/test_silence.py``)."""
    counted = cost_regions.measured(3, []).quiet_counted
    assert {"put", "write unit"}.isdisjoint(counted)
    assert (counted["look"], counted["message"], counted["topic"], counted["segments"]) == (3, 3, 6, 6)
    assert (counted["get"], counted["list"]) == (3 + 6, 3 + 3)  # a region lists once a minute for all that ask it


def test_queues_are_paid_where_they_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch)
    monkeypatch.setattr(prices, "SQS_REQUEST", 1.0)
    found = cost_regions.measured(2, [])
    assert found.polls_month == 2 * 2 * prices.SQS_POLLS_PER_MONTH
    assert found.quiet_month == found.polls_month + 2 * 3 * cost_regions.QUIET_LOOKS_PER_MONTH


def test_the_command_adds_the_regions_to_its_table() -> None:
    run = CliRunner().invoke
    alone, both = (json.loads(run(app, ["cost", "--json", *options]).stdout) for options in ([], ["--regions", "2"]))
    assert "regions" not in alone
    assert both["regions"]["count"] == 2
    assert both["regions"]["snapshot_per_million"] > 0
    watched = prices.PEER_METRICS * prices.METRIC_MONTH + prices.PEER_ALARMS * prices.ALARM_MONTH
    assert both["idle_month"] == pytest.approx(alone["idle_month"] + watched)
    assert [row["what"] for row in both["rows"]][2:] == [
        "replicate to 1, each at once",
        "replicate to 1, 1 MiB at once",
    ]

    printed = lines(run(app, ["cost", "--regions", "2"]))
    assert any(line.startswith("a snapshot of one partition in 2 regions: $") for line in printed)
    assert printed[-1].endswith("but with $0.02 per GB between regions")


@pytest.mark.parametrize("given", ["0", "9", "x"])
def test_a_number_of_regions_that_no_topic_can_have_is_misuse(given: str) -> None:
    line = error_line(CliRunner().invoke(app, ["cost", "--regions", given]), exit_code=2)
    assert "--regions" in line
