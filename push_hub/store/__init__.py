"""The hub's memory: an interface (`interface`), its values (`records`), and SQLite (`sqlite`)."""

from push_hub.store.interface import Store
from push_hub.store.sqlite import SqliteStore

__all__ = ["SqliteStore", "Store"]
