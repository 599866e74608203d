"""The hub's side of its carrier: asked once for all who wait, told of everybody, never in the way.

Without a carrier every question has the answer of a hub that stands alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from identifiers import InvalidTopic, Position, Topic
from push_hub.carrier import Carrier, Recalled
from push_hub.errors import BadRequest, Refused, StoreError
from push_hub.masking import masked_topic
from push_hub.naming import Naming, is_web
from push_hub.store.interface import Store
from push_hub.store.records import Active
from traces import LogEvent

_log = logging.getLogger(__name__)

_STORE_PAUSE = 1.0
_PAGE = 500
SENT_HERE = "whoever publishes it sends it here: it is no page of the web"
_SHARE = 1
"""Of the time it takes to tell a page, so many times as long is left to everybody else."""
_RECALLS = 8
"""Ranges of versions that the carrier is asked for at the same time."""
_STRANGE_RECALLS = 2
"""Likewise, of publishers that this hub knows nothing of: anybody can make one up."""


class Carrying:
    """One carrier, or none."""

    def __init__(self, naming: Naming, patience: float, recall_patience: float = 20.0) -> None:
        self._naming = naming
        self._patience = patience
        self._recall_patience = recall_patience
        self._recalls = asyncio.Semaphore(_RECALLS)
        self._strange_recalls = asyncio.Semaphore(_STRANGE_RECALLS)
        self._carrier: Carrier | None = None
        self._admissions: dict[str, asyncio.Task[str | None]] = {}
        self._changed: set[tuple[str, str]] | None = None
        """Subscriptions that joined or left while the stored ones are told: theirs is the word."""

    @property
    def present(self) -> bool:
        """Whether there is a carrier at all."""
        return self._carrier is not None

    def use(self, carrier: Carrier) -> None:
        """From now on; a hub has one carrier for as long as it runs."""
        if self._carrier is not None:
            raise RuntimeError("this hub has a carrier already")
        self._carrier = carrier

    async def stop(self) -> None:
        """Nobody waits any more."""
        admissions = tuple(self._admissions.values())
        for admission in admissions:
            admission.cancel()
        await asyncio.gather(*admissions, return_exceptions=True)

    async def admit(self, topic: Topic, subscriber: str) -> None:
        """Returns when the carrier is ready for the topic, or cannot say; raises Refused."""
        if self._carrier is None:
            return
        admission = self._admissions.get(topic.canonical)
        if admission is None:
            admission = asyncio.create_task(self._admit(self._carrier, topic, subscriber))
            self._admissions[topic.canonical] = admission
            admission.add_done_callback(lambda _: self._admissions.pop(topic.canonical, None))
        # Shielded: one who gives up must not take the others along.
        reason = await asyncio.shield(admission)
        if reason is not None:
            raise Refused(reason)

    async def _admit(self, carrier: Carrier, topic: Topic, subscriber: str) -> str | None:
        """Why not; None to go on."""
        try:
            async with asyncio.timeout(self._patience):
                await carrier.admit(topic, subscriber)
        except Refused as refusal:
            return str(refusal) or "refused"
        except TimeoutError:
            told = masked_topic(topic.canonical)
            _log.warning(LogEvent("carrier.late", call="admit", topic=told, seconds=self._patience))
        except Exception:
            self._failed("admit", topic)
        return None

    async def recall(
        self, topic: Topic, after: Position, before: Position | None
    ) -> Sequence[Recalled]:
        """What the carrier can bring once more; nothing when it cannot say in time."""
        if self._carrier is None:
            return ()
        slots = self._strange_recalls if before is None else self._recalls
        try:
            async with asyncio.timeout(self._recall_patience), slots:
                return await self._carrier.recall(topic, after, before)
        except TimeoutError:
            _log.warning(
                LogEvent(
                    "carrier.late", call="recall", topic=masked_topic(topic.canonical),
                    seconds=self._recall_patience, after=after, before=before,
                )
            )  # fmt: skip
        except Exception:
            self._failed("recall", topic)
        return ()

    def brings(self, topic: Topic) -> str | None:
        """The carrier's words for how it brings the topic; None when it does not, and the hub has
        to fetch it."""
        if not is_web(topic):
            return SENT_HERE
        if self._carrier is None:
            return None
        try:
            return self._carrier.brings(topic) or None
        except Exception:
            self._failed("brings", topic)
            return None

    def pinged(self, topic: Topic) -> None:
        """Tell that a topic it brings was pinged here."""
        if self._carrier is None:
            return
        try:
            self._carrier.pinged(topic)
        except Exception:
            self._failed("pinged", topic)

    def joined(self, topic: Topic, subscriber: str, until: float | None) -> None:
        """Tell that somebody reads the topic."""
        if self._carrier is None:
            return
        try:
            self._carrier.joined(topic, subscriber, until)
        except Exception:
            self._failed("joined", topic)

    def left(self, topic: Topic, subscriber: str) -> None:
        """Tell that somebody does not any more."""
        if self._carrier is None:
            return
        try:
            self._carrier.left(topic, subscriber)
        except Exception:
            self._failed("left", topic)

    @staticmethod
    def _failed(call: str, topic: Topic) -> None:
        """To be called while its exception is handled: a carrier must not stop the hub."""
        _log.exception(LogEvent("carrier.failed", call=call, topic=masked_topic(topic.canonical)))

    def subscribed(self, spelling: str, callback: str, until: float | None) -> None:
        """A subscription is active, until then."""
        if self._carrier is not None and (topic := self._topic(spelling)) is not None:
            self._note(spelling, callback)
            self.joined(topic, subscriber_name(topic, callback), until)

    def unsubscribed(self, spelling: str, callback: str) -> None:
        """A subscription is not active any more, or did not become so."""
        if self._carrier is not None and (topic := self._topic(spelling)) is not None:
            self._note(spelling, callback)
            self.left(topic, subscriber_name(topic, callback))

    async def admit_callback(self, spelling: str, callback: str) -> None:
        """Like `admit`, for a subscription as the store keeps it."""
        if self._carrier is not None and (topic := self._topic(spelling)) is not None:
            await self.admit(topic, subscriber_name(topic, callback))

    async def tell(self, store: Store) -> None:
        """Tell a new carrier of all subscriptions in the store, a page at a time."""
        self._changed = set()
        last = count = 0
        try:
            while page := await self._page(store, last):
                began = time.monotonic()
                last = page[-1].id
                for each in page:
                    topic = self._topic(each.topic)
                    if topic is not None and (each.topic, each.callback) not in self._changed:
                        name = subscriber_name(topic, each.callback)
                        self.joined(topic, name, each.expires_at)
                count += len(page)
                await asyncio.sleep(_SHARE * (time.monotonic() - began))
        finally:
            self._changed = None
        if self._carrier is not None:
            try:
                self._carrier.told()
            except Exception:
                _log.exception(LogEvent("carrier.failed", call="told"))
        _log.info(LogEvent("carrier.told", subscriptions=count))

    async def _page(self, store: Store, after: int) -> list[Active]:
        while True:
            try:
                return await store.active(after=after, limit=_PAGE)
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
                await asyncio.sleep(_STORE_PAUSE)

    def _note(self, spelling: str, callback: str) -> None:
        if self._changed is not None:
            self._changed.add((spelling, callback))

    def _topic(self, spelling: str) -> Topic | None:
        try:
            return self._naming.topic(spelling)
        except (InvalidTopic, BadRequest):
            return None  # stored when the hub had another public URL


def subscriber_name(topic: Topic, callback: str) -> str:
    """A name that no other subscription to the topic has."""
    return callback if topic.spelling == topic.canonical else f"{callback} as {topic.spelling}"
