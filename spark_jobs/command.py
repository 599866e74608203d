"""`psph report`: from trace files to a page."""

from __future__ import annotations

import click


@click.command(short_help="Make a report of trace files.")
def report() -> None:
    """Make a report of trace files."""
