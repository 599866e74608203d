"""What a PSPH has to change in its zone, given what is there. Pure: no server is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from dns.rdtypes.ANY.TXT import TXT
from dns.rdtypes.IN.SRV import SRV

from bootstrap.errors import BadRecord
from bootstrap.records import (
    ANNOUNCEMENT,
    MAX_KEYS,
    PROXY,
    RENDEZVOUS,
    Announcement,
    is_announcement,
)
from bootstrap.registration.changes import NONE, Change, Record, Records
from bootstrap.registration.settings import RegistrarSettings, Target
from identifiers import ID_VERSION, IdVersion, scope_id, zone_of_host


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of a domain that are ours to look after."""

    proxies: Records = NONE
    rendezvous: Records = NONE
    announcements: Records = NONE

    @property
    def ttl(self) -> int | None:
        """The shortest."""
        kinds = (self.proxies, self.rendezvous, self.announcements)
        return min((each.ttl for each in kinds if each.ttl is not None), default=None)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to change, and what somebody should look at."""

    change: Change
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    added: list[Record] = field(default_factory=list)
    removed: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def owner(prefix: str, domain: str) -> dns.name.Name:
    """The name under which a domain has records of a kind."""
    return dns.name.from_text(f"{prefix}.{domain}.")


def plan(settings: RegistrarSettings, domain: str, seen: Seen) -> Plan:
    """What is missing in, or wrong with, the records of a domain."""
    draft = _Draft()
    _announce(draft, settings, domain, seen.announcements)
    _lead_to(draft, settings, owner(PROXY, domain), (settings.target,), seen.proxies)
    if settings.rendezvous:
        name = owner(RENDEZVOUS, domain)
        _lead_to(draft, settings, name, settings.rendezvous, seen.rendezvous)
    change = Change(tuple(draft.added), tuple(draft.removed), settings.ttl)
    return Plan(change, tuple(draft.notes))


def leaving(settings: RegistrarSettings, domain: str) -> Change:
    """Without this PSPH. The announcement stays: it is the zone's."""
    records = [Record(owner(PROXY, domain), service(settings, settings.target))]
    for target in settings.rendezvous:
        records.append(Record(owner(RENDEZVOUS, domain), service(settings, target)))
    return Change(removed=tuple(records))


def without(domain: str, peer: dns.rdata.Rdata, seen: Records) -> Change:
    """Without a peer, as long as the records are what was seen."""
    name = owner(PROXY, domain)
    expected = tuple(Record(name, rdata) for rdata in sorted(seen.rdatas))
    return Change(removed=(Record(name, peer),), expected=expected)


def peers(settings: RegistrarSettings, seen: Records) -> tuple[SRV, ...]:
    """The other PSPHs of a domain; a target "." says that there is no service."""
    return tuple(
        rdata
        for rdata in sorted(seen.rdatas)
        if isinstance(rdata, SRV)
        and rdata.target != dns.name.root
        and not _leads_to(rdata, settings.target)
    )


def service(settings: RegistrarSettings, target: Target) -> SRV:
    """The SRV record that leads to a target."""
    return service_rdata(settings.priority, settings.weight, target)


def service_rdata(priority: int, weight: int, target: Target) -> SRV:
    text = f"{priority} {weight} {target.port} {target.host}."
    rdata = dns.rdata.from_text(dns.rdataclass.IN, dns.rdatatype.SRV, text)
    assert isinstance(rdata, SRV)
    return rdata


def announcement_rdata(announcement: Announcement) -> dns.rdata.Rdata:
    """The announcement as a TXT record."""
    return dns.rdata.from_text(dns.rdataclass.IN, dns.rdatatype.TXT, announcement.rdata())


def _lead_to(
    draft: _Draft,
    settings: RegistrarSettings,
    name: dns.name.Name,
    targets: Iterable[Target],
    seen: Records,
) -> None:
    for target in targets:
        wanted = service(settings, target)
        if wanted not in seen.rdatas:
            draft.added.append(Record(name, wanted))
        # From before, when priority or weight were others.
        for rdata in sorted(seen.rdatas):
            if _leads_to(rdata, target) and rdata != wanted:
                draft.removed.append(Record(name, rdata))


def _leads_to(rdata: dns.rdata.Rdata, target: Target) -> bool:
    return (
        isinstance(rdata, SRV)
        and rdata.port == target.port
        and rdata.target == dns.name.from_text(f"{target.host}.")
    )


def _announce(draft: _Draft, settings: RegistrarSettings, domain: str, seen: Records) -> None:
    name, zone = owner(ANNOUNCEMENT, domain), zone_of_host(domain)
    published = _published(draft, zone, name, seen)
    keys = {key for key in published if key is not None}
    staying = keys - set(settings.retired_keys)
    wanted: set[bytes | None] = set()
    for key in settings.zone_keys:
        # A third key would make it a matter of chance which are believed.
        if key in staying or len(staying) < MAX_KEYS:
            staying.add(key)
            wanted.add(key)
        else:
            draft.notes.append(
                f"{domain} already publishes {MAX_KEYS} other zone keys, so a key of this PSPH is"
                " not published: retire one of them"
            )
    if not staying:
        wanted.add(None)
    for known, (rdata, version) in published.items():
        # Whoever has a newer suffix list wins, or two PSPHs would overwrite each other for ever.
        outdated = known in wanted and _older(version, str(ID_VERSION))
        gone = known in settings.retired_keys or (known is None and staying)
        if outdated or gone:
            draft.removed.append(Record(name, rdata))
        else:
            wanted.discard(known)
    for missing in sorted(wanted, key=lambda each: each or b""):
        draft.added.append(Record(name, announcement_rdata(Announcement.of_zone(zone, missing))))


def _published(
    draft: _Draft, zone: str, name: dns.name.Name, seen: Records
) -> dict[bytes | None, tuple[dns.rdata.Rdata, str]]:
    """The true announcements by key; of two for one key the newer, the other is removed."""
    published: dict[bytes | None, tuple[dns.rdata.Rdata, str]] = {}
    sid = scope_id(zone)
    for rdata in sorted(seen.rdatas):
        if not isinstance(rdata, TXT):
            continue
        text = " ".join(each.decode("latin-1") for each in rdata.strings)
        if not is_announcement(text):
            continue
        try:
            found = Announcement.parse(text)
        except BadRecord as error:
            draft.notes.append(f"a TXT record of {name.to_text(True)} {error}")
            continue
        if found.sid != sid:
            draft.notes.append(
                f"a TXT record of {name.to_text(True)} has another scope id than {zone}: remove it"
            )
            continue
        other = published.get(found.key)
        if other is None:
            published[found.key] = rdata, found.id_version
            continue
        older = other[0] if _older(other[1], found.id_version) else rdata
        draft.removed.append(Record(name, older))
        if older is other[0]:
            published[found.key] = rdata, found.id_version
    return published


def _older(version: str, than: str) -> bool:
    return _order(version) < _order(than)


def _order(version: str) -> tuple[int, date]:
    parsed = IdVersion.parse(version)
    return parsed.rules, parsed.suffixes
