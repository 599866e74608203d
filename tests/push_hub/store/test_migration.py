"""A database of an earlier version becomes a current one, and nothing in it is lost."""

import sqlite3

import pytest

from identifiers import identify
from push_hub.lifecycle import State
from push_hub.store import sqlite_schema
from push_hub.store.sqlite_schema import APPLICATION_ID, MIGRATIONS, VERSION
from tests.push_hub.store.stores import claim, opened, publish, run

TOPIC = identify("http://example.com/feed")


def make_version_1(path, subscriptions=20):
    """What the first release of the hub wrote: live and ended subscriptions, a verification that
    waits, an update with its deliveries, a ping that was not followed by its fetch yet."""
    db = sqlite3.connect(path)
    for step in MIGRATIONS[0]:
        db.execute(step)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")
    db.execute("INSERT INTO identity VALUES (?, 7)", (b"p" * 16,))
    db.execute(
        "INSERT INTO topics (id, canonical, sid, rid, fetch_url, ping_serial, fetched_serial,"
        " fetch_due, epoch, last_version, created_at, last_update_at)"
        " VALUES (1, ?, ?, ?, ?, 2, 1, 5.0, 7, 1, 0.0, 1.0)",
        (TOPIC.canonical, TOPIC.sid.raw, TOPIC.rid.raw, TOPIC.spelling),
    )
    db.execute("INSERT INTO related VALUES (?, 'https://example.com/feed')", (TOPIC.canonical,))
    db.execute(
        "INSERT INTO updates VALUES (1, 1, ?, 7, 1, ?, 'published', 'text/plain', NULL, 1.0, ?)",
        (b"p" * 16, "0" * 32, b"body"),
    )
    for n in range(1, subscriptions + 1):
        active = n % 4 != 0
        db.execute(
            "INSERT INTO subscriptions (id, topic_id, topic, callback, host, state, secret,"
            " lease_seconds, expires_at, created_at, verified_at, waiting, next_due)"
            " VALUES (?, 1, ?, ?, 'r.example:80', ?, ?, 1000, 1e12, 0.0, 0.0, ?, ?)",
            (n, TOPIC.spelling, f"http://r.example/{n}", "active" if active else "expired",
             b"secret %d" % n, int(active), 0.0 if active else None),
        )  # fmt: skip
        if active:
            db.execute(
                "INSERT INTO deliveries (subscription, topic_id, seq, superseding)"
                " VALUES (?, 1, 1, 0)",
                (n,),
            )
    db.execute(
        "INSERT INTO verifications (mode, topic, callback, lease_seconds, requested_at,"
        " new_entries_only) VALUES ('subscribe', ?, 'http://r.example/4', 1000, 0.0, 0)",
        (TOPIC.spelling,),
    )
    db.commit()
    db.close()


def test_no_subscription_is_lost(tmp_path):
    make_version_1(tmp_path / "hub.sqlite")

    async def main():
        async with opened(tmp_path) as store:
            found = await store.subscriptions()
            assert len(found) == 20
            assert sum(each.state is State.ACTIVE for each in found) == 15
            assert all(each.secret == b"secret %d" % each.id for each in found)
            assert len(await store.pending()) == 1
            assert store.identity.epoch == 8
            claimed = (await claim(store)).claimed
            assert {each.subscription for each in claimed} == {n for n in range(1, 21) if n % 4}
            assert [each.id for each in await store.due_fetches(10.0, 10)] == [1]
            # How that database was left is not known, so its Positions may not all be there: the
            # numbering begins again in the next epoch. The ping that waited still counts as one.
            recorded = await publish(store, topic=TOPIC.spelling)
            assert str(recorded.update.position).endswith(".8.1")
            assert recorded.deliveries == 15

    run(main())
    with sqlite3.connect(tmp_path / "hub.sqlite") as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    db.close()


def test_of_what_was_forgotten_before_only_the_latest_is_certain(tmp_path):
    """Streams that resume by a number of the log get a gap sooner than a version too few."""
    make_version_1(tmp_path / "hub.sqlite")
    with sqlite3.connect(tmp_path / "hub.sqlite") as db:
        db.execute("INSERT INTO streams VALUES (1, ?, 7, 5)", (b"p" * 16,))
        db.execute("UPDATE updates SET seq = 9")
    db.close()

    async def main():
        async with opened(tmp_path) as store:
            assert [each.seq for each in (await store.log_page([1], 7, 9, 9))[1]] == [8]
            assert (await store.log_page([1], 8, 9, 9))[1] == []

    run(main())


def test_a_migration_that_dies_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "hub.sqlite"
    make_version_1(path)
    broken = (*MIGRATIONS, ("CREATE TABLE half (x)", "nonsense"))
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_schema, "MIGRATIONS", broken)
        patched.setattr(sqlite_schema, "VERSION", len(broken))
        db = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError):
            sqlite_schema.migrate(db)
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        db.close()

    async def main():
        async with opened(tmp_path) as store:
            assert len(await store.subscriptions()) == 20

    run(main())


def test_a_migrated_database_has_the_tables_of_a_new_one(tmp_path):
    make_version_1(tmp_path / "hub.sqlite")
    (tmp_path / "new").mkdir()

    async def main():
        async with opened(tmp_path), opened(tmp_path / "new"):
            pass

    run(main())

    def tables(path):
        db = sqlite3.connect(path)
        try:
            return db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        finally:
            db.close()

    assert tables(tmp_path / "hub.sqlite") == tables(tmp_path / "new" / "hub.sqlite")
