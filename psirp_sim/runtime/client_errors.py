"""What can go wrong for an application that uses the fabric."""

from __future__ import annotations

from psirp_sim.wire.rendezvous import Code

_ADVICE = {
    Code.NOT_ALLOWED: "the rules of the scope do not let this client: use a key that they name",
    Code.WRONG_KEY: "the proof is not by the key it names: check the key",
    Code.EXISTS: "the scope has other access rules: leave `access` out, or give the same",
}


class FabricError(Exception):
    """Any of these."""


class Refused(FabricError):
    """The rendezvous said no, and time will not change that."""

    def __init__(self, what: str, code: Code) -> None:
        super().__init__(f"{what} was refused ({code.name}): {_ADVICE.get(code, 'see the code')}")
        self.code = code


class NotAnItem(FabricError, TypeError):
    """What was given names no item, or its content is not bytes."""


class ClientClosed(FabricError):
    """The client was closed before, or while, it was asked for something."""


class NotAttached(FabricError, TimeoutError):
    """The node found no way to a rendezvous server in time."""


class NotRegistered(FabricError, TimeoutError):
    """No rendezvous server took an offer or a subscription in time. It stands, and is made again
    until one does."""


class Congested(FabricError, TimeoutError):
    """Listeners do not keep up, and a version could not even be lined up in time."""


class NothingPublished(FabricError, TimeoutError):
    """No version of the item came in time."""


class NotDrained(FabricError, TimeoutError):
    """Listeners did not have everything in time."""
