"""The stages of an update's way, as a table: who writes each, when, and with which columns.

An update enters at a hub (`ping_received`, `fetched`) or is published natively, crosses the
fabric (`published`, `forwarded`, `delivered` or `dropped`) and leaves at another hub
(`pushed`, `browser_sent`). The rest is what is needed to read that: who was subscribed when,
how the clocks of two nodes differ, and when a client was on the move.

A stage is text in the files, and readers pass over stages they do not know, so adding one
here is enough to add one.
"""

from enum import StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """What happened. The value is what stands in the files."""

    PING_RECEIVED = "ping_received"
    FETCHED = "fetched"
    PUSHED = "pushed"
    BROWSER_SENT = "browser_sent"
    SUBSCRIBED = "subscribed"
    UNSUBSCRIBED = "unsubscribed"
    PUBLISHED = "published"
    FORWARDED = "forwarded"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    CLOCK_PROBE = "clock_probe"
    MOVE_OUT = "move_out"
    MOVE_IN_BEGIN = "move_in_begin"
    MOVE_IN_END = "move_in_end"


class Room(StrEnum):
    """The part of a node that writes a stage."""

    HUB = "hub"
    FABRIC = "fabric"
    EVERY_NODE = "every node"
    MOBILITY = "mobility"


class StageRule(NamedTuple):
    """What belongs to a stage, beyond the columns that every event has.

    `requires` must be present; `unless_reason` may be missing only where `reason` says why.
    """

    written_by: Room
    meaning: str
    requires: frozenset[str] = frozenset()
    unless_reason: frozenset[str] = frozenset()


_POSITION = frozenset({"publisher", "epoch", "version"})
_UPDATE = _POSITION | {"trace_id", "bytes"}
_PUBLICATION = _UPDATE | {"sid", "rid"}
_PUSHED = _UPDATE | {"topic", "subscriber"}

STAGES: dict[Stage, StageRule] = {
    Stage.PING_RECEIVED: StageRule(
        Room.HUB,
        "a publisher's ping for the topic arrived; the trace id is made here",
        frozenset({"trace_id", "topic"}),
    ),
    Stage.FETCHED: StageRule(
        Room.HUB,
        "the topic was fetched and what is new recorded with its version; where nothing was"
        " new or the fetch failed, `reason` says so and there is no position",
        frozenset({"trace_id", "topic"}),
        _POSITION | {"bytes"},
    ),
    Stage.PUSHED: StageRule(
        Room.HUB,
        "a POST of the update to a callback ended, in success or, with a `reason`, in failure;"
        " one event for each attempt",
        _PUSHED,
    ),
    Stage.BROWSER_SENT: StageRule(
        Room.HUB,
        "the update was handed to the socket of a browser stream",
        _PUSHED,
    ),
    Stage.SUBSCRIBED: StageRule(
        Room.HUB,
        "a subscription took effect: a callback was verified, or a stream opened",
        frozenset({"topic", "subscriber"}),
    ),
    Stage.UNSUBSCRIBED: StageRule(
        Room.HUB,
        "a subscription ended; `reason` when not by the subscriber's wish",
        frozenset({"topic", "subscriber"}),
    ),
    Stage.PUBLISHED: StageRule(
        Room.FABRIC,
        "the update was handed to the fabric; for a native publication the trace id is made here",
        _PUBLICATION,
    ),
    Stage.FORWARDED: StageRule(
        Room.FABRIC,
        "a forwarding node sent one data packet to `peer`; sampled, so counts are not totals",
        frozenset({"sid", "rid", "peer", "bytes"}),
    ),
    Stage.DELIVERED: StageRule(
        Room.FABRIC,
        "the update was reassembled, verified, found new and handed to `subscriber`"
        " (none: the node itself)",
        _PUBLICATION,
    ),
    Stage.DROPPED: StageRule(
        Room.FABRIC,
        "a packet or an update was dropped, for `reason`; it carries whatever was known of it",
        frozenset({"reason"}),
    ),
    Stage.CLOCK_PROBE: StageRule(
        Room.EVERY_NODE,
        "one exchange of hello packets with the neighbour `peer`, every few seconds",
        frozenset({"peer", "t1", "t2", "t3", "t4"}),
    ),
    Stage.MOVE_OUT: StageRule(
        Room.MOBILITY,
        "the proxy took over the client's subscriptions and acknowledged",
        frozenset({"subscriber"}),
    ),
    Stage.MOVE_IN_BEGIN: StageRule(
        Room.MOBILITY,
        "the client asked to move in here; the trace id of this hand-off is made here; `peer` is"
        " the proxy that had it prepared, none if nothing was",
        frozenset({"trace_id", "subscriber"}),
    ),
    Stage.MOVE_IN_END: StageRule(
        Room.MOBILITY,
        "everything buffered (`bytes` of it, at proxy `peer`) has reached the client, which is"
        " live again; `reason` when the hand-off failed",
        frozenset({"trace_id", "subscriber"}),
    ),
}
