"""Somebody in the middle of every link: sees all packets, and can keep them."""

from __future__ import annotations

import select
import socket
import threading

from demo.layout import LINKS


class Relays:
    """Two sockets for each link, one at either end; packets go from one to the other."""

    def __init__(self):
        self.seen = []
        """(from, to, packet), in order."""
        self.kept = []
        """The same of those that were not passed on."""
        self.holding = None
        """A text: packets with it are not passed on. Others are, or the nodes would soon take their
        links for dead and send nothing at all."""
        self._sockets = {}
        self._ends = {}
        self.ways = {}
        for a, b in LINKS:
            for sender, receiver in ((a, b), (b, a)):
                own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                own.bind(("127.0.0.1", 0))
                own.setblocking(False)
                self._sockets[sender, receiver] = own
                self._ends[own] = (sender, receiver)
                self.ways[sender, receiver] = own.getsockname()[1]
        self._wake, self._waker = socket.socketpair()

    def start(self, ports):
        """Pass packets on to where the nodes listen."""
        self._ports = ports
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self):
        self._waker.send(b"x")
        self._thread.join()
        for each in (*self._ends, self._wake, self._waker):
            each.close()

    def _run(self):
        while True:
            readable, _, _ = select.select([*self._ends, self._wake], [], [])
            if self._wake in readable:
                return
            for each in readable:
                sender, receiver = self._ends[each]
                packet = each.recv(65_536)
                held = self.holding is not None and self.holding in packet
                (self.kept if held else self.seen).append((sender, receiver, packet))
                if not held:
                    # From the socket that the receiver knows as this neighbour.
                    self._sockets[receiver, sender].sendto(
                        packet, ("127.0.0.1", self._ports[f"{receiver}.fabric"])
                    )

    def carried(self, text):
        """The links, with their direction, that a text passed in the clear."""
        return {(a, b) for a, b, packet in list(self.seen) if text in packet}
