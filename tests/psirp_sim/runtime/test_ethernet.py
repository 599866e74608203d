"""Nodes on raw Ethernet: between network namespaces joined by a pair of virtual interfaces.

Every test of the Environment contract runs here too, by the names it has in `test_environment`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Core, CoreFactory
from psirp_sim.runtime.ethernet import ETHERTYPE, EthernetNode, EthernetUnavailable, enclose
from psirp_sim.scapy_layer import Ether, Psirp, PsirpData
from psirp_sim.wire.data import DataPacket
from psirp_sim.zfilters import ZFilter
from tests.psirp_sim.runtime import test_environment
from tests.psirp_sim.runtime.test_environment import Quiet
from tests.psirp_sim.runtime.worlds import PATIENCE

globals().update(
    {name: test for name, test in vars(test_environment).items() if name.startswith("test_")}
)

INTERFACE = "wire"
MAC = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}
SHORTEST = 46
"""Bytes to which Ethernet pads what stands behind the header."""
EVERYTHING = 3
"""Ethertype of a socket that gets all frames (ETH_P_ALL)."""


@dataclass(frozen=True)
class Namespace:
    """A network of its own, with one interface that leads to the other one."""

    name: str

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-n", self.name, *arguments], check=True, capture_output=True)

    @contextmanager
    def entered(self):
        """Sockets that are opened meanwhile belong to the namespace, and do so for ever."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.name}") as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)

    def tap(self) -> socket.socket:
        """A socket that sees and sends whole frames."""
        with self.entered():
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
        opened.bind((INTERFACE, EVERYTHING))
        opened.settimeout(60)
        return opened


def _enter(namespace) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    if libc.setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture(scope="module")
def namespaces():
    """The namespaces of the nodes "a" and "b", with a wire between them."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, root and the command ip (iproute2)")
    token = secrets.token_hex(3)
    both = {node: Namespace(f"psph-{token}-{node}") for node in "ab"}
    made = []
    try:
        for namespace in both.values():
            asked = subprocess.run(
                ["ip", "netns", "add", namespace.name], capture_output=True, text=True, check=False
            )
            if asked.returncode != 0:
                pytest.skip(f"no network namespace could be made here: {asked.stderr.strip()}")
            made.append(namespace.name)
        peer = ("peer", "name", INTERFACE, "netns", both["b"].name)
        both["a"].ip("link", "add", INTERFACE, "type", "veth", *peer)
        for node, namespace in both.items():
            namespace.ip("link", "set", INTERFACE, "address", MAC[node], "up")
        yield both
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=True)


class EthernetWorld:
    """Nodes "a" and "b" of this process, each with its socket in its own namespace."""

    def __init__(self, namespaces: dict[str, Namespace], directory: Path) -> None:
        self._namespaces = namespaces
        self._directory = directory

    def run(self, a: CoreFactory, b: CoreFactory, until: Callable[[Core, Core], bool]) -> None:
        asyncio.run(self._run({"a": a, "b": b}, until))

    async def _run(
        self, factories: dict[str, CoreFactory], until: Callable[[Core, Core], bool]
    ) -> None:
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(self.node(name, storage=self._directory / name))
                for name in factories
            ]
            for node, neighbour in zip(nodes, "ba", strict=True):
                node.add_link(neighbour, INTERFACE, MAC[neighbour])
            cores = [node.run(factories[node.node]) for node in nodes]
            async with asyncio.timeout(PATIENCE / SECOND):
                while not until(*cores):
                    await asyncio.sleep(0.002)
        assert all(node.counters.core_errors == 0 for node in nodes)

    def node(self, name: str, **options: object) -> EthernetNode:
        namespace = self._namespaces[name]

        class Placed(EthernetNode):
            async def _open_socket(self):
                with namespace.entered():
                    return await super()._open_socket()

        return Placed(name, seed=1, **options)


@pytest.fixture
def world(namespaces, tmp_path):
    return EthernetWorld(namespaces, tmp_path)


async def eventually(condition):
    async with asyncio.timeout(PATIENCE / SECOND):
        while not condition():
            await asyncio.sleep(0.002)


def test_scapy_dissects_what_is_on_the_wire(world, namespaces):
    packet = DataPacket(ZFilter.bloom(256, 2, 5), b"packetid", b"\x01hello").encode()

    async def main():
        async with world.node("a") as a:
            a.add_link("b", INTERFACE, MAC["b"])
            a.run(Quiet)
            assert a.links["b"].send(packet)

    with namespaces["b"].tap() as tap:
        asyncio.run(main())
        while (frame := Ether(tap.recv(2_000))).type != ETHERTYPE:
            pass
    assert (frame.src, frame.dst) == (MAC["a"], MAC["b"])
    assert bytes(frame[Psirp]) == packet
    assert frame[PsirpData].packet_id == b"packetid"


def header(destination: str, source: str) -> bytes:
    return bytes.fromhex((destination + source).replace(":", "")) + ETHERTYPE.to_bytes(2)


def test_frames_as_they_really_come(world, namespaces):
    """Padded, and from whoever is on the wire."""
    ours = header(MAC["a"], MAC["b"])

    async def main():
        async with world.node("a") as a:
            a.add_link("b", INTERFACE, MAC["b"], mtu=100)
            core = a.run(Quiet)
            for frame in (
                ours + enclose(b"short").ljust(SHORTEST, b"\0"),
                ours + enclose(b"").ljust(SHORTEST, b"\0"),
                ours + enclose(bytes(100)),
                ours + enclose(bytes(101)),
                ours + enclose(bytes(1_400)),
                ours + enclose(bytes(100))[:-1],
                ours + b"\0",
                header(MAC["a"], "02:00:00:00:00:0c") + enclose(b"from a stranger"),
                header("02:00:00:00:00:0c", MAC["b"]) + enclose(b"to another"),
                header("ff:ff:ff:ff:ff:ff", MAC["b"]) + enclose(b"to all"),
                ours + enclose(b"last"),
            ):
                tap.send(frame)
            await eventually(lambda: core.packets and core.packets[-1] == ("b", b"last"))
            assert [packet for _, packet in core.packets] == [b"short", b"", bytes(100), b"last"]
            counters = a.counters
            assert (counters.oversized, counters.cut_off, counters.strangers) == (2, 2, 3)

    with namespaces["b"].tap() as tap:
        asyncio.run(main())


def test_an_interface_that_goes_away_and_comes_back(world, namespaces):
    async def main():
        async with world.node("a") as a, world.node("b") as b:
            a.add_link("b", INTERFACE, MAC["b"])
            a.add_link("nowhere", "absent", MAC["b"])
            b.add_link("a", INTERFACE, MAC["a"])
            core = b.run(Quiet)
            a.run(Quiet)
            assert not a.links["nowhere"].send(b"lost")
            namespaces["a"].ip("link", "set", INTERFACE, "down")
            assert not a.links["b"].send(b"lost too")
            assert a.counters.send_errors == 2
            namespaces["a"].ip("link", "set", INTERFACE, "up")

            def arrived():
                a.links["b"].send(b"back")  # until both ends have carrier again
                return ("a", b"back") in core.packets

            await eventually(arrived)

    asyncio.run(main())


def test_links_come_and_go(world):
    async def main():
        async with world.node("a") as a, world.node("b") as b:
            b.add_link("a", INTERFACE, MAC["a"])
            core = a.run(Quiet)
            b.run(Quiet)
            a.add_link("b", INTERFACE, MAC["b"])
            for name, mac in (("b", "02:00:00:00:00:0c"), ("other", MAC["b"].upper())):
                with pytest.raises(ValueError, match="already"):
                    a.add_link(name, INTERFACE, mac)
            a.remove_link("b")
            b.links["a"].send(b"unexpected")
            await eventually(lambda: a.counters.strangers == 1)
            a.add_link("bee", INTERFACE, MAC["b"])
            b.links["a"].send(b"again")
            await eventually(lambda: core.packets == [("bee", b"again")])

    asyncio.run(main())


NODE = """
import asyncio, sys
from psirp_sim.courier.traffic import CourierTraffic, Settings
from psirp_sim.runtime.ethernet import EthernetNode

