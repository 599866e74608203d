"""The line to one neighbour: what it has yet to be told, repeated until it is answered.

Of each client only the latest counts, so what is overtaken is not said any more. Few words are
under way at a time; what cannot wait (a client left) goes before what can. A neighbour that does
not answer is left alone after some tries: what it keeps lapses by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mobility.ahead.words import (
    MOST_CHANGES,
    AnyChange,
    AnyReply,
    Came,
    Contexts,
    Copy,
    Greet,
    Held,
    Mark,
    Rejected,
    encode,
)
from psirp_sim.runtime.environment import Timer

if TYPE_CHECKING:
    from mobility.ahead.conversation import Conversation

Key = tuple[str, bool]
"""Client id, and whether it is about where the client came from."""


class Line:
    """Its timer runs only while something is to be said."""

    def __init__(self, conversation: Conversation, name: str) -> None:
        self.name = name
        self._all = conversation
        self._urgent: dict[Key, AnyChange] = {}
        self._idle: dict[Key, AnyChange] = {}
        self._words: dict[int, dict[Key, AnyChange]] = {}
        """Under way, by their calls."""
        self._tries = 0
        self._timer: Timer | None = None
        self._soon: Timer | None = None

    def __len__(self) -> int:
        """Changes that the neighbour has not confirmed."""
        under_way = sum(map(len, self._words.values()))
        return len(self._urgent) + len(self._idle) + under_way

    def owe(self, change: AnyChange) -> None:
        """The neighbour is to know this; whatever it was to know of the client before is old."""
        key = (change.client, isinstance(change, Came))
        self._waive(key)
        waits = isinstance(change, Mark) or (isinstance(change, Copy) and not change.active)
        (self._idle if waits else self._urgent)[key] = change
        if self._soon is None:
            # What happens at the same moment goes into the same word.
            self._soon = self._all.env.call_later(0, self._flush)

    def waive(self, client: str) -> None:
        """The context of that client is not this proxy's affair any more."""
        self._waive((client, False))

    def _waive(self, key: Key) -> None:
        for waiting in (self._urgent, self._idle, *self._words.values()):
            waiting.pop(key, None)

    def close(self) -> None:
        """Say nothing more."""
        for timer in (self._timer, self._soon):
            if timer is not None:
                timer.cancel()
        self._timer = self._soon = None
        self._urgent.clear()
        self._idle.clear()
        self._words.clear()

    # Saying it

    def passed(self) -> None:
        """The pass came."""
        self._calm()
        self._flush()

    def _flush(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if not (self._urgent or self._idle):
            return
        token = self._all.passes.of(self.name)
        if token is None:
            if self._timer is None:
                self._greet()
            return
        while (self._urgent or self._idle) and len(self._words) < self._all.settings.window:
            changes = self._pack()
            number = self._all.number()
            self._words[number] = changes
            came = any(isinstance(change, Came) for change in changes.values())
            word = Contexts(
                call=number,
                proxy=self._all.name,
                token=token,
                changes=tuple(changes.values()),
                neighbours=self._all.proxy.table if came else (),
            )
            self._all.say(self.name, word)
        self._await()

    def _pack(self) -> dict[Key, AnyChange]:
        changes: dict[Key, AnyChange] = {}
        size = 0
        for waiting in (self._urgent, self._idle):
            for key in list(waiting):
                size += len(encode(waiting[key]))
                if changes and size > self._all.settings.word_bytes:
                    return changes
                changes[key] = waiting.pop(key)
                if len(changes) == MOST_CHANGES:
                    return changes
        return changes

    def _greet(self) -> None:
        challenge = self._all.passes.challenge(self.name)
        greeting = Greet(call=self._all.number(), proxy=self._all.name, challenge=challenge)
        self._all.say(self.name, greeting)
        self._await()

    def _await(self) -> None:
        if self._timer is None:
            settings = self._all.settings
            delay = min(settings.retry_first << self._tries, settings.retry_most)
            delay += self._all.env.random.randrange(delay // 4 + 1)
            self._timer = self._all.env.call_later(delay, self._again)

    def _calm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = None
        self._tries += 1
        self._take_back()
        if self._tries >= self._all.settings.tries:
            self._tries = 0
            self.close()
            self._all.proxy.gave_up(self.name)
        else:
            self._flush()

    def _take_back(self) -> None:
        for word in self._words.values():
            self._urgent.update(word)
        self._words.clear()

    # What comes back

    def reply(self, reply: AnyReply) -> None:
        """To one of its words, if it is."""
        word = self._words.pop(reply.call, None)
        if word is None:
            return
        self._calm()
        if isinstance(reply, Rejected):
            self._urgent.update(word)
            self._all.passes.forget(self.name)
            self._again()  # it counts as a try: two that never agree do not go on for ever
            return
        self._tries = 0
        if self._words:
            self._await()
        if isinstance(reply, Held):
            self._all.proxy.answered(self.name, list(word.values()), reply)
        self._flush()
