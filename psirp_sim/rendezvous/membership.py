"""Which rendezvous servers vote on writer leases: a numbered view that changes one by one.

A **view** names its members. It comes from the settings (number 1) or from the view before it, by
taking one server in or out; it is **settled** once a majority of the members before has moved to
it. A server that knows that its view is settled writes it without `before`, and so tells others.

What makes it safe, together with `voting`:

* A server is in one view at a time, and the disk has it before anybody hears of it. It moves to
  every view with a greater number. To another view of the *same* number it moves when that one is
  settled; or when its own never can be, because too many of the members before are in greater ones
  (the order of `View`). So of all views of one number at most one is ever settled.
* Nobody votes in a view that it does not know to be settled, and nobody changes one before it has
  been settled for a whole writer lease. So when there are votes in a view, all leases are over that
  were voted on two views ago or earlier; and majorities of a view and of the next have a server in
  common, which has only one vote.
* A server that finds its disk empty may have been somewhere before. It keeps quiet for a writer
  lease; then it asks, and says, counts and votes nothing until it has heard so many that one of
  them knows of every view that it may have helped to settle itself (`_recover`). For three servers
  that is both others: a new fabric of three gives no writer leases before all three were there.
* That bears the loss of one disk at a time, if no packet is older than half a writer lease; what
  a server said counts for no longer than that.

Only the lowest live member changes the view, and only while a majority is with it. Should two do
so at once all the same, and a server die for good just then that both need, the view stays
unsettled until that server is put back, with its disk or without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import MOST_SERVERS, View, ViewChange, ViewIs

VIEW = b"rendezvous-view"
DRAINED = b"rendezvous-drained"
NOWHERE = View(0, ())
MOST_REPORTS = 8 * MOST_SERVERS
"""Servers whose word is remembered."""

_decode = msgspec.msgpack.Decoder(View).decode


class Membership:
    """What one server knows of the view, and its part in changing it."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        *,
        live: Callable[[], list[str]],
        send: Callable[[str, Message], None],
        changed: Callable[[], None],
    ) -> None:
        """`live` names the servers that can be reached, this one included, in order; `send` is to
        another server; `changed` is called when there is another view, or it is settled."""
        self._env = env
        self._settings = settings
        self._live = live
        self._send = send
        self._changed = changed
        self.view = NOWHERE
        self.settled_at: int | None = None
        """When we learned that the view is settled; None while we do not know it."""
        self.started = 0
        self.forgetful = False
        """There was nothing on the disk, and we have not asked enough others yet."""
        self._durable = True
        self._drained = False
        self._reports: dict[str, tuple[View, int]] = {}
        """What each server said last, and when."""
        self._unwanted: dict[str, None] = {}
        """Servers that the operator wants out."""

    def start(self) -> None:
        self.started = self._env.now()
        stored = self._env.storage.get(VIEW)
        self._drained = self._env.storage.get(DRAINED) is not None
        if stored is not None:
            self.view = _decode(stored)
            if not self.view.before:
                self.settled_at = self.started
        else:
            self.forgetful = True
            if self._env.node in self._settings.members:
                self.view = View(1, tuple(sorted(set(self._settings.members))))
        self._tick()

    def receive(self, message: ViewIs | ViewChange) -> None:
        if isinstance(message, ViewChange):
            self._asked_to_change(message.server, message.present)
            return
        self._heard(message.server, message.view)
        if message.answer:
            self._tell(message.server)

    # For the operator

    @property
    def drained(self) -> bool:
        """Whether this server is to have no part in the view."""
        return self._drained

    def leave(self) -> None:
        """Have no part in the view from now on, restarts included. It takes a while."""
        if not self._drained:
            self._drained = True
            self._env.storage.write({DRAINED: b"1"}, sync=True)
            self._ask_for_changes()

    def rejoin(self) -> None:
        """The opposite."""
        if self._drained:
            self._drained = False
            self._env.storage.write({DRAINED: None}, sync=True)
            self._ask_for_changes()

    def remove(self, name: str) -> None:
        """Take out a server that is gone for good. It takes a while."""
        members = self.view.members
        if name not in members:
            raise ValueError(f"{name} is not in the view of the servers")
        if len(members) == 1:
            raise ValueError(f"{name} is the only server of the view")
        if self.settled_at is None:
            raise ValueError("this server does not know yet whether its view is settled")
        if self._env.node not in members:
            raise ValueError(f"{self._env.node} is not in the view itself: ask a member")
        if not self._majority_is_with_us():
            raise ValueError(f"fewer than half of the servers are there to take {name} out")
        self._unwanted[name] = None
        self._ask_for_changes()

    def status(self) -> dict[str, object]:
        """What `psph fabric status` shows."""
        return {
            "number": self.view.number,
            "members": list(self.view.members),
            "member": self._env.node in self.view.members,
            "settled": self.settled_at is not None,
            "drained": self._drained,
            "waits_for": self._waits_for(),
            "leaving": list(self._unwanted),
        }

    def _waits_for(self) -> str:
        if self.forgetful:
            if not self.view.members:
                return "a server that is in a view"
            if self._env.now() < self._quiet_until():
                return "a writer lease to pass, as the disk was empty"
            return "more servers to say which view they are in, as the disk was empty"
        if self.settled_at is None:
            return "a majority of the members before to move to the view"
        return ""

    # Talking to the others

    def _tick(self) -> None:
        self._recent()
        self._review()
        for server in self._others():
            self._tell(server, answer=self.settled_at is None)
        self._ask_for_changes()
        at_rest = self.settled_at is not None and not self._wanted_changes()
        interval = self._settings.gossip_interval
        if not at_rest:
            interval = min(interval, self._settings.retry_interval)
        self._env.call_later(interval, self._tick)

    def _tell(self, server: str, *, answer: bool = False) -> None:
        if self._durable:  # else everybody is told as soon as it is
            view = NOWHERE if self.forgetful else self.view
            self._send(server, ViewIs(server, self._env.node, view, answer))

    def _others(self) -> list[str]:
        return [server for server in self._live() if server != self._env.node]

    def _heard(self, server: str, view: View) -> None:
        if view.number and not view.members:
            return  # no server would say that
        if server in self._reports or len(self._reports) < MOST_REPORTS:
            self._reports[server] = (view, self._env.now())
        if view.number > self.view.number:
            self._move(view)
        elif view.number == self.view.number and not view.before and self.view.before:
            self._move(view)  # it is settled: this one is ours, or ours can never be
        self._review()

    def _recent(self) -> dict[str, View]:
        """What the others have said lately; the rest is forgotten."""
        since = self._env.now() - self._settings.writer_lease // 2
        self._reports = {name: each for name, each in self._reports.items() if each[1] >= since}
        return {name: view for name, (view, _) in self._reports.items()}

    # Moving

    def _move(self, view: View) -> None:
        if view == self.view:
            return
        self.view = view
        self.settled_at = None
        if not self.forgetful:  # else there is nothing to rely on yet
            self._keep(view)

    def _keep(self, view: View) -> None:
        self._durable = False
        # Synced: a power cut must not take this server back to a view that is over.
        stored = {VIEW: msgspec.msgpack.encode(view)}
        self._env.storage.write(stored, lambda: self._kept(view), sync=True)

    def _kept(self, view: View) -> None:
        if view != self.view:
            return  # and another write is under way
        self._durable = True
        if not view.before:
            self.settled_at = self.started if view.number == 1 else self._env.now()
        self._review()
        for server in self._others():
            self._tell(server, answer=True)
        self._changed()

    def _review(self) -> None:
        """Draw conclusions from what the others say."""
        for name in [each for each in self._unwanted if each not in self.view.members]:
            del self._unwanted[name]
        if self.forgetful:
            self._recover()
        elif self.settled_at is None and self._durable:
            self._settle()

    def _settle(self) -> None:
        said = self._recent()
        said[self._env.node] = self.view
        before = self.view.before
        if sum(_same(said.get(name), self.view) for name in before) >= majority(before):
            self._move(_settled(self.view))
            return
        rivals = [said[name] for name in before if name in said and said[name] > self.view]
        if len(rivals) >= blocking(before):
            self._move(max(rivals))

    def _quiet_until(self) -> int:
        return self.started + self._settings.writer_lease

    def _recover(self) -> None:
        """Find out where we may have been before our disk was emptied, if we were anywhere.

        What an earlier life of ours said has been heard by now, or is lost. A view that it helped
        to settle needed a majority without one besides: of any `blocking` others one was there,
        and is there still or in a later view.
        """
        if self._env.now() < self._quiet_until():
            return
        heard = {
            server: view
            for server, view in self._recent().items()
            if self._reports[server][1] >= self._quiet_until()
        }
        latest = max([self.view.number, *(view.number for view in heard.values())])
        views = {view for view in heard.values() if view.number == latest} or {self.view}
        settled = [view for view in views if not view.before]
        view = max(settled or views)
        unclear = not settled and len(views) > 1
        for group in (view.members, view.before):
            others = [name for name in group if name != self._env.node]
            # We may have been in either of two views. When nobody is missing, and nobody says
            # that one is settled, then nobody has built on one.
            enough = len(others) if unclear else min(blocking(group), len(others))
            if sum(name in heard for name in others) < enough:
                return
        if not view.members:
            return
        if view.members == (self._env.node,) and not all(name in heard for name in self._others()):
            return  # the settings name nobody else, but there is somebody
        self.forgetful = False
        self.view, self.settled_at = view, None
        self._keep(view)

    # Changing

    def _wanted_changes(self) -> list[tuple[str, bool]]:
        me = self._env.node
        changes = [(name, False) for name in self._unwanted]
        if self._drained == (me in self.view.members):
            changes.append((me, not self._drained))
        return changes

    def _ask_for_changes(self) -> None:
        for server, present in self._wanted_changes():
            if self._env.node in self.view.members:
                self._asked_to_change(server, present)
                continue
            members = [name for name in self._others() if name in self.view.members]
            for name in (members or self._others())[:1]:
                self._send(name, ViewChange(name, server, present))

    def _asked_to_change(self, server: str, present: bool) -> None:
        view = self.view
        me = self._env.node
        if self.settled_at is None or (server in view.members) == present:
            return
        lowest = next((name for name in self._live() if name in view.members), me)
        if lowest != me:
            # From a member only ever to a lower one, so that it does not go round.
            if lowest < me or me not in view.members:
                self._send(lowest, ViewChange(lowest, server, present))
            return
        members = {*view.members, server} if present else {*view.members} - {server}
        if me not in view.members or not 0 < len(members) <= MOST_SERVERS:
            return
        if present and server not in self._live():
            return
        if self._env.now() < self.settled_at + self._settings.writer_lease:
            return  # it is asked again
        if self._majority_is_with_us():
            self._move(View(view.number + 1, tuple(sorted(members)), view.members))

    def _majority_is_with_us(self) -> bool:
        said = self._recent()
        said[self._env.node] = self.view
        members = self.view.members
        return sum(_same(said.get(name), self.view) for name in members) >= majority(members)


def majority(members: Sequence[object]) -> int:
    """How many of them are more than half."""
    return len(members) // 2 + 1


def blocking(members: Sequence[str]) -> int:
    """So many of them that the others are no majority."""
    return len(members) - majority(members) + 1


def _settled(view: View) -> View:
    return View(view.number, view.members)


def _same(one: View | None, other: View) -> bool:
    """Whether they are the same but for `before`, which is gone when one is known to be settled."""
    return one is not None and (one.number, one.members) == (other.number, other.members)
