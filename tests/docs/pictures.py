"""Pictures of ten pages, light and dark: ``make docs-pictures`` writes them into ``build/docs-pictures/``.

The site must be built. They are for a review, and no test compares them.
"""

from __future__ import annotations

import functools
import http.server
import sys
import threading

from playwright.sync_api import Page

from tests.docs.browser import Quiet
from tests.support.browser import launched
from tools.docs import site

FOLDER = site.ROOT / "build/docs-pictures"
PAGES = {
    "home": "",
    "quickstart": "start/quickstart/",
    "append": "understand/append/",
    "fencing": "understand/fencing/",
    "kip-27": "designs/kip-27/",
    "errors": "reference/errors/#producer_fenced",
    "runbook": "operate/runbooks/contention/",
    "core": "protocol/core/",
    "python": "reference/python/producer/",
    "search": "",
}


def search(page: Page) -> None:
    """Open the search, and type what a person may have read in an error."""
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("PRODUCER_FENCED")
    page.wait_for_timeout(500)


def main() -> int:
    """Write the pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(site.SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, launched() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1300, "height": 900}, color_scheme=scheme)
            for name, address in PAGES.items():
                page.goto(f"http://127.0.0.1:{server.server_port}/{address}")
                page.wait_for_load_state("networkidle")
                if name == "search":
                    search(page)
                page.screenshot(path=FOLDER / f"{name}-{scheme}.png")
        server.shutdown()
    print(f"{2 * len(PAGES)} pictures are in {FOLDER.relative_to(site.ROOT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
