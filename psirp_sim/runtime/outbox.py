"""Publishing under asyncio: offers, versions that wait for room, listeners that are waited for."""

# A time limit is part of what these promise.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position, PublisherId
from psirp_sim.client import Client
from psirp_sim.node import FabricNode
from psirp_sim.publications.offer import Offer
from psirp_sim.runtime.client_errors import (
    Congested,
    FabricError,
    NotDrained,
    NotRegistered,
    Refused,
)
from psirp_sim.runtime.waiting import Waiting, tell
from psirp_sim.wire.rendezvous import FINAL, Access, Code

Item = tuple[bytes, bytes]

AT_ONCE = 32
"""Versions published before the event loop gets its turn."""
SHARE = 8
"""The part of a stream's history that may wait to be sent before publishers wait."""
INTRODUCTION = 0.05
"""Seconds from the registration of an offer until those who listen already are known."""


class Outbox:
    """What an application publishes at one node."""

    def __init__(self, node: FabricNode, waiting: Waiting) -> None:
        self._env = node.env
        self._limits = node.settings.publications
        self._core: Client = node.client
        self._waiting = waiting
        self.closed = False
        """Whether nothing is published any more."""
        self._turns: WeakValueDictionary[Item, asyncio.Lock] = WeakValueDictionary()
        """Publishers of one item that wait go on in the order they came."""
        self._introduced: WeakKeyDictionary[Offer, float] = WeakKeyDictionary()
        """When those who listen to a new offer are known."""
        self._published = 0
        before = self._moved_before = self._core.publisher.moved

        def moved(offer: Offer) -> None:
            before(offer)
            waiting.look_again()

        self._core.publisher.moved = self._moved = moved

    def release(self) -> None:
        """Let go of the core."""
        if self._core.publisher.moved is self._moved:
            self._core.publisher.moved = self._moved_before

    def _check(self) -> None:
        if self.closed:
            raise self._waiting.end()

    # Offers

    def offer(
        self,
        item: Item,
        *,
        publisher: PublisherId | None = None,
        epoch: int | None = None,
        latest: int = 0,
        durable: bool = False,
        key: Ed25519PrivateKey | None = None,
        access: Access | None = None,
        guest: bool = False,
    ) -> Offer:
        """One that is new, or, where nothing special is wanted, the one that is there."""
        self._check()
        offer = self._core.offers.get(item)
        special = durable or key or access or publisher or guest or epoch is not None
        if offer is None or special:
            offer = self._core.offer(
                *item,
                publisher=publisher,
                epoch=epoch,
                latest=latest,
                durable=durable,
                key=key,
                access=access,
                guest=guest,
            )
            offer.done.append(partial(self._registered, offer))
        return offer

    def _registered(self, offer: Offer, code: Code) -> None:
        self._introduced[offer] = asyncio.get_running_loop().time() + INTRODUCTION
        self._waiting.look_again()

    async def until_registered(self, offer: Offer, timeout: float | None) -> None:
        """Until a rendezvous server has taken, or refused, the offer."""
        try:
            await self._waiting.until(
                lambda: offer.registered is not None or not self._stands(offer), timeout
            )
        except TimeoutError:
            raise NotRegistered(
                f"no rendezvous server took the offer within {timeout:g} s: it stands, and what "
                "is published is kept and sent when one does"
            ) from None
        if not self._stands(offer):
            raise FabricError("the item was withdrawn meanwhile: offer it again")
        check_allowed(offer)

    def _stands(self, offer: Offer) -> bool:
        return self._core.offers.get((offer.sid, offer.rid)) is offer

    def begin_to_withdraw(
        self, item: Item, done: Callable[[Code], None], *, keep: bool = False
    ) -> None:
        """The core waits for listeners by itself."""
        self._core.withdraw(*item, done, keep=keep)

    async def withdraw(self, item: Item, *, keep: bool = False) -> None:
        """Until it is done; what a durable stream has written down may be kept."""
        self._check()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin_to_withdraw(item, lambda code: tell(gone), keep=keep)
        await self._waiting.wait(gone)

    # Versions

    async def publish(
        self,
        item: Item,
        data: bytes,
        metadata: Mapping[str, str] | None,
        position: Position | None,
        timeout: float | None,
    ) -> Position:
        """When there is room; until it is kept."""
        self._check()
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        publish = partial(self._publish, item, data, metadata, position, partial(tell, kept))
        if item not in self._turns and not self._is_congested(item):
            position = publish()
        else:
            turn = self._turns.setdefault(item, asyncio.Lock())
            try:
                async with asyncio.timeout(timeout), turn:
                    await self._waiting.until(lambda: not self._is_congested(item), None)
                    position = publish()
            except TimeoutError:
                raise Congested(
                    f"too much of the stream still waits to be sent after {timeout:g} s: publish "
                    "less, or again later"
                ) from None
        if not kept.done():
            await self._waiting.wait(kept)
        self._published += 1
        if self._published % AT_ONCE == 0:
            await asyncio.sleep(0)
        return position

    def _publish(
        self,
        item: Item,
        data: bytes,
        metadata: Mapping[str, str] | None,
        position: Position | None,
        done: Callable[[], None],
    ) -> Position:
        if item not in self._core.offers and position is not None:
            # Somebody else numbers the stream: it begins where this version belongs.
            publisher, epoch = position.publisher, position.epoch
            self.offer(item, publisher=publisher, epoch=epoch, latest=position.version - 1)
        check_allowed(self.offer(item))
        return self._core.publish(*item, data, metadata, position=position, done=done)

    def _is_congested(self, item: Item) -> bool:
        """Whether more waits to be sent than should."""
        self._check()
        offer = self._core.offers.get(item)
        if offer is None or offer.sending.backlog <= 1:
            return False
        now = self._env.now()
        if not any(each.is_there(now) for each in offer.sending.followers.values()):
            return False  # nobody would be any better off
        unsent, ready = offer.sending.backlog, offer.sending.ready
        if unsent > self._limits.history_versions // SHARE:
            return True
        most = min(self._limits.history_bytes, self._limits.all_history_bytes) // SHARE
        if offer.history.bytes <= most:
            return False
        versions = range(ready + 1 - unsent, ready + 1)
        return sum(len(offer.history.get(each) or b"") for each in versions) > most

    # Listeners that are waited for

    async def drained(self, timeout: float | None) -> None:
        """Until all listeners have everything."""
        try:
            await self._waiting.until(self._is_drained, timeout)
        except TimeoutError:
            raise NotDrained(f"after {timeout:g} s {self._what_is_owed()}") from None

    def _is_drained(self) -> bool:
        offers = list(self._core.offers.values())
        for offer in offers:
            check_allowed(offer)
        return not any(map(self._is_owed, offers))

    def _is_owed(self, offer: Offer) -> bool:
        """Whether somebody does not have everything, or might not."""
        introduced = asyncio.get_running_loop().time() >= self._introduced.get(offer, 0)
        kept = offer.history.latest == offer.sending.ready
        known = offer.registered is Code.OK and introduced
        return not (known and kept and offer.sending.complete)

    def _what_is_owed(self) -> str:
        owed = [offer for offer in self._core.offers.values() if self._is_owed(offer)]
        late = {
            node
            for offer in owed
            for node, each in offer.sending.followers.items()
            if each.next <= offer.sending.ready
        }
        unregistered = sum(offer.registered is not Code.OK for offer in owed)
        return (
            f"{len(late)} listeners ({', '.join(sorted(late)[:5])}) lack something of "
            f"{len(owed)} items, of which {unregistered} are not registered yet"
        )


