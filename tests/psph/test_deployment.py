"""Containerfile and systemd unit name what is there; no container runtime is needed to see that."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest

from psph import cli
from tests.e2e.serving import Serving
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONFIGURATION = "/etc/psph/node.toml"


def instructions():
    """Those of the Containerfile, as (name, arguments)."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


def stages():
    """The stage that builds, and the one that is shipped."""
    found = []
    for name, arguments in instructions():
        if name == "FROM":
            found.append([])
        found[-1].append((name, arguments))
    build, shipped = found
    return build, shipped


def the(name, stage):
    """The arguments of the only such instruction."""
    (arguments,) = [each for instruction, each in stage if instruction == name]
    return arguments


def parses(command, *arguments):
    """A command line of psph is taken apart, short of running it."""
    context = click.Context(cli.psph, info_name="psph")
    found = cli.psph.get_command(context, command)
    assert found is not None
    return found.make_context(command, list(arguments), parent=context).params


def test_both_stages_have_a_python_that_the_project_knows():
    bases = {arguments.split()[0] for name, arguments in instructions() if name == "FROM"}
    (base,) = bases
    version = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", base)[1]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_what_is_installed_is_light():
    build, shipped = stages()
    (line,) = [
        arguments for name, arguments in build if name == "RUN" and "pip install" in arguments
    ]
    extras = re.search(r'"\.\[([\w,]+)\]"', line)[1].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"]) - {"dev", "spark"}
    assert not any("apt-get" in arguments for _, arguments in shipped)
    place = re.search(r"python -m venv (\S+)", line)[1]
    assert the("COPY", shipped) == f"--from=build {place} {place}"
    assert f"PATH={place}/bin:$PATH" in the("ENV", shipped)


def test_it_runs_a_node_and_not_as_root():
    _, shipped = stages()
    (user,) = re.findall(r"useradd .*--uid (\d+)", the("RUN", shipped))
    assert the("USER", shipped) == user
    assert int(user) > 0
    assert the("VOLUME", shipped) == the("WORKDIR", shipped)
    assert f"--home-dir {the('VOLUME', shipped)} --create-home" in the("RUN", shipped)
    (program,) = json.loads(the("ENTRYPOINT", shipped))
    assert program in PROJECT["scripts"]
    assert parses(*json.loads(the("CMD", shipped)))["file"] == Path(CONFIGURATION)


def test_the_build_gets_all_of_the_program_and_no_secret():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]

    def ignored(path):
        """Close enough: `*` of fnmatch also crosses directories, so this ignores rather more."""
        names = [path, *map(str, Path(path).parents)]
        return any(
            fnmatch(name, pattern) or fnmatch(name, pattern.removeprefix("**/"))
            for name in names
            for pattern in patterns
        )

    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    left_out = {path.split("/")[0] for path in listed if ignored(path)}
    assert left_out == {".ci", "docs", "tests"}
    for secret in ("examples/three-sites/corp.key", "zone.key", "examples/two-domains/data/n1/x"):
        assert ignored(secret)


def test_its_health_is_that_of_the_node(tmp_path):
    """The check runs as it stands there, but for the path of the configuration."""
    _, shipped = stages()
    interpreter, option, code = json.loads(the("HEALTHCHECK", shipped).partition("CMD ")[2])
    assert (interpreter, option) == ("python", "-c")
    assert CONFIGURATION in code
    node = Serving("hub", tmp_path / "hub", free_port())
    node.write(
        '[node]\nname = "hub"\ndomain = "site-a.test"\nroles = ["hub"]\n'
        f'admin = "127.0.0.1:{node.admin}"\n[hub]\nlisten = "127.0.0.1:{free_port()}"\n'
    )
    check = code.replace(CONFIGURATION, str(node.directory / "node.toml"))

    def healthy():
        return subprocess.run([sys.executable, "-c", check], capture_output=True).returncode == 0

    assert not healthy()
    try:
        node.launch()
        node.ready()
        assert healthy()
    finally:
        node.end()


@pytest.fixture(scope="module")
def unit():
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(ROOT / "examples" / "psph@.service")
    return parser


@pytest.mark.parametrize("key", ["ExecStartPre", "ExecStart"])
def test_the_unit_runs_what_exists(unit, key):
    program, command, *arguments = shlex.split(unit["Service"][key])
    assert Path(program).name in PROJECT["scripts"]
    parameters = parses(command, *arguments)
    assert parameters["file"] == Path("/etc/psph/%i.toml")
    assert parameters["check"] == (key == "ExecStartPre")


def test_the_documentation_shows_the_unit_that_is_there():
    text = (ROOT / "docs" / "operations.md").read_text()
    assert "../examples/psph@.service" in text
    assert "../Containerfile" in text
