"""From a domain or topic URL to what serves it: PSPHs, rendezvous servers, the zone's keys."""

from __future__ import annotations

import asyncio
import random as chance
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from bootstrap.asking import Asker, Heard
from bootstrap.caching import Cache, CacheBounds
from bootstrap.errors import NameServerFailed, NothingFound
from bootstrap.found import (
    Found,
    Source,
    announcements_in,
    read_announcements,
    read_services,
)
from bootstrap.lookup import Kind, LookupSettings, Server
from bootstrap.records import ANNOUNCEMENT, PROXY, RENDEZVOUS, owner_names
from bootstrap.selection import Endpoint, Failures, in_order, in_order_for
from identifiers import identify, is_address, normalise_host, scope_id, zone_of_host

MAX_ADDRESSES: Final = 16
Result = TypeVar("Result")


def host_of(name_or_url: str) -> str:
    """The host of a domain, topic URL or JID, in normal form; InvalidTopic if it has none."""
    if "://" in name_or_url or name_or_url.startswith("xmpp:"):
        return identify(name_or_url).host
    # An IPv6 address needs brackets in a URL only.
    bare = name_or_url.count(":") > 1 and not name_or_url.startswith("[")
    return normalise_host(f"[{name_or_url}]" if bare else name_or_url)


class _Walk(NamedTuple):
    """What was heard on the way from the host up; `last` is where it ended."""

    heard: tuple[Heard, ...]
    found: bool

    @property
    def last(self) -> Heard:
        return self.heard[-1]


class _Place(NamedTuple):
    """Where a host is; `unknown` when nobody could be asked."""

    addresses: tuple[str, ...] = ()
    heard: tuple[Heard, ...] = ()
    problem: str = ""
    unknown: bool = False


