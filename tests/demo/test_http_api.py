"""docs/http-api.md and the routes are the same; so are the tables of the admin port."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo.layout import LINKS, NODES
from demo.pages import MOST_CHATS, MOST_FEEDS
from demo.serving import Api
from demo.showing import MOST_PAGES, Showing
from demo.website import LONGEST
from demo.world import World, WorldSettings

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "http-api.md").read_text()


@pytest.fixture
def routes(tmp_path):
    world = World(WorldSettings(tmp_path))
    app = Api(world, Showing(world)).application(None)
    world.release_ports()
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD"
    }


def _plain(path):
    """A path without what stands for a name."""
    return re.sub(r"\{[^}]*\}|\b[A-Z]{2,}\b", "*", path.partition("?")[0])


def test_every_route_is_documented_and_every_path_exists(routes):
    documented = set(re.findall(r"^\| `(GET|PUT|POST|DELETE) (/[^`]*)` \|", TEXT, re.MULTILINE))
    found = {(method, _plain(path)) for method, path in routes}
    # Files below a folder have no name in the route.
    found = {(method, "/web/*" if path == "/web" else path) for method, path in found}
    assert {(method, _plain(path)) for method, path in documented} == found


def test_every_path_of_the_api_is_explained(routes):
    headings = set(re.findall(r"^### (GET|PUT|POST|DELETE) (\S+)$", TEXT, re.MULTILINE))
    explained = {(method, _plain(path)) for method, path in headings}
    assert explained == {(m, _plain(p)) for m, p in routes if p.startswith("/api/")}


def test_every_event_is_documented():
    """Those that the code sends, as it spells them."""
    sources = [path.read_text() for path in (DOCS.parent / "demo").glob("*.py")]
    sent = {
        kind
        for text in sources
        for kind in re.findall(r"(?:\.send|\.show|_event)\(\s*\"([a-z]+)\"", text)
    }
    rows = re.findall(r"^\| ((?:`[a-z]+`,? ?)+) \| (?:yes)? ?\| ", TEXT, re.MULTILINE)
    documented = {kind for row in rows for kind in re.findall(r"`([a-z]+)`", row)}
    passed_on = {"presence", "gap", "reset"}
    assert documented == sent | passed_on


def test_the_bounds_are_those_of_the_code():
    assert f"{MOST_FEEDS} feeds and {MOST_CHATS} chats a" in TEXT
    assert f"{MOST_PAGES} pages" in TEXT
    assert f"1 to {LONGEST:,} characters" in TEXT


def test_the_example_of_a_link_is_one():
    assert "`n1--n3`" in TEXT
    assert ("n1", "n3") in LINKS
    assert len(NODES) == 8
