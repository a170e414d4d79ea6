"""What things cost is computed from what is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fenceline import limits
from fenceline.limits import CHECKPOINT_SEGMENTS
from fenceline_cli import prices
from fenceline_cli.commands.cost import command as cost
from fenceline_cli.commands.cost import regions as cost_regions
from fenceline_cli.main import app
from tests.support.results import lines

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_checkpoint_is_due_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_MS", 10**9)


def test_an_append_is_one_put_and_a_sixteenth_of_a_checkpoint() -> None:
    append, read = cost.measured(1)
    assert append.counted["put"] == 1
    assert append.counted["write unit"] == 4 / CHECKPOINT_SEGMENTS  # a transaction of two items
    assert set(append.counted) == {"put", "write unit"}
    assert read.counted["get"] >= cost.APPENDS
    assert "put" not in read.counted


def test_prices_make_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("S3_GET", "DYNAMODB_WRITE_UNIT", "DYNAMODB_READ_UNIT", "LAMBDA_REQUEST", "LAMBDA_GB_SECOND", "LOG_GB"):
        monkeypatch.setattr(prices, name, 0.0)
    monkeypatch.setattr(prices, "S3_PUT", 2.0)
    monkeypatch.setattr(prices, "API_REQUEST", 0.25)
    append, _ = cost.measured(1)
    assert append.per_million == pytest.approx(2_250_000)
    assert append.per_gib == pytest.approx(2.25 * 1024 * 1024)  # a request for each batch of 1 KiB


def test_a_larger_batch_costs_more_by_the_request_and_less_by_the_gib() -> None:
    small, large = cost.measured(1)[0], cost.measured(64)[0]
    assert small.per_million < large.per_million
    assert small.per_gib > 50 * large.per_gib


def test_a_follower_is_counted_with_its_slot_its_looks_and_the_time_of_its_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[dict[str, int]] = []
    dollars = cost.Counted.dollars.fget
    monkeypatch.setattr(
        cost.Counted,
        "dollars",
        property(lambda counted: (counts.append(dict(counted.units)), dollars(counted))[1]),
    )
    month = cost.follower_month()
    time = 30 * 24 * 3600 * prices.LAMBDA_GB * prices.LAMBDA_GB_SECOND
    assert time < month < 1.2 * time
    [counted] = counts
    assert counted["write unit"] == 2
    assert 15 < counted["get"] < 40  # the first after 50 ms, then ever later, up to one in a second


def test_an_unheld_poll_of_warm_partitions_is_a_get_and_a_read_unit_each_and_one_for_the_topic() -> None:
    for partitions in (4, 20):
        counted = cost._quiet_poll(partitions, wait_ms=0).units
        assert counted["get"] == partitions
        assert counted["read unit"] <= 2 * partitions
        assert set(counted) == {"get", "read unit"}  # and no slot, which only held polls take


@pytest.mark.parametrize(
    ("partitions", "delay_ms", "most"), [(4, 5_000, 2.50), (20, 5_000, 7), (4, 1_000, 12), (20, 1_000, 34)]
)
def test_a_follower_of_quiet_partitions_is_cheap(partitions: int, delay_ms: int, most: float) -> None:
    assert most / 2 < cost.polled_month(partitions, delay_ms) <= most


def test_a_followers_price_has_the_gateway_the_function_its_log_lines_and_its_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    month_s = 30 * 24 * 3600
    whole = cost.polled_month(4, 1_000)
    for name in ("S3_GET", "DYNAMODB_READ_UNIT", "LAMBDA_GB_SECOND"):
        monkeypatch.setattr(prices, name, 0.0)
    around = cost.polled_month(4, 1_000)
    assert around == pytest.approx(month_s * 1.75 / prices.MILLION)
    assert whole > 2 * around
    assert cost.polled_month(4, 5_000) == pytest.approx(around / 5)


def test_a_held_poll_takes_one_slot_however_many_partitions_it_has() -> None:
    one, many = (cost._quiet_poll(partitions, wait_ms=limits.WAIT_MS_MAX).units for partitions in (1, 20))
    assert one["write unit"] == many["write unit"] == 2


@pytest.mark.slow
def test_the_command_prints_dates_rows_and_idle_costs() -> None:
    result = CliRunner().invoke(app, ["cost"])
    assert result.exit_code == 0
    assert f"list prices of {prices.REGION}, {prices.DATE}" in result.stdout
    document = json.loads(CliRunner().invoke(app, ["cost", "--json"]).stdout)
    assert len(document["rows"]) == 2 * len(cost.SIZES_KIB)
    assert 0 < document["idle_month"] < 100
    assert 50 < document["follower_month"] < 100


COSTS, FRONT = ((ROOT / page).read_text() for page in ("docs/operate/cost.md", "README.md"))


def test_the_table_of_the_page_is_what_the_command_prints() -> None:
    """After a change to what a request costs, run ``fenceline cost``, and write the new figures down."""
    printed = [line.split("\t") for line in lines(CliRunner().invoke(app, ["cost"])) if "\t" in line]
    table = next(part for part in COSTS.split("\n\n") if part.startswith("| batch |")).splitlines()
    header, _, *rows = [line.strip("| ").split(" | ") for line in table]
    assert [header, *rows] == printed
    by_what = {(row[0], row[1]): row for row in rows}
    small, large = by_what["1 KiB", "append"], by_what["1024 KiB", "append"]
    assert f"${float(small[2]):.1f}0 per million appends" in FRONT
    assert f"${float(small[3]):.2f} in appends of 1 KiB, ${float(large[3]):.2f} in appends of 1 MiB" in FRONT
    assert f"list prices of {prices.REGION}, {prices.DATE}" in COSTS


def test_the_months_on_the_pages_are_those_that_are_counted() -> None:
    idle, with_peers, follower = (
        f"${month:,.2f}" for month in (cost.idle_month(), cost.idle_month(has_peers=True), cost.follower_month())
    )
    text = " ".join(COSTS.split())
    for followed in map(cost.Followed.of, cost.FOLLOWED):
        months = [f"${month:,.2f}" for month in (*followed.by_delay_ms.values(), followed.held)]
        assert f"| {followed.partitions} | {' | '.join(months)} |" in COSTS
        if followed.partitions == 20:
            assert f"20 quiet partitions: {months[0]} a month at 5 s, {months[1]} at 1 s, {months[2]} held" in FRONT
    assert f"Kept: ${prices.S3_GIB_MONTH} per GiB and month." in text
    assert f"Idle, with its alarms and its dashboard: {idle} per region and month, and {with_peers} with peers." in text
    assert f"A program that reads one partition by plain reads that are held costs {follower} a month" in text
    assert f"An idle month costs {idle} in a region." in " ".join(FRONT.split())
    assert f"${prices.S3_GIB_MONTH} per GiB and month" in FRONT
    two, three = (cost_regions.measured(count, []) for count in (2, 3))
    assert (
        f"that is ${two.quiet_month:.2f} a month, and ${two.consumed_month:.2f} with a replicated subscription. "
        f"In three regions it is ${three.quiet_month:.2f} and ${three.consumed_month:.2f}. "
        f"Lambda's polls of empty queues are ${two.polls_month / 2:.2f} of that for each region"
    ) in text
