"""Subscriptions: the most behind first, the marks of one in each partition, and the members of its group."""

import json
import re
import threading

import pytest
from playwright.sync_api import expect

from fenceline import Client, Record
from tests.console.conftest import axe_finds, overflow

HOSTILE = "<img src=x onerror=alert(1)>"
PLACES = (
    "subscriptions",
    "topics/orders/subscriptions",
    "topics/orders/subscriptions/billing",
    "subscriptions/workers",
)


@pytest.fixture(scope="module")
def shop(client, url):
    """Orders in two partitions; one reader behind, one with holes, one caught up, an owner and a group."""
    client.create_topic("orders", partitions=2)
    client.create_topic("returns")
    for name in ("billing", "audit", "index"):
        client.create_subscription("orders", name, initial_position="earliest")
    for n in range(60):
        client.create_subscription("returns", f"reader-{n:02d}")
    with client.producer("orders") as producer:
        for partition in (0, 1):
            producer.send_many([Record(b"v") for _ in range(500)], partition=partition)
    client.acknowledge("orders", "billing", 0, cumulative=99)
    client.acknowledge("orders", "billing", 0, individual=[*range(200, 250), *range(300, 310)])
    client.acknowledge("orders", "billing", 1, cumulative=499)
    for partition in (0, 1):
        client.acknowledge("orders", "audit", partition, cumulative=499)
    over, joined = threading.Event(), threading.Event()

    def work():
        with (
            Client(url, client_name="worker-1:7") as member,
            member.consumer("orders", group="workers", start="earliest") as consumer,
        ):
            next(iter(consumer))
            joined.set()
            over.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    with Client(url, client_name=HOSTILE) as other, other.own(["orders/0"], group="index"):
        assert joined.wait(60)
        yield
    over.set()
    thread.join(60)


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def names(page):
    return page.get_by_role("region", name="Subscriptions").locator("tbody tr td:first-child").all_inner_texts()


def test_the_most_behind_comes_first_and_says_by_how_much(look, shop, url):
    page = look.at("subscriptions?q=orders")
    for name, texts in {
        "index": ("orders", "1,000", "ago", "no"),
        "billing": ("340",),
        "audit": ("caught up", "none"),
        "workers": ("1 member",),
    }.items():
        for text in texts:
            expect(row(page, name)).to_contain_text(text)
    assert names(page).index("index") < names(page).index("billing") < names(page).index("audit")
    page.get_by_role("button", name="Time").click()
    expect(page).to_have_url(f"{url}/console/subscriptions?q=orders&by=time")
    expect(row(page, "billing")).to_be_visible()
    row(page, "billing").get_by_role("link", name="billing").click()
    expect(page).to_have_url(f"{url}/console/topics/orders/subscriptions/billing")
    expect(page).to_have_title("billing · orders · Subscriptions · fenceline")


def test_the_line_of_a_backlog_grows_while_the_page_is_open(look, shop, client):
    client.create_topic("growing")
    client.create_subscription("growing", "slow", initial_position="earliest")
    page = look.at("topics/growing/subscriptions")
    line = row(page, "slow").get_by_role("img")
    expect(line).to_have_attribute("aria-label", re.compile("0 to 0 records"))
    client.produce("growing", 0, [Record(b"v"), Record(b"v")])
    expect(line).to_have_attribute("aria-label", re.compile("0 to 2 records"))
    expect(row(page, "slow").locator("td").nth(1)).to_have_text("2")


def test_a_subscription_shows_its_marks_its_holes_and_leads_to_the_record_at_its_mark(look, shop, url):
    page = look.at("topics/orders/subscriptions/billing")
    first = page.get_by_role("region", name="Partitions").get_by_role("row").nth(1)
    for text in ("100", "340", "60 in 2 ranges", "Read here"):
        expect(first).to_contain_text(text)
    expect(first.get_by_role("img")).to_have_attribute("aria-label", "from 200 to 309, of 100 to 500")
    expect(page.get_by_role("main")).to_contain_text("340 behind")
    expect(page.get_by_role("main")).to_contain_text("No consumer group has this name")
    expect(first.get_by_role("link", name="Read here")).to_have_attribute("href", "/console/topics/orders?p=0&from=100")
    page.get_by_role("link", name="On all topics").click()  # there is no group of this name
    expect(page).to_have_url(f"{url}/console/subscriptions?q=billing")
    row(page, "billing").get_by_role("cell").nth(2).click()
    expect(page).to_have_url(f"{url}/console/topics/orders/subscriptions/billing")


