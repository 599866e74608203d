"""A node's side of the rendezvous: what it publishes and subscribes to, and what comes of it.

The client holds the truth, and the servers are where clients meet. Every registration is written
to the two homes of its scope and moved when the servers change (`registrar`). A publisher learns
who listens, finds the way to them and tells them so (`publishing`); a subscriber finds the way
back (`subscribing`). Who writes a topic is settled by a lease (`writer`).

Every request ends with a `Code`, at the latest after the time-out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.rendezvous.publishing import Base, Publication, Publishing
from psirp_sim.rendezvous.registrar import Done, Registrar
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.subscribing import Source, Subscribing, Subscription
from psirp_sim.rendezvous.summary import KnownSummaries
from psirp_sim.rendezvous.trees import TreePool
from psirp_sim.rendezvous.writer import WriterLeases
from psirp_sim.runtime.environment import Environment
from psirp_sim.topology.attachment import Attachment
from psirp_sim.wire.message import Message, WireFilter
from psirp_sim.wire.rendezvous import (
    Access,
    Code,
    LeaseVote,
    Matches,
    MatchesTaken,
    Refreshed,
    Registered,
    Side,
    Subscribed,
    SubscribedTaken,
    SummaryIs,
)
from psirp_sim.zfilters import ZFilter


class RendezvousClient:
    """The client of one node."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        attachment: Attachment,
        *,
        epoch: Callable[[], int],
        servers: Callable[[], dict[str, int]],
        voters: Callable[[], list[str]],
        life_of: Callable[[str], int],
        reach: Callable[[str, list[ZFilter], Message], None],
        along: Callable[[list[ZFilter], Message], None],
    ) -> None:
        """`servers` share the scopes among them, with the number of their lives; `voters` are
        these and those that are being drained; `life_of` is the number of a node's life;
        `reach` sends to a server along filters, `along` to whoever the filters lead to."""
        self._env = env
        self._attachment = attachment
        self._epoch = epoch
        self._reach = reach
        self.trees = trees = TreePool(env.node, attachment)
        self.registrar = Registrar(
            env,
            settings,
            epoch=epoch,
            servers=servers,
            reachable=self._reachable,
            send=self.send,
            restarted=lambda server, boot: self.publishing.restarted(server, boot),
        )
        self.publishing = Publishing(
            env,
            settings,
            trees,
            epoch=epoch,
            homes_of=lambda sid, rid: self.registrar.homes_of(Side.PUBLISHER, sid, rid),
            send=along,
            at_home=self._at_home,
        )
        self.subscribing = Subscribing(
            env,
            settings,
            trees,
            epoch=epoch,
            life_of=life_of,
            send=along,
            at_home=self._at_home,
        )
        self.writers = WriterLeases(env, settings, epoch=epoch, servers=voters, send=self.send)
        self.summaries = KnownSummaries(
            env,
            settings,
            servers=lambda: list(servers()),
            send=self.send,
            changed=lambda: self.summaries_changed(),
        )
        self.summaries_changed: Callable[[], None] = lambda: None
        """Called when `summaries.may_be_wanted` may have another answer."""

    def start(self) -> None:
        self.registrar.start()
        self.publishing.start()
        self.subscribing.start()

    # Scopes

    def publish_scope(
        self,
        sid: bytes,
        done: Done,
        access: Access | None = None,
        *,
        key: Ed25519PrivateKey | None = None,
        refused: Done = lambda code: None,
    ) -> None:
        """Make a scope, or join those who publish it with the same rules."""
        self.registrar.register(
            Side.PUBLISHER, sid, b"", access=access, key=key, done=done, refused=refused
        )

    def unpublish_scope(self, sid: bytes, done: Done) -> None:
        """The scope is gone when nobody publishes it any more."""
        self.registrar.withdraw(Side.PUBLISHER, sid, b"", done)

    # Publishing

    def publish(
        self,
        sid: bytes,
        rid: bytes,
        done: Done,
        *,
        base: Callable[[], Base | None],
        changed: Callable[[Publication], None],
        guest: bool = False,
        key: Ed25519PrivateKey | None = None,
        refused: Done = lambda code: None,
    ) -> Publication:
        """Offer an item. `changed` says when somebody listens, by which filters, and when not."""
        publication = Publication(sid, rid, base, changed)
        self.publishing.remove(sid, rid)
        self.publishing.add(publication)

        def drop(code: Code) -> None:
            if code is not Code.OK and self.publishing.publications.get((sid, rid)) is publication:
                self.publishing.remove(sid, rid)

        publication.sequence = self.registrar.register(
            Side.PUBLISHER,
            sid,
            rid,
            guest=guest,
            key=key,
            done=_both(drop, done),
            refused=_both(drop, refused),
        )
        return publication

    def unpublish(self, sid: bytes, rid: bytes, done: Done) -> None:
        """Offer it no longer."""
        self.publishing.remove(sid, rid)
        self.registrar.withdraw(Side.PUBLISHER, sid, rid, done)

    # Subscribing

    def subscribe(
        self,
        sid: bytes,
        rid: bytes,
        done: Done,
        *,
        changed: Callable[[Source], None],
        guest: bool = False,
        key: Ed25519PrivateKey | None = None,
        refused: Done = lambda code: None,
    ) -> Subscription:
        """Listen to an item, or to a scope when `rid` is empty, published already or not yet."""
        subscription = Subscription(sid, rid, changed)
        self.subscribing.remove(sid, rid)
        self.subscribing.add(subscription)

        def drop(code: Code) -> None:
            current = self.subscribing.subscriptions.get((sid, rid)) is subscription
            if code is not Code.OK and current:
                self.subscribing.remove(sid, rid)

        subscription.sequence = self.registrar.register(
            Side.SUBSCRIBER,
            sid,
            rid,
            guest=guest,
            key=key,
            done=_both(drop, done),
            refused=_both(drop, refused),
        )
        return subscription

    def unsubscribe(self, sid: bytes, rid: bytes, done: Done) -> None:
        """Listen no longer."""
        self.subscribing.remove(sid, rid)
        self.registrar.withdraw(Side.SUBSCRIBER, sid, rid, done)

    # What happens around us

    def look(self) -> None:
        """The fabric has changed."""
        self.registrar.look()
        self.publishing.look()

    def attached(self) -> None:
        """The routes to the servers have changed."""
        self.registrar.routes_changed()

    def renew(self) -> None:
        """The node's life has another number."""
        self.registrar.renew()

    def receive(self, message: Message) -> bool:
        """Somebody talks to a client; whether that is us."""
        node = self._env.node
        match message:
            case Registered(client=name) | Refreshed(client=name) | Matches(client=name):
                if name != node:
                    return False
                if message.epoch == self._epoch():
                    self._from_server(message)
            case LeaseVote(client=name):
                if name != node:
                    return False
                self.writers.receive(message)
            case SummaryIs(client=name):
                if name != node:
                    return False
                self.summaries.receive(message)
            case SubscribedTaken():
                if message.publisher != node:
                    return False
                if message.epoch == self._epoch():
                    self.publishing.taken(message)
            case Subscribed():
                return self.subscribing.receive(message)
            case _:
                return False
        return True

    def _from_server(self, message: Registered | Refreshed | Matches) -> None:
        match message:
            case Registered():
                self.registrar.answered(message)
            case Refreshed():
                self.registrar.refreshed(message)
            case Matches():
                taken = self.publishing.receive(message)
                self.send(
                    message.server,
                    MatchesTaken(
                        message.server, self._env.node, self._epoch(), message.boot, taken
                    ),
                )

    def _at_home(self, message: Message) -> None:
        self.receive(message)

    # Sending

    def _reachable(self, server: str) -> bool:
        return server == self._env.node or server in self._attachment.routes

    def send(self, server: str, message: Message) -> None:
        """To a server, with the way back where the message has room for it."""
        if server == self._env.node:
            self._reach(server, [], message)
            return
        route = self._attachment.routes.get(server)
        if route is None:
            return
        if "back" in message.__struct_fields__:
            back = [WireFilter.of(each) for each in route.back]
            message = msgspec.structs.replace(message, back=back)
        self._reach(server, route.there, message)


def _both(first: Done, second: Done) -> Done:
    def call(code: Code) -> None:
        first(code)
        second(code)

    return call
