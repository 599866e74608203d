"""Two hubs on one database would deliver everything twice: the second is refused."""

import subprocess
import sys

import pytest

from push_hub.errors import StoreError, StoreInUse
from push_hub.store.locking import DatabaseLock
from tests.push_hub.store.stores import opened, run

HOLD = """
import sys, time
from pathlib import Path
from push_hub.store.locking import DatabaseLock
lock = DatabaseLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_the_second_is_refused_and_told_who_is_first(tmp_path):
    async def main():
        async with opened(tmp_path):
            with pytest.raises(StoreInUse, match=r"process [0-9]+.*stop that one"):
                async with opened(tmp_path):
                    pass
        async with opened(tmp_path):
            pass

    run(main())


def test_a_lock_ends_with_a_killed_process(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "db")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(StoreInUse, match=str(process.pid)):
            DatabaseLock(tmp_path / "db")
        process.kill()
        process.wait()
    DatabaseLock(tmp_path / "db").release()


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match="check the directory"):
        DatabaseLock(tmp_path / "nowhere" / "db")
