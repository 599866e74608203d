"""The life of a subscription, as a table.

A subscription is known by its key, the topic and the callback as the subscriber spelled them.
Anyone can send a request in the name of any callback, so a request changes nothing that works:
it only makes the hub ask the callback. What the callback confirms takes effect.

* PENDING: asked for, not confirmed, receives nothing.
* ACTIVE: confirmed, the lease runs. A request to unsubscribe leaves it ACTIVE until confirmed.
* RENEWING: ACTIVE, and a new subscribe request is being verified. Secret and lease are still the
  old ones; a refusal leads back to ACTIVE and to nothing else.
* EXPIRED: the lease ended. DENIED: refused by the callback, or by the hub's own rules.
  UNSUBSCRIBED: ended by the subscriber, by request or by answering 410. All three receive nothing
  and can be asked for again.

An event with no row for its state is void: a confirmation that comes too late, for example. It
changes nothing and is no error, because the callback cannot know.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a subscription stands. The value is what the store keeps."""

    NONE = "none"
    PENDING = "pending"
    ACTIVE = "active"
    RENEWING = "renewing"
    EXPIRED = "expired"
    DENIED = "denied"
    UNSUBSCRIBED = "unsubscribed"


class Event(StrEnum):
    """What can happen to a subscription."""

    SUBSCRIBE_REQUESTED = "subscribe requested"
    SUBSCRIBE_CONFIRMED = "subscribe confirmed"
    SUBSCRIBE_REFUSED = "subscribe refused"
    UNSUBSCRIBE_REQUESTED = "unsubscribe requested"
    UNSUBSCRIBE_CONFIRMED = "unsubscribe confirmed"
    UNSUBSCRIBE_REFUSED = "unsubscribe refused"
    LEASE_ENDED = "lease ended"
    GONE = "callback gone"
    DENIED = "denied by the hub"


_S, _E = State, Event

TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    _S.NONE: {
        _E.SUBSCRIBE_REQUESTED: _S.PENDING,
        _E.DENIED: _S.DENIED,
    },
    _S.PENDING: {
        _E.SUBSCRIBE_REQUESTED: _S.PENDING,
        _E.SUBSCRIBE_CONFIRMED: _S.ACTIVE,
        _E.SUBSCRIBE_REFUSED: _S.DENIED,
        _E.UNSUBSCRIBE_CONFIRMED: _S.UNSUBSCRIBED,
        # It took the place of the request to subscribe, which nobody will confirm any more.
        _E.UNSUBSCRIBE_REFUSED: _S.DENIED,
        _E.DENIED: _S.DENIED,
    },
    _S.ACTIVE: {
        _E.SUBSCRIBE_REQUESTED: _S.RENEWING,
        _E.UNSUBSCRIBE_REQUESTED: _S.ACTIVE,
        _E.UNSUBSCRIBE_CONFIRMED: _S.UNSUBSCRIBED,
        _E.UNSUBSCRIBE_REFUSED: _S.ACTIVE,
        _E.LEASE_ENDED: _S.EXPIRED,
        _E.GONE: _S.UNSUBSCRIBED,
        _E.DENIED: _S.DENIED,
    },
    _S.RENEWING: {
        _E.SUBSCRIBE_REQUESTED: _S.RENEWING,
        _E.SUBSCRIBE_CONFIRMED: _S.ACTIVE,
        _E.SUBSCRIBE_REFUSED: _S.ACTIVE,
        # The request to unsubscribe is the later one: it takes the renewal's place.
        _E.UNSUBSCRIBE_REQUESTED: _S.ACTIVE,
        _E.LEASE_ENDED: _S.PENDING,
        _E.GONE: _S.PENDING,
        _E.DENIED: _S.DENIED,
    },
    _S.EXPIRED: {_E.SUBSCRIBE_REQUESTED: _S.PENDING},
    _S.DENIED: {_E.SUBSCRIBE_REQUESTED: _S.PENDING},
    _S.UNSUBSCRIBED: {_E.SUBSCRIBE_REQUESTED: _S.PENDING},
}

RECEIVING: Final = frozenset({State.ACTIVE, State.RENEWING})
"""The states in which updates are delivered, as long as the lease lasts."""


def follow(state: State, event: Event) -> State | None:
    """The state after the event; None when the event is void in this state."""
    return TRANSITIONS[state].get(event)
