"""`Subscriber`: follow a topic from a program of your own, at whatever hub it names."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver

from push_hub.addresses import AddressPolicy
from push_hub.callbacks import check_callback
from push_hub.client.asking import insist
from push_hub.client.callback import Confirmed, Denied, Notification, renew_after
from push_hub.client.errors import HubRefused, SubscriptionFailed
from push_hub.client.finding import ANYWHERE, client_session, find, find_hubs
from push_hub.client.receiving import Receiver, serve
from push_hub.errors import FetchFailed, HubError
from push_hub.retries import RetrySchedule
from traces import LogEvent

_log = logging.getLogger(__name__)

_RENEWALS: Final = RetrySchedule(first=5.0, factor=2.0, longest=600.0)
_REDISCOVER_AFTER: Final = 3
_GOODBYE: Final = 5.0
_NAP: Final = 30.0
"""Clocks jump and laptops sleep: nobody sleeps longer than this without looking at the time."""


class Subscriber:
    """An asynchronous context manager and iterator: subscribed inside, unsubscribed after.

    It may be entered again, after a hub that was away for instance.
    `topic` is a URL; hubs and rel=self are discovered unless `hub` is given. The callback is served
    at `host` and `port` (0: any) or, after `mount()`, by an application of yours; `public_url` is
    where the hub reaches it, if elsewhere. Deliveries are signed with a random secret unless one
    is given ("" for none). Leases are renewed before they end. With `current` the first
    notification is what the topic holds already. `path`, with a secret of your own and
    `unsubscribe=False`, lets a program that restarts go on with its subscription.
    """

    def __init__(
        self,
        topic: str,
        *,
        hub: str | Sequence[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        public_url: str | None = None,
        path: str | None = None,
        secret: str | None = None,
        lease_seconds: int | None = None,
        algorithm: str | None = None,
        new_entries_only: bool = False,
        current: bool = False,
        unsubscribe: bool = True,
        patience: float = 30.0,
        max_content: int = 10 << 20,
        max_waiting: int = 100,
        policy: AddressPolicy = ANYWHERE,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """`patience` is how many seconds a hub has to confirm; more than `max_waiting` unread
        notifications, and the hub is asked to deliver later."""
        if public_url is None and _unspecified(host):
            raise ValueError(f"{host!r} is no address a hub can call: give public_url")
        self._secret = secrets.token_hex(32) if secret is None else secret
        self._receiver = Receiver(self._secret.encode() or None, max_content, max_waiting)
        self._asked_topic = topic
        self._hubs_given = (hub,) if isinstance(hub, str) else tuple(hub or ())
        self._host, self._port, self._public_url = host, port, public_url
        self._path = path or f"/websub/{secrets.token_urlsafe(24)}"
        if public_url is not None:
            check_callback(public_url + self._path)
        self._lease_wanted = lease_seconds
        self._extras = [("hub.signature", algorithm)] if algorithm else []
        self._extras += [("hub.entries", "new")] if new_entries_only else []
        self._current = current
        self._unsubscribe = unsubscribe
        self._patience = patience
        self._policy = policy
        self._resolver = resolver
        self._mounted = False
        self._session: aiohttp.ClientSession
        self._runner: web.AppRunner | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._hubs: tuple[str, ...] = ()
        self.hub = ""
        self.callback = ""
        self.lease_seconds = 0
        self.renew_at = 0.0
        """When the lease will be renewed, in seconds of time.time()."""
        self.last_error: str | None = None
        """Why the latest renewal failed; None when it did not."""

    @property
    def topic(self) -> str:
        """The topic as it is subscribed to: its rel=self."""
        return self._receiver.topic

    @property
    def counters(self) -> Counter[str]:
        """received, repeated, rejected (signature wrong), postponed, too_large, strange."""
        return self._receiver.counters

    def mount(self, app: web.Application, prefix: str = "") -> None:
        """Serve the callback in your application, before it starts. Needs `public_url`.

        `prefix` is where the application itself is mounted, as the outside sees it.
        """
        if not self._public_url:
            raise ValueError("a mounted Subscriber needs public_url: where is the application?")
        self._receiver.add_routes(app, self._path)
        self._path = prefix.rstrip("/") + self._path
        self._mounted = True

    async def __aenter__(self) -> Self:
        self._session = client_session(self._policy, self._patience, self._resolver)
        self._receiver.open()
        try:
            await self._find()
            await self._open()
            await self._subscribe_somewhere()
            if self._current:
                await self._fetch_current()
        except BaseException:
            await self._close()
            raise
        self._renewal = asyncio.create_task(self._keep_renewing())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._renewal is not None:
                self._renewal.cancel()
                await asyncio.gather(self._renewal, return_exceptions=True)
            if self._unsubscribe:
                await self._say_goodbye()
            else:
                self._receiver.wanted = ""
        finally:
            await self._close()

    def __aiter__(self) -> AsyncIterator[Notification]:
        return self

    async def __anext__(self) -> Notification:
        """The next notification; SubscriptionEnded when the hub ends the subscription."""
        found = await self._receiver.read()
        if found is None:
            raise StopAsyncIteration
        return found

    async def _find(self) -> None:
        if self._hubs_given:
            self._receiver.topic, self._hubs = self._asked_topic, self._hubs_given
            return
        found = await find_hubs(self._session, self._policy, self._asked_topic)
        self._receiver.topic, self._hubs = found.topic, found.links.hubs

    async def _open(self) -> None:
        base = self._public_url
        if not self._mounted:
            try:
                self._runner, address = await serve(
                    self._receiver, self._path, self._host, self._port
                )
            except OSError as error:
                raise SubscriptionFailed(
                    f"cannot listen at {self._host} port {self._port} ({error.strerror}): "
                    "choose another address for the callback"
                ) from error
            base = base or address
        assert base is not None  # mount() asks for it
        self.callback = base.rstrip("/") + self._path

    async def _subscribe_somewhere(self) -> None:
        """At the first hub that confirms."""
        failures = []
        for hub in self._hubs:
            try:
                verdict = await self._ask("subscribe", hub, self._patience)
            except HubError as error:
                failures.append(str(error))
                continue
            if isinstance(verdict, Denied):
                failures.append(f"the hub {hub} denied the subscription: {verdict.reason}")
                continue
            self.hub = hub
            return
        raise SubscriptionFailed("; ".join(failures))

    async def _ask(self, mode: str, hub: str, patience: float) -> Confirmed | Denied:
        verdict = self._receiver.expect(mode)
        form = [
            ("hub.mode", mode),
            ("hub.topic", self.topic),
            ("hub.callback", self.callback),
        ]
        if mode == "subscribe":
            form += [("hub.secret", self._secret)] if self._secret else []
            if self._lease_wanted is not None:
                form.append(("hub.lease_seconds", str(self._lease_wanted)))
            form += self._extras
        try:
            async with asyncio.timeout(patience):
                await insist(self._session, self._policy, hub, form)
                said = await verdict
        except TimeoutError:
            raise HubRefused(
                f"the hub {hub} did not confirm within {patience:g} s: "
                f"can it reach {self.callback}? Otherwise give a public URL that it can"
            ) from None
        if isinstance(said, Confirmed) and mode == "subscribe":
            self.lease_seconds = said.lease_seconds
            self.renew_at = time.time() + renew_after(said.lease_seconds, random.random())
            self.last_error = None
        return said

    async def _keep_renewing(self) -> None:
        failures = 0
        while True:
            left = self.renew_at - time.time()
            if left > 0:
                await asyncio.sleep(min(left, _NAP))
                continue
            try:
                verdict = await self._ask("subscribe", self.hub, self._patience)
            except HubError as error:
                failures += 1
                self.last_error = str(error)
                _log.warning(
                    LogEvent("renewal.failed", topic=self.topic, hub=self.hub, reason=error)
                )
                if failures >= _REDISCOVER_AFTER:
                    await self._try_elsewhere()
                if self.last_error is not None:
                    # No end to it: a hub that comes back finds us.
                    self.renew_at = time.time() + _RENEWALS.delay(failures, random.random())
                continue
            failures = 0
            if isinstance(verdict, Denied):
                self._receiver.end(verdict.reason)
                return

    async def _try_elsewhere(self) -> None:
        """The topic may have changed its hub, or have others."""
        with contextlib.suppress(HubError):
            if not self._hubs_given:
                found = await find(self._session, self._policy, self._asked_topic)
                self._hubs = found.links.hubs or self._hubs
            await self._subscribe_somewhere()

    async def _fetch_current(self) -> None:
        try:
            found = await find(self._session, self._policy, self.topic)
        except FetchFailed as error:
            # A topic from across the fabric cannot be fetched from here; its proxy has a copy.
            copy = f"{self.hub.removesuffix('/hub')}/t/{self.topic}"
            try:
                found = await find(self._session, self._policy, copy)
            except FetchFailed:
                raise FetchFailed(f"{self.topic} cannot be fetched: {error}") from error
        if found.fetched.body is not None:
            self._receiver.put_current(found.fetched.content_type, found.fetched.body)

    async def _say_goodbye(self) -> None:
        try:
            await self._ask("unsubscribe", self.hub, min(self._patience, _GOODBYE))
        except HubError as error:
            # The lease will end by itself.
            _log.info(
                LogEvent("unsubscription.failed", topic=self.topic, hub=self.hub, reason=error)
            )

    async def _close(self) -> None:
        self._receiver.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._session.close()


def _unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""
