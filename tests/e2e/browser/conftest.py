"""One world and one browser for all tests of this folder: starting them takes longest."""

from __future__ import annotations

import json
import urllib.request

import pytest
from playwright.sync_api import sync_playwright

from tests.e2e.browser.world import DESK, Visitor, launch, running_world


@pytest.fixture(scope="package")
def data(tmp_path_factory):
    """What the world is given as `--data`."""
    return tmp_path_factory.mktemp("world") / "data"


@pytest.fixture(scope="package")
def world(data):
    with running_world(data.parent) as address:
        yield address


@pytest.fixture(scope="package")
def playwright():
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(playwright):
    browser = launch(playwright)
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def hubs(world):
    """Of both domains, without the path."""
    with urllib.request.urlopen(f"{world}api/world") as answer:
        return [each["hub"].removesuffix("hub") for each in json.load(answer)["domains"]]


@pytest.fixture(scope="module")
def resident(world, browser, hubs):
    """A visitor shared by all tests of a module: loading the page takes longer than most tests."""
    visitor = Visitor(browser, world, **DESK)
    visitor.hubs = tuple(hubs)
    visitor.arrive()
    yield visitor
    visitor.context.close()


@pytest.fixture
def user(resident):
    """The resident on the Feeds view of site-a.test; its subscriptions of earlier tests remain."""
    resident.forgiven = None
    resident.view("Feeds")
    resident.page.get_by_role("radio", name="site-a.test").check()
    resident.live()
    yield resident
    complaints, resident.complaints = resident.complaints, []
    elsewhere, resident.elsewhere = resident.elsewhere, []
    assert complaints == []
    assert elsewhere == []


@pytest.fixture
def visit(world, browser, hubs):
    """Makes visitors; afterwards none of their browsers may have complained or looked elsewhere."""
    visitors = []

    def come(address=world, **context):
        visitors.append(Visitor(browser, address, **(context or DESK)))
        visitors[-1].hubs = tuple(hubs)
        return visitors[-1]

    yield come
    for visitor in visitors:
        visitor.context.close()
    assert [each for visitor in visitors for each in visitor.complaints] == []
    assert [each for visitor in visitors for each in visitor.elsewhere] == []
