"""Who may speak about contexts: those who show the pass that was said to their name."""

from __future__ import annotations

import pytest

from mobility.ahead import AheadSettings
from mobility.ahead.passes import Passes
from mobility.ahead.words import (
    PASS_BYTES,
    Came,
    Contexts,
    Copy,
    Drop,
    Greet,
    Held,
    Noted,
    Pass,
    Rejected,
    encode,
    read,
)
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from tests.mobility.world import World

WHO = {"client": "ab" * 32, "epoch": 5, "nonce": 6, "serial": 7}
COPY = Copy(**WHO, topics={"news": None})
CHALLENGE = b"c" * PASS_BYTES


class Overheard:
    """A proxy that hears what this test says, and what it sends to whom."""

    def __init__(self, world, name="a"):
        self.proxy = world.proxy(name)
        self.sent = []
        self.proxy.ahead.conversation._send = lambda peer, packet: self.sent.append(
            (peer, read(packet))
        )
        self.world = world

    def hear(self, peer, word):
        self.sent.clear()
        self.proxy.receive(peer, encode(word))
        self.world.run(20)
        return self.sent


@pytest.fixture
def world():
    return World(ahead=AheadSettings(on=True, retry_first=60 * MILLISECOND, lapse=30 * SECOND))


@pytest.fixture
def proxy(world):
    world.run(1)
    return Overheard(world)


def test_a_greeting_is_answered_where_it_came_from_and_the_pass_goes_to_the_name(proxy):
    sent = proxy.hear("somewhere", Greet(call=3, proxy="b", challenge=CHALLENGE))
    (peer, noted), (name, given) = sent
    assert (peer, noted) == ("somewhere", Noted(call=3))
    assert name == "b", "only who is reached under that name learns it"
    assert isinstance(given, Pass)
    assert given.challenge == CHALLENGE


def test_with_its_pass_a_proxy_is_believed(proxy):
    token = proxy.proxy.ahead.conversation.passes.give("b")
    word = Contexts(call=4, proxy="b", token=token, changes=(COPY,))
    assert proxy.hear("somewhere", word) == [("somewhere", Held(call=4))]
    assert proxy.proxy.ahead.contexts.kept[COPY.client].owner == "b"


@pytest.mark.parametrize("change", [COPY, Drop(**WHO), Came(**WHO)], ids=lambda c: type(c).__name__)
def test_without_its_pass_nothing_changes(proxy, change):
    ahead = proxy.proxy.ahead
    token = ahead.conversation.passes.give("b")
    proxy.hear("b", Contexts(call=4, proxy="b", token=token, changes=(COPY,)))
    before = dict(ahead.contexts.kept), ahead.neighbours.names
    for wrong in (bytes(PASS_BYTES), ahead.conversation.passes.give("c")):
        word = Contexts(call=5, proxy="b", token=wrong, changes=(change,))
        assert proxy.hear("b", word) == [("b", Rejected(call=5))]
    assert before == (ahead.contexts.kept, ahead.neighbours.names)
    assert ahead.counters["wrong_passes"] == 2


def test_a_name_that_may_not_be_talked_to_is_rejected(world, proxy):
    conversation = proxy.proxy.ahead.conversation
    conversation._knows = lambda name: name != "b"
    greeting = Greet(call=3, proxy="b", challenge=CHALLENGE)
    assert proxy.hear("b", greeting) == [("b", Rejected(call=3))], "and no pass is sent"
    token = conversation.passes.give("b")
    word = Contexts(call=4, proxy="b", token=token, changes=(COPY,))
    assert proxy.hear("b", word) == [("b", Rejected(call=4))]


def test_nobody_speaks_in_the_name_of_the_proxy_itself(proxy):
    token = proxy.proxy.ahead.conversation.passes.give("a")
    word = Contexts(call=4, proxy="a", token=token, changes=(COPY,))
    assert proxy.hear("b", word) == [("b", Rejected(call=4))]


def test_a_pass_that_nobody_asked_for_is_not_taken(world):
    world.run(1)
    passes = world.proxy("a").ahead.conversation.passes
    asked = passes.challenge("b")
    assert not passes.take("b", CHALLENGE, b"t" * PASS_BYTES)
    assert not passes.take("c", asked, b"t" * PASS_BYTES)
    assert passes.take("b", asked, b"t" * PASS_BYTES)
    assert passes.of("b") == b"t" * PASS_BYTES
    assert not passes.take("b", asked, b"u" * PASS_BYTES), "and once only"


def test_passes_differ_with_name_and_key(world):
    world.run(1)
    env = world.proxy("a").env
    one, other = Passes(env, b"1" * 32), Passes(env, b"2" * 32)
    assert len({one.give("a"), one.give("b"), other.give("a"), other.give("b")}) == 4
    assert one.give("a") == Passes(env, b"1" * 32).give("a")


def test_a_key_has_32_bytes():
    with pytest.raises(ValueError, match="32"):
        AheadSettings(key=b"short")


def test_a_proxy_that_lost_its_key_gives_new_passes_and_is_told_again(world):
    world.add()
    world.arrive("a")
    world.arrive("b")
    assert world.proxy("a").ahead.contexts.kept
    world.sim.crash("a")
    world.sim.wipe("a")
    world.sim.restart("a")
    world.run(100)
    assert not world.proxy("a").ahead.contexts.kept
    world.client().move_out()  # the neighbour activates, with a pass that is worth nothing now
    world.run(1_500)
    assert world.proxy("a").ahead.counters["wrong_passes"] > 0
    (context,) = world.proxy("a").ahead.contexts.kept.values()
    assert context.waiting is not None


def test_a_neighbour_that_never_answers_is_left_alone(world):
    world.add()
    world.arrive("a")
    world.arrive("b")
    world.sim.crash("a")
    world.client().move_out()
    world.run(25_000)
    before = world.proxy("b").ahead.counters["words_sent"]
    assert world.proxy("b").ahead.counters["given_up"] >= 1
    world.run(3_000)
    assert world.proxy("b").ahead.counters["words_sent"] - before <= 8
