"""Two plain mosquitto brokers, A and B, with a bridge that B keeps to A.

What B has for A waits at B while A is gone. The other way nothing waits: the session of a bridge of
MQTT 5 ends with its connection (mosquitto 2.0).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from getpass import getuser
from pathlib import Path

from bench.mqtt import CONFIGURATION, HOST, program, wait_for

DURABLE = """\
user {user}
persistence true
persistence_location {directory}/
autosave_on_changes true
autosave_interval 1
"""
"""A broker that was killed knows its sessions again, but for what came right before."""
BRIDGE = """\
connection bridge
address {host}:{port}
bridge_protocol_version mqttv50
cleansession false
restart_timeout 1
notifications false
"""
"""MQTT 5, so that user properties cross."""


class Brokers:
    """A and B: each a process that can be killed and started again."""

    def __init__(
        self,
        directory: Path,
        ports: Sequence[int],
        *,
        durable: bool = False,
        topics: Iterable[str] = ("#",),
    ) -> None:
        """`topics`: what the bridge carries."""
        self.places = {name: f"{HOST}:{port}" for name, port in zip("AB", ports, strict=True)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._files: dict[str, Path] = {}
        for name, port in zip("AB", ports, strict=True):
            folder = directory / name
            folder.mkdir(parents=True)
            text = CONFIGURATION.format(port=port, host=HOST)
            if durable:
                text = text.replace("persistence false\n", "")
                text += DURABLE.format(user=getuser(), directory=folder)
            if name == "B":
                text += BRIDGE.format(host=HOST, port=ports[0])
                text += "".join(f"topic {topic} both 1\n" for topic in topics)
            self._files[name] = folder / "mosquitto.conf"
            self._files[name].write_text(text)

    def start(self, name: str) -> None:
        found = program()
        assert found is not None
        process = subprocess.Popen([found, "-c", str(self._files[name])])
        self._processes[name] = process
        wait_for(int(self.places[name].rpartition(":")[2]), process)

    def kill(self, name: str) -> None:
        """At once, with no time to save anything."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)
