"""Who is at the other end of each link, and does the link work both ways?

Every hello interval a node sends a Hello over each of its links and says what it hears there. A
link is **up** when both ends hear each other:

    down  --hello that hears this life of ours-->  up
    up    --hello that does not hear us, or none for 2.75 intervals-->  down

So a cut in one direction takes the link down at both ends: one stops hearing, the other is told.
One lost packet must not: after one and a half intervals of silence hellos are sent that ask for an
answer at once, so that a lossy link has five chances before the sixth silence counts.

Hellos carry timestamps. A hello that echoes one of ours completes a clock probe: ours was sent at
t1 (our clock), came at t2, the answer was sent at t3 (their clock), came at t4 (ours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psirp_sim.runtime.environment import Environment
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.control import Hello, ReportedLink
from traces import Stage, TraceEvent


@dataclass(slots=True)
class Neighbour:
    """What is known about the other end of a link."""

    node: str
    link: str
    boot: int
    heard: int
    """When the last hello came, by our monotonic clock."""
    sent: int
    """t1 of the next echo: their wall clock when they sent it."""
    came: int
    """t2 of the next echo: our wall clock when it came."""
    id_version: str = ""
    up: bool = False
    hears_us: bool = False


class Neighbours:
    """The hello protocol of one node."""

    def __init__(
        self,
        env: Environment,
        settings: FabricSettings,
        boot: int,
        *,
        domain: str,
        state: Callable[[], bytes],
        send: Callable[[str, Hello], None],
        changed: Callable[[], None],
    ) -> None:
        """`state` is the digest to announce, `changed` is called when a link goes up or down."""
        self._env = env
        self._settings = settings
        self.boot = boot
        self._domain = domain
        self._state = state
        self._send = send
        self._changed = changed
        self._known: dict[str, Neighbour] = {}
        self._answered: dict[str, int] = {}

    def start(self) -> None:
        """Begin with a hello at once, so that a new link is up after one round trip."""
        self._greet()
        self._probe()

    @property
    def links(self) -> dict[str, Neighbour]:
        """By link, whoever was heard there; `up` says whether the link works."""
        return self._known

    def name_of(self, link: str) -> str | None:
        """The node at the other end; None before it was heard."""
        return self.links[link].node if link in self.links else None

    def up(self) -> Iterator[str]:
        """The links that work both ways."""
        return (link for link, neighbour in self._known.items() if neighbour.up)

    def reported(self) -> list[ReportedLink]:
        """The links that are up, for the link state."""
        return [
            ReportedLink(link, neighbour.node, neighbour.link)
            for link, neighbour in sorted(self._known.items())
            if neighbour.up
        ]

    def receive(self, link: str, hello: Hello) -> None:
        """A hello came over that link."""
        env = self._env
        if (hello.node, hello.boot) == (env.node, self.boot):
            return  # the link leads back to ourselves
        now, wall = env.now(), env.wall()
        known = self._known.get(link)
        if known is None or (known.node, known.link) != (hello.node, hello.link):
            known = Neighbour(hello.node, hello.link, hello.boot, now, hello.sent, wall)
            self._take_down(link)
            self._known[link] = known
        elif (hello.boot, hello.sent) <= (known.boot, known.sent):
            return  # from an earlier life of the neighbour, overtaken, or played back
        known.boot, known.heard, known.sent, known.came = hello.boot, now, hello.sent, wall
        self._note_id_version(link, known, hello.id_version)
        known.hears_us = hello.hears == (env.node, link, self.boot)
        if known.hears_us != known.up:
            self._set_up(link, known, known.hears_us)
        if hello.echo is not None and known.hears_us:
            self._clock_probe(known.node, hello.echo, hello.sent, wall)
        if hello.answer or not known.hears_us:
            self._answer(link)

    def _note_id_version(self, link: str, known: Neighbour, id_version: str) -> None:
        ours = self._settings.id_version
        if id_version not in (known.id_version, ours):
            # Not a fault: topics whose zone is the same in both lists have the same ids.
            self._env.log("neighbour.id_version", link=link, theirs=id_version, ours=ours)
        known.id_version = id_version

    def _answer(self, link: str) -> None:
        # At most a few a hello interval: two nodes must not answer each other for ever.
        now = self._env.now()
        if now - self._answered.get(link, -self._settings.hello_interval) >= (
            self._settings.hello_interval // 8
        ):
            self._answered[link] = now
            self._say(link)

    def _greet(self) -> None:
        for link in self._env.links:
            self._say(link)
        self._env.call_later(self._settings.hello_interval, self._greet)

    def _probe(self) -> None:
        """Eight times a hello interval: ask the silent, and give up on those silent too long."""
        now = self._env.now()
        interval = self._settings.hello_interval
        for link, neighbour in list(self._known.items()):
            silence = now - neighbour.heard
            if silence >= interval * 11 // 4 or link not in self._env.links:
                self._take_down(link)
            elif neighbour.up and silence >= interval * 3 // 2:
                self._say(link, answer=True)
        for link in self._answered.keys() - self._env.links.keys():
            del self._answered[link]
        self._env.call_later(interval // 8, self._probe)

    def _say(self, link: str, answer: bool = False) -> None:
        known = self._known.get(link)
        fresh = known is not None and (
            self._env.now() - known.heard < self._settings.hello_interval * 11 // 4
        )
        heard = known if fresh else None
        self._send(
            link,
            Hello(
                node=self._env.node,
                link=link,
                boot=self.boot,
                hears=None if heard is None else (heard.node, heard.link, heard.boot),
                sent=self._env.wall(),
                echo=None if heard is None else (heard.sent, heard.came),
                state=self._state(),
                id_version=self._settings.id_version,
                answer=answer,
            ),
        )

    def _take_down(self, link: str) -> None:
        neighbour = self._known.pop(link, None)
        if neighbour is not None and neighbour.up:
            self._set_up(link, neighbour, False)

    def _set_up(self, link: str, neighbour: Neighbour, up: bool) -> None:
        neighbour.up = up
        self._env.log("link.up" if up else "link.down", link=link, neighbour=neighbour.node)
        self._changed()

    def _clock_probe(self, peer: str, echo: tuple[int, int], sent: int, came: int) -> None:
        t1, t2 = echo
        self._env.trace.emit(
            TraceEvent(
                stage=Stage.CLOCK_PROBE,
                node=self._env.node,
                domain=self._domain,
                wall_ns=came,
                mono_ns=self._env.now(),
                peer=peer,
                t1=t1,
                t2=t2,
                t3=sent,
                t4=came,
            )
        )
