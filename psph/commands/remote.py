"""Asking a running node something over its admin port."""

from __future__ import annotations

from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import click

from psph.configuration.addresses import parse_address
from psph.errors import PsphError

node_option = click.option(
    "--node", "node", required=True, metavar="HOST:PORT", help="Admin port of the node."
)

token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    required=True,
    help="The file admin-token in the node's data directory.",
)

_OPENER = build_opener(ProxyHandler({}))
"""A node is asked directly, whatever proxy the environment names."""


def get(node: str, path: str, seconds: float = 10) -> HTTPResponse:
    """GET a page of a node's admin port; every failure is one sentence."""
    return _ask(node, Request(_url(node, path)), seconds)


def post(node: str, path: str, token_file: Path, seconds: float = 10) -> HTTPResponse:
    """POST to a node's admin port with its token; every failure is one sentence."""
    headers = {"Authorization": f"Bearer {read_token(token_file)}"}
    return _ask(node, Request(_url(node, path), method="POST", headers=headers), seconds)


def read_token(token_file: Path) -> str:
    """The token in a file; one sentence when there is none."""
    try:
        return token_file.read_text().strip().encode("ascii").decode()
    except (OSError, UnicodeError) as error:
        raise PsphError(f"{token_file} has no admin token: {error}") from error


def _url(node: str, path: str) -> str:
    try:
        parse_address(node)
    except ValueError as error:
        raise click.UsageError(f"--node: {error}") from error
    return f"http://{node}{path}"


def _ask(node: str, request: Request, seconds: float) -> HTTPResponse:
    try:
        answer = _OPENER.open(request, timeout=seconds)
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
