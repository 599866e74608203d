"""The web around a hub in the storm, as a process of its own: callbacks that log, and a site.

    python -m tests.e2e.hub_web

It listens on every loopback address, so that callbacks can have different hosts, prints its port,
and says what happened at `/log`. Callbacks below /good answer; others fail as their name says,
each the first time it sees some of the versions, so that everything can be delivered in the end.
"""

from __future__ import annotations

import asyncio
import hashlib
import time

from aiohttp import web

FAILS_EVERY = 7
"""Of so many versions, a callback that fails does so once for one."""


class Web:
    def __init__(self):
        self.pages = {}
        self.attempts = []
        self.failed = set()

    async def get(self, request):
        """Pages of the site; or a callback is asked whether it meant to subscribe."""
        if request.path in self.pages:
            # A strong validator: without one, the hub rechecks a ping without news for a minute.
            answer = web.Response(text=self.pages[request.path])
            answer.etag = hashlib.sha256(answer.body).hexdigest()
            return answer
        return web.Response(text=request.query.get("hub.challenge", ""))

    async def put(self, request):
        self.pages[request.path] = await request.text()
        return web.Response()

    async def deliver(self, request):
        began = time.time()
        body = await request.text()
        manner = request.path.split("/")[1]
        identity = request.headers["X-Hub-Delivery"]
        version = int(identity.rpartition("-")[0].rpartition(".")[2])
        fails = version % FAILS_EVERY == 3 and identity not in self.failed
        if fails and manner in ("error", "reset"):
            self.failed.add(identity)
            self.log(request, identity, body, began, answered=False)
            if manner == "error":
                return web.Response(status=503)
            request.transport.abort()
            return web.Response()
        if manner == "slow":
            await asyncio.sleep(0.3)
        self.log(request, identity, body, began, answered=True)
        return web.Response(status=204)

    def log(self, request, identity, body, began, *, answered):
        callback = f"http://{request.host}{request.path_qs}"
        self.attempts.append((callback, identity, body, answered, began, time.time()))

    async def tell(self, request):
        return web.json_response(self.attempts)


async def serve():
    around = Web()
    app = web.Application()
    app.router.add_get("/log", around.tell)
    app.router.add_get("/{path:.*}", around.get)
    app.router.add_put("/{path:.*}", around.put)
    app.router.add_post("/{path:.*}", around.deliver)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
