"""Configuration files: `loading` turns TOML into checked values, `node` says what a node has."""

from psph.configuration.loading import ConfigurationError, check, load
from psph.configuration.node import NodeConfiguration, NodeSettings

__all__ = ["ConfigurationError", "NodeConfiguration", "NodeSettings", "check", "load"]
