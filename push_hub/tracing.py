"""The hub's trace events: one method for each stage it writes."""

from __future__ import annotations

import time

from push_hub.store.records import Update
from traces import NullSink, Stage, TraceEvent, TraceSink


class Tracer:
    """Fills in what all events of a hub share."""

    def __init__(self, sink: TraceSink, node: str, domain: str) -> None:
        self._sink = sink
        self._node = node
        self._domain = domain
        self._silent = isinstance(sink, NullSink)

    def ping_received(self, topic: str, trace_id: str) -> None:
        """A publisher's ping arrived."""
        self._emit(Stage.PING_RECEIVED, topic=topic, trace_id=trace_id)

    def fetched(self, update: Update) -> None:
        """Something new was recorded."""
        self._of_update(Stage.FETCHED, update)

    def nothing_fetched(self, topic: str, trace_id: str, reason: str) -> None:
        """A fetch failed or found nothing new."""
        self._emit(Stage.FETCHED, topic=topic, trace_id=trace_id, reason=reason)

    def pushed(self, update: Update, subscriber: str, reason: str | None) -> None:
        """An attempt to deliver ended."""
        self._of_update(Stage.PUSHED, update, subscriber=subscriber, reason=reason)

    def browser_sent(self, update: Update, subscriber: str) -> None:
        """An update was handed to a stream."""
        self._of_update(Stage.BROWSER_SENT, update, subscriber=subscriber)

    def subscribed(self, topic: str, subscriber: str) -> None:
        """A subscription took effect."""
        self._emit(Stage.SUBSCRIBED, topic=topic, subscriber=subscriber)

    def unsubscribed(self, topic: str, subscriber: str, reason: str | None) -> None:
        """A subscription ended."""
        self._emit(Stage.UNSUBSCRIBED, topic=topic, subscriber=subscriber, reason=reason)

    def _of_update(
        self,
        stage: Stage,
        update: Update,
        subscriber: str | None = None,
        reason: str | None = None,
    ) -> None:
        if self._silent:
            return  # a fan-out would make thousands of events for nobody
        position = update.position
        self._emit(
            stage,
            topic=update.topic,
            trace_id=update.trace_id,
            publisher=position.publisher.raw,
            epoch=position.epoch,
            version=position.version,
            size=len(update.body),
            subscriber=subscriber,
            reason=reason,
        )

    def _emit(
        self,
        stage: Stage,
        *,
        topic: str,
        trace_id: str | None = None,
        publisher: bytes | None = None,
        epoch: int | None = None,
        version: int | None = None,
        size: int | None = None,
        subscriber: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._sink.emit(
            TraceEvent(
                stage=stage,
                node=self._node,
                domain=self._domain,
                wall_ns=time.time_ns(),
                mono_ns=time.monotonic_ns(),
                topic=topic,
                trace_id=trace_id,
                publisher=publisher,
                epoch=epoch,
                version=version,
                bytes=size,
                subscriber=subscriber,
                reason=reason,
            )
        )
