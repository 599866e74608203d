"""Name servers for tests: the embedded one and a real BIND 9, started and used in the same way.

    with bind(tmp_path) as server:
        ask(server.host, server.port)

Another kind of server (Knot, PowerDNS) needs one more class with `_launch` and `_end`.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.tsig

from tests.ports import free_port

PATIENCE = 30.0
ZONE = "site-a.test"
RECORDS = (
    "@ 300 IN SOA ns hostmaster 1 3600 600 86400 5",
    "@ 300 IN NS ns",
    "ns 300 IN A 127.0.0.1",
    "news 300 IN A 127.0.0.1",
)
"""Lines of a master file, relative to the zone; a negative answer may be kept for 5 seconds."""


@dataclass(frozen=True)
class TsigKey:
    """A shared secret, in the forms that those who use it want."""

    name: str
    secret: bytes
    algorithm: str = "hmac-sha256"

    @property
    def base64(self) -> str:
        return base64.b64encode(self.secret).decode()

    @property
    def dnspython(self) -> dns.tsig.Key:
        """For `dns.message.Message.use_tsig` and `dns.query.inbound_xfr` (as a keyring)."""
        return dns.tsig.Key(self.name, self.secret, self.algorithm)

    @property
    def dig(self) -> str:
        """For the option -y of dig and nsupdate."""
        return f"{self.algorithm}:{self.name}:{self.base64}"


KEY = TsigKey("psph-key", b"may transfer and update this zone")
POWERLESS = TsigKey("powerless-key", b"known, but it may do nothing here")


@dataclass
class RunningServer:
    """A name server on loopback that can be stopped, and started again with what it had."""

    directory: Path
    zones: Mapping[str, Sequence[str]]
    kind: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    key: TsigKey = KEY
    """May transfer and update every zone."""
    powerless: TsigKey = POWERLESS
    """Known to the server, without any rights."""
    running: bool = field(default=False, init=False)

    @property
    def zone(self) -> str:
        """The first zone, without the dot at the end."""
        return next(iter(self.zones))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def nameserver(self) -> tuple[str, int]:
        return self.host, self.port

    def start(self) -> None:
        """Return when it answers, over UDP and TCP; after stop() on the same port."""
        assert not self.running
        deadline = time.monotonic() + PATIENCE
        chosen = self.port
        while True:
            self.port = chosen or free_port()
            if self._launch(deadline):
                break
            assert time.monotonic() < deadline, f"{self.kind}: its port stayed taken\n{self.log()}"
            time.sleep(0.05)
        self.running = True
        while not self._answers():
            assert time.monotonic() < deadline, f"{self.kind} does not answer\n{self.log()}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Return when nobody listens any more; harmless when it does not run."""
        if self.running:
            self._end()
            self.running = False

    def log(self) -> str:
        """What it said, to be shown when a test fails."""
        return ""

    def _launch(self, deadline: float) -> bool:
        """Begin to run; False when somebody else has the port."""
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        for ask in (dns.query.udp, dns.query.tcp):
            for zone in self.zones:
                question = dns.message.make_query(zone, "SOA")
                try:
                    answer = ask(question, self.host, timeout=1.0, port=self.port)
                except (dns.exception.DNSException, OSError, EOFError):
                    return False
                if answer.rcode() != dns.rcode.NOERROR or not answer.answer:
                    return False
        return True

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.stop()


