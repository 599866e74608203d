"""The page moves between the hubs of the two domains: every version once, in order."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.world import SOON
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

LINES = """() => [...document.querySelectorAll("#lines .versions")].map(
    (line) => [...line.children].map(
        (each) => [each.textContent, each.className, each.dataset.stream]))"""


class Traveller:
    """Looks at the view Roam."""

    def __init__(self, visitor, page=None):
        """`page`: another tab of the same visitor."""
        self.visitor = visitor
        if page is None:
            page = visitor.arrive("roam")
        else:
            page.goto(f"{visitor.address}#roam")
        self.page = page
        self.now = self.page.locator("#roam-now")
        self.log = self.page.get_by_role("log", name="Hand-offs")

    def is_at(self, domain):
        expect(self.now).to_have_text(f"The page is at {domain}.", **SOON)

    def publish(self):
        """On both websites."""
        self.page.get_by_role("button", name="Publish on both").click()

    def say(self, words):
        """As a publisher that moves: through the hub that the page is at."""
        self.page.get_by_label("Something to say").fill(words)
        self.page.get_by_role("button", name="Send").click()

    def said(self, count):
        """The versions that the topic's own hub made of it, once so many are there."""
        chips = self.page.locator("#roam-said li")
        expect(chips).to_have_count(count, **SOON)
        return list(map(int, chips.all_inner_texts()))

    def lines(self):
        """Of each topic: versions, and through whom each came."""
        return [
            [(int(words), re.sub(" ?arriving ?", "", through)) for words, through, _ in line]
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
    for line in traveller.page.evaluate(LINES):
        assert line, "nothing came at all"
        streams = {}
        for words, _, stream in line:
            streams.setdefault(stream, []).append(int(words))
        # There are two if a PSPH was stopped for so long that the other domain fetched its topic.
        for versions in streams.values():
            assert versions == list(range(versions[0], versions[-1] + 1))
    expect(traveller.figure("missing")).to_have_text("0")
    expect(traveller.figure("came twice")).to_have_text("0")


def test_the_view_of_the_network_shows_where_clients_move(traveller):
    """The hubs learned it from the page's own moves, and expect it."""
    page = traveller.page
    traveller.is_at("site-a.test")
    traveller.publish()
    for place in ("b", "a"):
        page.get_by_role("button", name=f"Move to site-{place}.test").click()
        traveller.is_at(f"site-{place}.test")
    traveller.has(0, 1)
    traveller.has(1, 1)
    traveller.visitor.view("Network")
    edges = page.get_by_role("region", name="Where clients move").get_by_role("listitem")
    expect(edges).to_have_count(1, **SOON)
    expect(edges).to_contain_text("psph-a – psph-b")
    expect(edges).to_contain_text(re.compile(r"client.? expected at psph-b"), **SOON)
    expect(page.locator(".net-walk title")).to_contain_text("from psph-a to psph-b")
    expect(page.get_by_text("where clients move: prepared")).to_be_visible()
    traveller.visitor.view("Roam")


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


def test_it_goes_on_at_the_other_hub_when_its_own_is_stopped(traveller):
    page = traveller.page
    # The console says that nobody answers at the hub that was stopped, as it should.
    traveller.visitor.forgiven = "Failed to load resource"
    traveller.is_at("site-a.test")
    traveller.publish()
    traveller.has(0, 1)
    traveller.has(1, 1)
    traveller.say("at the first hub")
    (first,) = traveller.said(1)
    page.get_by_role("button", name="Stop psph-a").click()
    for words in ("on the way", "and on"):
        traveller.say(words)
    try:
        traveller.is_at("site-b.test")
        assert traveller.said(3) == [first, first + 1, first + 2]
        expect(traveller.log).to_contain_text("site-a.test is lost", **SOON)
        traveller.publish()
        traveller.has(1, 2)
        # Its website has nobody to tell meanwhile, and says so.
        expect(page.locator("#roam-note")).to_contain_text("hub was not told", **SOON)
        page.reload()  # with one hub only
        traveller.is_at("site-b.test")
    finally:
        page.get_by_role("button", name="Start psph-a").click()
        expect(page.get_by_role("button", name="Stop psph-a")).to_be_enabled(**SOON)
    traveller.publish()
    traveller.has(0, 2)
    traveller.has(1, 3)


def test_a_reload_goes_on_where_it_was(traveller, world):
    page = traveller.page
    traveller.is_at("site-a.test")
    traveller.publish()
    traveller.has(0, 1)
    traveller.has(1, 1)
    page.get_by_role("button", name="Move to site-b.test").click()
    traveller.is_at("site-b.test")
    before = traveller.lines()
    page.goto("about:blank")
    with urllib.request.urlopen(f"{world}api/world") as answer:
        domains = json.load(answer)["domains"]
    for domain in domains:
        entry = {"topic": domain["topics"][0]["url"], "text": "While nobody looked"}
        urllib.request.urlopen(f"{world}api/topics/publish", json.dumps(entry).encode()).close()
    traveller.visitor.arrive("roam")
    traveller.is_at("site-b.test")
    for index, line in enumerate(before):
        traveller.has(index, len(line) + 1)
    assert [line[: len(was)] for line, was in zip(traveller.lines(), before, strict=True)] == before
    expect(traveller.log).to_contain_text("loaded again", **SOON)


def test_it_goes_where_it_is_answered_faster(traveller):
    page = traveller.page
    traveller.is_at("site-a.test")
    traveller.publish()
    page.get_by_label("Go where it answers faster").check()
    page.get_by_role("radio", name="site-b.test").check()
    traveller.is_at("site-b.test")
    expect(traveller.log).to_contain_text("it answers faster", **SOON)
    traveller.has(0, 1)
    traveller.has(1, 1)


def test_two_tabs_are_one_client_and_both_see_what_comes(traveller, hubs):
    first = traveller.page
    traveller.is_at("site-a.test")
    traveller.publish()
    traveller.has(0, 1)
    traveller.has(1, 1)
    before = clients(hubs)
    second = Traveller(traveller.visitor, traveller.visitor.context.new_page())
    second.is_at("site-a.test")
    assert clients(hubs) <= before  # others, of earlier tests, may leave
    second.publish()
    for each in (traveller, second):
        each.has(0, 2)
        each.has(1, 2)
    # The one that is asked to move is the client from then on; the other goes along.
    second.page.get_by_role("button", name="Move to site-b.test").click()
    for each in (traveller, second):
        each.is_at("site-b.test")
    second.say("from the second tab")
    second.said(1)
    traveller.say("from the first")
    for each in (traveller, second):
        each.said(2)
    check(second)
    second.page.close()
    traveller.is_at("site-b.test")
    expect(traveller.log).to_contain_text("loaded again", **SOON)
    first.get_by_role("button", name="Publish on both").click()
    traveller.has(0, 3)
    traveller.has(1, 3)


def clients(hubs):
    """Sessions that mobility proxies have."""
    found = 0
    for hub in hubs:
        with urllib.request.urlopen(f"{hub}mobility") as answer:
            found += json.load(answer)["clients"]
    return found
