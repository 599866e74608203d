"""What happens in a chat, as its client tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from psph.chat.sse import ServerEvent


class Said(msgspec.Struct, frozen=True, rename={"sender": "from", "recipient": "to"}):
    """A message, of whichever side."""

    sender: str
    recipient: str
    text: str
    position: str
    id: str
    at: str


class Present(msgspec.Struct, frozen=True):
    """Somebody is there, or not."""

    jid: str
    state: Literal["here", "away"]
    since: str | None = None


class Missed(msgspec.Struct, frozen=True, rename={"sender": "from", "recipient": "to"}):
    """Messages were lost (`gap`), or the numbering is another one (`reset`)."""

    sender: str
    recipient: str
    after: str
    resumes: str
    kind: str = "gap"


@dataclass(frozen=True, slots=True)
class Connected:
    """A PSPH serves us, for the first time or again."""

    hub: str
    again: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """It does not any more, or not yet; said once."""

    hub: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """A message that no PSPH takes."""

    text: str
    reason: str


ChatEvent = Said | Present | Missed | Connected | Disconnected | NotSent


def of_server(event: ServerEvent) -> Said | Present | Missed | None:
    """What an event of a stream says; None for what we do not know. ValueError for nonsense."""
    raw = event.data.encode(errors="replace")
    match event.kind:
        case "message":
            return msgspec.json.decode(raw, type=Said)
        case "presence":
            return msgspec.json.decode(raw, type=Present)
        case "gap" | "reset":
            missed = msgspec.json.decode(raw, type=Missed)
            return msgspec.structs.replace(missed, kind=event.kind)
    return None


def as_json(event: ChatEvent) -> dict[str, object]:
    """For programs: `event` is its kind."""
    match event:
        case Said():
            return {"event": "message", **msgspec.to_builtins(event)}
        case Present():
            return {"event": "presence", **msgspec.to_builtins(event)}
        case Missed():
            told = msgspec.to_builtins(event)
            return {"event": told.pop("kind"), **told}
        case Connected(hub, again):
            return {"event": "connected", "hub": hub, "again": again}
        case Disconnected(hub, reason):
            return {"event": "disconnected", "hub": hub, "reason": reason}
        case NotSent(text, reason):
            return {"event": "not sent", "text": text, "reason": reason}
