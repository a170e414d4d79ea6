"""A topic's messages: from each place, filtered, live, one of them whole, and what is written and saved from here."""

import json
import re
import time
from contextlib import suppress

import httpx
import pytest
from playwright.sync_api import expect

from fenceline import Record
from tests.console.conftest import axe_finds, overflow

T0 = 1_700_000_000_000
MANY = 60_000


def order(n):
    """Return a record of the topic ``orders``; the number is in its key, its value, its header and its time."""
    value = json.dumps({"order": f"o-{n:05}", "total": n, "status": "refused" if n % 10 == 0 else "paid"}).encode()
    return Record(value, key=f"k{n % 7}".encode(), headers=[("trace", f"t{n:05}".encode())], timestamp=T0 + n * 1000)


@pytest.fixture(scope="module")
def logs(client, url):
    """Orders in four partitions, large records, a compacted ledger, transactions that aborted, committed, are open."""
    client.create_topic("orders", partitions=4)
    with client.producer("orders") as producer:
        for p in range(4):
            producer.send_many([order(n) for n in range(p, 1200, 4)], partition=p)
    client.create_subscription("orders", "billing", initial_position="earliest")
    client.create_topic("large", partitions=2)
    with client.producer("large") as producer:
        for n in range(12):
            producer.send(key=f"l{n}".encode(), value=f"{n:02}".encode() * 150_000, partition=n % 2, timestamp=T0 + n)
    client.create_topic("ledger", config={"cleanup.policy": "compact"})
    for epoch in range(2):
        with client.producer("ledger", access_mode="Exclusive") as producer:
            producer.send_many([Record(f"{epoch}-{n}".encode(), key=f"acct-{n % 5}".encode()) for n in range(20)])
    httpx.post(f"{url}/v1/topics/ledger/partitions/0/compact", json={}).raise_for_status()
    client.create_topic("decided", partitions=2)
    with client.producer("decided") as producer:
        producer.send(value=b"plain", partition=0)
    with client.transactional_producer("t-1") as producer:
        with suppress(ZeroDivisionError), producer.transaction() as txn:
            txn.send("decided", value=b"given up", partition=0)
            txn.flush()
            raise ZeroDivisionError
        with producer.transaction() as txn:
            txn.send("decided", value=b"done", partition=0)
    with client.transactional_producer("t-2", timeout_ms=600_000) as producer, producer.transaction() as txn:
        txn.send("decided", value=b"under way", partition=1)
        txn.flush()
        yield


def offsets(page, limit=None):
    """Return what the rows show, as partition:offset."""
    return page.locator(".records tbody tr").evaluate_all("rows => rows.map(r => r.dataset.id)")[:limit]


def foot(page):
    return page.locator(".sheet .foot")


def hide(page):
    page.evaluate(
        """() => { Object.defineProperty(document, "hidden", { value: true, configurable: true });
        document.dispatchEvent(new Event("visibilitychange")); }"""
    )


def show(page):
    page.evaluate("() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); }")


def test_newest_and_oldest_begin_at_the_ends_and_go_on(look, logs, url):
    page = look.at("topics/orders")
    expect(foot(page)).to_contain_text("100 shown")
    assert offsets(page, 5) == ["3-299", "2-299", "1-299", "0-299", "3-298"]
    page.get_by_role("button", name="100 more").click()
    expect(foot(page)).to_contain_text("200 shown")
    assert offsets(page)[-1] == "0-250"
    page.get_by_role("button", name="Oldest").click()
    expect(page).to_have_url(f"{url}/console/topics/orders?from=oldest")
    expect(page.locator(".records tbody tr").first).to_have_attribute("data-id", "0-0")
    assert offsets(page, 5) == ["0-0", "1-0", "2-0", "3-0", "0-1"]


def test_an_offset_and_a_time_are_places_and_stay_in_the_address(look, logs, url):
    page = look.at("topics/orders", timezone_id="Asia/Tokyo")
    page.get_by_role("button", name="Offset…").click()
    page.get_by_role("dialog").get_by_label("Offset").fill("250")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{url}/console/topics/orders?from=250")
    expect(page.locator(".records tbody tr").first).to_have_attribute("data-id", "0-250")
    page.get_by_role("button", name="Time…").click()
    dialog = page.get_by_role("dialog", name="Begin at a time")
    dialog.get_by_label("Your time (Asia/Tokyo)").fill("2023-11-15T07:23:20")
    expect(dialog.get_by_role("status")).to_have_text("2023-11-14 22:23:20 UTC")
    dialog.get_by_role("button", name="Show").click()
    expect(page.locator(".records tbody tr").first).to_have_attribute("data-id", "0-150")
    page.reload()
    expect(page.get_by_role("button", name="Time 2023-11-15 07:23:20…")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".records tbody tr").first).to_have_attribute("data-id", "0-150")


