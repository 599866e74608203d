"""The Pub/Sub Proxy Hub: the proxy itself, and the command line around everything."""

from importlib.metadata import version

__version__ = version("psph")
