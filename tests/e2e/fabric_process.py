"""One fabric node as a process of its own, for tests: speaks JSON lines on stdin and stdout.

Arguments: name, port, roles separated by commas, and one that is not used. Commands on stdin:
{"link": name, "port": n}, {"start": true}, {"send_to": [names], "every_ms": n}. It reports
{"ready": true}, every 100 ms {"forwarded": n, "heard": [highest number, count], "sent": n}.
"""

from __future__ import annotations

import json
import sys

from psirp_sim.node import FabricNode
from psirp_sim.runtime import loop
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.data import Protocol
from psirp_sim.wire.sealing import FabricKeys
from tests.e2e.conversation import converse

SETTINGS = FabricSettings(
    keys=FabricKeys("end to end"), link_seed=b"end to end", hello_interval=200 * MILLISECOND
)


class Process:
    def __init__(self, node: UdpNode, roles: list[str]) -> None:
        self.node = node
        self.roles = roles
        self.core: FabricNode | None = None
        self.filters = []
        self.sent = 0
        self.highest = 0
        self.heard = 0

    def command(self, line: bytes) -> None:
        command = json.loads(line)
        if "link" in command:
            self.node.add_link(command["link"], ("127.0.0.1", command["port"]))
        elif "start" in command:
            self.core = self.node.run(lambda env: FabricNode(env, SETTINGS, roles=self.roles))
            self.core.handlers[Protocol.TEST] = self._hear
        else:
            self.want(command["send_to"], command["every_ms"])

    def want(self, receivers: list[str], every_ms: int) -> None:
        if not self.core.begun:
            self.node.call_later(50 * MILLISECOND, self.want, receivers, every_ms)
            return

        def changed(filters, unreached):
            self.filters = filters

        self.core.attachment.want_tree(self.node.node, receivers, changed)
        self._send(every_ms)

    def _send(self, every_ms: int) -> None:
        if self.filters:
            self.sent += 1
            self.core.send(self.filters, Protocol.TEST, self.sent.to_bytes(4) + bytes(300))
        self.node.call_later(every_ms * MILLISECOND, self._send, every_ms)

    def _hear(self, payload: bytes) -> bool:
        self.highest = max(self.highest, int.from_bytes(payload[:4]))
        self.heard += 1
        return True

    def report(self) -> None:
        forwarded = 0 if self.core is None else self.core.forwarding.as_dict()["forwarded"]
        line = {"forwarded": forwarded, "heard": [self.highest, self.heard], "sent": self.sent}
        print(json.dumps(line), flush=True)


async def main(name: str, port: str, roles: str, storage: str) -> None:
    async with UdpNode(name, ("127.0.0.1", int(port))) as node:
        process = Process(node, [role for role in roles.split(",") if role])
        await converse(node.address[1], process.command, process.report)


if __name__ == "__main__":
    loop.run(main(*sys.argv[1:]))
