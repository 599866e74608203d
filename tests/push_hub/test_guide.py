"""Topics that are followed at the hub a guide names: what that hub pushes is recorded as it is."""

from identifiers import identify
from push_hub.following import Way
from push_hub.signatures import signature
from tests.push_hub.test_upstream import follower, other_hub
from tests.push_hub.world import run, until, until_async

TOPIC = "http://only.in.the.fabric.example/feed"
QUIET = {"poll_shortest": 1000.0, "poll_longest": 1000.0}


class NotedGuide:
    """Says what a test wants, by canonical form."""

    def __init__(self):
        self.hubs = {}
        self.failures = []
        self.error = None

    async def hub_for(self, topic):
        if self.error is not None:
            raise self.error
        return self.hubs.get(topic.canonical)

    def failed(self, hub):
        self.failures.append(hub)


def test_updates_of_the_hub_it_names_keep_their_positions(tmp_path):
    async def main():
        guide = NotedGuide()
        async with (
            follower(tmp_path, guide=guide, **QUIET) as (w, way),
            other_hub(tmp_path) as (there, hub),
        ):
            guide.hubs[TOPIC] = f"{there}/hub"
            await w.subscribe(TOPIC)
            followed = await way(Way.HUB, "/feed")
            assert (followed.hub, followed.guided) == (f"{there}/hub", True)
            assert followed.self_url == TOPIC
            positions = []
            for n in range(3):
                recorded = await hub.publish(identify(TOPIC), "Text/X-Odd; a=B", b"\xff%d" % n)
                positions.append(str(recorded.update.position))
            await until(lambda: len(w.reader.received) == 3, "all updates")
            assert [each.body for each in w.reader.received] == [b"\xff0", b"\xff1", b"\xff2"]
            got = [each.headers["X-Hub-Position"] for each in w.reader.received]
            assert got == positions
            assert w.reader.received[0].headers["Content-Type"] == "Text/X-Odd; a=B"
            assert w.hub.counters["fetches"] == w.hub.counters["fetch_failures"] == 0
            # It goes on being followed, whatever came from there lately.
            await w.hub.upstream._round(0.1, True)
            assert (await way(Way.HUB, "/feed")).token == followed.token
            async with w.client.get(
                f"{w.hub_url}/topics", params={"url": TOPIC, "format": "json"}
            ) as answer:
                shown = await answer.json()
            assert shown["watched"] == [f"the hub of our domain pushes to this one: {there}/hub"]

    run(main())


async def push(w, followed, body, sign=True, **headers):
    secret = followed.secret if sign else b"wrong"
    headers = {"X-Hub-Signature": signature(secret, body), **headers}
    url = f"{w.hub_url}/upstream/{followed.token}"
    async with w.client.post(url, data=body, headers=headers) as answer:
        return answer.status


