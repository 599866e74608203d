"""`psph up`: a world to look at."""

from __future__ import annotations

import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click


@click.command(short_help="Run two web domains with a fabric between them, and a page to see it.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8000,
    show_default=True,
    help="Port of the page; 0 lets the system choose.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the page; beyond this machine it asks for the token it prints.",
)
@click.option(
    "--duration", type=click.FloatRange(min=0), metavar="S", help="Stop after that many seconds."
)
@click.option("--processes", is_flag=True, help="Give each part a process of its own.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for configurations and state; a temporary one when not given.",
)
def up(
    port: int, host: str, duration: float | None, processes: bool, data: Path | None
) -> None:  # fmt: skip
    """Run site-a.test and site-b.test, a fabric between them, and a page that shows it all.

    Everything is on this machine and needs no rights. When all of it serves, one line
    `ready http://HOST:PORT/` is printed: open that. Ctrl-C stops it.
    """
    from demo.running import RunSettings, run
    from psirp_sim.runtime import loop

    with ExitStack() as stack:
        if data is None:
            made = tempfile.TemporaryDirectory(prefix="psph-up-", ignore_cleanup_errors=True)
            data = Path(stack.enter_context(made))
        settings = RunSettings(host, port, duration, processes, data.resolve())
        logging.captureWarnings(True)
        loop.run(run(settings))
