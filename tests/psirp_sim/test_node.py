"""A fabric node among others, in virtual time: attaching, failing, taking over, refusing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psirp_sim.node import FabricNode
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import Clock, Constant, LinkProfile, Simulator
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.data import DataPacket, Protocol
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import Mode, Scheme, ZFilter
from traces import MemorySink, Stage, check

HELLO = SECOND
SETTINGS = FabricSettings(keys=FabricKeys("tests"), link_seed=b"tests", id_version="1-x")

#      b --- d
#     /       \
#    a         f --- g
#     \       /
#      c --- e
LINKS = ["ab", "ac", "bd", "ce", "df", "ef", "fg"]


def fabric(managers="ag", fabric_settings=SETTINGS, links=LINKS, clocks=None, **options):
    sink = MemorySink()
    world = Simulator(1, trace=sink, keep_events=20_000)
    world.sink = sink
    for name in sorted(set("".join(links))):
        roles = ["topology"] if name in managers else []
        own = options.get(name, fabric_settings)
        world.add_node(
            name,
            lambda env, roles=roles, own=own: FabricNode(env, own, roles=roles, domain="x.test"),
            (clocks or {}).get(name),
        )
    for one, other in links:
        world.add_link(one, other, LinkProfile(delay=Constant(2 * MILLISECOND)))
    world.run_for(3 * SECOND)
    return world


def core(world, name):
    return world.nodes[name].core


class Listener:
    """A tree from one node to others, a packet every 20 ms, and when each receiver got one."""

    def __init__(self, world, source, receivers):
        self.world = world
        self.source = source
        self.filters = []
        self.heard = {receiver: [] for receiver in receivers}
        for receiver in receivers:
            core(world, receiver).handlers[Protocol.TEST] = self._hear(receiver)
        node = core(world, source)
        self.tree = node.attachment.want_tree(source, receivers, self._changed)
        world.engine.at(world.now, self._send)

    def _changed(self, filters, unreached):
        self.filters, self.unreached = filters, unreached

    def _hear(self, receiver):
        return lambda payload: self.heard[receiver].append(self.world.now) or True

    def _send(self):
        core(self.world, self.source).send(self.filters, Protocol.TEST, b"x" * 100)
        self.world.engine.at(self.world.now + 20 * MILLISECOND, self._send)

    def gap(self, receiver, since):
        """How long the receiver heard nothing, at the longest, from that time on."""
        times = [time for time in self.heard[receiver] if time >= since - 100 * MILLISECOND]
        return max(b - a for a, b in zip(times, [*times[1:], self.world.now], strict=True))


def test_on_attaching_a_node_gets_filters_to_and_from_every_server():
    world = fabric()
    for name in "abcdefg":
        attachment = core(world, name).attachment
        assert attachment.manager == ("a", core(world, "a").boot)
        assert set(attachment.routes) == {"a", "g"} - {name}
        for route in attachment.routes.values():
            assert route.there
            assert route.back


def test_only_the_lowest_manager_is_active():
    world = fabric()
    assert core(world, "a").manager.active
    assert not core(world, "g").manager.active


def test_data_takes_the_tree_and_nothing_else():
    world = fabric()
    before = world.channels["c", "e"].counters.bytes
    listener = Listener(world, "a", ["e"])
    world.run_for(2 * SECOND)
    assert len(listener.heard["e"]) > 90
    quiet = world.channels["b", "d"].counters.bytes, world.channels["d", "f"].counters.bytes
    busy = world.channels["c", "e"].counters.bytes - before
    assert busy > 90 * 100
    assert max(quiet) < busy / 2, "hellos and link state only"
    for name in "abcdefg":
        assert core(world, name).counters["false_deliveries"] == 0


@pytest.mark.parametrize("one_way", [False, True])
def test_a_failed_link_is_noticed_within_three_hello_intervals_and_routed_around(one_way):
    world = fabric(managers="g")
    listener = Listener(world, "a", ["g"])
    world.run_for(2 * SECOND)
    through = "b" if world.channels["a", "b"].counters.bytes > 20_000 else "c"
    cut = world.now
    world.cut("a", through)
    if not one_way:
        world.cut(through, "a")
    while (
        through in core(world, "a").neighbours.up() or "a" in core(world, through).neighbours.up()
    ):
        world.run_for(10 * MILLISECOND)
    assert world.now - cut <= 3 * HELLO
    world.run_for(2 * SECOND)
    assert listener.gap("g", cut) <= 3 * HELLO + 100 * MILLISECOND
    assert world.now - listener.heard["g"][-1] < 50 * MILLISECOND


def test_a_node_that_dies_is_routed_around():
    world = fabric(managers="g")
    listener = Listener(world, "a", ["g"])
    world.run_for(2 * SECOND)
    through = "d" if world.channels["d", "f"].counters.bytes > 20_000 else "e"
    died = world.now
    world.crash(through)
    world.run_for(5 * SECOND)
    assert listener.gap("g", died) <= 3 * HELLO + 100 * MILLISECOND


def test_a_receiver_that_cannot_be_reached_is_named_and_others_still_get_theirs():
    world = fabric(managers="c")
    listener = Listener(world, "a", ["g", "e"])
    world.run_for(SECOND)
    world.crash("f")
    world.run_for(5 * SECOND)
    assert listener.unreached == ["g"]
    assert world.now - listener.heard["e"][-1] < 50 * MILLISECOND
    world.restart("f")
    world.run_for(3 * SECOND)
    assert listener.unreached == []
    assert world.now - listener.heard["g"][-1] < 50 * MILLISECOND


def test_a_standby_takes_over_when_the_manager_dies():
    world = fabric(managers="ag")
    listener = Listener(world, "c", ["d"])
    world.run_for(SECOND)
    died = world.now
    world.crash("a")  # the manager, and a node of the shortest path from c to d
    world.run_for(6 * SECOND)
    assert core(world, "g").manager.active
    assert core(world, "c").attachment.manager == ("g", core(world, "g").boot)
    assert listener.gap("d", died) <= 3 * HELLO + 200 * MILLISECOND
    world.restart("a")
    world.run_for(5 * SECOND)
    assert core(world, "a").manager.active
    assert not core(world, "g").manager.active
    assert core(world, "c").attachment.manager == ("a", core(world, "a").boot)
    assert world.now - listener.heard["d"][-1] < 50 * MILLISECOND


@pytest.mark.parametrize("seconds", [2.6, 5.0])
def test_a_standby_that_was_alone_while_the_manager_stood_still_is_attached_again(seconds):
    """The manager never saw it go, and takes its routes for confirmed."""
    world = fabric(managers="ac", links=["ab", "ac"])
    world.pause("a")
    world.run_for(round(seconds * SECOND))
    assert [*core(world, "c").neighbours.up()] == []
    world.resume("a")
    world.run_for(SETTINGS.tree_interval + 3 * SECOND)
    alone = core(world, "c").attachment
    assert alone.manager[0] == "a"
    assert [*alone.routes] == ["a"]


def test_a_node_that_joins_late_is_attached_and_reached():
    world = fabric()
    world.add_node("z", lambda env: FabricNode(env, SETTINGS, domain="x.test"))
    world.add_link("z", "d", LinkProfile())
    world.run_for(2 * SECOND)
    assert set(core(world, "z").attachment.routes) == {"a", "g"}
    listener = Listener(world, "a", ["z"])
    world.run_for(SECOND)
    assert listener.heard["z"]


def test_a_node_that_stops_says_so():
    world = fabric()
    listener = Listener(world, "a", ["g"])
    world.run_for(SECOND)
    through = "d" if world.channels["d", "f"].counters.bytes > 20_000 else "e"
    stopped = world.now
    world.shut_down(through)
    world.run_for(2 * SECOND)
    assert listener.gap("g", stopped) < 500 * MILLISECOND, "no need to wait for its silence"


def test_a_tree_given_up_is_forgotten_by_the_manager():
    world = fabric()
    listener = Listener(world, "c", ["g"])
    world.run_for(SECOND)
    assert len(core(world, "a").manager.trees) == 1
    core(world, "c").attachment.give_up(listener.tree)
    world.run_for(5 * SETTINGS.tree_interval)
    assert core(world, "a").manager.trees == {}


def test_receivers_can_be_changed():
    world = fabric()
    listener = Listener(world, "a", ["g", "e"])
    world.run_for(SECOND)
    core(world, "a").attachment.set_receivers(listener.tree, ["e"])
    world.run_for(SECOND)
    assert world.now - listener.heard["g"][-1] > 500 * MILLISECOND
    assert world.now - listener.heard["e"][-1] < 50 * MILLISECOND


def test_control_packets_under_another_key_are_dropped_and_counted():
    stranger = FabricSettings(keys=FabricKeys("other"), link_seed=b"tests")
    world = fabric(c=stranger)
    assert core(world, "a").counters["wrong_key"] > 0
    assert core(world, "c").counters["wrong_key"] > 0
    assert list(core(world, "a").neighbours.up()) == ["b"]
    assert len(core(world, "a").database.graph.out) == 6


def test_the_key_can_be_replaced_node_by_node():
    """Each node in turn is restarted with both keys, then each with the new one alone."""
    world = fabric()
    listener = Listener(world, "a", ["e"])
    steps = [FabricKeys("tests", "new"), FabricKeys("new", "tests"), FabricKeys("new")]
    for keys in steps:
        changed = FabricSettings(keys=keys, link_seed=b"tests")
        for name in "bcdfg":
            roles = ["topology"] if name == "g" else []
            world.crash(name)
            world.nodes[name].factory = lambda env, changed=changed, roles=roles: FabricNode(
                env, changed, roles=roles
            )
            world.restart(name)
            world.run_for(2 * SECOND)
            assert core(world, name).counters["wrong_key"] == 0 or keys is steps[2]
        for name in "ae":
            core(world, name).settings = changed
        world.run_for(2 * SECOND)
        assert world.now - listener.heard["e"][-1] < 50 * MILLISECOND
    world.run_for(5 * SECOND)
    assert sum(len(list(core(world, name).neighbours.up())) for name in "abcdefg") == 14


def test_clock_probes_tell_how_far_clocks_are_apart():
    skew = 300 * MILLISECOND
    world = fabric(clocks={"b": Clock(skew=skew)})
    probes = [event for event in world.sink.events if event.stage == Stage.CLOCK_PROBE]
    assert len(probes) > 20
    for event in probes:
        check(event)
    at_a = [event for event in probes if (event.node, event.peer) == ("a", "b")]
    for event in at_a:
        offset = (event.t2 - event.t1 + event.t3 - event.t4) // 2
        assert offset == skew, "equal delays both ways, so the estimate is exact"


def test_hellos_tell_the_id_version():
    other = FabricSettings(keys=FabricKeys("tests"), link_seed=b"tests", id_version="1-y")
    world = fabric(c=other)
    assert core(world, "a").neighbours.links["c"].id_version == "1-y"
    assert core(world, "a").neighbours.links["b"].id_version == "1-x"
    said = [line for line in world.log.lines() if "neighbour.id_version" in line]
    assert len(said) == 4, "both ends of a-c and c-e, once each"


def test_a_small_domain_may_use_exact_filters_and_they_can_be_switched_off():
    # With k = 1 false copies abound, so that exact filters win.
    crowded = Scheme(k=1, d=1)
    for allowed in (True, False):
        own = FabricSettings(
            keys=FabricKeys("tests"), link_seed=b"2", scheme=crowded, allow_exact=allowed
        )
        links = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh" if a < b]
        world = fabric(links=links, fabric_settings=own)
        listener = Listener(world, "a", list("bcdefgh"))
        world.run_for(SECOND)
        modes = {zfilter.mode for zfilter in listener.filters}
        assert all(listener.heard.values())
        if not allowed:
            assert modes == {Mode.BLOOM}


def test_a_node_of_many_links_reports_them_all():
    hub = "a"
    world = Simulator(1)
    world.add_node(hub, lambda env: FabricNode(env, SETTINGS, roles=["topology"]))
    for number in range(80):
        world.add_node(f"leaf-with-a-long-name-{number}", lambda env: FabricNode(env, SETTINGS))
        world.add_link(f"leaf-with-a-long-name-{number}", hub)
    world.run_for(SECOND // 10)
    leaf = core(world, "leaf-with-a-long-name-79")

    def reported():
        links = leaf.database.graph.out.get(hub, ())
        return len(links) == 80 and leaf.attachment.manager == (hub, core(world, hub).boot)

    while not reported():  # its link state needs several packets
        world.run_for(SECOND // 10)
        assert world.now < 5 * SECOND


@settings(max_examples=300)
@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda tail: b"\x01\x02" + tail))
def test_random_packets_never_crash_a_node(packet):
    node = _lonely()
    before = node.counters["malformed"] + node.counters["wrong_key"]
    node.receive("b", packet)
    after = node.counters["malformed"] + node.counters["wrong_key"]
    counted = after - before + node.counters["false_deliveries"]
    assert counted >= 1


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 255))
def test_random_payloads_never_crash_a_node(payload, protocol):
    node = _lonely()
    packet = DataPacket(ZFilter.bloom(256, 0, 1), bytes(8), bytes((protocol,)) + payload)
    node.receive("b", packet.encode())


_LONELY = []


def _lonely():
    if not _LONELY:
        world = fabric(links=["ab"], managers="a")
        _LONELY.append((world, core(world, "a")))
    return _LONELY[0][1]


def test_mutated_packets_never_crash_a_node_and_are_counted():
    world = fabric()
    kept = []
    for channel in world.channels.values():
        channel.observer = lambda channel, packet: kept.append(packet)
    Listener(world, "a", ["g"])
    world.run_for(3 * SECOND)
    random = world.nodes["a"].random
    node = core(world, "b")
    for packet in kept[:2_000]:
        mutated = bytearray(packet)
        for _ in range(random.randint(1, 4)):
            mutated[random.randrange(len(mutated))] = random.randrange(256)
        if world.nodes["b"]._life.driver.arrived("a", bytes(mutated)):
            node.receive("a", bytes(mutated))
    wrong = node.counters["wrong_key"] + node.counters["malformed"]
    dropped = sum(list(node.forwarding.values)[:8])
    assert wrong > 50
    assert dropped > 10


def test_a_dead_node_that_is_forgotten_at_last_disturbs_nobody():
    """Each node forgets it in its own time: the numbering of exact filters must not change."""
    crowded = FabricSettings(keys=FabricKeys("tests"), link_seed=b"2", scheme=Scheme(k=1, d=1))
    links = ["ab", "bc", "cd", "ad", "ac", "de"]
    world = fabric(links=links, managers="a", fabric_settings=crowded)
    world.add_node("z", lambda env: FabricNode(env, crowded))
    world.add_link("z", "d")
    listener = Listener(world, "a", ["c", "e"])
    world.run_for(5 * SECOND)
    world.crash("z")
    world.run_for(10 * SECOND)
    calm = world.now
    world.run_for(200 * SECOND)
    assert "z" not in core(world, "a").database, "it has been forgotten"
    assert listener.gap("e", calm) < 100 * MILLISECOND
    assert listener.gap("c", calm) < 100 * MILLISECOND


@pytest.mark.parametrize("clock", ["right", "set back"])
def test_a_manager_that_lost_its_disk_is_believed_again(clock):
    world = fabric(managers="a")
    listener = Listener(world, "b", ["f"])
    before = core(world, "a").boot
    world.crash("a")
    world.wipe("a")
    if clock == "set back":
        world.nodes["a"].clock = Clock(skew=-1_000 * SECOND)
    world.restart("a")
    world.run_for(10 * SECOND)
    assert core(world, "a").boot > before
    assert core(world, "b").attachment.manager == ("a", core(world, "a").boot)
    world.cut("b", "d")
    world.run_for(6 * SECOND)
    assert world.now - listener.heard["f"][-1] < 50 * MILLISECOND, "around the cut, over a"


def test_a_node_too_far_for_any_packet_does_not_disturb_the_others():
    names = [f"n{number:02}" for number in range(40)]
    world = Simulator(1)
    for name in names:
        roles = ["topology"] if name == "n39" else []
        world.add_node(name, lambda env, roles=roles: FabricNode(env, SETTINGS, roles=roles))
    for one, other in pairwise(names):
        world.add_link(one, other)
    world.run_for(20 * SECOND)
    attached = [name for name in names if core(world, name).attachment.manager[0] == "n39"]
    assert attached == names[7:], "32 links away from the manager, and nobody further"
    heard = []
    core(world, "n20").handlers[Protocol.TEST] = lambda payload: heard.append(payload) or True
    source = core(world, "n39")
    unreached = []
    source.attachment.want_tree("n39", ["n00", "n20"], lambda filters, far: unreached.extend(far))
    world.run_for(3 * SECOND)
    assert unreached == ["n00"]


def test_what_arrives_before_the_node_has_begun_is_ignored():
    world = fabric(links=["ab"], managers="a")
    node = FabricNode(world.nodes["a"]._life, SETTINGS)
    payload = bytes((Protocol.CONTROL,)) + bytes(40)
    node.receive("b", DataPacket(ZFilter.bloom(256, 0, 1), bytes(8), payload).encode())
    node.receive("b", b"\x01\x02" + bytes(40))
    assert not node.begun
    assert not node.counters


def test_a_tree_has_a_stated_number_of_receivers():
    world = fabric(links=["ab"], managers="a")
    with pytest.raises(ValueError, match="at most 1024 receivers"):
        core(world, "a").attachment.want_tree("a", ["b"] * 1025, lambda *_: None)


def test_two_nodes_of_one_name_do_not_flood_the_fabric():
    """A mistake in a configuration: the third and the fourth node both call themselves c."""
    world = Simulator(1, keep_events=50_000)
    for name, calls_itself in (("a", "a"), ("b", "b"), ("c", "c"), ("d", "c"), ("e", "e")):

        def impostor(env, calls_itself=calls_itself):
            env.node = calls_itself
            return FabricNode(env, SETTINGS)

        world.add_node(name, impostor)
    for ends in ("ab", "bc", "ad", "ce"):  # one c has more links, and so more to say
        world.add_link(*ends)
    world.run_for(20 * SECOND)
    assert any("name.taken" in line for line in world.log.lines())
    for channel in world.channels.values():
        assert channel.counters.sent < 20 * 50, "a few packets a second, not a storm"


def test_status_is_complete():
    status = core(fabric(), "a").status()
    assert status["node"] == "a"
    assert status["active_manager"] is True
    assert status["fabric"] == {"nodes": 7, "links": 7, "reachable": 7}
    assert [link["up"] for link in status["links"]] == [True, True]
    assert status["servers"] == {"g": ["forwarder", "topology"]}
    assert status["forwarding"]["received"] > 0
