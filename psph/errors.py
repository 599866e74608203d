"""The one exception that a person is meant to read."""

from __future__ import annotations


class PsphError(Exception):
    """Something failed that the user can do something about; the message says what.

    The command line prints the message in one line and exits with 1.
    """
