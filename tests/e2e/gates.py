"""UDP gates: a node that knows another by the address of a gate can be cut off from it, and healed.

Unlike `psirp_sim.runtime.relay`, a gate need not know who will come, so a whole process that
chooses its port by itself can be behind it.
"""

from __future__ import annotations

import selectors
import socket
import threading

_BUFFER = 4 << 20
_LARGEST = 65_535
_BATCH = 64


class Gate:
    """One address that leads to another. What comes back goes to whoever was answered."""

    def __init__(self, target, selector):
        self.is_open = True
        self._target = target
        self._selector = selector
        self._front = self._socket()
        self._front.bind(("127.0.0.1", 0))
        self.port = self._front.getsockname()[1]
        self._backs = {}
        selector.register(self._front, selectors.EVENT_READ, self._forth)

    @staticmethod
    def _socket():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        return made

    def _forth(self):
        packet, source = self._front.recvfrom(_LARGEST)
        back = self._backs.get(source)
        if back is None:
            back = self._backs[source] = self._socket()
            back.connect(self._target)
            self._selector.register(
                back, selectors.EVENT_READ, lambda: self._back(source, self._backs[source])
            )
        if self.is_open:
            back.send(packet)

    def _back(self, source, back):
        packet = back.recv(_LARGEST)
        if self.is_open:
            self._front.sendto(packet, source)

    def close(self):
        for each in (self._front, *self._backs.values()):
            self._selector.unregister(each)
            each.close()


class Gates:
    """Gates by the name of who is behind them, all in one thread."""

    def __init__(self):
        self._selector = selectors.DefaultSelector()
        self._gates = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gates", daemon=True)

    def add(self, name, port):
        """A gate to a port of this machine; its own port."""
        gate = Gate(("127.0.0.1", port), self._selector)
        self._gates.setdefault(name, []).append(gate)
        return gate.port

    def cut(self, name):
        """Nothing passes any more."""
        for gate in self._gates[name]:
            gate.is_open = False

    def heal(self, name):
        for gate in self._gates[name]:
            gate.is_open = True

    def start(self):
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.1):
                try:
                    for _ in range(_BATCH):
                        key.data()
                except OSError:
                    continue  # nothing left, or nobody listens there

    def close(self):
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for gates in self._gates.values():
            for gate in gates:
                gate.close()
        self._selector.close()
