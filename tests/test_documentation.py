"""What the documentation says exists, and what it shows runs."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from experiments.runner import execute
from psph import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page for where in ("", "docs/", "bench/", "examples/*/") for page in ROOT.glob(f"{where}*.md")
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def everywhere(pattern):
    """What the pattern finds on all pages, once."""
    found = [match for page in PAGES for match in re.findall(pattern, page.read_text(), re.M)]
    return sorted(set(found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]


@pytest.mark.parametrize("line", everywhere(r"^ {4}(psph .+?)(?: {2,}#.*)?$"))
def test_commands_in_the_documentation_exist(line):
    """Every `psph` line is taken apart by the command it names, short of running it."""
    _, name, *arguments = shlex.split(line)
    context = click.Context(cli.psph, info_name="psph")
    command = cli.psph.get_command(context, name)
    assert command is not None
    command.make_context(name, arguments, parent=context, resilient_parsing=False)


@pytest.mark.parametrize("target", everywhere(r"(?:^ {4}|`)make ([a-z]+)"))
def test_make_targets_in_the_documentation_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", sorted(PROJECT["project"]["entry-points"]["psph.commands"]))
def test_every_command_is_mentioned(command):
    assert any(f"psph {command}" in page.read_text() for page in PAGES)


def test_the_dependencies_are_those_of_the_project():
    tables = (ROOT / "docs/dependencies.md").read_text()
    explained = set(re.findall(r"^\| `([\w-]+)` \|", tables, re.MULTILINE))
    extras = PROJECT["project"]["optional-dependencies"].values()
    required = [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.match(r"[\w-]+", line)[0] for line in required} - {"psph"}
    assert explained == names
    assert all(re.search(r"[<>=]", line) for line in required if not line.startswith("psph["))


def test_the_rooms_are_those_of_the_import_table():
    rows = re.findall(
        r"^\| `(\w+)/` (\*later\* )?\|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE
    )
    exist = {room for room, later in rows if not later}
    assert {room for room, later in rows if later}.isdisjoint(
        path.parent.name for path in ROOT.glob("*/__init__.py")
    )
    assert exist >= {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == exist - {"examples", "tests"}


def test_the_experiment_of_the_documentation_runs(tmp_path):
    (code,) = re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / "docs/experiments.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert len([line for line in code.splitlines() if line.strip()]) <= 50
    module = tmp_path / "round_trips.py"
    module.write_text(code)
    experiment = runpy.run_path(str(module))["EXPERIMENT"]
    result = execute(experiment, tmp_path / "out")
    assert [row["link"] for row in result["rows"]] == ["lan", "wifi", "lte", "wimax", "gprs"]
    assert result["claims"][0]["holds"]
    trips = {row["link"]: row["round_trip_ms"] for row in result["rows"]}
    assert trips["wimax"] == pytest.approx(2 * 20.7 + 2 * 0.8, rel=0.01)
    assert (tmp_path / "out" / "round-trips.png").exists()
