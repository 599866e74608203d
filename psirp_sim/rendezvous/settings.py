"""How patient, and how generous, the rendezvous is. The same at every node of a fabric."""

from __future__ import annotations

from dataclasses import dataclass

from psirp_sim.runtime.durations import MILLISECOND, SECOND

LONGEST_PAUSE = 2 * SECOND


@dataclass(frozen=True, slots=True)
class RendezvousSettings:
    """Times in nanoseconds."""

    members: tuple[str, ...] = ()
    """The servers of the first view; those that come later join them."""
    lease: int = 60 * SECOND
    """A client that is not heard of for so long is forgotten; it refreshes every third of it."""
    retry_interval: int = 300 * MILLISECOND
    """How soon what is not answered is first repeated; then at growing intervals."""
    time_out: int = 5 * SECOND
    """After which the caller is told that nobody answered."""
    settle: int = 5 * SECOND
    """How long a server that knows nothing yet does not say no, and a publisher goes on serving
    listeners that only a lost server knew."""
    writer_lease: int = 10 * SECOND
    """How long a writer holds a topic without renewing. Clocks may differ by less than that."""
    gossip_interval: int = 2 * SECOND
    """How often servers tell each other their view."""
    most_clients: int = 20_000
    most_per_client: int = 100_000
    most_registrations: int = 1_000_000
    """Of all clients at one server."""
    rate: int = 5_000
    """Registrations a second that a server takes from one client, on the average."""
    burst: int = 20_000
    """Registrations that it takes at once from a client that was quiet."""

    def pause(self, tries: int) -> int:
        """How long to wait for an answer after so many tries, before the next.

        It doubles, but not so far that a few lost packets would be noticed, or cost a lease.
        """
        return min(self.retry_interval << min(tries, 16), self.lease // 12, LONGEST_PAUSE)
