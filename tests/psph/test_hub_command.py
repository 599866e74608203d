"""`psph hub` as a process: it says when it is ready, survives a kill, stops cleanly."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

START = "import sys; from psph.commands.hub import hub; hub(sys.argv[1:], standalone_mode=False)"


@contextmanager
def hub(data, *options):
    command = [sys.executable, "-c", START, "--listen", "127.0.0.1:0", "--data", str(data)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready http://127.0.0.1:"), line
        yield process, line.split()[1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def publish(url, token, body, topic="http://example.com/feed"):
    request = urllib.request.Request(
        f"{url}publish?topic={topic}", body, {"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["position"]


def test_it_serves_and_stops_cleanly(tmp_path):
    with hub(tmp_path / "new") as (process, url):
        with urllib.request.urlopen(f"{url}healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_versions_go_on_after_a_kill(tmp_path):
    with hub(tmp_path) as (process, url):
        token = (tmp_path / "admin-token").read_text().strip()
        first = publish(url, token, b"1")
        process.kill()
        process.wait()
    with hub(tmp_path) as (_, url):
        second = publish(url, token, b"2")
    assert first.rpartition(".")[0] == second.rpartition(".")[0]
    assert (first.rpartition(".")[2], second.rpartition(".")[2]) == ("1", "2")


def logged(tmp_path, *options):
    """What a hub writes to stderr that took one publication; its admin token."""
    command = [sys.executable, "-c", START, "--listen", "127.0.0.1:0", "--data", str(tmp_path)]
    public = ["--public-url", "https://hub.example.com/news"]
    with subprocess.Popen(
        [*command, *public, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().split()[1]
        token = (tmp_path / "admin-token").read_text().strip()
        publish(url, token, b"1")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert token not in errors
    return errors.splitlines()


def test_it_logs_one_object_a_line(tmp_path):
    lines = [json.loads(line) for line in logged(tmp_path, "--log-format", "json")]
    assert [line["event"] for line in lines] == [
        "hub.started", "update.recorded", "hub.stopping", "hub.stopped",
    ]  # fmt: skip
    assert lines[0]["public_url"] == "https://hub.example.com/news"
    assert lines[1]["deliveries"] == 0


def test_it_logs_fields_as_text(tmp_path):
    started, recorded, *_ = logged(tmp_path)
    assert re.search(r" info psph.commands.hub hub.started address=\S+ admin=127\.\S+ ", started)
    assert started.endswith(" public_url=https://hub.example.com/news")
    assert re.search(r" update\.recorded topic=\S+ origin=published position=\S+ ", recorded)


def test_it_logs_nothing_below_the_level(tmp_path):
    assert logged(tmp_path, "--log-level", "warning") == []


def test_private_callbacks_need_to_be_allowed(tmp_path):
    form = b"hub.mode=subscribe&hub.topic=http://example.com/&hub.callback=http://127.0.0.1:9/"
    with hub(tmp_path) as (_, url):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(f"{url}hub", form, timeout=60)
        assert refusal.value.code == 400
        refusal.value.close()
    with (
        hub(tmp_path, "--allow-callback", "127.0.0.0/8") as (_, url),
        urllib.request.urlopen(f"{url}hub", form, timeout=60) as answer,
    ):
        assert answer.status == 202


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--allow-fetch", "10.0.0.0/99"], "10.0.0.0/99"),
        (["--topic-host", "a b"], "a b"),
        (["--public-url", "hub.example.com"], "--public-url"),
        (["--public-url", "https://hub.example.com/?x"], "--public-url"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, words):
    import click

    from psph.commands.hub import hub as command

    with pytest.raises(click.UsageError) as refusal:
        command(["--data", str(tmp_path), *options], standalone_mode=False)
    assert words in refusal.value.format_message()
