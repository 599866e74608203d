"""What a node is registered for at the rendezvous, on behalf of those who subscribe there.

One registration stands for all subscriptions of a node to the same thing, so they must come with
the same rights; and nobody hears anything before a server has let this registration listen, though
another one of the node may bring the same streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.publications.delivery import Subscription
from psirp_sim.rendezvous.client import RendezvousClient
from psirp_sim.rendezvous.registrar import Done
from psirp_sim.rendezvous.subscribing import Source
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.rendezvous import FINAL, Code

RETRY = SECOND
"""After which a registration that failed for a while is made again."""
Item = tuple[bytes, bytes]


class Interest:
    """One registration, and the subscriptions it stands for."""

    def __init__(self, guest: bool, key: Ed25519PrivateKey | None) -> None:
        self.guest, self.key = guest, key
        self.subscriptions: list[Subscription] = []
        self.registered: Code | None = None
        self.asked = False
        """Whether it was asked for."""
        self.allowed = False
        """Whether a server has let us listen."""
        self.done: list[tuple[Subscription, Done]] = []
        """Who waits for the registration to end."""


class Interests:
    """All of one node."""

    def __init__(
        self,
        env: Environment,
        rendezvous: RendezvousClient,
        *,
        changed: Callable[[Source], None],
        catch_up: Callable[[Subscription], None],
    ) -> None:
        """`changed` hears of publishers; `catch_up` lets a subscription begin that may now."""
        self._env = env
        self._rendezvous = rendezvous
        self._changed = changed
        self._catch_up = catch_up
        self._interests: dict[Item, Interest] = {}

    def __iter__(self) -> Iterator[Subscription]:
        for interest in self._interests.values():
            yield from interest.subscriptions

    def hearing(self, sid: bytes, rid: bytes) -> list[Subscription]:
        """Those who listen to an item and may."""
        return [
            subscription
            for each in (rid, b"")
            if (interest := self._interests.get((sid, each))) and interest.allowed
            for subscription in interest.subscriptions
        ]

    def find(self, sid: bytes, rid: bytes, guest: bool, key: Ed25519PrivateKey | None) -> Interest:
        """The one that a subscription with these rights can share, or a new one."""
        interest = self._interests.get((sid, rid))
        if interest is None or interest.registered in FINAL:
            # Those that were refused stay refused.
            interest = self._interests[sid, rid] = Interest(guest, key)
        elif (interest.guest, interest.key) != (guest, key):
            raise ValueError("somebody here listens to it already, with another key or as a guest")
        return interest

    def add(self, interest: Interest, subscription: Subscription, done: Done) -> None:
        """It listens too; `done` when the registration has ended."""
        interest.subscriptions.append(subscription)
        if interest.registered is Code.OK:
            self._env.call_later(0, done, Code.OK)
            return
        interest.done.append((subscription, done))
        if not interest.asked:
            interest.asked = True
            self._register(subscription.sid, subscription.rid, interest)

    def remove(self, subscription: Subscription, done: Done) -> bool:
        """It listens no longer; whether it did."""
        item = (subscription.sid, subscription.rid)
        interest = self._interests.get(item)
        if interest is None or subscription not in interest.subscriptions:
            self._env.call_later(0, done, Code.NOT_REGISTERED)
            return False
        interest.subscriptions.remove(subscription)
        for each in [each for each in interest.done if each[0] is subscription]:
            interest.done.remove(each)
            self._env.call_later(0, each[1], Code.NOT_REGISTERED)
        if interest.subscriptions:
            self._env.call_later(0, done, Code.OK)
        else:
            del self._interests[item]
            self._rendezvous.unsubscribe(*item, done)
        return True

    def allowed_by(self, source: Source) -> list[Subscription]:
        """A publisher has heard of one of our registrations, so a server has allowed it: those
        for which that is news."""
        news: list[Subscription] = []
        for rid in (source.rid, b""):
            interest = self._interests.get((source.sid, rid))
            registered = self._rendezvous.subscribing.subscriptions.get((source.sid, rid))
            if interest is None or interest.allowed or registered is None:
                continue
            interest.allowed = registered.sequence == source.listener.sequence
            news += interest.subscriptions if interest.allowed else []
        return news

    def _register(self, sid: bytes, rid: bytes, interest: Interest) -> None:
        if self._interests.get((sid, rid)) is not interest:
            return
        result = partial(self._registered, sid, rid, interest)
        self._rendezvous.subscribe(
            sid,
            rid,
            result,
            changed=self._changed,
            guest=interest.guest,
            key=interest.key,
            refused=result,
        )

    def _registered(self, sid: bytes, rid: bytes, interest: Interest, code: Code) -> None:
        if self._interests.get((sid, rid)) is not interest:
            return
        interest.registered = code
        if code is Code.OK and not interest.allowed:
            interest.allowed = True
            for subscription in list(interest.subscriptions):
                self._catch_up(subscription)
        elif code in FINAL:
            interest.allowed = False
        elif code is not Code.OK:
            self._env.call_later(RETRY, self._register, sid, rid, interest)
            return
        waiting, interest.done = interest.done, []
        for _, done in waiting:
            done(code)
        if code in FINAL:
            for subscription in list(interest.subscriptions):
                subscription.refused(code)
