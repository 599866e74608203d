"""The protocol: numbered messages, cumulative acknowledgements, go-back-N.

To each neighbour runs one stream of messages, numbered from 1:

    sender                                         receiver
    post: write message and number; when durable
      -- MESSAGE n, payload -------------------->  n == accepted + 1: write the effect and
                                                   the cursor in one batch; when durable
      <------------------------ ACKNOWLEDGE n ---
    delete messages up to n                        n <= accepted: acknowledge again
    nothing heard for a while: send the window     n >  accepted + 1: ignore
    again, at growing intervals

Both ends may crash at any point. Nothing is lost, because a message is accepted from its
poster only when it is durable, and deleted only when the receiver's cursor is; nothing is
doubled, because cursor and effect become durable together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct

from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Changes, Environment, Timer

WINDOW = 8
"""Messages on their way to one neighbour at a time."""
OUTBOX = 1_000
"""Messages that may wait for one neighbour; one more is refused."""
RETRY_FIRST = 100 * MILLISECOND
RETRY_MOST = 1_600 * MILLISECOND

_HEADER = Struct(">cQ")
_NUMBER = Struct(">Q")
_MESSAGE = b"M"
_ACKNOWLEDGE = b"A"

Deliver = Callable[[str, int, bytes], Changes]
"""Called with link, number and payload; returns the effect to make durable with the cursor.

