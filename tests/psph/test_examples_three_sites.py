"""The sample of a company with three sites: started whole, every site hears the others."""

from __future__ import annotations

import json
import re
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bootstrap.registration import zone_key
from psph import cli
from tests.e2e.node_process import eventually
from tests.e2e.serving import Serving
from tests.ports import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-sites"
SITES = ("north", "south", "west")
NODES = ("dns", *(f"fabric-{site}" for site in SITES), *(f"psph-{site}" for site in SITES))
PATIENCE = 90

PORT = re.compile(r"(127\.0\.0\.1:|\.test:|SRV 0 5 )(\d+)")
FEED = """<feed xmlns="http://www.w3.org/2005/Atom"><title>news</title><id>urn:news</id>
<updated>2026-01-01T00:00:00Z</updated><entry><id>urn:{0}</id><title>{0}</title>
<updated>2026-01-01T00:00:00Z</updated></entry></feed>"""


class Company:
    """The example, with a directory for each process, as if on machines of their own."""

    def __init__(self, directory):
        texts = {name: (EXAMPLE / f"{name}.toml").read_text() for name in NODES}
        old = sorted({found[1] for text in texts.values() for found in PORT.findall(text)})
        self.ports = dict(zip(old, map(str, free_ports(len(old))), strict=True))
        self.parts = {name: self._part(directory / name, text) for name, text in texts.items()}
        key = directory / "corp.key"
        zone_key.make(key)
        for site in SITES:
            shutil.copy(key, directory / f"psph-{site}" / "corp.key")
        self.dns = self._address(texts["dns"], "listen")
        self.hubs = {site: f"http://{self._address(texts[f'psph-{site}'])}" for site in SITES}

    def _part(self, directory, text):
        admin = self._address(text, "admin").rpartition(":")[2]
        part = Serving(directory.name, directory, int(admin))
        part.write(PORT.sub(lambda found: found[1] + self.ports[found[2]], text))
        return part

    def _address(self, text, key="listen"):
        port = re.search(rf'^{key} = \[?"127\.0\.0\.1:(\d+)"', text, re.MULTILINE)[1]
        return f"127.0.0.1:{self.ports[port]}"

    def start(self, stack):
        for part in self.parts.values():
            stack.callback(part.end)
            part.launch()
        for part in self.parts.values():
            part.ready()
        for site in SITES:
            eventually(lambda site=site: self.has_joined(site), PATIENCE)

    def has_joined(self, site):
        part = self.parts[f"psph-{site}"]
        try:
            zones = part.ask("/bootstrap/status")
            return bool(part.ask("/fabric/status")["servers"]) and all(
                zones.get(zone, {}).get("registered") for zone in ("corp.test", f"{site}.corp.test")
            )
        except urllib.error.HTTPError:  # not so far yet
            return False

    def ping(self, site, topic):
        form = urllib.parse.urlencode({"hub.mode": "publish", "hub.url": topic}).encode()
        with urllib.request.urlopen(f"{self.hubs[site]}/hub", form, timeout=PATIENCE) as answer:
            assert answer.status < 300

    @contextmanager
    def reading(self, site, topic):
        """The titles of what comes to a reader at a site, one after the other."""
        query = urllib.parse.urlencode({"topic": topic})
        with closing(
            urllib.request.urlopen(f"{self.hubs[site]}/stream?{query}", timeout=PATIENCE)
        ) as stream:
            yield (
                entry["title"]
                for line in stream
                if line.startswith(b"data: ")
                for entry in json.loads(line[6:]).get("entries") or ()
            )


class Website:
    """A feed at any host of the company, with one entry; every host leads to this machine."""

    def __init__(self, stack):
        website = self
        self.entry = "first"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = FEED.format(website.entry).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/atom+xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        self.port = server.server_address[1]

    def topic(self, host):
        return f"http://{host}:{self.port}/feed.xml"


@pytest.fixture(scope="module")
def company(tmp_path_factory):
    with ExitStack() as stack:
        world = Company(tmp_path_factory.mktemp("company"))
        world.start(stack)
        yield world


@pytest.fixture
def website():
    with ExitStack() as stack:
        yield Website(stack)


def test_all_files_are_known():
    assert sorted(file.stem for file in EXAMPLE.glob("*.toml")) == sorted(NODES)


def test_no_two_parts_share_a_port_and_no_other_example_has_one():
    def bound(file):
        text = file.read_text()
        return re.findall(r'^(?:admin|listen) = \[?"127\.0\.0\.1:(\d+)"', text, re.MULTILINE)

    ours = [port for file in EXAMPLE.glob("*.toml") for port in bound(file)]
    assert len(ours) == len(set(ours)) == 14
    others = {
        port
        for file in EXAMPLE.parent.rglob("*.toml")
        if file.parent != EXAMPLE
        for port in bound(file)
    }
    assert others.isdisjoint(ours)


def test_every_file_is_valid_as_it_is(tmp_path):
    for name in NODES:
        shutil.copy(EXAMPLE / f"{name}.toml", tmp_path)
    assert cli.run(["zone-key", str(tmp_path / "corp.key"), "--zone", "corp.test"]) == 0
    for name in NODES:
        assert cli.run(["serve", "--config", str(tmp_path / f"{name}.toml"), "--check"]) == 0


def test_one_zone_leads_to_all_sites(company, capsys):
    def resolve(zone):
        assert cli.run(["resolve", zone, "--dns", company.dns, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    whole = resolve("corp.test")
    assert len(whole["proxies"]) == len(whole["rendezvous"]) == 3
    assert len(whole["keys"]) == 1
    site = resolve("west.corp.test")
    assert [each["host"] for each in site["proxies"]] == ["psph.west.corp.test"]
    assert site["keys"] == whole["keys"]


@pytest.mark.parametrize("site", SITES)
def test_an_update_at_one_site_reaches_a_reader_at_each_other(site, company, website):
    topic = website.topic(f"news.{site}.corp.test")
    with ExitStack() as readers:
        others = {
            other: readers.enter_context(company.reading(other, topic))
            for other in SITES
            if other != site
        }
        # What is there now comes first: then the way stands.
        assert [next(titles) for titles in others.values()] == ["first", "first"]
        website.entry = "second"
        company.ping(site, topic)
        assert [next(titles) for titles in others.values()] == ["second", "second"]
        for other in others:
            wanted = company.parts[f"psph-{other}"].ask("/proxy/status")["wanted_here"]
            assert wanted[topic]["state"] == "the fabric brings it"


def test_a_site_is_lost_and_the_others_go_on(company, website):
    """The last: north does not come back, and its name server is gone with it."""
    topics = [website.topic(host) for host in ("news.south.corp.test", "www.corp.test")]
    with ExitStack() as readers:
        arriving = [readers.enter_context(company.reading("west", topic)) for topic in topics]
        assert [next(titles) for titles in arriving] == ["first", "first"]
        for name in ("dns", "fabric-north", "psph-north"):
            company.parts[name].kill()
        website.entry = "second"
        for topic in topics:
            company.ping("south", topic)
        # Whoever takes over from north may bring what was there once more.
        assert all("second" in titles for titles in arriving)
