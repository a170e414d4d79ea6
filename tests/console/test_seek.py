"""A seek: its preview is what it then does, and one that stops in the middle says what was done."""

import datetime
import json
import re
import shlex
import subprocess
import sys
import threading
import time

import pytest
from playwright.sync_api import expect

from fenceline import Client, Record
from tests.console.conftest import axe_finds, overflow

PER_PARTITION = 100


@pytest.fixture(scope="module")
def topic(client):
    """Three partitions of records that are a second apart."""
    client.create_topic("orders", partitions=3)
    start = int(time.time() * 1000) - 3_600_000
    for partition in range(3):
        records = [Record(b"v", timestamp=start + n * 1000) for n in range(PER_PARTITION)]
        client.produce("orders", partition, records)
    return start


@pytest.fixture
def name(client, topic, request):
    """A subscription of its own for each test: half read, and one range acknowledged out of order."""
    name = re.sub(r"[^A-Za-z0-9]", "-", request.node.name)[-60:]
    client.create_subscription("orders", name, initial_position="earliest")
    for partition in range(3):
        client.acknowledge("orders", name, partition, cumulative=49)
    client.acknowledge("orders", name, 0, individual=range(60, 70))
    return name


def utc(ms):
    """Return a time as the page writes it."""
    return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} UTC"


def seek(name, query=""):
    return f"topics/orders/subscriptions/{name}/seek{query}"


def preview(page):
    """Return the rows of the preview as numbers: partition, from, to, skipped, repeated."""
    rows = page.get_by_role("region", name="Preview").locator("tbody tr")
    expect(rows).to_have_count(3)
    cells = [row.split("\t")[:5] for row in rows.all_inner_texts()]
    return [tuple(int(cell.replace(",", "")) for cell in row) for row in cells]


def cursors(client, name):
    return {one.partition: one for one in client.subscription("orders", name).partitions}


@pytest.mark.parametrize(
    ("place", "button"),
    [
        ("to=earliest", "Repeat 160 records"),
        ("to=latest", "Skip 140 records"),
        ("to=offset&n=65", "Skip 40 and repeat 5 records"),
        ("to=shift&n=-7", "Repeat 31 records"),
        ("to=shift&n=20", "Skip 50 records"),
        ("to=time", "Skip 30 and repeat 10 records"),
    ],
)
def test_the_preview_is_what_the_seek_then_does(look, client, name, topic, place, button):
    when = f"&n={topic + 60_000}" if place == "to=time" else ""
    page = look.at(seek(name, f"?{place}{when}"))
    expect(page.get_by_role("button", name=button, exact=True)).to_be_enabled()
    rows, before = preview(page), cursors(client, name)
    assert [row[1] for row in rows] == [before[p].mark_delete_offset for p in range(3)]
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    if when:
        expect(dialog).to_contain_text(f"{utc(topic + 60_000)}) or later.")
    if "Skip" in button:
        dialog.get_by_role("textbox").fill(name)
    dialog.get_by_role("button", name=button).click()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_contain_text("3 of 3 partitions moved")
    expect(page.get_by_text("would move")).to_have_count(0)
    after = cursors(client, name)
    for partition, _, to, skipped, repeated in rows:
        assert after[partition].mark_delete_offset == to
        assert after[partition].backlog == before[partition].backlog - skipped + repeated


def test_chosen_partitions_move_and_the_others_stay(look, client, name):
    page = look.at(seek(name))
    expect(page.get_by_text("Choose a place.")).to_be_visible()
    page.get_by_role("button", name="Latest").click()
    page.get_by_label("Partitions").fill("1-2")
    expect(page.get_by_role("button", name="Skip 100 records")).to_be_enabled()
    page.reload()
    page.get_by_role("button", name="Skip 100 records").click()
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Skip 100 records").click()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    assert {p: one.mark_delete_offset for p, one in cursors(client, name).items()} == {0: 50, 1: 100, 2: 100}


