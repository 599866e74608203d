"""A PSPH is stopped: the page says so of each topic and conversation, and keeps what is written."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.world import SOON, headline
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)


def turn(world, node, up):
    body = json.dumps({"up": up}).encode()
    urllib.request.urlopen(f"{world}api/network/nodes/{node}", body).close()


@contextmanager
def stopped(world, node):
    turn(world, node, up=False)
    try:
        yield
    finally:
        turn(world, node, up=True)


def test_each_topic_and_conversation_says_that_its_psph_is_stopped(visit, user, world):
    page = user.page
    user.subscribe()
    user.subscribe("news.site-a.test/notes.xml", "site-b.test")
    page.get_by_role("radio", name="site-a.test").check()
    row = page.locator("#topics li", has_text="news.site-b.test/feed.xml")
    other = page.locator("#topics li", has_text="news.site-a.test/notes.xml")
    alice = page.get_by_role("region", name="alice@site-a.test", include_hidden=True)
    bob = page.get_by_role("region", name="bob@site-b.test", include_hidden=True)
    presence = alice.locator(".presence")
    expect(presence).to_have_attribute("data-state", "here", **SOON)
    with stopped(world, "psph-a"):
        expect(row).to_have_attribute("data-state", "stopped", **SOON)
        expect(row.locator(".note")).to_contain_text("stopped: no PSPH in site-a.test")
        expect(presence).to_have_attribute("data-state", "gone", **SOON)
        expect(page.locator("#connection")).to_have_text("site-a.test is stopped", **SOON)
        expect(bob.locator(".presence")).not_to_have_attribute("data-state", "gone")
        page.get_by_role("radio", name="site-b.test").check()
        expect(other).to_have_attribute("data-state", "live")
        # A page that is opened only now says so, too.
        late = visit()
        late.page.goto(f"{world}#network")
        expect(late.page.locator("#tree-note")).to_contain_text("psph-a is stopped", **SOON)
        expect(late.page.locator(".net-node", has_text="psph-a")).to_contain_text("site-a.test")
    page.get_by_role("radio", name="site-a.test").check()
    expect(row).to_have_attribute("data-state", "live", **SOON)
    expect(presence).to_have_attribute("data-state", "here", **SOON)
    user.live()


def test_what_is_written_meanwhile_is_kept_and_sent_once_and_in_order(user, world):
    page = user.page
    user.view("Chat")
    alice = page.get_by_role("region", name="alice@site-a.test")
    bob = page.get_by_role("region", name="bob@site-b.test")
    expect(alice.locator(".presence")).to_have_attribute("data-state", "here", **SOON)
    mark = headline("")

    def write(words):
        alice.get_by_role("textbox").fill(f"{words}{mark}")
        alice.get_by_role("textbox").press("Enter")

    def lines(window):
        return window.get_by_role("listitem").filter(has_text=mark)

    with stopped(world, "psph-a"):
        for words in ("one", "two"):
            write(words)
        expect(lines(alice)).to_have_class([re.compile("waiting")] * 2)
        expect(lines(alice).last).to_contain_text("waits for the PSPH", **SOON)
        page.reload()
        expect(lines(alice)).to_have_class([re.compile("waiting")] * 2, **SOON)
        other = user.context.new_page()  # another tab shows it, too, and may be the one that sends
        other.goto(f"{world}#chat")
        there = other.get_by_role("region", name="alice@site-a.test")
        expect(lines(there)).to_have_count(2, **SOON)
        write("three")
        expect(lines(there)).to_have_count(3, **SOON)
    said = [re.compile(f"{words}{mark}") for words in ("one", "two", "three")]
    for window in (alice, bob, there):
        expect(lines(window).locator(".bubble")).to_have_text(said, **SOON)
    for window in (alice, there):
        expect(lines(window)).to_have_class([re.compile("sent")] * 3, **SOON)
    other.close()


def test_a_message_that_the_psph_refuses_is_not_sent_for_ever(user):
    user.forgiven = "Failed to load resource"
    page = user.page
    user.view("Chat")
    words = headline("Refused")
    page.route("**/api/chat", lambda route: route.fulfill(status=413, json={"error": "too long"}))
    bob = page.get_by_role("region", name="bob@site-b.test")
    bob.get_by_role("textbox").fill(words)
    bob.get_by_role("textbox").press("Enter")
    line = bob.get_by_role("listitem").filter(has_text=words)
    expect(line).to_have_class(re.compile("failed"), **SOON)
    expect(line).to_contain_text("Too long")
    page.unroute("**/api/chat")
    line.get_by_role("button", name="Send again").click()
    expect(line).to_have_class(re.compile("sent"), **SOON)
