"""The hub of this PSPH as a pub/sub system that replays: what the mobility proxy subscribes at.

A topic is a URL. Its messages have the Positions that their hub gave them, whichever PSPH brings
them here, so a client goes on anywhere with what it has consumed elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from identifiers import InvalidTopic, Position, identify
from mobility import After, Listener, Message
from mobility.service import LONGEST_KIND
from push_hub.errors import Refused, StoreError
from push_hub.event_stream import Notice
from push_hub.hub import Hub
from push_hub.naming import is_web
from push_hub.store.records import Update
from traces import LogEvent

_log = logging.getLogger(__name__)

_AGAIN = 2.0
"""Seconds after which a stream that was refused, or was too slow, is opened again."""
NAME = "mobility"


class HubPort:
    """Implements `mobility.port.PubSub`."""

    def __init__(self, hub: Hub, history: int) -> None:
        """`history`: how many versions of a topic any hub of the fabric could bring again. With 1
        clients that are away always have a buffer here."""
        self._hub = hub
        self._history = min(history, hub.settings.history)
        self.subscriptions: set[HubSubscription] = set()

    def history(self, topic: str) -> int:
        # The hub keeps many times the bytes of a topic that a client may want to have kept.
        return self._history

    def subscribe(self, topic: str, after: After, listener: Listener) -> HubSubscription:
        subscription = HubSubscription(self._hub, topic, after, listener)
        self.subscriptions.add(subscription)
        subscription.task.add_done_callback(lambda _: self.subscriptions.discard(subscription))
        return subscription

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        """Only modes for comparison publish from a proxy, and those have no use for a hub."""

    async def stop(self) -> None:
        """No subscription is left when it returns."""
        tasks = [each.task for each in self.subscriptions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HubSubscription:
    """One topic for one listener: a stream of the hub, opened again where it went on."""

    def __init__(self, hub: Hub, topic: str, after: After, listener: Listener) -> None:
        self._hub = hub
        self._name = topic
        self._listener = listener
        self._at = None if after is None else {each.publisher: each for each in after}
        self._told = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        self.task.cancel()

    async def _run(self) -> None:
        try:
            topic = identify(self._name)
        except InvalidTopic as error:
            # Nothing will ever be published there: the subscription is as good as in effect.
            _log.info(LogEvent("subscription.refused", reason=error))
            self._listener.subscribed(self._name, None)
            return
        if not is_web(topic):
            # As for streams: conversations are for who shows a token of one who takes part.
            self._listener.subscribed(self._name, None)
            return
        while True:
            try:
                await self._hub.context.carrying.admit(topic, NAME)
                after = None if self._at is None else tuple(self._at.values())
                last = self._hub.settings.history
                stream = await self._hub.streams.open([topic], [after], NAME, last=last, whole=True)
                try:
                    async for event in stream:
                        if event is None:
                            continue
                        if event.update is not None:
                            self._deliver(event.update)
                        elif event.notice is not None:
                            self._notice(event.notice)
                        elif event.caught_up:
                            self._begin((await stream.bases())[topic.spelling])
                finally:
                    self._hub.streams.shut(stream)
            except (Refused, StoreError) as error:
                _log.info(LogEvent("subscription.postponed", host=topic.host, reason=error))
            await asyncio.sleep(_AGAIN)

    def _begin(self, base: tuple[Position, ...]) -> None:
        if self._at is None:
            self._at = {each.publisher: each for each in base}
        if not self._told:
            self._told = True
            self._listener.subscribed(self._name, base or None)

    def _deliver(self, update: Update) -> None:
        if self._at is None:
            self._at = {}
        self._at[update.position.publisher] = update.position
        message = Message(update.body, kind_of(update.content_type))
        self._listener.deliver(self._name, update.position, message)

    def _notice(self, notice: Notice) -> None:
        if notice.kind == "gap":
            after, last = notice.after, notice.resumes
            assert after is not None  # no cursor is used
            assert last is not None
            before = Position(last.publisher, last.epoch, last.version - 1)
            self._listener.gap(self._name, after.next(), before)


def kind_of(content_type: str) -> str:
    """What a client may exclude messages by: their media type."""
    return content_type.partition(";")[0].strip().lower()[:LONGEST_KIND]
