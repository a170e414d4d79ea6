"""The machine's own Chromium, what its pages say and ask of others, and what keeps people from reading them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright


def chromium() -> str | None:
    """Return the browser's program: the one that is named, or the first that is installed."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return os.environ.get("FENCELINE_CHROMIUM") or next(filter(None, found), None)


def needs_browser() -> None:
    """Skip the test where no browser is; fail it where there must be one."""
    if chromium() is None:
        missing = "no browser is here: install chromium, or name one by FENCELINE_CHROMIUM"
        pytest.fail(missing) if os.environ.get("FENCELINE_REQUIRE_BROWSER") == "1" else pytest.skip(missing)


@contextmanager
def launched() -> Iterator[Browser]:
    """Lend a browser of its own."""
    needs_browser()
    with sync_playwright() as playwright:
        # Root, as in a container of CI, has no sandbox.
        yield playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])


class Heard:
    """What pages said in the console, and what they asked of other places than ``url``."""

    def __init__(self, url: str) -> None:
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self._known = [url, "data:", "blob:"]

    def elsewhere_is_meant(self, url: str) -> None:
        """Let pages ask another place, too."""
        self._known.append(url)

    def listen(self, page: Page) -> None:
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(f"pageerror: {error}"))
        page.on("request", lambda request: self._note(request.url))

    def _note(self, asked: str) -> None:
        if not asked.startswith(tuple(self._known)):
            self.elsewhere.append(asked)


def axe_finds(page: Page) -> str:
    """Return what axe-core finds on a page, as text; empty where it finds nothing."""
    found = Axe().run(page)
    return str(found.generate_report()) if found.violations_count else ""


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
