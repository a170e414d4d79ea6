"""What a tab costs and how soon it shows something (the packed size is in ``test_rules``). The figures are printed.

Times are printed and not compared, since a test must not depend on the machine's speed. Costs are counted.
"""

import time

import httpx
import pytest
from playwright.sync_api import expect

from fenceline import Record

PARTITIONS = 8
LOOKS = 8
DOLLARS_AN_HOUR_MAX = 0.05
PAINTS = "performance.getEntriesByType('paint').map(one => [one.name, Math.round(one.startTime)])"


@pytest.fixture(scope="module")
def topic(client):
    client.create_topic("orders", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        client.produce("orders", partition, [Record(b'{"total": 1}')] * 50)
    return "orders"


def usage(url):
    """Return the dollars of all requests so far, and how many asked for the offsets of the topic."""
    found = httpx.get(f"{url}/console/usage.json").json()
    counted = {one["operation"]: one["count"] for one in found["requests"]}
    return found["dollars"]["total"], counted.get("listOffsets", 0)


def test_a_tab_that_follows_eight_partitions_costs_less_than_five_cents_an_hour(look, url, topic):
    """All that the tab asks counts: a look a second at the offsets, and the frame's looks at the service's health."""
    page = look.at(f"topics/{topic}?live=1")
    expect(page.locator("tbody tr").first).to_be_visible()
    with page.expect_response(lambda answer: "/offsets" in answer.url):
        pass  # what the page asks once is over
    dollars_before, looks_before = usage(url)
    while usage(url)[1] < looks_before + LOOKS:
        page.wait_for_timeout(250)
    dollars, looks = usage(url)
    an_hour = (dollars - dollars_before) / (looks - looks_before) * 3600
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
    expect(page.get_by_role("row").filter(has_text="as it comes").first).to_be_visible()
    print(f"a live record after {time.perf_counter() - began:.2f} s of 2")
