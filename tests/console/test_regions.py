"""Regions and failover in the console, against two real servers that replicate each other."""

import re
from contextlib import ExitStack
from functools import cache
from itertools import count

import pytest
from playwright.sync_api import expect
from typer.testing import CliRunner

from fenceline_cli.main import app
from tests.console.conftest import Looker, axe_finds, overflow
from tests.console.two_regions import console, pair, replication, silent_url
from tests.support.patience import wait_until
from tests.support.results import last_line

NUMBERS = count()
HOSTILE = ("__proto__", "constructor", "x" * 249)


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    with pair(tmp_path_factory.mktemp) as regions:
        regions.create("orders", partitions=2)
        for name in HOSTILE:
            regions.create(name)
        regions.clients["a"].create_topic("alone")
        for region in "ab":
            for partition in range(2):
                regions.fill("orders", region, 100, partition)
        regions.settle("orders")
        yield regions


@pytest.fixture(scope="module")
def url(regions):
    return regions.urls["a"]


@pytest.fixture(scope="module")
def consoles(regions):
    """Return a function that gives the URL of a console of both regions; one that is silent has no server."""
    with ExitStack() as running:

        @cache
        def url(silent, can_write):
            urls = {**regions.urls, **({} if silent is None else {silent: silent_url()})}
            return running.enter_context(console(urls, *(["--write"] if can_write else [])))

        yield url


@pytest.fixture
def both(browser, consoles):
    """Return a function that opens a page of a console of both regions."""
    lookers = []

    def at(path, *, silent=None, can_write=True, **given):
        lookers.append(Looker(browser, consoles(silent, can_write)))
        lookers[-1].may_fail = silent is not None
        return lookers[-1].at(path, **given)

    yield at
    for looker in lookers:
        looker.close()
    assert [one.heard.elsewhere for one in lookers if one.heard.elsewhere] == []
    assert [one.heard.said for one in lookers if one.heard.said and not one.may_fail] == []


def section(page, name):
    return page.get_by_role("region", name=name, exact=True)


