"""One world for all tests of this folder: starting it takes longer than most of them."""

from __future__ import annotations

import pytest

from bootstrap.records import Announcement
from tests.e2e.domains import TTL, Domains, Psph
from tests.e2e.proxies.names import BLOG, LARGEST, LIAR, PLAIN, PRIVATE, SHOP, A, B, C


def _lie():
    """A zone that shows another zone's scope id as its own, and leads to a PSPH."""
    return [
        f"_psirp {TTL} IN TXT {Announcement.of_zone(B, b'k' * 32).rdata()}",
        f"_psirp._tcp {TTL} IN SRV 0 10 9 psph",
    ]


@pytest.fixture(scope="package")
def world(tmp_path_factory):
    psphs = [
        Psph(A, gated=True),
        Psph(B, gated=True, hub=f"max_body = {LARGEST}", proxy=f'refused = ["{PRIVATE}"]'),
        Psph(C, name=C, proxy=f'hosts = ["news.{C}"]'),
        Psph(C, name=BLOG, proxy=f'hosts = ["{BLOG}"]', hub="poll_shortest_s = 1"),
        Psph(C, name=SHOP, proxy=f'hosts = ["{SHOP}"]'),
    ]
    with Domains(
        tmp_path_factory.mktemp("domains"),
        psphs,
        hub="shortest_lease_s = 1\nreader_lease_s = 2",
        proxy="announce_s = 1\nadmit_s = 60",
        traces="rotate_seconds = 1",
        others={PLAIN: [], LIAR: _lie()},
    ) as domains:
        domains.start()
        yield domains
