"""`psph completion`: the script that lets a shell complete psph's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print a completion script for your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL.

    For bash, add to ~/.bashrc:  eval "$(psph completion bash)"
    """
    from psph.cli import psph

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(psph, {}, "psph", "_PSPH_COMPLETE").source())
