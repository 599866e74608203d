"""The merge queue of the page does what that of the Python client does, on the same histories.

It needs Chromium and no world: the module has no imports.
"""

from __future__ import annotations

import json
import random
from itertools import zip_longest
from pathlib import Path

import pytest

import psph
from identifiers import Position, PublisherId
from mobility.events import Gap, Reset, Update
from mobility.merging import Flow
from mobility.port import Message
from tests.push_hub.browser import installed

pytestmark = pytest.mark.skipif(
    installed() is None, reason="Chromium is not installed: apt-get install chromium"
)

FLOW = Path(psph.__file__).parent / "web" / "roaming" / "flow.js"
PUBLISHERS = (PublisherId(b"a" * 16), PublisherId(b"b" * 16))
FAR = (1 << 63) - 40
"""Versions here are more than a number of JavaScript holds."""

RUN = """async ([source, written]) => {
    const histories = JSON.parse(written);
    const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
    const {Flow, parsePosition} = await import(url);
    const told = (event) => {
        if (event.type === "update") return `update ${event.position}`;
        if (event.type === "reset") return `reset ${event.after}`;
        const missed = event.missed > 2 ** 53 ? "many" : event.missed;
        return `gap ${event.publisher} ${missed} ${event.reason}`;
    };
    const stored = (kept) => JSON.parse(JSON.stringify(kept));
    return JSON.stringify(histories.map((steps) => {
        let flow = new Flow("topic");
        const said = [];
        for (const [step, position, rest] of steps) {
            const at = position && parsePosition(position);
            if (step === "offer") flow.offer(at, rest[0] ? {kind: ""} : null, rest[1]);
            if (step === "aim") flow.aim(at);
            if (step === "missing") flow.missing(at);
            if (step === "subscribed") flow.subscribed(rest.map(parsePosition));
            if (step === "restart") flow.restart();
            if (step === "reload") flow = new Flow("topic", stored(flow.keep()));
            const events = step === "flush" ? flow.flush("why") : flow.take();
            for (const event of events) said.push(told(event));
            const kept = `${(flow.places ?? ["none"]).join()} ${flow.heard.join()}`;
            said.push(`${flow.caughtUp} ${flow.lacking} ${kept}`);
        }
        return said;
    }));
}"""


def history(rng):
    """Steps as a hub and proxies might cause them, and some as they should not."""
    start = rng.choice((1, 5, FAR))

    def position(first=0):
        epoch = rng.choice((1, 1, 1, 1, 2))
        return str(Position(rng.choice(PUBLISHERS), epoch, start + rng.randrange(first, 12)))

    steps = []
    for _ in range(rng.randrange(4, 40)):
        kind = rng.choices(
            ("offer", "aim", "missing", "subscribed", "restart", "reload", "flush"),
            (20, 2, 1, 3, 1, 1, 2),
        )[0]
        if kind == "offer":
            steps.append([kind, position(), [rng.random() < 0.9, rng.random() < 0.5]])
        elif kind in ("aim", "missing"):
            steps.append([kind, position(1), None])
        elif kind == "subscribed":
            base = {each.split(".")[0]: each for each in (position(), position())}
            steps.append([kind, None, rng.choice(([], list(base.values())))])
        else:
            steps.append([kind, None, None])
    return steps


def expected(steps):
    flow, said = Flow("topic"), []
    for step, text, rest in steps:
        at = Position.parse(text) if text else None
        if step == "offer":
            flow.offer(at, Message(b"") if rest[0] else None, direct=rest[1])
        elif step == "aim":
            flow.aim(at)
        elif step == "missing":
            flow.missing(at, Position(at.publisher, at.epoch, at.version - 1))
        elif step == "subscribed":
            flow.subscribed(tuple(map(Position.parse, rest)) or None, replays=True)
        elif step == "restart":
            flow.restart()
        elif step == "reload":
            flow = Flow("topic", flow.after, flow.whole, flow.heard.values())
        said += map(told, flow.flush("why") if step == "flush" else flow.take())
        places = ["none"] if flow.after is None else map(str, flow.after)
        kept = f"{','.join(places)} {','.join(map(str, flow.heard.values()))}"
        said.append(f"{_js(flow.caught_up)} {_js(flow.lacking)} {kept}")
    return said


def told(event):
    if isinstance(event, Update):
        return f"update {event.position}"
    if isinstance(event, Reset):
        return f"reset {event.previous}"
    assert isinstance(event, Gap)
    missed = "many" if event.missed > 1 << 53 else event.missed
    return f"gap {event.publisher} {missed} {event.reason}"


def _js(value):
    return "true" if value else "false"


def test_both_merge_alike(browser):
    rng = random.Random(20)
    histories = [history(rng) for _ in range(1_000)]
    wanted = list(map(expected, histories))
    for kind in ("update", "gap", "reset"):  # they are worth comparing
        assert sum(each.startswith(kind) for said in wanted for each in said) > 100
    page = browser.new_page()
    try:
        found = json.loads(page.evaluate(RUN, [FLOW.read_text(), json.dumps(histories)]))
    finally:
        page.close()
    for steps, *both in zip(histories, found, wanted, strict=True):
        differ = [pair for pair in zip_longest(*both) if pair[0] != pair[1]]
        assert not differ, f"{differ[0]} after {steps}"