def test_a_time_begins_an_hour_ago_and_is_chosen_by_a_button(look, name):
    page = look.at(seek(name), timezone_id="Asia/Tokyo")
    page.get_by_role("button", name="Time", exact=True).click()
    field = page.get_by_label("Your time (Asia/Tokyo)")
    expect(field).to_have_value(re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$"))
    page.get_by_role("button", name="yesterday 12:00").click()
    expect(field).to_have_value(re.compile("T12:00(:00)?$"))
    expect(page.get_by_role("status").filter(has_text="03:00:00 UTC")).to_be_visible()
    expect(page.get_by_role("button", name="Repeat 160 records")).to_be_enabled()


def test_a_place_that_is_not_whole_or_not_in_the_log_moves_nothing(look, name):
    page = look.at(seek(name, "?to=offset"))
    expect(page.get_by_text("Give a whole number.")).to_be_visible()
    page.get_by_label("Partitions").fill("one")
    expect(page.get_by_text("Partitions are numbers and ranges: 0, 3-7.")).to_be_visible()
    look.may_fail = True
    page.goto(f"/console/{seek(name, '?to=offset&n=9999')}")
    expect(page.get_by_text("3 refuse this place and stay where they are")).to_be_visible()
    expect(page.get_by_role("button", name="Nothing to move")).to_be_disabled()


def test_a_console_that_only_looks_shows_the_preview_and_the_command_that_does_it(look, client, name, url):
    page = look.page()

    def read_only(route):
        about = route.fetch().json()
        route.fulfill(body=json.dumps({**about, "is_read_only": True}), content_type="application/json")

    page.route("**/console/about.json", read_only)
    page.goto(f"/console/{seek(name, '?to=shift&n=5&p=0,2')}")
    expect(page.get_by_text("Skip 10 and repeat 10 records: this console only looks.")).to_be_visible()
    expect(page.get_by_role("button", name="Skip")).to_have_count(0)
    lines = page.locator("pre").inner_text().splitlines()
    for line in lines:
        words = [*shlex.split(line)[1:], "--yes", "--url", url]
        subprocess.run(
            [sys.executable, "-m", "fenceline_cli.main", *words], check=True, capture_output=True, timeout=60
        )
    assert {p: one.mark_delete_offset for p, one in cursors(client, name).items()} == {0: 55, 1: 50, 2: 55}


def test_a_seek_that_fails_in_the_middle_says_what_was_moved(look, client, name):
    look.may_fail = True
    page = look.page()

    def refuse(route):
        if route.request.method == "POST" and route.request.post_data_json["partition"] == 1:
            body = json.dumps({"code": "UNKNOWN_MEMBER_ID", "detail": "the group has members", "status": 409})
            route.fulfill(status=409, body=body, content_type="application/json")
        else:
            route.fallback()

    page.route("**/seek*", refuse)
    page.goto(f"/console/{seek(name, '?to=earliest')}")
    page.get_by_role("button", name="Repeat 160 records").click()
    page.get_by_role("dialog").get_by_role("button", name="Repeat 160 records").click()
    report = page.get_by_role("status").filter(has_text="Stopped at partition 1.")
    expect(report).to_contain_text("1 of 3 partitions moved: 0 records skipped, 60 to come again.")
    expect(page.get_by_role("alert")).to_contain_text("the group has members")
    results = page.get_by_role("region", name="Preview").locator("tbody td:last-child")
    expect(results).to_have_text(["moved", "refused: UNKNOWN_MEMBER_ID", ""])
    assert {p: one.mark_delete_offset for p, one in cursors(client, name).items()} == {0: 0, 1: 50, 2: 50}
    page.unroute("**/seek*")
    page.get_by_role("button", name="Refresh the preview").click()
    expect(page.get_by_role("button", name="Repeat 100 records")).to_be_enabled()


def test_a_group_with_members_is_named_before_the_service_refuses(look, client, topic, url):
    look.may_fail = True
    over, joined = threading.Event(), threading.Event()

    def work():
        with (
            Client(url, client_name="w:1") as member,
            member.consumer("orders", group="crew", start="earliest") as consumer,
        ):
            next(iter(consumer))
            joined.set()
            over.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert joined.wait(60)
    page = look.at(seek("crew", "?to=latest"))
    expect(page.get_by_role("note").filter(has_text="The group has a member now")).to_be_visible()
    page.get_by_role("button", name="Skip").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("crew")
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()
    expect(page.get_by_role("alert")).to_contain_text("UNKNOWN_MEMBER_ID")
    expect(page.get_by_role("status").filter(has_text="0 of 3 partitions moved")).to_be_visible()
    over.set()
    thread.join(60)


def test_the_keyboard_alone_seeks(look, client, name):
    page = look.at(seek(name))
    expect(page.get_by_text("Choose a place.")).to_be_visible()
    page.get_by_role("link", name=name).focus()
    for _ in range(5):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")  # By −n or +n
    expect(page.get_by_role("button", name="By −n or +n")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    page.keyboard.type("+10")
    expect(page.get_by_role("button", name="Skip 30 and repeat 10 records")).to_be_enabled()
    for _ in range(4):  # partitions, the preview, its refresh, the button
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Skip 30 and repeat 10 records")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("textbox")).to_be_focused()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    assert cursors(client, name)[2].mark_delete_offset == 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_overflows(look, name, scheme):
    page = look.at(seek(name, "?to=time&n=0"), scheme=scheme, width=420)
    expect(page.get_by_role("button", name="Repeat")).to_be_enabled()
    assert overflow(page) <= 0
    assert axe_finds(page) == ""
    page.get_by_role("button", name="Repeat").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert axe_finds(page) == ""
