"""What the configuration of a node may say. docs/configuration.md has every key."""

from __future__ import annotations

import re

import msgspec

from psph.trace_writer import TraceSettings

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who the node is."""

    name: str
    """Unique in its domain; traces, logs and metrics carry it."""
    domain: str
    """The domain it belongs to, such as site-a.test."""
    data: str = "data"
    """The directory of everything it keeps; relative to the configuration file."""

    def __post_init__(self) -> None:
        for key, value in (("name", self.name), ("domain", self.domain)):
            if not _NAME.fullmatch(value):
                raise ValueError(
                    f"{key} {value!r} must be 1 to 63 lower-case letters, digits, '-' and '.'"
                )


class NodeConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    node: NodeSettings
    traces: TraceSettings = TraceSettings()
