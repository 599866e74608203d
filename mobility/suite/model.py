"""The harness's own idea of what a client was promised, made from what the system published and
from what the harness did, never from what the cores say.

Each client consumes each stream from where its first subscription began: every version, once, in
order. A gap is allowed for a version only where something that was stated cost it:

* the system's history no longer had it when the client's subscription took effect, and
* **quota**: at least as many messages as are kept were published on its topic since, or
* **care**: nobody who had given his word could have kept it (`care` says who had), or
* **time to keep**: who had kept it may have given it up; then the client is told that reason.

Who unsubscribes is owed nothing more; who subscribes again begins anew.

A stream may begin later only where the system cannot say where it is and nobody had to keep what is
before; never behind something that the client itself has heard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from identifiers import Position, PublisherId
from mobility.events import Consumed, Gap, Reset, Update
from mobility.suite.care import NEVER, Care
from mobility.suite.system import SimulatedSystem, SimulatedTopic
from psirp_sim.runtime.schedules import InvariantViolated


@dataclass(slots=True)
class Ledger:
    """Of one client."""

    name: str
    system: SimulatedSystem
    care: Care
    quota: int
    newest_go: bool
    compared: bool = True
    """Not where somebody else collects in this client's name."""
    bases: dict[str, dict[PublisherId, int]] = field(default_factory=dict)
    """By topic: the latest version of each stream when its first subscription took effect."""
    effective: dict[str, int] = field(default_factory=dict)
    """By topic: when the present subscription took effect."""
    at: dict[tuple[str, PublisherId], int] = field(default_factory=dict)
    """The last version consumed of each stream."""
    heard: dict[tuple[str, PublisherId], list[tuple[int, int]]] = field(default_factory=dict)
    """When which versions came directly, of streams of which nothing had been consumed."""
    passed: dict[tuple[str, PublisherId], int] = field(default_factory=dict)
    """The last version of each stream that came directly at the present place."""
    past: dict[tuple[str, PublisherId], int] = field(default_factory=dict)
    """What had been consumed of each stream when the client unsubscribed."""
    left_at: int | None = None
    """When the client left the place where it was last live, or crashed there."""
    gaps: int = 0

    def restored(self, at: dict[tuple[str, PublisherId], int]) -> None:
        """The client crashed and came back with what its disk holds."""
        self.at = at

    # What the system does for the client

    def attached(self) -> None:
        self.effective.clear()
        self.passed.clear()

    def took_effect(self, topic: SimulatedTopic, anew: bool, now: int) -> None:
        self.effective[topic.name] = now
        if anew:
            self.bases[topic.name] = {p: len(each) for p, each in topic.streams.items()}
            self.heard = {key: came for key, came in self.heard.items() if key[0] != topic.name}
            self.care.began(topic.name, now)

    def came(self, topic: str, position: Position, now: int) -> None:
        self.passed[topic, position.publisher] = position.version
        if (topic, position.publisher) not in self.at:
            came = self.heard.setdefault((topic, position.publisher), [])
            came.append((now, position.version))

    def _heard(self, key: tuple[str, PublisherId]) -> int:
        """The first version of a stream that the client cannot have forgotten."""
        came = self.heard.get(key, [])
        return min((version for at, version in came if self.care.survived(at)), default=NEVER)

    def unsubscribed(self, topic: str) -> None:
        """The client does not want it any more, and has forgotten it."""
        self.bases.pop(topic, None)
        self.effective.pop(topic, None)
        self.past |= {key: at for key, at in self.at.items() if key[0] == topic}
        self.at = {key: at for key, at in self.at.items() if key[0] != topic}
        self.heard = {key: came for key, came in self.heard.items() if key[0] != topic}
        self.passed = {key: version for key, version in self.passed.items() if key[0] != topic}
        self.care.unsubscribed(topic)

    # What the client makes of it

    def consumed(self, event: Consumed) -> None:
        """Raises InvariantViolated when that is not what comes next."""
        if not self.compared:
            return
        if isinstance(event, Reset):
            raise InvariantViolated(f"{self.name} was told of a reset, and nobody began anew")
        if isinstance(event, Gap):
            self._gap(event)
        else:
            self._update(event)

    def _update(self, event: Update) -> None:
        position = event.position
        assert position is not None
        published = self.system.topics[event.topic].streams[position.publisher]
        key = (event.topic, position.publisher)
        at = self.at.get(key)
        if at is None:
            self._begin(key, position.version)
        elif position.version != at + 1:
            self._wrong(event.topic, f"consumed {position.version} after {at}")
        if published[position.version - 1].message != event.message:
            self._wrong(event.topic, f"consumed something else as {position.version}")
        self.at[key] = position.version

    def _gap(self, event: Gap) -> None:
        assert event.publisher is not None
        key = (event.topic, event.publisher)
        at = self.at.get(key)
        if at is None:
            self._begin(key, event.first)
        elif event.first != at + 1:
            self._wrong(event.topic, f"was told of a gap from {event.first}, and is at {at}")
        knowable = self.system.topics[event.topic].tells_base
        for version in range(event.first, event.last + 1):
            # Where only the next message shows what is missing, nobody can say why.
            expiry = "time to keep" in event.reason or not knowable
            if not self._excused(event.topic, event.publisher, version, expiry):
                self._wrong(event.topic, f"was told that {version} is missing ({event.reason})")
        self.gaps += 1
        self.at[key] = event.last

    def _begin(self, key: tuple[str, PublisherId], first: int) -> None:
        """That version is the first that the client was told anything of."""
        topic, publisher = key
        if first <= (past := self.past.get(key, 0)):
            self._wrong(topic, f"began at {first}, and had {past} before it unsubscribed")
        if first > (heard := self._heard(key)):
            self._wrong(topic, f"began at {first}, and had heard {heard}")
        base = self.bases.get(topic, {}).get(publisher, 0)
        # Perhaps nobody could have told the client that it missed the beginning of a stream.
        knowable = self.system.topics[topic].tells_base
        for missed in range(base + 1, first):
            if knowable or not self._excused(topic, publisher, missed, expiry=True):
                self._wrong(topic, f"began at {first}, subscribed at {base}")

    def _excused(self, topic: str, publisher: PublisherId, version: int, expiry: bool) -> bool:
        there = self.system.topics[topic]
        published = there.streams.get(publisher, [])
        if version > len(published):
            return False
        at = published[version - 1].at
        following = version - 1 + there.history
        lost = published[following].at if following < len(published) else NEVER
        if there.history and (lost == NEVER or lost > self.effective.get(topic, NEVER)):
            return False  # it is there still, or came with the subscription
        # Where the newest go, what was there before, perhaps consumed already, took its place.
        since = 0
        left = at if self.left_at is None else min(at, self.left_at)
        begin = self.care.unreported(left) if self.newest_go else at
        for stream in there.streams.values():
            later = sum(each.at >= begin for each in stream)
            # A replay brings one stream after the other, so what is older may come later.
            since += later + (
                min(there.history, len(stream) - later) if stream is not published else 0
            )
        if since > self.quota:
            return True
        return not self.care.kept(topic, at, lost, self.system.world.now if expiry else 0)

    def _wrong(self, topic: str, what: str) -> None:
        raise InvariantViolated(f"{self.name} on {topic}: {what}")

    @property
    def gaps_ahead(self) -> list[tuple[str, Position]]:
        """What is missing next of each stream of which something later has come directly."""
        found = []
        for (topic, publisher), passed in self.passed.items() if self.compared else ():
            there, at = self.system.topics[topic], self.at.get((topic, publisher))
            if at is None and there.tells_base:
                at = self.bases.get(topic, {}).get(publisher, 0)
            # Without a base, where a stream begins is not known at once.
            if at is not None and at < passed:
                found.append((topic, there.streams[publisher][at].position))
        return found

    def left(self, now: int) -> None:
        """The client moves, or is moving still, or is down."""
        self.left_at = now if self.left_at is None else self.left_at

    def arrived(self, now: int) -> None:
        """It is live."""
        self.left_at = None
        self.care.arrived(self.bases, now)

    def behind(self, wanted: Iterable[str]) -> str | None:
        """What the client has not consumed yet."""
        for topic in wanted if self.compared else ():
            if topic not in self.bases:
                return f"{self.name} has not begun with {topic}"
            there = self.system.topics[topic]
            for publisher, published in there.streams.items():
                key = (topic, publisher)
                at = self.at.get(key)
                if at is None:
                    if not there.tells_base and self._heard(key) == NEVER:
                        continue  # a stream that the client may never have heard of
                    at = self.bases[topic].get(publisher, 0)
                missing = range(at + 1, len(published) + 1)
                if not there.tells_base and all(
                    self._excused(topic, publisher, each, expiry=True) for each in missing
                ):
                    continue  # nobody can tell before the next one comes
                if missing:
                    return f"{self.name} has {at} of {len(published)} on {topic}"
        return None
