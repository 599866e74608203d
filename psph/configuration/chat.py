"""Chat at a PSPH, as the configuration has it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from psph.chat.message import normal_jid
from push_hub.addresses import parse_networks


class ChatConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every PSPH whose zone has a key serves chat to the users of its hosts."""

    trust: list[str] = []
    """Networks from which everybody gets the token of whatever user they name."""
    refused: list[str] = []
    """Users who are shut out."""
    presence_s: Annotated[float, Meta(ge=1.5, le=3_600)] = 60.0
    """How long somebody who is not heard of counts as there."""
    messages_per_s: Annotated[float, Meta(ge=0.1, le=10_000)] = 20.0
    """Messages of one user in the long run; ten times as many at once."""

    def __post_init__(self) -> None:
        parse_networks(self.trust)
        for jid in self.refused:
            normal_jid(jid)