def check_allowed(offer: Offer) -> None:
    """Refused, where the rendezvous has said so."""
    if offer.registered is not None and offer.registered in FINAL:
        raise Refused("publishing", offer.registered)


class Offering:
    """An item that is published. Made by `FabricClient.offer`: await it, or use `async with`.

    >>> async with fabric.offer(sid, rid) as offering:
    ...     await offering.publish(b"content")
    """

    def __init__(
        self, outbox: Outbox, offer: Offer, *, durable: bool, timeout: float | None
    ) -> None:
        self._outbox = outbox
        self._offer = offer
        self._durable = durable
        self._timeout = timeout
        self.sid, self.rid = offer.sid, offer.rid

    @property
    def latest(self) -> Position | None:
        """The Position of the latest version, from an earlier life perhaps; None without any."""
        history = self._offer.history
        if not history.latest:
            return None
        return Position(PublisherId(history.publisher), history.epoch, history.latest)

    async def publish(
        self,
        data: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        position: Position | None = None,
        timeout: float | None = 30.0,
    ) -> Position:
        """`FabricClient.publish` of this item."""
        item = self.sid, self.rid
        return await self._outbox.publish(item, data, metadata, position, timeout)

    async def withdraw(self) -> None:
        """`FabricClient.withdraw` of this item."""
        await self._outbox.withdraw((self.sid, self.rid))

    def __await__(self) -> Generator[Any, None, Self]:
        return self._registered().__await__()

    async def _registered(self) -> Self:
        try:
            await self._outbox.until_registered(self._offer, self._timeout)
        except Refused:
            # What a durable stream has kept is not given up for that.
            await self._outbox.withdraw((self.sid, self.rid), keep=self._durable)
            raise
        return self

    def _begin_to_withdraw(self) -> None:
        item = (self.sid, self.rid)
        self._outbox.begin_to_withdraw(item, lambda code: None, keep=self._durable)

    async def __aenter__(self) -> Self:
        return await self._registered()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outbox.closed:
            return
        if kind is None:
            await self._outbox.withdraw((self.sid, self.rid), keep=self._durable)
        else:
            self._begin_to_withdraw()
