"""Who is connected to the mobility proxy over HTTP, and what waits to be sent to them.

A session is a word that the client made up; whoever knows it gets what is sent to it. Answers may
be lost on the way, as the cores expect: a session that reads too slowly loses them first.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Callable

from mobility.messages import is_json

PEER = "session:"
LARGEST_QUEUE = 4 << 20
"""Bytes that wait for one session; one message is taken whatever its size."""


class Session:
    """One client, or a few that share a connection."""

    def __init__(self, word: str, address: str) -> None:
        self.word = word
        self.address = address
        self.clients: set[str] = set()
        """Who spoke through it: client ids."""
        self.ended = asyncio.Event()
        """Set for the stream that serves it now, when another takes over or the server stops."""
        self.streaming = False
        self.timer: asyncio.TimerHandle | None = None
        """Until it is over, while nobody reads its stream."""
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._filled = asyncio.Event()

    def put(self, packet: bytes) -> bool:
        """Queue a message; False when it is lost because too much waits."""
        if self._queue and self._size + len(packet) > LARGEST_QUEUE:
            return False
        self._queue.append(packet)
        self._size += len(packet)
        self._filled.set()
        return True

    async def get(self) -> bytes:
        """The next one."""
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()
        packet = self._queue.popleft()
        self._size -= len(packet)
        return packet


class Sessions:
    """All of them."""

    def __init__(self, most: int, most_of_address: int, grace: float) -> None:
        """`grace`: seconds that a session outlives its stream."""
        self._most = most
        self._most_of_address = most_of_address
        self._grace = grace
        self._sessions: dict[str, Session] = {}
        self._of_address: dict[str, int] = {}
        self.lost: Callable[[Session], None] = lambda session: None
        """Called when a session is over."""
        self.refused = self.dropped = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, word: str, address: str) -> Session | None:
        """The session of that word, made if need be; None when there are too many."""
        session = self._sessions.get(word)
        if session is None:
            held = self._of_address.get(address, 0)
            if len(self._sessions) >= self._most or held >= self._most_of_address:
                self.refused += 1
                return None
            session = self._sessions[word] = Session(word, address)
            self._of_address[address] = held + 1
            self._expect(session)
        return session

    def send(self, peer: str, packet: bytes) -> None:
        """To the session of that peer; lost when it is over."""
        session = self._sessions.get(peer.removeprefix(PEER))
        if session is not None and not session.put(packet):
            self.dropped += 1

    def begin(self, session: Session) -> asyncio.Event:
        """A stream begins to serve it, in the place of any other; set when this one is to end."""
        session.ended.set()
        session.ended = asyncio.Event()
        session.streaming = True
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        return session.ended

    def end(self, session: Session, began: asyncio.Event) -> None:
        """The stream that began so has ended: the client may come back soon."""
        if session.ended is began:
            session.streaming = False
            self._expect(session)

    def close(self) -> None:
        """End all streams."""
        for session in self._sessions.values():
            session.ended.set()

    def _expect(self, session: Session) -> None:
        if session.timer is not None:
            session.timer.cancel()
        session.timer = asyncio.get_running_loop().call_later(self._grace, self._over, session)

    def _over(self, session: Session) -> None:
        if self._sessions.get(session.word) is session:
            del self._sessions[session.word]
            held = self._of_address[session.address] - 1
            if held:
                self._of_address[session.address] = held
            else:
                del self._of_address[session.address]
            self.lost(session)


def as_event(packet: bytes) -> bytes:
    """A message as a Server-Sent Event: JSON as it is, MessagePack in base64."""
    if is_json(packet):
        return b"event: mobility\ndata: " + packet + b"\n\n"
    return b"event: packed\ndata: " + base64.b64encode(packet) + b"\n\n"
