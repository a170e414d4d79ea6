"""A topic's partitions: where each starts and ends, what readers wait for, its segments, and whether they are whole."""

import re
import sqlite3

import pytest
from playwright.sync_api import expect

from fenceline.format import keys
from tests.console.asking import append, ask, begin, end
from tests.console.conftest import LONG_TASKS, axe_finds, overflow


@pytest.fixture(scope="module")
def orders(url):
    """Four partitions: one with 120 segments, one that was trimmed, one with an aborted transaction and an open one."""
    ask(url, "POST", "/topics", {"name": "orders", "partitions": 4})
    for n in range(120):
        append(url, "orders", 0, [f"{n}a", f"{n}b"])
    append(url, "orders", 1, ["a"] * 10)
    append(url, "orders", 1, ["b"] * 10)
    ask(url, "POST", "/topics/orders/partitions/1/trim", {"before_offset": 12})
    pair = begin(url, "aborted", ("orders", 2))
    end(url, "aborted", pair, "abort")
    begin(url, "billing-0", ("orders", 2))
    append(url, "orders", 2, ["behind"])


def row(page, partition):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=f"{partition}, show its segments"))


def segments(page, partition):
    return page.get_by_role("region", name=f"Partition {partition}")


def damage(data, topic_id, partition, base):
    """Change the last byte of a stored segment behind the server's back."""
    key = keys.segment_key(topic_id, partition, base)
    where = "id = (SELECT id FROM objects WHERE key = ?)"
    with sqlite3.connect(data / "objects.sqlite3") as connection:
        ((body,),) = connection.execute(f"SELECT body FROM bodies WHERE {where}", (key,))
        changed = body[:-1] + bytes([body[-1] ^ 1])
        assert connection.execute(f"UPDATE bodies SET body = ? WHERE {where}", (changed, key)).rowcount == 1
    connection.close()
    return key


def test_each_partition_says_what_it_keeps_and_what_readers_wait_for(look, orders):
    page = look.at("topics/orders/partitions")
    expect(row(page, 0)).to_contain_text(re.compile("0240to the end240.*ago|just now"))
    expect(row(page, 1)).to_contain_text(re.compile("1220to the end8"))
    expect(row(page, 2)).to_contain_text("wait at 4for billing-0")
    expect(row(page, 3)).to_contain_text("nothing kept")
    row(page, 2).get_by_role("link", name="for billing-0").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Transactions")


def test_a_partition_that_is_chosen_shows_its_segments_by_pages(look, orders, url):
    page = look.at("topics/orders/partitions")
    row(page, 0).get_by_role("link", name="0, show").click()
    expect(page).to_have_url(f"{url}/console/topics/orders/partitions?p=0")
    expect(segments(page, 0).locator("tbody tr")).to_have_count(50)
    segments(page, 0).get_by_role("link", name="Next").click()
    expect(page).to_have_url(f"{url}/console/topics/orders/partitions?p=0&offset=100")
    expect(segments(page, 0)).to_contain_text("50 segments, offsets 100 to 200")
    page.reload()
    expect(segments(page, 0)).to_contain_text("50 segments, offsets 100 to 200")
    page.get_by_label("From offset").fill("231")
    page.keyboard.press("Enter")
    expect(segments(page, 0).locator("tbody tr")).to_have_count(5)
    segments(page, 0).get_by_role("link", name="230, show its messages").click()
    expect(page).to_have_url(f"{url}/console/topics/orders?p=0&from=230")


def test_a_segment_says_what_was_aborted_in_it_and_is_downloaded(look, orders, url):
    page = look.at("topics/orders/partitions?p=2")
    expect(segments(page, 2).get_by_role("row").nth(1)).to_contain_text(re.compile("0 to 3 of producer [0-9]+"))
    with page.expect_download() as download:
        segments(page, 2).get_by_role("link", name="Download the segment from 0").click()
    assert download.value.suggested_filename == "orders-2-0.segment"
    first = ask(url, "GET", "/topics/orders/partitions/2/segments")["segments"][0]
    assert download.value.path().stat().st_size == first["bytes"]


def test_an_offset_outside_of_the_log_says_so_and_leads_back(look, orders):
    look.may_fail = True
    page = look.at("topics/orders/partitions?p=1&offset=5")
    expect(page.get_by_role("alert")).to_contain_text("OFFSET_OUT_OF_RANGE")
    segments(page, 1).get_by_role("link", name="Show the first segments").click()
    expect(segments(page, 1)).to_contain_text("1 segment, offsets 10 to 20")
    expect(segments(page, 1).get_by_role("link", name="10, show its messages")).to_have_attribute(
        "href", "/console/topics/orders?p=1&from=12"
    )


def test_an_empty_partition_says_what_fills_it(look, orders):
    page = look.at("topics/orders/partitions?p=3")
    expect(segments(page, 3)).to_contain_text("echo book | fenceline produce orders --partition 3")


