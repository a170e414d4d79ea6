"""Health and cost in the console: what was asked, what was refused, what is stored, and what that costs."""

import contextlib
import re

import pytest
from playwright.sync_api import expect

from fenceline import errors
from tests.console.conftest import axe_finds, overflow

HOSTILE = "__proto__"
USAGE = "**/console/usage.json*"


@pytest.fixture(scope="module")
def client(client):
    client.create_topic("orders", partitions=2)
    client.create_topic("quiet")
    client.create_topic(HOSTILE)
    for number in range(3):
        with client.producer("orders") as producer:
            producer.send(value=b"x" * 2_000, key=bytes([number])).result()
    for _ in range(3):
        with contextlib.suppress(errors.UnknownTopicOrPartitionError):
            client.topic("none")
    return client


def section(page, name):
    return page.get_by_role("region", name=name, exact=True)


def test_requests_and_refusals_are_those_that_were_made(look, client):
    page = look.at("health")
    row = section(page, "Requests").get_by_role("row").filter(has=page.get_by_text("appendRecords", exact=True))
    expect(row).to_have_text(re.compile(r"appendRecords3[\d.]+ ms[\d.]+ ms"))
    refused = section(page, "Refusals").get_by_role("row").filter(has_text="UNKNOWN_TOPIC_OR_PARTITION")
    expect(refused).to_contain_text("3")
    link = refused.get_by_role("link", name="UNKNOWN_TOPIC_OR_PARTITION")
    expect(link).to_have_attribute("href", "/docs/errors#unknown_topic_or_partition")
    answer = page.request.get("/docs/errors")
    assert 'id="unknown_topic_or_partition"' in answer.text()


def test_what_the_log_did_and_what_it_costs_has_the_date_of_the_prices(look, client):
    page = look.at("health")
    figures = page.locator(".figures div")
    expect(figures.filter(has_text="Appends")).to_have_text("Appends3")
    expect(figures.filter(has_text="Lost races")).to_have_text("Lost races0")
    cost = section(page, "What these requests cost on AWS")
    expect(cost).to_contain_text(
        re.compile(r"By the list prices of us-east-1, as of \d{4}-\d\d-\d\d: the prices that fenceline cost")
    )
    expect(cost).to_contain_text("A call of Lambda is taken to last 25 to 80 ms for an append, 60 ms for a read")
    expect(cost.locator(".figure")).to_have_text(re.compile(r"\$0\.\d+"))
    expect(cost.get_by_role("row").filter(has_text="S3 PUT and LIST")).to_be_visible()


def test_the_topic_that_stores_most_is_first_and_leads_to_its_partitions(look, client, url):
    page = look.at("health")
    rows = section(page, "Stored").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("orders3")
    expect(rows.nth(1)).to_contain_text("below $0.01")
    expect(section(page, "Stored").get_by_role("link", name=HOSTILE)).to_be_visible()
    rows.nth(1).get_by_role("link").press("Enter")
    expect(page).to_have_url(f"{url}/console/topics/orders/partitions")


def test_what_cloudwatch_does_not_know_is_said_and_the_rest_is_shown(look, client):
    known = {"operation": "*", "count": 7, "held": 0, "p50_ms": None, "p99_ms": 12.5}
    refused = {"code": "AccessDenied", "detail": "cloudwatch:GetMetricData is not allowed\u202e"}
    usage = {"source": "cloudwatch", "region": "eu-west-1", "since": 1_796_000_000_000, "until": 1_796_000_360_000}
    about = {**usage, "workers": 1, "counted_workers": 1, "notes": ["of the last 24 hours"], "error": refused}
    counted = {"requests": [known], "refusals": None, "log": None, "stores": None, "dollars": None}
    page = look.page()
    page.route(USAGE, lambda route: route.fulfill(json={**about, **counted}))
    page.goto("/console/health")
    expect(page.get_by_role("alert")).to_contain_text("AccessDenied cloudwatch:GetMetricData is not allowed⟨202E⟩")
    expect(section(page, "Requests").get_by_role("row").nth(1)).to_have_text("all operations7–12.5 ms")
    for name in ("Refusals", "The log", "What these requests cost on AWS"):
        expect(section(page, name)).to_contain_text("CloudWatch does not know this.")
    expect(section(page, "Stored").get_by_role("row").nth(1)).to_contain_text("orders3")


def test_a_console_without_figures_still_shows_what_is_stored(look, client):
    look.may_fail = True
    page = look.page()
    page.route(USAGE, lambda route: route.fulfill(status=403, json={"code": "NOT_AUTHORIZED", "detail": "no"}))
    page.goto("/console/health")
    expect(page.get_by_role("alert")).to_contain_text("NOT_AUTHORIZED no")
    expect(section(page, "Requests")).to_contain_text("Not known while the figures do not come.")
    expect(section(page, "Stored").get_by_role("row").nth(1)).to_contain_text("orders3")


def test_only_the_first_operations_are_shown_until_all_are_asked_for(look, client):
    page = look.page()
    requests = [{"operation": f"op{n}", "count": 99 - n, "held": 0, "p50_ms": 1, "p99_ms": 2} for n in range(39)]

    def more(route):
        route.fulfill(json={**route.fetch().json(), "requests": requests})

    page.route(USAGE, more)
    page.goto("/console/health")
    expect(section(page, "Requests").get_by_role("row")).to_have_count(13)
    section(page, "Requests").get_by_role("button", name="Show all 39").click()
    expect(section(page, "Requests").get_by_role("row")).to_have_count(40)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 420])
def test_the_page_is_accessible_and_narrow(look, client, scheme, width):
    page = look.at("health", scheme=scheme, width=width)
    expect(section(page, "Stored")).to_contain_text("orders")
    expect(section(page, "Refusals")).to_contain_text("UNKNOWN")
    assert axe_finds(page) == ""
    assert overflow(page) <= 0
