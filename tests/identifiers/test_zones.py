"""Zones, zone channels, and the id version."""

import re
from datetime import date
from pathlib import Path

import idna
import publicsuffixlist
import pytest

from identifiers import (
    ID_VERSION,
    IdVersion,
    InvalidId,
    InvalidTopic,
    InvalidZone,
    normalise_host,
    zone_channel,
    zone_of_host,
)

LIST = Path(publicsuffixlist.PSLFILE)


def official_cases() -> list[tuple[str, str]]:
    """The test data of the list's own project, which the package carries."""
    text = LIST.with_name("test_psl.txt").read_text("utf-8")
    found = re.findall(r"^checkPublicSuffix\('([^']+)', (?:'([^']+)'|null)\);", text, re.MULTILINE)
    return [(host, zone) for host, zone in found if not host.startswith(".")]


def test_the_list_projects_own_cases() -> None:
    cases = official_cases()
    assert len(cases) > 50
    for host, zone in cases:
        normal = normalise_host(host)
        assert zone_of_host(normal) == (normalise_host(zone) if zone else normal)


def test_every_rule_of_the_list_is_in_the_form_that_hosts_have() -> None:
    """The package encodes rules by IDNA 2003, we encode hosts by UTS-46: where they meet, equal."""
    rules = [line.split()[0] for line in LIST.read_text("utf-8").splitlines() if line.strip()]
    foreign = {rule.lstrip("!*.") for rule in rules if not rule.isascii()}
    assert len(foreign) > 100
    for rule in foreign:
        assert normalise_host(rule) == rule.encode("idna").decode() == idna.encode(rule).decode()


@pytest.mark.parametrize("zone", ["localhost", "192.0.2.1", "[::1]", "co.uk", "com", "github.io"])
def test_no_channel_where_nothing_is_below_a_suffix(zone: str) -> None:
    assert zone_channel(zone) is None


def test_channels_share_a_scope_by_label_and_an_item_by_suffix() -> None:
    com, org, other = (zone_channel(z) for z in ("example.com", "example.org", "other.com"))
    assert com is not None
    assert org is not None
    assert other is not None
    assert com.sid == org.sid
    assert com.rid == other.rid
    assert com.rid != org.rid


def test_a_host_that_is_no_zone_has_no_channel() -> None:
    with pytest.raises(InvalidZone, match=r"the zone example\.com"):
        zone_channel("www.example.com")


def test_the_version_names_the_rules_and_the_date_of_the_list() -> None:
    assert ID_VERSION.rules == 1
    assert f"// VERSION: {ID_VERSION.suffixes}_" in LIST.read_text("utf-8")[:2_000]
    assert IdVersion.parse(str(ID_VERSION)) == ID_VERSION
    assert str(IdVersion(1, date(2026, 1, 2))) == "1-2026-01-02"


@pytest.mark.parametrize(
    "text", ["", "1", "1-", "0-2026-10-22", "01-2026-10-22", "1-2026-13-22", "1-20261022", "x"]
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InvalidId, match="id version"):
        IdVersion.parse(text)


@pytest.mark.parametrize("host", ["a" * 2_000, "a\u00ad" * 1_000])
def test_an_endless_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidTopic, match="characters"):
        normalise_host(host)
