"""The token without which nobody changes anything over an admin port."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

NAME = "admin-token"


def keep(data: Path) -> str:
    """The token of a data directory, made when there is none; only its owner can read it."""
    path = data / NAME
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = path.read_text().strip()
        if not token:
            raise ValueError(f"{path} is empty: remove it, and a new token is made") from None
        return token
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())  # an empty file after a power cut would keep the node from starting
    return token


def shown(header: str, token: str) -> bool:
    """Whether an Authorization header bears the token."""
    return hmac.compare_digest(header.encode(errors="replace"), f"Bearer {token}".encode())
