"""`psph` commands as processes, as far as the installed entry points do not matter."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

START = """
import sys
from importlib import import_module
from psph import cli
name = sys.argv[1]
cli.psph.add_command(getattr(import_module(f"psph.commands.{name}"), name))
cli.DiscoveredCommands.get_command = lambda self, context, name: self.commands.get(name)
sys.exit(cli.run(sys.argv[1:]))
"""


def command(*arguments):
    """A command line that runs a sub-command of these sources."""
    return [sys.executable, "-c", START, *map(str, arguments)]


def psph(*arguments, seconds=120):
    """Run to the end."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=seconds)


@contextmanager
def running_hub(data, *options, port=0, run=command, end=subprocess.Popen.terminate):
    """A hub on the loopback interface that may reach everything there; its URL."""
    allow = ("--allow-fetch", "127.0.0.0/8", "--allow-callback", "127.0.0.0/8")
    line = run("hub", "--listen", f"127.0.0.1:{port}", "--data", data, *allow, *options)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        ready = process.stdout.readline()
        assert ready.startswith("ready http://127.0.0.1:"), ready
        yield ready.split()[1].rstrip("/")
    finally:
        end(process)
        process.wait(60)
        process.stdout.close()
