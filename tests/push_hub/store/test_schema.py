"""Databases: made, kept private to this program, refused when from the future."""

import sqlite3

import pytest

from push_hub.errors import NewerDatabase, StoreError
from push_hub.store import SqliteStore
from push_hub.store.sqlite_schema import VERSION
from tests.push_hub.store.stores import opened, run


def test_the_identity_is_made_once(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            first = store.identity
        async with opened(tmp_path) as store:
            assert store.identity == first

    run(main())


def test_a_database_from_the_future_is_refused(tmp_path):
    async def main():
        async with opened(tmp_path):
            pass

    run(main())
    with sqlite3.connect(tmp_path / "hub.sqlite") as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(NewerDatabase, match="newer program"):
        run(main())


def test_a_database_of_another_program_is_left_alone(tmp_path):
    db = sqlite3.connect(tmp_path / "hub.sqlite")
    db.execute("CREATE TABLE precious (x)")
    db.close()
    with pytest.raises(StoreError, match="another program"):
        run(SqliteStore.open(tmp_path / "hub.sqlite"))


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "hub.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        run(SqliteStore.open(tmp_path / "hub.sqlite"))
