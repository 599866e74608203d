"""The command line as a person meets it: ways to start it in processes, its answers in this one."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from bench import sim
from bench.command import BENCHMARKS
from psirp_sim.courier.suite import CourierSuite
from psph import cli, entry_points
from psph.errors import PsphError
from tests.psirp_sim.courier.planted import ForgetsItsNextNumber

PSPH = Path(sys.executable).with_name("psph")
COMMANDS = [
    "bench", "capture", "completion", "config", "experiment", "fabric", "ids", "schedules",
    "serve", "sim",
]  # fmt: skip


def process(*arguments):
    return subprocess.run([PSPH, *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture
def psph(capsys):
    """Runs the command here: a process for each call would do little but import."""

    def call(*arguments):
        code = cli.run(arguments)
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return call


def test_version():
    assert process("--version").stdout == f"psph, version {version('psph')}\n"


@pytest.mark.parametrize("module", ["psph", "psph.cli"])
def test_python_runs_it_as_a_module(module):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=120
        )

    assert run("--version").stdout == f"psph, version {version('psph')}\n"
    wrong = run("nonsense")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("psph: No such command 'nonsense'.")


def test_help_lists_every_command_with_a_sentence():
    answer = process("--help")
    assert answer.returncode == 0
    for name in COMMANDS:
        (line,) = [line for line in answer.stdout.splitlines() if line.startswith(f"  {name} ")]
        assert len(line.split(maxsplit=1)[1]) > 10
    assert "not available" not in answer.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(psph, name):
    answer = psph(name, "--help")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"Usage: psph {name}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "psph: No such command 'nonsense'."),
        (["--nonsense"], "psph: No such option '--nonsense'."),
        (["sim"], "psph sim: Missing argument 'FILE'."),
        (["ids"], "psph ids: Missing argument 'TOPIC...'."),
        (["schedules", "courier", "--seeds", "0"], "psph schedules: Invalid value for '--seeds'"),
        (["schedules"], "psph schedules: Name a SUITE, or use --list."),
        (["experiment", "courier-loss"], "psph experiment: Name an experiment and give --out"),
        (["experiment", "courier-loss", "--out", "x", "--set", "loss"], "--set takes KEY=VALUE"),
        (["completion", "tcsh"], "psph completion: Invalid value for '{bash|zsh|fish}'"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(psph, arguments, message):
    answer = psph(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert "--help'" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sim", "no-such-file.toml"], "psph: no-such-file.toml: No such file or directory"),
        (
            ["bench", "nonsense"],
            "psph: there is no benchmark 'nonsense'; there is: crossing, fabric-",
        ),
        (["schedules", "nonsense"], "psph: there is no suite 'nonsense'; there is: cluster, "),
        (["experiment", "nonsense", "--out", "x"], "psph: there is no experiment 'nonsense'"),
        (["ids", "not a url"], "not a url"),
        (["experiment", "courier-loss", "--out", "/dev/null/x"], "name a directory to write to"),
    ],
)
def test_a_failure_is_one_line_and_exit_1(psph, arguments, message):
    answer = psph(*arguments)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize(("arguments", "code"), [(["sim"], 2), (["ids", "not a url"], 1)])
def test_a_process_ends_as_the_command_does(psph, arguments, code):
    one, other = process(*arguments), psph(*arguments)
    assert one.returncode == code
    assert (one.returncode, one.stdout, one.stderr) == (
        other.returncode, other.stdout, other.stderr,
    )  # fmt: skip


def test_a_reader_that_goes_away_is_no_error():
    answer = subprocess.run(
        f"{PSPH} --help | head -1", shell=True, capture_output=True, text=True, check=True
    )
    assert answer.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(psph, shell):
    assert "_PSPH_COMPLETE" in psph("completion", shell).stdout


def test_bash_completes_commands():
    script = f"""
    PATH={PSPH.parent}:$PATH
    eval "$(psph completion bash)"
    COMP_WORDS=(psph sche) COMP_CWORD=1
    _psph_completion psph
    echo "${{COMPREPLY[@]}}"
    """
    answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "schedules"


@pytest.fixture
def broken_command():
    """The group with one more command, whose function the test chooses."""

    def add(function):
        command = click.Command("broken", callback=function)
        cli.psph.commands["broken"] = command
        cli.psph._entry_points["broken"] = type("E", (), {"load": lambda self: command})()

    yield add
    del cli.psph._entry_points["broken"]


def raising(error):
    def function():
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PsphError("two\nlines"), 1, "psph: two lines\n"),
        (KeyboardInterrupt(), 130, "psph: stopped\n"),
        (
            ValueError("odd"),
            1,
            "psph: unexpected ValueError: odd; 'psph --debug ...' shows where\n",
        ),
    ],
)
def test_whatever_goes_wrong_is_one_line(broken_command, capsys, error, code, message):
    broken_command(raising(error))
    assert cli.run(["broken"]) == code
    assert capsys.readouterr().err.lstrip("\n") == message  # click ends the line of a ^C


def test_debug_shows_where_an_unexpected_error_came_from(broken_command):
    broken_command(raising(ValueError("odd")))
    with pytest.raises(ValueError, match="odd"):
        cli.run(["--debug", "broken"])


def test_a_command_whose_parts_are_missing_says_so(broken_command, capsys):
    class Missing:
        def load(self):
            raise ImportError("No module named 'pyspark'")

    broken_command(raising(ValueError()))
    cli.psph._entry_points["broken"] = Missing()
    assert cli.run(["broken", "--option", "argument"]) == 1
    assert "No module named 'pyspark'" in capsys.readouterr().err
    assert cli.run(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "broken (not available: No module named 'pyspark')" in shown


def test_ids_answers_in_json(psph):
    (answer,) = json.loads(psph("ids", "HTTP://News.Example.COM:80/a/../feed").stdout)
    assert answer["canonical"] == "http://news.example.com/feed"
    assert answer["zone"] == "example.com"
    assert len(answer["sid"]) == len(answer["rid"]) == 64


def test_schedules_finds_nothing_wrong_with_courier(psph):
    answer = psph("schedules", "courier", "--seeds", "5", "--json")
    document = json.loads(answer.stdout)
    assert document["seeds"] == 5
    assert document["failure"] is document["smallest"] is None
    assert psph("schedules", "--list", "--json").returncode == 0


def test_schedules_replays_a_seed_with_its_faults(psph):
    answer = psph("schedules", "courier", "--replay", "3")
    assert answer.returncode == 0
    assert "crash" in answer.stdout
    assert "1 seeds" in answer.stdout


def test_a_failing_suite_shows_the_smallest_schedule_and_the_seed(capsys, monkeypatch):
    monkeypatch.setattr(entry_points, "load", lambda *_: lambda: CourierSuite(ForgetsItsNextNumber))
    assert cli.run(["schedules", "courier"]) == 1
    answer = capsys.readouterr()
    assert "smallest schedule that fails" in answer.out
    assert "last events:" in answer.out
    assert "--replay" in answer.err
    assert answer.err.count("\n") == 1


def test_benchmarks_are_listed_and_run_in_the_agreed_form(psph, capsys, monkeypatch):
    names = [entry["bench"] for entry in json.loads(psph("bench", "--list", "--json").stdout)]
    assert {"ids", "sim", "traces"} <= set(names)
    assert entry_points.load(BENCHMARKS, "sim", "benchmark") is sim.run
    small = partial(sim.run, events=5_000, rounds=1)  # a whole one takes its time
    monkeypatch.setattr(entry_points, "load", lambda *_: small)
    assert cli.run(["bench", "sim", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["bench", "ratios", "figures", "machine", "notes"]
    assert document["bench"] == "sim"
    assert document["figures"]["events_per_s"] > 0
