"""`psph hub-admin` against a hub in a process of its own."""

import json
import signal
import sqlite3
import stat
import subprocess
import sys
import urllib.request

import click
import pytest
from click.testing import CliRunner

from psph.commands.hub_admin import hub_admin
from psph.errors import PsphError
from tests.psph.test_hub_command import START, hub, publish

TOPIC = "http://example.com/feed"


def run(*arguments):
    """What the command prints; its errors are raised."""
    done = CliRunner().invoke(hub_admin, list(arguments), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def asked(url, data, *arguments):
    return run(*arguments, "--hub", url, "--data", str(data))


def test_it_lists_inspects_and_replays(tmp_path):
    with hub(tmp_path) as (_, url):
        token = (tmp_path / "admin-token").read_text().strip()
        assert stat.S_IMODE((tmp_path / "admin-token").stat().st_mode) == 0o600
        position = publish(url, token, b"1")
        assert TOPIC in asked(url, tmp_path, "list", "topics")
        found = json.loads(asked(url, tmp_path, "list", "topics", "--json"))
        assert [each["topic"] for each in found["topics"]] == [TOPIC]
        assert json.loads(asked(url, tmp_path, "list", "--json"))["subscriptions"] == []
        assert json.loads(asked(url, tmp_path, "list", "queue", "--json"))["deliveries"] == []
        assert position in asked(url, tmp_path, "inspect", TOPIC)
        assert asked(url, tmp_path, "replay", TOPIC, "--position", position) == (
            "0 deliveries queued\n"
        )
        with pytest.raises(PsphError, match="404: there is no subscription 9"):
            asked(url, tmp_path, "drop", "9")
        with pytest.raises(PsphError, match="knows no topic"):
            asked(url, tmp_path, "inspect", "http://example.com/other")


def test_a_subscription_is_shown_and_dropped(tmp_path):
    form = f"hub.mode=subscribe&hub.topic={TOPIC}&hub.callback=http://127.0.0.1:9/".encode()
    with hub(tmp_path, "--allow-callback", "127.0.0.0/8") as (_, url):
        with urllib.request.urlopen(f"{url}hub", form, timeout=60) as answer:
            assert answer.status == 202
        assert "http://127.0.0.1:9/" in asked(url, tmp_path, "list")
        assert "http://127.0.0.1:9/" in asked(url, tmp_path, "inspect", "1")
        assert "is denied" in asked(url, tmp_path, "drop", "1", "--reason", "enough")
        shown = json.loads(asked(url, tmp_path, "inspect", "1", "--json"))
        assert (shown["state"], shown["reason"]) == ("denied", "enough")


def test_failures_are_one_sentence(tmp_path):
    with pytest.raises(PsphError, match="has no admin token"):
        asked("http://127.0.0.1:9", tmp_path, "list")
    (tmp_path / "admin-token").write_text("wrong\n")
    with pytest.raises(PsphError, match="is the hub running"):
        asked("http://127.0.0.1:9", tmp_path, "list")
    with pytest.raises(click.UsageError, match="no http or https URL"):
        asked("127.0.0.1", tmp_path, "list")
    with hub(tmp_path / "data") as (_, url), pytest.raises(PsphError, match=r"401: .*admin token"):
        asked(url, tmp_path, "list")


def test_a_running_hub_is_backed_up_and_restored_after_a_loss(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy.sqlite"
    with hub(data) as (process, url):
        token = (data / "admin-token").read_text().strip()
        first = publish(url, token, b"1")
        assert "1 topics" in run("backup", str(copy), "--data", str(data))
        lost = publish(url, token, b"2")
        with pytest.raises(PsphError, match="stop that one"):
            run("restore", str(copy), "--data", str(data))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    for part in data.glob("hub.sqlite*"):
        part.unlink()
    assert json.loads(run("restore", str(copy), "--data", str(data), "--json"))["topics"] == 1
    with hub(data) as (_, url):
        assert publish(url, token, b"3") not in (first, lost)
    db = sqlite3.connect(data / "hub.sqlite")
    assert db.execute("SELECT count(*) FROM updates").fetchone() == (2,)
    db.close()


def test_a_second_hub_on_the_same_data_is_refused(tmp_path):
    with hub(tmp_path) as (process, _):
        second = subprocess.run(
            [sys.executable, "-c", START, "--listen", "127.0.0.1:0", "--data", str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert second.returncode != 0
        assert f"in use by another hub (process {process.pid})" in second.stderr
