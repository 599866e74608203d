"""The rights that docs/dns.md gives to a key at BIND are enough, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bootstrap.records import PROXY, Announcement
from bootstrap.registration import TsigKey, tsig
from bootstrap.registration.settings import Target
from tests.bootstrap.name_servers import RECORDS, _Bind
from tests.bootstrap.name_servers import TsigKey as ServerKey
from tests.bootstrap.registering import Zone, registered, run, settings_for, until

DOCS = Path(__file__).parents[3] / "docs" / "dns.md"
NAME = "psph.site-a.test"


class _Documented(_Bind):
    """A BIND whose zone is configured as the documentation shows."""

    def _write(self):
        path = super()._write()
        (shown,) = re.findall(r"```\n(include .*?)```", DOCS.read_text(), re.DOTALL)
        tsig.save(TsigKey(NAME, self.key.secret), self.directory / "tsig.key")
        shown = shown.replace("/etc/bind/tsig.key", str(self.directory / "tsig.key"))
        options = path.read_text().split("key ")[0]
        path.write_text(options + shown)
        return path


@pytest.fixture
def server(tmp_path):
    key = ServerKey(NAME, b"a secret for the documentation's key")
    with _Documented(tmp_path / "bind", {"site-a.test": RECORDS}, "bind", key=key) as running:
        running.start()
        yield running


def test_they_are_enough(server):
    async def main():
        zone = Zone(server)
        settings = settings_for(
            server, rendezvous=(Target("rv.site-a.test", 1),), zone_keys=(b"\1" * 32,),
            take_over_after=0.2,
        )  # fmt: skip
        async with registered(settings) as registrar:
            assert await zone.proxies() == ["psph1:8080"]
            assert await zone.rendezvous() == ["rv:1"]
            assert await zone.announcements() == [Announcement.of_zone("site-a.test", b"\1" * 32)]
            assert "news.site-a.test" in await registrar.learn_hosts("site-a.test")
            # No address, no host: nobody can reach it.
            dead = "0 10 1 dead.site-a.test."
            await zone.change(add=[(f"{PROXY}.site-a.test.", 2, "SRV", dead)])
            registrar.refresh()

            async def alone():
                return await zone.proxies() == ["psph1:8080"]

            await until(alone, "the dead one is gone")
        assert await zone.proxies() == []

    run(main())


def test_they_are_no_more(server):
    async def main():
        for name, kind, value in (
            ("news.site-a.test.", "A", "192.0.2.1"),
            ("_psirp.site-a.test.", "A", "192.0.2.1"),
            ("_psirp._tcp.news.site-a.test.", "SRV", "0 0 1 a.site-a.test."),
        ):
            with pytest.raises(AssertionError, match="REFUSED"):
                await Zone(server).change(add=[(name, 2, kind, value)])

    run(main())
