"""Two domains and the fabric between them: made, started in order, and stopped."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp

from bootstrap.registration import zone_key
from demo import layout, ports, website
from demo.parts import LocalPart, Part, ProcessPart, node_here
from demo.ports import HOST
from psph.errors import PsphError

PATIENCE = 60.0
"""Seconds until everybody has found everybody; a quick machine needs two."""
ANSWER = 15.0
"""Seconds that a part has to answer."""
_LOOK = 0.05
_SECRETS = "secrets.json"

Progress = Callable[[str], None]
"""Told what was done last."""


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How the world is to run."""

    directory: Path
    host: str = HOST
    """Where browsers reach it; in brackets when it is IPv6."""
    listen: str | None = None
    """Where websites listen besides loopback."""
    processes: bool = False
    grow_every: float = 20.0
    """Seconds between entries that websites write by themselves."""
    ways: layout.Ways = field(default_factory=dict)
    """For who wants to see what passes the links."""


class World:
    """Runs while it is entered. Everything here is found through the sockets of the parts."""

    def __init__(self, settings: WorldSettings, progress: Progress = lambda done: None) -> None:
        self.settings = settings
        self._progress = progress
        self.parts: dict[str, Part] = {}
        self.ports: Mapping[str, int] = {}
        self._page_token = ""
        self._write(settings.directory)

    @property
    def steps(self) -> int:
        """How often progress is told of."""
        return len(self.parts) + len(layout.DOMAINS)

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(
            # A page has a connection for everything that it follows; `Showing` bounds the pages.
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=ANSWER),
        )
        try:
            # Those who ask others last.
            await self._start([layout.NAME_SERVER, *layout.FORWARDERS])
            await self._start([*layout.PROXIES.values(), *map(layout.website, layout.DOMAINS)])
            await self._joined()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        # Their servers wait for connections that are in use: ours end first.
        await self.session.close()
        # A PSPH takes its records back, for which it needs the name server.
        await self._stop(self.parts.keys() - {layout.NAME_SERVER}, 1.3)
        await self._stop([layout.NAME_SERVER], 0.4)
        self.release_ports()

    def release_ports(self) -> None:
        """Let other worlds have them; a world that is never entered has them, too."""
        self._reservation.close()

    async def _stop(self, names: Iterable[str], patience: float) -> None:
        stopping = [self.parts[name].stop(patience) for name in names]
        await asyncio.gather(*stopping, return_exceptions=True)

    # Addresses

    def admin(self, node: str) -> str:
        """The admin port of a part, as a URL."""
        return f"http://{HOST}:{self.ports[f'{node}.admin']}"

    def hub(self, domain: str) -> str:
        """The hub of a domain, without the path."""
        return f"http://{HOST}:{self.ports[f'{layout.PROXIES[domain]}.hub']}"

    def topics(self, domain: str) -> dict[str, str]:
        """The topics of a domain, and where a client outside gets the same bytes."""
        port = self.ports[f"{layout.website(domain)}.web"]
        return {
            f"http://news.{domain}:{port}/{feed}": f"http://{HOST}:{port}/{feed}"
            for feed in layout.FEEDS
        }

    def token(self, node: str) -> str:
        """The admin token of a part."""
        path = self.settings.directory / "data" / node / "admin-token"
        return path.read_text().strip()

    def describe(self) -> dict[str, object]:
        """`GET /api/world`."""
        return {
            "domains": [
                {
                    "name": domain,
                    "node": layout.PROXIES[domain],
                    "hub": f"{self.hub(domain)}/hub",
                    "psph": f"{HOST}:{self.ports[f'{layout.PROXIES[domain]}.hub']}",
                    "topics": [
                        {"url": url, "local": local} for url, local in self.topics(domain).items()
                    ],
                }
                for domain in layout.DOMAINS
            ],
            "dns": f"{HOST}:{self.ports['dns.dns']}",
            "nodes": [
                {"name": node, "status": f"{self.admin(node)}/fabric/status"}
                for node in layout.NODES
            ],
            "publishing": {"topic": layout.page_topic(self.ports), "token": self._page_token},
            "report": self._report_command(),
            "chat": [{"jid": jid, "domain": domain} for domain, jid in layout.USERS.items()],
        }

    def _report_command(self) -> str:
        """What makes the report that pages link to."""
        directory = self.settings.directory
        return shlex.join(
            ["psph", "report", "--traces", f"{directory / 'data' / 'traces'}", "--out",
             f"{directory / 'report'}"]
        )  # fmt: skip

    # Asking the parts

    async def ask(self, node: str, path: str) -> Any:
        """JSON of a part's admin port; aiohttp.ClientError or TimeoutError when there is none."""
        async with self.session.get(f"{self.admin(node)}{path}") as answer:
            answer.raise_for_status()
            return await answer.json()

    async def tell(self, node: str, path: str, body: object) -> Any:
        """Change something at a part's admin port."""
        headers = {"Authorization": f"Bearer {self.token(node)}"}
        url = f"{self.admin(node)}{path}"
        async with self.session.post(url, json=body, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.json()

    # Making

    def _write(self, directory: Path) -> None:
        settings = self.settings
        try:
            for each in (directory, directory / "data", directory / "logs"):
                each.mkdir(parents=True, exist_ok=True)
            kept = _keep_secrets(directory)
            self._reservation = ports.reserve(directory, layout.port_names())
            self.ports = self._reservation.ports
            self._page_token = kept.page
            nodes = layout.configurations(self.ports, kept, settings.ways)
            sites = layout.site_configurations(
                self.ports, settings.host, settings.listen, settings.grow_every
            )
            for name, text in (nodes | sites).items():
                path = directory / f"{name}.toml"
                path.touch(0o600)  # it has keys in it
                path.write_text(text)
                self.parts[name] = self._part(path, is_site=name in sites)
            for domain in layout.DOMAINS:
                key = directory / f"zone-{layout.letter(domain)}.key"
                if not key.exists():
                    zone_key.make(key)
        except OSError as error:
            raise PsphError(
                f"{directory} cannot be used ({error.strerror}): choose another --data"
            ) from None

    def _part(self, file: Path, *, is_site: bool) -> Part:
        if not self.settings.processes:
            return (
                LocalPart(file.stem, partial(website.serve, file)) if is_site else node_here(file)
            )
        arguments = ["site", str(file)] if is_site else ["serve", "--config", str(file)]
        return ProcessPart(file.stem, arguments, file.parent / "logs" / f"{file.stem}.log")

    async def _start(self, names: Iterable[str]) -> None:
        async def start(part: Part) -> None:
            await part.start()
            self._progress(f"{part.name} runs")

        try:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(start(self.parts[name]))
        except* PsphError as errors:
            raise errors.exceptions[0] from None

    async def _joined(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                for domain in layout.DOMAINS:
                    await _until(partial(self._has_joined, domain))
                    self._progress(f"{domain} has joined the fabric")
        except TimeoutError:
            raise PsphError(
                f"the parts did not find each other within {PATIENCE:.0f} s: is the machine very"
                " busy, or loopback traffic filtered?"
            ) from None

    async def _has_joined(self, domain: str) -> bool:
        proxy = layout.PROXIES[domain]
        try:
            status = await self.ask(proxy, "/proxy/status")
            records = await self.ask(proxy, "/bootstrap/status")
        except (aiohttp.ClientError, TimeoutError):
            return False  # it has not come so far
        return bool(status.get("ready")) and bool(records[domain]["registered"])


async def _until(ask: Callable[[], Awaitable[bool]]) -> None:
    while not await ask():  # noqa: ASYNC110  (it is another process that knows)
        await asyncio.sleep(_LOOK)


def _keep_secrets(directory: Path) -> layout.Secrets:
    path = directory / _SECRETS
    if not path.exists():
        made = {
            "fabric_key": secrets.token_urlsafe(24),
            "link_seed": secrets.token_urlsafe(24),
            "tsig": {
                domain: base64.b64encode(secrets.token_bytes(32)).decode()
                for domain in layout.DOMAINS
            },
        }
        path.touch(0o600)
        path.write_text(json.dumps(made))
    try:
        kept = json.loads(path.read_text())
        if "page" not in kept:
            kept["page"] = secrets.token_urlsafe(24)
            path.write_text(json.dumps(kept))
        return layout.Secrets(**kept)
    except (ValueError, TypeError):
        raise PsphError(f"{path} cannot be read: choose another --data") from None
