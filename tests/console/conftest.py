"""The console in a real browser, against a local server of its own; each page is watched while a test looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from fenceline.client import Client
from fenceline_cli.dev_server.process import ServerProcess
from tests.support.browser import Heard, axe_finds, launched, overflow

__all__ = ["LONG_TASKS", "Looker", "axe_finds", "overflow"]  # what tests of a page take from here

HERE = Path(__file__).parent
# A page that begins with this keeps its longest task, in milliseconds, as window.longest.
LONG_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask", buffered: true });
"""
expect.set_options(timeout=30_000)  # far longer than a slow machine needs: a test waits only until the thing is there


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the browser's tests of a module in one worker, because they share a server; none is a fast test."""
    for item in items:
        if item.path.parent == HERE and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group(f"console {item.path.stem}"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Lend a browser for a module: its event loop is this thread's until it ends, and other tests want their own."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data) as server:
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
        self.heard = Heard(url)
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
        self.heard.listen(page)
        return page

    def at(self, path: str, **given: Any) -> Page:
        """Return a page at a path below /console."""
        page = self.page(**given)
        page.goto(f"/console/{path}")
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def look(browser: Browser, url: str) -> Iterator[Looker]:
    """Open pages of the console; none of them may say a word, break the content policy, or ask another origin."""
    looker = Looker(browser, url)
    yield looker
    looker.close()
    assert looker.heard.elsewhere == []
    if not looker.may_fail:
        assert looker.heard.said == []
