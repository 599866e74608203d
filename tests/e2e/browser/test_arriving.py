"""The page of `psph up` at first sight, and the way back out of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from demo.conversations import GREETING
from tests.e2e.browser.world import SOON, headline
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

FEED = "news.site-b.test/feed.xml"
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def test_no_view_is_empty_at_first_sight(visit):
    user = visit()
    page = user.arrive()
    user.entries(FEED).first.wait_for()
    row = page.locator("#topics li", has_text=FEED)
    expect(row.locator(".note")).to_contain_text("live, ", **SOON)
    user.view("Chat")
    for name in ("alice@site-a.test", "bob@site-b.test"):
        log = page.get_by_role("region", name=name).get_by_role("log")
        expect(log.get_by_text(GREETING)).to_be_visible(**SOON)
    user.view("Network")
    expect(page.get_by_label("Tree of")).to_have_value(row.locator("bdi").get_attribute("title"))
    expect(page.locator("#links li.in-tree")).not_to_have_count(0, **SOON)


def test_who_has_left_the_first_feed_is_not_subscribed_to_it_again(visit):
    user = visit()
    page = user.arrive()
    page.get_by_role("button", name=f"Leave {FEED}").click()
    subscribe = page.get_by_role("button", name=f"Subscribe to {FEED}")
    expect(subscribe).to_be_visible()
    page.reload()
    user.live()
    expect(subscribe).to_be_visible()


def test_on_a_phone_what_arrives_is_seen_while_it_is_published(visit):
    user = visit(**PHONE)
    page = user.arrive()
    user.subscribe()
    page.evaluate("scrollTo(0, 0)")
    news = headline("Seen without a scroll")
    user.publish(news)
    user.sees(news)
    page.evaluate("scrollTo(0, 0)")
    box = user.entries(news).bounding_box()
    assert box["y"] + box["height"] <= PHONE["viewport"]["height"]
    publish = page.locator("#publish").bounding_box()
    arriving = page.locator(".arrivals").bounding_box()
    assert 0 <= arriving["y"] - (publish["y"] + publish["height"]) < 40


def test_back_leads_to_the_view_before_and_out_only_from_the_first(visit):
    user = visit()
    page = user.page
    page.goto("about:blank")
    page.goto(user.address)
    user.live()
    for name in ("Chat", "Network", "Network", "Latency"):
        user.view(name)
    for name in ("Network", "Chat", "Feeds"):
        page.go_back()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    page.go_forward()
    expect(page.get_by_role("tabpanel", name="Chat")).to_be_visible()
    page.reload()
    expect(page.get_by_role("tabpanel", name="Chat")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("tabpanel", name="Feeds")).to_be_visible()
    page.go_back()
    assert page.url == "about:blank"
