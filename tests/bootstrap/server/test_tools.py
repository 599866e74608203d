"""The tools of BIND read and change our server: dig, nsupdate."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from bootstrap.server.settings import ALGORITHMS
from tests.bootstrap.name_servers import TsigKey, embedded
from tests.bootstrap.server.core import LINES, ZONE

pytestmark = pytest.mark.skipif(
    shutil.which("dig") is None or shutil.which("nsupdate") is None,
    reason="dig and nsupdate are not installed: install the package bind9-dnsutils",
)

BIG = [f'big 300 IN TXT "{n:04d}{"x" * 96}"' for n in range(20)]


@pytest.fixture
def server(tmp_path):
    with embedded(tmp_path, {ZONE: [*LINES, *BIG]}) as one:
        yield one


def dig(server, *arguments):
    command = ["dig", f"@{server.host}", "-p", str(server.port), "+time=30", "+tries=1"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert "malformed" not in done.stdout.lower() + done.stderr.lower(), done
    assert done.returncode == 0, done
    return done.stdout


def nsupdate(server, key, *lines, tcp=False):
    script = [f"server {server.host} {server.port}", f"zone {ZONE}", *lines, "send", ""]
    command = ["nsupdate", "-t", "30", "-y", key.dig] + (["-v"] if tcp else [])
    return subprocess.run(
        command, input="\n".join(script), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("how", ["+notcp", "+tcp"])
def test_dig_reads_records(server, how):
    def short(*arguments):
        return dig(server, how, "+short", *arguments).splitlines()

    assert short(f"_psirp._tcp.{ZONE}", "SRV") == [f"0 5 8080 psph.{ZONE}."]
    assert short(ZONE, "TXT") == ['"of the apex"']
    assert short(f"www.{ZONE}") == [f"web.{ZONE}.", f"news.{ZONE}.", "192.0.2.2"]
    assert short(f"ns.{ZONE}", "AAAA") == ["2001:db8::1"]
    assert short(ZONE, "SOA") == [f"ns.{ZONE}. hostmaster.{ZONE}. 1 3600 600 86400 60"]


def test_dig_reads_what_is_not_there(server):
    assert "status: NXDOMAIN" in dig(server, f"missing.{ZONE}")
    assert "status: REFUSED" in dig(server, "example.com")
    nodata = dig(server, f"news.{ZONE}", "AAAA")
    assert "status: NOERROR" in nodata
    assert "AUTHORITY: 1" in nodata
    referral = dig(server, "+norecurse", f"host.child.{ZONE}")
    assert re.search(r"flags: qr;.*AUTHORITY: 2", referral)


def test_dig_and_edns(server):
    assert "EDNS: version: 0, flags:; udp: 1232" in dig(server, f"news.{ZONE}", "+edns=0")
    assert "flags: do; udp: 1232" in dig(server, f"news.{ZONE}", "+dnssec")
    assert "OPT PSEUDOSECTION" not in dig(server, f"news.{ZONE}", "+noedns")
    assert "status: BADVERS" in dig(server, f"news.{ZONE}", "+edns=1", "+noednsnegotiation")
    assert "status: NOERROR" in dig(server, f"news.{ZONE}", "+nsid", "+cookie", "+ednsopt=65001:00")


def test_dig_and_sizes(server):
    cut = dig(server, f"big.{ZONE}", "TXT", "+bufsize=512", "+ignore")
    assert re.search(r"flags: qr aa tc", cut)
    followed = dig(server, f"big.{ZONE}", "TXT", "+bufsize=512")
    assert "Truncated, retrying in TCP mode" in followed
    assert followed.count("xxxx ") + followed.count('xxxx"') >= 20


def test_dig_transfers(server):
    whole = dig(server, "-y", server.key.dig, ZONE, "AXFR")
    assert f"XFR size: {len(LINES) + len(BIG) + 1} records" in whole
    assert "Transfer failed" in dig(server, ZONE, "AXFR")
    assert "Transfer failed" in dig(server, "-y", server.powerless.dig, ZONE, "AXFR")
    wrong = TsigKey(server.key.name, b"guessed, but not right")
    assert "Transfer failed" in dig(server, "-y", wrong.dig, ZONE, "AXFR")
    since = dig(server, "-y", server.key.dig, ZONE, "IXFR=1")
    assert "XFR size: 1 records" in since


@pytest.mark.parametrize("tcp", [False, True])
def test_nsupdate(server, tcp):
    done = nsupdate(
        server, server.key,
        f"prereq nxdomain added.{ZONE}", f"prereq yxrrset news.{ZONE} A",
        f"update add added.{ZONE} 60 A 192.0.2.9", f'update add added.{ZONE} 60 TXT "two words"',
        f"update delete news.{ZONE} A", f"update delete ns.{ZONE} AAAA 2001:db8::1", tcp=tcp,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert dig(server, "+short", f"added.{ZONE}").split() == ["192.0.2.9"]
    assert dig(server, "+short", f"added.{ZONE}", "TXT").strip() == '"two words"'
    assert "status: NXDOMAIN" in dig(server, f"news.{ZONE}")
    assert dig(server, "+short", ZONE, "SOA").split()[2] == "2"
    again = nsupdate(
        server, server.key, f"prereq nxdomain added.{ZONE}", f"update delete added.{ZONE}", tcp=tcp
    )
    assert "update failed: YXDOMAIN" in again.stderr
    assert dig(server, "+short", f"added.{ZONE}").split() == ["192.0.2.9"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(tmp_path, algorithm):
    key = TsigKey("other-key", b"as long as it has to be for this algorithm", algorithm)
    with embedded(tmp_path, key=key) as server:
        assert "XFR size: 5 records" in dig(server, "-y", key.dig, ZONE, "AXFR")


def test_nsupdate_finds_zone_and_server_by_itself(server):
    """Without `zone` it asks for the SOA of the name, and takes the zone from the answer."""
    script = f"server {server.host} {server.port}\nupdate add a.b.{ZONE} 60 A 192.0.2.9\nsend\n"
    done = subprocess.run(
        ["nsupdate", "-t", "30", "-y", server.key.dig],
        input=script, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert dig(server, "+short", f"a.b.{ZONE}").split() == ["192.0.2.9"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "update failed: REFUSED"),
        (TsigKey("nobody", b"a secret that nobody has"), "NOTAUTH(BADKEY)"),
        (TsigKey("psph-key", b"guessed, but not right"), "NOTAUTH(BADSIG)"),
    ],
)
def test_nsupdate_is_told_what_was_wrong(server, key, message):
    done = nsupdate(server, key or server.powerless, f"update add x.{ZONE} 60 A 192.0.2.9")
    assert done.returncode != 0
    assert message in done.stderr
    assert "status: NXDOMAIN" in dig(server, f"x.{ZONE}")
