"""A part that has a process of its own, and that ends with the process above it.

`python -m demo.child serve --config FILE` is `psph serve`; `python -m demo.child site FILE` runs a
website, which is no part of the product.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock the interpreter waits a second for when it ends.
    while os.read(0, 1_024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


async def _site(file: Path) -> None:
    from demo import website

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        await website.serve(file, stack)
        print("ready", flush=True)
        await stopped.wait()


def main() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    match sys.argv[1:]:
        case ["site", file]:
            asyncio.run(_site(Path(file)))
        case _:
            from psph.cli import main as psph

            psph()


if __name__ == "__main__":
    main()
