"""What the benchmarks of the hub run beside themselves: a hub as it ships, and a sink.

The sink answers verifications with their challenge, deliveries with 204 and logs one line for
each; it also serves the topics, which are files. It is nginx where that is installed, and
otherwise some processes of our own that share a port.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from demo.ports import HOST, free_ports

PATIENCE = 60.0
"""Seconds after which something is not waited for any more."""

_HUB = "import sys; from psph.commands.hub import hub; hub(sys.argv[1:], standalone_mode=False)"

_NGINX = """
worker_processes 1;
error_log {directory}/error.log;
pid {directory}/nginx.pid;
daemon off;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 1000000;
    log_format deliveries '$msec $request_uri';
    map $args $challenge {{ default ''; ~hub\\.challenge=(?<found>[^&]+) $found; }}
    server {{
        listen {host}:{port} backlog=4096;
        location /topics/ {{
            root {directory};
            default_type application/atom+xml;
            etag off;  # it counts seconds
            if_modified_since off;
            add_header Link '<http://{host}:{port}/hub>; rel="hub", <http://{host}:{port}$request_uri>; rel="self"';
        }}
        location / {{
            default_type text/plain;
            if ($request_method = GET) {{ return 200 $challenge; }}
            access_log {directory}/deliveries.log deliveries;
            return 204;
        }}
    }}
}}
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Sink:
    """Where callbacks and topics are."""

    directory: Path
    url: str
    kind: str

    def callback(self, number: int) -> str:
        return f"{self.url}/callback/{number}"

    def put(self, topic: str, content: bytes) -> str:
        """The URL of a topic that has this content from now on."""
        path = self.directory / "topics" / topic
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
        return f"{self.url}/topics/{topic}"

    def deliveries(self, beginning: int = 0) -> list[tuple[float, str]]:
        """(time, path) of all deliveries after the first so many."""
        lines = (self.directory / "deliveries.log").read_text().splitlines()[beginning:]
        return [(float(line.split()[0]), line.split()[1]) for line in lines]

    def wait_for(self, count: int) -> None:
        """Until there have been so many deliveries."""
        log = self.directory / "deliveries.log"
        deadline = time.monotonic() + PATIENCE
        while (found := log.read_bytes().count(b"\n")) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} of {count} deliveries arrived")
            time.sleep(0.02)


def find_nginx() -> str | None:
    """Its path; the directory it is in is not on everybody's."""
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


def start_sink(stack: ExitStack, directory: Path, processes: int = 2) -> Sink:
    """Runs until the stack is left."""
    (directory / "topics").mkdir(parents=True)
    (directory / "deliveries.log").touch()
    (port,) = free_ports(1)
    nginx = find_nginx()
    if nginx is not None:
        configuration = directory / "nginx.conf"
        configuration.write_text(_NGINX.format(directory=directory, host=HOST, port=port))
        commands = [[nginx, "-c", str(configuration), "-e", str(directory / "error.log")]]
        if os.geteuid() == 0:
            # Its workers would be somebody who cannot enter the directory.
            commands[0] += ["-g", "user root;"]
    else:
        command = [sys.executable, "-m", "bench.hub_processes", str(directory), str(port)]
        commands = [command] * processes
    for command in commands:
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        stack.callback(process.terminate)
    _wait_for_port(port)
    return Sink(directory, f"http://{HOST}:{port}", "nginx" if nginx else "python")


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), closing(socket.create_connection((HOST, port), 1.0)):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing listens on port {port}")
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class HubProcess:
    """`psph hub` with its defaults, except that it may reach this machine."""

    url: str
    data: Path
    pid: int
    metrics: str
    """The URL of its metrics."""

    def token(self) -> str:
        return (self.data / "admin-token").read_text().strip()

    def count(self, what: str) -> int:
        """One of its counters."""
        with urllib.request.urlopen(self.metrics, timeout=PATIENCE) as answer:
            text = answer.read().decode()
        found = re.search(rf"^psph_hub_{what}_total ([0-9.e+]+)$", text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def wait_for(self, what: str, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while (found := self.count(what)) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {found} of {count}")
            time.sleep(0.02)

    def memory(self) -> int:
        """Bytes that are resident."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise RuntimeError("the memory of a process cannot be read here")

    def cpu(self) -> float:
        """Seconds it has computed, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_hub(stack: ExitStack, data: Path, *options: str) -> HubProcess:
    """Runs until the stack is left."""
    data.mkdir()
    log = stack.enter_context((data / "log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-c", _HUB, "--listen", f"{HOST}:0", "--data", str(data),
         "--allow-fetch", "127.0.0.0/8", "--allow-callback", "127.0.0.0/8", "--public-metrics",
         *options],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )  # fmt: skip
    stack.enter_context(process)
    stack.callback(process.terminate)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("ready "):
        raise RuntimeError(f"the hub did not start: {(data / 'log').read_text()}")
    url = line.split()[1].rstrip("/")
    return HubProcess(url, data, process.pid, f"{url}/metrics")


def atom(number: int, size: int = 1_600) -> bytes:
    """A feed of this many bytes with an entry nobody saw before."""
    head = (
        '<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom">'
        "<title>News</title><id>urn:news</id><updated>2026-01-01T00:00:00Z</updated>"
        f"<entry><id>urn:news:{number}</id><title>Number {number}</title>"
        "<updated>2026-01-01T00:00:00Z</updated><content>"
    )
    tail = "</content></entry></feed>"
    return (head + "x" * (size - len(head) - len(tail)) + tail).encode()


# A sink of our own, for machines without nginx


class _Answering(asyncio.Protocol):
    """HTTP as far as it is needed: one request after the other on a connection."""

    def __init__(self, directory: Path, log: int) -> None:
        self._directory = directory
        self._log = log
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        for head in self._requests():
            method, target, _ = head.split(b" ", 2)
            if method == b"POST":
                os.write(self._log, b"%.3f %s\n" % (time.time(), target))
                self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                continue
            path = target.partition(b"?")[0].decode()
            links = b""
            if path.startswith("/topics/"):
                content = (self._directory / "topics" / Path(path).name).read_bytes()
                links = b'Link: <http://%s/hub>; rel="hub", <%s>; rel="self"\r\n' % (
                    HOST.encode(), target
                )  # fmt: skip
            else:
                found = re.search(rb"hub\.challenge=([^&]+)", target)
                content = found[1] if found else b""
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/atom+xml\r\n"
                b"%sContent-Length: %d\r\n\r\n%s" % (links, len(content), content)
            )

    def _requests(self) -> Iterator[bytes]:
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < size:
                return
            self._received = self._received[size:]
            yield head


async def _sink(directory: Path, port: int) -> None:
    log = os.open(directory / "deliveries.log", os.O_WRONLY | os.O_APPEND)
    running = asyncio.get_running_loop()
    server = await running.create_server(
        lambda: _Answering(directory, log), HOST, port, reuse_port=True, backlog=4096
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_sink(Path(sys.argv[1]), int(sys.argv[2])))
