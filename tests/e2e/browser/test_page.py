"""The page of `psph up` in a real Chromium, as people use it."""

from __future__ import annotations

import json
import re
import uuid

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.world import SOON, Line, headline, running_world
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)


def test_a_new_user_publishes_and_sees_the_update(visit):
    user = visit()
    page = user.arrive()
    user.subscribe()
    news = headline("The lighthouse is lit again")
    user.publish(news)
    user.sees(news)
    entry = user.entries(news)
    expect(entry.locator(".took")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    expect(page.locator("#announcement")).to_contain_text(news)
    user.picture("feeds")
    # The link leads to the website, at an address that this browser reaches.
    with user.context.expect_page() as opened:
        entry.get_by_role("link", name=news).click()
    expect(opened.value.get_by_role("heading", name=news)).to_be_visible(**SOON)
    opened.value.close()


def test_the_footer_leads_to_the_documentation(user):
    page = user.page
    with user.context.expect_page() as opened:
        page.get_by_role("link", name="docs/http-api.md").click()
    expect(opened.value.get_by_text("# The API of `psph up`")).to_be_visible(**SOON)
    opened.value.close()


def test_a_topic_is_subscribed_to_by_its_url_and_left_again(user):
    page = user.page
    page.get_by_role("radio", name="site-b.test").check()
    page.get_by_label("Or a topic by its URL").fill("news.site-a.test/notes.xml")
    page.get_by_label("Or a topic by its URL").press("Enter")
    expect(page.get_by_text("Added to the topics above.")).to_be_visible()
    user.entries("news.site-a.test/notes.xml").first.wait_for()
    note = headline("A note")
    user.publish(note, "news.site-a.test/notes.xml")
    user.sees(note)
    page.get_by_role("button", name="Leave news.site-a.test/notes.xml").click()
    expect(
        page.get_by_role("button", name="Subscribe to news.site-a.test/notes.xml")
    ).to_be_visible()


def test_what_is_no_address_is_said_to_be_none(user):
    page = user.page
    page.get_by_label("Or a topic by its URL").fill("javascript:alert(1)")
    page.get_by_label("Or a topic by its URL").press("Enter")
    expect(page.get_by_text("Write the address of a feed")).to_be_visible()
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Write a headline first.")).to_be_visible()


def test_a_topic_that_the_hub_refuses_does_not_stay(user):
    page = user.page
    page.get_by_label("Or a topic by its URL").fill("example.com/feed.xml")
    page.get_by_label("Or a topic by its URL").press("Enter")
    expect(page.locator("#subscribe-note")).to_have_text(
        "Not subscribed to example.com/feed.xml:"
        " this hub does not serve topics of example.com.", **SOON
    )  # fmt: skip
    expect(page.locator("#topics")).not_to_contain_text("example.com")
    page.reload()
    user.live()
    expect(page.locator("#topics")).not_to_contain_text("example.com")


def test_markup_of_strangers_stays_text(user):
    page = user.page
    user.subscribe("news.site-b.test/notes.xml")
    name = uuid.uuid4().hex[:8]
    user.publish(f"<img src=x onerror=alert(1)><b>{name}</b>", "news.site-b.test/notes.xml")
    # Whatever the hub leaves of it, the page shows as text.
    user.sees(name)
    assert page.locator("#entries img, #entries b").count() == 0


def test_after_a_reload_everything_is_there_once(visit, user):
    other, user = user, visit()
    page = user.arrive()
    user.subscribe()
    before = headline("Before the reload")
    user.publish(before)
    user.sees(before)
    other.subscribe()
    page.goto("about:blank")
    meanwhile = [headline("While nobody looked") for _ in range(2)]
    for each in meanwhile:
        other.publish(each)
        other.sees(each)  # so that the next is an update of its own
    user.arrive()
    for each in (before, *meanwhile):
        user.sees(each)
    expect(page.get_by_role("button", name="Leave news.site-b.test/feed.xml")).to_be_visible()


def test_a_line_that_was_cut_is_resumed_and_nothing_is_missed(visit, user, world):
    other = user
    line = Line(world)
    try:
        user = visit(line.url)
        user.forgiven = "net::ERR_"
        page = user.arrive()
        user.subscribe()
        other.subscribe()
        first, missed, missed_too, last = (headline(w) for w in ("First", "Then", "Then", "Last"))
        other.publish(first)
        user.sees(first)
        line.cut()
        connection = page.locator("#connection")
        expect(connection).to_have_text(re.compile("Reconnecting"), **SOON)
        for each in (missed, missed_too):
            other.publish(each)
            other.sees(each)
        line.mend()
        expect(connection).to_have_attribute("data-state", re.compile("resumed|live"), **SOON)
        other.publish(last)
        user.sees(last)
        for each in (first, missed, missed_too):
            user.sees(each)
    finally:
        line.close()


def test_a_world_that_was_started_anew_is_another_one(visit, world, tmp_path):
    line = Line(world)
    try:
        user = visit(line.url)
        user.forgiven = "net::ERR_"
        page = user.arrive()
        user.subscribe()
        page.evaluate("() => { window.ofTheOldWorld = true }")
        with running_world(tmp_path) as other:
            line.cut()
            expect(page.locator("#connection")).to_have_attribute("data-state", "lost", **SOON)
            line.mend(other)
            # The topics that it knew are not there any more: it begins anew.
            page.wait_for_function("() => !window.ofTheOldWorld")
            user.live()
            user.subscribe()
            news = headline("A new world")
            user.publish(news)
            user.sees(news)
            line.cut()
    finally:
        line.close()


def test_two_people_chat_and_find_their_words_again(visit, user):
    page = user.page
    user.view("Chat")
    alice = page.get_by_role("region", name="alice@site-a.test")
    bob = page.get_by_role("region", name="bob@site-b.test")
    question, answer = headline("Can you read this?"), headline("Yes, <b>word</b> for word.")
    for window, said in ((alice, question), (bob, answer)):
        window.get_by_role("textbox").fill(said)
        window.get_by_role("textbox").press("Enter")
        for reader in (alice, bob):
            line = reader.get_by_role("log").get_by_role("listitem").filter(has_text=said)
            expect(line).to_have_count(1, **SOON)
            expect(line).to_have_class(re.compile("sent"), **SOON)
    for window, buddy in ((alice, "bob"), (bob, "alice")):
        expect(window.get_by_text(f"{buddy} is here")).to_be_visible(**SOON)
    user.picture("chat")
    page.reload()
    somebody = visit()  # another browser, which remembers nothing
    for reading in (page, somebody.arrive("chat")):
        for name in ("alice@site-a.test", "bob@site-b.test"):
            lines = reading.get_by_role("region", name=name).get_by_role("listitem")
            for said in (question, answer):
                expect(lines.filter(has_text=said)).to_have_count(1, **SOON)


def test_a_link_is_cut_and_updates_keep_arriving(user):
    page = user.page
    user.subscribe()
    user.view("Network")
    page.get_by_label("Tree of").select_option(label="news.site-b.test/feed.xml")
    in_tree = page.locator("#links li.in-tree")
    expect(in_tree).not_to_have_count(0, **SOON)
    user.picture("network")
    # One in the middle: each PSPH has two links, and could lose one, too.
    name = in_tree.filter(has_not_text="psph").first.locator(".name").inner_text()
    a, b = name.split(" – ")
    page.get_by_role("button", name=f"Cut the link {a} to {b}").click()
    log = page.get_by_role("log", name="What happened")
    expect(log.get_by_text(f"You cut {name}.")).to_be_visible(**SOON)
    expect(log.get_by_text(re.compile(rf"Repaired .* after {name} went")).first).to_be_visible(
        **SOON
    )
    expect(in_tree.filter(has_text=name)).to_have_count(0)
    user.picture("network-cut")
    user.view("Feeds")
    news = headline("Around the broken link")
    user.publish(news)
    user.sees(news)
    user.view("Network")
    page.get_by_role("button", name=f"Heal the link {a} to {b}").click()
    expect(log.get_by_text(f"You healed {name}.")).to_be_visible(**SOON)
    expect(log.get_by_text(f"{name} works again.")).to_be_visible(**SOON)


SLOW_ANSWERS = """
const { fetch } = window;
window.fetch = async (path, options) => {
  const answer = await fetch(path, options);
  if (options.method === "POST") await new Promise((resolve) => setTimeout(resolve, 3_000));
  return answer;
};
"""


def test_a_repair_is_noticed_that_is_over_before_the_answer(visit):
    user = visit()
    page = user.page
    page.add_init_script(SLOW_ANSWERS)
    user.arrive("network")
    middle = page.locator("#links li.in-tree").filter(has_not_text="psph").first
    name = middle.locator(".name").inner_text()
    a, b = name.split(" – ")
    page.get_by_role("button", name=f"Cut the link {a} to {b}").click()
    log = page.get_by_role("log", name="What happened")
    repaired = log.get_by_text(re.compile(rf"Repaired .* after {name} went"))
    expect(repaired).to_be_visible(**SOON)
    page.get_by_role("button", name=f"Heal the link {a} to {b}").click()
    expect(log.get_by_text(f"{name} works again.")).to_be_visible(**SOON)


def test_the_page_says_why_there_is_no_tree(user):
    page = user.page
    user.view("Network")
    # No other test subscribes to that one, or it would have a tree for some time afterwards.
    page.get_by_label("Tree of").select_option(label="news.site-a.test/feed.xml")
    note = page.locator("#tree-note")
    expect(note).to_contain_text("nobody in the other domain is subscribed", **SOON)
    for end in ("n1", "n2"):
        page.get_by_role("button", name=f"Cut the link psph-a to {end}").click()
    expect(note).to_contain_text("no way is left between the domains", **SOON)
    for end in ("n1", "n2"):
        page.get_by_role("button", name=f"Heal the link psph-a to {end}").click()
    expect(note).to_contain_text("nobody in the other domain is subscribed", **SOON)


def test_a_node_is_stopped_and_updates_keep_arriving(user):
    page = user.page
    user.subscribe()
    user.view("Network")
    page.get_by_label("Tree of").select_option(label="news.site-b.test/feed.xml")
    middle = page.locator("#links li.in-tree").filter(has_not_text="psph").first
    node = middle.locator(".name").inner_text().split(" – ")[0]
    # On the map, as with a finger; the switch comes up below it.
    page.locator(".net-node", has_text=node).click()
    page.get_by_label("Chosen on the map").get_by_role(
        "button", name=f"Stop the node {node}"
    ).click()
    stopped = page.get_by_role("button", name=f"Start the node {node}")
    expect(stopped).to_have_count(2, **SOON)
    log = page.get_by_role("log", name="What happened")
    expect(log.get_by_text(re.compile(rf"Repaired .* after {node} went")).first).to_be_visible(
        **SOON
    )
    user.view("Feeds")
    news = headline("Past the node that is gone")
    user.publish(news)
    user.sees(news)
    user.view("Network")
    stopped.last.click()
    expect(page.get_by_role("button", name=f"Stop the node {node}")).to_have_count(2, **SOON)


def test_a_crossing_is_shown_stage_by_stage(user):
    page = user.page
    user.subscribe()
    user.view("Latency")
    user.view("Feeds")
    news = headline("For the stopwatch")
    user.publish(news)
    user.sees(news)
    user.view("Latency")
    crossings = page.get_by_role("listitem").filter(has_text="to site-a.test")
    bar = crossings.get_by_role("img", name=re.compile(r"Fetch .* Publish .* Deliver "))
    expect(bar.first).to_be_visible(**SOON)
    p50 = page.locator("#percentiles div", has_text="p50")
    expect(p50).to_contain_text(re.compile(r"\d\s?m?s\b"), **SOON)
    user.picture("latency")


def test_what_spark_found_is_shown(user, data):
    """The files are those that `psph traces follow` and `psph report` write."""
    page = user.page
    user.view("Latency")
    pair = page.get_by_role("region", name="From domain to domain")
    expect(pair).to_be_hidden(**SOON)
    report = page.locator("#report")
    expect(report).to_contain_text("There is no Spark report of this world yet.", **SOON)
    command = f"psph report --traces {data}/data/traces --out {data}/report"
    expect(report.locator("code")).to_have_text(command)
    (data / "report").mkdir()
    (data / "report" / "report.html").write_text("<title>A report</title><p>All is well.</p>")
    window = {
        "window_ns": 1_800_000_000_000_000_000, "from_domain": "site-b.test",
        "to_domain": "site-a.test", "count": 7, "compared": 7, "p50_ms": 2.25, "p90_ms": 3.5,
        "p99_ms": 4.75, "max_ms": 5.0, "uncertainty_ms": 0.125,
    }  # fmt: skip
    (data / "live").mkdir()
    aside = data / "live" / "aside"
    aside.write_text(json.dumps({"window_s": 10, "windows": [window]}))
    aside.rename(data / "live" / "latency.json")
    line = pair.get_by_role("listitem").filter(has_text="site-b.test")
    expect(line).to_contain_text("to site-a.test", **SOON)
    expect(line).to_contain_text("7 crossings", **SOON)
    expect(line.get_by_role("img")).to_have_accessible_name("p50 of the last 1 windows")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="The last Spark report").click(**SOON)
    expect(opened.value.get_by_text("All is well.")).to_be_visible(**SOON)
    opened.value.close()
    (data / "live" / "latency.json").unlink()
    expect(pair).to_be_hidden(**SOON)
