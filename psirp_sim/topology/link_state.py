"""Every node's picture of the fabric: link state, flooded and kept equal between neighbours.

A node tells the fabric which of its links are up. News is flooded over all links that are up;
what a flood missed is repaired by comparison: hellos carry a digest of the database, neighbours
whose digests differ exchange summaries and send each other what is newer. A node that was
restarted or cut off learns everything the same way.

What an origin has not repeated for four refresh intervals is forgotten; link state carries its
age, so that it cannot live on by being passed to and fro. An origin that finds
link state of its own from an earlier life that is newer than what it says now takes a higher
sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
from blake3 import blake3

from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.settings import FabricSettings
from psirp_sim.topology.graph import Edge, Graph
from psirp_sim.wire.control import LinkState, Rank, ReportedLink, Summary, Wanted
from psirp_sim.wire.message import Message

SUMMARY_ENTRIES = 30
"""Origins in one summary; about what a packet holds."""
MOST_ORIGINS = 20_000
"""Nodes of a fabric; link state of more is ignored."""


@dataclass(slots=True)
class Entry:
    """The newest link state of an origin, and when it was said by our clock."""

    state: LinkState
    rank: Rank
    said: int


class LinkStateDatabase:
    """The link-state protocol of one node."""

    def __init__(
        self,
        env: Environment,
        settings: FabricSettings,
        boot: int,
        *,
        up: Callable[[], Iterator[str]],
        send: Callable[[str, Message], None],
        changed: Callable[[], None],
        outlived: Callable[[int], None],
    ) -> None:
        """`up` are the links to flood over; `changed` is called when the graph may have.

        `outlived` is called with the boot of an earlier life of ours that calls itself newer
        than we do: our storage was lost, and `boot` must be set to a higher one.
        """
        self._env = env
        self._settings = settings
        self.boot = boot
        self._lifetime = 4 * settings.refresh_interval
        self._up = up
        self._send = send
        self._changed = changed
        self._outlived = outlived
        self._entries: dict[str, Entry] = {}
        self._sequence = 0
        self._roles: list[str] = []
        self._links: list[ReportedLink] = []
        self._digest: bytes | None = None
        self._graph: Graph | None = None
        self._summarised: dict[str, int] = {}
        self._outdoing = False
        self._outdoings = 0
        self._outdone = (0, 0)

    def start(self) -> None:
        """Keep refreshing what we say and forgetting what nobody says any more."""
        self._env.call_later(self._settings.refresh_interval, self._refresh)

    def __contains__(self, origin: str) -> bool:
        return origin in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def roles(self, origin: str) -> list[str]:
        """What a node says it does."""
        entry = self._entries.get(origin)
        return [] if entry is None else entry.state.roles

    def boot_of(self, origin: str) -> int:
        """Which life of a node the newest link state is from; 0 for an unknown one."""
        entry = self._entries.get(origin)
        return 0 if entry is None else entry.state.boot

    @property
    def digest(self) -> bytes:
        """Equal at two nodes that know the same."""
        if self._digest is None:
            known = [(origin, *entry.rank) for origin, entry in self._entries.items()]
            self._digest = blake3(repr(sorted(known)).encode()).digest(length=8)
        return self._digest

    @property
    def graph(self) -> Graph:
        """The part of the fabric that we are connected with, as link state describes it.

        Nodes that are out of reach do not belong to it: when their link state is forgotten, at
        each node in its own time, nothing changes, and so no numbering of links does.
        """
        if self._graph is None:
            everything = Graph(
                self._entries,
                [
                    Edge(origin, link.name, link.peer, link.peer_link, link.cost)
                    for origin, entry in self._entries.items()
                    for link in entry.state.links
                ],
            )
            self._graph = Graph(everything.reachable(self._env.node), everything.edges)
        return self._graph

    def live_with_role(self, role: str) -> list[str]:
        """The nodes of that role that can be reached from here, in the order of their ids."""
        return sorted(node for node in self.graph.out if role in self.roles(node))

    # Saying

    def originate(self, roles: list[str], links: list[ReportedLink]) -> None:
        """Tell the fabric about ourselves."""
        self._roles, self._links = roles, links
        self._sequence += 1
        state = LinkState(self._env.node, self.boot, self._sequence, roles, links)
        self._store(state)
        self._flood(state, besides=None)

    def _refresh(self) -> None:
        self.originate(self._roles, self._links)
        limit = self._env.now() - self._lifetime
        silent = [
            origin
            for origin, entry in self._entries.items()
            if entry.said < limit and origin != self._env.node
        ]
        for origin in silent:
            del self._entries[origin]
        if silent:
            self._env.log("link_state.forgotten", origins=",".join(silent))
            self._forget_derived()
            self._changed()
        for link in self._summarised.keys() - self._env.links.keys():
            del self._summarised[link]
        self._env.call_later(self._settings.refresh_interval, self._refresh)

    def _flood(self, state: LinkState, besides: str | None) -> None:
        for link in self._up():
            if link != besides:
                self._send(link, state)

    # Hearing

    def receive(self, link: str, message: Message) -> None:
        """A message of this protocol came from the neighbour at that link."""
        match message:
            case LinkState():
                self._hear(link, message)
            case Summary():
                self._compare(link, message)
            case Wanted():
                for origin in message.origins:
                    self._tell(link, origin)

    def compare_digest(self, link: str, digest: bytes) -> None:
        """The neighbour's hello announced that digest."""
        if digest == self.digest:
            return
        # Half an interval's patience: a flood may just be on its way.
        now, pause = self._env.now(), self._settings.hello_interval // 2
        if now - self._summarised.get(link, -pause) < pause:
            return
        self._summarised[link] = now
        for summary in self._summaries():
            self._send(link, summary)

    def _hear(self, link: str, state: LinkState) -> None:
        if state.origin == self._env.node:
            self._hear_of_ourselves(state)
            return
        known = self._entries.get(state.origin)
        if known is None and len(self._entries) >= MOST_ORIGINS:
            return
        rank = state.rank
        if known is not None and rank <= known.rank:
            # Over a link that is not up it was perhaps played back from elsewhere: no answer.
            if rank < known.rank and link in self._up():
                self._tell(link, state.origin)
            return
        if state.age < self._lifetime // MILLISECOND:
            self._store(state)
            self._flood(state, besides=link)

    def _hear_of_ourselves(self, state: LinkState) -> None:
        said = self._entries.get(state.origin)
        if said is None or state.rank <= said.rank:
            return
        # An earlier life of ours said more than we have so far: outdo it. Each time more slowly,
        # for it may also be another node that goes by our name, and outdoes us in turn.
        self._outdone = max(self._outdone, (state.boot, state.sequence))
        if not self._outdoing:
            self._outdoing = True
            self._outdoings += 1
            self._env.log(
                "name.taken",
                by="an earlier life of this node"
                + (", or another node of its name" if self._outdoings > 1 else ""),
                times=self._outdoings,
            )
            pause = self._settings.hello_interval // 4 << min(self._outdoings - 1, 8)
            self._env.call_later(pause, self._outdo)

    def _outdo(self) -> None:
        self._outdoing = False
        boot, sequence = self._outdone
        if boot > self.boot:
            self._outlived(boot)
        else:
            self._sequence = max(self._sequence, sequence)
        self.originate(self._roles, self._links)

    def _store(self, state: LinkState) -> None:
        known = self._entries.get(state.origin)
        self._entries[state.origin] = Entry(
            state, state.rank, self._env.now() - state.age * MILLISECOND
        )
        self._digest = None
        if known is None or (known.state.roles, known.state.links, known.state.boot) != (
            state.roles,
            state.links,
            state.boot,
        ):
            self._forget_derived()
            self._changed()

    def _forget_derived(self) -> None:
        self._digest = None
        self._graph = None

    def _summaries(self) -> Iterator[Summary]:
        origins = sorted(self._entries)
        cuts = range(0, max(1, len(origins)), SUMMARY_ENTRIES)
        for start in cuts:
            chunk = origins[start : start + SUMMARY_ENTRIES]
            final = start + SUMMARY_ENTRIES >= len(origins)
            yield Summary(
                after=origins[start - 1] if start else "",
                last="" if final else chunk[-1],
                entries=[(origin, *self._entries[origin].rank) for origin in chunk],
            )

    def _compare(self, link: str, summary: Summary) -> None:
        theirs = {origin: tuple(rank) for origin, *rank in summary.entries}
        wanted = [
            origin
            for origin, rank in theirs.items()
            if origin not in self._entries or self._entries[origin].rank < rank
        ]
        if wanted:
            self._send(link, Wanted(wanted))
        for origin, entry in self._entries.items():
            covered = summary.after < origin and (not summary.last or origin <= summary.last)
            if covered and theirs.get(origin, (-1, -1, -1)) < entry.rank:
                self._tell(link, origin)

    def _tell(self, link: str, origin: str) -> None:
        entry = self._entries.get(origin)
        if entry is not None:
            age = (self._env.now() - entry.said) // MILLISECOND
            self._send(link, msgspec.structs.replace(entry.state, age=age))
