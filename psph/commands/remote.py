"""Asking a running node something over its admin port."""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

import click

from psph.configuration.addresses import parse_address
from psph.errors import PsphError

node_option = click.option(
    "--node", "node", required=True, metavar="HOST:PORT", help="Admin port of the node."
)

_OPENER = build_opener(ProxyHandler({}))
"""A node is asked directly, whatever proxy the environment names."""


def get(node: str, path: str, seconds: float = 10) -> HTTPResponse:
    """GET a page of a node's admin port; every failure is one sentence."""
    try:
        parse_address(node)
    except ValueError as error:
        raise click.UsageError(f"--node: {error}") from error
    try:
        answer = _OPENER.open(f"http://{node}{path}", timeout=seconds)
    except HTTPError as error:
        with error:
            text = error.read(500).decode(errors="replace").strip()
        raise PsphError(f"{node} answered {error.code}: {text}") from error
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise PsphError(
            f"no answer from {node} ({reason}): is the node running, and is this its admin port?"
        ) from error
    assert isinstance(answer, HTTPResponse)
    return answer
