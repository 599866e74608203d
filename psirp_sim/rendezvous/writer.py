"""A client's side of the writer leases: asks the servers, and holds no longer than it may.

A candidate asks every member of the view (fencing epoch 0). When a majority has promised it the
topic, it takes a fencing epoch above all it was told, and asks again with that one; a majority for
it, and the topic is held for nine tenths of a writer lease from the moment the round began. Every
third of a lease there is another round with the same epoch. A candidate that gets no majority
returns the votes and tries again after a jittered delay: not later than when the servers said they
would have a vote to give, or at once when it has something to write (`hurry`).

Only the votes of the latest round of a lease count. The view is learned from the votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from psirp_sim.rendezvous.membership import NOWHERE, majority
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment, Timer
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import Code, LeaseAsk, LeaseVote, View

MOST_RELEASE_TRIES = 5


@dataclass(slots=True)
class Round:
    """One question to all servers."""

    request: int
    view: View
    sent: int
    """When it was first sent."""
    servers: list[str]
    fence: int = 0
    release: bool = False
    successor: str = ""
    tries: int = 0
    due: int = 0
    """When to repeat it, if it is a release."""
    votes: dict[str, Code] = field(default_factory=dict)
    left_ms: dict[str, int] = field(default_factory=dict)
    """By server: how long until it may vote for us, as far as it knows."""


class WriterLease:
    """The wish to write a topic, and whether it is fulfilled."""

    def __init__(
        self, leases: WriterLeases, sid: bytes, rid: bytes, changed: Callable[[WriterLease], None]
    ) -> None:
        self._leases = leases
        self._changed = changed
        self.sid = sid
        self.rid = rid
        self.fence = 0
        """Of the present holding, or else of the last."""
        self.until = 0
        """By the clock of this node."""
        self.holder = ""
        """Who else has it, as far as known."""
        self.found: Callable[[], None] = lambda: None
        """Called when that is another one than before."""
        self.mine = False
        """Held, unless `until` has passed."""
        self.round: Round | None = None
        self.resume = 0
        """When to begin a round, or to repeat the one that is not answered."""
        self.failures = 0
        self.asked = 0
        """When the last round began."""
        self.yields = False
        """Waits until all servers know of the successor we named before."""
        self.highest = 0
        """The highest fencing epoch heard of."""
        self.due = 0

    @property
    def held(self) -> bool:
        """Whether this client may write now; also right in a process that stood still."""
        return self.mine and self._leases.now() < self.until

    def release(self, successor: str = "") -> None:
        """Want it no longer. A successor is given the time of one lease to take it first."""
        self._leases.release(self, successor)

    def hurry(self) -> None:
        """Ask now instead of after the pause that follows a lost vote."""
        self._leases.hurry(self)

    def tell(self) -> None:
        self._changed(self)


class WriterLeases:
    """All leases of one client."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        *,
        epoch: Callable[[], int],
        servers: Callable[[], list[str]],
        send: Callable[[str, Message], None],
    ) -> None:
        """`servers` can be reached now; `send` is to a server, and says how it reaches us."""
        self._env = env
        self._settings = settings
        self._epoch = epoch
        self._servers = servers
        self._send = send
        self.view = NOWHERE
        self.clock_bound = settings.writer_lease
        """Nanoseconds that the wall clocks of two nodes differ by at most."""
        self.length = settings.writer_lease - settings.writer_lease // 10
        self.votes_given = False
        """Whether this client has got a lease, or heard that another one has: servers vote."""
        self.leases: dict[tuple[bytes, bytes], WriterLease] = {}
        self._giving_back: dict[tuple[bytes, bytes], Round] = {}
        """Releases that not all servers have answered."""
        self._request = 0
        self._queue: list[tuple[int, int, tuple[bytes, bytes]]] = []
        self._queued = 0
        self._timer: Timer | None = None
        self._timer_due = 0

    def now(self) -> int:
        return self._env.now()

    def acquire(
        self, sid: bytes, rid: bytes, changed: Callable[[WriterLease], None]
    ) -> WriterLease:
        """Try to get the lease, and to keep it, until it is released.

        `changed` is called whenever it was gained or lost; `WriterLease.found` when somebody else
        turned out to have it.
        """
        if (sid, rid) in self.leases:
            raise ValueError("this client wants the writer lease of the topic already")
        lease = WriterLease(self, sid, rid, changed)
        self.leases[sid, rid] = lease
        giving_back = self._giving_back.get((sid, rid))
        if giving_back is not None and giving_back.successor:
            lease.yields = True  # what we gave to somebody else must not be ours again first
        else:
            self._begin(lease, 0)
        return lease

    def release(self, lease: WriterLease, successor: str = "") -> None:
        """What `WriterLease.release` does."""
        key = (lease.sid, lease.rid)
        if self.leases.get(key) is not lease:
            return
        del self.leases[key]
        lease.mine, lease.until, lease.round = False, 0, None
        if not lease.yields:  # else it has not asked for anything yet
            self._give_back(lease, list(self.view.members), successor)

    def hurry(self, lease: WriterLease) -> None:
        """What `WriterLease.hurry` does."""
        now = self._env.now()
        soonest = lease.asked + self._settings.retry_interval // 4
        if lease.round is None and not lease.mine and not lease.yields and lease.resume > soonest:
            lease.resume = max(now, soonest)
            self._plan(lease)

    def receive(self, vote: LeaseVote) -> None:
        if vote.client != self._env.node or vote.epoch != self._epoch():
            return
        if vote.view.number > self.view.number and not vote.view.before:
            self.view = vote.view  # of those that are settled there is one of each number
        key = (vote.sid, vote.rid)
        giving_back = self._giving_back.get(key)
        if giving_back is not None and vote.request == giving_back.request:
            giving_back.votes[vote.server] = vote.code
            if all(server in giving_back.votes for server in giving_back.servers):
                self._given_back(key)
            return
        lease = self.leases.get(key)
        if lease is None or lease.round is None or vote.request != lease.round.request:
            return
        lease.highest = max(lease.highest, vote.fence)
        known = lease.holder
        if vote.code is Code.HELD:
            lease.holder, self.votes_given = vote.holder, True
        if vote.server in lease.round.servers:
            lease.round.votes[vote.server] = vote.code
            if vote.left_ms:
                lease.round.left_ms[vote.server] = vote.left_ms
            self._count(lease, lease.round)
        if lease.holder not in (known, "") and not lease.mine:
            lease.found()

    # Rounds

    def _begin(self, lease: WriterLease, fence: int) -> None:
        """Ask all members something new."""
        view = self.view
        servers = list(view.members)
        if lease.failures or not servers:
            # Those we know of may be gone: anybody can tell us the view.
            servers += [name for name in self._servers() if name not in servers]
        self._giving_back.pop((lease.sid, lease.rid), None)
        lease.asked = self._env.now()
        lease.round = Round(self._next_request(), view, self._env.now(), servers, fence)
        self._transmit(lease.sid, lease.rid, lease.round)
        self._plan(lease)

    def _count(self, lease: WriterLease, round: Round) -> None:
        now = self._env.now()
        if lease.mine and now >= lease.until:
            self._lose(lease)
            return
        if round.view != self.view:
            self._begin(lease, lease.fence if lease.mine else 0)
            return
        members = round.view.members
        agreed = sum(round.votes.get(name) is Code.OK for name in members)
        if agreed < majority(members):
            unheard = sum(name not in round.votes for name in members or round.servers)
            if not lease.mine and agreed + unheard < majority(members):
                self._fail(lease)
            return
        until = round.sent + self.length
        if now >= until:
            self._fail(lease)
        elif not round.fence:
            fence = max(lease.highest + 1, self._env.wall() // MILLISECOND)
            self._begin(lease, fence)
        else:
            self._hold(lease, round.fence, until)

    def _hold(self, lease: WriterLease, fence: int, until: int) -> None:
        gained, self.votes_given = not lease.mine, True
        lease.round, lease.failures, lease.holder = None, 0, ""
        lease.mine, lease.fence, lease.until = True, fence, until
        lease.resume = until - self.length + self._settings.writer_lease // 3
        self._plan(lease)
        if gained:
            lease.tell()

    def _lose(self, lease: WriterLease) -> None:
        lease.mine = False
        self._fail(lease)
        lease.tell()

    def _fail(self, lease: WriterLease) -> None:
        """Give back what we got, and try again later."""
        round, lease.round = lease.round, None
        votes = {} if round is None else round.votes
        self._give_back(lease, [m for m in self.view.members if votes.get(m, Code.OK) is Code.OK])
        lease.failures += 1
        longest = self._settings.writer_lease // 4
        pause = min(self._settings.retry_interval << min(lease.failures, 8), longest)
        pause = self._env.random.randint(pause // 4, pause)
        if round is not None:
            # Not all candidates at the same time.
            spread = self._env.random.randint(0, self._settings.retry_interval // 8)
            pause = min(pause, _until_majority(round, pause) + spread)
        lease.resume = self._env.now() + pause
        self._plan(lease)

    def _give_back(self, lease: WriterLease, servers: list[str], successor: str = "") -> None:
        request, key = self._next_request(), (lease.sid, lease.rid)
        round = Round(
            request, self.view, self._env.now(), servers, release=True, successor=successor
        )
        self._giving_back[key] = round
        if servers:
            self._give_back_again(key, round)
        else:
            self._given_back(key)

    def _give_back_again(self, key: tuple[bytes, bytes], round: Round) -> None:
        if round.tries >= MOST_RELEASE_TRIES:
            self._given_back(key)
            return
        self._transmit(*key, round)
        round.due = self._env.now() + self._pause(round.tries)
        self._wake(key, round.due)

    def _given_back(self, key: tuple[bytes, bytes]) -> None:
        del self._giving_back[key]
        lease = self.leases.get(key)
        if lease is not None and lease.yields:
            lease.yields = False
            lease.resume = self._env.now()
            self._plan(lease)
        if not self.leases and not self._giving_back:
            self._queue.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _next_request(self) -> int:
        self._request += 1
        return self._request

    def _transmit(self, sid: bytes, rid: bytes, round: Round) -> None:
        round.tries += 1
        epoch, node = self._epoch(), self._env.node
        for server in round.servers:
            if server not in round.votes:
                ask = LeaseAsk(
                    server,
                    node,
                    epoch,
                    [],
                    round.request,
                    round.view,
                    sid,
                    rid,
                    round.fence,
                    round.release,
                    round.successor,
                )
                self._send(server, ask)

    # Time

    def _plan(self, lease: WriterLease) -> None:
        """When to look at the lease next."""
        due = lease.resume
        if lease.round is not None:
            lease.resume = self._env.now() + self._pause(lease.round.tries)
            due = lease.resume
        if lease.mine:
            due = min(due, lease.until)
        lease.due = due
        self._wake((lease.sid, lease.rid), due)

    def _pause(self, tries: int) -> int:
        return min(self._settings.pause(tries - 1), self._settings.writer_lease // 12)

    def _look(self, lease: WriterLease) -> None:
        now = self._env.now()
        if lease.mine and now >= lease.until:
            self._lose(lease)
        elif now < lease.resume:
            self._plan(lease)
        elif lease.round is None or lease.round.view != self.view or not lease.round.servers:
            self._begin(lease, lease.fence if lease.mine else 0)
        elif now - lease.round.sent >= self._settings.writer_lease // 3:
            if lease.mine:
                self._begin(lease, lease.fence)
            else:
                self._fail(lease)
        else:
            self._transmit(lease.sid, lease.rid, lease.round)
            self._plan(lease)

    def _wake(self, key: tuple[bytes, bytes], due: int) -> None:
        self._queued += 1
        heappush(self._queue, (due, self._queued, key))
        self._arm()

    def _arm(self) -> None:
        """One timer, for what is due first."""
        if not self._queue:
            return
        due = self._queue[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._env.call_later(due - self._env.now(), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._env.now()
        while self._queue and self._queue[0][0] <= now:
            _, _, key = heappop(self._queue)
            lease, giving_back = self.leases.get(key), self._giving_back.get(key)
            if giving_back is not None and now >= giving_back.due:
                self._give_back_again(key, giving_back)
            if lease is not None and not lease.yields and now >= lease.due:
                self._look(lease)
        self._arm()


def _until_majority(round: Round, unknown: int) -> int:
    """How long until a majority may vote for us, as far as the servers said so."""
    until = sorted(
        0 if code is Code.OK else round.left_ms.get(name, 0) * MILLISECOND or unknown
        for name in round.view.members
        for code in [round.votes.get(name)]
    )
    return until[majority(until) - 1] if until else unknown
