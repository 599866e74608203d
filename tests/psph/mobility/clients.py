"""Clients that move among the places of a test."""

from __future__ import annotations

from mobility import Update
from mobility.messages import encode, read
from psph.mobility.roamer import Roamer
from tests.psph.mobility.places import TOPIC


class Reader(Roamer):
    """A roamer that notes what it consumed."""

    def __init__(self, **options):
        self.seen, self.gaps, self.notices = [], [], []
        super().__init__([TOPIC], consume=self.note, notice=self.notices.append, **options)

    def note(self, event):
        if isinstance(event, Update):
            self.seen.append(int(event.message.body))
        else:
            self.gaps.append(event)


class Plain:
    """Speaks to a proxy as its documentation says, without the client library."""

    def __init__(self, session, url, word="w" * 22):
        self.session, self.url, self.word = session, url, word

    async def __aenter__(self):
        self.stream = await self.session.get(
            f"{self.url}/mobility/stream", params={"session": self.word}
        )
        assert self.stream.status == 200
        return self

    async def __aexit__(self, *_):
        self.stream.close()

    async def ask(self, question):
        async with self.session.post(
            f"{self.url}/mobility/messages",
            params={"session": self.word},
            data=encode(question, json=True),
        ) as answer:
            assert answer.status == 202, await answer.text()
        async for line in self.stream.content:
            if line.startswith(b'data: {"type"'):
                return read(line.removeprefix(b"data: ").strip())
        raise AssertionError("the stream ended")
