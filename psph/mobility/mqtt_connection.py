"""A connection to an MQTT 5 broker on the event loop. Knows nothing of mobility.

It is paho's client, driven by asyncio: what it calls back, it calls from the loop. What is asked
for before the broker has answered waits until it has.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

KEEP_ALIVE = 20
AT_A_TIME = 100
"""Packets that are read before others get their turn."""

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Received:
    """A message."""

    topic: str
    body: bytes
    pairs: dict[str, str]
    """Its user properties."""
    answer: str
    """The topic for answers, if there is one."""
    retained: bool
    """It was there before the subscription."""
    again: bool
    """It may have come before, under the same packet id."""
    packet: int
    qos: int


class Connection:
    """One connection, from its making until it is lost or closed."""

    def __init__(
        self,
        place: str,
        name: str,
        heard: Callable[[Connection, Received], None],
        lost: Callable[[], None],
        keep: int = 0,
    ) -> None:
        """`place` is HOST:PORT. The broker keeps the session of that name for `keep` seconds.

        Nothing is lost then while this side is gone: a message counts once it was acknowledged.
        """
        self.open = True
        """Neither lost nor closed."""
        self._heard = heard
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._ready = False
        self._waiting: list[Callable[[], None]] = []
        self._subscribed: dict[int, Callable[[], None]] = {}
        self._taken: dict[int, Callable[[], None]] = {}
        client = self._client = Client(
            CallbackAPIVersion.VERSION2, name, protocol=MQTTv5, manual_ack=True
        )
        client.max_queued_messages_set(0)
        client.on_connect = self._on_connect
        client.on_disconnect = lambda *about: self._later(self._end)
        client.on_message = self._on_message
        client.on_subscribe = lambda client, data, mid, codes, more: self._done(
            self._subscribed, mid
        )
        client.on_publish = lambda client, data, mid, code, more: self._done(self._taken, mid)
        client.on_socket_open = self._on_socket
        client.on_socket_close = lambda client, data, sock: self._forget(sock)
        client.on_socket_register_write = lambda client, data, sock: self._later(self._writes, sock)
        client.on_socket_unregister_write = lambda client, data, sock: self._writes_no_more(sock)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = keep
        host, _, port = place.rpartition(":")

        def connect() -> None:
            """May take as long as the network likes, so it has a thread."""
            try:
                client.connect(
                    host.strip("[]"),
                    int(port),
                    KEEP_ALIVE,
                    clean_start=not keep,
                    properties=properties,
                )
            except (OSError, ValueError):
                self._later(self._end)

        self._loop.run_in_executor(None, connect)

    # What may be asked

    def subscribe(self, topics: list[str], done: Callable[[], None], retained: bool = True) -> None:
        """`retained`: begin with what the broker retains."""
        handling = (
            SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if retained
            else SubscribeOptions.RETAIN_DO_NOT_SEND
        )

        def ask() -> None:
            options = SubscribeOptions(qos=1, retainHandling=handling)
            _, mid = self._client.subscribe([(topic, options) for topic in topics])
            if mid is not None:
                self._subscribed[mid] = done

        self._do(ask)

    def unsubscribe(self, topic: str) -> None:
        self._do(lambda: self._client.unsubscribe(topic) and None)

    def publish(
        self,
        topic: str,
        body: bytes,
        pairs: Pairs = (),
        *,
        qos: int = 1,
        retain: bool = False,
        answer: str = "",
        done: Callable[[], None] | None = None,
    ) -> None:
        """`pairs` are user properties; `answer` is the topic for answers."""

        def ask() -> None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            if pairs:
                properties.UserProperty = list(pairs)
            if answer:
                properties.ResponseTopic = answer
            info = self._client.publish(topic, body, qos, retain, properties)
            if done is not None:
                self._taken[info.mid] = done

        self._do(ask)

    def acknowledge(self, message: Received) -> None:
        """That message need not be kept for us any more."""
        if self.open:
            self._client.ack(message.packet, message.qos)

    def close(self) -> None:
        """Leave; nothing is called back from now on."""
        self.open = False
        self._client.disconnect()

    # What paho calls

    def _on_connect(
        self, client: Client, data: object, flags: object, code: ReasonCode, more: object
    ) -> None:
        if code.is_failure:
            self._end()
            return
        self._ready = True
        waiting, self._waiting = self._waiting, []
        for ask in waiting:
            ask()

    def _on_message(self, client: Client, data: object, message: MQTTMessage) -> None:
        about = message.properties
        received = Received(
            message.topic,
            bytes(message.payload),
            dict(getattr(about, "UserProperty", ())),
            getattr(about, "ResponseTopic", ""),
            message.retain,
            message.dup,
            message.mid,
            message.qos,
        )
        self._heard(self, received)

    def _on_socket(self, client: Client, data: object, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._later(self._reads, sock)

    def _reads(self, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._loop.add_reader(sock, self._client.loop_read, AT_A_TIME)
            self._tick()
            if not self.open:
                self._client.disconnect()

    def _writes(self, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._loop.add_writer(sock, self._client.loop_write)

    def _writes_no_more(self, sock: Any) -> None:
        self._loop.remove_writer(sock)

    def _forget(self, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)

    def _tick(self) -> None:
        """Keep the connection alive."""
        if self._client.socket() is not None and not self._loop.is_closed():
            self._client.loop_misc()
            self._loop.call_later(1, self._tick)

    def _done(self, asked: dict[int, Callable[[], None]], mid: int) -> None:
        done = asked.pop(mid, None)
        if done is not None and self.open:
            done()

    def _do(self, ask: Callable[[], None]) -> None:
        if self._ready:
            ask()
        else:
            self._waiting.append(ask)

    def _end(self) -> None:
        if self.open:
            self.open = False
            self._lost()

    def _later(self, callback: Callable[..., None], *args: object) -> None:
        """paho may be in the thread that connects, or in the middle of something."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *args)
