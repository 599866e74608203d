"""The fabric for applications under asyncio: publish, subscribe, wait.

`FabricClient` is a thin layer over the core `psirp_sim.client`, which does the work. It adds what
only a program with tasks can have: waiting (for a version to be kept, for room, for listeners),
iterators and context managers, and an end. docs/client.md says how to use it.
"""

# A time limit is part of what these promise.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, overload

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import (
    InvalidTopic,
    Position,
    PublisherId,
    RendezvousId,
    ScopeId,
    Topic,
    identify,
)
from psirp_sim.node import FabricNode
from psirp_sim.publications.events import Update
from psirp_sim.rendezvous.server import ROLE as RENDEZVOUS
from psirp_sim.runtime.accepting import link_name
from psirp_sim.runtime.client_errors import (
    FabricError,
    NotAnItem,
    NotAttached,
    NotDrained,
    NothingPublished,
    Refused,
)
from psirp_sim.runtime.outbox import Offering, Outbox
from psirp_sim.runtime.udp import Address, UdpNode
from psirp_sim.runtime.updates import Listener, Updates
from psirp_sim.runtime.waiting import Waiting
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Access
from psirp_sim.wire.sealing import FabricKeys
from traces import LogEvent, TraceSink

Sid = ScopeId | bytes
Rid = RendezvousId | bytes

_PASS: Final = (
    "pass a Topic, a URL such as http://news.example.com/feed.xml, or a scope id and a rendezvous"
    " id, 32 bytes each (ScopeId.parse and RendezvousId.parse read them from text)"
)

_log = logging.getLogger(__name__)


