"""The console's frame: its navigation, its addresses, what it says where there is nothing."""

from playwright.sync_api import expect


def test_the_frame_leads_to_each_place_and_says_what_answers(look, url):
    page = look.at("")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.locator(".place")).to_contain_text("answers")
    page.get_by_role("link", name="Transactions").click()
    expect(page).to_have_url(f"{url}/console/transactions")
    expect(page).to_have_title("Transactions · fenceline")


def test_an_address_that_is_no_page_says_so(look):
    page = look.at("nowhere")
    expect(page.get_by_role("main")).to_contain_text("The console has no such page")


def test_a_place_within_another_one_has_a_title_of_its_own_and_marks_where_it_is(look):
    page = look.at("failover")
    expect(page).to_have_title("Failover · fenceline")
    expect(page.locator("nav [aria-current=page]")).to_have_text("Regions")
    page.get_by_role("link", name="Regions").first.click()
    expect(page).to_have_title("Regions · fenceline")


def test_a_narrow_navigation_shows_where_one_is(look):
    page = look.at("health", width=420)
    page.get_by_role("heading", name="Health and cost").wait_for()
    for name in ("Health and cost", "Topics"):
        page.get_by_role("navigation", name="Console").get_by_role("link", name=name).click()
        expect(page.locator(".side [aria-current=page]")).to_have_text(name)
        expect(page.locator(".side [aria-current=page]")).to_be_in_viewport(ratio=1)
