"""What commands print: tables for people, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text


def print_json(value: object) -> None:
    """The form of `--json`: one document, keys in the order they were given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table_text(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None
) -> str:
    """A plain table; numbers stand right, and nothing in a cell is taken for markup."""
    rows = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console(width=width or _width(), color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    # The title is not the table's own: that would be folded to the table's width.
    return "\n".join([title, *(line.rstrip() for line in capture.get().splitlines())]).rstrip()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as wide as the terminal."""
    click.echo(table_text(title, columns, rows))


def progress() -> Progress:
    """A progress bar on stderr; silent when stderr is no terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _width() -> int:
    # Nobody wraps a file: only a terminal has a width.
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 1_000


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}" if abs(value) < 1_000 else f"{value:.0f}"
        case _:
            return str(value)
