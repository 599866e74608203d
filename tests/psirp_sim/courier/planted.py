"""Couriers with a bug each. The fault schedules must find every one of them."""

from __future__ import annotations

from itertools import islice

from psirp_sim.courier import core
from psirp_sim.courier.core import Courier, Incoming


class NeverRepeats(Courier):
    """A lost message is lost for good."""

    def _arm(self, link):
        pass


class AcknowledgesBeforeItIsDurable(Courier):
    """A crash at the receiver loses a message that the sender has already deleted."""

    def _on_message(self, link, number, payload):
        if number == self.incoming[link].accepted + 1:
            self._acknowledge(link, number)
        super()._on_message(link, number, payload)


class TakesDuplicates(Courier):
    """A repeated or doubled message is delivered again."""

    def _on_message(self, link, number, payload):
        stream = self.incoming[link]
        stream.accepted = min(stream.accepted, number - 1)
        super()._on_message(link, number, payload)


class SkipsWhatIsMissing(Courier):
    """The message behind a lost one is delivered in its place."""

    def _on_message(self, link, number, payload):
        stream = self.incoming[link]
        stream.accepted = max(stream.accepted, number - 1) if number > stream.durable else number
        super()._on_message(link, number, payload)


class PromisesTooEarly(Courier):
    """A message counts as accepted before it is durable."""

    def post(self, link, payload, accepted=None):
        number = super().post(link, payload)
        if accepted is not None:
            accepted(number)
        return number


class AcknowledgesOneTooMany(Courier):
    """The sender deletes a message that the receiver has never seen."""

    def _acknowledge(self, link, number):
        super()._acknowledge(link, number + 1)


class ForgetsItsCursor(Courier):
    """A restarted receiver takes everything that is repeated once more, or waits for ever."""

    def _restore_incoming(self, link):
        self.incoming[link] = Incoming()


class ForgetsItsNextNumber(Courier):
    """A restarted sender gives old numbers to new messages."""

    def _restore_outgoing(self, link):
        super()._restore_outgoing(link)
        stream = self.outgoing[link]
        stream.next_number = max(stream.waiting, default=0) + 1


class ForgetsItsOutbox(Courier):
    """What waited when the sender died is never sent."""

    def _restore_outgoing(self, link):
        super()._restore_outgoing(link)
        self.outgoing[link].waiting.clear()


class KeepsQuietAboutRepeats(Courier):
    """When an acknowledgement is lost, the sender repeats for ever."""

    def _on_message(self, link, number, payload):
        if number > self.incoming[link].durable:
            super()._on_message(link, number, payload)


class WritesCursorAndEffectApart(Courier):
    """A crash between the two doubles a message."""

    def __init__(self, env, deliver):
        super().__init__(env, deliver)
        self.deliver = self._apart

        def taken(link, number, payload):
            return deliver(link, number, payload)

        self._taken = taken

    def _apart(self, link, number, payload):
        self.env.storage.write(self._taken(link, number, payload))
        return {}


class IgnoresTheWindow(Courier):
    """A slow neighbour is flooded."""

    def _transmit(self, link):
        stream = self.outgoing[link]
        for number, payload in islice(stream.waiting.items(), 10 * core.WINDOW):
            if number > stream.sent:
                stream.sent = number
                self.env.links[link].send(core._HEADER.pack(core._MESSAGE, number) + payload)
        self._arm(link)


PLANTED = [
    NeverRepeats,
    AcknowledgesBeforeItIsDurable,
    TakesDuplicates,
    SkipsWhatIsMissing,
    PromisesTooEarly,
    AcknowledgesOneTooMany,
    ForgetsItsCursor,
    ForgetsItsNextNumber,
    ForgetsItsOutbox,
    KeepsQuietAboutRepeats,
    WritesCursorAndEffectApart,
    IgnoresTheWindow,
]
