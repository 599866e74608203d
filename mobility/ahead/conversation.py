"""The conversation of a proxy with others of its kind: passes, lines, and who is heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mobility.ahead.lines import Line
from mobility.ahead.passes import Passes
from mobility.ahead.settings import AheadSettings
from mobility.ahead.words import (
    AnyChange,
    AnyReply,
    AnyWord,
    Contexts,
    Greet,
    Held,
    Noted,
    Pass,
    Rejected,
    Word,
    encode,
    read,
)
from mobility.calls import Send
from mobility.messages import MalformedMessage
from psirp_sim.runtime.environment import Environment


class Hears(Protocol):
    """Who has the conversation."""

    @property
    def table(self) -> tuple[str, ...]:
        """The proxy's neighbours."""

    def change(self, word: Contexts) -> Held:
        """Changes of a proxy that has shown its pass; what is to be answered once what was
        written is durable."""

    def answered(self, name: str, changes: list[AnyChange], held: Held) -> None:
        """A neighbour knows of these changes."""

    def gave_up(self, name: str) -> None:
        """It does not answer."""


class Conversation:
    """Of one proxy, with all others."""

    def __init__(
        self,
        env: Environment,
        name: str,
        send: Send,
        settings: AheadSettings,
        knows: Callable[[str], bool],
        counters: dict[str, int],
        proxy: Hears,
    ) -> None:
        self.env = env
        self.name = name
        self.settings = settings
        self.proxy = proxy
        self.passes = Passes(env, settings.key)
        self.lines: dict[str, Line] = {}
        """By name; one that has nothing to say is cleared now and then."""
        self._send = send
        self._knows = knows
        self._counters = counters
        self._call = env.random.randrange(1, 1 << 48) if settings.on else 0

    def line(self, name: str) -> Line:
        """To that proxy."""
        if name not in self.lines:
            self.lines[name] = Line(self, name)
        return self.lines[name]

    def close(self) -> None:
        """Say nothing more."""
        for line in self.lines.values():
            line.close()

    def clear(self) -> None:
        """Forget lines that have nothing to say."""
        for name, line in list(self.lines.items()):
            if not len(line):
                line.close()
                del self.lines[name]
                if name not in self.proxy.table:
                    self.passes.forget(name)

    # What lines need

    def number(self) -> int:
        """For the next word."""
        self._call += 1
        return self._call

    def say(self, name: str, word: AnyWord) -> None:
        """Send it once."""
        self._tell(name, encode(word))

    # What others say

    def receive(self, peer: str, packet: bytes) -> bool:
        """A word of another proxy, or its answer to one; False when it is neither."""
        try:
            said = read(packet)
        except MalformedMessage:
            return False
        if not isinstance(said, Word):
            if peer in self.lines:
                self.lines[peer].reply(said)
        elif said.proxy == self.name or not self._knows(said.proxy):
            self._answer(peer, Rejected(call=said.call))
        elif isinstance(said, Greet):
            self._answer(peer, Noted(call=said.call))
            self._give_pass(said)
        elif isinstance(said, Pass):
            self._answer(peer, Noted(call=said.call))
            if self.passes.take(said.proxy, said.challenge, said.token):
                self.line(said.proxy).passed()
        elif self.passes.admits(said.proxy, said.token):
            held = self.proxy.change(said)
            # Batches become durable in order: this one after whatever was written before.
            self.env.storage.write({}, lambda: self._answer(peer, held))
        else:
            self._counters["wrong_passes"] += 1
            self._answer(peer, Rejected(call=said.call))
        return True

    def _give_pass(self, greeting: Greet) -> None:
        name = greeting.proxy
        answer = Pass(
            call=self.number(),
            proxy=self.name,
            challenge=greeting.challenge,
            token=self.passes.give(name),
        )
        # To the name, never to where the greeting came from: that is the whole proof.
        self.say(name, answer)

    def _answer(self, peer: str, reply: AnyReply) -> None:
        self._tell(peer, encode(reply))

    def _tell(self, peer: str, packet: bytes) -> None:
        self._counters["words_sent"] += 1
        self._counters["word_bytes_sent"] += len(packet)
        self._send(peer, packet)
