"""The page moves between the hubs of the two domains: every version once, in order."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.world import SOON
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

LINES = """() => [...document.querySelectorAll("#lines .versions")].map(
    (line) => [...line.children].map((each) => [each.textContent, each.className]))"""


class Traveller:
    """Looks at the view Roam."""

    def __init__(self, visitor):
        self.visitor = visitor
        self.page = visitor.arrive("roam")
        self.now = self.page.locator("#roam-now")

    def is_at(self, domain):
        expect(self.now).to_have_text(f"The page is at {domain}.", **SOON)

    def publish(self):
        """On both websites, and wait for a version more of each that can be told."""
        self.page.get_by_role("button", name="Publish on both").click()

    def lines(self):
        """Of each topic: versions, and through whom each came."""
        return [
            [(int(words), re.sub(" ?arriving ?", "", through)) for words, through in line]
            for line in self.page.evaluate(LINES)
        ]

    def figure(self, words):
        return self.page.locator("#roam-figures > div", has_text=words).locator("dd span")

    def has(self, line, count):
        """So many versions of a topic, at least."""
        chips = self.page.locator("#lines .versions").nth(line).locator("li")
        expect(chips.nth(count - 1)).to_be_visible(**SOON)


@pytest.fixture
def traveller(visit):
    traveller = Traveller(visit())
    yield traveller
    check(traveller)


def check(traveller):
    """What the page shows is whole: it counts on the numbers, not on what the client says."""
    for line in traveller.lines():
        versions = [version for version, _ in line]
        assert versions, "nothing came at all"
        assert versions == list(range(versions[0], versions[-1] + 1))
    expect(traveller.figure("missing")).to_have_text("0")
    expect(traveller.figure("came twice")).to_have_text("0")


def test_it_moves_by_a_button_while_updates_arrive(traveller):
    page = traveller.page
    traveller.is_at("site-a.test")
    page.get_by_role("button", name="Keep publishing").click()
    for place, count in (("b", 2), ("a", 4), ("b", 6)):
        traveller.has(0, count - 1)
        traveller.has(1, count - 1)
        page.get_by_role("button", name=f"Move to site-{place}.test").click()
        traveller.is_at(f"site-{place}.test")
        traveller.has(0, count)
        traveller.has(1, count)
    page.get_by_role("button", name="Stop publishing").click()
    expect(page.locator("#moves .repaired")).to_have_count(4, **SOON)
    for line in traveller.lines():
        assert {through for _, through in line} == {"a", "b"}
    traveller.visitor.picture("roam")
