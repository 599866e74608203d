"""The page of `psph up` for everybody: small screens, light and dark, keyboards, screen readers."""

from __future__ import annotations

import re
from itertools import product

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.looking import CONTRAST, OUTLINE
from tests.e2e.browser.world import DESK, SOON, headline
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

PHONE = {
    "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True,
    "has_touch": True,
}  # fmt: skip
VIEWS = ("Feeds", "Chat", "Network", "Latency", "Roam")


def test_a_phone_shows_it_in_one_column(visit):
    user = visit(**PHONE)
    page = user.arrive()
    user.subscribe()
    news = headline("Read on the way")
    user.publish(news)
    user.sees(news)
    for name, width in product(VIEWS, (390, 320)):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_function("width => innerWidth === width", arg=width)
        user.view(name)
        panel = page.get_by_role("tabpanel", name=name)
        expect(panel).to_be_visible()
        if name == "Network":
            expect(panel.locator(".net-node")).not_to_have_count(0, **SOON)
            node = panel.locator(".net-node", has_text="n1").first.bounding_box()
            assert node["height"] >= 24  # a finger finds it
        if name == "Latency":
            expect(panel.locator("#crossings li")).not_to_have_count(0, **SOON)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (name, width)
        lefts = panel.locator(".card:visible").evaluate_all(
            "cards => cards.map(card => Math.round(card.getBoundingClientRect().left))"
        )
        assert len(set(lefts)) == 1, (name, width)
        if width == PHONE["viewport"]["width"]:
            user.picture(f"phone-{name.lower()}")


def test_everything_can_be_read_in_light_and_dark(visit):
    user = visit(**DESK, reduced_motion="reduce")
    page = user.arrive()
    user.subscribe()
    for name, scheme in product(VIEWS, ("light", "dark")):
        page.emulate_media(color_scheme=scheme)
        user.view(name)
        if name == "Network":
            expect(page.locator(".net-node")).not_to_have_count(0, **SOON)
        faint, background = page.evaluate(CONTRAST)
        assert faint == [], (name, scheme)
        assert (background < 0.2) == (scheme == "dark"), (name, scheme)
        if scheme == "dark":
            user.picture(f"dark-{name.lower()}")


def test_the_keyboard_is_enough(visit):
    user = visit()
    page = user.arrive()
    focus = page.locator(":focus")

    def press_until(key, what):
        for _ in range(40):
            page.keyboard.press(key)
            if focus.count() and what(focus):
                assert focus.evaluate(OUTLINE)
                return
        raise AssertionError(f"{key} does not lead there")

    def named(name):
        return lambda found: found.get_attribute("aria-label") == name

    press_until("Tab", lambda found: found.inner_text() == "Skip to the view")
    press_until("Tab", lambda found: found.get_attribute("role") == "tab")
    for name in ("Chat", "Network", "Latency", "Roam", "Feeds"):  # and around
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        expect(page.get_by_role("tabpanel")).to_have_count(1)
    press_until("Tab", lambda found: found.get_attribute("type") == "radio")
    press_until("Tab", named("Subscribe to news.site-b.test/notes.xml from site-a.test"))
    page.keyboard.press("Enter")
    expect(focus).to_have_text("Leave")  # the focus stays where it was
    user.entries("news.site-b.test/feed.xml").first.wait_for()
    press_until("Shift+Tab", lambda found: found.get_attribute("id") == "publish-text")
    news = headline("Typed by hand")
    page.keyboard.type(news)
    page.keyboard.press("Enter")
    user.sees(news)
    press_until("Shift+Tab", lambda found: found.get_attribute("role") == "tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.locator("#links button").first.wait_for()
    press_until("Tab", named("Cut the link n1 to n2"))
    page.keyboard.press("Space")
    expect(focus).to_have_text("Heal", **SOON)
    page.keyboard.press("Space")
    expect(focus).to_have_text("Cut", **SOON)


def test_a_screen_reader_finds_a_name_for_everything(user):
    page = user.page
    user.subscribe()
    for name in VIEWS:
        user.view(name)
        if name == "Network":
            page.locator("#links button").first.wait_for()
        tree = page.locator("body").aria_snapshot()
        roles = "button|textbox|combobox|radio|tab|tabpanel|img|log|region|link|group"
        assert re.findall(rf"^\s*- (?:{roles})(?::|$).*", tree, re.M) == []
        assert page.get_by_role("heading", level=1).count() == 1
    # What arrives is announced, without interrupting.
    for role in ("status", "log"):
        for each in page.locator(f"[role={role}]").all():
            assert each.get_attribute("aria-live") in (None, "polite")


def test_the_same_graph_gives_the_same_map(user):
    page = user.page
    graph = {
        "names": ["psph-a", "n1", "n2", "n3", "n4", "psph-b"],
        "links": [
            {"a": "psph-a", "b": "n1"}, {"a": "psph-a", "b": "n2"}, {"a": "n1", "b": "n4"},
            {"a": "n2", "b": "n3"}, {"a": "n3", "b": "psph-b"}, {"a": "n4", "b": "psph-b"},
        ],
    }  # fmt: skip
    place = """async ({names, links}) => {
        const {layout} = await import("/web/scripts/layout.js");
        const box = {left: 0, top: 0, width: 900, height: 300};
        const placed = layout(names, links, ["psph-a", "psph-b"], box);
        return Object.fromEntries([...placed].map(([name, {x, y}]) => [name, [x, y]]));
    }"""
    first = page.evaluate(place, graph)
    backwards = {key: list(reversed(value)) for key, value in graph.items()}
    assert page.evaluate(place, backwards) == first
    assert first["psph-a"] == [0, 150]
    assert first["psph-b"] == [900, 150]
    # In columns by distance, and in an order in which no links cross.
    assert first["n1"][0] == first["n2"][0] == 300
    assert first["n3"][0] == first["n4"][0] == 600
    assert first["n1"][1] == first["n4"][1] != first["n2"][1] == first["n3"][1]
