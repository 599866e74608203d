"""`psph capture`: write what passes a node to a pcap file."""

from __future__ import annotations

import time
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO

import click

from psirp_sim.runtime.pcap import MAGIC
from psph.commands.remote import get, node_option
from psph.errors import PsphError

_PACKET_HEADER = 16
_FILE_HEADER = 24


@click.command(short_help="Write what passes a node to a pcap file.")
@node_option
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The pcap file.")
@click.option("--seconds", type=click.FloatRange(0), default=10.0, show_default=True)
@click.option("--count", type=click.IntRange(1), help="Stop after that many packets.")
def capture(node: str, out: Path, seconds: float, count: int | None) -> None:
    """Write every packet that passes a node to a pcap file that scapy and Wireshark read.

    `from psirp_sim import scapy_layer` teaches scapy our packets.
    """
    with get(node, "/fabric/capture", seconds=max(1.0, seconds)) as stream:
        try:
            with out.open("wb") as file:
                written = _copy(stream, file, time.monotonic() + seconds, count)
        except OSError as error:
            raise PsphError(f"--out {out}: {error.strerror}") from error
    click.echo(f"{written} packets in {out}")


def _copy(stream: HTTPResponse, file: BinaryIO, deadline: float, count: int | None) -> int:
    """Copy whole packets until the time, or the number, is up."""
    written = 0
    try:
        start = stream.read(_FILE_HEADER)
        if start[:4] != MAGIC:
            raise PsphError("that is no fabric node: it sent no capture")
        file.write(start)
        while time.monotonic() < deadline and (count is None or written < count):
            header = stream.read(_PACKET_HEADER)
            body = stream.read(int.from_bytes(header[8:12], "little"))
            if len(header) < _PACKET_HEADER or not body:
                break
            file.write(header + body)
            written += 1
    except TimeoutError:
        pass  # a quiet node: the time is up
    except HTTPException:
        click.echo("the node went away", err=True)
    return written
