"""Configuration files: `loading` turns TOML into checked values, `node` says what a node has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psph.configuration.loading import ConfigurationError, check, load

if TYPE_CHECKING:
    from psph.configuration.node import NodeConfiguration, NodeSettings
else:

    def __getattr__(name):
        # What a node can have takes half a second to load; most commands only read an address.
        if name in ("NodeConfiguration", "NodeSettings"):
            from psph.configuration import node

            return getattr(node, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["ConfigurationError", "NodeConfiguration", "NodeSettings", "check", "load"]
