"""What exactly is sent for a delivery: the body of its update, whole or trimmed.

A fan-out asks for the same body a thousand times; it is read and trimmed once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from push_hub.feeds import read_feed, trim
from push_hub.store.interface import Store
from push_hub.store.records import Delivery, Update

_KEPT: Final = 64
_KEPT_BYTES: Final = 64 << 20

_Key = tuple[int, int | None]


class Contents:
    """Bodies by update and, for those who want new entries only, by what they already have."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[_Key, tuple[Update, bytes]] = OrderedDict()
        self._loading: dict[_Key, asyncio.Task[tuple[Update, bytes] | None]] = {}
        self._size = 0

    def keep(self, update: Update) -> None:
        """An update that will be asked for soon."""
        self._put((update.seq, None), (update, update.body))

    async def of(self, delivery: Delivery) -> tuple[Update, bytes] | None:
        """The update and what to send of it; None when it is not in the store any more."""
        key = (delivery.seq, delivery.last_seq if delivery.new_entries_only else None)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.create_task(self._load(key))
            loading.add_done_callback(lambda _: self._loading.pop(key, None))
        # Shielded: one delivery that is given up on must not take the others with it.
        return await asyncio.shield(loading)

    async def _load(self, key: _Key) -> tuple[Update, bytes] | None:
        seq, last_seq = key
        whole = self._kept.get((seq, None))
        update = whole[0] if whole is not None else await self._store.update(seq)
        if update is None:
            return None
        body = update.body
        if last_seq is not None:
            keep = await self._store.changed_since(update.topic_id, last_seq)
            body = await asyncio.to_thread(_trimmed, update, keep)
        self._put(key, (update, body))
        return update, body

    def _put(self, key: _Key, content: tuple[Update, bytes]) -> None:
        if key in self._kept:
            return
        self._kept[key] = content
        self._size += len(content[1])
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or self._size > _KEPT_BYTES):
            _, (_, body) = self._kept.popitem(last=False)
            self._size -= len(body)


def _trimmed(update: Update, keep: frozenset[str]) -> bytes:
    feed = read_feed(update.content_type, update.body)
    return update.body if feed is None else trim(update.body, feed, keep)