def test_an_owners_name_is_text_however_it_is_made(look, shop):
    page = look.at("topics/orders/subscriptions/index")
    first = page.get_by_role("region", name="Partitions").get_by_role("row").nth(1)
    expect(first).to_contain_text(HOSTILE)
    page.goto("/console/subscriptions?q=index")
    expect(row(page, "index")).to_contain_text(HOSTILE)


def test_a_groups_members_are_shown_with_their_partitions_epochs_and_heartbeats(look, shop, url):
    page = look.at("subscriptions?q=workers")
    page.get_by_role("link", name="1 member").click()
    expect(page).to_have_url(f"{url}/console/subscriptions/workers")
    expect(page.get_by_role("heading", level=1)).to_have_text("Subscriptions / workers")
    member = page.get_by_role("region", name="Members").get_by_role("row").nth(1)
    for text in ("worker-1:7", "orders: 0, 1", "1", re.compile("just now|ago"), "works"):
        expect(member).to_contain_text(text)
    expect(page.get_by_role("main")).to_contain_text("native group")
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("region", name="Members").get_by_role("row").nth(1)).to_contain_text("worker-1:7")
    expect(page.get_by_role("region", name="Partitions").get_by_role("row").nth(2)).to_contain_text("worker-1:7")
    page.get_by_role("link", name="On all topics").click()
    expect(page).to_have_url(f"{url}/console/subscriptions/workers")


def test_a_long_list_has_pages_that_the_keyboard_reaches(look, shop, url):
    page = look.at("subscriptions?q=reader")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{url}/console/subscriptions?q=reader&from=50")
    expect(page.get_by_role("status").filter(has_text="51 to 60 of 60")).to_be_visible()
    page.get_by_role("link", name="reader-59").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2, name="reader-59")).to_be_visible()


def test_of_ten_thousand_subscriptions_a_part_is_looked_at_until_more_is_asked_for(look, shop):
    page = look.page()
    asked = []

    def answer(route):
        after = re.search(r"start_after=t%2Fs-(\d+)", route.request.url)
        first = int(after[1]) + 1 if after else 0
        asked.append(first)
        some = [
            {"name": f"s-{n:05d}", "topic": "t", "replicate_subscription_state": False, "backlog": n, "owner": None}
            for n in range(first, first + 50)
        ]
        more = first + 50 < 10_000
        body = {"subscriptions": some, "has_more": more, "go_on_after": f"t/s-{first + 49:05d}"}
        route.fulfill(body=json.dumps(body), content_type="application/json")

    page.route("**/v1/subscriptions?**", answer)
    page.goto("/console/subscriptions")
    expect(page.get_by_text("The first 1,000 subscriptions were looked at")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("s-00999")
    page.get_by_role("button", name="Look at 1,000 more").click()
    expect(page.get_by_text("The first 2,000 subscriptions were looked at")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(50)
    assert max(asked) == 1950


def test_what_may_not_be_seen_leaves_the_rest_to_be_seen(look, shop):
    look.may_fail = True
    page = look.page()
    denied = json.dumps({"code": "NOT_AUTHORIZED", "detail": "not for you", "status": 403})
    page.route("**/v1/groups*", lambda route: route.fulfill(status=403, body=denied, content_type="application/json"))
    page.goto("/console/subscriptions?q=orders")
    expect(page.get_by_role("alert")).to_contain_text("not for you")
    expect(row(page, "billing")).to_contain_text("340")
    page.goto("/console/topics/orders/subscriptions/billing")
    expect(page.get_by_role("alert")).to_contain_text("not for you")
    expect(page.get_by_role("main")).to_contain_text("340 behind")


def test_a_name_in_the_address_that_no_subscription_has_is_text(look, shop):
    look.may_fail = True
    page = look.at("topics/orders/subscriptions/%E2%80%AE%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    expect(page.get_by_role("heading", level=2).first).to_have_text("⟨202E⟩<script>alert(1)</script>")
    expect(page).to_have_title("⟨202E⟩<script>alert(1)</script> · orders · Subscriptions · fenceline")
    expect(page.get_by_role("alert").first).to_contain_text("UNKNOWN_SUBSCRIPTION")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_overflows(look, shop, scheme):
    for place in PLACES:
        page = look.at(f"{place}?q=orders", scheme=scheme, width=420)
        expect(page.locator("tbody tr:not(.loading)").first).to_be_visible()
        assert overflow(page) <= 0, place
        assert axe_finds(page) == "", place
