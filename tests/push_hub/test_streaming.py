"""`StreamFollower` against real hubs that die, and against servers that only claim to be hubs."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId, identify
from push_hub import create_app
from push_hub.app import HUB
from push_hub.client import HubRefused, StreamFollower, StreamGap, StreamReset, StreamUpdate
from push_hub.event_stream import BadEvent, ReadEvent
from push_hub.retries import RetrySchedule
from push_hub.stream_events import Progress, StreamBase, read_stream_event
from tests.ports import free_port
from tests.push_hub.world import PATIENCE, chosen, run, served, until

TOPIC, OTHER = "http://example.com/feed", "http://Example.com/other?a=%2F+&b=1"
X, Y = PublisherId(b"x" * 16), PublisherId(b"y" * 16)
SOON = RetrySchedule(first=0.01, factor=1.5, longest=0.1)


def at(version, publisher=X, epoch=1):
    return Position(publisher, epoch, version)


@asynccontextmanager
async def hub_in(directory, port=0, **changes):
    directory.mkdir(exist_ok=True)
    app = create_app(chosen(**changes), directory)
    async with served(app, port) as url:
        yield f"{url}/hub", app[HUB]


async def accept(hub, *positions, topic=TOPIC):
    for each in positions:
        await hub.accept(
            identify(topic), "text/plain", b"%d" % each.version, position=each, trace_id="ab" * 16
        )


def follower(hubs, *topics, **options):
    async def known():
        return list(hubs)

    return StreamFollower(topics or (TOPIC,), known, **{"retries": SOON, **options})


async def take(following, count):
    async def some():
        return [await anext(following) for _ in range(count)]

    return await asyncio.wait_for(some(), PATIENCE)


def positions(events):
    return [each.position if isinstance(each, StreamUpdate) else each for each in events]


def test_it_goes_on_at_the_next_hub_and_nothing_is_lost_or_doubled(tmp_path):
    async def main():
        words, fates = [], []
        async with hub_in(tmp_path / "b") as (second, there), AsyncExitStack() as stack:
            first, here = await stack.enter_async_context(hub_in(tmp_path / "a"))
            async with follower(
                [first, second], TOPIC, OTHER, told=words.append,
                failed=lambda hub: fates.append(("failed", hub)),
                worked=lambda hub: fates.append(("worked", hub)),
            ) as following:  # fmt: skip
                await until(lambda: following.hub == first, "the connection")
                await accept(here, at(1), at(2), at(3))
                await accept(here, at(1, Y), topic=OTHER)
                got = await take(following, 4)
                assert got[0] == StreamUpdate(TOPIC, at(1), "text/plain", b"1", "ab" * 16)
                assert [each.position for each in got] == [at(1), at(2), at(3), at(1, Y)]
                assert got[3].topic == OTHER
                # The other one has that too, in another order, and more.
                await accept(there, at(1, Y), topic=OTHER)
                await accept(there, at(2), at(3), at(4))
                await stack.aclose()
                assert positions(await take(following, 1)) == [at(4)]
                await accept(there, at(5), at(1, Y))
                await accept(there, at(2, Y), topic=OTHER)
                assert positions(await take(following, 3)) == [at(5), at(1, Y), at(2, Y)]
                assert following.positions == {TOPIC: (at(5), at(1, Y)), OTHER: (at(2, Y),)}
            assert words == [
                f"following at {first}",
                f"the hub {first} is gone (it ended the stream), going on at {second}",
            ]
            assert fates == [("worked", first), ("failed", first), ("worked", second)]

    run(main())


def test_it_is_told_when_nothing_is_missed_any_more(tmp_path):
    async def main():
        async with hub_in(tmp_path / "b") as (second, there), AsyncExitStack() as stack:
            first, here = await stack.enter_async_context(hub_in(tmp_path / "a"))
            await accept(here, at(1), at(2))
            async with follower([first, second], TOPIC, OTHER, base=True) as following:
                assert positions(await take(following, 3)) == [
                    at(2), StreamBase(TOPIC, (at(2),)), StreamBase(OTHER, ())
                ]  # fmt: skip
                # Of what had nothing yet, all that was published in between comes.
                await accept(there, at(1), at(2), topic=OTHER)
                await accept(there, at(2), at(3))
                await stack.aclose()
                assert sorted(positions(await take(following, 3))) == [at(1), at(2), at(3)]
                await accept(there, at(4))
                assert positions(await take(following, 1)) == [at(4)]
            async with follower([second], base=True, last=None) as following:
                assert positions(await take(following, 3)) == [at(2), at(3), at(4)]

    run(main())


def test_it_begins_after_the_positions_it_is_given(tmp_path):
    async def main():
        async with hub_in(tmp_path / "a") as (url, hub):
            await accept(hub, at(1), at(2), at(1, Y), at(3), at(2, Y))
            after = {TOPIC: [at(2), at(1, Y)]}
            async with follower([url], after=after) as following:
                assert following.positions[TOPIC] == (at(2), at(1, Y))
                assert positions(await take(following, 2)) == [at(3), at(2, Y)]
            # Without one: from the current version on.
            async with follower([f"{url}/"]) as following:
                assert positions(await take(following, 1)) == [at(2, Y)]

    run(main())


def test_gaps_and_resets_are_events(tmp_path):
    async def main():
        async with hub_in(tmp_path / "a") as (url, hub):
            await accept(hub, at(5))
            async with follower([url], after={TOPIC: [at(2)]}) as following:
                assert await take(following, 1) == [StreamGap(TOPIC, at(2), at(5))]
                assert positions(await take(following, 1)) == [at(5)]
                await accept(hub, at(1, epoch=2))
                assert await take(following, 1) == [StreamReset(TOPIC, at(5), at(1, epoch=2))]

    run(main())


def test_a_hub_that_comes_back_is_followed_again(tmp_path):
    async def main():
        words, port = [], free_port()
        url = f"http://127.0.0.1:{port}/hub"
        async with follower([url], told=words.append) as following:
            await until(lambda: words, "the first attempt")
            for n in range(1, 4):
                async with hub_in(tmp_path / "a", port) as (_, hub):
                    await accept(hub, at(n))
                    assert positions(await take(following, 1)) == [at(n)]
            assert words[0].startswith(f"the hub {url} cannot be used: cannot connect")
            assert f"the hub {url} was gone (it ended the stream), and is back" in words

    run(main())


async def fake(*scripts):
    """A server that answers each connection with the next script; the last one again and again."""
    left, taken = list(scripts), []

    async def answer(reader, writer):
        try:
            taken.append(await reader.readuntil(b"\r\n\r\n"))
            script = left.pop(0) if len(left) > 1 else left[0]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            for part in script:
                if part is None:
                    await reader.read()  # silent, until the other side goes
                else:
                    writer.write(part)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hub", taken


def sse(position, topic=TOPIC, kind=None, **data):
    if kind is not None:
        return f"event: {kind}\ndata: {json.dumps({'topic': topic, **data})}\n\n".encode()
    said = {"topic": topic, "position": str(position), "content_type": "a/b", "body_b64": "eA=="}
    return f"data: {json.dumps(said)}\n\n".encode()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([b": still here\n\n", None], "nothing was heard of it for 0.3 s"),
        ([b"data: nonsense\n\n"], "it sent an event that makes no sense"),
        ([b": a\n\ndata: " + b"x" * 3_000], "it sent an event of more than 2000 bytes"),
        ([sse(at(1), kind="gap", after="x", resumes="y")], "it sent an event that makes no sense"),
    ],
)
def test_a_hub_that_is_silent_or_talks_nonsense_is_left(tmp_path, script, words):
    async def main():
        heard = []
        server, bad, _ = await fake(script)
        async with server, hub_in(tmp_path / "a", heartbeat=0.05) as (good, hub):
            options = {"told": heard.append, "heartbeat": 0.1, "max_event": 2_000}
            async with follower([bad, good], **options) as following:
                await until(lambda: following.hub == good, "the other hub")
                await accept(hub, at(1))
                assert positions(await take(following, 1)) == [at(1)]
            assert any(words in each for each in heard), heard

    run(main())


def test_repeats_and_strange_topics_are_left_out_and_a_gap_waits_for_its_end(tmp_path):
    async def main():
        gap = sse(None, kind="gap", after=str(at(2)), resumes=str(at(9)))
        strange = [sse(at(7), topic="http://else.example/"), sse(None, kind="news")]
        server, url, taken = await fake(
            [sse(at(1)), *strange, sse(at(2)), sse(at(1)), sse(at(2)), gap],
            [sse(at(2)), sse(at(3)), None],
        )
        async with server, follower([url]) as following:
            assert positions(await take(following, 3)) == [at(1), at(2), at(3)]
            assert b"after" not in taken[0]
            assert f"after={at(2)}".encode() in taken[1]
            assert b"content=whole" in taken[1]

    run(main())


def test_whoever_stops_waiting_for_an_event_loses_none(tmp_path):
    async def main():
        async with hub_in(tmp_path / "a") as (url, hub), follower([url]) as following:
            await until(lambda: following.hub is not None, "the connection")
            got = []
            for n in range(1, 30):
                await accept(hub, at(n))
                try:
                    got.append(await asyncio.wait_for(anext(following), 0.002))
                except TimeoutError:
                    continue
            got += await take(following, 29 - len(got))
            assert positions(got) == [at(n) for n in range(1, 30)]

    run(main())


def test_who_finds_no_hub_in_time_is_told_why(tmp_path):
    async def main():
        nobody = f"http://127.0.0.1:{free_port()}/hub"
        async with follower([nobody], patience=0.2) as following:
            with pytest.raises(HubRefused, match="no hub can be followed at: cannot connect"):
                await take(following, 1)

        async def unknown():
            raise OSError("no name server answers")

        words = []
        async with StreamFollower(
            [TOPIC], unknown, patience=0.1, told=words.append, retries=SOON
        ) as following:
            with pytest.raises(HubRefused, match="no hub is known"):
                await take(following, 1)
        assert words == ["it is not known which hub to follow at: no name server answers"]
        async with hub_in(tmp_path / "a") as (url, _), follower([url], "ftp://x/") as following:
            with pytest.raises(HubRefused, match="refuses: "):
                await take(following, 1)
        async with hub_in(tmp_path / "b", topic_hosts=("else.example",)) as (url, _):
            async with follower([url], patience=0.1) as following:
                with pytest.raises(HubRefused, match="403 this hub does not serve topics"):
                    await take(following, 1)
            # With `base`, the refusal is raised at once.
            async with follower([url], base=True) as following:
                with pytest.raises(HubRefused, match="refuses: this hub does not serve topics"):
                    await take(following, 1)

    run(main())


@pytest.mark.parametrize("topics", [(), (TOPIC, TOPIC)])
def test_topics_are_named_once(topics):
    with pytest.raises(ValueError, match="name topics"):
        StreamFollower(topics, None)


FIELDS = st.sampled_from(
    ["topic", "position", "body_b64", "after", "resumes", "base", "content_type", "trace_id"]
)
SAID = st.recursive(
    st.none() | st.integers() | st.text() | st.just(str(at(1))),
    lambda inner: st.dictionaries(FIELDS, inner),
)


@given(
    st.sampled_from(["message", "gap", "reset", "base", "x", ""]), st.text() | SAID.map(json.dumps)
)
def test_any_event_is_understood_or_refused(kind, data):
    with suppress(BadEvent):
        found = read_stream_event(ReadEvent(kind, data))
        assert found is None or isinstance(found.topic, str)


def test_progress_is_by_topic_and_publisher():
    progress = Progress([TOPIC], {TOPIC: [at(3), at(2)], OTHER: [at(9)]})
    assert progress.positions() == {TOPIC: (at(3),)}
    assert progress.had(TOPIC, at(1, Y))
    assert progress.had(TOPIC, at(4))
    assert not progress.had(TOPIC, at(4))
    assert not progress.had(OTHER, at(1))
    assert progress.had(TOPIC, at(1, epoch=2))
    # Of too many, those heard of last.
    assert progress.query(1) == [("topic", TOPIC), ("after", str(at(1, epoch=2)))]
