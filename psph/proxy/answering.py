"""Recursive subscriptions, the side that answers: what other proxies want of our hosts.

We listen to the channel of every zone that a host of ours is in. Each proxy that asks there is a
subscriber of the Control Function for as long as its lease lasts. What is asked for and not ours is
left to the other proxies of the zone; what is ours and stays at home is refused with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

import msgspec

from identifiers import InvalidTopic, PublisherId, ZoneChannel, identify, zone_channel
from identifiers.zones import zone_of_host
from psirp_sim.client import Client
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Event, Update
from psirp_sim.publications.publisher import publisher_of
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.control import Control, Side
from psph.proxy.messages import Answer, Answers, MalformedMessage, Requests, encode, read_requests
from psph.proxy.settings import ProxySettings


@dataclass(slots=True, eq=False)
class Asker:
    """A proxy that asks on a channel."""

    publisher: PublisherId
    name: str
    """As a subscriber of the Control Function."""
    channel: ZoneChannel
    reply: bytes
    topics: dict[str, str] = field(default_factory=dict)
    """Those of our hosts that it asks for, and why one is refused."""
    asked: dict[str, int] = field(default_factory=dict)
    """The numbers of its requests for them."""
    said: Answers | None = None
    """What it was answered last."""
    timer: Timer | None = None
    """Until it is answered."""
    end: Timer | None = None
    """Of its lease."""


class Answering:
    """All proxies that ask for topics of ours."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        client: Client,
        control: Control,
        counters: Counter[str],
        offered: Callable[[str], Answer | None],
    ) -> None:
        """`offered` is who publishes a topic of ours, once it is there to be had."""
        self._env = env
        self._settings = settings
        self._client = client
        self._control = control
        self._counters = counters
        self._offered = offered
        self._publisher = publisher_of(env.node)
        self._askers: dict[tuple[str, PublisherId], Asker] = {}
        """By zone and proxy."""

    def start(self) -> None:
        """Listen on the channels of our zones."""
        for zone in sorted({zone_of_host(host) for host in self._settings.hosts}):
            channel = zone_channel(zone)
            if channel is not None:
                self._client.subscribe(
                    channel.sid.raw,
                    channel.rid.raw,
                    partial(self._heard, zone, channel),
                    name="requests",
                )

    def changed(self, topic: str) -> None:
        """A topic of ours can be had now, or no longer."""
        for asker in self._askers.values():
            if topic in asker.topics:
                self._answer_soon(asker)

    # Requests

    def _heard(self, zone: str, channel: ZoneChannel, event: Event) -> None:
        if not isinstance(event, Update) or event.publisher == self._publisher:
            return  # what we ask the other proxies of our zone
        try:
            requests = read_requests(event.content)
        except MalformedMessage:
            self._counters["malformed_requests"] += 1
            return
        key, name = (zone, event.publisher), f"proxy {event.publisher} for {zone}"
        asker = self._askers.get(key)
        reply = bytes.fromhex(requests.reply)
        if asker is not None and asker.reply != reply:
            self._dismiss(key, asker, keep=requests.topics)
            asker = None
        if asker is None:
            if not requests.topics:
                self._leave_out(name, {})
                return
            if len(self._askers) >= self._settings.most_proxies:
                self._counters["proxies_left_out"] += 1
                return
            asker = self._askers[key] = Asker(event.publisher, name, channel, reply)
        self._take(asker, zone, requests)
        if not asker.topics:
            self._dismiss(key, asker)
        else:
            self._answer_soon(asker)

    def _take(self, asker: Asker, zone: str, requests: Requests) -> None:
        lease = int(requests.lease * SECOND)
        # In steps, so that a set that changes often is not written down anew every time.
        step = max(1, lease // 3)
        until = (self._env.wall() + lease) // step * step + step
        if asker.end is not None:
            asker.end.cancel()
        asker.end = self._env.call_later(lease, self._end, zone, asker)
        known, asker.topics, asker.asked = asker.topics, {}, {}
        for text, number in requests.topics.items():
            canonical = text if text in known else self._ours(text, zone)
            if canonical is None:
                continue
            asker.topics[canonical] = reason = self._refusal(canonical, asker)
            asker.asked[canonical] = number
            if not reason:
                self._control.want(Side.FABRIC, canonical, asker.name, until)
        self._leave_out(asker.name, asker.topics)

    def _leave_out(self, name: str, topics: dict[str, str]) -> None:
        """End the wishes of a proxy for what it does not ask for any more, or was refused."""
        for topic in list(self._control.wishes_of(Side.FABRIC, name)):
            if topics.get(topic) != "":
                self._control.leave(Side.FABRIC, topic, name)

    def _ours(self, text: str, zone: str) -> str | None:
        """The topic, if it is one of our hosts'."""
        if not any(host in text for host in self._settings.hosts):
            return None  # proxies ask in canonical form, and identifying takes a while
        try:
            topic = identify(text)
        except InvalidTopic:
            return None
        if topic.zone != zone or not self._settings.serves(topic.host):
            return None
        return topic.canonical

    def _refusal(self, topic: str, asker: Asker) -> str:
        """Why it is not to be had; empty when it is."""
        settings, control = self._settings, self._control
        if settings.refuses(topic):
            reason = "this topic stays at home"
        elif topic not in asker.topics and len(asker.topics) >= settings.most_requested:
            reason = f"one proxy may ask for {settings.most_requested} topics here"
        elif control.count(Side.FABRIC) >= settings.most_wanted and not control.wanted(
            Side.FABRIC, topic
        ):
            reason = f"other proxies may ask for {settings.most_wanted} topics here"
        else:
            return ""
        self._counters["requests_refused"] += 1
        return reason

    def _end(self, zone: str, asker: Asker) -> None:
        """Its lease is over: it died, or cannot be heard."""
        self._dismiss((zone, asker.publisher), asker)

    # Answers

    def _answer_soon(self, asker: Asker) -> None:
        if asker.timer is None:
            asker.timer = self._env.call_later(self._settings.gather, self._answer, asker)

    def _answer(self, asker: Asker) -> None:
        asker.timer = None
        answers: dict[str, Answer] = {}
        for topic, reason in asker.topics.items():
            asked, offered = asker.asked[topic], self._offered(topic)
            said = asker.said.answers.get(topic) if asker.said is not None else None
            if reason:
                answers[topic] = Answer(asked, refused=reason)
            elif offered is not None:
                answer = msgspec.structs.replace(offered, asked=asked)
                # Said once: what is published later is no other answer.
                same = said is not None and answer == msgspec.structs.replace(
                    said, epoch=answer.epoch, version=answer.version
                )
                answers[topic] = said if said is not None and same else answer
        self._say(asker, Answers(answers))

    def _say(self, asker: Asker, answers: Answers) -> None:
        if answers == asker.said:
            return
        try:
            self._client.publish(
                asker.channel.sid.raw, asker.reply, encode(answers), {"kind": "answers"}
            )
        except NotPublished as error:
            self._env.log("answers.not_published", reason=error)
            asker.timer = self._env.call_later(self._settings.retry, self._answer, asker)
            return
        asker.said = answers
        self._counters["answers_sent"] += 1

    def _dismiss(
        self, key: tuple[str, PublisherId], asker: Asker, keep: Collection[str] = ()
    ) -> None:
        """It asks for nothing any more, or wants to be answered elsewhere."""
        del self._askers[key]
        for timer in (asker.timer, asker.end):
            if timer is not None:
                timer.cancel()
        if not keep:
            self._leave_out(asker.name, {})
        if asker.said is not None:
            self._client.withdraw(asker.channel.sid.raw, asker.reply)
