"""Questions that a proxy passes on to another one, and the answers on their way back.

Nothing is kept of either: a client that gets no answer asks again.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from mobility.calls import Send
from mobility.messages import AnyAnswer, Fetch, Release, encode
from psirp_sim.runtime.environment import Environment, Timer


class Asker(NamedTuple):
    """Who waits for an answer, to which call, in which form."""

    peer: str
    call: int
    json: bool


class Relays:
    """What one proxy has passed on and not brought back yet."""

    def __init__(self, env: Environment, send: Send, most: int, patience: int) -> None:
        self._env = env
        self._send = send
        self._most = most
        self._patience = patience
        self._open: dict[int, tuple[Asker, Fetch | Release, Timer]] = {}
        self._next = env.random.randrange(1, 1 << 48)

    @property
    def full(self) -> bool:
        return len(self._open) >= self._most

    def pass_on(self, asker: Asker, question: Fetch | Release) -> None:
        """To the proxy that the question names, under a number of its own."""
        self._next += 1
        number = self._next
        timer = self._env.call_later(self._patience, self._give_up, number)
        self._open[number] = (asker, question, timer)
        self._send(question.proxy, encode(replace(question, call=number)))

    def bring_back(self, answer: AnyAnswer) -> Fetch | Release | None:
        """To who asked, if that is known still; the question."""
        found = self._open.pop(answer.call, None)
        if found is None:
            return None
        asker, question, timer = found
        timer.cancel()
        self._send(asker.peer, encode(replace(answer, call=asker.call), json=asker.json))
        return question

    def _give_up(self, number: int) -> None:
        del self._open[number]
