"""Captures: what was written, read back by scapy."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import PcapReader

from psirp_sim.runtime.ethernet import ETHERTYPE
from psirp_sim.runtime.pcap import PcapWriter, link_address, node_address
from psirp_sim.scapy_layer import Psirp, PsirpData, PsirpFrame
from psirp_sim.wire.data import DataPacket
from psirp_sim.zfilters import ZFilter

NOW = 1_792_653_012_123_456_789


def captured(*records):
    """What scapy reads of a capture of these packets."""
    file = io.BytesIO()
    writer = PcapWriter(file.write)
    for record in records:
        writer.packet(*record)
    file.seek(0)
    with PcapReader(file) as reader:
        return list(reader)


def test_scapy_reads_what_was_written():
    packet = DataPacket(ZFilter.bloom(512, 1, 7), b"packetid", b"\x01hello").encode()
    out, back = captured(
        (NOW, "node-a", "to-b", True, packet), (NOW + 1, "node-a", "to-b", False, packet[::-1])
    )
    assert out.type == ETHERTYPE
    assert bytes(out[Psirp]) == packet
    assert out[PsirpData].packet_id == b"packetid"
    assert bytes(back[PsirpFrame].payload) == packet[::-1]
    assert [int(read.time * 10**9) for read in (out, back)] == [NOW, NOW + 1]
    assert (out.src, out.dst) == (back.dst, back.src)


def test_addresses_tell_nodes_and_links_and_nobodys_hardware_apart():
    nodes = {node_address(name) for name in ("a", "b", "c")}
    links = {link_address(node, link) for node in ("a", "b") for link in ("a", "b")}
    assert len(nodes | links) == 7
    assert all(address[0] & 3 == 2 for address in nodes | links), "locally administered, unicast"
    out, back = captured((0, "a", "b", True, b"x"), (0, "a", "b", False, b"x"))
    assert out.src == back.dst == node_address("a").hex(":")
    assert out.dst == back.src == link_address("a", "b").hex(":")
    assert (out.src[:2], out.dst[:2]) == ("02", "06")


@given(st.lists(st.tuples(st.integers(0, 2**32 * 10**9 - 1), st.binary(max_size=100))))
def test_any_packets_at_any_times(records):
    read = captured(*((wall, "node", "link", True, packet) for wall, packet in records))
    assert [int(frame.time * 10**9) for frame in read] == [wall for wall, _ in records]
    assert [bytes(frame)[16:] for frame in read] == [packet for _, packet in records]


def test_a_clock_that_is_far_off_does_not_end_the_capture():
    assert len(captured((-1, "a", "b", True, b"x"), (2**63, "a", "b", True, b"x"))) == 2
