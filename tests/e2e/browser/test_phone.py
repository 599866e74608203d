"""A phone in the same network: the page roams though it cannot reach the hubs themselves."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.test_roaming import Traveller, check
from tests.e2e.browser.world import HOST, SOON, Visitor, running_world
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """With the token in it."""
    with running_world(tmp_path_factory.mktemp("phone"), "--host", "0.0.0.0") as printed:
        yield f"http://{HOST}:{urlsplit(printed).port}/?{urlsplit(printed).query}"


def test_a_phone_roams_through_the_page_it_has(address, browser):
    visitor = Visitor(browser, address.partition("?")[0], **PHONE)
    # The console says that nobody answers at the hub that was stopped, as it should.
    visitor.forgiven = "Failed to load resource"
    visitor.page.goto(address)
    visitor.live()
    traveller, page = Traveller(visitor), visitor.page
    traveller.is_at("site-a.test")
    page.get_by_role("button", name="Keep publishing").click()
    for place, count in (("b", 1), ("a", 2)):
        traveller.has(0, count)
        traveller.has(1, count)
        page.get_by_role("button", name=f"Move to site-{place}.test").click()
        traveller.is_at(f"site-{place}.test")
    page.get_by_role("button", name="Stop publishing").click()
    page.get_by_role("button", name="Stop psph-a").click()
    traveller.say("from a phone")
    traveller.is_at("site-b.test")
    assert traveller.said(1) == [1]
    page.get_by_role("button", name="Start psph-a").click()
    expect(page.get_by_role("button", name="Stop psph-a")).to_be_enabled(**SOON)
    check(traveller)
    visitor.picture("roam-phone")
    # Over plain HTTP from another machine browsers give no locks: each tab has a stream.
    other = visitor.context.new_page()
    other.goto(address)
    for tab in (page, other):
        assert tab.evaluate("() => navigator.locks === undefined")
        expect(tab.locator("#connection")).to_have_attribute("data-state", "live", **SOON)
    visitor.context.close()
    assert visitor.elsewhere == [], "it reaches no hub by itself"
    assert visitor.complaints == []
