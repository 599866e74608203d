"""Which stops make a hub number in a new epoch, and what it fetches again then."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing

from identifiers import identify
from push_hub.store import SqliteStore, sqlite_identity
from tests.push_hub.store.stores import CAPS, TOPIC, publish, run, subscribe


@asynccontextmanager
async def crashing(path, boot_id, **options):
    """A store whose process dies in the end: there is no mark of a clean stop."""
    store = await SqliteStore.open(path / "hub.sqlite", boot_id=boot_id, **options)
    try:
        yield store
    finally:
        await store.close()
        with closing(sqlite3.connect(path / "hub.sqlite")) as db, db:
            db.execute("UPDATE identity SET clean = 0")


async def epoch(path, boot_id, **options):
    async with crashing(path, boot_id, **options) as store:
        return store.identity.epoch


def test_an_unclean_stop_in_another_boot_begins_an_epoch(tmp_path):
    async def main():
        assert await epoch(tmp_path, "one") == 1
        assert await epoch(tmp_path, "one") == 1, "the process died, and nothing is lost"
        assert await epoch(tmp_path, "two") == 2
        store = await SqliteStore.open(tmp_path / "hub.sqlite", boot_id="two")
        await store.close()
        assert await epoch(tmp_path, "three") == 2, "it was stopped cleanly"
        assert await epoch(tmp_path, "three", power_safe=True) == 2
        assert await epoch(tmp_path, "four") == 2, "everything was synced"
        assert await epoch(tmp_path, "five") == 3

    run(main())


def test_without_a_boot_id_every_unclean_stop_does(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_identity, "BOOT_ID", tmp_path / "nothing")

    async def main():
        assert await epoch(tmp_path, None) == 1
        assert await epoch(tmp_path, None) == 2

    run(main())


def test_the_hub_fetches_again_what_it_may_have_lost(tmp_path):
    async def main():
        async with crashing(tmp_path, "one") as store:
            await subscribe(store)
            await publish(store, fetched_serial=0)
            unread = await store.ensure_topic(identify("http://example.com/unread"), CAPS, 1.0)
            assert await store.due_fetches(1e12, 10) == []
        async with crashing(tmp_path, "one") as store:
            assert await store.due_fetches(1e12, 10) == []
        async with crashing(tmp_path, "two") as store:
            due = await store.due_fetches(1e12, 10)
            assert [each.canonical for each in due] == [identify(TOPIC).canonical]
            assert unread.id not in [each.id for each in due]

    run(main())
