"""The engine: operations share commits, fail alone, and are durable when they return."""

import asyncio
import sqlite3

import pytest

from push_hub.errors import StoreError
from push_hub.store.sqlite_engine import SqliteEngine
from tests.push_hub.store.stores import run


def add(value):
    def operation(db):
        db.execute("INSERT INTO related (canonical, other) VALUES (?, '')", (value,))
        if value == 13:
            raise ValueError("unlucky")
        return value

    return operation


def count(db):
    return db.execute("SELECT count(*) FROM related").fetchone()[0]


def test_a_failing_operation_takes_nobody_with_it(tmp_path):
    async def main():
        engine = SqliteEngine(tmp_path / "db")
        done = await asyncio.gather(
            *[engine.write(add(n)) for n in range(100)], return_exceptions=True
        )
        assert [str(each) for each in done if isinstance(each, Exception)] == ["unlucky"]
        assert await engine.read(count) == 99
        await engine.close()

    run(main())


def test_nobody_else_reads_the_secrets_in_it(tmp_path):
    async def main():
        engine = SqliteEngine(tmp_path / "db")
        await engine.write(add(1))
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
        await engine.close()
        assert {"db", "db-wal"} <= modes.keys()
        assert not any(modes.values()), modes

    run(main())


def test_what_returned_is_there_for_another_process(tmp_path):
    async def main():
        engine = SqliteEngine(tmp_path / "db")
        await engine.write(add(1))
        other = sqlite3.connect(tmp_path / "db")
        assert count(other) == 1
        other.close()
        await engine.close()

    run(main())


def test_writes_that_wait_share_a_commit(tmp_path):
    async def main():
        engine = SqliteEngine(tmp_path / "db")
        commits = []

        def note(db):
            commits.append(db.total_changes)

        await asyncio.gather(*[engine.write(note) for _ in range(400)])
        before = await engine.read(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
        await asyncio.gather(*[engine.write(add(100 + n)) for n in range(400)])
        after = await engine.read(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
        assert await engine.read(count) == 400
        assert after - before < 100
        await engine.close()

    run(main())


def test_an_operation_given_up_on_happens_all_the_same(tmp_path):
    async def main():
        engine = SqliteEngine(tmp_path / "db")
        task = asyncio.create_task(engine.write(add(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.write(add(2))
        assert await engine.read(count) == 2
        await engine.close()

    run(main())


def test_sqlite_errors_are_named_and_a_closed_store_says_so(tmp_path):
    async def main():
        engine = SqliteEngine(tmp_path / "db")
        with pytest.raises(StoreError, match="no such table"):
            await engine.write(lambda db: db.execute("DELETE FROM nowhere"))
        with pytest.raises(StoreError, match="no such table"):
            await engine.read(lambda db: db.execute("SELECT * FROM nowhere"))
        await engine.close()
        await engine.close()
        with pytest.raises(StoreError, match="closed"):
            await engine.write(count)

    run(main())