def test_a_filter_goes_from_the_chosen_end_and_says_what_it_looked_at(look, logs):
    page = look.at("topics/orders?q=.status%3Drefused%20-header.trace:t0119*")
    expect(foot(page)).to_contain_text(re.compile(r"100 shown, of 1,0\d\d looked at \(\d+ KiB\)"))
    assert page.locator(".records tbody tr").first.inner_text().count("o-01180") == 1
    page.get_by_role("searchbox").fill(".total>9000")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No message matches")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("1,200 messages were looked at, to the end of the log")
    page.get_by_role("button", name="Clear the filter").click()
    expect(foot(page)).to_contain_text("100 shown")


def test_a_term_that_is_read_as_text_is_said_to_be_and_the_language_is_listed(look, logs):
    page = look.at("topics/orders?q=total%3E600")
    expect(page.get_by_role("note")).to_have_text(
        "total>600 is read as text. Members of a JSON value begin with a dot: .total>600"
    )
    page.get_by_role("searchbox").fill(".total>600")
    page.keyboard.press("Enter")
    expect(foot(page)).to_contain_text("100 shown")
    expect(page.get_by_role("note")).to_have_count(0)
    page.get_by_role("button", name="Keys and the filter").click()
    expect(page.get_by_role("dialog", name="Keys and the filter")).to_contain_text("header.trace:7f*")


def test_back_takes_one_choice_back(look, logs, url):
    orders = f"{url}/console/topics/orders"
    page = look.at("topics/orders")
    page.get_by_role("button", name="Oldest").click()
    page.get_by_role("button", name="2 300", exact=True).click()
    expect(page).to_have_url(f"{orders}?from=oldest&p=2")
    expect(page.locator(".records tbody tr").first).to_have_attribute("data-id", "2-0")
    page.get_by_role("button", name="Partition 2, offset 0").click()
    page.keyboard.press("j")
    expect(page).to_have_url(f"{orders}?from=oldest&p=2&open=2-1")
    page.go_back()
    expect(page).to_have_url(f"{orders}?from=oldest&p=2")
    expect(page.locator(".detail")).to_have_count(0)
    page.get_by_role("button", name="Partition 2, offset 0").click()
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{orders}?from=oldest&p=2")
    page.go_back()
    expect(page).to_have_url(f"{orders}?from=oldest")
    page.go_back()
    expect(page).to_have_url(orders)


def test_a_copied_link_shows_the_record_in_its_place_without_the_filter(look, logs, url):
    page = look.at("topics/orders?q=o-00030&open=2-7")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied")).to_be_visible()
    assert page.evaluate("window.copied") == f"{url}/console/topics/orders?open=2-7&p=2&from=0"
    page.goto(page.evaluate("window.copied"))
    expect(page.locator("tr.chosen")).to_have_attribute("data-id", "2-7")


def test_a_copied_value_is_the_whole_value_as_it_is_stored(look, logs):
    page = look.at("topics/large?open=1-5")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy value").click()
    expect(page.get_by_text("Value copied")).to_be_visible()
    assert page.evaluate("window.copied") == "11" * 150_000


