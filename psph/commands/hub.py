"""`psph hub`: run a WebSub hub on its own."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from psph.configuration.addresses import check_public_url, parse_address
from psph.errors import PsphError
from psph.log_options import begin_log, log_options
from traces import LogEvent

if TYPE_CHECKING:
    from bootstrap import Server
    from push_hub import HubSettings

_log = logging.getLogger(__name__)

_NETWORKS = "Private network that {} may be in, in CIDR form; may be repeated."


@click.command(short_help="Run a WebSub hub on its own.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory of the database and the admin token; made when there is none.",
)
@click.option("--public-url", metavar="URL", help="Where the world reaches the hub, if elsewhere.")
@click.option(
    "--admin",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Where /metrics and /healthz are for operators; the log says which port 0 became.",
)
@click.option("--public-metrics", is_flag=True, help="Serve /metrics at --listen, too.")
@click.option("--allow-fetch", metavar="CIDR", multiple=True, help=_NETWORKS.format("topics"))
@click.option("--allow-callback", metavar="CIDR", multiple=True, help=_NETWORKS.format("callbacks"))
@click.option(
    "--topic-host",
    metavar="HOST",
    multiple=True,
    help="Serve topics of this host and its subdomains only; may be repeated.",
)
@click.option(
    "--trusted-proxy",
    metavar="CIDR",
    multiple=True,
    help="Reverse proxies whose X-Forwarded-For is believed; may be repeated.",
)
@click.option(
    "--poll",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    help="Fetch every subscribed topic this often, whether its publisher pings or not.",
)
@click.option(
    "--follow/--no-follow",
    default=True,
    help="Follow topics that nobody pings here at their own hub, or by polling. On by default.",
)
@click.option(
    "--domain",
    metavar="DOMAIN",
    help="Follow topics of zones that have a fabric at the PSPH of this domain, found by DNS.",
)
@click.option("--dns", metavar="HOST:PORT", help="Ask this name server for --domain.")
@click.option(
    "--guide-check",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="How often DNS is asked again which zones have a fabric, for --domain.",
)
@click.option(
    "--power-safe",
    is_flag=True,
    help="Sync every change to the disk before it is acknowledged, so that a power cut loses none.",
)
@log_options
def hub(
    listen: str,
    data: Path,
    public_url: str | None,
    admin: str,
    public_metrics: bool,
    allow_fetch: tuple[str, ...],
    allow_callback: tuple[str, ...],
    topic_host: tuple[str, ...],
    trusted_proxy: tuple[str, ...],
    poll: float | None,
    follow: bool,
    domain: str | None,
    dns: str | None,
    guide_check: float,
    power_safe: bool,
    log_format: str | None,
    log_level: str | None,
) -> None:
    """Run a WebSub hub until Ctrl-C or SIGTERM.

    Publishers and subscribers use /hub, browsers /stream; operators /metrics at --admin.
    When it serves, one line `ready http://HOST:PORT/` is printed. Private addresses are refused
    unless allowed: topics and callbacks come from strangers.
    """
    from identifiers import InvalidHost, normalise_host
    from psirp_sim.runtime import loop
    from psph import admin_token
    from psph.hub_serving import be_quick
    from push_hub import HubSettings, Publisher
    from push_hub.addresses import parse_networks

    try:
        host, port = parse_address(listen)
        parse_address(admin)
        if public_url is not None:
            check_public_url("--public-url", public_url)
        data.mkdir(parents=True, exist_ok=True)
        token = admin_token.keep(data)
        settings = HubSettings(
            public_url or "",
            allow_fetch=parse_networks(allow_fetch),
            allow_callback=parse_networks(allow_callback),
            topic_hosts=tuple(normalise_host(each) for each in topic_host),
            # Whoever can read the data directory may publish anything.
            publishers=(Publisher(token, "http"),),
            admin_token=token,
            public_metrics=public_metrics,
            trusted_proxies=parse_networks(trusted_proxy),
            poll_every=poll,
            follow_after=60.0 if follow else None,
            guide_check=guide_check,
        )
        way = _way(domain, dns)
    except (ValueError, InvalidHost) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise PsphError(
            f"{data} cannot be used ({error.strerror}): choose another --data"
        ) from None
    be_quick()
    begin_log(log_format, log_level)
    loop.run(_serve(settings, data, power_safe, (host, port), admin, way))


@dataclass(frozen=True, slots=True)
class _Way:
    """How to find the PSPH of our domain."""

    domain: str
    nameservers: tuple[Server, ...]


def _way(domain: str | None, dns: str | None) -> _Way | None:
    from bootstrap import BootstrapError, Server
    from identifiers import normalise_host

    if domain is None:
        if dns is not None:
            raise ValueError("--dns is for --domain: name that, too")
        return None
    try:
        return _Way(normalise_host(domain), () if dns is None else (Server.parse(dns),))
    except BootstrapError as error:
        raise ValueError(f"--dns: {error}") from None


@asynccontextmanager
async def _guided(way: _Way | None) -> AsyncIterator[dict[str, Any]]:
    """What `create_app` needs to follow topics at the PSPH of our domain."""
    if way is None:
        yield {}
        return
    from bootstrap import Resolver
    from bootstrap.http_resolver import ZoneResolver
    from identifiers import zone_of_host
    from psph.guide import DomainGuide

    async with Resolver(way.nameservers) as resolver, AsyncExitStack() as stack:
        found: dict[str, Any] = {"guide": DomainGuide(resolver, way.domain)}
        if way.nameservers:
            # Only that name server may know where the PSPH is.
            names = ZoneResolver([zone_of_host(way.domain)], way.nameservers)
            stack.push_async_callback(names.close)
            found["resolver"] = names
        yield found


async def _serve(
    settings: HubSettings,
    data: Path,
    power_safe: bool,
    listen: tuple[str, int],
    admin: str,
    way: _Way | None,
) -> None:
    async with _guided(way) as guided:
        chosen = guided | {"power_safe": power_safe}
        await _serve_guided(settings, data, listen, admin, chosen)


async def _serve_guided(
    settings: HubSettings, data: Path, listen: tuple[str, int], admin: str, guided: dict[str, Any]
) -> None:
    from dataclasses import replace

    from aiohttp import web

    from psph.admin_port import AdminPort
    from psph.hub_serving import serving
    from push_hub import Hub, create_app

    stopped = asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, stopped.set)
    port = AdminPort()

    def started(hub: Hub) -> None:
        port.before_scrape.append(hub.refresh_metrics)

    def make(url: str) -> web.Application:
        chosen = replace(settings, public_url=settings.public_url or url)
        return create_app(chosen, data, started=started, registry=port.metrics, **guided)

    async with serving(*listen, make) as url, AsyncExitStack() as stack:
        port.addresses["hub"] = url
        try:
            address = await port.serve(admin, stack)
        except OSError as error:
            raise PsphError(f"the admin port cannot be served: {error}") from None
        click.echo(f"ready {url}/")
        public_url = settings.public_url or url
        _log.info(LogEvent("hub.started", address=url, admin=address, public_url=public_url))
        await stopped.wait()
        _log.info(LogEvent("hub.stopping"))
    _log.info(LogEvent("hub.stopped"))
