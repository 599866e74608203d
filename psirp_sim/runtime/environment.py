"""The contract between a protocol core and whatever runs it.

A **core** is a plain synchronous class: forwarding, rendezvous, a mobility proxy. It gets
everything it needs from the outside world through the `Environment` handed to its factory
and imports neither asyncio nor socket, time or random. Two environments run the same core:
`runtime.simulator` in virtual time under faults, `runtime.udp` on real sockets.

What a core may rely on
-----------------------
* **One thing at a time.** `start`, `receive`, `stop`, timer callbacks and write completions
  of one core never overlap and never re-enter: a call made from inside the core (sending,
  writing, setting a timer) returns before anything it causes is delivered.
* **Clock.** `now()` is this node's own monotonic clock in nanoseconds, `wall()` its wall
  clock. Neither agrees with any other node's: both may be skewed and drift. A restarted node
  may see a smaller `now()` than before; only differences within one life mean anything.
* **Timers.** `call_later(delay, callback, *args)` runs the callback once, no earlier than
  `delay` nanoseconds of this node's clock from now; timers that are due at the same instant
  run in the order they were set. `cancel()` is final and may be called twice or after the
  timer ran. A crash takes all timers with it.
* **Links.** `links[name].send(packet)` hands one packet to the neighbour of that name. A
  packet arrives whole or not at all; it may be lost, doubled, delayed and overtaken. `send`
  returns False when it was refused at once (larger than the link's `mtu`, or the queue is
  full: back-pressure); True promises nothing about arrival. A packet is `bytes` and is never
  changed after it was sent.
* **Forwarding.** Once a core has installed a table, the link driver applies it to every data
  packet (`wire.data`): copies go out without the core being asked, and `receive` gets only
  the data packets that are for this node, besides everything that is no data packet.
  `inject` sends a data packet of the node's own by the same table.
* **Storage.** `storage.write(changes, done)` applies a batch of puts (and deletes, where the
  value is None) atomically. The node reads its own writes at once, but a batch is **durable
  only when `done` has been called**, and batches become durable in the order they were
  written. A crash keeps everything reported durable, plus some prefix of the rest.
  Whatever a core tells the world about a write, it tells from `done`.
* **Power cuts.** Where the storage is not power-safe, a power cut keeps only some prefix of what
  was reported durable: at least everything up to the last batch written with `sync`. After one,
  `storage.epoch` is higher than before. A number that must not stand for two things is synced, or
  is given together with that epoch.
* **Randomness.** `random` is this node's own seeded stream; in the simulator it is the same
  in every run of the same seed.
* **Traces and log.** `trace.emit(event)` and `log(message, **fields)` never block and never
  raise.

What an environment may rely on
-------------------------------
A core does not block, does not raise on bad packets, and bounds what it keeps. An exception
that leaves a core is a bug: the simulator stops with it, the UDP environment counts and logs
it and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Protocol

from psirp_sim.forwarding.table import ForwardingCounters, ForwardingTable
from traces import TraceSink

Packet = bytes
Changes = Mapping[bytes, bytes | None]


class Timer(Protocol):
    """A callback that has been asked for and may still be called off."""

    def cancel(self) -> None:
        """The callback will not run from now on."""


class Link(Protocol):
    """One direction away from this node, towards one neighbour."""

    @property
    def name(self) -> str:
        """What this node calls the link; unique at the node."""

    @property
    def mtu(self) -> int:
        """The largest packet it takes, in bytes."""

    def send(self, packet: Packet) -> bool:
        """Hand over a packet; False when it was refused at once."""


class Storage(Protocol):
    """What survives a crash of the node: an ordered map from keys to values."""

    @property
    def epoch(self) -> int:
        """From 1; higher than in earlier incarnations when what one of them was told is durable may
        be missing. It stays the same for as long as the storage is open."""

    def get(self, key: bytes) -> bytes | None:
        """The value last written, durable or not."""

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Every pair whose key begins with the prefix, in the order of the keys."""

    def write(
        self, changes: Changes, done: Callable[[], None] | None = None, *, sync: bool = False
    ) -> None:
        """Apply all changes or none; `done` runs, later, once they are durable. With `sync`, that
        and everything written before survives a power cut, at the cost of a write to the disk."""


class Log(Protocol):
    """A line for the people who run the node; fields are values, not prose."""

    def __call__(self, message: str, /, **fields: object) -> None: ...


class Environment(Protocol):
    """Everything outside a core; see the rules at the top of this module."""

    @property
    def node(self) -> str:
        """The name of the node this core lives on."""

    @property
    def links(self) -> Mapping[str, Link]:
        """The links by name; grows and shrinks while the node runs."""

    @property
    def storage(self) -> Storage: ...

    @property
    def random(self) -> Random: ...

    @property
    def trace(self) -> TraceSink: ...

    @property
    def log(self) -> Log: ...

    def now(self) -> int:
        """Nanoseconds of this node's monotonic clock."""

    def wall(self) -> int:
        """Nanoseconds since 1970 by this node's wall clock."""

    def call_later(self, delay: int, callback: Callable[..., None], *args: object) -> Timer:
        """Run the callback once, `delay` nanoseconds from now."""

    def install(self, table: ForwardingTable, counters: ForwardingCounters) -> None:
        """Let the link driver forward data packets by this table, and count what it does."""

    def inject(self, packet: Packet) -> bool:
        """Send a data packet of this node's own; True when it is for this node as well."""


class Core(Protocol):
    """What an environment runs."""

    def start(self) -> None:
        """Called once, first; durable storage holds what an earlier life completed."""

    def receive(self, link: str, packet: Packet) -> None:
        """A packet arrived over the link of that name."""

    def stop(self) -> None:
        """Called once at a clean shutdown, never at a crash; packets may still be sent."""


CoreFactory = Callable[[Environment], Core]
