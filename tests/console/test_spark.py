"""The versions of once: which each application has committed, and what forgetting one means."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.asking import ask, commit_once
from tests.console.conftest import axe_finds, overflow

HOSTILE = "<img src=x onerror=alert(1)>\u202elive"
SHOWN = "<img src=x onerror=alert(1)>⟨202E⟩live"


@pytest.fixture(scope="module")
def versions(url):
    """Two applications like others, names and notes that a page might mistake, and more than fit on a page."""
    commit_once(url, "hourly-totals", 412, "run 7f3a9c at cluster-2")
    commit_once(url, "beyond", 9_223_372_036_854_775_806)
    commit_once(url, HOSTILE, 0, "a\u0000b\u202e <script>alert(1)</script>")
    commit_once(url, "__proto__", 3, "")
    for n in range(60):
        commit_once(url, f"job-{n:03}", n, f"batch {n}")


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("cell", name=name, exact=True))


def test_no_application_says_what_would_be_here(look, url):
    page = look.page()
    page.route("**/v1/once?*", lambda route: route.fulfill(json={"versions": [], "has_more": False}))
    page.goto("/console/spark")
    expect(page.get_by_role("main")).to_contain_text("No application has committed by once yet")
    expect(page.get_by_role("main")).to_contain_text('writeStream.format("fenceline")')


def test_each_application_shows_its_version_its_note_and_when(look, versions):
    page = look.at("spark")
    expect(row(page, "hourly-totals")).to_contain_text(re.compile("412.*run 7f3a9c at cluster-2.*ago|just now"))
    expect(row(page, "beyond")).to_contain_text(re.compile("9,223,372,036,854,775,806.*none"))
    expect(row(page, "__proto__")).to_contain_text("3")


def test_hostile_names_and_notes_are_text(look, versions):
    page = look.at("spark")
    expect(row(page, SHOWN)).to_contain_text("a␀b⟨202E⟩ <script>alert(1)</script>")
    assert page.locator("main img, main script").count() == 0


def test_the_list_is_paged_by_name(look, versions, url):
    page = look.at("spark")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("tbody tr")).to_have_count(14)
    expect(row(page, "job-059")).to_be_visible()
    page.reload()
    expect(row(page, "job-059")).to_be_visible()
    page.get_by_role("link", name="First").click()
    expect(row(page, "hourly-totals")).to_be_visible()


def test_a_version_is_forgotten_by_keyboard_once_its_name_was_typed(look, url):
    commit_once(url, "0-forgotten", 41)
    page = look.at("spark")
    row(page, "0-forgotten").get_by_role("button", name="Forget 0-forgotten").focus()
    page.keyboard.press("Enter")
    box = page.get_by_role("dialog")
    expect(box).to_contain_text("Version 41 of 0-forgotten is forgotten")
    expect(box).to_contain_text("If the application repeats a version")
    expect(box.get_by_role("button", name="Forget the version")).to_be_disabled()
    box.get_by_label("Type 0-forgotten to confirm").focus()
    page.keyboard.type("0-forgotten")
    page.keyboard.press("Enter")
    expect(row(page, "0-forgotten")).to_have_count(0)
    assert ask(url, "GET", "/once/0-forgotten")["version"] == -1


def test_a_hostile_name_is_forgotten_by_what_is_shown_of_it(look, url):
    commit_once(url, "0\u202e0", 1)
    page = look.at("spark")
    row(page, "0⟨202E⟩0").get_by_role("button", name="Forget").click()
    page.get_by_role("dialog").get_by_label("to confirm").fill("0⟨202E⟩0")
    page.get_by_role("dialog").get_by_role("button", name="Forget the version").click()
    expect(row(page, "0⟨202E⟩0")).to_have_count(0)


def test_a_refusal_is_said_with_its_code(look, versions):
    look.may_fail = True
    problem = {"code": "NOT_AUTHORIZED", "detail": "not this path", "status": 403}
    page = look.page()
    page.route("**/v1/once?*", lambda route: route.fulfill(status=403, json=problem))
    page.goto("/console/spark")
    expect(page.get_by_role("alert")).to_contain_text("NOT_AUTHORIZED not this path")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(look, versions, scheme):
    page = look.at("spark?after=job-040", scheme=scheme)
    expect(row(page, "job-059")).to_be_visible()
    assert axe_finds(page) == ""
    row(page, "job-059").get_by_role("button", name="Forget").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert axe_finds(page) == ""


def test_a_narrow_window_is_not_overflowed(look, versions):
    page = look.at("spark", width=420)
    expect(row(page, "hourly-totals")).to_be_visible()
    assert overflow(page) <= 0
