"""How a process of a test talks with the test: a JSON object a line, on stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable


async def converse(port: int, command: Callable[[bytes], None], report: Callable[[], None]) -> None:
    """Say that we are ready; then take commands, and report every 100 ms.

    Until the test closes our stdin, or goes away.
    """
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    print(json.dumps({"ready": port}), flush=True)

    async def listen() -> None:
        while line := await commands.readline():
            command(line)

    listening = asyncio.create_task(listen())
    while not listening.done():
        await asyncio.sleep(0.1)
        report()
    listening.result()
