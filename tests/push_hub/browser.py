"""A real browser for the tests: Chromium, driven over the DevTools protocol by hand.

One process serves all tests of a module; every page is in a context of its own, with its own
storage. A page notes every request, dialog, exception and violation of the security policy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp

PATIENCE = 60
# A process for the page that comes next, of which there is often none, and the address bar's
# pop-ups, which are pages of their own in every context: starting them takes a second of CPU time.
UNUSED_FEATURES = "SpareRendererForSitePerProcess,WebUIOmniboxPopup,WebUIOmniboxAimPopup"

_FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu",
    "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
    "--disable-dev-shm-usage", "--disable-extensions", "--disable-sync", "--mute-audio",
    "--hide-scrollbars", f"--disable-features={UNUSED_FEATURES}",
)  # fmt: skip

# Names lead nowhere: whatever a test lets out, it stays here.
_NAMES = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"

_WATCHING = """
    window.__violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        window.__violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def installed():
    """Where Chromium is, if it is anywhere."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


@contextmanager
def chromium(zone=None):
    """A running Chromium: the address of its DevTools. Hosts of the zone are this machine."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        # As root, or in the containers of CI, it has no sandbox to begin with.
        bare = os.geteuid() == 0 or "CI" in os.environ
        rules = f"MAP *.{zone} 127.0.0.1, {_NAMES}" if zone else _NAMES
        flags = (*_FLAGS, f"--host-resolver-rules={rules}", *(["--no-sandbox"] if bare else []))
        process = subprocess.Popen(
            [installed(), *flags, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield _address(process, Path(profile) / "DevToolsActivePort")
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process, file):
    for _ in range(PATIENCE * 20):
        if process.poll() is not None:
            raise AssertionError(f"Chromium ended with {process.returncode}")
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise AssertionError("Chromium did not start")


class DevTools:
    """Commands and their answers, and events for whoever listens, on one websocket."""

    def __init__(self, socket):
        self._socket = socket
        self._waiting = {}
        self._number = 0
        self.listeners = {}

    async def call(self, method, session=None, **params):
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json({**message, "sessionId": session} if session else message)
        return await asyncio.wait_for(answer, PATIENCE)

    async def read(self):
        async for message in self._socket:
            data = json.loads(message.data)
            waiting = self._waiting.pop(data.get("id"), None)
            if waiting is None:
                listener = self.listeners.get(data.get("sessionId"))
                if listener is not None:
                    listener(data["method"], data["params"])
            elif waiting.done():
                pass
            elif "error" in data:
                waiting.set_exception(AssertionError(data["error"]["message"]))
            else:
                waiting.set_result(data["result"])


class Page:
    """A tab. `requests`, `dialogs` and `exceptions` are what happened in it so far."""

    def __init__(self, tools, session):
        self._tools = tools
        self._session = session
        self.requests = []
        self.dialogs = []
        self.exceptions = []
        self._background = set()

    async def call(self, method, **params):
        return await self._tools.call(method, self._session, **params)

    def heard(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.exceptions.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            task = asyncio.create_task(self.call("Page.handleJavaScriptDialog", accept=True))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def go(self, url):
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href.startsWith({json.dumps(url)}) && "
                         "document.readyState === 'complete'")  # fmt: skip

    async def reload(self):
        await self.evaluate("window.__before = true")
        await self.call("Page.reload")
        await self.until("!window.__before && document.readyState === 'complete'")

    async def evaluate(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    async def until(self, expression):
        """Wait until the expression is true."""
        for _ in range(PATIENCE * 25):
            try:
                if await self.evaluate(f"Boolean({expression})"):
                    return
            except AssertionError as error:
                # Its context was destroyed, or it navigated: the page is going elsewhere.
                if not re.search("context|navigated", str(error)):
                    raise
            await asyncio.sleep(0.04)
        raise AssertionError(f"{expression} never held in: {await self.text('body')}")

    async def text(self, selector):
        return await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    async def texts(self, selector):
        return await self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"
        )

    async def click(self, selector):
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    async def type(self, selector, text):
        """As a person does: into the focused field, then Enter."""
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.call("Input.insertText", text=text)
        await self.key("Enter", 13, text="\r")

    async def key(self, name, code, **more):
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name,
                windowsVirtualKeyCode=code, **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    async def violations(self):
        return await self.evaluate("window.__violations")

    async def look(self, *, dark=False, width=1200, height=900):
        """How wide the window is, and whether its owner likes it dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    async def screenshot(self):
        """A PNG of what is visible."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def opened(address):
    """A new page, in a context that shares nothing with the others."""
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(address, max_msg_size=64 << 20) as socket,
    ):
        tools = DevTools(socket)
        reading = asyncio.create_task(tools.read())
        try:
            context = (await tools.call("Target.createBrowserContext"))["browserContextId"]
            yield await _tab(tools, context)
            await tools.call("Target.disposeBrowserContext", browserContextId=context)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def another(page):
    """Another tab in the same context."""
    context = (await page.call("Target.getTargetInfo"))["targetInfo"]["browserContextId"]
    return await _tab(page._tools, context)


async def _tab(tools, context):
    target = await tools.call("Target.createTarget", url="about:blank", browserContextId=context)
    attached = await tools.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    page = Page(tools, attached["sessionId"])
    tools.listeners[attached["sessionId"]] = page.heard
    for domain in ("Page", "Network", "Runtime"):
        await page.call(f"{domain}.enable")
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCHING)
    return page