def test_a_push_without_a_position_is_a_reason_to_fetch(tmp_path):
    async def main():
        guide = NotedGuide()
        async with (
            follower(tmp_path, guide=guide, **QUIET) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic = w.site.put("/t", b"1")
            guide.hubs[topic] = f"{there}/hub"
            await w.subscribe(topic)
            followed = await way(Way.HUB)
            for position in (None, "nonsense", f"{'ab' * 16}.{2**63}.1"):
                w.site.put("/t", b"what the site says now, %d" % len(w.reader.received))
                headers = {} if position is None else {"X-Hub-Position": position}
                before = len(w.reader.received)
                assert await push(w, followed, b"something else", **headers) == 202
                await until(
                    lambda before=before: len(w.reader.received) == before + 1, "the delivery"
                )
            assert all(each.body.startswith(b"what") for each in w.reader.received)

    run(main())


def test_only_what_is_signed_and_new_is_recorded(tmp_path):
    async def main():
        guide = NotedGuide()
        async with (
            follower(tmp_path, guide=guide, **QUIET) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            guide.hubs[TOPIC] = f"{there}/hub"
            await w.subscribe(TOPIC)
            followed = await way(Way.HUB, "/feed")
            at = {"X-Hub-Position": f"{'ab' * 16}.1.7"}
            assert await push(w, followed, b"forged", sign=False, **at) == 202
            own = {"X-Hub-Position": f"{w.hub.store.identity.publisher}.1.1"}
            assert await push(w, followed, b"our own, they say", **own) == 202
            for _ in range(2):
                assert await push(w, followed, b"true", **at) == 202
            await until(lambda: w.reader.received, "the delivery")
            assert [str(each.position) for each in await w.hub.store.versions(1, 9)] == [
                f"{'ab' * 16}.1.7"
            ]
            # The numbering of this hub is as it was.
            recorded = await w.hub.publish(identify(TOPIC), "text/plain", b"ours")
            assert recorded.update.position.version == 1

    run(main())


def test_a_hub_that_the_topic_names_is_never_believed(tmp_path):
    async def main():
        async with (
            follower(tmp_path, guide=NotedGuide(), **QUIET) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic = w.site.put("/t", b"1", Link=f'<{there}/hub>; rel="hub"')
            await w.subscribe(topic)
            followed = await way(Way.HUB)
            assert not followed.guided
            w.site.put("/t", b"2", Link=f'<{there}/hub>; rel="hub"')
            at = {"X-Hub-Position": f"{'ab' * 16}.1.7"}
            assert await push(w, followed, b"a lie", **at) == 202
            await until(lambda: w.reader.received, "the delivery")
            assert w.reader.received[0].body == b"2"

    run(main())


def test_where_that_hub_fails_the_topic_is_plain_websub_until_it_works(tmp_path):
    async def main():
        guide = NotedGuide()
        async with (
            follower(tmp_path, guide=guide, ask_again=1000.0) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic, broken = w.site.put("/t", b"1"), f"{w.site.url}/no/hub"
            guide.hubs[topic] = broken
            await w.subscribe(topic)
            await until(lambda: w.hub.counters["updates"] == 1, "the first look")
            polled = await way(Way.POLLED)
            assert polled.reason == f"the hub of our domain {broken} answered 405"
            assert guide.failures == [broken]
            w.site.put("/t", b"2")
            await until(lambda: w.reader.received, "the delivery")
            # The guide knows another one, which works.
            guide.hubs[topic] = f"{there}/hub"
            assert (await way(Way.HUB)).hub == f"{there}/hub"

    run(main())


def test_hubs_that_all_fail_are_not_asked_without_end(tmp_path):
    async def main():
        guide = NotedGuide()
        async with follower(tmp_path, guide=guide, ask_again=1000.0) as (w, _):
            topic = w.site.put("/t", b"1")
            guide.hubs[topic] = f"{w.site.url}/0"

            def another(hub):
                guide.failures.append(hub)
                guide.hubs[topic] = f"{w.site.url}/{len(guide.failures)}"

            guide.failed = another
            await w.subscribe(topic)
            await until(lambda: len(w.site.fetches("/t")) >= 3, "some polls")
            assert len(guide.failures) == 4

    run(main())


def test_a_zone_without_a_fabric_any_more_is_plain_websub(tmp_path):
    async def main():
        guide = NotedGuide()
        async with (
            follower(tmp_path, guide=guide) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic = w.site.put("/t", b"1")
            guide.hubs[topic] = f"{there}/hub"
            await w.subscribe(topic)
            await way(Way.HUB)
            guide.hubs.clear()
            polled = await way(Way.POLLED)
            assert (polled.guided, polled.hub, polled.reason) == (False, None, "it names no hub")
            # And back, when it has one again.
            guide.hubs[topic] = f"{there}/hub"
            assert (await way(Way.HUB)).guided

    run(main())


def test_a_guide_that_fails_or_names_this_hub_changes_nothing(tmp_path):
    async def main():
        guide = NotedGuide()
        guide.error = OSError("no name server answers")
        async with follower(tmp_path, guide=guide, **QUIET) as (w, way):
            topic = w.site.put("/t", b"1")
            await w.subscribe(topic)
            assert (await way(Way.POLLED)).reason == "it names no hub"
        (tmp_path / "second").mkdir()
        guide.error = None
        async with follower(tmp_path / "second", guide=guide, **QUIET) as (w, way):
            topic = w.site.put("/t", b"1")
            guide.hubs[topic] = f"{w.hub.settings.hub_url}"
            await w.subscribe(topic)
            assert (await way(Way.POLLED)).reason == "it names no hub"

    run(main())


def test_what_was_pinged_and_fetched_here_is_not_recorded_twice(tmp_path):
    async def main():
        guide = NotedGuide()
        async with (
            follower(tmp_path, guide=guide, **QUIET) as (w, way),
            other_hub(tmp_path) as (there, _),
        ):
            topic = w.site.put("/t", b"1")
            guide.hubs[topic] = f"{there}/hub"
            await w.subscribe(topic)
            followed = await way(Way.HUB)
            await w.ping(topic)
            await until(lambda: w.reader.received, "the delivery")
            at = {"X-Hub-Position": f"{'ab' * 16}.1.7"}
            assert await push(w, followed, b"1", **at) == 202
            assert len(await w.hub.store.versions(1, 9)) == 1

            async def still():
                return (await w.hub.store.following(1)).way is Way.HUB

            await until_async(still, "following")

    run(main())
