"""The console in a real browser, against a local server of its own; each page is watched while a test looks at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from fenceline.client import Client
from fenceline_cli.dev_server.process import ServerProcess
from tests.docs.browser import chromium

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the browser's tests of a module in one worker, because they share a server; none is a fast test."""
    for item in items:
        if item.path.parent == HERE and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group(f"console {item.path.stem}"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        missing = "no browser is here: install chromium, or name one by FENCELINE_CHROMIUM"
        pytest.fail(missing) if os.environ.get("FENCELINE_REQUIRE_BROWSER") == "1" else pytest.skip(missing)
    with sync_playwright() as playwright:
        # Root, as in a container of CI, has no sandbox.
        yield playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: ServerProcess) -> str:
    return server.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


class Looker:
    """Opens pages of the console, and keeps what they said and asked of others.

    A test that takes the service away names ``may_fail``: the browser itself then says that requests failed.
    """

    def __init__(self, browser: Browser, url: str) -> None:
        self.url = url
        self.may_fail = False
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self._browser = browser
        self._contexts: list[Any] = []

    def page(self, scheme: str = "light", width: int = 1440, height: int = 900, **given: Any) -> Page:
        """Return a page in a context of its own, that is not anywhere yet."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, base_url=self.url, **given
        )
        context.set_default_timeout(15_000)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(f"pageerror: {error}"))
        page.on("request", lambda request: self._note(request.url))
        return page

    def at(self, path: str, **given: Any) -> Page:
        """Return a page at a path below /console."""
        page = self.page(**given)
        page.goto(f"/console/{path}")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _note(self, asked: str) -> None:
        if not asked.startswith((self.url, "data:", "blob:")):
            self.elsewhere.append(asked)


@pytest.fixture
def look(browser: Browser, url: str) -> Iterator[Looker]:
    """Open pages of the console; none of them may say a word, break the content policy, or ask another origin."""
    looker = Looker(browser, url)
    yield looker
    looker.close()
    assert looker.elsewhere == []
    if not looker.may_fail:
        assert looker.said == []


def axe_finds(page: Page) -> str:
    """Return what axe-core finds on a page, as text; empty where it finds nothing."""
    found = Axe().run(page)
    return found.generate_report() if found.violations_count else ""


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")
