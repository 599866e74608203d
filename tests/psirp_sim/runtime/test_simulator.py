"""Virtual time, links, clocks, faults, and the promise that one seed determines everything."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import pytest

from psirp_sim.courier.traffic import CourierTraffic, Settings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import (
    BEGINNING,
    PRESETS,
    Clock,
    Constant,
    Exponential,
    GilbertElliott,
    Independent,
    LinkProfile,
    LinkRetransmission,
    Simulator,
    Traced,
    Uniform,
)


class Probe:
    """Remembers when packets arrived, in true time; `say` sends from outside the core."""

    def __init__(self, env):
        self.env = env
        self.heard = []
        self.rung = []

    def start(self):
        pass

    def receive(self, link, packet):
        self.heard.append((self.env._engine.now, packet))

    def stop(self):
        pass

    def say(self, packet):
        return self.env.links["b"].send(packet)


def pair(profile, seed=1, **clocks):
    world = Simulator(seed)
    world.add_node("a", Probe, clocks.get("a"))
    world.add_node("b", Probe, clocks.get("b"))
    world.add_link("a", "b", profile)
    world.run_for(0)
    return world, world.nodes["a"].core, world.nodes["b"].core


def travel_times(profile, count=2_000, seed=1):
    """How long packets take that are sent far apart."""
    world, a, b = pair(profile, seed)
    for number in range(count):
        world.run_until(number * SECOND)
        a.say(number.to_bytes(4))
    world.run_for(10 * SECOND)
    return [time - int.from_bytes(packet) * SECOND for time, packet in b.heard]


def test_constant_delay():
    assert set(travel_times(LinkProfile(delay=Constant(7)), 50)) == {7}


def test_uniform_delay():
    times = travel_times(LinkProfile(delay=Uniform(10, 20)))
    assert set(times) == set(range(10, 21))


def test_exponential_delay():
    times = travel_times(LinkProfile(delay=Exponential(5 * MILLISECOND, 2 * MILLISECOND)))
    assert min(times) >= 5 * MILLISECOND
    assert statistics.mean(times) == pytest.approx(7 * MILLISECOND, rel=0.05)


def test_delay_from_a_trace_is_repeated():
    times = travel_times(LinkProfile(delay=Traced([1, 2, 3])), 9)
    assert times == [1, 2, 3, 1, 2, 3, 1, 2, 3]


def test_varying_delay_alone_keeps_the_order():
    world, a, b = pair(LinkProfile(delay=Uniform(0, 50 * MILLISECOND)))
    for number in range(200):
        a.say(number.to_bytes(4))
        world.run_for(MILLISECOND)
    world.run_for(SECOND)
    packets = [packet for _, packet in b.heard]
    assert packets == sorted(packets)
    assert len(packets) == 200


def test_reordering_lets_packets_overtake():
    profile = LinkProfile(delay=Constant(MILLISECOND), reorder=0.3, reorder_by=30 * MILLISECOND)
    world, a, b = pair(profile)
    for number in range(300):
        a.say(number.to_bytes(4))
        world.run_for(MILLISECOND)
    world.run_for(SECOND)
    packets = [packet for _, packet in b.heard]
    assert packets != sorted(packets)
    assert sorted(packets) == [number.to_bytes(4) for number in range(300)]
    assert world.channels["a", "b"].counters.reordered > 50


def test_bandwidth_spaces_packets_and_a_full_queue_refuses():
    profile = LinkProfile(delay=Constant(0), bandwidth=8_000, queue=3_000)
    world, a, b = pair(profile)
    assert [a.say(bytes(1_000)) for _ in range(5)] == [True, True, True, False, False]
    world.run_for(10 * SECOND)
    assert [time for time, _ in b.heard] == [1 * SECOND, 2 * SECOND, 3 * SECOND]
    assert world.channels["a", "b"].counters.overflowed == 2


def test_independent_loss_is_as_frequent_as_stated():
    times = travel_times(LinkProfile(loss=Independent(0.2)), 5_000)
    assert len(times) == pytest.approx(4_000, rel=0.05)


def test_gilbert_elliott_loses_in_bursts():
    world, a, b = pair(LinkProfile(loss=GilbertElliott(to_bad=0.01, to_good=0.1)))
    for number in range(20_000):
        a.say(number.to_bytes(4))
        world.run_for(MILLISECOND)
    world.run_for(SECOND)
    arrived = {int.from_bytes(packet) for _, packet in b.heard}
    lost = [number for number in range(20_000) if number not in arrived]
    assert len(lost) / 20_000 == pytest.approx(0.01 / 0.11, rel=0.2)
    after_a_loss = [number for number in lost if number - 1 not in arrived]
    assert len(after_a_loss) / len(lost) == pytest.approx(0.9, abs=0.03)


def test_duplication():
    times = travel_times(LinkProfile(duplicate=0.5), 1_000)
    assert len(times) == pytest.approx(1_500, rel=0.06)


def test_link_layer_retransmission_costs_time_and_loses_nothing():
    repeat = LinkRetransmission(error=0.5, low=30 * MILLISECOND, high=50 * MILLISECOND)
    times = travel_times(LinkProfile(delay=Constant(0), retransmission=repeat), 1_000)
    assert len(times) == 1_000
    assert sum(time == 0 for time in times) == pytest.approx(500, rel=0.15)
    assert all(time == 0 or time >= 30 * MILLISECOND for time in times)


def test_a_cut_takes_what_is_in_flight_and_is_one_way():
    world, a, b = pair(LinkProfile(delay=Constant(10 * MILLISECOND)))
    a.say(b"in flight")
    world.run_for(MILLISECOND)
    world.cut("a", "b")
    a.say(b"sent into the cut")
    b.env.links["a"].send(b"the other way")
    world.run_for(SECOND)
    world.heal("a", "b")
    a.say(b"healed")
    world.run_for(SECOND)
    assert [packet for _, packet in b.heard] == [b"healed"]
    assert [packet for _, packet in a.heard] == [b"the other way"]
    assert world.channels["a", "b"].counters.cut == 2


def test_asymmetric_links_and_presets():
    world = Simulator(1)
    world.add_node("a", Probe)
    world.add_node("b", Probe)
    world.add_link("a", "b", PRESETS["gprs"])
    assert world.channels["a", "b"].profile.bandwidth == 2 * 13_400
    assert world.channels["b", "a"].profile.bandwidth == 3 * 13_400


@pytest.mark.parametrize(("name", "one_way_ms"), [("wifi", 0.473), ("lte", 15.12), ("wimax", 20.7)])
def test_presets_have_the_delay_of_their_source(name, one_way_ms):
    times = travel_times(PRESETS[name].up, 1_000)
    # The packet's four bytes take their time on the wire as well.
    assert statistics.mean(times) / MILLISECOND == pytest.approx(one_way_ms, rel=0.02)


def test_a_broken_frame_on_the_air_costs_time_and_is_not_lost():
    times = travel_times(PRESETS["wifi-b"].up, 2_000)
    late = [each for each in times if each > 3.1 * MILLISECOND]
    assert len(times) == 2_000
    assert 10 < len(late) < 80  # of 2 %, some are late by less than the jitter
    assert min(times) >= MILLISECOND


def test_a_clock_is_skewed_and_drifts_and_timers_follow_it():
    fast = Clock(skew=-3 * SECOND, drift=1_000_000)  # 0.1 % fast
    world, a, _ = pair(LinkProfile(), a=fast)
    begun = a.env.now()
    assert a.env.wall() == BEGINNING - 3 * SECOND
    a.env.call_later(1_001 * MILLISECOND, lambda: a.rung.append(world.now))
    world.run_for(10 * SECOND)
    assert a.rung == [SECOND]
    assert a.env.now() - begun == 10_010 * MILLISECOND
    assert a.env.wall() == BEGINNING + 7_010 * MILLISECOND


def test_a_crash_takes_timers_and_memory_and_leaves_completed_writes():
    world, a, b = pair(LinkProfile())
    a.env.storage.write({b"early": b"1"})
    world.run_for(SECOND)
    a.env.call_later(SECOND, lambda: a.rung.append("must not run"))
    a.env.storage.write({b"late": b"1"}, lambda: a.rung.append("must not be reported"))
    world.crash("a")
    b.env.links["a"].send(b"to nobody")
    world.run_for(SECOND)
    world.restart("a")
    world.run_for(5 * SECOND)
    again = world.nodes["a"].core
    assert again is not a
    assert a.rung == a.heard == again.heard == []
    assert again.env.storage.get(b"early") == b"1"
    assert world.channels["b", "a"].counters.unheard == 1


def test_a_crash_keeps_some_prefix_of_unreported_writes():
    survived = set()
    for seed in range(40):
        world, a, _ = pair(LinkProfile(), seed)
        for number in range(4):
            a.env.storage.write({b"n": bytes([number])})
        world.crash("a")
        world.restart("a")
        survived.add(world.nodes["a"].core.env.storage.get(b"n"))
    assert survived == {None, b"\0", b"\1", b"\2", b"\3"}


def test_a_completion_never_reaches_a_dead_core():
    world, a, _ = pair(LinkProfile())
    a.env.storage.write({b"k": b"v"}, lambda: a.rung.append("must not be reported"))
    world.pause("a")
    world.run_for(SECOND)
    world.resume("a")
    world.crash("a")  # at the same instant
    world.run_for(SECOND)
    assert a.rung == []


def test_a_clean_shutdown_keeps_every_write():
    for seed in range(10):
        world, a, _ = pair(LinkProfile(), seed)
        a.env.storage.write({b"k": b"v"})
        world.shut_down("a")
        world.restart("a")
        assert world.nodes["a"].core.env.storage.get(b"k") == b"v"


def test_a_lost_disk_is_empty():
    world, a, _ = pair(LinkProfile())
    a.env.storage.write({b"key": b"value"})
    world.run_for(SECOND)
    with pytest.raises(ValueError, match="crash 'a' before"):
        world.wipe("a")
    world.crash("a")
    world.wipe("a")
    world.restart("a")
    assert world.nodes["a"].core.env.storage.get(b"key") is None


def test_a_paused_node_catches_up_in_order():
    world, a, b = pair(LinkProfile(delay=Constant(MILLISECOND)))
    a.env.call_later(5 * MILLISECOND, lambda: a.rung.append("timer"))
    a.env.storage.write({b"k": b"v"}, lambda: a.rung.append("write"))
    world.pause("a")
    for number in range(3):
        b.env.links["a"].send(bytes([number]))
    world.run_for(SECOND)
    assert a.rung == a.heard == []
    world.resume("a")
    world.run_for(SECOND)
    assert a.rung == ["write", "timer"]
    assert a.heard == [(SECOND, b"\0"), (SECOND, b"\1"), (SECOND, b"\2")]


def test_a_paused_node_has_a_bounded_buffer():
    world, a, b = pair(LinkProfile())
    world.pause("a")
    for _ in range(300):
        b.env.links["a"].send(bytes(1_000))
    world.run_for(SECOND)
    world.resume("a")
    world.run_for(SECOND)
    assert len(a.heard) == 212
    assert world.channels["b", "a"].counters.unheard == 300 - 212


def test_what_cannot_be_built_is_said():
    world = Simulator(1)
    world.add_node("a", Probe)
    with pytest.raises(ValueError, match="there is a node 'a' already"):
        world.add_node("a", Probe)
    with pytest.raises(ValueError, match="no node 'b'"):
        world.add_link("a", "b")
    world.add_node("b", Probe)
    world.add_link("a", "b")
    with pytest.raises(ValueError, match="link of that name"):
        world.add_link("b", "a")
    with pytest.raises(ValueError, match="no clock"):
        Clock(drift=-1_000_000_000)


def digest(seed, lossy=0.1):
    world = Simulator(seed)
    for name in "abc":
        world.add_node(name, lambda env: CourierTraffic(env, Settings(messages=50)))
    for ends in ("ab", "bc", "ca"):
        world.add_link(*ends, LinkProfile(delay=Uniform(1, SECOND // 50), loss=Independent(lossy)))
    world.run_for(SECOND // 2)
    world.crash("b")
    world.run_for(SECOND // 2)
    world.restart("b")
    world.run_for(20 * SECOND)
    return world.digest()


def test_one_seed_determines_everything():
    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
    assert digest(1) != digest(1, lossy=0.11)


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_digest_is_equal_in_other_processes_and_for_other_hash_seeds(hash_seed):
    code = "from tests.psirp_sim.runtime.test_simulator import digest; print(digest(1))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == digest(1)


def test_the_event_log_can_be_read():
    world, a, _ = pair(LinkProfile())
    a.say(b"\x01\x02")
    a.env.call_later(2 * MILLISECOND, a.stop)
    a.env.log("something", number=3)
    world.run_for(SECOND)
    world.crash("b")
    text = "\n".join(world.log.lines())
    assert "a>b            2 B 0102" in text
    assert "timer Probe.stop" in text
    assert "something number=3" in text
    assert "b              crash" in text
