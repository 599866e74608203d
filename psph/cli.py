"""The `psph` command: finds its sub-commands, and turns whatever goes wrong into one line.

Sub-commands are click commands, found through the entry points `psph.commands`. They raise
`click.UsageError` for a wrong call (exit 2) and `PsphError` or `click.ClickException` for a
failure (exit 1).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

import click

from psph import __version__
from psph.errors import PsphError

COMMANDS = "psph.commands"


class UnavailableCommand(click.Command):
    """Stands in for a sub-command whose module cannot be imported here."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(
            name,
            help=f"(not available: {error})",
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        self._error = error

    def invoke(self, context: click.Context) -> None:
        raise PsphError(
            f"this command needs something that is not installed ({self._error}); "
            "docs/dependencies.md says which extra brings it"
        )


class DiscoveredCommands(click.Group):
    """A group whose commands other packages add."""

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=COMMANDS)}

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(self._entry_points)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = self._entry_points.get(name)
        if entry is None:
            return None
        try:
            command = entry.load()
        except ImportError as error:
            return UnavailableCommand(name, error)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=DiscoveredCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="psph")
@click.option("--debug", is_flag=True, help="Show where an unexpected error came from.")
def psph(debug: bool) -> None:
    """Join worlds of publish/subscribe that cannot talk: the web and the fabric.

    Each command explains itself with --help. Where a command prints a table, --json prints
    the same for programs.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = psph.main(given, prog_name="psph", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "psph"
        return _fail(path, f"{error.format_message()} (see '{path} --help')", error.exit_code)
    except click.ClickException as error:
        return _fail("psph", error.format_message(), error.exit_code)
    except PsphError as error:
        return _fail("psph", str(error), 1)
    except (click.Abort, KeyboardInterrupt):
        return _fail("psph", "stopped", 130)
    except BrokenPipeError:
        # Whoever read our output has gone, `psph ... | head` for one: nobody needs to know.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if "--debug" in given:
            raise
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _fail("psph", f"unexpected {what}; 'psph --debug ...' shows where", 1)
    return result if isinstance(result, int) else 0


def _fail(where: str, message: str, code: int) -> int:
    print(f"{where}: {' '.join(message.split())}", file=sys.stderr)
    return code


def main() -> None:
    """The console script."""
    # Modules stay. Collecting garbage while they are imported takes an eighth of the start.
    gc.set_threshold(10_000, 20, 20)
    sys.exit(run())


if __name__ == "__main__":
    main()
