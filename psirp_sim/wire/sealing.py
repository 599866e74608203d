"""Sealed messages: what nodes and servers of a fabric say to each other, under its key.

A message is sealed as

    0      type
    1-16   MAC: BLAKE3 keyed with the fabric's key over type and body, first 16 bytes
    17-    body: the message as a MessagePack array

and travels either to the neighbour, behind the two bytes `version, CONTROL`, or across the
fabric as the payload of a data packet of protocol `Protocol.CONTROL`. A message too long for one
packet is cut into `Fragment` messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hmac import compare_digest

import msgspec
from blake3 import blake3

from psirp_sim.wire import control, publications, rendezvous
from psirp_sim.wire.control import Fragment
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.message import Message

MAC = 16
SEAL = 1 + MAC
LONGEST = 256 * 1024
"""Bytes of a sealed message that is put together from fragments."""

_DECODERS: dict[int, msgspec.msgpack.Decoder[Message]] = {
    kind.type: msgspec.msgpack.Decoder(kind)
    for kind in (*control.MESSAGES, *rendezvous.MESSAGES, *publications.MESSAGES)
}


class WrongKey(Exception):
    """A message whose MAC is not by any of the fabric's keys."""


class FabricKeys:
    """The fabric's key, and while it is being replaced the other one: both are accepted."""

    def __init__(self, *secrets: str) -> None:
        """The first is the one used for sending."""
        if not 1 <= len(secrets) <= 2:
            raise ValueError("a fabric has one key, or two while one replaces the other")
        self._keys = [
            blake3(secret.encode(), derive_key_context="psph 1 fabric key").digest()
            for secret in secrets
        ]

    def seal(self, message: Message) -> bytes:
        """The bytes of a message under the key."""
        kind = bytes((message.type,))
        body = msgspec.msgpack.encode(message)
        return kind + _mac(self._keys[0], kind + body) + body

    def mark(self, data: bytes) -> bytes:
        """A MAC for something that is no message."""
        return _mac(self._keys[0], data)

    def is_marked(self, data: bytes, mac: bytes) -> bool:
        """Whether a holder of one of the keys made it."""
        return any(compare_digest(_mac(key, data), mac) for key in self._keys)

    def open(self, sealed: bytes) -> Message:
        """The message, if the key is right and the bytes make sense."""
        if len(sealed) < SEAL:
            raise MalformedPacket(f"a control message has at least {SEAL} bytes")
        kind, mac, body = sealed[:1], sealed[1:SEAL], sealed[SEAL:]
        if not self.is_marked(kind + body, mac):
            raise WrongKey("the MAC is not by a key of this fabric")
        decoder = _DECODERS.get(kind[0])
        if decoder is None:
            raise MalformedPacket(f"there is no control message of type {kind[0]}")
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedPacket(f"type {kind[0]}: {error}") from error


def _mac(key: bytes, data: bytes) -> bytes:
    return blake3(data, key=key).digest(length=MAC)


def pieces(keys: FabricKeys, message: Message, name: bytes, room: int) -> Iterator[bytes]:
    """The sealed message, or its sealed fragments where it needs more than `room` bytes.

    `name` is eight bytes that tell this message's fragments from those of others.
    """
    sealed = keys.seal(message)
    if len(sealed) <= room:
        yield sealed
        return
    size = room - SEAL - 32  # what the fragment's own fields need at most
    count = -(-len(sealed) // size)
    if len(sealed) > LONGEST or count > 256:
        raise ValueError(f"a control message of {len(sealed)} bytes is too long")
    for index in range(count):
        piece = sealed[index * size : (index + 1) * size]
        yield keys.seal(Fragment(name, index, count, piece))


class Reassembly:
    """Puts fragments together; holds a bounded number of unfinished messages."""

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._parts: OrderedDict[tuple[str, bytes], dict[int, bytes]] = OrderedDict()

    def add(self, source: str, fragment: Fragment) -> bytes | None:
        """Take a fragment from that source; the sealed message once it is complete."""
        key = (source, fragment.message)
        parts = self._parts.setdefault(key, {})
        self._parts.move_to_end(key)
        if fragment.index < fragment.count:
            parts[fragment.index] = fragment.piece
        if len(parts) == fragment.count:
            del self._parts[key]
            return b"".join(parts[index] for index in sorted(parts))
        if sum(map(len, parts.values())) > LONGEST:
            del self._parts[key]
        elif len(self._parts) > self._most:
            self._parts.popitem(last=False)
        return None