class _Services(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    problems: tuple[str, ...]
    heard: tuple[Heard, ...]
    unknown: bool


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A NothingFound to be raised."""

    message: str
    problems: tuple[str, ...]
    stale: bool


class Resolver:
    """Finds what serves a domain; one object for a whole process, so that answers are shared.

    Answers are kept as long as their time to live says. While no name server answers, old ones
    are given, marked `stale`, and the servers are asked again every few seconds.
    """

    def __init__(
        self,
        nameservers: Iterable[Server | str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        random: chance.Random | None = None,
        bounds: CacheBounds | None = None,
        settings: LookupSettings | None = None,
        stale_after: float = 1.0,
    ) -> None:
        """Asks the system's name servers when none are given."""
        servers = [Server.parse(each) if isinstance(each, str) else each for each in nameservers]
        self._bounds = bounds or CacheBounds()
        self._asker = Asker(
            servers,
            clock=clock,
            bounds=self._bounds,
            settings=settings or LookupSettings(),
            stale_after=stale_after,
        )
        self._below = (random or chance.Random()).randrange
        self._failures = Failures(clock)
        # Answers grow stale, what was read from them does not: it is read again.
        self._found: Cache[str, Found | _Nothing] = Cache(clock, replace(self._bounds, stale_for=0))
        self._under_way: dict[str, asyncio.Task[Found | _Nothing]] = {}

    async def find(self, name_or_url: str) -> Found:
        """What serves a domain, or the host of a topic.

        NothingFound: nobody does, which means plain WebSub. NameServerFailed: it cannot be known,
        and there is no old answer either. InvalidTopic: that is no domain.
        """
        host = host_of(name_or_url)
        kept = self._found.get(host)
        if kept is not None and not kept.stale:
            return _given(kept.value, kept.expires_in)
        if is_address(host):
            raise NothingFound(f"{host} is an address: only names have records")
        task = self._under_way.get(host)
        if task is None:
            task = asyncio.create_task(self._find(host))
            self._under_way[host] = task
            task.add_done_callback(lambda done: self._ended(host, done))
        await asyncio.wait({task})
        if task.cancelled():
            raise NameServerFailed("the resolver was closed")
        error = task.exception()
        if isinstance(error, NameServerFailed):
            raise NameServerFailed(str(error)) from error
        result = task.result()
        kept = self._found.get(host)
        return _given(result, kept.expires_in if kept is not None else 0.0)

    def order(self, endpoints: Iterable[Endpoint], key: str | None = None) -> list[Endpoint]:
        """In which order to try them, this time: RFC 2782, and those that failed lately last.

        With a key, a topic in canonical form, the choice by weight is the same for all who have
        that key: they meet at one endpoint, and topics are spread over all.
        """
        chosen = in_order(endpoints, self._below) if key is None else in_order_for(endpoints, key)
        return self._failures.last(chosen)

    def failed(self, endpoint: Endpoint) -> None:
        """It could not be used: it is tried last for a while."""
        self._failures.failed(endpoint)

    def worked(self, endpoint: Endpoint) -> None:
        """It could be used."""
        self._failures.worked(endpoint)

    async def close(self) -> None:
        """End what is under way; whoever waits for it gets NameServerFailed."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._asker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _ended(self, host: str, task: asyncio.Task[Found | _Nothing]) -> None:
        del self._under_way[host]
        if not task.cancelled():
            task.exception()  # perhaps nobody waits any more

    async def _find(self, host: str) -> Found | _Nothing:
        zone = zone_of_host(host)
        # One that fails fails all: without the TXT record a zone with a key would look like one
        # without, and its publications could be forged by keeping an answer from us.
        walks = await _all(
            self._walk(PROXY, "SRV", host, zone),
            self._walk(RENDEZVOUS, "SRV", host, zone),
            self._walk(ANNOUNCEMENT, "TXT", host, zone),
        )
        heard = [each for walk in walks for each in walk.heard]
        proxies, rendezvous, announcements = walks
        placed = await _all(self._services(proxies), self._services(rendezvous))
        last = announcements.last.answer
        keys = read_announcements(last.owner, last.records, zone)
        problems = (*placed[0].problems, *placed[1].problems, *keys.problems)
        heard += [each for services in placed for each in services.heard]
        stale = any(each.stale for each in heard)
        # What is stale or in part unknown is looked at again soon.
        soon = stale or any(services.unknown for services in placed)
        expires_in = min(
            [each.expires_in for each in heard if not each.stale]
            + [self._bounds.retry_after if soon else inf]
        )
        result: Found | _Nothing
        if any(each.endpoints for each in placed) or keys.id_version or keys.refused:
            result = Found(
                host=host,
                zone=zone,
                sid=scope_id(zone),
                proxies=placed[0].endpoints,
                rendezvous=placed[1].endpoints,
                keys=keys.keys,
                id_version=keys.id_version,
                nameserver=next(walk.last.answer.nameserver for walk in walks if walk.found),
                sources=tuple(_source(walk.last) for walk in walks if walk.found),
                expires_in=expires_in,
                stale=stale,
                refused=keys.refused,
                problems=tuple(dict.fromkeys(problems)),
            )
        else:
            result = _Nothing(_no_records(host, zone, walks), problems, stale)
        self._found.put(host, result, expires_in)
        return result

    async def _walk(self, service: str, kind: Kind, host: str, zone: str) -> _Walk:
        """Ask at the host, then at its parents up to the zone, until there are records."""
        heard = []
        for owner in owner_names(service, host, zone):
            heard.append(await self._asker.ask(owner, kind))
            records = heard[-1].answer.records
            # A wildcard may bring others' TXT records to our name: those do not end the walk.
            if announcements_in(records) if kind == "TXT" else records:
                return _Walk(tuple(heard), True)
        return _Walk(tuple(heard), False)

    async def _services(self, walk: _Walk) -> _Services:
        """The endpoints of a service with their addresses: those that came along, or DNS's."""
        answer = walk.last.answer
        read = read_services(answer.owner, answer.records)
        places = {
            host: _Place(came.addresses[:MAX_ADDRESSES]) for host, came in answer.additional.items()
        }
        rest = [each.host for each in read.endpoints if each.host not in places]
        if rest:
            asked = dict.fromkeys(rest)
            places |= zip(asked, await _all(*map(self._place, asked)), strict=True)
        used = [places[host] for host in dict.fromkeys(each.host for each in read.endpoints)]
        return _Services(
            tuple(replace(each, addresses=places[each.host].addresses) for each in read.endpoints),
            (*read.problems, *(each.problem for each in used if each.problem)),
            tuple(each for place in used for each in place.heard),
            any(place.unknown for place in used),
        )

    async def _place(self, host: str) -> _Place:
        """The addresses of a host."""
        try:
            heard = await _all(self._asker.ask(host, "A"), self._asker.ask(host, "AAAA"))
        except NameServerFailed as error:
            return _Place(problem=f"the addresses of {host} are unknown: {error}", unknown=True)
        addresses = tuple(record.to_text() for each in heard for record in each.answer.records)
        if not addresses:
            return _Place(heard=tuple(heard), problem=f"{host} has no address")
        # That it has none of the other kind says nothing about those it has.
        return _Place(
            addresses[:MAX_ADDRESSES], tuple(each for each in heard if each.answer.records)
        )


async def _all(*questions: Coroutine[Any, Any, Result]) -> list[Result]:
    """All results, or the first failure once all have ended: none goes on unheard."""
    results = await asyncio.gather(*questions, return_exceptions=True)
    done = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _given(value: Found | _Nothing, expires_in: float) -> Found:
    left = 0.0 if value.stale else expires_in
    if isinstance(value, _Nothing):
        raise NothingFound(
            value.message, problems=value.problems, expires_in=left, stale=value.stale
        )
    return replace(value, expires_in=left)


def _source(heard: Heard) -> Source:
    answer = heard.answer
    return Source(answer.owner, answer.kind, answer.nameserver, heard.expires_in, heard.stale)


def _no_records(host: str, zone: str, walks: Sequence[_Walk]) -> str:
    said = next((walk.last.answer for walk in walks if walk.found), None)
    if said is not None:
        return f"{said.owner} says that nothing serves {host}"
    where = host if host == zone else f"{host} or above it up to {zone}"
    server = walks[0].last.answer.nameserver
    return f"nothing serves {host}: {server} knows no records at {where}"
