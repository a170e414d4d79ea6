"""The built site in a real browser: what a person sees, can read and can reach, and what leaves for other hosts."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tools.docs import site

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

# One page of each kind.
LOOKED_AT = [
    "",
    "start/quickstart/",
    "learn/one-writer/",
    "recipes/outbox/",
    "understand/append/",
    "understand/fencing/",
    "designs/kip-27/",
    "compare/kafka/",
    "operate/settings/",
    "operate/runbooks/contention/",
    "reference/errors/",
    "reference/python/client/",
    "protocol/core/",
    "faq/",
]


def chromium() -> str | None:
    named = os.environ.get("FENCELINE_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if chromium() is None:
        if os.environ.get("FENCELINE_REQUIRE_BROWSER") == "1":
            pytest.fail("no browser is here: install chromium, or name one by FENCELINE_CHROMIUM")
        pytest.skip("no browser is here: install chromium, or name one by FENCELINE_CHROMIUM")
    handler = functools.partial(Quiet, directory=str(site.build()))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(url: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root, as in a container of CI, has no sandbox.
        yield playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])


class Watched:
    """A page of the browser, with what it asked of other hosts and what it said in the console."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page: Page = context.new_page()
        self.elsewhere: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self._note(request.url, url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def _note(self, asked: str, url: str) -> None:
        if not asked.startswith((url, "data:", "blob:")):
            self.elsewhere.append(asked)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", LOOKED_AT)
def test_a_page_can_be_read_and_reached_and_asks_no_other_host(
    browser: Browser, url: str, address: str, scheme: Any
) -> None:
    with browser.new_context(viewport={"width": 1300, "height": 900}, color_scheme=scheme) as context:
        watched = Watched(context, url)
        watched.page.goto(url + address)
        watched.page.wait_for_load_state("networkidle")
        found = Axe().run(watched.page)
        assert found.violations_count == 0, found.generate_report()
        watched.page.set_viewport_size({"width": 420, "height": 900})
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 420
        assert watched.elsewhere == []
        assert watched.said == []