def test_of_a_topic_that_is_not_there_nothing_is_offered_but_the_topics(look, logs):
    look.may_fail = True
    page = look.at("topics/nothing-here")
    expect(page.get_by_role("alert")).to_contain_text("nothing-here")
    expect(page.get_by_role("main").get_by_role("link", name="Show the topics")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_have_count(0)
    expect(page.get_by_role("table")).to_have_count(0)


def test_pages_that_are_cut_by_bytes_lose_no_record(look, logs):
    page = look.at("topics/large?q=l")
    expect(foot(page)).to_contain_text("12 shown, of 12 looked at (3.4 MiB)")
    assert offsets(page) == [f"{n % 2}-{n // 2}" for n in range(11, -1, -1)]


def test_a_link_opens_its_record_whole_wherever_the_list_is(look, logs):
    page = look.at("topics/orders?open=2-7")
    detail = page.get_by_role("region", name="Partition 2, offset 7")
    expect(detail).to_contain_text("o-00030")
    expect(detail).to_contain_text("2023-11-14T22:13:50.000Z")
    expect(detail.get_by_role("heading", name="Partition 2, offset 7")).to_be_visible()
    expect(detail.get_by_role("heading", name="Headers")).to_be_visible()
    expect(detail).to_contain_text("local time")
    expect(detail).to_contain_text("t00030")
    expect(detail).to_contain_text(re.compile(r"Batch.*0–299 · producer \d+ epoch 0 · "))
    page.goto("/console/topics/large?open=1-3")
    expect(page.get_by_role("region", name="Partition 1, offset 3")).to_contain_text("Part 1 of 19")
    page.goto("/console/topics/large?open=1-x")
    expect(page.get_by_role("region", name="No record")).to_contain_text("The address names no record")


def test_keys_lead_through_the_page(look, logs, url):
    page = look.at("topics/orders?from=oldest")
    expect(foot(page)).to_contain_text("100 shown")
    page.get_by_role("button", name="Partition 1, offset 0").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Partition 1, offset 0")).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("region", name="Partition 2, offset 0")).to_be_visible()
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile("open=1-0"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("next message")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{url}/console/topics/orders?from=oldest")
    page.keyboard.press("l")
    expect(page.get_by_role("button", name="Live")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_live_shows_what_comes_and_does_not_jump(look, client, url):
    client.create_topic("live", partitions=2)
    with client.producer("live") as producer:
        producer.send_many([Record(f"v{n}".encode()) for n in range(200)], partition=0)
    page = look.at("topics/live?live=1")
    expect(foot(page)).to_contain_text("Following all partitions")
    expect(foot(page)).to_contain_text("100 shown")
    with client.producer("live") as producer:
        producer.send(value=b"came while live", partition=1)
        expect(page.locator(".records tbody tr").first).to_contain_text("came while live")
        page.evaluate("scrollTo(0, 800)")
        at = page.evaluate("scrollY")
        producer.send_many([Record(f"burst {n}".encode()) for n in range(12)], partition=0)
        expect(page.get_by_role("button", name="12 new, above")).to_be_visible()
        assert page.evaluate("scrollY") == at
        page.get_by_role("button", name="12 new, above").click()
        expect(page.locator(".records tbody tr").first).to_contain_text("burst 11")
        hide(page)
        producer.send_many([Record(f"many {n}".encode()) for n in range(3000)], partition=0)
        producer.flush()
        show(page)
    expect(page.locator(".records tbody tr").first).to_contain_text("many 2999")
    expect(page.locator(".records .gap").first).to_contain_text(
        "… 2,500 offsets of partition 0 are skipped, from 212 on."
    )
    page.get_by_role("button", name="Read from there").click()
    expect(page.locator(".records tbody tr").first).to_contain_text("many 0")


def test_a_page_that_is_hidden_asks_nothing(look, logs):
    page = look.at("topics/orders?live=1")
    expect(foot(page)).to_contain_text("Following all partitions")
    hide(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("() => new Promise((done) => setTimeout(done, 2500))")
    assert asked == []
    with page.expect_request("**/offsets*"):
        show(page)


def test_what_is_not_committed_is_shown_in_all_alone_and_said_in_words(look, logs):
    page = look.at("topics/decided")
    expect(foot(page)).to_contain_text("2 shown")
    page.goto("/console/topics/decided?p=1&from=0")
    expect(page.get_by_role("main")).to_contain_text(
        "1 offset from 0 on is in or behind a transaction that has not ended"
    )
    expect(page.get_by_text("Send one")).to_have_count(0)
    page.get_by_role("button", name="Show all").click()
    expect(page).to_have_url(re.compile("all=1"))
    expect(page.get_by_role("row", name="under way")).to_be_visible()
    page.goto("/console/topics/decided")
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_role("row", name="given up")).to_have_class(re.compile("aborted"))
    expect(page.get_by_role("row", name="given up")).to_contain_text("aborted")
    expect(page.get_by_role("row", name="under way")).to_contain_text("open")
    page.get_by_role("row", name="under way").click()
    expect(page.get_by_role("region", name="Partition 1, offset 0")).to_contain_text("its transaction has not ended")


def test_a_compacted_topic_shows_the_newest_of_each_key(look, logs):
    page = look.at("topics/ledger")
    expect(foot(page)).to_contain_text("40 shown")
    page.get_by_role("button", name="Newest of each key").click()
    expect(foot(page)).to_contain_text("5 shown")
    assert sorted(page.locator(".records .value").all_inner_texts()) == [f"1-{n}" for n in range(15, 20)]


def test_the_ruler_says_where_the_page_is_and_a_click_goes_there(look, logs, url):
    page = look.at("topics/orders?p=1&from=150")
    ruler = page.get_by_role(
        "img", name=re.compile("Partition 1, from offset 0 to 300; shown 150 to 249; subscriptions: billing at 0")
    )
    expect(ruler).to_be_visible()
    ruler.click(position={"x": ruler.bounding_box()["width"] * 0.9, "y": 8})
    expect(page.locator(".records tbody tr").first).to_have_attribute("data-id", re.compile("^1-2(69|7[01])$"))
    expect(page.locator(".ruler .mark em")).to_have_text("billing")
    page.goto("/console/topics/ledger")
    expect(page.get_by_role("img", name=re.compile("fences: epoch 0 at 0, epoch 1 at 21"))).to_be_visible()


def test_a_record_is_written_by_its_key_and_shown(look, logs, client, url):
    page = look.at("topics/orders")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog", name="Write a record")
    dialog.get_by_label("Key").fill("k3")
    dialog.get_by_label("Value").fill('{"written": "here"}')
    dialog.get_by_label("Headers, one a line").fill("trace: by hand\nempty:")
    dialog.get_by_role("button", name="Write").click()
    expect(dialog).to_have_count(0)
    with client.producer("orders") as producer:
        delivery = producer.send(key=b"k3", value=b"next")
    partition, offset = re.search(r"open=(\d)-(\d+)", page.url).groups()
    assert (int(partition), int(offset) + 1) == (delivery.result(10).partition, delivery.result(10).offset)
    expect(foot(page)).to_contain_text(f"Written: partition {partition}, offset {offset}")
    detail = page.get_by_role("region", name=f"Partition {partition}, offset {offset}")
    expect(detail).to_contain_text('"written": "here"')
    expect(detail).to_contain_text("by hand")


def test_what_is_shown_is_saved_as_lines_with_whole_values(look, logs):
    page = look.at("topics/large")
    expect(foot(page)).to_contain_text("12 shown")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export JSONL").click()
    expect(foot(page)).to_contain_text("12 records exported")
    lines = [json.loads(line) for line in saved.value.path().read_text().splitlines()]
    assert [(r["partition"], r["offset"], len(r["value"])) for r in lines] == [
        (n % 2, n // 2, 300_000) for n in range(11, -1, -1)
    ]
    assert (lines[0]["key"], lines[0]["timestamp"], lines[0]["encoding"], lines[0]["topic"]) == (
        "l11",
        T0 + 11,
        "utf8",
        "large",
    )


def test_without_export_and_writing_neither_is_offered(look, logs):
    page = look.page()
    about = {"version": "", "is_read_only": True, "has_export": False, "refresh_ms": 1000}
    about["regions"] = [{"name": "a", "path": ""}]
    page.route("**/console/about.json", lambda route: route.fulfill(json=about))
    page.goto("/console/topics/orders?open=0-1")
    expect(page.get_by_role("region", name="Partition 0, offset 1")).to_contain_text("o-00004")
    expect(page.get_by_role("button", name="Copy link")).to_be_visible()
    for name in ("Export JSONL", "Produce", "Copy value"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


@pytest.fixture(scope="module")
def many(client):
    client.create_topic("many", partitions=2)
    with client.producer("many") as producer:
        producer.send_many(
            Record(b'{"stars": %d, "text": "%s"}' % (n % 5, b"word " * 20), key=b"%d" % n) for n in range(MANY)
        )


def test_a_search_reads_thousands_of_records_a_second(look, many):
    page = look.at("topics/many?q=nothing%20like%20it")
    begun = time.perf_counter()
    expect(page.get_by_text("No message matches")).to_be_visible(timeout=60_000)
    print(f"{MANY / (time.perf_counter() - begun):,.0f} records a second")
    expect(page.get_by_role("main")).to_contain_text("60,000 messages were looked at")


def test_a_search_that_is_stopped_says_so_and_looks_further_when_asked(look, many):
    page = look.page()
    held = []
    page.route("**/partitions/1/records*", lambda route: held.append(route), times=1)
    with page.expect_request("**/partitions/1/records*"):
        page.goto("/console/topics/many?q=nothing%20like%20it")
    page.get_by_role("button", name="Stop").click()
    held[0].continue_()
    expect(foot(page)).to_contain_text("stopped")
    looked = re.search(r"of ([\d,]+) looked at", foot(page).inner_text())
    assert 0 < int(looked[1].replace(",", "")) < MANY
    page.get_by_role("button", name="Look further").click()
    expect(page.get_by_text("No message matches")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("main")).to_contain_text("60,000 messages were looked at")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(look, logs, scheme):
    page = look.at("topics/decided?all=1&open=0-1", scheme=scheme)
    expect(page.get_by_role("region", name="Partition 0, offset 1")).to_contain_text("aborted")
    assert axe_finds(page) == ""
    page.goto("/console/topics/orders?p=1&from=280&open=1-281")
    expect(page.get_by_role("region", name="Partition 1, offset 281")).to_contain_text("order")
    expect(page.get_by_role("img")).to_be_visible()
    assert axe_finds(page) == ""


def test_a_narrow_window_is_not_overflowed(look, logs):
    page = look.at("topics/orders?p=1", width=420)
    expect(foot(page)).to_contain_text("100 shown")
    expect(page.get_by_role("columnheader", name="Size")).to_be_hidden()
    assert overflow(page) <= 0
    assert (
        page.locator("td.number:visible").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).length")
        == 0
    )
