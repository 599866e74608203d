"""What is kept: across restarts, across changes of the configuration, and whole or not at all."""

from __future__ import annotations

import dns.message
import dns.name
import dns.rcode
import dns.update
import pytest

from bootstrap.server.keeping import Keeper, KeepingError
from bootstrap.server.zone import BadZone, origin_of
from tests.bootstrap.name_servers import KEY, RECORDS, embedded
from tests.bootstrap.server.core import LINES, ZONE, Core, signed
from tests.bootstrap.server.served import run, served, udp

ORIGIN = origin_of(ZONE)


def opened(path, lines=LINES):
    keeper = Keeper(path)
    try:
        return keeper.open(ORIGIN, lines)
    finally:
        keeper.close()


def changed(path, fill, lines=LINES):
    """Make an update as the server would."""
    core = Core(lines)
    keeper = Keeper(path)
    try:
        zone = keeper.open(ORIGIN, lines)
        core.authority.hosted[ORIGIN] = type(core.authority.hosted[ORIGIN])(
            zone, core.authority.hosted[ORIGIN].transfer, core.authority.hosted[ORIGIN].update
        )
        update = core.update()
        fill(update)
        received = core.authority.receive(signed(update, core.now), tcp=True, now=core.now)
        change = core.authority.decide(received)
        keeper.keep(change)
        return change.after
    finally:
        keeper.close()


def shown(zone):
    return sorted(str(record) for record in zone.records())


def test_a_zone_comes_back_as_it_was(tmp_path):
    first = opened(tmp_path / "zones.sqlite")
    assert shown(opened(tmp_path / "zones.sqlite")) == shown(first)
    assert first.serial == 1

    def fill(update):
        update.add("NewCase", 60, "TXT", '"\\000\\255" x')
        update.add("x", 60, "TYPE65280", "\\# 3 010203")
        update.delete("news")
        update.replace("psph", 1, "A", "192.0.2.77")

    after = changed(tmp_path / "zones.sqlite", fill)
    again = opened(tmp_path / "zones.sqlite")
    assert shown(again) == shown(after)
    assert again.serial == 2
    assert f'NewCase.{ZONE} 60 TXT "\\000\\255" "x"' in shown(again)
    assert not again.exists(dns.name.from_text("news", ORIGIN))


def test_lines_that_come_and_go(tmp_path):
    file = tmp_path / "zones.sqlite"

    def fill(update):
        update.add("dynamic", 60, "A", "192.0.2.50")
        update.add("news", 300, "A", "192.0.2.51")
        update.delete("psph")

    changed(file, fill)
    lines = [line for line in LINES if not line.startswith(("News", "ns.child"))]
    lines += ["added 60 IN A 192.0.2.60"]
    zone = opened(file, lines)
    assert zone.serial == 3
    texts = shown(zone)
    assert f"added.{ZONE} 60 A 192.0.2.60" in texts
    assert f"dynamic.{ZONE} 60 A 192.0.2.50" in texts
    assert f"News.{ZONE} 300 A 192.0.2.51" in texts  # the other address of it came by update
    assert not any("192.0.2.2" in text.split() for text in texts)
    assert not any(text.startswith(f"ns.child.{ZONE}") for text in texts)
    assert not any(
        text.startswith(f"psph.{ZONE}") for text in texts
    )  # taken out by update: so it stays
    assert shown(opened(file, lines)) == texts
    assert opened(file, lines).serial == 3


def test_a_new_line_wins_over_an_update(tmp_path):
    file = tmp_path / "zones.sqlite"
    changed(file, lambda update: update.add("x", 60, "A", "192.0.2.50"))
    zone = opened(file, [*LINES, "x 60 IN CNAME news"])
    assert f"x.{ZONE} 60 CNAME news.{ZONE}." in shown(zone)
    assert f"x.{ZONE} 60 A 192.0.2.50" not in shown(zone)
    zone = opened(file, [*LINES, "x 60 IN A 192.0.2.51"])
    assert [text for text in shown(zone) if text.startswith("x.")] == [f"x.{ZONE} 60 A 192.0.2.51"]


def test_the_serial_of_the_configuration_counts_when_it_is_newer(tmp_path):
    file = tmp_path / "zones.sqlite"
    changed(file, lambda update: update.add("x", 60, "A", "192.0.2.50"))
    assert opened(file, [LINES[0].replace(" 1 3600", " 2026 3601"), *LINES[1:]]).serial == 2026
    zone = opened(file, [LINES[0].replace(" 1 3600", " 5 3602"), *LINES[1:]])
    assert zone.serial == 2027
    assert zone.soa[0].refresh == 3602


def test_a_zone_never_loses_its_last_name_server(tmp_path):
    file = tmp_path / "zones.sqlite"
    both = [*LINES, "@ 300 IN NS second"]
    changed(file, lambda update: update.delete("@", "NS", "second"), both)
    zone = opened(file, [*[line for line in both if line != "@ 300 IN NS ns"]])
    assert [text for text in shown(zone) if text.startswith(f"{ZONE} ") and " NS " in text] == [
        f"{ZONE} 300 NS second.{ZONE}."
    ]


def test_two_zones_in_one_file(tmp_path):
    keeper = Keeper(tmp_path / "zones.sqlite")
    keeper.open(ORIGIN, LINES)
    other = origin_of("site-b.test")
    keeper.open(other, RECORDS)
    assert keeper.open(other, RECORDS).count == len(RECORDS)
    assert keeper.open(ORIGIN, LINES).count == len(LINES)
    keeper.close()


def test_a_file_that_cannot_be_used(tmp_path):
    with pytest.raises(KeepingError, match="cannot keep the zones"):
        Keeper(tmp_path / "nowhere" / "zones.sqlite")
    (tmp_path / "text").write_text("this is no database, and it is long enough to be sure" * 40)
    with pytest.raises(KeepingError, match="cannot keep the zones"):
        Keeper(tmp_path / "text")


def test_bad_lines_are_not_kept(tmp_path):
    opened(tmp_path / "zones.sqlite")
    with pytest.raises(BadZone):
        opened(tmp_path / "zones.sqlite", LINES[1:])
    assert opened(tmp_path / "zones.sqlite").serial == 1


def test_updates_survive_a_restart(tmp_path):
    with embedded(tmp_path) as server:
        update = dns.update.UpdateMessage(server.zone, keyring=server.key.dnspython)
        update.add("kept", 60, "A", "192.0.2.9")
        answer = dns.query.udp(update, server.host, 30, port=server.port)
        assert answer.rcode() == dns.rcode.NOERROR
        port = server.port
        server.stop()
        server.start()
        assert server.port == port
        question = dns.message.make_query(f"kept.{server.zone}", "A")
        assert dns.query.udp(question, server.host, 30, port=server.port).answer


def test_updates_are_synced_to_the_disk(tmp_path):
    async def main(expected):
        async with served(tmp_path) as server:
            mode = server._keeper._connection.execute("PRAGMA synchronous").fetchone()
            assert mode == (2,)
            assert server.zones()[0].serial == expected
            update = dns.update.UpdateMessage(ZONE, keyring=KEY.dnspython)
            update.add(f"x{expected}", 60, "A", "192.0.2.9")
            assert (await udp(server, update)).rcode() == dns.rcode.NOERROR

    run(main(1))
    run(main(2))