name, neighbour, interface, mac = sys.argv[1:]

async def main():
    async with EthernetNode(name) as node:
        node.add_link(neighbour, interface, mac)
        core = node.run(lambda env: CourierTraffic(env, Settings(messages=100, every="1 ms")))
        while len(core.received(neighbour)) < 100:
            await asyncio.sleep(0.01)
        print([int.from_bytes(each[:8]) for each in core.received(neighbour)], flush=True)
        # The neighbour may still wait for an acknowledgement.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


def test_courier_runs_unchanged_between_processes(namespaces):
    def start(name, neighbour):
        inside = ("ip", "netns", "exec", namespaces[name].name)
        arguments = (name, neighbour, INTERFACE, MAC[neighbour])
        return subprocess.Popen(
            [*inside, sys.executable, "-c", NODE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    processes = [start("a", "b"), start("b", "a")]
    try:
        for process in processes:
            assert process.stdout.readline() == f"{[*range(1, 101)]}\n"
    finally:
        for process in processes:
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
    assert [process.returncode for process in processes] == [0, 0]


# What needs no root


@pytest.mark.parametrize(
    "mac", ["", "02:00:00:00:00", "02:00:00:00:00:0g", "02-00-00-00-00-0a", "٠٢:00:00:00:00:0a"]
)
def test_what_is_no_mac_address_is_said(mac):
    with pytest.raises(ValueError, match="is no MAC address: write it as"):
        EthernetNode("a").add_link("b", "eth0", mac)


def test_without_the_capability_one_sentence_says_what_to_do():
    was = os.geteuid()
    os.seteuid(was or 65_534)  # nobody: the capability is gone until we are root again
    try:
        with pytest.raises(EthernetUnavailable, match="need the capability CAP_NET_RAW: run as"):
            asyncio.run(EthernetNode("a").__aenter__())
    finally:
        os.seteuid(was)


def test_on_another_system_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(EthernetUnavailable, match="need Linux: use UDP links"):
        asyncio.run(EthernetNode("a").__aenter__())
