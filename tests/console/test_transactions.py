"""Transactions: which one holds up readers, what ends it, and what hangs."""

import re
import sqlite3

import pytest
from playwright.sync_api import expect

from fenceline.format import keys
from tests.console.asking import append, ask, begin, end
from tests.console.conftest import axe_finds, overflow

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp"


@pytest.fixture
def opened(url):
    """Open a transaction, and abort it at the end if it is still open."""
    pairs = []

    def open_one(transactional_id, *places, **given):
        for topic, _ in places:
            if topic not in [one["name"] for one in ask(url, "GET", "/topics?limit=1000")["topics"]]:
                ask(url, "POST", "/topics", {"name": topic, "partitions": 4})
        pairs.append((transactional_id, begin(url, transactional_id, *places, **given)))
        return pairs[-1][1]

    yield open_one
    for transactional_id, pair in pairs:
        listed = ask(url, "GET", f"/transactions?producer_id={pair['producer_id']}")["transactions"]
        if listed and listed[0]["state"] == "Ongoing" and listed[0]["producer_epoch"] == pair["producer_epoch"]:
            end(url, transactional_id, pair, "abort")


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def forget(data, *items):
    """Delete items behind the server's back."""
    with sqlite3.connect(data / "items.sqlite3") as connection:
        (table,) = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for key in items:
            assert connection.execute(f"DELETE FROM {table} WHERE partition = ? AND sort = ?", key).rowcount == 1
    connection.close()


def test_nothing_under_way_is_said_with_what_was_looked_at(look, url):
    ask(url, "POST", "/topics", {"name": "quiet", "partitions": 3})
    page = look.at("transactions")
    expect(page.get_by_role("main")).to_contain_text("No reader of committed records waits for a transaction.")
    expect(page.get_by_role("main")).to_contain_text("fenceline txn run")
    expect(page.get_by_role("region", name="Hanging")).to_contain_text(
        re.compile("Nothing hangs there. Looked at [0-9]+ topics? with [0-9]+ partitions, at [0-9:]{8}.")
    )


def test_the_transaction_that_holds_readers_up_is_named_and_gone_once_it_is_fenced(look, opened, url):
    opened("bystander", ("elsewhere", 0))
    append(url, "elsewhere", 1, ["no reader waits here"])
    opened("billing-0", ("orders", 3), ("orders", 1))
    append(url, "orders", 3, ["behind"] * 7)
    page = look.at("transactions")
    expect(row(page, "billing-0")).to_contain_text(re.compile("readers of orders/1 wait at 0, and 1 other"))
    row(page, "billing-0").get_by_role("link", name="billing-0").click()
    expect(page.get_by_role("list", name="Partitions")).to_contain_text("lie within 0 to 9, the last offset")
    expect(page).to_have_url(f"{url}/console/transactions?open=billing-0")

    row(page, "billing-0").get_by_role("button", name="Fence billing-0").click()
    box = page.get_by_role("dialog")
    expect(box).to_contain_text("readers never see what it wrote to orders/1, orders/3")
    expect(box.get_by_role("button", name="Fence it")).to_be_disabled()
    box.get_by_label("Type billing-0 to confirm").fill("billing-0")
    box.get_by_role("button", name="Fence it").click()
    expect(row(page, "bystander")).to_be_visible()
    expect(row(page, "billing-0")).to_have_count(0)
    expect(page.get_by_role("main")).not_to_contain_text("orders/")
    offsets = ask(url, "GET", "/topics/orders/partitions/3/offsets")
    assert offsets["last_stable_offset"] == offsets["next_offset"]


def test_the_one_behind_another_says_so_and_takes_its_place(look, opened, url):
    first = opened("first", ("queue", 0))
    opened("second", ("queue", 0))
    page = look.at("transactions")
    expect(row(page, "first")).to_contain_text("readers of queue/0 wait at 0")
    expect(row(page, "second")).to_contain_text("nothing yet: it is behind another in queue/0")
    end(url, "first", first, "commit")
    expect(row(page, "second")).to_contain_text("readers of queue/0 wait at 3")
    expect(row(page, "first")).to_have_count(0)


def test_the_place_where_readers_wait_leads_to_the_messages_there(look, opened, url):
    opened("leads", ("lead", 2))
    page = look.at("transactions")
    expect(page.get_by_text("Readers of lead/2 wait at 0 for leads.")).to_be_visible()
    row(page, "leads").get_by_role("link", name="0", exact=True).click()
    expect(page).to_have_url(f"{url}/console/topics/lead?p=2&from=0&all=1")
    expect(page.get_by_role("table").get_by_role("row").nth(1)).to_contain_text("open")


