"""Pictures of each page of the console, light and dark: ``make console-pictures`` writes them.

All are in ``build/console-pictures/``, for a review; no test compares them. With ``--docs`` those that the
documentation shows are written into ``docs/assets/console/``, too.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from fenceline import Client
from tests.console import story
from tests.support.browser import chromium

FOLDER = story.ROOT / "build/console-pictures"
DOCS = story.ROOT / "docs/assets/console"
PAGES = {
    "topics": "",
    "messages": "topics/orders?p=1",
    "messages-live": "topics/ledger?live=1",
    "filter": "topics/orders?q=.status%3Drefused+.total>100",
    "hex": "topics/images",
    "all": "topics/orders?p=3&all=1",
    "partitions": "topics/orders/partitions?p=0",
    "who-may-write": "topics/ledger/writers",
    "topic-subscriptions": "topics/orders/subscriptions",
    "settings": "topics/orders/settings",
    "subscriptions": "subscriptions",
    "writers": "writers",
    "transactions": "transactions",
    "regions": "regions",
    "spark": "spark",
    "health": "health",
}
SHOWN = ["topics-light", "messages-light", "who-may-write-light", "subscriptions-light", "transactions-light"]


def look(browser: Browser, url: str, scheme: str, width: int = 1300, height: int = 820) -> Page:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, base_url=url)
    return context.new_page()


def settle(page: Page) -> None:
    """Wait until the page shows what it asked for: no row is still to come."""
    page.wait_for_load_state("networkidle")
    expect(page.locator(".loading .bone, .bone")).to_have_count(0, timeout=10_000)


def takeover(browser: Browser, url: str) -> None:
    """Show a takeover, live, as three frames: before, the moment after, and once the loser is refused."""
    page = look(browser, url, "light")
    page.goto("/console/topics/ledger/writers")
    expect(page.get_by_text("ledger-1:5120").first).to_be_visible()
    settle(page)
    page.screenshot(path=FOLDER / "takeover-1.png")
    with (
        Client(url, client_name="on-call") as client,
        client.producer("ledger", access_mode="ExclusiveWithFencing") as producer,
    ):
        expect(page.get_by_text("on-call").first).to_be_visible(timeout=3_000)
        page.screenshot(path=FOLDER / "takeover-2.png")
        producer.send(key=b"acct-1", value=b'{"balance": 0, "by": "on-call"}').result()
        page.wait_for_timeout(1_500)
        page.screenshot(path=FOLDER / "takeover-3.png")


def main() -> int:
    """Write the pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, story.two_regions(Path(folder)) as urls:
        story.tell(urls)
        url = urls[story.EU]
        with story.under_way(url), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                page = look(browser, url, scheme)
                for name, address in PAGES.items():
                    page.goto(f"/console/{address}")
                    settle(page)
                    if name in ("messages", "hex", "all"):
                        page.locator("tbody button").nth(2).click()
                        expect(page.locator(".detail")).to_be_visible()
                    page.screenshot(path=FOLDER / f"{name}-{scheme}.png")
            narrow = look(browser, url, "light", width=420, height=820)
            narrow.goto("/console/topics/orders")
            settle(narrow)
            narrow.screenshot(path=FOLDER / "narrow-light.png")
            takeover(browser, url)
    if "--docs" in sys.argv:
        DOCS.mkdir(parents=True, exist_ok=True)
        for name in [*SHOWN, "takeover-2"]:
            shutil.copy(FOLDER / f"{name}.png", DOCS / f"{name.removesuffix('-light')}.png")
    print(f"{len(list(FOLDER.glob('*.png')))} pictures are in {FOLDER.relative_to(story.ROOT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
