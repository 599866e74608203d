"""The admin port of `psph hub`: one address to scrape, and not the public one."""

import json
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from psph import __version__
from tests.psph.hub_process import command, psph

ALLOW = ("--allow-fetch", "127.0.0.0/8", "--allow-callback", "127.0.0.0/8")


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_a_fresh_hub(tmp_path):
    line = command("hub", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", *ALLOW,
                   "--log-format", "json")  # fmt: skip
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            public = process.stdout.readline().split()[1]
            started = json.loads(process.stderr.readline())
            assert started["event"] == "hub.started"
            admin = f"http://{started['admin']}"
            kind, metrics = get(f"{admin}/metrics")
            assert kind.startswith("text/plain; version=0.0.4")
            assert re.search(rf'^psph_build_info{{.*version="{__version__}"}} 1.0$', metrics, re.M)
            assert "process_resident_memory_bytes " in metrics
            assert "psph_hub_fetch_failures_total 0.0" in metrics
            assert "psph_hub_topics 0.0" in metrics
            assert "_created" not in metrics
            assert json.loads(get(f"{admin}/healthz")[1])["addresses"] == {"hub": public[:-1]}
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(f"{public}metrics")
            second = psph(
                "hub", "--listen", "127.0.0.1:0", "--data", tmp_path / "other",
                "--admin", started["admin"],
            )  # fmt: skip
            assert second.returncode == 1
            assert "the admin port cannot be served" in second.stderr
            assert "Traceback" not in second.stderr
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_an_address_that_is_none(tmp_path):
    done = psph("hub", "--data", tmp_path / "data", "--admin", "nonsense")
    assert done.returncode == 2
    assert "write HOST:PORT" in done.stderr
