"""Summaries of what is subscribed to, so that a proxy need not ask about what nobody wants.

A server puts every subscription into a Bloom filter (pybloom_live) and gives it to whoever asks.
A filter that contains what is not wanted costs a question; one that lacks what is wanted would
cost an update, and does not exist: whatever a client is not sure of may be wanted.

What is in the filter are pairs of scope and item, as the lower-case hexadecimal digits of SId and
RId, or of the SId alone for a subscription to the whole scope; and the WITNESSES, by which a reader
sees that it hashes as the writer did. The bytes of a filter (`SummaryIs.bits`) are

    0      0, or 1 when what follows is compressed (zlib)
    1-8    error rate, a double
    9-16   k, the number of hashes and of slices
    17-24  m, the bits of a slice
    25-32  capacity
    33-40  how many entries were put in; not exact
    41-    the bits, k slices of m, the lowest bit of each byte first; zeros up to a whole byte

with little-endian numbers: from byte 1 on it is the file format of pybloom_live, and the hashes
are those of its release 4 on a little-endian machine. There is room for a quarter more entries
than there are. When it is full, one lookup in a hundred finds what is not there, and more where
160 KiB would not hold so good a filter; a question takes two, for the item and for its scope.

    entries when it is made    up to 104,851    209,709    more
    false lookups when full              1 %       10 %    50 %

Measured with 100,000 entries on one core of a small, busy virtual machine: 4 to 6 us to add one,
0.5 s to build the filter, in slices of 10 to 20 ms, 6 to 16 ms to write it, once a second at most,
2 ms to read it; 1.6 bytes an entry; 0.4 % of questions answered wrongly, 2 % when it is full.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from struct import calcsize, unpack_from

from pybloom_live import BloomFilter

from psirp_sim.rendezvous.homes import homes
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import SummaryAsk, SummaryIs

INTERVAL = SECOND
"""How often a client asks, and how often a server says something new."""
SLICE = 2_000
"""Entries that are put into a new filter at a time; the server does other things in between."""
LEAST_CAPACITY = 1 << 10
MOST_CAPACITY = 1 << 19
"""Past it a filter only gets fuller: it is still right, but says little."""
MOST_BITS = 160 * 1024 * 8
"""With room for the rest of the message, and for its cutting into fragments."""
ERROR_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
MOST_SLICES = 16
WITNESSES = tuple(f"psph 1 summary {number}" for number in range(8))

_HEADER = "<dQQQQ"
_LONGEST = calcsize(_HEADER) + MOST_BITS // 8


# The bytes of a filter


def new_filter(count: int) -> BloomFilter:
    """An empty filter for so many entries and some more."""
    wanted = count + count // 4 + len(WITNESSES)
    capacity = min(max(LEAST_CAPACITY, 1 << (wanted - 1).bit_length()), MOST_CAPACITY)
    for error_rate in ERROR_RATES:
        bloom = BloomFilter(capacity, error_rate)
        if bloom.num_bits <= MOST_BITS:
            break
    for witness in WITNESSES:
        bloom.add(witness)
    return bloom


def put(bloom: BloomFilter, sid: bytes, rid: bytes) -> None:
    """Put an entry in, even into a filter that is full: it waits there for a larger one."""
    if bloom.count >= bloom.capacity:
        bloom.count = 0  # or pybloom_live refuses
    bloom.add(_key(sid, rid), skip_check=True)


def contains(bloom: BloomFilter, sid: bytes, rid: bytes) -> bool:
    """Whether the item, or the whole scope, may be in it."""
    return _key(sid, rid) in bloom or (rid != b"" and _key(sid, b"") in bloom)


def write_filter(bloom: BloomFilter) -> bytes:
    """The bytes that `read_filter` takes."""
    file = BytesIO()
    bloom.tofile(file)
    plain = file.getvalue()
    # The first level: others take five times as long and gain a few percent.
    packed = zlib.compress(plain, 1)
    return b"\1" + packed if len(packed) < len(plain) else b"\0" + plain


def read_filter(data: bytes) -> BloomFilter:
    """The filter again; MalformedPacket for bytes that are none, or by a stranger's hashes."""
    plain = _unpacked(data)
    if len(plain) < calcsize(_HEADER):
        raise MalformedPacket("a summary that ends within its header")
    error_rate, slices, bits, _, _ = unpack_from(_HEADER, plain)
    if not (0 < error_rate < 1 and 1 <= slices <= MOST_SLICES and 1 <= bits <= MOST_BITS):
        raise MalformedPacket(f"a summary of {slices} slices of {bits} bits")
    if len(plain) != calcsize(_HEADER) + -(-slices * bits // 8):
        raise MalformedPacket("a summary that is not as long as it says")
    bloom = BloomFilter.fromfile(BytesIO(plain))
    # The library hashes with the machine's byte order, and other releases of it differently. Read
    # wrongly, a filter would lack what is wanted.
    if not all(witness in bloom for witness in WITNESSES):
        raise MalformedPacket("a summary whose hashes are not ours")
    return bloom


def _unpacked(data: bytes) -> bytes:
    if data[:1] == b"\0":
        return data[1:]
    if data[:1] != b"\1":
        raise MalformedPacket("a summary of unknown form")
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data[1:], _LONGEST + 1)
    except zlib.error as error:
        raise MalformedPacket(f"a summary that cannot be unpacked: {error}") from error
    if not unpacking.eof or unpacking.unused_data:
        raise MalformedPacket("a summary that does not end where its packing does")
    return plain


