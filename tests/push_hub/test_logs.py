"""Logs: one JSON object a line, whatever happens, and no secret in any of them."""

import ast
import io
import json
import logging
import os
import re
from pathlib import Path

import pytest
from aiohttp import web

from push_hub.logs import Background, JsonLines, TextLines, log_to
from tests.push_hub.world import run, until, world
from traces import LogEvent

ROOT = Path(__file__).parents[2]
SECRET = "tell-nobody-of-this"


@pytest.fixture
def logged():
    """Lines written while the test runs; the loggers are as before afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    root.handlers = []
    handler = log_to(stream, "debug", "json")

    def lines():
        handler.flush()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield lines
    handler.close()
    root.handlers, root.level = before, level


def test_a_line_is_an_object(logged):
    log = logging.getLogger("push_hub.test")
    log.info(LogEvent("word.said", words="one\ntwo", level="mine", nothing=None))
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("failed: %s", "so")
    said, failed = logged()
    assert (said["event"], said["level"]) == ("word.said", "info")
    assert said["words"] == "one\ntwo"
    assert "nothing" not in said
    assert (failed["level"], failed["event"]) == ("error", "failed: so")
    assert "ValueError" in failed["traceback"]


def text_of(record):
    return TextLines().format(record).partition(" push_hub.test ")[2]


def record_of(said, *args, exc_info=None):
    return logging.LogRecord("push_hub.test", logging.INFO, "", 0, said, args, exc_info)


def test_text_has_the_fields_and_nobody_forges_a_line():
    said = LogEvent(
        "fetch.failed", topic="http://a/b", reason='it said "no"\nand left', n=3, x=None
    )
    assert text_of(record_of(said)) == (
        'fetch.failed topic=http://a/b reason="it said \\"no\\"\\nand left" n=3'
    )
    assert text_of(record_of("a library says %s", "one\ntwo")) == "a library says one\\ntwo"
    assert text_of(record_of(LogEvent("word.said", a="", b="\u00e9 \u202e"))) == (
        'word.said a="" b="\\u00e9 \\u202e"'
    )


def test_a_traceback_is_set_in():
    try:
        raise ValueError("one\n2026 forged")
    except ValueError as error:
        lines = text_of(record_of(LogEvent("core.failed"), exc_info=(type(error), error, None)))
    first, *more = lines.splitlines()
    assert first == "core.failed"
    assert more == ["  ValueError: one", "  2026 forged"]


def test_fields_are_in_the_lines_of_any_handler():
    """Of a program that sets up its log itself, too."""
    said = record_of(LogEvent("fetch.failed", topic="http://a/b"))
    assert logging.Formatter("%(message)s").format(said) == "fetch.failed topic=http://a/b"


ROOMS = ("bootstrap", "demo", "mobility", "psirp_sim", "psph", "push_hub")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def test_everything_that_is_logged_is_an_event_with_fields():
    """Neither a sentence nor a value that a handler might leave out: `LogEvent("noun.verb")`."""
    found = 0
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            logger = ast.unparse(call.func.value).rpartition(".")[2].lower().lstrip("_")
            if logger not in ("log", "logger") or call.func.attr not in LEVELS:
                continue
            said = call.args[call.func.attr == "log"]
            if isinstance(said, ast.Call) and isinstance(said.args[0], ast.Constant):
                assert re.fullmatch(r"[a-z_]+\.[a-z_]+", said.args[0].value), (path, call.lineno)
            else:
                assert ast.unparse(said).startswith(("LogEvent(", "told")), (path, call.lineno)
            found += 1
    assert found > 80


def test_no_secret_is_in_them_whatever_happens(tmp_path, logged):
    async def main():
        async with world(tmp_path, admin_token=f"{SECRET}-admin") as w:

            async def broken(request):
                return web.Response(status=500)

            w.reader.receive = broken
            topic = w.site.put("/t", b"1") + f"?token={SECRET}"
            await w.subscribe(topic, f"/cb/{SECRET}", secret=SECRET)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_dropped"] == 1)
            await w.ping(f"{w.site.url}/nowhere?token={SECRET}")
            await w.subscribe(f"{w.site.url}/gone?{SECRET}", f"/cb2/{SECRET}", secret=SECRET)
            await w.ping(f"{w.site.url}/gone?{SECRET}")
            await until(lambda: w.hub.counters["fetch_failures"] >= 1)
            await w.post(mode="nonsense", secret=SECRET)
            await w.hub.drop(1, "enough")
            async with w.client.get(
                f"{w.hub_url}/admin/topics", headers={"Authorization": f"Bearer {SECRET}-admin"}
            ) as answer:
                assert answer.status == 200

    run(main())
    lines = logged()
    events = {line["event"] for line in lines}
    assert {
        "subscription.confirmed", "update.recorded", "delivery.failed", "fetch.failed",
        "subscription.ended",
    } <= events  # fmt: skip
    assert SECRET not in json.dumps(lines)


def test_a_log_that_nobody_reads_stops_nothing():
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as writer:
        handler = Background(writer, most=100)
        handler.setFormatter(JsonLines())
        log = logging.Logger("push_hub.test")
        log.addHandler(handler)
        for n in range(5_000):  # more than pipe and queue hold
            log.warning(LogEvent("word.said", n=n, words="x" * 100))
        found = []
        while (line := json.loads(reader.readline()))["event"] != "log.dropped":
            found.append(line["n"])
        assert found == list(range(len(found)))
        assert line["lines"] > 0
        handler.close()
