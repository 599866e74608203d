"""The name server on its sockets: UDP and TCP under asyncio, with limits on what strangers use."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import dns.rcode

from bootstrap.server.authority import Authority, Reply, Update, rcode_text
from bootstrap.server.connections import Connections
from bootstrap.server.keeping import Keeper, KeepingError
from bootstrap.server.rates import AnswerRate, Verdict
from bootstrap.server.reading import Malformed
from bootstrap.server.settings import ServerSettings
from bootstrap.server.updating import Denied
from bootstrap.server.zone import Zone, origin_of
from traces import LogEvent

_log = logging.getLogger(__name__)

_LONGEST_LINE = 1_000
_REFUSALS_LOGGED = 5
"""Lines a second about what strangers were refused."""
_TRIES = 20
_RECEIVE_BUFFER = 1 << 20
"""Bytes of questions that may wait while an answer is made."""

COUNTED = tuple(
    (kind, answer)
    for kind, answers in {
        "question": "NOERROR NXDOMAIN REFUSED FORMERR SERVFAIL NOTIMP NOTAUTH truncate drop",
        "update": "NOERROR REFUSED FORMERR SERVFAIL NOTAUTH NOTZONE NXDOMAIN NXRRSET YXDOMAIN"
        " YXRRSET dropped",
        "transfer": "NOERROR REFUSED NOTAUTH FORMERR",
        "other": "dropped fault",
    }.items()
    for answer in answers.split()
)
"""Counted from 0; other rcodes from their first time."""


class NameServer:
    """`async with NameServer(settings, file)`: serves from the first line of the block to its end.

    Raises KeepingError, BadZone or OSError when it cannot begin.
    """

    def __init__(self, settings: ServerSettings, path: Path) -> None:
        self._settings = settings
        self._path = path
        self._keeper: Keeper
        self._authority: Authority
        self._stack = AsyncExitStack()
        self._writing = asyncio.Lock()
        self._waiting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._rate = AnswerRate(settings.limits.answers_per_second, settings.limits.unlimited)
        self._refusals: tuple[int, int] = (0, 0)
        self.connections = Connections(settings.limits, self.respond)
        self.addresses: list[tuple[str, int]] = []
        """Where it listens, with the ports that the system chose."""
        self.counters = Counter(dict.fromkeys(COUNTED, 0))
        """Replies by what was asked (question, update, transfer, other) and rcode."""
        self.serving = False

    @property
    def address(self) -> tuple[str, int]:
        """The first address it listens on."""
        return self.addresses[0]

    def zones(self) -> list[Zone]:
        """The latest version of each zone."""
        return [hosted.zone for hosted in self._authority.hosted.values()]

    async def __aenter__(self) -> NameServer:
        async with AsyncExitStack() as stack:
            self._keeper = Keeper(self._path)
            stack.callback(self._keeper.close)
            zones = [
                self._keeper.open(origin_of(each.origin), each.records)
                for each in self._settings.zones
            ]
            self._authority = Authority(self._settings, zones)
            stack.push_async_callback(self._finish_updates)
            for host, port in self._settings.listen:
                self.addresses.append(await self._listen(stack, host, port))
            self._stack = stack.pop_all()
        where = ", ".join(_shown(address) for address in self.addresses)
        for zone in zones:
            _log.info(
                LogEvent(
                    "zone.served", zone=zone.origin.to_text(True), serial=zone.serial, address=where
                )
            )
        self.serving = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.serving = False
        await self._stack.aclose()

    async def _finish_updates(self) -> None:
        """What is being written is written."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _listen(self, stack: AsyncExitStack, host: str, port: int) -> tuple[str, int]:
        """UDP and TCP on one port; where the system chooses it, one that is free for both."""
        loop = asyncio.get_running_loop()
        for attempt in range(_TRIES):
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self), sock=await _udp_socket(host, port)
            )
            bound_host, bound_port = transport.get_extra_info("sockname")[:2]
            try:
                server = await asyncio.start_server(
                    self.connections.serve, host, bound_port, limit=1 << 16, backlog=64
                )
            except OSError as failure:
                transport.close()
                if port or failure.errno != errno.EADDRINUSE or attempt == _TRIES - 1:
                    raise
                continue
            stack.callback(transport.close)
            stack.push_async_callback(self.connections.close, server)
            return bound_host, bound_port
        raise AssertionError("the last attempt raised")

    def datagram(self, wire: bytes, peer: tuple[Any, ...], datagrams: _Datagrams) -> None:
        """A message over UDP."""
        try:
            received = self._authority.receive(wire, tcp=False, now=time.time())
        except Exception:
            self._fault(peer)
            return
        if received is None:
            self.counters["other", "dropped"] += 1
        elif isinstance(received, Update):
            task = asyncio.get_running_loop().create_task(
                self._update_datagram(received, peer, datagrams)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._send_limited(received, wire, peer, datagrams)

    def _send_limited(
        self, reply: Reply, wire: bytes, peer: tuple[Any, ...], datagrams: _Datagrams
    ) -> None:
        """A signature proves that the address is no lie; without one, only so many answers."""
        (message,) = reply.messages
        verdict = Verdict.ANSWER
        if not reply.signed or reply.rcode == dns.rcode.NOTAUTH:
            verdict = self._rate.ask(peer[0], time.monotonic())
        if verdict is Verdict.ANSWER:
            self._count(reply, peer)
            datagrams.send(message, peer)
            return
        self.counters["question", verdict.value] += 1
        short = self._authority.truncated(wire)
        if verdict is Verdict.TRUNCATE and short is not None:
            datagrams.send(short, peer)

    async def _update_datagram(
        self, update: Update, peer: tuple[Any, ...], datagrams: _Datagrams
    ) -> None:
        message = await self._update(update, peer)
        if message is not None:
            datagrams.send(message, peer)

    async def respond(self, wire: bytes, peer: tuple[Any, ...]) -> Reply | None:
        """What a message over TCP is answered."""
        try:
            received = self._authority.receive(wire, tcp=True, now=time.time())
        except Exception:
            self._fault(peer)
            return None
        if isinstance(received, Update):
            # The connection may go while it is being written; that must not stop the writing.
            task = asyncio.get_running_loop().create_task(self._update(received, peer))
            keeping: asyncio.Task[Any] = task
            self._tasks.add(keeping)
            keeping.add_done_callback(self._tasks.discard)
            message = await asyncio.shield(task)
            return None if message is None else Reply([message], 0, "update")
        if received is not None:
            self._count(received, peer)
        return received

    async def _update(self, update: Update, peer: tuple[Any, ...]) -> bytes | None:
        """Decide, keep, adopt, and only then acknowledge; one after the other."""
        if self._waiting >= self._settings.limits.waiting_updates:
            self.counters["update", "dropped"] += 1
            return None
        self._waiting += 1
        try:
            async with self._writing:
                rcode, said = await self._perform(update)
        except Exception:
            self._fault(peer)
            rcode, said = dns.rcode.SERVFAIL, "a fault of the server"
        finally:
            self._waiting -= 1
        self.counters["update", rcode_text(rcode)] += 1
        zone = update.origin.to_text(True)
        shown = said if len(said) <= _LONGEST_LINE else said[:_LONGEST_LINE] + "..."
        _log.info(
            LogEvent("update.answered", zone=zone, key=update.key, client=_shown(peer), what=shown)
        )
        return self._authority.acknowledge(update, rcode)

    async def _perform(self, update: Update) -> tuple[int, str]:
        try:
            change = self._authority.decide(update)
        except Denied as denied:
            return denied.rcode, f"{rcode_text(denied.rcode)}, {denied}"
        except Malformed as malformed:
            return dns.rcode.FORMERR, f"FORMERR, {malformed}"
        if change is None:
            return dns.rcode.NOERROR, "nothing to change"
        try:
            await asyncio.to_thread(self._keeper.keep, change)
        except KeepingError as error:
            _log.error(LogEvent("zones.not_kept", reason=error))
            return dns.rcode.SERVFAIL, "SERVFAIL, it could not be kept"
        self._authority.adopt(change)
        return dns.rcode.NOERROR, f"serial {change.after.serial}: {', '.join(change.done)}"

    def _count(self, reply: Reply, peer: tuple[Any, ...]) -> None:
        self.counters[reply.kind, rcode_text(reply.rcode)] += 1
        if not reply.said:
            return
        if not reply.rcode:
            _log.info(LogEvent("request.answered", client=_shown(peer), what=reply.said))
            return
        # Anybody can be refused as often as he likes, and must not fill the disk with it.
        second, logged = self._refusals
        now = int(time.monotonic())
        logged = 0 if second != now else logged
        self._refusals = (now, logged + 1)
        if logged < _REFUSALS_LOGGED:
            _log.warning(LogEvent("request.refused", client=_shown(peer), what=reply.said))

    def _fault(self, peer: tuple[Any, ...]) -> None:
        self.counters["other", "fault"] += 1
        _log.exception(LogEvent("server.failed", client=_shown(peer)))


class _Datagrams(asyncio.DatagramProtocol):
    """The UDP socket."""

    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport
        self._paused = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._server.datagram(data, addr, self)

    def error_received(self, exc: Exception) -> None:
        """A client that is gone; nothing to do about it."""

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False

    def send(self, message: bytes, peer: tuple[Any, ...]) -> None:
        """What the socket does not take is lost, as anything over UDP may be."""
        if not self._paused and not self._transport.is_closing():
            with suppress(OSError):
                self._transport.sendto(message, peer)


async def _udp_socket(host: str, port: int) -> socket.socket:
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = infos[0]
    udp = socket.socket(family, kind, protocol)
    try:
        if family == socket.AF_INET6:
            # As asyncio does for TCP, so that [::] and 0.0.0.0 can stand beside each other.
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        udp.setblocking(False)
        udp.bind(address)
    except OSError:
        udp.close()
        raise
    return udp


def _shown(peer: tuple[Any, ...]) -> str:
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