def test_what_hangs_is_named_and_aborted(look, opened, url, data):
    pair = opened("lost", ("torn", 2))
    forget(data, keys.transaction_item("lost"), keys.transactional_id_item(pair["producer_id"]))
    append(url, "torn", 2, ["behind"])
    page = look.at("transactions")
    hanging = page.get_by_role("region", name="Hanging")
    expect(hanging.get_by_role("row")).to_have_count(2)
    expect(hanging).to_contain_text("readers of torn/2 wait at 0")
    expect(page.get_by_role("main")).to_contain_text("what hangs")
    hanging.get_by_role("button", name="Abort what hangs in torn/2").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Type torn/2 to confirm").fill("torn/2")
    box.get_by_role("button", name="Abort it").click()
    expect(hanging).to_contain_text("Nothing hangs there.")
    assert ask(url, "GET", "/topics/torn/partitions/2/offsets")["last_stable_offset"] == 5


def test_hostile_ids_are_text_and_can_be_fenced(look, opened):
    opened(HOSTILE, ("evil", 0))
    opened("__proto__", ("evil", 1))
    page = look.at("transactions")
    shown = "<img src=x onerror=alert(1)>⟨202E⟩gnp"
    expect(row(page, shown)).to_contain_text("readers of evil/0 wait at 0")
    expect(row(page, "__proto__")).to_contain_text("readers of evil/1 wait at 0")
    assert page.locator("main img").count() == 0
    row(page, shown).get_by_role("button", name="Fence").click()
    page.get_by_role("dialog").get_by_label("to confirm").fill(shown)
    page.get_by_role("dialog").get_by_role("button", name="Fence it").click()
    expect(row(page, shown)).to_have_count(0)


def test_a_principal_that_may_not_list_all_sees_its_own_and_what_is_open_in_topics(look, opened):
    look.may_fail = True
    opened("theirs", ("shared", 1))
    problem = {"code": "NOT_AUTHORIZED", "detail": "not this path", "status": 403}
    page = look.page()
    page.route("**/v1/operator/**", lambda route: route.fulfill(status=403, json=problem))
    page.route("**/v1/transactions?*", lambda route: route.fulfill(json={"transactions": [], "has_more": False}))
    about = {"version": "1", "is_read_only": True, "has_export": True, "refresh_ms": 1000, "regions": []}
    page.route("**/console/about.json", lambda route: route.fulfill(json=about))
    page.goto("/console/transactions")
    expect(row(page, "theirs")).to_contain_text("readers of shared/1 wait at 0")
    expect(page.get_by_role("navigation", name="Pages of transactions")).to_contain_text("only of ids of your own")
    expect(page.get_by_role("button", name="Fence")).to_have_count(0)
    page.route("**/v1/topics?*", lambda route: route.fulfill(status=403, json=problem))
    page.get_by_role("button", name="Look again").click()
    expect(page.get_by_role("alert")).to_contain_text("NOT_AUTHORIZED")
    expect(row(page, "theirs")).to_be_visible()


def test_thousands_are_paged(look):
    listed = [
        {"transactional_id": f"t-{n:05}", "state": "Ongoing", "producer_id": n, "producer_epoch": 0, "groups": []}
        | {"transaction_timeout_ms": 60_000, "started_at": 1_000 + n, "partitions": []}
        for n in range(3_000)
    ]
    page = look.page()
    answer = {"transactions": listed, "has_more": False}
    page.route("**/v1/operator/transactions?*", lambda route: route.fulfill(json=answer))
    page.goto("/console/transactions")
    under_way = page.get_by_role("region", name="Under way")
    expect(under_way.locator("tbody tr")).to_have_count(50)
    under_way.get_by_role("link", name="Next").click()
    expect(under_way).to_contain_text("51 to 100 of 3,000")
    expect(row(page, "t-00050")).to_contain_text(re.compile("timed out.*ends soon"))


def test_by_keyboard_alone_a_transaction_is_opened_and_fenced(look, opened):
    opened("keys", ("typing", 0))
    page = look.at("transactions")
    row(page, "keys").get_by_role("link", name="keys").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Partitions")).to_be_visible()
    page.keyboard.press("Tab")  # the place where readers wait
    page.keyboard.press("Tab")
    expect(row(page, "keys").get_by_role("button", name="Fence keys")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_label("to confirm").focus()
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    expect(row(page, "keys")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(look, opened, scheme):
    opened(f"axe-{scheme}", ("axe", 0), ("axe", 1))
    page = look.at(f"transactions?open=axe-{scheme}", scheme=scheme)
    expect(page.get_by_role("list", name="Partitions")).to_be_visible()
    assert axe_finds(page) == ""
    page.get_by_role("button", name="Fence its producer…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert axe_finds(page) == ""


def test_a_narrow_window_is_not_overflowed(look, opened):
    opened("narrow-" * 20, ("narrow", 0))
    page = look.at(f"transactions?open={'narrow-' * 20}", width=420)
    expect(page.get_by_role("list", name="Partitions")).to_contain_text("readers of narrow/0 wait at 0")
    assert overflow(page) <= 0
    page.get_by_role("button", name="Fence its producer…").click()
    expect(page.get_by_role("dialog", name="Fence a transactional id?")).to_be_visible()
