"""A registrar and what its name server says about it, for tests."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import dns.message
import dns.query
import dns.rdatatype
import dns.update

from bootstrap.records import ANNOUNCEMENT, PROXY, RENDEZVOUS, Announcement
from bootstrap.registration import Registrar, RegistrarSettings, TsigKey
from bootstrap.registration.backoff import Backoff
from bootstrap.registration.settings import Target

PATIENCE = 30


def run(main):
    """Run a test's coroutine, within a time."""
    return asyncio.run(asyncio.wait_for(main, 120))


async def until(condition, what="the condition"):
    """Wait until it holds; the time-out only says that it never will."""
    for _ in range(PATIENCE * 50):
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        await asyncio.sleep(0.02)
    raise AssertionError(f"{what} never held")


def key_of(key):
    return TsigKey(key.name, key.secret, key.algorithm)


def settings_for(server, host="psph1", port=8080, **changes):
    """Of a PSPH of the server's zone, with times for tests."""
    settings = RegistrarSettings(
        nameserver=server.nameserver,
        key=key_of(server.key),
        target=Target(f"{host}.{server.zone}", port),
        zones=(server.zone,),
        ttl=2,
        backoff=Backoff(0.05, 2, 0.4),
    )
    return replace(settings, **changes)


@asynccontextmanager
async def registered(settings, **more):
    """A registrar whose zones are all registered."""
    async with Registrar(settings, **more) as registrar:
        await registrar.settled()
        await until(lambda: is_registered(registrar), "registered")
        yield registrar


def is_registered(registrar):
    return bool(registrar.state) and all(
        each.registered and each.trouble is None for each in registrar.state.values()
    )


class Zone:
    """What a name server has, asked directly, and changed behind everybody's back."""

    def __init__(self, server, zone=None):
        self.server = server
        self.zone = zone or server.zone

    async def ask(self, name, kind):
        question = dns.message.make_query(name, kind)
        answer = await asyncio.to_thread(
            dns.query.tcp, question, self.server.host, PATIENCE, self.server.port
        )
        rrset = answer.get_rrset(
            answer.answer, question.question[0].name, 1, question.question[0].rdtype
        )
        return sorted(each.to_text() for each in rrset or ())

    async def proxies(self):
        """HOST:PORT, without the zone."""
        return sorted(self._target(each) for each in await self.services(PROXY))

    async def rendezvous(self):
        return sorted(self._target(each) for each in await self.services(RENDEZVOUS))

    async def services(self, prefix=PROXY):
        return await self.ask(f"{prefix}.{self.zone}", "SRV")

    async def announcements(self):
        texts = await self.ask(f"{ANNOUNCEMENT}.{self.zone}", "TXT")
        return [Announcement.parse(each.replace('"', "")) for each in texts]

    async def keys(self):
        return {each.key for each in await self.announcements()}

    async def serial(self):
        (soa,) = await self.ask(self.zone, "SOA")
        return int(soa.split()[2])

    async def change(self, **sections):
        """add=, delete=: lists of arguments for dnspython."""
        message = dns.update.UpdateMessage(self.zone, keyring=self.server.key.dnspython)
        for each in sections.get("delete", ()):
            message.delete(*each)
        for each in sections.get("add", ()):
            message.add(*each)
        answer = await asyncio.to_thread(
            dns.query.tcp, message, self.server.host, PATIENCE, self.server.port
        )
        assert answer.rcode() == 0, answer

    def _target(self, text):
        _, _, port, host = text.split()
        return f"{host.removesuffix(f'.{self.zone}.')}:{port}"


class Lines(logging.Handler):
    """Everything a logger says, at every level."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []
        self.log = logging.Logger("registrar", logging.DEBUG)
        self.log.addHandler(self)

    def emit(self, record):
        self.lines.append(self.format(record))

    def __contains__(self, text):
        return any(text in line for line in self.lines)