class FabricClient:
    """What an application uses of a node.

    >>> async with FabricClient.connect("alice", servers=[...], keys=..., link_seed=...) as fabric:
    ...     await fabric.publish("http://news.example.com/feed.xml", b"content")

    An item is named by a Topic, by the URL of one, or by a scope id and a rendezvous id; whatever
    else is given for it raises `NotAnItem`.
    """

    def __init__(self, node: FabricNode, *, closing: float = 1.0) -> None:
        """Use a node that runs under asyncio. Closing the client does not stop the node.

        When the client closes, it waits `closing` seconds at most for listeners that have not
        got everything.
        """
        self.node = node
        self._patience = closing
        self._closing = False
        self._waiting = Waiting(node.env.node)
        self._outbox: Outbox | None = None
        self._updates: dict[Updates, None] = {}

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        name: str,
        *,
        servers: Sequence[Address] = (),
        links: Mapping[str, Address] | None = None,
        keys: FabricKeys | str | None = None,
        link_seed: bytes | str | None = None,
        settings: FabricSettings | None = None,
        listen: Address | None = None,
        storage: Path | None = None,
        power_safe: bool = False,
        domain: str = "",
        roles: Sequence[str] = (),
        trace: TraceSink | None = None,
        accelerate: bool | None = None,
        timeout: float = 10.0,
        closing: float = 1.0,
    ) -> AsyncIterator[Self]:
        """A node of this process's own, and its client once it has found the fabric.

        `servers` are addresses of nodes that accept links; `links` names neighbours that have a
        link to us. Keys and seed are the fabric's; `settings` say the same and more. What is
        durable is kept in the file `storage`, with `power_safe` synced to the disk. Raises
        `NotAttached` after `timeout` seconds.
        """
        settings = settings or _settings(keys, link_seed)
        ways = {link_name("rv", *server): server for server in servers} | dict(links or {})
        if listen is None:
            listen = ("::" if any(":" in host for host, _ in ways.values()) else "0.0.0.0", 0)
        own = UdpNode(name, listen, storage=storage, trace=trace, accelerate=accelerate)
        own.power_safe = power_safe
        async with own as env:
            for link, address in ways.items():
                env.add_link(link, address)
            node = env.run(lambda env: FabricNode(env, settings, roles=roles, domain=domain))
            assert isinstance(node, FabricNode)
            async with cls(node, closing=closing) as fabric:
                await fabric.attached(timeout)
                yield fabric

    # Life

    async def __aenter__(self) -> Self:
        await self._waiting.until(lambda: self.node.begun, None)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def attached(self, timeout: float | None = 10.0) -> None:
        """Until the node knows a way to a rendezvous server."""
        try:
            await self._waiting.until(self._is_attached, timeout)
        except TimeoutError:
            begun = f"{self.node.env.node} found no rendezvous server within {timeout:g} s"
            raise NotAttached(f"{begun}: {self._why_not_attached()}") from None

    def _is_attached(self) -> bool:
        node = self.node
        return node.begun and (
            node.server is not None
            or any(RENDEZVOUS in route.roles for route in node.attachment.routes.values())
        )

    def _why_not_attached(self) -> str:
        node = self.node
        if not node.env.links:
            return "it has no links; name servers"
        if not (node.begun and list(node.neighbours.up())):
            return (
                "no neighbour answered; check the addresses, that the servers accept links, and "
                "that keys and link_seed are the fabric's"
            )
        if not node.attachment.routes:
            return "neighbours answer, but no topology manager can be reached from them"
        return "neighbours answer, but no rendezvous server can be reached from them"

    async def close(self) -> None:
        """Wait a short while for listeners to have everything, and end all subscriptions.

        What was published stays with the node for as long as that runs. Closing twice is harmless.
        """
        if self._closing:
            return
        self._closing = True
        outbox = self._outbox
        try:
            if outbox is not None:
                outbox.closed = True
                await outbox.drained(self._patience)
        except (NotDrained, Refused) as error:
            _log.warning(LogEvent("node.close_failed", node=self.node.env.node, reason=error))
        finally:
            self._waiting.close()
            if outbox is not None:
                outbox.release()
            await asyncio.gather(*(each.close() for each in list(self._updates)))

    def _out(self) -> Outbox:
        """Everything that is done with the node begins here."""
        if self._closing:
            raise self._waiting.end()
        if self._outbox is None:
            if not self.node.begun:
                raise FabricError("the node has not begun: use `async with`, or await attached()")
            self._outbox = Outbox(self.node, self._waiting)
        return self._outbox

    # Publishing

    def offer(
        self,
        sid: Topic | str | Sid,
        rid: Rid | None = None,
        *,
        durable: bool = False,
        key: Ed25519PrivateKey | None = None,
        access: Access | None = None,
        publisher: PublisherId | None = None,
        epoch: int | None = None,
        latest: int = 0,
        guest: bool = False,
        timeout: float | None = 10.0,
    ) -> Offering:
        """Say that we publish an item, and how; `publish` alone does so with the defaults.

        Await it, and the item is offered until it is withdrawn; or use `async with`, and it is
        withdrawn at the end of the block, where a durable stream keeps what it has written down.
        Both wait for the rendezvous, and raise `Refused`, or `NotRegistered` when the time is up.

        A durable stream goes on where an earlier life of the node left it. Somebody who numbers
        versions elsewhere gives the `epoch` and the `latest` version before those that will be
        published here. `key` signs what is published. `access` are the rules of the scope, should
        nobody have made it yet.
        """
        outbox = self._out()
        offer = outbox.offer(
            _item(sid, rid),
            publisher=publisher,
            epoch=epoch,
            latest=latest,
            durable=durable,
            key=key,
            access=access,
            guest=guest,
        )
        return Offering(outbox, offer, durable=durable, timeout=timeout)

    @overload
    async def publish(
        self,
        topic: Topic | str,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
        /,
        *,
        position: Position | None = None,
        timeout: float | None = 30.0,
    ) -> Position: ...

    @overload
    async def publish(
        self,
        sid: Sid,
        rid: Rid,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
        /,
        *,
        position: Position | None = None,
        timeout: float | None = 30.0,
    ) -> Position: ...

    async def publish(
        self,
        *what: Any,
        position: Position | None = None,
        timeout: float | None = 30.0,
    ) -> Position:
        """The next version of an item: returns when it is kept and on its way.

        While too much of the stream waits to be sent, so does this, and raises `Congested` when
        the time is up. A `position` is given where somebody else has numbered the version.
        Cancelled while it waits for room, nothing is published; later, the version is.
        Published by its topic, a version says in its metadata which that is.
        """
        named = 1 if what and isinstance(what[0], Topic | str) else 2
        item = _item(*what[:named])
        match what[named:]:
            case [bytes() as data]:
                metadata = None
            case [bytes() as data, metadata]:
                pass
            case _:
                raise NotAnItem(f"the content is missing, or is not bytes: {_PASS}, then bytes")
        if named == 1:
            metadata = {"topic": _topic(what[0]).canonical, **(metadata or {})}
        return await self._out().publish(item, data, metadata, position, timeout)

    async def withdraw(self, sid: Topic | str | Sid, rid: Rid | None = None) -> None:
        """Publish an item no longer, once its listeners have everything or time is up.

        What a durable stream has kept is given up. An item that is not offered is no error.
        """
        await self._out().withdraw(_item(sid, rid))

    async def drained(self, timeout: float | None = 30.0) -> None:
        """Until all listeners have all that was published here.

        Raises `NotDrained` when the time is up, `Refused` where an item may not be published.
        """
        await self._out().drained(timeout)

    # Subscribing

    def subscribe(
        self,
        sid: Topic | str | Sid,
        rid: Rid | None = None,
        listener: Listener | None = None,
        *,
        after: Position | Iterable[tuple[Rid, Position]] | None = None,
        durable: str | None = None,
        name: str | None = None,
        key: Ed25519PrivateKey | None = None,
        guest: bool = False,
    ) -> Updates:
        """Listen to an item, or to all of a scope when only its id is given.

        A listener, which may be async, gets one event after the other; without one the result is
        an async context manager and iterator. It begins with the latest version there is; `after`
        a Position (in a scope: items and Positions) it goes on from there. A `durable`
        subscription, known by that name, goes on where an earlier life of the node was done.
        """
        self._out()
        whole_scope = not rid and isinstance(sid, ScopeId | bytes)
        updates = Updates(
            self.node.client,
            *((_raw(ScopeId, sid), b"") if whole_scope else _item(sid, rid)),
            listener,
            after=_places(after),
            durable=durable,
            name=name,
            key=key,
            guest=guest,
            closing=self._patience,
            closed=lambda updates: self._updates.pop(updates, None),
        )
        self._updates[updates] = None
        return updates

    async def unsubscribe(self, updates: Updates) -> None:
        """Listen no longer."""
        await updates.close()

    async def subscribe_sync(
        self, sid: Topic | str | Sid, rid: Rid | None = None, timeout: float | None = 10.0
    ) -> Update:
        """The latest version of an item, or the first one that comes.

        Raises `NothingPublished` when the time is up, `Refused` where we may not listen.
        """
        try:
            async with self.subscribe(sid, rid) as updates, asyncio.timeout(timeout):
                async for event in updates:
                    if isinstance(event, Update):
                        return event
        except TimeoutError:
            raise NothingPublished(
                f"no version of the item came within {timeout:g} s: check its ids, and that "
                "somebody publishes it"
            ) from None
        raise self._waiting.end()


