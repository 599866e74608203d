"""The Environment contract, kept by both environments: each test runs in virtual time and on
real sockets."""

from __future__ import annotations

import pytest

from psirp_sim.courier.core import Courier
from psirp_sim.courier.traffic import CourierTraffic, Settings
from psirp_sim.runtime.durations import MILLISECOND


class Quiet:
    """A core that does nothing by itself and remembers what it is told."""

    def __init__(self, env):
        self.env = env
        self.packets = []
        self.events = []
        self.stopped = False

    def start(self):
        self.events.append("start")

    def receive(self, link, packet):
        self.events.append("receive")
        self.packets.append((link, packet))

    def stop(self):
        self.stopped = True


class Talker(Quiet):
    def __init__(self, env, *packets):
        super().__init__(env)
        self.to_send = packets
        self.answers = []

    def start(self):
        for packet in self.to_send:
            self.answers.append(self.env.links["b"].send(packet))


def test_packets_arrive_whole_and_name_their_link(world):
    sent = [b"", b"x", bytes(range(256)), b"y" * 1400]
    world.run(
        lambda env: Talker(env, *sent),
        Quiet,
        lambda a, b: b.packets == [("a", packet) for packet in sent],
    )


def test_a_packet_larger_than_the_link_takes_is_refused_at_once(world):
    def talker(env):
        return Talker(env, b"x" * (env.links["b"].mtu + 1), b"fits")

    def checked(a, b):
        return a.answers == [False, True] and b.packets == [("a", b"fits")]

    world.run(talker, Quiet, checked)


def test_timers_run_in_order_and_never_early(world):
    class Timed(Quiet):
        def start(self):
            self.begun = self.env.now()
            for delay in (30, 10, 20, 10, 0, -5):
                self.env.call_later(delay * MILLISECOND, self.ring, delay)

        def ring(self, delay):
            assert self.env.now() - self.begun >= delay * MILLISECOND
            self.events.append(delay)

    world.run(Timed, Quiet, lambda a, b: a.events == [0, -5, 10, 10, 20, 30])


def test_a_cancelled_timer_does_not_run(world):
    class Canceller(Quiet):
        def start(self):
            self.one = self.env.call_later(20 * MILLISECOND, self.events.append, "one")
            self.two = self.env.call_later(20 * MILLISECOND, self.cancel_all)
            self.three = self.env.call_later(20 * MILLISECOND, self.events.append, "three")
            self.env.call_later(40 * MILLISECOND, self.events.append, "end")

        def cancel_all(self):
            self.events.append("two")
            for timer in (self.one, self.two, self.three, self.three):
                timer.cancel()

    world.run(Canceller, Quiet, lambda a, b: a.events == ["one", "two", "end"])


def test_a_timer_set_by_a_timer_waits_for_its_turn(world):
    class Chain(Quiet):
        def start(self):
            self.env.call_later(0, self.ring, 5)

        def ring(self, left):
            self.events.append(left)
            if left:
                self.env.call_later(0, self.ring, left - 1)
            self.events.append("returned")

    expected = [word for left in (5, 4, 3, 2, 1, 0) for word in (left, "returned")]
    world.run(Chain, Quiet, lambda a, b: a.events == expected)


def test_a_far_timer_set_by_a_timer_does_not_hold_up_a_near_one(world):
    class FarSighted(Quiet):
        def start(self):
            self.env.call_later(50 * MILLISECOND, self.events.append, "near")
            self.env.call_later(10 * MILLISECOND, self.look_far)

        def look_far(self):
            self.env.call_later(1_000_000 * MILLISECOND, self.events.append, "far")

    world.run(FarSighted, Quiet, lambda a, b: a.events == ["near"])


def test_nothing_re_enters_a_core(world):
    class Careful(Quiet):
        inside = False

        def start(self):
            self.work()

        def receive(self, link, packet):
            super().receive(link, packet)
            self.work()

        def work(self):
            assert not self.inside
            self.inside = True
            if len(self.events) < 40:
                self.env.links[next(iter(self.env.links))].send(b"again")
                self.env.storage.write({b"k": b"v"}, self.done)
                self.env.call_later(0, self.done)
            self.inside = False

        def done(self):
            assert not self.inside
            self.events.append("done")

    world.run(Careful, Careful, lambda a, b: len(a.events) >= 40 and len(b.events) >= 40)


def test_storage_reads_its_own_writes_and_reports_in_order(world):
    class Writer(Quiet):
        def start(self):
            storage = self.env.storage
            storage.write({b"a/1": b"one", b"a/2": b"two", b"b": b"other"}, self.done(1))
            assert storage.get(b"a/1") == b"one"
            storage.write({b"a/1": None, b"a/3": b"three"}, self.done(2))
            assert storage.get(b"a/1") is None
            assert list(storage.scan(b"a/")) == [(b"a/2", b"two"), (b"a/3", b"three")]
            assert [key for key, _ in storage.scan(b"")] == [b"a/2", b"a/3", b"b"]
            storage.write({}, self.done(3))
            self.events.append("returned")

        def done(self, number):
            return lambda: self.events.append(number)

    def reported(a, b):
        if a.events != ["returned", 1, 2, 3]:
            return False
        storage = a.env.storage
        assert list(storage.scan(b"a/")) == [(b"a/2", b"two"), (b"a/3", b"three")]
        return storage.get(b"b") == b"other"

    world.run(Writer, Quiet, reported)


def test_scan_finds_keys_up_to_the_last_possible_one(world):
    class Writer(Quiet):
        def start(self):
            keys = [b"\xfe", b"\xff", b"\xff\x00", b"\xff\xff", b"\xff\xff\xff"]
            self.env.storage.write(dict.fromkeys(keys, b""), lambda: self.events.append("done"))

    def found(a, b):
        if not a.events:
            return False
        keys = [key for key, _ in a.env.storage.scan(b"\xff\xff")]
        assert keys == [b"\xff\xff", b"\xff\xff\xff"]
        assert len(list(a.env.storage.scan(b"\xfe"))) == 1
        return True

    world.run(Writer, Quiet, found)


def test_what_was_reported_durable_is_there_in_the_next_life(world):
    class First(Quiet):
        def start(self):
            self.env.storage.write({b"key": b"value"}, lambda: self.events.append("durable"))

    world.run(First, Quiet, lambda a, b: a.events == ["durable"])
    world.run(Quiet, Quiet, lambda a, b: a.env.storage.get(b"key") == b"value")


def test_a_clean_shutdown_tells_the_core(world):
    cores = []

    def remembered(env):
        cores.append(Quiet(env))
        return cores[-1]

    world.run(remembered, remembered, lambda a, b: True)
    assert [core.stopped for core in cores] == [True, True]


def test_the_same_core_runs_unchanged_in_both(world):
    """Courier, with messages both ways and a restart in between."""
    settings = Settings(messages=60, every="1 ms")
    complete = [number.to_bytes(8).ljust(settings.size, b".") for number in range(1, 61)]

    def traffic(env):
        return CourierTraffic(env, settings)

    world.run(traffic, traffic, lambda a, b: len(b.received("a")) >= 20)
    world.run(
        traffic, traffic, lambda a, b: a.received("b") == complete and b.received("a") == complete
    )


@pytest.mark.parametrize("packet", [b"", b"M", b"A" * 10, b"Z" + bytes(8), bytes(1400)])
def test_a_malformed_packet_is_counted_and_harms_nothing(world, packet):
    def courier(env):
        return Courier(env, lambda link, number, payload: {})

    world.run(lambda env: Talker(env, packet), courier, lambda a, b: b.counters["malformed"] == 1)
