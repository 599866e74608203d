"""`psph zone-key` and `psph zone-records` on the command line."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tomllib

import dns.rdatatype
import dns.zone
import pytest

from bootstrap.records import Announcement
from bootstrap.registration import tsig, zone_key
from psph import cli
from psph.configuration.bootstrap import BootstrapConfiguration
from psph.configuration.loading import check
from tests.bootstrap.name_servers import RECORDS, SERVERS


@pytest.fixture
def psph(capsys):
    """Runs a command line; returns exit code, output and errors."""

    def run(*arguments):
        code = cli.run([str(each) for each in arguments])
        output, errors = capsys.readouterr()
        return code, output, errors

    return run


def _tool(name):
    return shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


def test_a_zone_key_is_made_once_and_then_shown(psph, tmp_path):
    file = tmp_path / "zone.key"
    code, made, _ = psph("zone-key", file)
    assert code == 0
    assert "a new key" in made
    assert file.stat().st_mode & 0o777 == 0o600
    content = file.read_text()
    code, shown, _ = psph("zone-key", file, "--zone", "News.site-a.test", "--json")
    assert code == 0
    assert file.read_text() == content
    found = json.loads(shown)
    key = zone_key.load(file)
    assert found["made"] is False
    assert found["public_key"] == key.text
    assert key.text in made
    name, _, kind, text = found["txt"].split(" ", 3)
    assert (name, kind) == ("_psirp.news.site-a.test.", "TXT")
    expected = Announcement.of_zone("site-a.test", key.public)
    assert Announcement.parse(text.replace('"', "")) == expected
    # Nothing of the private half is ever printed.
    secret = "".join(content.splitlines()[1:-1])
    raw = key.private.private_bytes_raw()
    for part in (secret, base64.b64encode(raw).decode(), raw.hex()):
        assert part not in made + shown


def test_a_zone_key_that_others_can_read_is_refused(psph, tmp_path):
    file = tmp_path / "zone.key"
    psph("zone-key", file)
    file.chmod(0o644)
    code, output, errors = psph("zone-key", file)
    assert (code, output) == (1, "")
    assert "others can read this secret (mode 0644): run chmod 600" in errors
    assert errors.count("\n") == 1


def test_a_tsig_key_in_both_forms(psph, tmp_path):
    code, output, _ = psph("zone-key", "--tsig", "psph.site-a.test", "--algorithm", "hmac-sha512")
    assert code == 0
    ours, bind = output.split("# for named.conf, or a file that it includes:\n")
    key = tsig.parse(bind)
    assert (key.name, key.algorithm) == ("psph.site-a.test", "hmac-sha512")
    table = tomllib.loads(ours) | {
        "update_server": "127.0.0.1:53", "zones": ["site-a.test"], "endpoint": "a.site-a.test:80",
    }  # fmt: skip
    configured = check(table, BootstrapConfiguration, "test")
    assert configured.registrar_settings(tmp_path).key == key
    (tmp_path / "named.conf").write_text(bind)
    subprocess.run([_tool("named-checkconf"), tmp_path / "named.conf"], check=True)
    _, other, _ = psph("zone-key", "--tsig", "psph.site-a.test", "--json")
    assert json.loads(other)["secret"] != key.text


def test_a_tsig_key_in_a_file(psph, tmp_path):
    file = tmp_path / "tsig.key"
    code, output, _ = psph("zone-key", file, "--tsig", "a.b", "--json")
    assert code == 0
    found = json.loads(output)
    assert tsig.load(file).text == found["secret"]
    assert found["psph"] == f'tsig_file = "{file}"'
    assert json.loads(psph("zone-key", file, "--tsig", "a.b", "--json")[1]) == found
    for other in (("--tsig", "c.d"), ("--tsig", "a.b", "--algorithm", "hmac-sha512")):
        code, _, errors = psph("zone-key", file, *other)
        assert code == 1
        assert "is there and has the key a.b (hmac-sha256)" in errors
        assert found["secret"] not in errors
    assert tsig.load(file).text == found["secret"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument 'FILE'"),
        (("--tsig", "not a name"), "is no name of a key"),
        (("--tsig", "a", "--algorithm", "hmac-md5"), "choose one of"),
        (("--tsig", "a", "--zone", "site-a.test"), "--zone is for"),
        (("x", "--algorithm", "hmac-sha256"), "--algorithm is for --tsig"),
        (("x", "--zone", "127.0.0.1"), "is an address"),
    ],
)
def test_bad_usage_of_zone_key(psph, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, output, errors = psph("zone-key", *arguments)
    assert (code, output) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def _keys(tmp_path):
    files = [tmp_path / "old.key", tmp_path / "new.key"]
    return files, {zone_key.make(each).public for each in files}


def _records(psph, files, *more):
    options = [part for each in files for part in ("--key-file", each)]
    code, output, errors = psph(
        "zone-records", "site-a.test", "--target", "psph1.site-a.test:8080",
        "--rendezvous", "rv.site-a.test:4000", "--rendezvous", "rv.site-b.test:4001",
        *options, *more,
    )  # fmt: skip
    assert (code, errors) == (0, "")
    return output


def test_the_records_are_a_zone_file(psph, tmp_path):
    files, keys = _keys(tmp_path)
    output = _records(psph, files, "--ttl", 77)
    text = "\n".join(["$ORIGIN site-a.test.", *RECORDS, "psph1 5 IN A 127.0.0.1",
                      "rv 5 IN A 127.0.0.1"]) + "\n" + output  # fmt: skip
    zone = dns.zone.from_text(text, "site-a.test.", relativize=False)
    texts = zone.get_rdataset("_psirp.site-a.test.", dns.rdatatype.TXT)
    assert texts.ttl == 77
    found = [Announcement.parse(b" ".join(each.strings).decode()) for each in texts]
    assert {each.key for each in found} == keys
    (proxy,) = zone.get_rdataset("_psirp._tcp.site-a.test.", dns.rdatatype.SRV)
    assert proxy.to_text() == "0 10 8080 psph1.site-a.test."
    assert len(zone.get_rdataset("_psirp-rv._udp.site-a.test.", dns.rdatatype.SRV)) == 2
    path = tmp_path / "site-a.test.zone"
    path.write_text(text)
    checked = subprocess.run(
        [_tool("named-checkzone"), "site-a.test", path], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.endswith("OK\n")
    rows = json.loads(_records(psph, files, "--ttl", 77, "--json"))
    lines = [line for line in output.splitlines() if not line.startswith(";")]
    assert [
        f"{each['name']} {each['ttl']} IN {each['type']} {each['value']}" for each in rows
    ] == lines


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_what_is_pasted_is_found(psph, tmp_path, kind):
    files, keys = _keys(tmp_path)
    pasted = [line for line in _records(psph, files).splitlines() if not line.startswith(";")]
    records = (*RECORDS, "psph1 300 IN A 127.0.0.1", "rv 300 IN A 127.0.0.1", *pasted)
    with SERVERS[kind](tmp_path, {"site-a.test": records}) as server:
        code, output, _ = psph("resolve", "news.site-a.test", "--dns", server.address, "--json")
    assert code == 0
    for wanted in ("psph1.site-a.test", "rv.site-a.test"):
        assert wanted in output
    for key in keys:
        assert base64.b64encode(key).decode() in output


def test_a_zone_without_key(psph):
    code, output, _ = psph("zone-records", "Bücher.test", "--target", "a.bücher.test:80")
    assert code == 0
    expected = Announcement.of_zone("xn--bcher-kva.test")
    assert f"_psirp.xn--bcher-kva.test. 300 IN TXT {expected.rdata()}" in output
    assert "_psirp._tcp.xn--bcher-kva.test. 300 IN SRV 0 10 80 a.xn--bcher-kva.test." in output


GOOD = ("--target", "a.site-a.test:80")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("site-a.test",), 2, "--target"),
        ((*GOOD,), 2, "DOMAIN"),
        (("192.0.2.1", *GOOD), 2, "DOMAIN: '192.0.2.1' is an address"),
        (("not a domain", *GOOD), 2, "DOMAIN: "),
        (
            ("site-a.test", "--target", "a.site-a.test"),
            2,
            "--target: 'a.site-a.test' is no address",
        ),
        (("site-a.test", "--target", "127.0.0.1:80"), 2, "--target: '127.0.0.1' is an address"),
        (("site-a.test", *GOOD, "--rendezvous", "x:0"), 2, "--rendezvous: 0 is no port"),
        (("site-a.test", *GOOD, "--ttl", "0"), 2, "--ttl"),
        (("site-a.test", *GOOD, "--key-file", "missing"), 1, "missing: No such file"),
    ],
)
def test_bad_usage_of_zone_records(psph, tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    result = psph("zone-records", *arguments)
    assert result[:2] == (code, "")
    assert said in result[2]
    assert result[2].count("\n") == 1


def test_three_keys_are_too_many(psph, tmp_path):
    files = [tmp_path / name for name in ("a", "b", "c")]
    for each in files:
        zone_key.make(each)
    options = [part for each in files for part in ("--key-file", each)]
    code, _, errors = psph("zone-records", "site-a.test", *GOOD, *options)
    assert code == 2
    assert "at most 2 keys" in errors
