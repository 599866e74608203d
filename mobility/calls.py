"""Questions that are repeated until they are answered. A client's side of every exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mobility.messages import AnyAnswer, AnyQuestion, encode
from psirp_sim.runtime.environment import Environment, Timer

Send = Callable[[str, bytes], None]
"""Hands bytes to the peer of that name; they may be lost, doubled, late and out of order."""
Answered = Callable[[AnyAnswer], None]


@dataclass(slots=True)
class _Call:
    peer: str
    content: bytes
    answered: Answered
    retry: int
    timer: Timer | None = None


class Calls:
    """The open questions of one client."""

    def __init__(self, env: Environment, send: Send, first: int, most: int, json: bool) -> None:
        self._env = env
        self._send = send
        self._first = first
        self._most = most
        self._json = json
        self._next = 0
        self._open: dict[int, _Call] = {}
        self.repeated = 0

    def ask(self, peer: str, question: Callable[[int], AnyQuestion], answered: Answered) -> int:
        """Send what `question` makes of the number of this call until an answer to it comes."""
        # A client that died may have left answers under way to numbers of its former life.
        self._next = self._next + 1 if self._next else self._env.random.randrange(1, 1 << 48)
        number = self._next
        content = encode(question(number), json=self._json)
        self._open[number] = _Call(peer, content, answered, self._first)
        self._transmit(number)
        return number

    def answer(self, message: AnyAnswer) -> bool:
        """Pass an answer to who waits for it; False when nobody does."""
        call = self._open.pop(message.call, None)
        if call is None:
            return False
        if call.timer is not None:
            call.timer.cancel()
        call.answered(message)
        return True

    def drop(self, number: int) -> None:
        """The answer is not wanted any more."""
        call = self._open.pop(number, None)
        if call is not None and call.timer is not None:
            call.timer.cancel()

    def drop_all(self) -> None:
        """No answer is."""
        for number in list(self._open):
            self.drop(number)

    def _transmit(self, number: int) -> None:
        call = self._open[number]
        self._send(call.peer, call.content)
        # Jitter keeps many clients that lost one proxy from coming back in step.
        delay = call.retry + self._env.random.randrange(call.retry // 4 + 1)
        call.timer = self._env.call_later(delay, self._repeat, number)

    def _repeat(self, number: int) -> None:
        call = self._open[number]
        call.retry = min(2 * call.retry, self._most)
        self.repeated += 1
        self._transmit(number)
