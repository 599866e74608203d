"""What a person is told in one line when a job cannot run."""

from __future__ import annotations

import click


class SparkJobError(click.ClickException):
    """A job failed for a reason that its user can do something about; exit code 1."""


class SparkUnavailable(SparkJobError):
    """Java or PySpark is missing or too old; the message says what to install."""


class NoTraces(SparkJobError):
    """There is nothing to read where traces were expected."""
