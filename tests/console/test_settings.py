"""The settings of a topic: what holds, what was set, what changes it, what deletes the topic."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.asking import ask
from tests.console.conftest import axe_finds, overflow


@pytest.fixture(scope="module")
def topic(url):
    config = {"retention.ms": 2_592_000_000, "compression.type": "zstd"}
    ask(url, "POST", "/topics", {"name": "orders", "partitions": 4, "config": config})
    return "orders"


def config(url, name="orders"):
    return ask(url, "GET", f"/topics/{name}")["config"]


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))


def test_each_setting_says_what_holds_where_from_and_what_it_does(look, topic):
    page = look.at("topics/orders/settings")
    expect(row(page, "retention.ms")).to_contain_text(re.compile("30 d.*set.*How long records are kept.*Default: 7 d"))
    expect(row(page, "max.message.bytes")).to_contain_text(re.compile("1.0 MiB.*default"))
    expect(row(page, "message.timestamp.before.max.ms")).to_contain_text("no limit")
    facts = page.get_by_role("region", name="Topic", exact=True)
    expect(facts).to_contain_text(re.compile("Topic id[0-9a-f]{32}.*Created.*UTC.*Partitions4.*Regionslocal"))


def test_a_setting_is_changed_and_set_back_to_its_default(look, topic, url):
    page = look.at("topics/orders/settings")
    row(page, "max.message.bytes").get_by_role("button", name="Edit").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Value").fill("2 bananas")
    box.get_by_role("button", name="Change the setting").click()
    expect(box.get_by_role("alert")).to_contain_text("“2 bananas” is no value of it")
    box.get_by_label("Value").fill("2 MiB")
    expect(box).to_contain_text("2.0 MiB = 2097152 bytes")
    box.get_by_role("button", name="Change the setting").click()
    expect(row(page, "max.message.bytes")).to_contain_text(re.compile("2.0 MiB.*set"))
    assert config(url)["max.message.bytes"] == 2_097_152
    row(page, "max.message.bytes").get_by_role("button", name="Reset").click()
    page.get_by_role("dialog").get_by_role("button", name="Use the default").click()
    expect(row(page, "max.message.bytes")).to_contain_text(re.compile("1.0 MiB.*default"))
    assert "max.message.bytes" not in config(url)


def test_a_setting_that_deletes_records_asks_for_the_topics_name(look, url):
    ask(url, "POST", "/topics", {"name": "short"})
    page = look.at("topics/short/settings")
    row(page, "retention.ms").get_by_role("button", name="Edit").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Value").fill("9007199254740993")  # which no number of JavaScript is
    expect(box.get_by_role("button", name="Change the setting")).to_be_disabled()
    box.get_by_label("Type short to confirm").fill("short")
    box.get_by_role("button", name="Change the setting").click()
    expect(row(page, "retention.ms")).to_contain_text("9,007,199,254,740,993 ms")
    assert config(url, "short") == {"retention.ms": 9_007_199_254_740_993}


def test_what_the_service_refuses_is_said_in_the_dialog(look, topic):
    look.may_fail = True
    page = look.at("topics/orders/settings")
    row(page, "compaction.order").get_by_role("button", name="Edit").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Value").select_option("timestamp")
    box.get_by_role("button", name="Change the setting").click()
    expect(box.get_by_role("alert")).to_contain_text("delete.retention.ms must be -1")
    box.get_by_role("button", name="Cancel").click()
    expect(box).to_have_count(0)


def test_a_topic_is_deleted_after_its_name_was_typed(look, url):
    ask(url, "POST", "/topics", {"name": "gone"})
    page = look.at("topics/gone/settings")
    page.get_by_role("button", name="Delete the topic…").click()
    box = page.get_by_role("dialog")
    expect(box.get_by_role("button", name="Delete the topic")).to_be_disabled()
    box.get_by_label("Type gone to confirm").fill("gone")
    box.get_by_role("button", name="Delete the topic").click()
    expect(page).to_have_url(f"{url}/console/topics")
    assert "gone" not in [topic["name"] for topic in ask(url, "GET", "/topics")["topics"]]


def test_a_refused_contract_leaves_what_was_set_and_an_unknown_setting_as_it_is(look, topic):
    look.may_fail = True
    page = look.page()
    problem = {"code": "NOT_AUTHORIZED", "detail": "not this path", "status": 403}
    page.route("**/v1/openapi.json", lambda route: route.fulfill(status=403, json=problem))
    shown = {"name": "orders", "topic_id": "0" * 32, "partitions": 1, "regions": ["a\u202eb"], "created_at": 0}
    strange = {"retention.ms": 1000, "<b>new\u202e</b>": {"deep": [1]}, "__proto__.ms": -1}
    page.route("**/v1/topics/orders", lambda route: route.fulfill(json={**shown, "config": strange}))
    page.goto("/console/topics/orders/settings")
    expect(page.get_by_role("alert")).to_contain_text("NOT_AUTHORIZED")
    expect(row(page, "retention.ms")).to_contain_text(re.compile("1 s.*set"))
    expect(row(page, "<b>new⟨202E⟩</b>")).to_contain_text('{"deep":[1]}')
    expect(row(page, "__proto__.ms")).to_contain_text("for ever")
    expect(page.get_by_text("a⟨202E⟩b")).to_be_visible()


def test_a_console_that_only_looks_has_no_button_that_changes(look, topic):
    page = look.page()
    about = {"version": "1", "is_read_only": True, "has_export": True, "refresh_ms": 1000, "regions": []}
    page.route("**/console/about.json", lambda route: route.fulfill(json=about))
    page.goto("/console/topics/orders/settings")
    expect(row(page, "retention.ms")).to_contain_text("30 d")
    expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(look, topic, scheme):
    page = look.at("topics/orders/settings", scheme=scheme)
    expect(row(page, "retention.ms")).to_contain_text("30 d")
    assert axe_finds(page) == ""
    row(page, "retention.ms").get_by_role("button", name="Edit").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert axe_finds(page) == ""


def test_a_narrow_window_is_not_overflowed(look, topic):
    page = look.at("topics/orders/settings", width=420)
    expect(row(page, "retention.ms")).to_contain_text("30 d")
    assert overflow(page) <= 0
