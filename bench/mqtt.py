"""The reference of the benchmarks of publications: mosquitto, and a small client of MQTT 3.1.1.

The client speaks just what a benchmark needs, QoS 0, over a bare socket with TCP_NODELAY that
the event loop watches, so that as little time as possible is the client's.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from demo.ports import free_ports

HOST = "127.0.0.1"
MISSING = "mosquitto is not installed: the reference is left out"
CONFIGURATION = """\
listener {port} {host}
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
log_type error
log_dest stderr
"""
"""Nothing is dropped however far a subscriber is behind."""
CHUNK = 1 << 18
PATIENCE = 60.0
_CONNACK, _PUBLISH, _SUBACK = 0x20, 0x30, 0x90
_LENGTH = Struct(">H")


def program() -> str | None:
    """Where mosquitto is, if it is."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which("mosquitto", path=path)


@contextmanager
def broker() -> Iterator[int | None]:
    """A mosquitto on a port of its own, which it hands out; None where there is none."""
    found = program()
    if found is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as directory:
        (port,) = free_ports(1)
        file = Path(directory, "mosquitto.conf")
        file.write_text(CONFIGURATION.format(port=port, host=HOST))
        with subprocess.Popen([found, "-c", str(file)]) as process:
            try:
                wait_for(port, process)
                yield port
            finally:
                process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until a broker that was started takes connections."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("mosquitto did not come up")


class Client:
    """One connection, with an id of its own."""

    def __init__(self, port: int, name: str, took: Callable[[bytes], None]) -> None:
        """`took` is called with the payload of every message."""
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._name = name
        self._took = took
        self._received = b""
        self._socket = socket.socket()
        self._acknowledged: asyncio.Queue[bytes] = asyncio.Queue()

    async def connect(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        await self._loop.sock_connect(self._socket, (HOST, self._port))
        self._loop.add_reader(self._socket, self._readable)
        clean_session, keep_alive = b"\2", bytes(2)
        body = _text("MQTT") + b"\4" + clean_session + keep_alive + _text(self._name)
        await self._request(0x10, body, _CONNACK)

    async def subscribe(self, topic: str) -> None:
        await self._request(0x82, b"\0\1" + _text(topic) + b"\0", _SUBACK)

    async def publish(self, topic: bytes, payload: bytes) -> None:
        """The topic as `topic_of` has it."""
        packet = b"\x30" + _varint(len(topic) + len(payload)) + topic + payload
        try:
            sent = self._socket.send(packet)
        except BlockingIOError:
            sent = 0
        if sent < len(packet):
            await self._loop.sock_sendall(self._socket, packet[sent:])

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()

    async def _request(self, kind: int, body: bytes, answer: int) -> None:
        await self._loop.sock_sendall(self._socket, bytes((kind,)) + _varint(len(body)) + body)
        packet = await asyncio.wait_for(self._acknowledged.get(), PATIENCE)
        if packet[0] != answer or packet[-1] != 0:
            raise RuntimeError(f"mosquitto answered {packet.hex()}")

    def _readable(self) -> None:
        try:
            received = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        if not received:
            raise SystemExit("mosquitto has closed the connection")
        data = self._received + received if self._received else received
        at, end = 0, len(data)
        took = self._took
        while at + 2 <= end:
            # The length: seven bits a byte, the lowest first.
            length, shift, body = data[at + 1] & 0x7F, 7, at + 2
            more = data[at + 1] & 0x80
            while more and body < end:
                length |= (data[body] & 0x7F) << shift
                more = data[body] & 0x80
                shift, body = shift + 7, body + 1
            if more or body + length > end:
                break
            if data[at] & 0xF0 == _PUBLISH:
                took(data[body + 2 + (data[body] << 8 | data[body + 1]) : body + length])
            else:
                self._acknowledged.put_nowait(data[at : body + length])
            at = body + length
        self._received = data[at:]


def topic_of(topic: str) -> bytes:
    """A topic as a packet has it."""
    return _text(topic)


def _text(text: str) -> bytes:
    return _LENGTH.pack(len(text.encode())) + text.encode()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
