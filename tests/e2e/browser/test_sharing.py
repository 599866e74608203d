"""Many tabs of one browser: all are live, by one stream, handed over when a tab is closed."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.world import SOON, Line, headline, until
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

TABS = 8
FEED = "news.site-b.test/feed.xml"


def publish(world, text):
    with urllib.request.urlopen(f"{world}api/world") as answer:
        topic = json.load(answer)["domains"][1]["topics"][0]["url"]
    body = json.dumps({"topic": topic, "text": text}).encode()
    urllib.request.urlopen(f"{world}api/topics/publish", body).close()


def streams(world):
    """Those that the server has open."""
    with urllib.request.urlopen(f"{world}healthz") as answer:
        return json.load(answer)["pages"]


@pytest.fixture
def line(world):
    """Counts connections outside the browser."""
    until(lambda: streams(world) == 0, "pages of other tests are closed")
    line = Line(world)
    yield line
    line.close()


def opened(user, count):
    pages = [user.page, *(user.context.new_page() for _ in range(count - 1))]
    for page in pages:
        page.goto(f"{user.address}#feeds")
        page.locator("#entries li", has_text=FEED).first.wait_for(**SOON)
        expect(page.locator("#connection")).to_have_attribute("data-state", "live", **SOON)
    return pages


def seen(pages, news):
    for number, page in enumerate(pages):
        entries = page.locator("#entries li", has_text=news)
        expect(entries, f"tab {number} of {len(pages)}").to_have_count(1, **SOON)


def test_eight_tabs_are_all_live_and_outlive_their_leader(visit, world, line):
    user = visit(line.url)
    pages = opened(user, TABS)
    assert streams(world) == 1
    first = headline("For eight")
    publish(world, first)
    seen(pages, first)
    assert line.count() <= 6
    # Each has views of its own.
    pages[3].get_by_role("tab", name="Network").click()
    pages[5].get_by_role("tab", name="Latency").click()
    expect(pages[3].locator("#links li.in-tree")).not_to_have_count(0, **SOON)
    expect(pages[5].locator("#crossings li")).not_to_have_count(0, **SOON)
    user.picture("eight-tabs")
    # The leader is the tab that came first. While it goes something is published.
    closing = headline("While the leader goes")
    publish(world, closing)
    pages.pop(0).close()
    seen(pages, closing)
    for _ in range(3):
        pages.pop(0).close()
    last = headline("For four")
    publish(world, last)
    seen(pages, last)
    seen(pages, first)
    until(lambda: streams(world) == 1, "one stream is left")


def test_a_tab_whose_request_was_not_answered_repeats_it(visit, world):
    user, failed = visit(), []
    user.forgiven = "net::ERR_"

    def fail_once(route):
        if route.request.method == "PUT" and not failed:
            failed.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    user.page.route("**/api/pages/**", fail_once)
    user.arrive()
    user.subscribe()  # waits until it is in effect: a subscriber is sent no version but the latest
    news = headline("After a request that failed")
    publish(world, news)
    seen([user.page], news)
    assert failed


SLOW_LOCKS = """
const request = LockManager.prototype.request;
LockManager.prototype.request = async function (...args) {
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  return request.apply(this, args);
};
"""


def test_a_tab_that_has_just_come_is_not_taken_for_one_that_crashed(visit, world):
    """Although the browser is slow to grant it the lock by which the leader knows."""
    user = visit()
    user.arrive()
    second = user.context.new_page()
    second.add_init_script(SLOW_LOCKS)
    second.goto(f"{user.address}#feeds")
    second.locator("#entries li", has_text=FEED).first.wait_for(**SOON)
    news = headline("For a tab that has just come")
    publish(world, news)
    seen([user.page, second], news)


def test_a_cut_line_is_seen_in_all_tabs_and_nothing_is_missed(visit, world, line):
    user = visit(line.url)
    user.forgiven = "net::ERR_"
    pages = opened(user, 3)
    line.cut()
    for page in pages:
        expect(page.locator("#connection")).to_have_attribute("data-state", "lost", **SOON)
        row = page.locator("#topics li", has_text=FEED)
        expect(row).to_have_attribute("data-state", "reconnecting")
    meanwhile = headline("While the line was cut")
    publish(world, meanwhile)
    line.mend()
    seen(pages, meanwhile)
    for page in pages:
        connection = page.locator("#connection")
        expect(connection).to_have_attribute("data-state", re.compile("resumed|live"), **SOON)


def test_a_leader_that_was_put_to_sleep_loses_the_lead(visit, world, line):
    """Browsers do so with tabs in the background. The others would wait for ever."""
    user = visit(line.url)
    user.forgiven = "net::ERR_"  # its stream ends while it sleeps
    second = user.context.new_page()
    second.clock.install()
    user.arrive()
    second.goto(user.address)
    row = second.locator("#topics li", has_text=FEED)
    expect(row).to_have_attribute("data-state", "live", **SOON)
    asleep = user.context.new_cdp_session(user.page)
    asleep.send("Page.setWebLifecycleState", {"state": "frozen"})
    news = headline("While the leader sleeps")
    publish(world, news)
    for _ in range(2):  # it asks, and gets no answer
        second.clock.fast_forward(8_000)
    seen([second], news)
    asleep.send("Page.setWebLifecycleState", {"state": "active"})
    seen([user.page], news)
    until(lambda: streams(world) == 1, "one stream is left")
