"""A page of somebody else in Chromium, with the module for pages that move: psph/web/roaming/."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright

import psph
from tests.e2e.browser.world import PATIENCE, launch

_START = """async (options) => {
    const {Roamer} = await import("/roaming/roamer.js");
    window.told = [];
    window.roamer = new Roamer({
        ...options, topics: [], consume: () => {}, notice: (notice) => told.push(notice),
    });
}"""


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class MovingPage:
    """One page, and its client as `window.roamer`; `load` begins another life of it."""

    def __init__(self, browser, address, options):
        self._context = browser.new_context()
        self._address, self._options = address, options
        self.page = self.tab()
        self.do = self.page.evaluate

    def tab(self):
        """A page of the same browser, for the same client."""
        page = self._context.new_page()
        page.set_default_timeout(PATIENCE)
        self.load(page)
        return page

    def load(self, page=None):
        page = page or self.page
        page.goto(f"{self._address}/roaming/roamer.js")
        page.evaluate(_START, self._options)

    def until(self, condition):
        self.page.wait_for_function(f"() => {condition}")

    def close(self):
        self._context.close()


@contextmanager
def moving_page(**options):
    """`options` of its Roamer."""
    files = partial(_Files, directory=Path(psph.__file__).parent / "web")
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as server, sync_playwright() as playwright:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        browser = launch(playwright)
        try:
            page = MovingPage(browser, f"http://127.0.0.1:{server.server_port}", options)
            yield page
            page.close()
        finally:
            browser.close()
            server.shutdown()
            thread.join()
