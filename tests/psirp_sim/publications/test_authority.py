"""Who may publish, and what those can do who may not."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position
from psirp_sim.publications.envelope import make, open_envelope
from psirp_sim.wire.publications import ANSWER, HEAD, RECORD, UNIT, join, tag_of
from psirp_sim.wire.rendezvous import Access, Code, Open
from tests.psirp_sim.publications.world import ITEM, SCOPE, World, numbered
from traces import MemorySink, Stage, check

KEY = Ed25519PrivateKey.from_private_bytes(b"z" * 32)
NEXT = Ed25519PrivateKey.from_private_bytes(b"n" * 32)
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


def public(*keys):
    return tuple(key.public_key().public_bytes_raw() for key in keys)


def zone(world, *keys, at="b"):
    """The zone has these keys, as far as that node knows."""
    world.at(at).keys_of = lambda sid: public(*keys) if sid == SCOPE else ()


def packet(tag, envelope, version, *, sequence=1, flags=0, size=None):
    """A packet with (the beginning of) an envelope in it."""
    piece = envelope[: 8 * UNIT]
    record = RECORD.pack(version, 0, size or len(envelope), len(piece))
    return HEAD.pack(tag, sequence, flags) + record + piece


def forged(world, position, content=b"forged", key=None, **header):
    """An envelope by somebody inside the fabric, who has its key but not that of the zone."""
    keys = world.settings.keys
    envelope = make(keys, SCOPE, ITEM, position, {}, content, key)
    if header:
        made, content = open_envelope(keys, envelope)
        packed = msgspec.msgpack.encode(msgspec.structs.replace(made, **header))
        envelope = join(packed, keys.mark(packed), content)
    return envelope


def tag(position):
    return tag_of(SCOPE, ITEM, position.publisher.raw, position.epoch)


def following(position, by=1):
    return Position(position.publisher, position.epoch, position.version + by)


# The zone's key


def test_what_the_zone_s_key_has_signed_is_delivered_as_signed():
    world = World()
    zone(world, KEY)
    (ear,) = world.begun("b", key=KEY)
    world.write("a", *numbered(3))
    world.run(1)
    assert ear.told == [1, 2, 3]
    assert [event.signed for event in ear.events] == [True, True, True]


def test_in_a_zone_without_keys_unsigned_publications_are_delivered_and_marked():
    world = World()
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(1)
    assert [event.signed for event in ear.events] == [False]


def test_a_signature_that_nobody_vouches_for_is_worth_nothing():
    world = World()
    (ear,) = world.begun("b", key=STRANGER)
    world.write("a", b"1")
    world.run(1)
    assert [event.signed for event in ear.events] == [False]


@pytest.mark.parametrize(
    ("key", "reason"), [(STRANGER, "wrong_key"), (None, "no_signature")], ids=["key", "unsigned"]
)
def test_who_has_not_the_zone_s_key_is_refused_counted_and_traced(key, reason):
    sink = MemorySink()
    world = World(trace=sink)
    zone(world, KEY)
    (ear,) = world.begun("b", key=key)
    position = world.write("a", b"1", metadata={"topic": "http://a.test/"})
    world.run(5)
    assert ear.told == []
    assert world.at("b").counters[reason] >= 1
    dropped = [event for event in sink.events if event.stage is Stage.DROPPED]
    published = [event for event in sink.events if event.stage is Stage.PUBLISHED]
    assert {event.reason for event in dropped} == {reason}
    for event in dropped:
        check(event)
        assert (event.sid, event.rid, event.node) == (SCOPE, ITEM, "b")
        assert (event.epoch, event.version) == (position.epoch, position.version)
        assert event.trace_id == published[0].trace_id
        assert event.topic == "http://a.test/"


def test_what_was_refused_is_not_asked_for_for_ever():
    world = World()
    zone(world, KEY)
    world.begun("b", key=STRANGER)
    world.write("a", *numbered(3))
    world.run(5)
    assert world.sending().complete
    packets = world.watch("a", "hub")
    refused = world.at("b").counters["wrong_key"]
    world.run(20)
    assert packets == []
    assert world.at("b").counters["wrong_key"] == refused == 9  # three tries each


def test_a_wrong_signature_under_the_right_key_is_refused_and_counted():
    world = World()
    zone(world, KEY)
    (ear,) = world.begun("b", key=KEY)
    position = world.write("a", b"1")
    world.run(1)
    false = forged(world, following(position), key=KEY, proof=(public(KEY)[0], b"\x01" * 64))
    world.inject("b", packet(tag(position), false, 2))
    assert world.at("b").counters["wrong_signature"] == 1
    world.write("a", b"2")
    world.run(1)
    assert ear.contents == [b"1", b"2"]


def test_a_signature_is_good_for_its_own_position_and_content_only():
    world = World()
    zone(world, KEY)
    (ear,) = world.begun("b", key=KEY)
    position = world.write("a", b"1")
    world.run(1)
    true = world.at("a").offers[SCOPE, ITEM].history.get(1)
    header, _ = open_envelope(world.settings.keys, true)
    moved = forged(world, following(position), b"1", proof=header.proof)
    world.inject("b", packet(tag(position), moved, 2))
    assert world.at("b").counters["wrong_signature"] == 1
    world.run(1)
    assert ear.told == [1]


def test_where_configuration_says_so_unsigned_publications_are_refused_in_any_zone():
    world = World(accept_unsigned=False)
    (ear,) = world.begun("b")
    world.write("a", b"1")
    world.run(3)
    assert ear.told == []
    assert world.at("b").counters["no_signature"] >= 1


def test_while_the_keys_of_a_zone_are_not_known_publications_wait_and_then_arrive():
    world = World()
    world.at("b").keys_of = lambda sid: None
    (ear,) = world.begun("b", key=KEY)
    world.write("a", *numbered(3))
    world.run(5)
    assert ear.told == []
    zone(world, KEY)
    took = world.until(lambda: len(ear.events) == 3)
    assert took <= 1.1
    assert all(event.signed for event in ear.events)
    world.write("a", b"4")
    world.run(0.01)
    assert ear.told == [1, 2, 3, 4]


def test_what_waits_for_the_keys_is_refused_when_they_are_others():
    world = World()
    world.at("b").keys_of = lambda sid: None
    (ear,) = world.begun("b", key=STRANGER)
    world.write("a", *numbered(3))
    world.run(3)
    zone(world, KEY)
    world.run(5)
    assert ear.told == []
    assert world.at("b").counters["wrong_key"] >= 3


def test_what_waits_for_the_keys_arrives_though_its_publisher_has_gone():
    world = World()
    world.at("b").keys_of = lambda sid: None
    (ear,) = world.begun("b", key=KEY)
    world.write("a", *numbered(3))
    world.run(2)
    world.at("a").withdraw(SCOPE, ITEM)
    world.run(15)
    zone(world, KEY)
    world.run(3)
    assert ear.told == [1, 2, 3]


def test_two_keys_are_good_while_one_replaces_the_other():
    world = World(("a", "b", "c"))
    zone(world, KEY, NEXT)
    world.at("c").offer(SCOPE, ITEM, key=NEXT)
    (ear,) = world.begun("b", key=KEY)
    world.run(2)
    world.write("a", b"old key")
    world.write("c", b"new key")
    world.run(2)
    assert sorted(ear.contents) == [b"new key", b"old key"]
    assert all(event.signed for event in ear.events)
    zone(world, NEXT)
    world.write("a", b"old key again")
    world.write("c", b"new key again")
    world.run(3)
    assert ear.contents[2:] == [b"new key again"]


def test_a_stream_goes_on_under_a_new_key_of_the_zone():
    world = World()
    zone(world, KEY)
    (ear,) = world.begun("b", key=STRANGER)
    world.write("a", b"1", b"2")
    world.run(3)
    world.at("a").withdraw(SCOPE, ITEM)
    world.run(3)
    world.at("a").offer(SCOPE, ITEM, key=KEY)
    world.run(1)
    world.write("a", b"3")
    world.run(3)
    assert ear.contents == [b"3"]


# What somebody on the way can do, without the fabric's key


def test_packets_that_are_none_are_counted_and_do_no_harm():
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    mine = tag(position)
    for payload in [
        b"",
        mine,
        HEAD.pack(mine, 5, 0xFF),
        HEAD.pack(mine, 5, 2) + b"short",
        HEAD.pack(mine, 5, 0) + b"x",
        HEAD.pack(mine, 5, 0) + RECORD.pack(2, 0, 0, 1) + b"x",
        HEAD.pack(mine, 5, 0) + RECORD.pack(0, 0, 10, 10) + b"x" * 10,
        HEAD.pack(mine, 5, 0) + RECORD.pack(2, 0, 2**32 - 1, 10) + b"x" * 10,
        HEAD.pack(mine, 5, 0) + RECORD.pack(2, 9, 300, 10) + b"x" * 10,
        HEAD.pack(b"?" * 16, 5, 0),
    ]:
        world.inject("b", payload)
    world.write("a", b"2")
    world.run(1)
    assert ear.told == [1, 2]


def test_records_of_a_wrong_size_do_not_stop_a_stream():
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    world.write("a", b"x" * 300_000)
    begin, count = world.world.now, 0
    while len(ear.events) < 2 and world.seconds_since(begin) < 10:
        size = 200 + count % 2
        world.inject("b", packet(tag(position), b"x" * UNIT, 2, size=size))
        count += 1
        world.run(0.02)
    assert ear.told == [1, 2]
    assert ear.contents[1] == b"x" * 300_000
    assert world.at("b").counters["conflicts"] >= 1


def test_wrong_content_is_noticed_dropped_and_asked_for_again():
    sink = MemorySink()
    world = World(trace=sink)
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    size = len(world.at("a").offers[SCOPE, ITEM].history.get(1))
    world.inject("b", packet(tag(position), b"?" * size, 2))
    assert world.at("b").counters["spoiled"] == 1
    world.inject("b", packet(tag(position), b"?" * UNIT, 2, size=size))  # a part of it only
    world.write("a", b"2")
    world.run(2)
    assert ear.contents == [b"1", b"2"]
    dropped = [event for event in sink.events if event.stage is Stage.DROPPED]
    assert {event.reason for event in dropped} == {"spoiled"}
    for event in dropped:
        check(event)


def test_a_wrong_part_of_a_large_version_does_not_corrupt_it():
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    content = bytes(range(256)) * 200
    world.lose("hub", "b", lambda packet: held)
    held = True
    world.write("a", content)
    size = len(world.at("a").offers[SCOPE, ITEM].history.get(2))
    world.run(0.01)
    world.inject("b", packet(tag(position), b"?" * size, 2))
    held = False
    world.until(lambda: len(ear.events) == 2)
    assert ear.contents[1] == content
    assert world.at("b").counters["spoiled"] == 1


def test_versions_that_nobody_has_published_stop_nothing_and_are_forgotten():
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    words = world.talk("b", "hub")
    for version in (2, 3, 10, 1_000, 2**40, 2**64 - 1):
        world.inject("b", packet(tag(position), b"?" * UNIT, version, size=5_000, sequence=9))
    world.run(10)
    assert len(words) < 50
    for content in numbered(5, 2):
        world.write("a", content)
        world.run(0.5)
    world.run(3)
    assert ear.told == [1, 2, 3, 4, 5, 6]
    assert world.at("b").subscriber.waiting_bytes == 0
    del words[:]
    world.run(20)
    assert len(words) <= 2


@pytest.mark.parametrize("sequence", [100, 2**40, 2**64 - 1])
def test_a_sequence_that_was_made_up_does_not_stop_the_stream(sequence):
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    world.inject("b", HEAD.pack(tag(position), sequence, 0))
    seen = world.watch("a", "hub")
    lost = [True]
    world.lose("hub", "b", lambda packet: bool(lost) and lost.pop())
    world.write("a", *numbered(5, 2), b"x" * 300_000)
    world.until(lambda: len(ear.events) == 7)
    assert ear.told == [1, 2, 3, 4, 5, 6, 7]
    assert len(seen) < 2 * 300


def test_packets_that_are_played_back_are_delivered_once():
    world = World()
    (ear,) = world.begun("b")
    recorded = []
    usual = world.node("b").handlers[2]
    world.node("b").handlers[2] = lambda payload: recorded.append(payload) or usual(payload)
    world.write("a", *numbered(20))
    world.run(1)
    for payload in recorded * 2:
        world.inject("b", payload)
    world.run(1)
    assert ear.told == [*range(1, 21)]


def test_a_flood_of_packets_that_ask_for_answers_is_answered_at_most_once_a_millisecond():
    world = World()
    world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    words = world.talk("b", "hub")
    for number in range(1_000):
        world.inject("b", HEAD.pack(tag(position), number, ANSWER))
        if number % 100 == 99:
            world.run(0.001)
    world.run(0.1)
    assert 1 <= len(words) <= 15


# What somebody inside the fabric can do, without the zone's key


def test_an_insider_who_slips_in_an_unsigned_version_does_not_suppress_the_true_one():
    world = World()
    zone(world, KEY)
    (ear,) = world.begun("b", key=KEY)
    position = world.write("a", b"1")
    world.run(1)
    for key in (None, STRANGER):
        envelope = forged(world, following(position), key=key)
        world.inject("b", packet(tag(position), envelope, 2))
    world.write("a", b"2")
    world.run(2)
    world.write("a", b"3")
    world.run(2)
    assert ear.contents == [b"1", b"2", b"3"]


def test_an_envelope_of_another_item_or_version_is_spoiled():
    world = World()
    (ear,) = world.begun("b")
    position = world.write("a", b"1")
    world.run(1)
    for envelope in [
        forged(world, following(position, 2)),
        forged(world, Position(position.publisher, position.epoch + 1, 2)),
        forged(world, following(position), sid=b"T" * 32),
    ]:
        world.inject("b", packet(tag(position), envelope, 2))
    assert world.at("b").counters["spoiled"] == 3
    world.write("a", b"2")
    world.run(2)
    assert ear.contents == [b"1", b"2"]


# Guests


def test_a_guest_may_not_listen_where_only_the_fabric_may():
    world = World()
    world.begun()
    guest = world.listen("b", guest=True)
    world.run(2)
    world.write("a", b"secret")
    world.run(3)
    assert guest.codes == [Code.NOT_ALLOWED]
    assert guest.told == []


def test_a_guest_may_listen_where_all_may():
    world = World()
    world.begun(access=Access(subscribe=Open.ANYONE))
    guest = world.listen("b", guest=True)
    world.run(2)
    world.write("a", b"open")
    world.run(2)
    assert guest.codes == [Code.OK]
    assert guest.contents == [b"open"]


def test_a_guest_cannot_ride_on_the_node_s_own_subscription():
    world = World()
    world.begun("b")
    with pytest.raises(ValueError, match="guest"):
        world.listen("b", guest=True)


def test_a_guest_cannot_ride_on_the_node_s_own_subscription_to_the_scope():
    world = World()
    world.begun()
    own = world.listen("b", rid=b"")
    world.run(2)
    world.write("a", b"1")
    world.run(1)
    guest = world.listen("b", rid=ITEM, guest=True)
    world.run(2)
    world.write("a", b"secret")
    world.run(3)
    assert own.contents == [b"1", b"secret"]
    assert guest.codes == [Code.NOT_ALLOWED]
    assert guest.told == []


def test_a_guest_that_was_refused_gets_nothing_when_the_node_subscribes_itself():
    world = World()
    world.begun()
    guest = world.listen("b", guest=True)
    world.run(2)
    assert guest.codes == [Code.NOT_ALLOWED]
    own = world.listen("b")
    world.run(2)
    world.write("a", b"secret")
    world.run(3)
    assert own.contents == [b"secret"]
    assert guest.told == []


def test_who_has_not_the_scope_s_key_is_refused_and_who_has_it_is_not():
    world = World()
    world.begun(access=Access(subscribe=public(KEY)))
    refused = []
    without = world.listen("b", refused=refused.append)
    world.run(3)
    assert without.codes == refused == [Code.NOT_ALLOWED]
    world.at("b").unsubscribe(without.subscription)
    world.run(1)
    given = world.listen("b", key=KEY)
    world.run(3)
    world.write("a", b"1")
    world.run(2)
    assert given.codes == [Code.OK]
    assert given.contents == [b"1"]
    assert without.told == []


def test_who_was_refused_gets_nothing_when_somebody_else_on_its_node_has_the_key():
    world = World()
    world.begun(access=Access(subscribe=public(KEY)))
    without = world.listen("b")
    world.run(3)
    assert without.codes == [Code.NOT_ALLOWED]
    given = world.listen("b", key=KEY)
    world.run(3)
    world.write("a", b"1")
    world.run(2)
    assert given.contents == [b"1"]
    assert without.told == []


def test_a_publisher_that_the_scope_does_not_let_is_told_so():
    world = World(("a", "b", "c"))
    world.begun(access=Access(publish=public(KEY)), key=KEY)
    codes = []
    world.at("c").offer(SCOPE, b"C" * 32, codes.append)
    world.run(3)
    assert codes == [Code.NOT_ALLOWED]
    ear = world.listen("b", rid=b"C" * 32)
    world.at("c").publish(SCOPE, b"C" * 32, b"not allowed")
    world.run(3)
    assert ear.told == []
