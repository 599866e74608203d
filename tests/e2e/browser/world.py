"""`psph up` and Chromium for the tests of its page, and a line between them that can be cut."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.push_hub.browser import UNUSED_FEATURES, installed
from tests.sizes import LONG

PATIENCE = 60_000
"""Milliseconds that anything in the page may take on a busy machine."""
SOON = {"timeout": PATIENCE}
DESK = {"viewport": {"width": 1280, "height": 860}}
SCREENSHOTS = Path(__file__).parents[3] / "out" / "screenshots"
# -P: commands are those that are installed, not those of an old build in the folder one is in.
PSPH = [sys.executable, "-P", "-c", "from psph.cli import main; main()"]
# Of several lists of features the last one counts: these are playwright's own, and one more.
_WITHOUT = (
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable", "MediaRouter", "PaintHolding",
    "ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints",
    "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch", UNUSED_FEATURES,
)  # fmt: skip
_FLAGS = [
    "--disable-gpu", "--disable-dev-shm-usage", f"--disable-features={','.join(_WITHOUT)}",
]  # fmt: skip
HOST = "machine.test"
"""Another name of this machine in the browser, which takes it for no loopback address."""
# Other names lead nowhere: whatever a test lets out, it stays here.
_RULES = f"MAP {HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@contextmanager
def running_world(directory, *options):
    """The address of a page that is served."""
    with (directory / "up.err").open("wb") as errors:
        process = subprocess.Popen(
            [*PSPH, "up", "--port", "0", "--data", directory / "data", *options],
            stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    try:
        yield _ready(process, directory / "up.err")
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _ready(process, errors):
    deadline = time.monotonic() + PATIENCE / 1_000
    while time.monotonic() < deadline and process.poll() is None:
        if select.select([process.stdout], [], [], 0.5)[0]:
            line = process.stdout.readline().decode()
            if line.startswith("ready "):
                return line.split()[1]
    raise AssertionError(f"psph up is not ready: {errors.read_text()[-3_000:]}")


def until(condition, what):
    """Wait for something outside the browser."""
    deadline = time.monotonic() + PATIENCE / 1_000
    while not condition():
        assert time.monotonic() < deadline, f"not so: {what}"
        time.sleep(0.05)


def headline(words):
    """Found again among all that the websites write by themselves."""
    return f"{words} {uuid.uuid4().hex[:8]}"


def launch(playwright):
    """Debian's Chromium; playwright brings none of its own."""
    # As root, or in the containers of CI, it has no sandbox to begin with.
    bare = os.geteuid() == 0 or "CI" in os.environ
    return playwright.chromium.launch(
        executable_path=installed(),
        args=[*_FLAGS, f"--host-resolver-rules={_RULES}", *(["--no-sandbox"] if bare else [])],
    )


class Line:
    """Passes bytes between the browser and the world, until it is cut."""

    def __init__(self, url):
        self._target = (urlsplit(url).hostname, urlsplit(url).port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open = set()
        self._cut = False
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        with self._lock:
            self._cut = True
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self, url=None):
        """Mend it, perhaps to another world."""
        with self._lock:
            if url is not None:
                self._target = (urlsplit(url).hostname, urlsplit(url).port)
            self._cut = False

    def count(self):
        """Connections of the browser that are open."""
        with self._lock:
            return len(self._open) // 2

    def close(self):
        self.cut()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self):
        while True:
            try:
                browser, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(browser,), daemon=True).start()

    def _serve(self, browser):
        with browser, suppress(OSError), socket.create_connection(self._target) as world:
            with self._lock:
                if self._cut:
                    return
                self._open |= {browser, world}
            back = threading.Thread(target=_copy, args=(world, browser), daemon=True)
            back.start()
            _copy(browser, world)
            back.join()
            with self._lock:
                self._open -= {browser, world}


def _copy(source, target):
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Visitor:
    """Somebody who looks at the page, and what the browser complained about meanwhile."""

    def __init__(self, browser, address, **context):
        self.address = address
        self.context = browser.new_context(locale="en-GB", **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints = []
        self.forgiven = None
        """What the browser may say because the test is to blame for it."""
        self.elsewhere = []
        self.hubs = ()
        """Where the page may go besides: it roams."""
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._asked)
        self.page.on("request", self._requested)

    def _said(self, message):
        forgiven = self.forgiven is not None and self.forgiven in message.text
        if message.type in ("error", "warning") and not forgiven:
            self.complaints.append(f"{message.text} {message.location['url']}")

    def _asked(self, dialog):
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request):
        if not request.url.startswith((self.address, *self.hubs)):
            self.elsewhere.append(request.url)

    def arrive(self, view="feeds"):
        self.page.goto(f"{self.address}#{view}")
        self.live()
        return self.page

    def live(self):
        expect(self.page.locator("#connection")).to_have_attribute("data-state", "live", **SOON)

    def view(self, name):
        self.page.get_by_role("tab", name=name).click()

    def subscribe(self, topic="news.site-b.test/feed.xml", domain="site-a.test"):
        """Does nothing where it is subscribed already: a new page is, to the default."""
        self.page.get_by_role("radio", name=domain).check()
        row = self.page.locator("#topics li").filter(has_text=topic)
        row.get_by_role("button").wait_for()
        if row.get_by_role("button", name=f"Subscribe to {topic}").count():
            row.get_by_role("button").click()
        # The feed as it stands comes first: from then on somebody listens.
        self.entries(topic).first.wait_for()

    def entries(self, text):
        return self.page.locator("#entries li", has_text=text)

    def publish(self, text, topic="news.site-b.test/feed.xml"):
        self.page.get_by_label("On the website of").select_option(label=topic)
        self.page.get_by_label("Headline").fill(text)
        self.page.get_by_role("button", name="Publish").click()

    def sees(self, text, *, times=1):
        expect(self.entries(text)).to_have_count(times, **SOON)

    def picture(self, name):
        """Kept as output of the long tests, from the top of the page to its end."""
        if not LONG:
            return
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.evaluate("scrollTo(0, 0)")
        self.page.screenshot(
            path=SCREENSHOTS / f"{name}.png", full_page=True, animations="disabled"
        )