def test_the_matrix_says_of_each_topic_what_each_region_has_of_the_other(both):
    page = both("regions")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="orders", exact=True))
    expect(row).to_contain_text("here: all of b’s records")
    expect(row).to_contain_text("in b: all of a’s records")
    expect(page.get_by_role("link", name="alone")).to_have_count(0)
    for name in HOSTILE:
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    page.get_by_role("link", name="__proto__", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Regions / __proto__")


def test_a_console_of_one_region_says_how_to_see_the_others(look):
    page = look.at("regions")
    expect(page.get_by_role("row").filter(has_text="orders")).to_contain_text(
        re.compile("here: all of b’s records *in b: not known from here")
    )
    expect(page.get_by_role("main")).not_to_contain_text("lower line")
    expect(page.get_by_role("main")).to_contain_text("fenceline console --at a=URL --at b=URL")


def test_a_topic_shows_at_a_glance_whether_its_copies_are_whole(both):
    page = both("regions/orders")
    expect(section(page, "In a")).to_contain_text("a has all that b has written.")
    expect(section(page, "In b")).to_contain_text("b has all that a has written.")
    expect(section(page, "Records by partition")).to_contain_text("All 400 records had arrived when they were counted.")
    expect(page.get_by_role("row").filter(has_text="written in a").first).to_have_text(
        re.compile(r"0written in a100its own100all")
    )
    expect(page.get_by_role("row").filter(has_text="written in a").last).to_have_text("allwritten in a200its own200all")
    page.get_by_role("link", name="Look from b").click()
    expect(page).to_have_url(re.compile("/console/regions/orders[?]at=b$"))
    expect(page.get_by_role("link", name="Look from a")).to_be_visible()


def test_a_copy_that_lacks_records_says_how_many_and_in_which_partition(both, regions):
    topic = regions.create("behind", partitions=2)
    regions.fill(topic, "a", 5)
    regions.settle(topic)
    page = both(f"regions/{topic}")
    expect(section(page, "Records by partition")).to_contain_text("All 5 records")
    late = {"region": "a", "connected": True, "suspended": False, "lag_records": 1204, "lag_ms": 3200}
    seen = {"last_seen_at": 1, "answered_at": None, "problem": "the source no longer keeps records"}
    gap = {"partition": 1, "region": "a", "from_offset": 3, "to_offset": 9, "records": 6}
    replication(page, "b", topic, regions=[{**late, **seen}], gaps=[gap])
    found = section(page, "In b")
    expect(found).to_contain_text("b lacks 1,204 of the records that a has written, the oldest for 3.2 s.")
    expect(found).to_contain_text("the source no longer keeps records")
    found.get_by_role("button", name="Give up…").click()
    dialog = page.get_by_role("dialog", name="Give up 6 records of a?")
    expect(dialog).to_contain_text("from 3 up to 9")
    expect(dialog.get_by_role("button", name="Give up 6 records")).to_be_disabled()
    dialog.get_by_role("textbox").fill(topic)
    expect(dialog.get_by_role("button", name="Give up 6 records")).to_be_enabled()
    dialog.get_by_role("button", name="Cancel").click()


def test_a_region_is_suspended_and_resumed_and_a_snapshot_is_taken(both, regions):
    topic = regions.create("changed")
    regions.fill(topic, "a", 5)
    regions.settle(topic)
    page = both(f"regions/{topic}")
    here = section(page, "In a")
    here.get_by_role("button", name="Take a snapshot").click()
    expect(here.get_by_role("status")).to_contain_text(re.compile("Snapshot [0-9a-f]{8} is complete"))
    here.get_by_role("button", name="Snapshots").click()
    expect(page).to_have_url(re.compile(r"snapshots=a"))
    expect(here.get_by_role("row").filter(has_text="complete")).to_contain_text("b ")
    here.get_by_role("button", name="Suspend").click()
    page.get_by_role("button", name="Suspend b").click()
    expect(here.get_by_role("button", name="Resume")).to_be_visible()
    assert [one.suspended for one in regions.clients["a"].replication(topic).regions] == [True]
    here.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume b").click()
    expect(here.get_by_role("button", name="Suspend")).to_be_visible()
    assert [one.suspended for one in regions.clients["a"].replication(topic).regions] == [False]


def test_a_console_that_only_reads_has_no_button_that_changes(both):
    page = both("regions/orders", can_write=False)
    expect(section(page, "In b")).to_contain_text("b has all")
    for name in ("Take a snapshot", "Suspend"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_one_silent_region_leaves_what_the_other_one_says(both):
    page = both("regions/orders", silent="b")
    expect(section(page, "In a")).to_contain_text("a has all that b has written.")
    expect(section(page, "In b")).to_contain_text("The service does not answer.")
    page.goto("/console/regions")
    expect(page.get_by_role("row").filter(has_text="orders")).to_contain_text("b is silent")


@pytest.fixture
def moving(regions):
    """A topic with a subscription that a consumer has read in part in region a."""
    topic = regions.create(f"moving-{next(NUMBERS)}")
    regions.clients["a"].create_subscription(
        topic, "billing", initial_position="earliest", replicate_subscription_state=True
    )
    regions.fill(topic, "a", 50)
    regions.settle(topic)
    wait_until(lambda: _has(regions.clients["b"], topic))
    regions.clients["a"].acknowledge(topic, "billing", 0, individual=[10, 11, 12, 20])
    return topic


def _has(client, topic):
    return [one.name for one in client.subscriptions(topic)] == ["billing"]


def said_by_command(urls, topic):
    given = ["failover", topic, "billing", "--from", f"a={urls['a']}", "--to", f"b={urls['b']}"]
    return re.search(r"((about|at most) \d+ records? repeats?)", last_line(CliRunner().invoke(app, given)))[1]


def test_a_failover_says_what_the_command_says_and_moves_the_subscription(both, regions, moving):
    page = both(f"failover/{moving}/billing")
    expect(page).to_have_title(f"{moving} · billing · Failover · fenceline")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Failover of billing")
    expect(page.locator(".headline")).to_have_text("About 4 records repeat.")
    assert said_by_command(regions.urls, moving) == "about 4 records repeat"
    expect(page.locator("pre.command")).to_have_text(
        f"fenceline failover {moving} billing --from a=$URL_A --to b=$URL_B"
    )
    page.get_by_role("button", name="Move to b…").click()
    expect(page.get_by_role("dialog")).to_contain_text("About 4 records repeat.")
    page.get_by_role("button", name="Move to b", exact=True).click()
    expect(page.locator(".headline")).to_contain_text("Moved to b: about")
    expect(page.get_by_role("list", name="After the move")).to_contain_text("billing of " + moving + " is active in b.")
    for client in regions.clients.values():
        assert client.subscription(moving, "billing").active_region == "b"
    page.goto(f"/console/failover/{moving}/billing")
    expect(page.get_by_label("From")).to_have_value("b")


def test_a_silent_region_makes_the_number_an_upper_bound(both, moving):
    page = both(f"failover/{moving}/billing?from=a&to=b&at=b", silent="a")
    expect(page.locator(".headline")).to_have_text("At most 50 records repeat.")
    expect(page.get_by_role("list", name="Before the move")).to_contain_text(
        "a does not answer, so consumers there may go on"
    )
    expect(page.get_by_role("row").nth(1)).to_have_text(re.compile("^0……0?[0-9]+50"))


def test_a_console_of_one_region_says_what_to_start_for_a_failover(look, moving):
    page = look.at(f"failover/{moving}/billing")
    expect(page.get_by_role("main")).to_contain_text("fenceline console --at a=URL --at b=URL")
    page.get_by_role("link", name="Regions").click()
    page.get_by_role("link", name="Failover", exact=True).click()
    expect(page.get_by_role("row").filter(has_text=moving).get_by_role("link", name="billing")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_regions_are_accessible_and_narrow(both, moving, scheme):
    for path, ready in (
        ("regions", "in b: all of a’s records"),
        ("regions/orders?snapshots=a", "had arrived"),
        (f"failover/{moving}/billing", "repeat"),
        ("failover", "billing"),
        (f"regions/{HOSTILE[2]}", "a has all"),
    ):
        page = both(path, scheme=scheme, width=420)
        expect(page.get_by_role("main")).to_contain_text(ready)
        assert axe_finds(page) == ""
        assert overflow(page) <= 0
        page.context.close()