def test_a_whole_partition_is_verified_range_by_range(look, orders):
    page = look.at("topics/orders/partitions?p=0")
    segments(page, 0).get_by_role("button", name="Verify").click()
    said = segments(page, 0).get_by_text("Whole: 120 segments with 240 records checked to offset 240.")
    expect(said).to_contain_text("Each checksum holds, and the chain is unbroken.")
    expect(page.get_by_role("progressbar", name="Checked")).to_have_attribute("aria-valuenow", "100")
    expect(page.locator(".chain i")).to_have_count(2)  # 100 segments a request
    page.get_by_role("link", name="1, show its segments").click()
    expect(segments(page, 1).get_by_role("button", name="Verify", exact=True)).to_be_visible()
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_a_damaged_segment_is_found_with_its_key_and_offset(look, url, data):
    look.may_fail = True  # the messages there cannot be read
    topic_id = ask(url, "POST", "/topics", {"name": "hurt"})["topic_id"]
    for n in range(5):
        append(url, "hurt", 0, [f"{n}a", f"{n}b"])
    key = damage(data, topic_id, 0, 4)
    page = look.at("topics/hurt/partitions?p=0")
    segments(page, 0).get_by_role("button", name="Verify").click()
    expect(segments(page, 0)).to_contain_text("1 finding. 5 segments with 8 records checked to offset 10.")
    finding = segments(page, 0).get_by_role("listitem")
    expect(finding).to_contain_text("a batch does not match its CRC")
    expect(finding).to_contain_text(key)
    assert axe_finds(page) == ""
    finding.get_by_role("link", name="4", exact=True).click()
    expect(page).to_have_url(f"{url}/console/topics/hurt?p=0&from=4")


def test_a_check_is_stopped_and_says_how_far_it_came(look, orders):
    look.may_fail = True
    page = look.page()
    # The first range is answered, and no other.
    page.route(re.compile(r"/verify\?offset=[1-9]"), lambda route: None)
    page.goto("/console/topics/orders/partitions?p=0")
    segments(page, 0).get_by_role("button", name="Verify").focus()
    page.keyboard.press("Enter")
    expect(segments(page, 0)).to_contain_text(
        "100 segments with 200 records checked to offset 200, without a finding so"
    )
    expect(page.get_by_role("progressbar", name="Checked")).to_have_attribute("aria-valuenow", "83")
    page.keyboard.press("Enter")  # the same button stops it
    expect(segments(page, 0)).to_contain_text("without a finding so far; stopped.")
    page.unroute_all(behavior="ignoreErrors")


def test_a_check_that_is_refused_says_so(look, orders):
    look.may_fail = True
    page = look.page()
    problem = {"code": "NOT_AUTHORIZED", "detail": "not this path", "status": 403}
    page.route("**/verify?*", lambda route: route.fulfill(status=403, json=problem))
    page.goto("/console/topics/orders/partitions?p=0")
    segments(page, 0).get_by_role("button", name="Verify").click()
    expect(segments(page, 0).get_by_role("alert")).to_contain_text("NOT_AUTHORIZED")
    expect(segments(page, 0).locator("tbody tr")).to_have_count(50)


def test_a_thousand_partitions_are_paged_and_freeze_nothing(look, url):
    ask(url, "POST", "/topics", {"name": "wide", "partitions": 1000})
    page = look.page()
    page.add_init_script(LONG_TASKS)
    page.goto("/console/topics/wide/partitions?p=400")
    expect(segments(page, 400)).to_contain_text("No segment is kept here")
    parts = page.get_by_role("region", name="Partitions")
    expect(parts.locator("tbody tr")).to_have_count(50)
    expect(parts).to_contain_text("400 to 449, of 1,000 partitions")
    parts.get_by_role("link", name="Next").click()
    expect(row(page, 450)).to_be_visible()
    longest = page.evaluate("window.longest")
    print(f"longest task with 1,000 partitions: {longest:.0f} ms")
    assert longest < 1000


def test_a_refusal_of_what_is_open_leaves_the_rest(look, orders):
    look.may_fail = True
    problem = {"code": "NOT_AUTHORIZED", "detail": "not this path", "status": 403}
    page = look.page()
    page.route("**/open-transactions?*", lambda route: route.fulfill(status=403, json=problem))
    page.goto("/console/topics/orders/partitions?p=0")
    expect(page.get_by_role("alert")).to_contain_text("NOT_AUTHORIZED")
    expect(row(page, 2)).to_contain_text("wait at 4")
    expect(segments(page, 0).locator("tbody tr")).to_have_count(50)


def test_a_silent_service_is_said_once_and_what_was_shown_stays(look, orders):
    look.may_fail = True
    page = look.at("topics/orders/partitions")
    expect(row(page, 2)).to_contain_text("billing-0")
    page.route("**/v1/**", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(row(page, 2)).to_contain_text("wait at 4")
    page.unroute("**/v1/**")
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(look, orders, scheme):
    page = look.at("topics/orders/partitions?p=2", scheme=scheme)
    expect(segments(page, 2)).to_contain_text("4 segments")
    expect(row(page, 2)).to_contain_text("billing-0")
    assert axe_finds(page) == ""


def test_a_narrow_window_is_not_overflowed(look, orders):
    page = look.at("topics/orders/partitions?p=2", width=420)
    expect(segments(page, 2)).to_contain_text("4 segments")
    assert overflow(page) <= 0


def test_no_heading_is_cut_in_a_window_of_1300(look, orders):
    page = look.at("topics/orders/partitions", width=1300)
    expect(page.get_by_role("columnheader", name="Compacted to")).to_be_visible()
    assert (
        page.locator(".parts th").evaluate_all(
            "cells => cells.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
        )
        == []
    )
