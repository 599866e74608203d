"""The options of commands that write a log: `--log-format` and `--log-level`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from psph.configuration.log import LogConfiguration
from push_hub.logs import FORMATS, LEVELS, log_to

Command = TypeVar("Command", bound=Callable[..., Any])


def log_options(command: Command) -> Command:
    """Give a command the parameters `log_format` and `log_level`, for `begin_log`."""
    style = click.option(
        "--log-format",
        type=click.Choice(tuple(FORMATS), case_sensitive=False),
        help="Lines for people, the default, or one JSON object a line.",
    )
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        help="Leave out log events below it; info by default.",
    )
    return style(level(command))


def begin_log(
    log_format: str | None, log_level: str | None, configured: LogConfiguration | None = None
) -> None:
    """Log to stderr; what an option does not say is as configured."""
    configured = configured or LogConfiguration()
    log_to(sys.stderr, log_level or configured.level, log_format or configured.format)
