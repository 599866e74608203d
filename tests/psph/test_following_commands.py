"""`psph subscribe`, `psph publish` and `psph check` as processes, against `psph hub`."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from rich.console import Console

from psph import cli
from psph.commands import following
from psph.commands.check import check
from psph.commands.publish import publish
from psph.commands.subscribe import subscribe
from push_hub import Notification
from push_hub.feeds import Entry
from tests.psph.hub_process import command, psph, running_hub
from tests.push_hub.feeds.documents import atom

ATOM = "application/atom+xml"
ACTIVE = 'psph_hub_subscriptions{state="active"}'


class Site(BaseHTTPRequestHandler):
    """Pages by path: (status, headers, body)."""

    def do_GET(self):
        status, headers, body = self.server.pages.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *arguments):
        pass


@contextmanager
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.pages = {}
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with running_hub(tmp_path_factory.mktemp("hub"), "--public-metrics") as url:
        yield f"{url}/hub"


@pytest.fixture
def web():
    with site() as running:
        yield running


def feed(web, hub, path, *entries, **headers):
    topic = web.url + path
    link = f'<{hub}>; rel="hub", <{topic}>; rel="self"'
    web.pages[path] = (200, {"Content-Type": ATOM, "Link": link, "ETag": '"1"', **headers},
                       atom(*entries))  # fmt: skip
    return topic


def active(hub):
    """How many subscriptions the hub has."""
    with urllib.request.urlopen(hub.replace("/hub", "/metrics"), timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    (found,) = [line for line in lines if line.startswith(ACTIVE)] or [f"{ACTIVE} 0"]
    return float(found.split()[1])


def wait_until(condition):
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never held")


@contextmanager
def subscribing(hub, *arguments):
    """`psph subscribe`, once the hub has recorded the subscription."""
    before = active(hub)
    process = subprocess.Popen(
        command("subscribe", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stderr.readline()
        assert line.startswith("subscribed to "), line + process.stderr.read()
        wait_until(lambda: active(hub) == before + 1)
        yield process
        wait_until(lambda: active(hub) == before)
    finally:
        process.kill()
        process.communicate()


def test_from_publish_to_subscribe_with_everything_discovered(web, hub):
    topic = feed(web, hub, "/feed", ("a", "One [bold]&lt;i&gt;x&lt;/i&gt;[/bold]"))
    with subscribing(hub, topic, "--count", 1, "--timeout", 100) as process:
        done = psph("publish", topic)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{hub} took the ping for {topic} (204)\n"
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert topic in out
        assert "1 new of 1 entries" in out
        assert "One [bold] x [/bold]\n" in out
        assert "http://example.com/a" in out


def test_no_control_sequence_of_a_stranger_reaches_the_terminal():
    out = io.StringIO()
    text = "a\x1b[31mb\r\n\x9bc\u202ed\n" + "line\n" * 30
    evil = Entry("k", b"", "t\x1b[2J", "javascript:x", "\x07", "\x9b1m", "<b>c</b>\x1b]0;x\x07")
    console = Console(file=out, highlight=False)
    now = datetime.now()
    following.show(console, Notification("http://t/", "text/plain", text.encode()), now)
    following.show(console, Notification("http://t/", "a/b", b"", (evil,), (evil,)), now)
    shown = out.getvalue()
    assert not {c for c in shown if not c.isprintable()} - {"\n"}
    assert "javascript" not in shown
    assert "12 lines more" in shown


def test_json_lines_and_the_current_version(web, hub):
    topic = feed(web, hub, "/j", ("a", "1"))
    with subscribing(hub, topic, "--hub", hub, "--current", "--json", "--count", 2) as process:
        current = json.loads(process.stdout.readline())
        assert (current["topic"], current["current"]) == (topic, True)
        assert [each["title"] for each in current["entries"]] == ["1"]
        web.pages["/j"] = (200, {"Content-Type": "text/plain"}, b"no feed any more")
        assert json.loads(psph("publish", "--hub", hub, "--json", topic).stdout) == [
            {"hub": hub, "topic": topic, "status": 204}
        ]
        then = json.loads(process.stdout.readline())
        assert then["content_type"] == "text/plain"
        assert then["body_b64"] == "bm8gZmVlZCBhbnkgbW9yZQ=="
        assert then["delivery_id"].startswith(f"{then['position']}-")
        assert process.wait(60) == 0


def test_time_runs_out(web, hub):
    topic = feed(web, hub, "/t", ("a", "1"))
    # Time enough to subscribe; both at once, because both take it to the end.
    before = active(hub)
    with ThreadPoolExecutor() as pool:
        wait = "subscribe", topic, "--timeout", "6"
        done, short = pool.map(lambda more: psph(*wait, *more), ([], ["--count", "2"]))
    assert (done.returncode, done.stdout) == (0, "")
    assert short.returncode == 1
    assert short.stderr.splitlines()[-1] == "psph: 0 of 2 updates came within 6 s"
    # The hub notes the end after the answer to its question, when the command may be gone.
    wait_until(lambda: active(hub) == before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_unsubscribes_when_it_is_stopped(web, hub, number):
    topic = feed(web, hub, f"/{number}", ("a", "1"))
    with subscribing(hub, topic) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors.strip() == "psph: stopped"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["subscribe", "xmpp:a@example.com"], 2, "http or https"),
        (["subscribe", "http://h/", "--listen", "x"], 2, "--listen"),
        (["subscribe", "http://h/", "--hub", "http://h/", "--listen", "0.0.0.0:0"], 2,
         "--public-url"),
        (["subscribe", "{site}/none"], 1, "cannot be fetched: the topic answered 404"),
        (["subscribe", "{site}/plain"], 1, "names no hub"),
        (["subscribe", "{site}/plain", "--hub", "{site}/x"], 1, "answered 404"),
        (["publish", "{site}/plain"], 1, "names no hub"),
        (["publish", "{site}/plain", "--hub", "http://127.0.0.1:9/"], 1, "cannot be reached"),
        (["check", "x"], 2, "URL"),
    ],
)  # fmt: skip
def test_errors_are_one_line(web, monkeypatch, capsys, arguments, code, words):
    web.pages["/plain"] = (200, {}, b"plain")
    commands = {"subscribe": subscribe, "publish": publish, "check": check}
    monkeypatch.setattr(cli.DiscoveredCommands, "get_command", lambda *these: commands[these[2]])
    assert cli.run([each.format(site=web.url) for each in arguments]) == code
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


def findings(web, path, *options):
    done = CliRunner().invoke(check, [web.url + path, "--json", *options], standalone_mode=False)
    report = json.loads(done.stdout)
    assert done.return_value == (0 if report["ok"] else 1)
    return {each["check"]: (each["verdict"], each["seen"], each["change"])
            for each in report["findings"]}  # fmt: skip


class TestCheck:
    """What is said about sites in different states."""

    def test_all_is_well(self, web, hub):
        topic = feed(web, hub, "/feed", ("a", "1"))
        found = findings(web, "/feed", "--ping")
        assert {verdict for verdict, _, _ in found.values()} == {"ok"}
        assert found["hub answers"][1] == f"{hub} refuses an empty form with 400, as it should"
        assert found["ping"][1] == f"{hub} took a ping for {topic} with 204"
        done = psph("check", topic)
        assert done.returncode == 0
        assert "rel=self" in done.stdout

    def test_nothing_is_there(self, web):
        assert "404" in findings(web, "/none")["fetch"][1]

    def test_a_feed_without_links_and_with_a_wrong_type(self, web):
        web.pages["/feed"] = (200, {"Content-Type": "text/html"}, atom(("a", "1")))
        found = findings(web, "/feed")
        assert found["rel=hub"][0] == found["rel=self"][0] == found["content type"][0] == "must"
        assert f'Link: <{web.url}/feed>; rel="self"' in found["rel=self"][2]
        assert found["validators"][0] == "advice"
        assert "hub answers" not in found

    @pytest.mark.parametrize(
        ("status", "verdict"),
        [(400, "ok"), (422, "ok"), (404, "must"), (405, "must"), (503, "must"), (301, "must"),
         (200, "advice"), (429, "advice")],
    )  # fmt: skip
    def test_what_the_hub_answers(self, web, status, verdict):
        feed(web, f"{web.url}/hub", "/feed", ("a", "1"))
        web.pages["/hub"] = (status, {"Location": "https://hub.example/"}, b"because")
        found = findings(web, "/feed")
        assert found["hub answers"][0] == verdict
        assert str(status) in found["hub answers"][1]

    def test_a_hub_that_is_not_there(self, web):
        feed(web, "http://127.0.0.1:9/", "/feed", ("a", "1"))
        assert "cannot be reached" in findings(web, "/feed")["hub answers"][1]

    def test_redirects(self, web, hub):
        feed(web, hub, "/new", ("a", "1"))
        web.pages["/old"] = (301, {"Location": "/new"}, b"")
        web.pages["/for-now"] = (302, {"Location": "/new"}, b"")
        assert findings(web, "/old")["redirects"][0] == "ok"
        found = findings(web, "/for-now")
        assert found["redirects"][0] == "advice"
        assert "301" in found["redirects"][2]

    def test_self_leads_elsewhere(self, web, hub):
        feed(web, hub, "/feed", ("a", "1"))
        web.pages["/copy"] = web.pages["/feed"]
        assert findings(web, "/copy")["rel=self"][0] == "ok"
        del web.pages["/feed"]
        verdict, seen, _ = findings(web, "/copy")["rel=self"]
        assert (verdict, "404" in seen) == ("must", True)
        web.pages["/feed"] = (200, {}, b"something else")
        assert "does not name itself" in findings(web, "/copy")["rel=self"][1]

    def test_a_home_page_offers_its_feed(self, web):
        page = (
            b'<html><head><link rel=alternate type="application/rss+xml" href="/f"></head></html>'
        )
        web.pages["/"] = (200, {"Content-Type": "text/html"}, page)
        assert findings(web, "/")["content type"][2].endswith(f"psph check {web.url}/f")

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            (
                "text/html",
                b"<html><head></head><body><link rel='hub' href='http://h/'></body></html>",
            ),
            (
                ATOM,
                atom(("a", "1")).replace(b"<entry>", b'<entry><link rel="hub" href="http://h/"/>'),
            ),
        ],
    )
    def test_a_link_in_the_wrong_place(self, web, content_type, body):
        web.pages["/x"] = (200, {"Content-Type": content_type}, body)
        verdict, seen, change = findings(web, "/x")["rel=hub"]
        assert (verdict, "not where" in seen, "head of the page" in change) == ("must", True, True)

    def test_links_that_contradict_each_other(self, web, hub):
        topic = feed(web, hub, "/feed", ("a", "1"))
        status, headers, body = web.pages["/feed"]
        other = body.replace(b"</title>", b'</title><link rel="hub" href="http://h/"/>', 1)
        web.pages["/feed"] = (status, headers, other)
        verdict, seen, _ = findings(web, "/feed")["links agree"]
        assert verdict == "advice"
        assert seen == f"rel=hub is {hub} in the Link header and http://h/ in the document"
        assert psph("check", topic).returncode == 0
