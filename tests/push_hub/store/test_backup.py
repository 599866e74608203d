"""Back-ups of a database in use, and what a restored one does."""

import asyncio
import stat

import pytest

from identifiers import Position
from push_hub.errors import StoreError, StoreInUse
from push_hub.store.backup import back_up, restore
from tests.push_hub.store.stores import TOPIC, opened, publish, run, subscribe


def test_a_backup_made_while_the_hub_writes_is_whole(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            await subscribe(store)
            stop = asyncio.Event()

            async def storm():
                while not stop.is_set():
                    await publish(store, b"x" * 1000)

            writing = asyncio.create_task(storm())
            found = await asyncio.to_thread(back_up, tmp_path / "hub.sqlite", tmp_path / "copy")
            stop.set()
            await writing
        assert found.subscriptions == 1
        assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
        (tmp_path / "new").mkdir()
        assert restore(tmp_path / "copy", tmp_path / "new" / "hub.sqlite") == found
        async with opened(tmp_path / "new") as store:
            (subscription,) = await store.subscriptions()
            assert subscription.topic == TOPIC

    run(main())


def test_after_a_restore_no_version_is_given_twice(tmp_path):
    async def main():
        given = []
        async with opened(tmp_path) as store:
            given.append((await publish(store)).update.position)
            await asyncio.to_thread(back_up, tmp_path / "hub.sqlite", tmp_path / "copy")
            given.append((await publish(store)).update.position)
        await asyncio.to_thread(restore, tmp_path / "copy", tmp_path / "hub.sqlite")
        async with opened(tmp_path) as store:
            given.append((await publish(store)).update.position)
        assert len(set(given)) == 3
        assert given[2].publisher == given[0].publisher
        assert given[2] == Position(given[0].publisher, given[2].epoch, 1)
        assert given[2].epoch > given[0].epoch
        assert list(tmp_path.glob("hub.sqlite.replaced-*"))

    run(main())


def test_nothing_is_overwritten(tmp_path):
    async def main():
        async with opened(tmp_path):
            (tmp_path / "precious").write_text("precious")
            with pytest.raises(StoreError, match="choose another name"):
                back_up(tmp_path / "hub.sqlite", tmp_path / "precious")
            back_up(tmp_path / "hub.sqlite", tmp_path / "copy")
            with pytest.raises(StoreInUse):
                restore(tmp_path / "copy", tmp_path / "hub.sqlite")
        assert (tmp_path / "precious").read_text() == "precious"
        assert not list(tmp_path.glob("*unfinished*"))

    run(main())


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_what_is_no_backup_is_refused(tmp_path, content):
    (tmp_path / "copy").write_bytes(content)
    with pytest.raises(StoreError, match="is no database"):
        restore(tmp_path / "copy", tmp_path / "hub.sqlite")
    with pytest.raises(StoreError, match="is no database"):
        back_up(tmp_path / "copy", tmp_path / "target")
    assert not (tmp_path / "hub.sqlite").exists()
    assert not (tmp_path / "target").exists()


def test_a_damaged_backup_is_refused(tmp_path):
    async def main():
        async with opened(tmp_path) as store:
            for n in range(50):
                await publish(store, b"%d" % n * 5000, topic=f"http://example.com/{n}")
            back_up(tmp_path / "hub.sqlite", tmp_path / "copy")

    run(main())
    damaged = bytearray((tmp_path / "copy").read_bytes())
    damaged[4096 * 3 : 4096 * 8] = b"\xff" * (4096 * 5)
    (tmp_path / "copy").write_bytes(damaged)
    before = (tmp_path / "hub.sqlite").read_bytes()
    with pytest.raises(StoreError, match=r"damaged|restored"):
        restore(tmp_path / "copy", tmp_path / "hub.sqlite")
    assert (tmp_path / "hub.sqlite").read_bytes() == before
