"""The built site in a real browser: what a person sees, can read and can reach, and what leaves for other hosts."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as NotYet

from fenceline import errors
from fenceline.model.topic_config import NAMES
from fenceline.settings import Settings
from infra.context import Deployment
from infra.runbooks import RUNBOOKS
from tests.docs.browser import Quiet
from tests.support.browser import Heard, axe_finds, launched, needs_browser, overflow
from tools.docs import cli, site

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

DOCS = site.ROOT / "docs"
SCHEMES: dict[Literal["dark", "light"], str] = {"light": "default", "dark": "slate"}
# By day a page with each thing that pages are made of: cards, tabs, a picture, tables, and signatures from the code.
BY_DAY = ["", "start/quickstart/", "understand/append/", "operate/settings/", "reference/python/reader/"]
# By night one page of each further kind.
BY_NIGHT = [
    "learn/one-writer/",
    "recipes/outbox/",
    "understand/fencing/",
    "designs/kip-27/",
    "compare/kafka/",
    "operate/runbooks/contention/",
    "reference/errors/",
    "protocol/core/",
    "faq/",
]
LOOKED_AT = [*BY_DAY, *(pytest.param(page, marks=pytest.mark.prove) for page in BY_NIGHT)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    needs_browser()
    handler = functools.partial(Quiet, directory=str(site.build()))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.mark.parametrize("address", LOOKED_AT)
def test_a_page_can_be_read_and_reached_and_asks_no_other_host(browser: Browser, url: str, address: str) -> None:
    with browser.new_context(viewport={"width": 1300, "height": 900}) as context:
        heard, page = Heard(url), context.new_page()
        heard.listen(page)
        page.goto(url + address)
        page.wait_for_load_state("networkidle")
        for scheme, theme in SCHEMES.items():
            page.emulate_media(color_scheme=scheme)
            page.wait_for_selector(f"body[data-md-color-scheme={theme}]")
            assert axe_finds(page) == "", scheme
        page.set_viewport_size({"width": 420, "height": 900})
        assert overflow(page) <= 0
        assert heard.elsewhere == []
        assert heard.said == []


FIRST_HITS = """asked => {
  for (const element of document.querySelectorAll("*")) {
    const options = element.shadowRoot ? [...element.shadowRoot.querySelectorAll("[role=option]")] : [];
    const isOfThis = option => new URL(option.href).searchParams.get("h") === asked;
    if (options.length && options.every(isOfThis)) return options[0].href;
  }
  return null;
}"""


class Search:
    """The site's search, as a person types into it."""

    def __init__(self, page: Page, url: str) -> None:
        self._page, self._url = page, url
        page.goto(url)
        page.wait_for_load_state("networkidle")
        self._box = page.get_by_role("combobox")
        for _ in range(60):  # a page that is not ready yet hears no key
            page.keyboard.press("Control+k")
            with suppress(NotYet):
                self._box.wait_for(timeout=500)
                return
        self._box.wait_for()

    def first_hit(self, text: str) -> str:
        """Return the address of the first hit, below the site, once two looks agree."""
        self._box.fill(text)
        self._page.wait_for_function(FIRST_HITS, arg=text)
        hits: list[str] = []
        while len(hits) < 3 or len(set(hits[-3:])) > 1:
            self._page.wait_for_timeout(20)
            hits.append(self._page.evaluate(FIRST_HITS, text) or "")
        return re.sub(r"\?h=[^#]*", "", hits[-1].removeprefix(self._url))


@pytest.fixture(scope="module")
def search(browser: Browser, url: str) -> Search:
    return Search(browser.new_page(), url)


def headings(page: str) -> list[str]:
    """Return the headings of a page below its title, without marks."""
    found = re.findall(r"^##+ (.+?)(?: \{ #.*\})?$", (DOCS / page).read_text(), re.MULTILINE)
    return [heading.replace("`", "") for heading in found]


def options() -> set[str]:
    of_commands = [option for command in cli.commands() for option in command.options]
    return {name for option in of_commands for name in option.opts if name.startswith("--") and name != "--help"}


COMMANDS = {
    f"fenceline {' '.join(command.words)}": command.page.removesuffix(".md")
    for command in cli.commands()
    if not command.commands
}
# `region` is a word of many pages, too, and `assign` begins the word for a group's assignor.
SPARK_OPTIONS = {name for name in headings("reference/spark/options.md") if " " not in name} - {"region", "assign"}
# By kind: what a person may search for, and the beginning of the first hit's address.
EXACT = {
    "errors": {code: f"reference/errors/#{code.lower()}" for code in errors.TABLE},
    "alarms": {alarm: f"operate/runbooks/{page}/" for alarm, page in RUNBOOKS.items() if alarm[0] != "*"},
    "commands": {name: f"reference/cli/{page}/" for name, page in COMMANDS.items()},
    "options": dict.fromkeys(options(), "reference/cli/"),
    "topic settings": dict.fromkeys(NAMES, "reference/topic-settings/#"),
    "settings of a deployment": {f"-c {field.name}": "operate/settings/#" for field in dataclasses.fields(Deployment)},
    "variables": dict.fromkeys(Settings("d").to_env(), "reference/settings/#"),
    "options on Spark": dict.fromkeys(SPARK_OPTIONS, "reference/"),
}


@pytest.mark.parametrize("kind", EXACT)
def test_the_first_hit_of_an_exact_text_is_the_page_that_explains_it(search: Search, kind: str) -> None:
    hits = {text: search.first_hit(text) for text in sorted(EXACT[kind])}
    assert len(hits) >= 10
    others = [text for text, hit in hits.items() if not hit.startswith(EXACT[kind][text])]
    # A busy machine may show an unfinished list for as long as two looks: such a text is searched again.
    hits = {text: search.first_hit(text) for text in others}
    assert {text: hit for text, hit in hits.items() if not hit.startswith(EXACT[kind][text])} == {}


def test_plain_words_find_the_error_that_they_mean(search: Search) -> None:
    assert search.first_hit("producer fenced epoch") == "reference/errors/#producer_fenced"