def _item(sid: object = None, rid: object = None) -> tuple[bytes, bytes]:
    """The ids of what a caller named."""
    if not isinstance(sid, Topic | str):
        return _raw(ScopeId, sid), _raw(RendezvousId, rid)
    if rid:
        raise NotAnItem(f"a topic has its rendezvous id, and another was given: {_PASS}")
    topic = _topic(sid)
    return topic.sid.raw, topic.rid.raw


def _topic(named: Topic | str) -> Topic:
    if isinstance(named, Topic):
        return named
    try:
        return identify(named)
    except InvalidTopic as error:
        raise NotAnItem(f"{named[:80]!r} is not a topic ({error}): {_PASS}") from None


def _raw(kind: type[ScopeId | RendezvousId], given: object) -> bytes:
    """InvalidId where it is of another length."""
    if isinstance(given, kind):
        return given.raw
    if isinstance(given, bytes):
        return kind(given).raw
    raise NotAnItem(f"{given!r:.80} is not a {kind.__name__}: {_PASS}")


def _places(
    after: Position | Iterable[tuple[Rid, Position]] | None,
) -> Position | list[tuple[bytes, Position]] | None:
    if after is None or isinstance(after, Position):
        return after
    return [(_raw(RendezvousId, rid), position) for rid, position in after]


def _settings(keys: FabricKeys | str | None, link_seed: bytes | str | None) -> FabricSettings:
    if keys is None or link_seed is None:
        raise ValueError("name keys and link_seed of the fabric, or give its settings")
    return FabricSettings(
        keys=FabricKeys(keys) if isinstance(keys, str) else keys,
        link_seed=link_seed.encode() if isinstance(link_seed, str) else link_seed,
    )
