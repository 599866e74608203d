"""The rendezvous as a node's configuration has it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.message import Name
from psirp_sim.wire.rendezvous import MOST_SERVERS

_DEFAULT = RendezvousSettings()


class RendezvousConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same at all nodes but for the limits, which only servers read."""

    members: Annotated[list[Name], Meta(max_length=MOST_SERVERS)] = []
    """Names of the servers that vote on writer leases from the beginning."""
    lease_s: Annotated[int, Meta(ge=6, le=86_400)] = _DEFAULT.lease // SECOND
    time_out_s: Annotated[int, Meta(ge=1, le=600)] = _DEFAULT.time_out // SECOND
    settle_s: Annotated[int, Meta(ge=1, le=600)] = _DEFAULT.settle // SECOND
    writer_lease_s: Annotated[int, Meta(ge=2, le=3_600)] = _DEFAULT.writer_lease // SECOND
    most_clients: Annotated[int, Meta(ge=1)] = _DEFAULT.most_clients
    most_per_client: Annotated[int, Meta(ge=1)] = _DEFAULT.most_per_client
    most_registrations: Annotated[int, Meta(ge=1)] = _DEFAULT.most_registrations
    rate: Annotated[int, Meta(ge=1, le=1_000_000_000)] = _DEFAULT.rate
    burst: Annotated[int, Meta(ge=1, le=1_000_000_000)] = _DEFAULT.burst

    def __post_init__(self) -> None:
        if len(set(self.members)) < len(self.members):
            raise ValueError("members names a server twice")

    def settings(self) -> RendezvousSettings:
        """As the cores want it."""
        return RendezvousSettings(
            members=tuple(sorted(self.members)),
            lease=self.lease_s * SECOND,
            time_out=self.time_out_s * SECOND,
            settle=self.settle_s * SECOND,
            writer_lease=self.writer_lease_s * SECOND,
            most_clients=self.most_clients,
            most_per_client=self.most_per_client,
            most_registrations=self.most_registrations,
            rate=self.rate,
            burst=self.burst,
        )
