"""The harness's own idea of what was published, and of what a subscriber may be told.

It knows nothing of how publications travel: only what an application was promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from identifiers import Position
from psirp_sim.publications.events import Event, Gap, Reset, Update
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.publishing import Base
from psirp_sim.runtime.schedules import InvariantViolated

ENVELOPE = 1_024
"""More than an envelope adds to its content."""

Stream = tuple[bytes, bytes]
"""Item and publisher."""


@dataclass(slots=True)
class Published:
    """What one publisher has published of an item."""

    epoch: int = -1
    contents: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """By epoch and version."""
    told: dict[int, int] = field(default_factory=dict)
    """By epoch: the latest version that was told to the world."""
    forgotten: dict[int, int] = field(default_factory=dict)
    """By epoch: the latest version that the publisher need not have any more, because it withdrew
    or keeps its versions elsewhere."""

    @property
    def latest(self) -> tuple[int, int]:
        """Epoch and version of what every subscriber must have in the end."""
        return self.epoch, self.told.get(self.epoch, 0)


@dataclass(slots=True, eq=False)
class Reader:
    """What one subscription was told of one stream."""

    last: tuple[int, int] | None = None
    """Epoch and version of the last update or gap."""
    done: tuple[int, int] | None = None
    """Epoch and version of the last that the application was done with."""
    repeats: bool = False
    """Whether what it got in an earlier life may come once more."""


class Ledger:
    """All streams of a trial."""

    def __init__(self, settings: PublicationSettings) -> None:
        self._settings = settings
        self.streams: dict[Stream, Published] = {}
        self.gaps = self.resets = self.updates = 0

    def published(self, item: bytes, position: Position, content: bytes, intact: bool) -> None:
        """An application has published something; `intact`: the publisher has not lost its
        state since what it published before."""
        stream = self.streams.setdefault((item, position.publisher.raw), Published())
        known = stream.contents.setdefault(position.epoch, {})
        # What was never told to anybody may have been lost with all that there was of the stream.
        begun = stream.told.get(stream.epoch, 0) > 0
        if intact and begun and position.epoch != stream.epoch:
            raise InvariantViolated(f"{position} has a new epoch, and nothing was lost")
        if position.epoch < stream.epoch:
            raise InvariantViolated(f"{position} is of an earlier epoch than before")
        repeated = known.get(position.version) == content and not intact
        if position.version <= stream.told.get(position.epoch, 0) and not repeated:
            raise InvariantViolated(f"{position} was given twice")
        stream.epoch = position.epoch
        known[position.version] = content

    def forgotten(self, item: bytes, publisher: bytes) -> None:
        """The publisher has nothing any more of what it published."""
        stream = self.streams.get((item, publisher))
        if stream is not None:
            for epoch, known in stream.contents.items():
                stream.forgotten[epoch] = max(known, default=0)

    def told(self, item: bytes, position: Position) -> None:
        """The publication may have got around."""
        stream = self.streams[item, position.publisher.raw]
        told = stream.told.get(position.epoch, 0)
        # What was written down just before a crash is told by the next life.
        missing = {*range(told + 1, position.version)} - stream.contents[position.epoch].keys()
        if missing:
            raise InvariantViolated(f"{position} was told after version {told}")
        stream.told[position.epoch] = max(told, position.version)

    def recovered(self, item: bytes, base: Base) -> None:
        """A publisher goes on: what an earlier life wrote down is told now, if it was not."""
        stream = self.streams.get((item, base.publisher))
        if stream is not None and base.epoch == stream.epoch:
            stream.told[base.epoch] = max(base.version, stream.told.get(base.epoch, 0))

    def heard(self, reader: Reader, must: tuple[int, int] | None, event: Event) -> None:
        """A subscriber was told something; `must` is the first version it must not miss."""
        match event:
            case Update():
                self._update(reader, must, event)
            case Gap():
                self._gap(reader, must, event)
            case Reset():
                self._reset(reader, event)

    def _update(self, reader: Reader, must: tuple[int, int] | None, event: Update) -> None:
        self.updates += 1
        position = event.position
        stream = self.streams.get((event.rid, position.publisher.raw), Published())
        if stream.contents.get(position.epoch, {}).get(position.version) != event.content:
            raise InvariantViolated(f"{position} is not what was published")
        place = (position.epoch, position.version)
        self._check_order(reader, must, place)
        reader.last, reader.repeats = place, False

    def _check_order(
        self, reader: Reader, must: tuple[int, int] | None, place: tuple[int, int]
    ) -> None:
        if reader.last is None:
            # A publisher that lost its state has lost whom it told, too.
            if must is not None and place[0] == must[0] and place > must:
                raise InvariantViolated(f"it begins with {place}, and not yet {must}")
            return
        follows = (reader.last[0], reader.last[1] + 1)
        if place != follows and not (reader.repeats and place < follows):
            raise InvariantViolated(f"{place} came after {reader.last}")

    def _gap(self, reader: Reader, must: tuple[int, int] | None, event: Gap) -> None:
        self.gaps += 1
        self._check_order(reader, must, (event.epoch, event.first))
        if not self._exceeded(event):
            raise InvariantViolated(
                f"a gap from {event.first} to {event.last}, and the history was not exceeded"
            )
        reader.last, reader.repeats = (event.epoch, event.last), False

    def _exceeded(self, event: Gap) -> bool:
        """Whether the last version of the gap need not be in the publisher's history any more."""
        stream = self.streams[event.rid, event.publisher.raw]
        after = {
            version: content
            for version, content in stream.contents.get(event.epoch, {}).items()
            if version >= event.last
        }
        size = sum(len(content) + ENVELOPE for content in after.values())
        versions, most = self._settings.history_versions, self._settings.history_bytes
        if event.last <= stream.forgotten.get(event.epoch, 0):
            return True
        return event.last in after and (len(after) > versions or size > most)

    def _reset(self, reader: Reader, event: Reset) -> None:
        self.resets += 1
        if reader.last is not None and event.epoch <= reader.last[0] and not reader.repeats:
            raise InvariantViolated(f"a reset to epoch {event.epoch} after {reader.last}")
        reader.last = (event.epoch, 0)
