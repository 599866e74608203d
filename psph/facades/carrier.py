"""The proxy as its hub sees it: somebody who brings topics from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from identifiers import Position, Topic
from psirp_sim.runtime.durations import SECOND
from psph.proxy.inflow import State
from psph.proxy.ports import WebUpdate
from psph.proxy.proxy import Proxy
from push_hub.carrier import Recalled
from push_hub.errors import Refused

ADMISSION = "admission"
_ADMITTED = 60
"""Seconds for which a topic is wanted because somebody was admitted to it who has neither joined
nor left yet; long enough for their callback to confirm."""

_RECALL_PATIENCE = 18.0
"""Seconds for versions to come once more over the fabric; less than the hub waits for."""


class ProxyCarrier:
    """Implements `push_hub.carrier.Carrier`."""

    def __init__(self, proxy: Proxy, patience: float) -> None:
        """Nobody waits longer than `patience` seconds to be admitted: a subscription to a topic
        whose proxy cannot be reached stands, and begins when it can."""
        self._proxy = proxy
        self._patience = patience

    async def admit(self, topic: Topic, subscriber: str) -> None:
        decided: asyncio.Future[tuple[State, str]] = asyncio.get_running_loop().create_future()

        def ready(state: State, note: str) -> None:
            if not decided.done():
                decided.set_result((state, note))

        until = self._proxy.env.wall() + _ADMITTED * SECOND
        self._proxy.want(topic, ADMISSION, until)
        self._proxy.when_ready(topic, ready)
        try:
            async with asyncio.timeout(self._patience):
                state, note = await decided
        except TimeoutError:
            return
        if state is State.REFUSED:
            self._proxy.leave(topic, ADMISSION)
            raise Refused(note)

    def joined(self, topic: Topic, subscriber: str, until: float | None) -> None:
        self._proxy.want(topic, subscriber, None if until is None else int(until * SECOND))
        self._proxy.leave(topic, ADMISSION)

    def left(self, topic: Topic, subscriber: str) -> None:
        self._proxy.leave(topic, subscriber)
        # Others may be admitted and not have joined yet: the chain lingers, and they resume.
        self._proxy.leave(topic, ADMISSION)

    def told(self) -> None:
        self._proxy.confirmed()

    def brings(self, topic: Topic) -> str | None:
        return self._proxy.brings(topic)

    def pinged(self, topic: Topic) -> None:
        self._proxy.pinged(topic)

    async def recall(
        self, topic: Topic, after: Position, before: Position | None
    ) -> Sequence[Recalled]:
        answered: asyncio.Future[Sequence[WebUpdate]]
        answered = asyncio.get_running_loop().create_future()

        def reply(updates: Sequence[WebUpdate]) -> None:
            if not answered.done():
                answered.set_result(updates)

        self._proxy.recall(topic, after, before, reply)
        try:
            async with asyncio.timeout(_RECALL_PATIENCE):
                found = await answered
        except TimeoutError:
            return ()
        return [
            Recalled(each.position, each.content_type, each.body, each.trace_id) for each in found
        ]
