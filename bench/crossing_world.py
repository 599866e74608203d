"""Two web domains with a fabric between them, as `examples/two-domains/` has them.

    with ExitStack() as stack:
        world = start_world(stack, directory)
        world.a.url   # where the PSPH of site-a.test serves

Each configuration runs in a process of its own, `psph serve`, with its defaults: only ports are
others, because those of the example may be taken, and the PSPHs write traces.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.hub_processes import PATIENCE, HubProcess
from bootstrap.registration import zone_key
from demo.ports import HOST, free_ports

EXAMPLE = Path(__file__).parents[1] / "examples" / "two-domains"
NODES = ("dns", "n1", "n2", "n3", "psph-a", "psph-b")
A, B = "site-a.test", "site-b.test"
TRACES = '\n[traces]\ndirectory = "traces"\n'

_SERVE = "from psph.cli import main; main()"
_ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")
_PORT = re.compile(r"(127\.0\.0\.1:|\.test:|SRV 0 5 )(\d+)")


@dataclass(frozen=True, slots=True, eq=False)
class Proxy:
    """A PSPH that runs."""

    zone: str
    hub: HubProcess
    admin: str
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return self.hub.url

    def status(self, path: str) -> dict[str, object]:
        """What its admin port says."""
        with urllib.request.urlopen(f"{self.admin}{path}", timeout=PATIENCE) as answer:
            found: dict[str, object] = json.load(answer)
            return found

    def stop(self) -> None:
        """It writes down what it has not yet."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)


@dataclass(frozen=True, slots=True)
class World:
    """Both PSPHs, and what they need."""

    directory: Path
    dns: str
    a: Proxy
    b: Proxy


def copy_example(directory: Path, more: str = "") -> dict[str, str]:
    """The example with free ports, and `more` in the configurations of the PSPHs; the keys of both
    zones are made. Returns the addresses of the example, and what has taken their places."""
    directory.mkdir(parents=True)
    texts = {name: (EXAMPLE / f"{name}.toml").read_text() for name in NODES}
    ports = {each for text in texts.values() for each in _ADDRESS.findall(text)}
    chosen = dict(zip(sorted(ports), map(str, free_ports(len(ports))), strict=True))
    for name, text in texts.items():
        # Both PSPHs would write to the same place.
        own = more.replace('"traces"', f'"data/{name}/traces"') if "psph" in name else ""
        moved = _PORT.sub(lambda found: found[1] + chosen[found[2]], text + own)
        (directory / f"{name}.toml").write_text(moved)
    for letter in ("a", "b"):
        zone_key.make(directory / f"zone-{letter}.key")
    return {f"{HOST}:{old}": f"{HOST}:{new}" for old, new in chosen.items()}


def start_world(stack: ExitStack, directory: Path, more: str = "") -> World:
    """Runs until the stack is left. Everybody has joined the fabric, and DNS knows the PSPHs.
    `more` is what their configurations have besides."""
    moved = copy_example(directory, TRACES + more)
    running = {name: _serve(stack, directory, name) for name in NODES}
    for name, process in running.items():
        _wait_until_ready(name, process, directory / f"{name}.log")
    a = _proxy(directory, "a", moved, running)
    b = _proxy(directory, "b", moved, running)
    for proxy in (a, b):
        wait_until(lambda proxy=proxy: _has_joined(proxy), f"{proxy.zone} did not join")  # type: ignore[misc]
    return World(directory, moved[f"{HOST}:5355"], a, b)


def wait_until(condition: Callable[[], object], trouble: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(trouble)
        time.sleep(0.05)


def _proxy(
    directory: Path, letter: str, moved: dict[str, str], running: dict[str, subprocess.Popen[str]]
) -> Proxy:
    process = running[f"psph-{letter}"]
    hub, admin = {"a": ("8081", "7824"), "b": ("8082", "7825")}[letter]
    data = directory / "data" / f"psph-{letter}"
    url = f"http://{moved[f'{HOST}:{hub}']}"
    admin_url = f"http://{moved[f'{HOST}:{admin}']}"
    hub_process = HubProcess(url, data, process.pid, f"{admin_url}/metrics")
    return Proxy(f"site-{letter}.test", hub_process, admin_url, process)


def _has_joined(proxy: Proxy) -> bool:
    with contextlib.suppress(urllib.error.HTTPError):  # 404 until it has come so far
        registered = proxy.status("/bootstrap/status")[proxy.zone]
        assert isinstance(registered, dict)
        return bool(proxy.status("/proxy/status").get("ready")) and bool(registered["registered"])
    return False


def _serve(stack: ExitStack, directory: Path, name: str) -> subprocess.Popen[str]:
    log = stack.enter_context((directory / f"{name}.log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, "serve", "--config", str(directory / f"{name}.toml")],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.terminate)
    return process


def _wait_until_ready(name: str, process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None
    heard = select.select([process.stdout], [], [], PATIENCE)[0]
    if not heard or not process.stdout.readline().startswith("ready "):
        raise RuntimeError(f"{name} did not start: {log.read_text()[-2_000:]}")
