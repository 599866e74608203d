"""One part of the world, running: in this process, or in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from bootstrap.errors import BootstrapError
from psirp_sim.runtime.sqlite_storage import StorageError
from psph import server
from psph.configuration import NodeConfiguration, load
from psph.errors import PsphError

START = 60.0
"""Seconds a process has to say that it is ready; it has to load everything."""
_FAILING = 10.0


class Part(Protocol):
    """Can be started and stopped, and started again with the data it has."""

    @property
    def name(self) -> str: ...

    @property
    def running(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self, patience: float) -> None:
        """As its operator stops it; after so many seconds it is not waited for any more."""

    async def fail(self) -> None:
        """As it stops when something goes wrong."""


class LocalPart:
    """In this process and its event loop."""

    def __init__(self, name: str, begin: Callable[[AsyncExitStack], Awaitable[object]]) -> None:
        self.name = name
        self._begin = begin
        self._stack: AsyncExitStack | None = None

    @property
    def running(self) -> bool:
        return self._stack is not None

    async def start(self) -> None:
        stack = AsyncExitStack()
        try:
            await self._begin(stack)
        except BaseException as error:
            await stack.aclose()
            if isinstance(error, OSError | StorageError | BootstrapError | ValueError):
                raise PsphError(f"{self.name} cannot run: {error}") from error
            raise
        self._stack = stack

    async def stop(self, patience: float) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            async with asyncio.timeout(patience):
                await stack.aclose()

    async def fail(self) -> None:
        # Nothing kills a part of a process: its neighbours hear it say goodbye.
        await self.stop(_FAILING)


def node_here(file: Path) -> LocalPart:
    """What `psph serve --config FILE` would run."""

    async def begin(stack: AsyncExitStack) -> None:
        await server.start(load(file, NodeConfiguration), file.parent, stack)

    return LocalPart(file.stem, begin)


class ProcessPart:
    """A process of its own, which says `ready` when it is."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "demo.child", *self._arguments),
                # When we die, however that may be, its input ends and so does it.
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C in a terminal goes to whoever is in its session: we stop the parts.
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            line = await asyncio.wait_for(self._process.stdout.readline(), START)
        if not line.startswith(b"ready"):
            await self.fail()
            said = self._log.read_text(errors="replace").strip().splitlines()
            raise PsphError(f"{self.name} did not start: {said[-1] if said else 'it said nothing'}")

    async def stop(self, patience: float) -> None:
        await self._end(signal.SIGTERM, patience)

    async def fail(self) -> None:
        await self._end(signal.SIGKILL, _FAILING)

    async def _end(self, by: signal.Signals, patience: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(by)
        try:
            await asyncio.wait_for(process.wait(), patience)
        except TimeoutError:
            process.kill()
            await process.wait()
        # asyncio closes what it had of the process a moment later.
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.sleep(0)
