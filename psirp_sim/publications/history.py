"""What a publisher keeps of its streams, so that listeners can still ask for it.

A stream keeps its latest versions, within bounds of its own and one for all streams of the node;
the latest version is always there. A durable stream is written down as it goes, and a publisher
that comes back goes on with it where it was, unless a power cut may have taken versions: then the
publisher gives what is left new Positions, in a new epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from psirp_sim.publications.errors import HistoryFull
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.environment import Storage

PREFIX = b"publication "
_STATE, _ENTRY = b"=", b"@"


class _State(msgspec.Struct, frozen=True, array_like=True):
    """What is durable of a stream, besides its versions."""

    publisher: bytes
    epoch: int
    latest: int
    storage_epoch: int = 1
    """Of the storage when it was written."""


_decode = msgspec.msgpack.Decoder(_State).decode


class Shelf:
    """All histories of a node, and the room they share."""

    def __init__(self, settings: PublicationSettings, storage: Storage) -> None:
        self.settings = settings
        self.storage = storage
        self.bytes = 0
        self._spare = 0
        """Bytes of all but the latest versions."""
        self._longer: dict[History, None] = {}
        """Those with more than their latest version, the one that was used least recently first."""

    def check(self, size: int, wanted_by: History) -> None:
        """HistoryFull when there is no room for a version of that size, whatever is let go."""
        # A stream that has a latest version can always exchange it for another.
        if self._is_over(size - self._spare - wanted_by.latest_bytes):
            raise HistoryFull(
                "the histories of this node are full: raise publications.all_history_bytes"
            )

    def trim(self) -> None:
        """Let go of the oldest versions of the stream that has been quiet for the longest."""
        while self._longer and self._is_over(0):
            next(iter(self._longer)).forget_oldest()

    def _is_over(self, more: int) -> bool:
        return self.bytes + more > self.settings.all_history_bytes

    @property
    def is_tight(self) -> bool:
        """Whether something may have to go soon."""
        return self.bytes > self.settings.all_history_bytes * 3 // 4

    def changed(self, history: History, bytes_more: int, spare_more: int) -> None:
        """A history has grown, or shrunk."""
        self.bytes += bytes_more
        self._spare += spare_more
        if bytes_more > 0 or len(history) <= 1:
            self._longer.pop(history, None)
        if len(history) > 1:
            self._longer.setdefault(history)


class History:
    """The versions of one stream: `first` to `latest`, without holes."""

    def __init__(
        self,
        shelf: Shelf,
        sid: bytes,
        rid: bytes,
        *,
        durable: bool,
        renew: Callable[[bytes], bytes] = lambda envelope: envelope,
    ) -> None:
        """What an earlier life kept is read through `renew`; where the stream is not durable any
        more, it is deleted, so that nobody goes back to it."""
        self._shelf = shelf
        self._name = PREFIX + sid + rid
        self._durable = durable
        self._envelopes: dict[int, bytes] = {}
        self.publisher = b""
        self.epoch = 0
        self.latest = 0
        """0 before the first version."""
        self.bytes = 0
        self.is_stale = False
        """Whether later versions may have been published and lost with a power cut."""
        self._spare_counted = 0
        if durable:
            self._load(renew)
        else:
            self._discard()

    def __len__(self) -> int:
        return len(self._envelopes)

    @property
    def first(self) -> int:
        """The oldest version that is still there; where none is, the one that comes next."""
        return self.latest - len(self._envelopes) + 1

    @property
    def latest_bytes(self) -> int:
        return len(self._envelopes.get(self.latest, b""))

    @property
    def spare(self) -> int:
        """Bytes of all but the latest."""
        return self.bytes - self.latest_bytes

    @property
    def is_tight(self) -> bool:
        """Whether the oldest versions go soon."""
        settings = self._shelf.settings
        return self.bytes > settings.history_bytes * 3 // 4 or self._shelf.is_tight

    def get(self, version: int) -> bytes | None:
        """The envelope."""
        return self._envelopes.get(version)

    def envelopes(self) -> list[bytes]:
        """From the oldest to the latest."""
        return list(self._envelopes.values())

    def begin(self, publisher: bytes, epoch: int, latest: int) -> None:
        """A stream that has nothing yet, or a new epoch of one: what was before is gone."""
        while self._envelopes:
            self.forget_oldest()
        self.publisher, self.epoch, self.latest = publisher, epoch, latest
        self.is_stale = False

    def check(self, size: int) -> None:
        """HistoryFull when there is no room for a version of that size."""
        self._shelf.check(size, self)

    def append(self, envelope: bytes, done: Callable[[], None]) -> None:
        """Add the next version; `done` is called when it may be told to the world."""
        self.check(len(envelope))
        self.latest += 1
        self._envelopes[self.latest] = envelope
        self._grown(len(envelope))
        if self._durable:
            self._shelf.storage.write(
                {self._key(self.latest): envelope, self._name + _STATE: self._state()}, done
            )
        self._trim()
        if not self._durable:
            done()

    def forget_oldest(self) -> None:
        """One version less."""
        version = self.first
        gone = self._envelopes.pop(version)
        self._grown(-len(gone))
        if self._durable:
            self._shelf.storage.write({self._key(version): None})

    def close(self, *, keep: bool) -> None:
        """The stream is not published any more; what is written down of it may be kept."""
        self._durable = self._durable and not keep
        while self._envelopes:
            self.forget_oldest()
        if self._durable:
            self._shelf.storage.write({self._name + _STATE: None})

    def _trim(self) -> None:
        settings = self._shelf.settings
        while len(self) > settings.history_versions or (
            self.bytes > settings.history_bytes and len(self) > 1
        ):
            self.forget_oldest()
        self._shelf.trim()

    def _grown(self, by: int) -> None:
        self.bytes += by
        before, self._spare_counted = self._spare_counted, self.spare
        self._shelf.changed(self, by, self.spare - before)

    # What is written down

    def _key(self, version: int) -> bytes:
        return self._name + _ENTRY + version.to_bytes(8)

    def _state(self) -> bytes:
        storage_epoch = self._shelf.storage.epoch
        return msgspec.msgpack.encode(
            _State(self.publisher, self.epoch, self.latest, storage_epoch)
        )

    def _discard(self) -> None:
        if self._shelf.storage.get(self._name + _STATE) is not None:
            keys = [self._name + _STATE, *(self._key(version) for version, _ in self._stored())]
            self._shelf.storage.write(dict.fromkeys(keys))

    def _load(self, renew: Callable[[bytes], bytes]) -> None:
        state = self._shelf.storage.get(self._name + _STATE)
        if state is None:
            return
        known = _decode(state)
        self.publisher, self.epoch, self.latest = known.publisher, known.epoch, known.latest
        self.is_stale = known.storage_epoch != self._shelf.storage.epoch
        stored = dict(self._stored())
        # Only a run that ends with the latest is any good.
        first = self.latest + 1
        while first - 1 in stored:
            first -= 1
        for version in range(first, self.latest + 1):
            self._envelopes[version] = renew(stored[version])
            self._grown(len(stored[version]))
        # What was let go just before a crash may have come back with it.
        self._trim()

    def _stored(self) -> Iterator[tuple[int, bytes]]:
        prefix = self._name + _ENTRY
        for key, envelope in self._shelf.storage.scan(prefix):
            yield int.from_bytes(key[len(prefix) :]), envelope