def _key(sid: bytes, rid: bytes) -> str:
    return (sid + rid).hex()


# A server's side


class Summaries:
    """What is subscribed to at this server, for clients that want to know."""

    def __init__(
        self,
        env: Environment,
        *,
        wanted: Callable[[], Iterable[tuple[bytes, bytes]]],
        boot: Callable[[], int],
    ) -> None:
        """`wanted` has every pair that is subscribed to, once; it is gone through at once."""
        self._env = env
        self._wanted = wanted
        self._boot = boot
        self._bloom: BloomFilter | None = None
        """None until somebody has asked and the first one is complete."""
        self._next: BloomFilter | None = None
        """The one that is being built."""
        self._rebuilding = False
        self._count = self._next_count = 0
        self._stale = 0
        """Entries that have been removed since the filter that is being built, or the last one,
        was begun."""
        self.version = 0
        self._news = False
        self._written = b""
        self._written_at = 0

    def added(self, sid: bytes, rid: bytes) -> None:
        """The pair has its first subscriber; an empty rid stands for the whole scope."""
        if self._next is not None:
            put(self._next, sid, rid)
            self._next_count += 1
        if self._bloom is not None:
            put(self._bloom, sid, rid)
            self._count += 1
            self._news = True
            self._rebuild_if_worthwhile()

    def removed(self, sid: bytes, rid: bytes) -> None:
        """The pair has lost its last subscriber."""
        self._stale += 1
        self._rebuild_if_worthwhile()

    def answer(self, message: SummaryAsk) -> SummaryIs:
        """What a client is told that asks; no bits and version 0 when it is too early to say."""
        if self._bloom is not None:
            self._write(self._bloom)
        elif not self._rebuilding:
            self._rebuild()
        boot = self._boot()
        bits = b"" if message.known == (boot, self.version) else self._written
        return SummaryIs(message.client, self._env.node, boot, self.version, bits)

    def _write(self, bloom: BloomFilter) -> None:
        now = self._env.now()
        if self._news and (not self.version or now - self._written_at >= INTERVAL):
            self._news = False
            self.version += 1
            self._written, self._written_at = write_filter(bloom), now

    # Building anew, a slice at a time

    def _rebuild_if_worthwhile(self) -> None:
        if self._bloom is None or self._rebuilding:
            return
        full = self._bloom.capacity - len(WITNESSES)
        outgrown = self._count > full and self._bloom.capacity < MOST_CAPACITY
        if outgrown or self._stale * 4 > self._count:
            self._rebuild()

    def _rebuild(self) -> None:
        self._rebuilding = True
        # Later, because the pair that was the reason may not be in `wanted` yet, or still.
        self._env.call_later(0, self._begin)

    def _begin(self) -> None:
        pairs = list(self._wanted())
        self._next, self._next_count = new_filter(len(pairs)), len(pairs)
        self._stale = 0
        self._go_on(iter(pairs))

    def _go_on(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        assert self._next is not None
        slice_ = list(islice(pairs, SLICE))
        for sid, rid in slice_:
            put(self._next, sid, rid)
        if len(slice_) == SLICE:
            self._env.call_later(0, self._go_on, pairs)
            return
        self._bloom, self._count = self._next, self._next_count
        self._next, self._rebuilding = None, False
        self._news = True
        self._rebuild_if_worthwhile()


# A client's side


@dataclass(slots=True)
class _Known:
    """What one life of a server has told."""

    boot: int
    version: int
    bloom: BloomFilter
    since: int
    """When this life was first heard of."""
    heard: int
    """When it last said that this is how things are."""


class KnownSummaries:
    """What a client knows of the summaries of the servers.

    A server that has just begun may not have been told everything yet, and while servers come and
    go subscriptions move to their new homes: nothing is ruled out until that has settled
    (`RendezvousSettings.settle`). What a server said counts while it goes on saying so.
    """

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        *,
        servers: Callable[[], list[str]],
        send: Callable[[str, Message], None],
        changed: Callable[[], None],
    ) -> None:
        """`servers` has those that live; `send` fills in how the answer comes back.

        `changed` is called when `may_be_wanted` may have another answer.
        """
        self._env = env
        self._settings = settings
        self._servers = servers
        self._send = send
        self._changed = changed
        self._known: dict[str, _Known] = {}
        self._live: tuple[str, ...] = ()
        self._live_since = 0
        self._told: list[tuple[str, int, int]] = []
        """Servers, their boots and versions, that count and that `changed` was called for."""
        self._timer: Timer | None = None

    def watch(self) -> None:
        """Ask, and go on asking."""
        if self._timer is None:
            self._ask()

    def unwatch(self) -> None:
        """Nobody needs to know any more; everything may be wanted again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._known.clear()
        self._told = []

    def receive(self, message: SummaryIs) -> bool:
        """A server answers a client; whether that is us. MalformedPacket for a broken filter."""
        if message.client != self._env.node:
            return False
        if self._timer is None or message.server not in self._look():
            return True
        self._take(message)
        self._tell()
        return True

    def may_be_wanted(self, sid: bytes, rid: bytes) -> bool:
        """False only where every home of the scope has said that nobody subscribes to the item."""
        live = self._look()
        if not live or not self._settled():
            return True
        for server in homes(sid, live):
            known = self._known.get(server)
            if known is None or not self._counts(known) or contains(known.bloom, sid, rid):
                return True
        return False

    def _take(self, message: SummaryIs) -> None:
        now = self._env.now()
        told = (message.boot, message.version)
        known = self._known.get(message.server)
        if known is not None and (known.boot, known.version) == told:
            known.heard = now
        elif known is not None and told < (known.boot, known.version):
            return  # overtaken by a later one
        elif message.bits:
            since = known.since if known is not None and known.boot == message.boot else now
            bloom = read_filter(message.bits)
            self._known[message.server] = _Known(*told, bloom, since, heard=now)
        else:
            self._known.pop(message.server, None)  # another life, that cannot say yet

    def _ask(self) -> None:
        for server in self._look():
            known = self._known.get(server)
            if known is not None and self._silent(known):
                # It may be another life by now, and one that counts from a lower boot.
                del self._known[server]
                known = None
            told = (0, 0) if known is None else (known.boot, known.version)
            self._send(server, SummaryAsk(server, self._env.node, [], told))
        self._timer = self._env.call_later(INTERVAL, self._ask)
        self._tell()

    def _look(self) -> tuple[str, ...]:
        """The servers that live; what those said that do not is forgotten."""
        live = tuple(sorted(self._servers()))
        if live != self._live:
            self._live, self._live_since = live, self._env.now()
            self._known = {name: self._known[name] for name in live if name in self._known}
        return live

    def _tell(self) -> None:
        counting = (item for item in self._known.items() if self._counts(item[1]))
        told = sorted((server, known.boot, known.version) for server, known in counting)
        if not self._settled():
            told = []
        if told != self._told:
            self._told = told
            self._changed()

    def _settled(self) -> bool:
        return self._env.now() - self._live_since >= self._settings.settle

    def _counts(self, known: _Known) -> bool:
        fresh = self._env.now() - known.since < self._settings.settle
        return not fresh and not self._silent(known)

    def _silent(self, known: _Known) -> bool:
        return self._env.now() - known.heard > self._settings.time_out
