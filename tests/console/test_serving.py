"""How the console is served, as a browser sees it: its content policy, other origins, a silent service, a proxy."""

import functools
import http.server
import re
import threading
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from fenceline_cli.dev_server.process import ServerProcess
from tests.console.conftest import Looker
from tests.console.test_rules import PAGE
from tests.docs.browser import Quiet
from tests.support.consoles import console

PLACES = re.findall(r'^  (?:"([\w/]+)"|(\w+)): async', (PAGE / "main.js").read_text(), re.MULTILINE)
PLACES = [(quoted or bare).replace("topic/", "topics/orders/") for quoted, bare in PLACES]
REFUSED = """async url => {
  const asked = [["GET", "/v1/topics"], ["POST", "/v1/topics"], ["GET", "/console/about.json"]];
  const answers = await Promise.all(asked.flatMap(([method, path]) => ["cors", "no-cors"].map(mode =>
    fetch(url + path, {method, mode, body: method === "GET" ? undefined : '{"name": "stolen"}'})
      .then(answer => answer.type === "opaque" ? "opaque" : answer.status, () => "refused"))));
  return [...new Set(answers)];
}"""

BROKEN = """() => performance.getEntriesByType("resource")
  .filter(one => one.responseStatus >= 400).map(one => one.name)"""


@pytest.fixture(scope="module")
def topic(client):
    client.create_topic("orders", partitions=2)
    with client.producer("orders") as producer:
        producer.send(key=b"ann", value=b'{"total": 1}').result()
    return "orders"


@contextmanager
def site(folder):
    """Serve a folder's files as another site, and lend its URL."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}/"  # another site than 127.0.0.1
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("place", PLACES)
def test_no_page_breaks_the_content_policy(look, topic, place):
    """The fixture fails on any message in the console, and any request to another origin."""
    page = look.at(place)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(BROKEN) == []


def test_a_page_of_another_origin_can_neither_read_nor_write(look, client, topic, url, tmp_path):
    look.may_fail = True
    (tmp_path / "index.html").write_text("<!doctype html><title>other</title><iframe></iframe>")
    with site(tmp_path) as other:
        look.heard.elsewhere_is_meant(other)
        page = look.page()
        page.goto(other)
        assert page.evaluate(REFUSED, url) == ["refused", "opaque"]  # a page can't tell an opaque answer from another
        page.evaluate("url => { document.querySelector('iframe').src = url + '/console' }", url)
        frame = page.frame_locator("iframe")
        expect(frame.locator("#app")).to_have_count(0)
    assert "stolen" not in [found.name for found in client.topics()]


def test_a_link_of_another_site_opens_the_console(look, topic, url, tmp_path):
    (tmp_path / "index.html").write_text(
        f"<!doctype html><link rel=icon href=data:,><a href='{url}/console/topics/orders/settings'>look</a>"
        f"<a href='{url}/v1/topics'>data</a>"
    )
    with site(tmp_path) as other:
        look.heard.elsewhere_is_meant(other)
        page = look.page()
        page.goto(other)
        page.get_by_text("look").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("orders")
        expect(page).to_have_url(f"{url}/console/topics/orders/settings")
        look.may_fail = True
        page.goto(other)
        page.get_by_text("data").click()
        expect(page.locator("body")).to_contain_text("NOT_AUTHORIZED")


def test_a_service_that_is_killed_is_said_to_be_silent_and_is_shown_again(browser, tmp_path):
    server = ServerProcess(tmp_path)
    with server:
        looker = Looker(browser, server.url)
        page = looker.at("topics")
        expect(page.locator(".place")).to_contain_text("answers")
        server.kill()
        expect(page.locator(".place")).to_contain_text("silent")
        expect(page.get_by_role("alert").first).to_contain_text("The service does not answer")
        with ServerProcess(tmp_path, port=int(server.url.rpartition(":")[2])):
            expect(page.locator(".place")).to_contain_text("answers")
            expect(page.get_by_role("alert")).to_have_count(0)
        looker.close()


@pytest.mark.parametrize("place", [*PLACES, "topics/orders?open=0-0", "topics/orders/partitions?p=0"])
def test_a_page_that_met_a_silent_service_goes_on_by_itself(look, topic, place):
    look.may_fail = True
    page = look.page()
    page.route("**/v1/**", lambda route: route.abort())
    page.route("**/console/usage.json*", lambda route: route.abort())
    page.goto(f"/console/{place}")
    expect(page.get_by_role("alert").first).to_contain_text("The service does not answer")
    page.unroute_all()
    expect(page.locator(".place")).to_contain_text("answers")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_page_whose_module_did_not_come_is_shown_once_it_does(look, topic):
    """The service may fall silent between the frame and the page that it shows."""
    look.may_fail = True
    page = look.page()
    page.route("**/pages/topics.js", lambda route: route.abort())
    page.goto("/console/topics")
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    page.unroute("**/pages/topics.js")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


# Through fenceline console


def test_a_console_that_only_reads_offers_nothing_that_changes(browser, url, topic):
    with console("--url", url) as proxy:
        looker = Looker(browser, proxy)
        page = looker.at("topics")
        expect(page.get_by_role("link", name="orders")).to_be_visible()
        expect(page.locator(".place")).to_contain_text("read-only")
        expect(page.get_by_role("button", name="Create topic")).to_have_count(0)
        expect(page.get_by_role("note")).to_have_count(0)
        assert (looker.heard.said, looker.heard.elsewhere) == ([], [])
        looker.close()


def test_a_console_that_may_write_says_what_it_can_change(browser, url, topic):
    with console("--at", f"eu={url}", "--write") as proxy:
        looker = Looker(browser, proxy)
        page = looker.at("topics")
        expect(page.get_by_role("note")).to_have_text("This console can change eu.")
        expect(page.get_by_role("button", name="Create topic")).to_be_visible()
        assert (looker.heard.said, looker.heard.elsewhere) == ([], [])
        looker.close()


def test_a_service_that_is_silent_behind_the_proxy_is_said_to_be_so(browser, tmp_path):
    with ServerProcess(tmp_path) as server:
        url = server.url
    with console("--url", url) as proxy:
        looker = Looker(browser, proxy)
        page = looker.at("topics")
        expect(page.get_by_role("alert").first).to_contain_text("The service does not answer")
        with ServerProcess(tmp_path, port=int(url.rpartition(":")[2])):
            expect(page.locator(".place")).to_contain_text("answers")
            expect(page.get_by_role("alert")).to_have_count(0)
        looker.close()


def test_each_region_is_shown_where_the_address_names_it(browser, url, topic, tmp_path):
    us = ServerProcess(tmp_path, options=["--region", "us"])
    with us, console("--at", f"eu={url}", "--at", f"us={us.url}") as proxy:
        looker = Looker(browser, proxy)
        page = looker.at("topics")
        expect(page.get_by_role("link", name="orders")).to_be_visible()
        page.get_by_role("combobox", name="Region").select_option("us")
        expect(page).to_have_url(re.compile(r"\?at=us$"))
        expect(page.get_by_role("link", name="orders")).to_have_count(0)
        assert looker.heard.said == []
        looker.close()
