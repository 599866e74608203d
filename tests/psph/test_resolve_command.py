"""`psph resolve` against a real name server."""

import base64
import json

import pytest

from bootstrap import Announcement
from identifiers import ID_VERSION, scope_id
from psph import cli
from tests.bootstrap.name_servers import RECORDS, ZONE, embedded

KEY = bytes(range(32))
TEXT = base64.b64encode(KEY).decode()
LIE = Announcement.of_zone("site-a.test", KEY)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    zones = {
        ZONE: [
            *RECORDS,
            "_psirp._tcp 60 IN SRV 10 5 8080 news",
            "_psirp._tcp 60 IN SRV 20 0 8080 gone",
            "_psirp-rv._udp 60 IN SRV 0 0 7000 news",
            f"_psirp 120 IN TXT {Announcement.of_zone(ZONE, KEY).rdata()}",
        ],
        "liar.test": [
            *RECORDS[:3],
            f"_psirp 120 IN TXT {LIE.rdata()}",
            "_psirp._tcp 60 IN SRV 0 0 80 ns",
        ],
        "empty.test": RECORDS,
        "broken.test": [*RECORDS, "_psirp._tcp 60 IN SRV 0 0 0 ns"],
    }
    with embedded(tmp_path_factory.mktemp("dns"), zones) as running:
        yield running


@pytest.fixture
def psph(server, capsys):
    """Run `psph resolve` and give exit code, stdout and stderr."""

    def run(*arguments):
        code = cli.run(["resolve", *arguments, "--dns", server.address])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_table_of_what_was_found_and_where_it_came_from(psph, server):
    code, out, err = psph("http://news.site-a.test:8081/feed.xml")
    assert (code, err) == (0, "")
    title, columns, _, *rows = [line for line in out.splitlines() if line]
    assert title == f"news.site-a.test, zone site-a.test, scope id {scope_id(ZONE)}"
    assert columns.split()[0] == "what"
    first, second, third, key, ids, problem = [row.split() for row in rows]
    at = ["SRV", "_psirp._tcp.site-a.test", server.address]
    assert first == ["PSPH", "news.site-a.test:8080", "10", "5", "127.0.0.1", *at, "60"]
    assert second == ["PSPH", "gone.site-a.test:8080", "20", "0", "-", *at, "60"]
    assert third[:2] == ["rendezvous", "news.site-a.test:7000"]
    assert key[:2] == ["key", TEXT]
    assert key[-1] == "120"
    assert ids[:2] == ["ids", str(ID_VERSION)]
    assert problem == ["problem:", "gone.site-a.test", "has", "no", "address"]


def test_json(psph, server):
    code, out, err = psph("News.site-a.test", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["asked"] == "News.site-a.test"
    assert (found["host"], found["zone"]) == ("news.site-a.test", ZONE)
    assert found["sid"] == str(scope_id(ZONE))
    assert found["keys"] == [TEXT]
    assert found["proxies"][0] == {
        "host": "news.site-a.test",
        "port": 8080,
        "priority": 10,
        "weight": 5,
        "addresses": ["127.0.0.1"],
    }
    assert found["nameserver"] == server.address
    assert found["sources"][2] == {
        "owner": "_psirp.site-a.test",
        "kind": "TXT",
        "nameserver": server.address,
        "ttl": 120,
        "stale": False,
    }
    assert 0 < found["expires_in"] <= 5
    assert (found["stale"], found["refused"]) == (False, False)
    assert found["problems"] == ["gone.site-a.test has no address"]


def test_a_zone_that_lies(psph):
    code, out, err = psph("liar.test")
    assert (code, err) == (1, "")
    assert f"problem: TXT _psirp.liar.test says sid={LIE.sid}, but the scope id of liar.test" in out
    assert out.splitlines()[-1].startswith("refused: no announcement of this zone is true")
    code, out, _ = psph("liar.test", "--json")
    assert code == 1
    assert json.loads(out)["refused"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("www.empty.test", "nothing serves www.empty.test: "),
        ("elsewhere.test", "refuses: it serves other zones"),
        ("127.0.0.1", "127.0.0.1 is an address"),
        ("broken.test", "leads to port 0"),
    ],
)
def test_nothing_is_one_line_and_exit_1(psph, name, why):
    for arguments in ([name], [name, "--json"]):
        code, out, err = psph(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("psph: ")
        assert why in err
        assert err.count("\n") == 1


def test_a_server_that_is_down(capsys):
    assert cli.run(["resolve", ZONE, "--dns", "127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert "127.0.0.1:1 cannot be reached" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a b"], "is not a valid host"),
        (["ftp://x.test/"], "scheme"),
        ([ZONE, "--dns", "nonsense:"], "write HOST:PORT"),
        ([], "Missing argument"),
    ],
)
def test_bad_usage(arguments, why, capsys):
    assert cli.run(["resolve", *arguments]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1