A crash before that moment undoes the effect and the message is delivered again, so an
application keeps nothing of it anywhere else.
"""


class OutboxFull(Exception):
    """The neighbour has not taken its messages for too long; try again later."""


@dataclass(slots=True)
class Outgoing:
    """The stream to one neighbour."""

    next_number: int = 1
    waiting: dict[int, bytes] = field(default_factory=dict)
    """Durable and not yet acknowledged, in the order of their numbers."""
    writing: int = 0
    """Posted but not durable yet."""
    sent: int = 0
    """The highest number sent since the last time-out."""
    timer: Timer | None = None
    retry: int = RETRY_FIRST


@dataclass(slots=True)
class Incoming:
    """The stream from one neighbour."""

    accepted: int = 0
    durable: int = 0


class Courier:
    """A core (see `runtime.environment`) for any number of neighbours."""

    def __init__(self, env: Environment, deliver: Deliver) -> None:
        self.env = env
        self.deliver = deliver
        self.outgoing: dict[str, Outgoing] = {}
        self.incoming: dict[str, Incoming] = {}
        self.counters = {"sent": 0, "repeated": 0, "delivered": 0, "ignored": 0, "malformed": 0}

    # The core's side

    def start(self) -> None:
        for link in self.env.links:
            self._restore_outgoing(link)
            self._restore_incoming(link)
            self._transmit(link)

    def receive(self, link: str, packet: bytes) -> None:
        if len(packet) < _HEADER.size or link not in self.incoming:
            self.counters["malformed"] += 1
            return
        kind, number = _HEADER.unpack_from(packet)
        if kind == _MESSAGE:
            self._on_message(link, number, packet[_HEADER.size :])
        elif kind == _ACKNOWLEDGE and len(packet) == _HEADER.size:
            self._on_acknowledge(link, number)
        else:
            self.counters["malformed"] += 1

    def stop(self) -> None:
        for stream in self.outgoing.values():
            self._disarm(stream)

    # Sending

    def post(self, link: str, payload: bytes, accepted: Callable[[int], None] | None = None) -> int:
        """Send a message; `accepted` is called with its number once it cannot be lost."""
        stream = self.outgoing[link]
        if len(stream.waiting) + stream.writing >= OUTBOX:
            raise OutboxFull(f"{OUTBOX} messages wait for {link}: try again when it answers")
        if len(payload) > self.env.links[link].mtu - _HEADER.size:
            raise ValueError(f"a message to {link} has at most {self.env.links[link].mtu} bytes")
        number = stream.next_number
        stream.next_number += 1
        stream.writing += 1

        def durable() -> None:
            stream.writing -= 1
            stream.waiting[number] = payload
            if accepted is not None:
                accepted(number)
            self._transmit(link)

        self.env.storage.write(self._posted(link, number, payload), durable)
        return number

    def _on_acknowledge(self, link: str, number: int) -> None:
        stream = self.outgoing[link]
        done = [n for n in stream.waiting if n <= number]
        if not done:
            return
        for n in done:
            del stream.waiting[n]
        self.env.storage.write({_message_key(link, n): None for n in done})
        stream.retry = RETRY_FIRST
        self._disarm(stream)
        self._transmit(link)

    def _transmit(self, link: str) -> None:
        """Send what the window allows and has not been sent since the last time-out."""
        stream = self.outgoing[link]
        for number, payload in islice(stream.waiting.items(), WINDOW):
            if number > stream.sent:
                stream.sent = number
                self.counters["sent"] += 1
                self.env.links[link].send(_HEADER.pack(_MESSAGE, number) + payload)
        self._arm(link)

    def _arm(self, link: str) -> None:
        stream = self.outgoing[link]
        if stream.timer is None and stream.waiting:
            # Jitter keeps neighbours that lost each other from repeating in step for ever.
            delay = stream.retry + self.env.random.randrange(stream.retry // 4)
            stream.timer = self.env.call_later(delay, self._repeat, link)

    def _repeat(self, link: str) -> None:
        stream = self.outgoing[link]
        stream.timer = None
        stream.retry = min(2 * stream.retry, RETRY_MOST)
        stream.sent = 0
        self.counters["repeated"] += min(WINDOW, len(stream.waiting))
        self._transmit(link)

    def _disarm(self, stream: Outgoing) -> None:
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    # Receiving

    def _on_message(self, link: str, number: int, payload: bytes) -> None:
        stream = self.incoming[link]
        if number == stream.accepted + 1:
            stream.accepted = number
            self.counters["delivered"] += 1

            def durable() -> None:
                stream.durable = number
                self._acknowledge(link, number)

            effect = self.deliver(link, number, payload)
            self.env.storage.write({**effect, _cursor_key(link): _NUMBER.pack(number)}, durable)
        elif number <= stream.durable:
            self._acknowledge(link, stream.durable)
        else:
            self.counters["ignored"] += 1

    def _acknowledge(self, link: str, number: int) -> None:
        self.env.links[link].send(_HEADER.pack(_ACKNOWLEDGE, number))

    # Durable state

    def _posted(self, link: str, number: int, payload: bytes) -> Changes:
        # The next number outlives its messages: they are deleted, it must never run back.
        return {_message_key(link, number): payload, _next_key(link): _NUMBER.pack(number + 1)}

    def _restore_outgoing(self, link: str) -> None:
        stream = self.outgoing[link] = Outgoing()
        next_number = self.env.storage.get(_next_key(link))
        if next_number is not None:
            (stream.next_number,) = _NUMBER.unpack(next_number)
        prefix = _message_key(link)
        for key, payload in self.env.storage.scan(prefix):
            stream.waiting[_NUMBER.unpack(key[len(prefix) :])[0]] = payload

    def _restore_incoming(self, link: str) -> None:
        cursor = self.env.storage.get(_cursor_key(link))
        number = 0 if cursor is None else _NUMBER.unpack(cursor)[0]
        self.incoming[link] = Incoming(accepted=number, durable=number)


def _message_key(link: str, number: int | None = None) -> bytes:
    # The length in front keeps link "a" from finding the messages of link "ab".
    name = link.encode()
    prefix = b"message " + _NUMBER.pack(len(name)) + name
    return prefix if number is None else prefix + _NUMBER.pack(number)


def _next_key(link: str) -> bytes:
    return b"next " + link.encode()


def _cursor_key(link: str) -> bytes:
    return b"cursor " + link.encode()
