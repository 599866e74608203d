"""Zones: the registrable domain that a host belongs to, by the public suffix list.

The private section of the list counts, so that every site under github.io is a zone of its own;
an unknown top-level domain is a public suffix. The list changes from month to month and zones
with it, so its date is part of the id version.
"""

import re
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Final, Self

from publicsuffixlist import PSLFILE, PublicSuffixList

from identifiers.errors import InvalidId, InvalidZone, shown
from identifiers.hosts import is_address

_RULES: Final = 1


@dataclass(frozen=True, slots=True)
class IdVersion:
    """Which rules and which suffix list made an id. Text form: "1-2026-10-22".

    Ids of two versions with equal `rules` are equal for every topic whose zone is the same in
    both lists.
    """

    rules: int
    suffixes: date

    def __str__(self) -> str:
        return f"{self.rules}-{self.suffixes}"

    @classmethod
    def parse(cls, text: str) -> Self:
        found = re.fullmatch(r"([1-9][0-9]{0,8})-([0-9]{4}-[0-9]{2}-[0-9]{2})", text)
        try:
            if found:
                return cls(int(found[1]), date.fromisoformat(found[2]))
        except ValueError:
            pass  # well-formed, but no such day
        raise InvalidId(f"{shown(text)} is not an id version: write one such as {ID_VERSION}")


@lru_cache(maxsize=8_192)
def zone_of_host(host: str) -> str:
    """The zone of `host`, which is in normal form.

    An IP address, a single label or a public suffix is its own zone.
    """
    if "." not in host or is_address(host):
        return host
    return _suffixes().privatesuffix(host) or host


def split_zone(zone: str) -> tuple[str, str] | None:
    """A zone's own label and the public suffix after it: ("example", "co.uk").

    None for an IP address, a single label or a public suffix.
    """
    if zone_of_host(zone) != zone:
        raise InvalidZone(f"{shown(zone)} lies in the zone {zone_of_host(zone)}: use that one")
    if is_address(zone) or _suffixes().is_public(zone):
        return None
    label, _, suffix = zone.partition(".")
    return label, suffix


@cache
def _suffixes() -> PublicSuffixList:
    # Parsing takes a tenth of a second: on first use, not on import.
    return PublicSuffixList(accept_unknown=True, only_icann=False)


def _list_date() -> date:
    with open(PSLFILE, encoding="utf-8") as lines:
        for line in lines:
            if found := re.match(r"// VERSION: (\d{4}-\d{2}-\d{2})_", line):
                return date.fromisoformat(found[1])
    raise RuntimeError(
        "the public suffix list has no VERSION line: reinstall the pinned publicsuffixlist"
    )


ID_VERSION: Final = IdVersion(_RULES, _list_date())
