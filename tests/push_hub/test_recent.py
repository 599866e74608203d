"""What a hub remembers of the last updates, and streams that go on in it."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId, identify
from push_hub.recent import Recent
from push_hub.store.records import Origin, Update
from tests.push_hub.carriers import NotedCarrier
from tests.push_hub.test_resuming import accept, at
from tests.push_hub.test_streams import TOPIC
from tests.push_hub.world import PATIENCE, run, until, world

X = PublisherId(b"x" * 16)


def update(seq, version=None, topic_id=1, body=b"."):
    position = Position(X, 1, version or seq)
    name = f"http://site.example/{topic_id}"
    return Update(
        seq, topic_id, name, position, "ab" * 16, Origin.PUBLISHED, "text/plain", body, None, 0.0
    )


def numbers(found):
    return None if found is None else [each.update.seq for each in found]


def test_a_reader_goes_on_after_its_position_only_where_nothing_is_missing():
    recent = Recent(history=3)
    for seq in range(1, 6):
        recent.add(update(seq))
    assert recent.place(1, [Position(X, 1, 3)]) == 3
    assert numbers(recent.after(1, 3)) == [4, 5]
    assert numbers(recent.after(1, 5)) == []
    assert recent.place(1, [Position(X, 1, 2)]) is None, "it may lack what is not here any more"
    assert recent.place(1, []) is None
    assert recent.place(1, [Position(X, 1, 3), Position(PublisherId(b"y" * 16), 1, 1)]) is None
    assert recent.after(1, 2) is None
    assert recent.after(2, 0) is None
    assert recent.topic_id("http://site.example/1") == 1


def test_what_is_out_of_order_is_not_gone_on_in():
    recent = Recent(history=10)
    for seq in (1, 2, 4, 3):
        recent.add(update(seq))
    assert recent.place(1, [Position(X, 1, 1)]) is None
    assert numbers(recent.after(1, 3)) == []


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3_000)), max_size=200))
def test_it_stays_within_its_bytes_and_has_every_last_one_in_order(added):
    recent = Recent(history=20, most_bytes=50_000)
    kept = {}
    for seq, (topic_id, size) in enumerate(added, 1):
        recent.add(update(seq, topic_id=topic_id, body=bytes(size)))
        kept.setdefault(topic_id, []).append(seq)
        assert recent.bytes <= 50_000
    assert len(recent._order) <= 2 * 50_000 / 1_000 + 1
    for topic_id, seqs in kept.items():
        place = recent.find(topic_id, Position(X, 1, seqs[-1]))
        if place is not None:
            first = next(iter(recent._topics[topic_id].kept))
            assert numbers(recent.after(topic_id, first)) == [s for s in seqs if s > first]


def test_what_is_in_memory_does_not_wait_for_the_carrier_but_the_base_does(tmp_path):
    async def main():
        carrier = NotedCarrier()
        async with world(tmp_path, carrier=carrier) as w:
            await accept(w, at(1), at(2), at(3))
            gate = carrier.hold()
            params = {"topic": TOPIC, "after": str(at(1)), "base": "event", "content": "whole"}
            async with w.client.get(f"{w.hub_url}/stream", params=params) as answer:
                said = b""
                while b": caught up" not in said:
                    said += await asyncio.wait_for(answer.content.readany(), PATIENCE)
                assert said.count(b"data: {") == 2
                assert str(at(3)).encode() in said
                await accept(w, at(4))
                while str(at(4)).encode() not in said:
                    said += await asyncio.wait_for(answer.content.readany(), PATIENCE)
                assert b"event: base" not in said, "the topic's own hub has not answered yet"
                await until(lambda: carrier.admissions, "the admission")
                gate.set()
                while b"event: base" not in said:
                    said += await asyncio.wait_for(answer.content.readany(), PATIENCE)
                assert str(at(4)).encode() in said[said.index(b"event: base") :]
            # Of a reader whose Position is not in memory nothing is sent before.
            gate = carrier.hold()
            params["after"] = str(at(9, PublisherId(b"z" * 16)))
            asking = asyncio.create_task(w.client.get(f"{w.hub_url}/stream", params=params))
            await asyncio.sleep(0.2)
            assert not asking.done()
            gate.set()
            (await asking).close()

    run(main())


def test_a_topic_is_known_by_its_canonical_name():
    recent = Recent(history=3)
    recent.add(update(1))
    assert recent.topic_id(identify("http://SITE.example/1").canonical) == 1
