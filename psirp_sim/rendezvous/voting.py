"""A server's vote on who may write a topic: one promise at a time, and the highest fence.

A client that a majority of the view has promised a topic, with the same fencing epoch and within
one round, holds it for nine tenths of a writer lease from when it began to ask; a promise lasts a
whole one from when it was given. That leaves a tenth for clocks that run differently.

Promises are only in memory. So a server that has just started gives none for a writer lease, and
takes only what renews a fencing epoch it has taken before. Fencing epochs are on the disk before
a vote for them is sent, synced, so that a power cut cannot bring back a lower one; each with the
client it belongs to: no other one or lower one is taken.

A client numbers its requests, and only the latest counts: a renewal that comes after the release
is refused here, and a vote for it ignored there; a release that comes after a new request frees
nothing.

The fencing epochs of those who hold a topic one after the other grow, because majorities meet. A
server whose disk was lost has forgotten them, and so have the members of a view two changes later;
then they grow because they begin with the clock in milliseconds: clocks may differ by less than a
writer lease, which has passed until then.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from psirp_sim.rendezvous.membership import Membership
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import Code, LeaseAsk, LeaseVote
from psirp_sim.zfilters import ZFilter

FENCE = b"writer-fence "
SWEEP = 600 * SECOND
MOST_TOPICS = 200_000
MOST_TOPICS_PER_CLIENT = 10_000
FARTHEST = 100 * 365 * 86_400 * 1_000
"""Milliseconds that a fencing epoch may be ahead of the clock; one begins with the clock."""
ANY_LIFE = -1
"""Epoch of a promise to a successor: every life of it is later."""


@dataclass(slots=True)
class Promise:
    """Nobody but this client gets the topic for now."""

    client: str
    epoch: int
    request: int
    """The latest that counted."""
    expires: int
    released: bool = False
    """Anybody may have it; we only remember which requests are old."""


class Voting:
    """The votes of one server."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        membership: Membership,
        *,
        send: Callable[[str, list[ZFilter], Message], None],
    ) -> None:
        """`send` is to a client, along the filters it gave."""
        self._env = env
        self._settings = settings
        self._membership = membership
        self._send = send
        self._quiet_until = env.now() + settings.writer_lease
        env.call_later(SWEEP, self._sweep)
        self.promises: OrderedDict[bytes, Promise] = OrderedDict()
        """By topic, SId and RId; those that expire first come first."""
        self._of_client: Counter[str] = Counter()
        self._writing: Counter[bytes] = Counter()
        """Topics whose fence is not durable yet."""

    def _sweep(self) -> None:
        """Forget fences so old that the clock has passed them, and all leases with them."""
        self._env.call_later(SWEEP, self._sweep)
        outdated = (self._env.wall() - 100 * self._settings.writer_lease) // MILLISECOND
        changes: dict[bytes, bytes | None] = {
            key: None
            for key, value in self._env.storage.scan(FENCE)
            if int.from_bytes(value[:8]) < outdated and key[len(FENCE) :] not in self.promises
        }
        if changes:
            self._env.storage.write(changes)

    def receive(self, ask: LeaseAsk) -> None:
        self._forget_expired()
        topic = ask.sid + ask.rid
        back = [each.zfilter() for each in ask.back]
        code = self._release(topic, ask) if ask.release else self._vote(topic, ask)
        if code is Code.OK and ask.fence > self._fence(topic)[0]:
            self._writing[topic] += 1
            value = ask.fence.to_bytes(8) + ask.client.encode()
            self._env.storage.write(
                {FENCE + topic: value}, lambda: self._written(ask, back), sync=True
            )
        elif code is Code.OK and self._writing[topic]:
            self._env.storage.write({}, lambda: self._answer(ask, back, code))  # after the fence
        else:
            self._answer(ask, back, code)

    def _written(self, ask: LeaseAsk, back: list[ZFilter]) -> None:
        topic = ask.sid + ask.rid
        self._writing[topic] -= 1
        if not self._writing[topic]:
            del self._writing[topic]
        self._answer(ask, back, Code.OK)

    def _vote(self, topic: bytes, ask: LeaseAsk) -> Code:
        membership = self._membership
        if ask.fence > self._env.wall() // MILLISECOND + FARTHEST:
            return Code.NOT_ALLOWED  # nobody could ever take a higher one
        if membership.settled_at is None:
            return Code.NOT_READY
        if ask.view != membership.view:
            return Code.STALE
        if self._env.node not in membership.view.members:
            return Code.NOT_READY
        promise = self.promises.get(topic)
        if promise is not None:
            if promise.client != ask.client:
                if not promise.released:
                    return Code.HELD
            elif (ask.epoch, ask.request) < (promise.epoch, promise.request):
                return Code.STALE
        fence, owner = self._fence(topic)
        renewal = ask.fence > 0 and (ask.fence, ask.client) == (fence, owner)
        if self._waiting() and not renewal:
            return Code.NOT_READY
        if 0 < ask.fence <= fence and not renewal:
            return Code.STALE
        return self._promise(topic, ask.client, ask.epoch, ask.request)

    def _waiting(self) -> bool:
        """Whether there may be promises that we have forgotten."""
        return self._env.now() < self._quiet_until

    def _ms_until(self, then: int) -> int:
        return -(min(0, self._env.now() - then) // MILLISECOND)

    def _promise(self, topic: bytes, client: str, epoch: int, request: int) -> Code:
        known = self.promises.get(topic)
        if known is None and len(self.promises) >= MOST_TOPICS:
            return Code.OVERLOADED
        news = known is None or known.client != client
        if news and self._of_client[client] >= MOST_TOPICS_PER_CLIENT:
            return Code.TOO_MANY
        self._forget(topic)
        self._of_client[client] += 1
        expires = self._env.now() + self._settings.writer_lease
        self.promises[topic] = Promise(client, epoch, request, expires)
        return Code.OK

    def _release(self, topic: bytes, ask: LeaseAsk) -> Code:
        # In whatever view: nobody is harmed by a promise that its owner does not want.
        promise = self.promises.get(topic)
        if promise is None or (promise.client, promise.epoch) != (ask.client, ask.epoch):
            return Code.OK
        if ask.request > promise.request:
            promise.request, promise.released = ask.request, True
            if ask.successor:
                self._promise(topic, ask.successor, ANY_LIFE, 0)
        return Code.OK

    def _forget_expired(self) -> None:
        now = self._env.now()
        while self.promises:
            topic, promise = next(iter(self.promises.items()))
            if promise.expires > now:
                break
            self._forget(topic)

    def _forget(self, topic: bytes) -> None:
        promise = self.promises.pop(topic, None)
        if promise is not None:
            self._of_client[promise.client] -= 1
            if not self._of_client[promise.client]:
                del self._of_client[promise.client]

    def _fence(self, topic: bytes) -> tuple[int, str]:
        """The highest we know of, and whose it is."""
        stored = self._env.storage.get(FENCE + topic)
        return (0, "") if stored is None else (int.from_bytes(stored[:8]), stored[8:].decode())

    def _answer(self, ask: LeaseAsk, back: list[ZFilter], code: Code) -> None:
        topic = ask.sid + ask.rid
        promise = self.promises.get(topic)
        holder, left = "", 0
        if promise is not None and not promise.released:
            holder = promise.client
            left = self._ms_until(promise.expires)
        if code is Code.NOT_READY:
            left = max(left, self._ms_until(self._quiet_until))
            if self._membership.settled_at is None:  # which the others may tell us at any time
                left = max(left, self._settings.retry_interval // MILLISECOND)
        vote = LeaseVote(
            ask.client,
            ask.epoch,
            self._env.node,
            ask.request,
            ask.sid,
            ask.rid,
            code,
            self._fence(topic)[0],
            self._membership.view,
            holder,
            left,
        )
        self._send(ask.client, back, vote)
