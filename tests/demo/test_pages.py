"""The stream of a page: what is kept, what is resumed, and what a slow reader does not get."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from demo.pages import KEPT, Page, Tab, Wishes, read_wishes


def _page():
    return Page("page", lambda: 0.0)


async def _take(stream, count):
    events = []
    async for raw in stream:
        fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\n"))
        events.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
        if len(events) == count:
            return events
    return events


def run(main):
    return asyncio.run(asyncio.wait_for(main, 30))


def test_a_stream_goes_on_where_the_last_one_ended():
    async def main():
        page = _page()
        stream = page.events(None)
        hello = await _take(stream, 1)
        assert hello == [("hello", None, {"page": "page", "resumed": False})]
        for number in range(3):
            page.send("update", {"n": number})
        assert [e[2] for e in await _take(stream, 2)] == [{"n": 0}, {"n": 1}]
        await stream.aclose()
        again = await _take(page.events(2), 2)
        assert again == [
            ("hello", None, {"page": "page", "resumed": True}),
            ("update", "3", {"n": 2}),
        ]

    run(main())


def test_wishes_may_come_before_the_stream():
    async def main():
        page = _page()
        tab = page.tabs[""] = Tab(page, "")
        tab.followers["feed"] = following = asyncio.create_task(asyncio.sleep(60))
        tab.send("update", {"n": 0})
        events = await _take(page.events(None), 2)
        assert [(kind, data) for kind, _, data in events] == [
            ("hello", {"page": "page", "resumed": True}),
            ("update", {"n": 0}),
        ]
        assert tab.followers
        following.cancel()

    run(main())


@pytest.mark.parametrize("after", [None, 7, 10**6])
def test_who_cannot_resume_says_again_where_it_is(after):
    async def main():
        page = _page()
        for number in range(KEPT + 10):
            page.send("update", {"n": number})
        await _take(page.events(None), 1)
        for number in range(KEPT + 10):
            page.send("update", {"n": number})
        following = asyncio.create_task(asyncio.sleep(60))
        page.tabs["one"] = tab = Tab(page, "one")
        tab.followers["feed"] = following
        (hello,) = await _take(page.events(after), 1)
        assert hello[2]["resumed"] is False
        assert not page.tabs, "they begin anew from where each tab is"
        await asyncio.gather(following, return_exceptions=True)
        assert following.cancelled()

    run(main())


def test_of_how_things_are_only_the_latest_is_sent():
    async def main():
        page = _page()
        for number in range(1_000):
            page.show("network", {"n": number})
            page.show("status", {"n": number})
        events = await _take(page.events(None), 3)
        assert events[1:] == [("network", None, {"n": 999}), ("status", None, {"n": 999})]

    run(main())


def test_tabs_share_the_stream_and_each_event_says_whose_it_is():
    async def main():
        page = _page()
        one, other = (page.tabs.setdefault(name, Tab(page, name)) for name in ("one", "other"))
        stream = page.events(None)
        await _take(stream, 1)
        one.send("update", {"n": 0})
        other.send("update", {"n": 1})
        for tab in (one, other):
            for number in range(9):
                tab.show("network", {"n": number})
        assert await _take(stream, 4) == [
            ("update", "1", {"n": 0, "tab": "one"}),
            ("update", "2", {"n": 1, "tab": "other"}),
            ("network", None, {"n": 8, "tab": "one"}),
            ("network", None, {"n": 8, "tab": "other"}),
        ]

    run(main())


def test_the_history_of_many_tabs_at_once_is_not_too_much():
    """Each begins with the last messages of its conversations."""

    async def main():
        page = _page()
        for name in "abcdefgh":
            page.tabs[name] = Tab(page, name)
        page.tabs["a"].send("hello", {})
        stream = page.events(0)
        await _take(stream, 2)
        for tab in page.tabs.values():
            for number in range(100):
                tab.send("chat", {"n": number})
        assert len(await _take(stream, 800)) == 800

    run(main())


def test_a_reader_that_falls_behind_is_sent_away():
    async def main():
        page = _page()
        stream = page.events(None)
        await _take(stream, 1)
        stream = page.events(None)
        assert (await anext(stream)).startswith(b"event: hello")
        for number in range(KEPT + 1):
            page.send("update", {"n": number})
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main())


def test_a_later_stream_ends_the_earlier():
    async def main():
        page = _page()
        first, second = page.events(None), page.events(None)
        await anext(first)
        waiting = asyncio.create_task(anext(first, None))
        await anext(second)
        assert await waiting is None
        assert page.listening
        await second.aclose()
        assert not page.listening

    run(main())


def test_wishes_are_read_as_the_documentation_says():
    wishes = read_wishes(
        b'{"feeds": [{"domain": "a", "topic": "http://x/", "after": null}],'
        b' "chats": [{"me": "a@b", "with": "c@d"}], "network": true, "topic": null}'
    )
    assert wishes.feeds[0].topic == "http://x/"
    assert wishes.chats[0].with_ == "c@d"
    assert (wishes.network, wishes.latency, wishes.topic) == (True, False, None)


@example(b'{"a\\nb": 1}')
@given(st.one_of(st.binary(), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["feeds", "chats", "network", "topic", "x"]) | st.text(), inner),
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_whatever_is_sent_is_wishes_or_an_error_of_one_line(body):
    try:
        said = read_wishes(body)
    except ValueError as error:
        said = str(error)
    assert isinstance(said, Wishes) or "\n" not in said