class _Bind(RunningServer):
    _process: subprocess.Popen[bytes]

    def _launch(self, deadline: float) -> bool:
        configuration = self._write()
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._named(),
                    "-g",
                    "-4",
                    "-n",
                    "1",
                    "-c",
                    str(configuration),
                    "-p",
                    str(self.port),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        # When its port is taken it runs on and serves nobody, or ends; either way it says so.
        while time.monotonic() < deadline:
            said = self.log()
            taken = "address in use" in said
            if taken or self._process.poll() is not None:
                self._end()
                assert taken, f"named ended:\n{said}"
                return False
            if " running\n" in said:
                break
            time.sleep(0.01)
        return True

    def _named(self) -> str:
        path = _which_named()
        assert path is not None, "named is not installed: install the package bind9"
        if not Path("/etc/apparmor.d/usr.sbin.named").exists():
            return path
        # Debian's profile lets the binary at its usual place write into its usual places only.
        return shutil.copy(path, str(self.directory / "named"))

    def _end(self) -> None:
        # Without rndc a signal is the way to stop it; what was acknowledged is in its journal.
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def _log_file(self) -> Path:
        return self.directory / "named.log"

    def log(self) -> str:
        return self._log_file.read_text() if self._log_file.exists() else ""

    def _write(self) -> Path:
        """The configuration, and the zone files unless they are there from before."""
        self.directory.mkdir(parents=True, exist_ok=True)
        parts = [
            f'options {{ directory "{self.directory}"; pid-file none; lock-file none;'
            " session-keyfile none;"
            f" listen-on port {self.port} {{ {self.host}; }}; listen-on-v6 {{ none; }};"
            # Otherwise two servers may share a port of UDP, and each gets half of the questions.
            " reuseport no; recursion no; dnssec-validation no; notify no; empty-zones-enable no;"
            " allow-transfer { none; }; allow-update { none; }; };",
            "controls { };",
        ]
        for key in (self.key, self.powerless):
            parts.append(
                f'key "{key.name}" {{ algorithm {key.algorithm}; secret "{key.base64}"; }};'
            )
        for zone, records in self.zones.items():
            file = self.directory / f"{zone}.zone"
            if not file.exists():
                file.write_text(f"$ORIGIN {zone}.\n" + "\n".join(records) + "\n")
            rights = f'{{ key "{self.key.name}"; }}'
            parts.append(
                f'zone "{zone}" {{ type primary; file "{file.name}";'
                f" allow-transfer {rights}; allow-update {rights}; }};"
            )
        configuration = self.directory / "named.conf"
        configuration.write_text("\n".join(parts) + "\n")
        return configuration


class _Embedded(RunningServer):
    """In a thread with an event loop of its own, so that a test may block or run another loop."""

    _thread: threading.Thread
    _loop: asyncio.AbstractEventLoop
    _stopped: asyncio.Event
    _failure: BaseException | None

    def _launch(self, deadline: float) -> bool:
        self.directory.mkdir(parents=True, exist_ok=True)
        ready = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._work, args=(ready,), name="name server")
        self._thread.start()
        assert ready.wait(max(0.1, deadline - time.monotonic())), "the embedded server hangs"
        if self._failure is None:
            return True
        self._thread.join()
        if isinstance(self._failure, OSError):
            return False
        raise self._failure

    def _work(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:
            self._failure = error
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        from bootstrap.server.serving import NameServer
        from bootstrap.server.settings import Key, ServerSettings, ZoneSettings

        rights = (self.key.name,)
        settings = ServerSettings(
            listen=((self.host, self.port),),
            keys=tuple(
                Key(each.name, each.secret, each.algorithm) for each in (self.key, self.powerless)
            ),
            zones=tuple(
                ZoneSettings(zone, tuple(records), transfer=rights, update=rights)
                for zone, records in self.zones.items()
            ),
        )
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        async with NameServer(settings, self.directory / "zones.sqlite"):
            ready.set()
            await self._stopped.wait()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the embedded server does not stop"
        if self._failure is not None:
            raise self._failure


def bind(
    directory: Path,
    zones: Mapping[str, Sequence[str]] | None = None,
    *,
    key: TsigKey = KEY,
    powerless: TsigKey = POWERLESS,
) -> RunningServer:
    """A BIND 9 that answers; what it writes it writes into a directory of its own in `directory`.

    `zones` has for each zone the lines of its master file.
    """
    return _started(_Bind(directory / "bind", zones or {ZONE: RECORDS}, "bind"), key, powerless)


def embedded(
    directory: Path,
    zones: Mapping[str, Sequence[str]] | None = None,
    *,
    key: TsigKey = KEY,
    powerless: TsigKey = POWERLESS,
) -> RunningServer:
    """Our own server, as `bind` starts the other one."""
    server = _Embedded(directory / "embedded", zones or {ZONE: RECORDS}, "embedded")
    return _started(server, key, powerless)


SERVERS = {"embedded": embedded, "bind": bind}
"""For `pytest.mark.parametrize`: the start functions by kind."""


def have_bind() -> bool:
    """Whether a BIND 9 is installed."""
    return _which_named() is not None


def _started(server: RunningServer, key: TsigKey, powerless: TsigKey) -> RunningServer:
    server.key, server.powerless = key, powerless
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server


def _which_named() -> str | None:
    return shutil.which("named") or shutil.which("named", path="/usr/sbin:/usr/local/sbin")
