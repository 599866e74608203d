"""What can go wrong between a domain and what serves it; each text is one line for a person."""

from __future__ import annotations


class BootstrapError(Exception):
    """Everything this room raises on purpose."""


class NothingFound(BootstrapError):
    """DNS works and has nothing for the name: no PSPH serves it, which means plain WebSub."""

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[str, ...] = (),
        expires_in: float = 0.0,
        stale: bool = False,
    ) -> None:
        """`problems` are records that were there and not usable; the rest is as in `Found`."""
        super().__init__(message)
        self.problems = problems
        self.expires_in = expires_in
        self.stale = stale


class BadRecord(BootstrapError):
    """A record that breaks the rules or lies about its zone."""


class NameServerFailed(BootstrapError):
    """No answer, an answer that makes no sense, or a server that does not serve the zone."""


class WrongKey(BootstrapError):
    """The server does not know the TSIG key, the signature is wrong, or the clocks differ."""


class Refused(BootstrapError):
    """The server knows who asks and does not allow it."""
