"""`psph mqtt-proxy`: a mobility proxy at an MQTT broker."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from psirp_sim.runtime import loop
from psirp_sim.runtime.sqlite_storage import StorageError
from psph.configuration.addresses import parse_address
from psph.errors import PsphError


@click.command(short_help="Let clients move to and from an MQTT broker.")
@click.argument("broker", metavar="HOST:PORT")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory of what waits for clients; made when there is none.",
)
@click.option(
    "--entrance",
    metavar="TOPIC",
    multiple=True,
    help="Number what publishers send to this MQTT topic; may be repeated.",
)
@click.option(
    "--peer",
    metavar="HOST:PORT",
    multiple=True,
    help="Talk to the proxies of these brokers only; may be repeated.",
)
def mqtt_proxy(broker: str, data: Path, entrance: tuple[str, ...], peer: tuple[str, ...]) -> None:
    """Run the mobility proxy of the MQTT 5 broker at HOST:PORT until Ctrl-C or SIGTERM.

    Prints `ready HOST:PORT` when the broker answers, also again after it was gone. Clients and
    other proxies reach this one through the broker, by HOST:PORT, so all must write that alike.
    """
    try:
        for place in (broker, *peer):
            parse_address(place)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for topic in entrance:
        if not topic or set(topic) & set("#+\0") or topic.startswith("$"):
            raise click.UsageError(f"--entrance {topic!r} is no topic: write one without + and #")
    try:
        data.mkdir(parents=True, exist_ok=True)
        loop.run(_serve(broker, data / "mobility", entrance, peer))
    except OSError as error:
        raise PsphError(f"--data {data}: {error.strerror}") from error
    except StorageError as error:
        raise PsphError(f"--data {data}: {error}") from error


async def _serve(
    place: str, storage: Path, entrance: tuple[str, ...], peers: tuple[str, ...]
) -> None:
    try:
        from psph.mobility import mqtt_proxy
    except ImportError as error:
        raise PsphError("MQTT is an extra: pip install 'psph[mqtt]'") from error
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)

    def ready() -> None:
        click.echo(f"ready {place}")

    async with mqtt_proxy.mqtt_proxy(place, storage, entrance, peers, ready=ready):
        await stopped.wait()
