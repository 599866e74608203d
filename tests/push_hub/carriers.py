"""A carrier written by hand: it notes what the hub tells it, and says what a test wants."""

from __future__ import annotations

import asyncio

from push_hub.errors import Refused


class NotedCarrier:
    """`refusals` and `carried` are by canonical form; `gate` holds up whoever is to be admitted."""

    def __init__(self):
        self.admissions = []
        self.readers = {}
        self.history = []
        self.refusals = {}
        self.carried = {}
        self.gate = None
        self.error = None
        self.complete = False
        self.questions = []
        self.elsewhere = []
        self.recall_gate = None
        self.recall_error = None

    async def admit(self, topic, subscriber):
        self.admissions.append((topic.canonical, subscriber))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        if topic.canonical in self.refusals:
            raise Refused(self.refusals[topic.canonical])

    def joined(self, topic, subscriber, until):
        self.history.append(("joined", topic.canonical, subscriber))
        self.readers[topic.canonical, subscriber] = until

    def left(self, topic, subscriber):
        self.history.append(("left", topic.canonical, subscriber))
        self.readers.pop((topic.canonical, subscriber), None)

    def told(self):
        self.complete = True

    def brings(self, topic):
        return self.carried.get(topic.canonical)

    def pinged(self, topic):
        self.history.append(("pinged", topic.canonical))

    async def recall(self, topic, after, before):
        """Of `elsewhere`, what lies in between; at most 64, as a page."""
        self.questions.append((topic.canonical, after, before))
        if self.recall_gate is not None:
            await self.recall_gate.wait()
        if self.recall_error is not None:
            raise self.recall_error
        found = [
            each
            for each in self.elsewhere
            if each.position.publisher == after.publisher
            and each.position > after
            and (before is None or each.position < before)
        ]
        return found[:64]

    def hold(self):
        """Whoever is to be admitted waits until the gate is opened."""
        self.gate = asyncio.Event()
        return self.gate
