"""The records of a zone: under which names they stand, and what its TXT record says.

One TXT record announces one key:

    _psirp.example.com. TXT "v=psirp1" "sid=<64 hex>" "ids=1-2026-10-22" "key=<base64>"

Whether the fields are strings of their own or stand in one, with spaces between, is the same.
Unknown fields are for later versions and ignored; a field that comes twice is a mistake.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from bootstrap.errors import BadRecord
from identifiers import ID_VERSION, IdVersion, InvalidId, ScopeId, scope_id
from identifiers.errors import shown

PROXY: Final = "_psirp._tcp"
"""SRV: the PSPHs of a host or zone; each serves http://target:port/hub."""
RENDEZVOUS: Final = "_psirp-rv._udp"
"""SRV: the rendezvous servers of a zone."""
ANNOUNCEMENT: Final = "_psirp"
"""TXT: the scope id of the zone, and its keys."""

VERSION: Final = "v=psirp1"
KEY_BYTES: Final = 32
MAX_KEYS: Final = 2
"""A key and the one that replaces it."""
MAX_TEXT: Final = 1_024
"""Characters of a record; ours have about 140."""
MAX_LEVELS: Final = 8
"""Names on the way from a host up to its zone; who invents deeper ones gets no more questions."""
_MAX_NAME: Final = 253


def owner_names(service: str, host: str, zone: str) -> tuple[str, ...]:
    """Where the records of a service may stand: at the host, then at each parent up to the zone."""
    extra = host.removesuffix(zone).count(".") if host != zone else 0
    labels = host.split(".", extra)
    levels = [".".join(labels[index:]) for index in range(len(labels))]
    if len(levels) > MAX_LEVELS:
        levels = [levels[0], *levels[1 - MAX_LEVELS :]]
    names = (f"{service}.{level}" for level in levels)
    return tuple(name for name in names if len(name) <= _MAX_NAME)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What one TXT record says; a zone without a key has one record without."""

    sid: ScopeId
    id_version: str
    key: bytes | None = None

    def __post_init__(self) -> None:
        if self.key is not None and len(self.key) != KEY_BYTES:
            raise BadRecord(f"a zone key has {KEY_BYTES} bytes, not {len(self.key)}")

    @classmethod
    def of_zone(cls, zone: str, key: bytes | None = None) -> Self:
        """The announcement of `zone` that is true here and now."""
        return cls(scope_id(zone), str(ID_VERSION), key)

    def strings(self) -> tuple[str, ...]:
        """The character-strings of the record."""
        fields = (VERSION, f"sid={self.sid}", f"ids={self.id_version}")
        if self.key is None:
            return fields
        return (*fields, f"key={base64.b64encode(self.key).decode('ascii')}")

    def text(self) -> str:
        """For people, and the inverse of `parse`."""
        return " ".join(self.strings())

    def rdata(self) -> str:
        """As a zone file holds it; no field needs escaping."""
        return " ".join(f'"{each}"' for each in self.strings())

    @classmethod
    def parse(cls, text: str) -> Self:
        """What a record says, or a BadRecord that says what is wrong with it."""
        fields = _fields(text)
        if fields.get("v") != VERSION.removeprefix("v="):
            raise BadRecord(f"has no {VERSION}")
        for name in ("sid", "ids"):
            if name not in fields:
                raise BadRecord(f"has no {name}=")
        try:
            sid, version = ScopeId.parse(fields["sid"]), IdVersion.parse(fields["ids"])
        except InvalidId as error:
            raise BadRecord(str(error)) from None
        return cls(sid, str(version), _key(fields["key"]) if "key" in fields else None)


def is_announcement(text: str) -> bool:
    """Whether a TXT record is meant for us: wildcards bring others' (v=spf1 ...) to our name."""
    return VERSION in text[:MAX_TEXT].split(" ")


class ZoneKeys(NamedTuple):
    """What the announcements of a zone amount to."""

    keys: tuple[bytes, ...]
    id_version: str | None
    problems: tuple[str, ...]
    refused: bool
    """There were announcements, and not one was true."""


def zone_keys(announcements: Iterable[Announcement], zone: str) -> ZoneKeys:
    """The keys of `zone`, as far as its announcements are true."""
    sid = scope_id(zone)
    keys: set[bytes] = set()
    versions: set[str] = set()
    problems = []
    heard = False
    for each in announcements:
        heard = True
        if each.sid != sid:
            problems.append(_lie(each, zone, sid))
            continue
        versions.add(each.id_version)
        if each.key is not None:
            keys.add(each.key)
    if len(keys) > MAX_KEYS:
        problems.append(
            f"{len(keys)} keys are published and only {MAX_KEYS} believed: remove the oldest"
        )
    # In this order, because name servers shuffle records and everybody has to believe the same.
    believed = tuple(sorted(keys)[:MAX_KEYS])
    version = max(versions) if versions else None
    return ZoneKeys(believed, version, tuple(dict.fromkeys(problems)), heard and not versions)


def _lie(announcement: Announcement, zone: str, sid: ScopeId) -> str:
    said = f"says sid={announcement.sid}, but the scope id of {zone} is {sid}"
    if announcement.id_version != str(ID_VERSION):
        # No lie, perhaps: under other rules or another suffix list the zone has another id.
        said += f" (its ids are of version {announcement.id_version}, ours of {ID_VERSION})"
    return f"{said}: refused"


def _fields(text: str) -> dict[str, str]:
    if len(text) > MAX_TEXT:
        raise BadRecord(f"has {len(text):,} characters, more than {MAX_TEXT:,}")
    fields: dict[str, str] = {}
    for field in text.split(" "):
        if not field:
            continue
        name, equals, value = field.partition("=")
        if not equals or not name:
            raise BadRecord(f"has {shown(field)}, which is no field of the form name=value")
        if name in fields:
            raise BadRecord(f"has the field {shown(name)} twice")
        fields[name] = value
    return fields


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    # One spelling only, so that equal keys are equal texts.
    if len(key) != KEY_BYTES or base64.b64encode(key).decode("ascii") != text:
        raise BadRecord(f"has the key {shown(text)}, which is not {KEY_BYTES} bytes in base64")
    return key
