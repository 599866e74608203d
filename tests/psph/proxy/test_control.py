"""The Control Function remembers who wants what, for as long as it should and no longer."""

from __future__ import annotations

import pytest

from psirp_sim.runtime.durations import SECOND
from psph.proxy.control import FEWEST, PREFIX, Control, Side
from tests.psph.proxy.world import environment

TOPIC, OTHER = "http://news.site-b.test/feed", "http://news.site-b.test/other"


class Desk:
    """A Control Function, and what it said."""

    def __init__(self):
        self.world, self.env = environment()
        self.begin()

    def begin(self):
        """Another life with the same storage."""
        self.said = []
        self.control = Control(self.env, lambda *change: self.said.append(change))

    def want(self, subscriber="s", topic=TOPIC, side=Side.WEB, seconds=None):
        until = None if seconds is None else self.env.wall() + int(seconds * SECOND)
        self.control.want(side, topic, subscriber, until)

    def run(self, seconds):
        self.world.run_for(int(seconds * SECOND))

    @property
    def stored(self):
        return len(list(self.env.storage.scan(PREFIX)))


@pytest.fixture
def desk():
    return Desk()


def test_only_the_first_and_the_last_are_told(desk):
    desk.want("one")
    desk.want("two")
    desk.want("one")
    desk.control.leave(Side.WEB, TOPIC, "one")
    assert desk.said == [(Side.WEB, TOPIC, True)]
    desk.control.leave(Side.WEB, TOPIC, "two")
    assert desk.said == [(Side.WEB, TOPIC, True), (Side.WEB, TOPIC, False)]
    desk.control.leave(Side.WEB, TOPIC, "two")
    assert len(desk.said) == 2
    assert not desk.control.wanted(Side.WEB, TOPIC)


def test_sides_do_not_mix(desk):
    desk.want(side=Side.FABRIC)
    assert not desk.control.wanted(Side.WEB, TOPIC)
    assert desk.control.wanted(Side.FABRIC, TOPIC)
    assert (desk.control.count(Side.WEB), desk.control.count(Side.FABRIC)) == (0, 1)


def test_a_lease_ends(desk):
    desk.want(seconds=5)
    desk.run(4.9)
    assert desk.control.wanted(Side.WEB, TOPIC)
    desk.run(0.2)
    assert not desk.control.wanted(Side.WEB, TOPIC)
    assert desk.said[-1] == (Side.WEB, TOPIC, False)
    assert desk.stored == 0


def test_a_longer_lease_counts_and_a_shorter_one_too(desk):
    desk.want("longer", seconds=2)
    desk.want("longer", seconds=6)
    desk.want("shorter", seconds=6)
    desk.want("shorter", seconds=2)
    desk.run(3)
    assert desk.control.subscribers(Side.WEB, TOPIC) == ["longer"]
    desk.run(4)
    assert desk.control.subscribers(Side.WEB, TOPIC) == []


def test_leased_wishes_survive_and_others_do_not(desk):
    desk.want("callback", seconds=60)
    desk.want("browser")
    desk.begin()
    desk.control.load()
    assert desk.control.subscribers(Side.WEB, TOPIC) == ["callback"]
    assert desk.said == [], "the proxy takes up what was loaded by itself"
    assert desk.control.wishes_of(Side.WEB, "callback") == [TOPIC]


def test_what_ended_meanwhile_is_not_loaded(desk):
    desk.want(seconds=1)
    desk.control = None
    desk.world.crash("n")
    desk.run(2)
    desk.world.restart("n")
    desk.run(0.001)
    desk.env = desk.world.nodes["n"].core.env
    desk.begin()
    assert desk.stored == 1
    desk.control.load()
    assert not desk.control.wanted(Side.WEB, TOPIC)
    assert desk.stored == 0


def test_what_was_not_said_again_ends(desk):
    desk.want("stays", seconds=60)
    desk.want("gone", topic=OTHER, seconds=60)
    desk.want("proxy", side=Side.FABRIC, seconds=60)
    desk.begin()
    desk.control.load()
    desk.want("stays", seconds=60)
    desk.control.confirmed(Side.WEB)
    assert desk.control.topics(Side.WEB) == [TOPIC]
    assert desk.control.wanted(Side.FABRIC, TOPIC)
    assert desk.said == [(Side.WEB, OTHER, False)]


def test_what_is_said_before_the_load_is_the_truth(desk):
    desk.want("leased", seconds=60)
    desk.want("now without", seconds=1)
    desk.begin()
    desk.want("leased", seconds=90)
    desk.want("now without")
    desk.control.load()
    desk.control.confirmed(Side.WEB)
    desk.run(70)
    assert sorted(desk.control.subscribers(Side.WEB, TOPIC)) == ["leased", "now without"]


def test_a_wish_that_needs_no_lease_any_more_is_not_written_down(desk):
    desk.want(seconds=5)
    desk.want()
    assert desk.stored == 0
    desk.run(6)
    assert desk.control.wanted(Side.WEB, TOPIC)


def test_renewing_for_ever_takes_no_more_memory(desk):
    for number in range(5 * FEWEST):
        desk.control.want(Side.FABRIC, TOPIC, "eager", desk.env.wall() + 86_400 * SECOND + number)
    assert len(desk.control._ends) <= FEWEST + 1
    for number in range(2 * FEWEST):
        desk.control.want(Side.FABRIC, f"{TOPIC}/{number}", "many", desk.env.wall() + SECOND)
    assert len(desk.control) == 2 * FEWEST + 1
    desk.run(2)
    assert desk.control.topics(Side.FABRIC) == [TOPIC]
    assert desk.control.wishes_of(Side.FABRIC, "many") == []


def test_a_clock_that_is_set_back_ends_a_lease_late_but_surely(desk, monkeypatch):
    desk.want(seconds=5)
    wall = desk.env.wall
    monkeypatch.setattr(type(desk.env), "wall", lambda self: wall() - 10 * SECOND)
    desk.run(6)
    assert desk.control.wanted(Side.WEB, TOPIC)
    desk.run(10)
    assert not desk.control.wanted(Side.WEB, TOPIC)
