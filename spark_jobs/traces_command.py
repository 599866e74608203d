"""`psph traces`: what is done with traces beside reports about them."""

from __future__ import annotations

import click

from spark_jobs.generating.command import generate
from spark_jobs.streaming.command import follow


@click.group(short_help="Make up traces, or follow those that nodes write.")
def traces() -> None:
    """Make up traces to try reports on, or follow those that nodes write."""


traces.add_command(generate)
traces.add_command(follow)
