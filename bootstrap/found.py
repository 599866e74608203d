"""What was found for a domain, and how it is read from the records of the zone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dns.rdata import Rdata
from dns.rdtypes.ANY.TXT import TXT
from dns.rdtypes.IN.SRV import SRV

from bootstrap.errors import BadRecord
from bootstrap.records import MAX_TEXT, Announcement, ZoneKeys, is_announcement, zone_keys
from bootstrap.selection import Endpoint
from identifiers import InvalidTopic, ScopeId, is_address, normalise_host
from identifiers.errors import shown

MAX_ENDPOINTS: Final = 32
MAX_ANNOUNCEMENTS: Final = 16


@dataclass(frozen=True, slots=True)
class Source:
    """Records that something came from."""

    owner: str
    kind: str
    nameserver: str
    ttl: float
    """Seconds that they still held when they were read; 0 when stale."""
    stale: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What serves a host, and the keys of its zone.

    The keys are good for topics of this host. Records may stand at the host itself, and whoever
    runs one host of a zone must not speak for the others.
    """

    host: str
    zone: str
    sid: ScopeId
    proxies: tuple[Endpoint, ...]
    rendezvous: tuple[Endpoint, ...]
    keys: tuple[bytes, ...]
    id_version: str | None
    """Of the ids the zone announces; None when it announces none."""
    nameserver: str
    sources: tuple[Source, ...]
    expires_in: float
    """Seconds; 0 when stale."""
    stale: bool = False
    """No name server answers: this is from before."""
    refused: bool = False
    """The zone announces keys and not one record is true: trust no publication of it."""
    problems: tuple[str, ...] = ()


class Services(NamedTuple):
    """The targets of SRV records, without addresses yet."""

    endpoints: tuple[Endpoint, ...] = ()
    problems: tuple[str, ...] = ()


def read_services(owner: str, records: Sequence[Rdata]) -> Services:
    """The endpoints that SRV records lead to; none for the one that says "not here"."""
    endpoints: dict[tuple[str, int, int], Endpoint] = {}
    problems = []
    for record in records:
        if not isinstance(record, SRV) or record.target.to_text() == ".":
            continue
        try:
            endpoint = _endpoint(record)
        except BadRecord as error:
            problems.append(f"SRV {owner} {error}")
            continue
        endpoints.setdefault((endpoint.host, endpoint.port, endpoint.priority), endpoint)
    if endpoints and any(
        isinstance(each, SRV) and each.target.to_text() == "." for each in records
    ):
        problems.append(f'SRV {owner} says "not here" (target ".") and names targets, too')
    kept = sorted(endpoints.values(), key=lambda each: (each.priority, each.host, each.port))
    if len(kept) > MAX_ENDPOINTS:
        problems.append(f"SRV {owner} has {len(kept)} targets: the last ones are left out")
    return Services(tuple(kept[:MAX_ENDPOINTS]), _distinct(problems))


def _endpoint(record: SRV) -> Endpoint:
    target = record.target.to_text(omit_final_dot=True)
    try:
        host = normalise_host(target)
    except InvalidTopic:
        raise BadRecord(f"leads to {shown(target)}, which is no host name") from None
    if is_address(host):
        raise BadRecord(f"leads to the address {host}: a target is a name with an A record")
    if record.port == 0:
        raise BadRecord(f"leads to port 0 of {host}")
    return Endpoint(host, record.port, record.priority, record.weight)


def announcements_in(records: Iterable[Rdata]) -> list[str]:
    """The texts of those TXT records that are meant for us."""
    texts = [
        # Beyond the longest allowed nothing is read but that it is too long.
        b" ".join(record.strings)[: MAX_TEXT + 1].decode("ascii", "replace")
        for record in records
        if isinstance(record, TXT)
    ]
    return sorted({text for text in texts if is_announcement(text)})


def read_announcements(owner: str, records: Iterable[Rdata], zone: str) -> ZoneKeys:
    """What the TXT records at a name say about `zone`, as far as it is true."""
    texts = announcements_in(records)
    announcements = []
    problems = []
    for text in texts[:MAX_ANNOUNCEMENTS]:
        try:
            announcements.append(Announcement.parse(text))
        except BadRecord as error:
            problems.append(f"TXT {owner} {error}: refused")
    if len(texts) > MAX_ANNOUNCEMENTS:
        problems.append(f"TXT {owner} has {len(texts)} records: the last ones are left out")
    read = zone_keys(announcements, zone)
    problems += [f"TXT {owner} {problem}" for problem in read.problems]
    return read._replace(
        problems=_distinct(problems),
        refused=bool(texts) and read.id_version is None,
    )


def _distinct(problems: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problems))
