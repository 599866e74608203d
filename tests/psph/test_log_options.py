"""Log options of `psph hub` and `psph serve`, and the table `[log]` of a configuration."""

import json
import signal
import subprocess

import pytest

from tests.psph.hub_process import command, psph

NODE = """
[node]
name = "a1"
domain = "site-a.test"
roles = ["hub"]

[hub]
listen = "127.0.0.1:0"
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("hub", "--data", "data", "--log-format", "xml"),
        ("hub", "--data", "data", "--log-level", "loud"),
        ("serve", "--config", "node.toml", "--log-format", "xml"),
        ("serve", "--config", "node.toml", "--log-level", "loud"),
    ],
)
def test_what_there_is_not_is_a_wrong_call(arguments):
    done = psph(*arguments)
    assert done.returncode == 2
    assert "is not one of" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_configuration_with_another_level_is_refused(tmp_path):
    (tmp_path / "node.toml").write_text(f'{NODE}\n[log]\nlevel = "loud"\n')
    done = psph("serve", "--config", tmp_path / "node.toml", "--check")
    assert done.returncode == 1
    assert "log.level" in done.stderr


def logged(tmp_path, configured, *options):
    """The lines of a node that was started and stopped."""
    (tmp_path / "node.toml").write_text(NODE + configured)
    line = command("serve", "--config", tmp_path / "node.toml", *options)
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return errors.splitlines()


def test_a_node_logs_fields(tmp_path):
    lines = logged(tmp_path, "")
    assert any(" psph.server node.started node=a1 admin=127.0.0.1:" in line for line in lines)


def test_the_configuration_says_how_and_an_option_otherwise(tmp_path):
    configured = '\n[log]\nformat = "json"\nlevel = "info"\n'
    events = [json.loads(line) for line in logged(tmp_path, configured)]
    started = next(each for each in events if each["event"] == "node.started")
    assert (started["node"], started["level"], started["part"]) == ("a1", "info", "psph.server")
    assert logged(tmp_path, configured, "--log-level", "ERROR", "--log-format", "text") == []
