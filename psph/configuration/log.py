"""The log of a node, as the configuration has it."""

from __future__ import annotations

from typing import Literal

import msgspec


class LogConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node writes to stderr; options of `psph serve` say otherwise."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Events below it are left out."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""
