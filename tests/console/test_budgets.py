"""What a tab costs and how soon it shows something (the packed size is in ``test_rules``). The figures are printed.

Times are printed and not compared, since a test must not depend on the machine's speed. Costs are counted.
"""

import time
from collections import Counter

import httpx
import pytest
from playwright.sync_api import expect

from fenceline import Client, Record
from fenceline_http import wiring
from tests.support.serving import metered_service, serving

PARTITIONS = 8
LOOKS = 8
DOLLARS_AN_HOUR_MAX = 0.05
PAINTS = "performance.getEntriesByType('paint').map(one => [one.name, Math.round(one.startTime)])"


def fill(client):
    """Make the topic that is looked at: a few records in each of its partitions."""
    client.create_topic("orders", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        client.produce("orders", partition, [Record(b'{"total": 1}')] * 50)


@pytest.fixture(scope="module")
def topic(client):
    fill(client)
    return "orders"


@pytest.fixture
def alone():
    """Serve without the work that a local server does by itself, so that only requests cost something."""
    with pytest.MonkeyPatch.context() as patch:
        service = metered_service()
        patch.setattr(wiring, "service", lambda: service)
        with serving(service) as url, Client(url) as client:
            fill(client)
            yield url


def usage(url):
    """Return the dollars of all requests so far, and how many there were of each operation."""
    found = httpx.get(f"{url}/console/usage.json").json()
    return found["dollars"]["total"], Counter({one["operation"]: one["count"] for one in found["requests"]})


def test_a_tab_that_follows_eight_partitions_costs_less_than_five_cents_an_hour(browser, alone):
    """All that the tab goes on asking counts: each second the offsets, and each five the service's health."""
    before = usage(alone)
    httpx.get(f"{alone}/v1/health")
    health = usage(alone)[0] - before[0]
    with browser.new_context(base_url=alone) as context:
        page = context.new_page()
        page.goto("/console/topics/orders?live=1")
        expect(page.locator("tbody tr").first).to_be_visible()
        page.wait_for_load_state("networkidle")  # what the page asks once is over
        before = usage(alone)
        while usage(alone)[1]["listOffsets"] < before[1]["listOffsets"] + LOOKS:
            page.wait_for_timeout(250)
        after = usage(alone)
    asked = after[1] - before[1]
    assert asked.keys() <= {"listOffsets", "getHealth"}
    a_look = (after[0] - before[0] - health * asked["getHealth"]) / asked["listOffsets"]
    an_hour = 3600 * a_look + 720 * health
    print(f"a tab at one look a second: ${an_hour:.3f} an hour of ${DOLLARS_AN_HOUR_MAX}; each 3 s: ${an_hour / 3:.3f}")
    assert 0 < an_hour <= DOLLARS_AN_HOUR_MAX


def test_the_first_rows_are_there_soon(look, topic):
    page = look.page()
    began = time.perf_counter()
    page.goto(f"/console/topics/{topic}")
    expect(page.locator("tbody tr button").first).to_be_visible()
    took = time.perf_counter() - began
    paints = page.evaluate(PAINTS)
    fetched = page.evaluate("performance.getEntriesByType('resource').length")
    print(f"first paint {paints[0][1]} ms of 600, first rows {took:.2f} s of 1, {fetched} requests")
    assert 0 < fetched <= 60


def test_a_new_record_shows_while_live_is_on(look, client, topic):
    page = look.at(f"topics/{topic}?live=1")
    expect(page.locator("tbody tr").first).to_be_visible()
    began = time.perf_counter()
    client.produce(topic, 3, [Record(b"as it comes")])
    shown = page.get_by_role("row").filter(has_text="as it comes")
    expect(shown.first).to_be_visible()
    assert shown.count() == 1
    print(f"a live record after {time.perf_counter() - began:.2f} s of 2")
