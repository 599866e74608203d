"""The distribution: what the wheel carries, C sources, the import table, a clean install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROBE = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_probe", "", -1, methods};
PyMODINIT_FUNC PyInit__probe(void) { return PyModule_Create(&module); }
"""


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The project as a clone would have it, with one more C source."""
    target = tmp_path_factory.mktemp("packaging") / "project"
    for file in tracked():
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target / file)
    (target / "psirp_sim" / "_probe.c").write_text(PROBE)
    return target


@pytest.fixture(scope="module")
def wheel(copy):
    return build(copy, "dist")


def build(project, into, **environment):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", project.parent / into, project],
        env={**os.environ, **environment}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (wheel,) = (project.parent / into).glob("*.whl")
    return wheel


def test_the_wheel_carries_everything_but_the_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    rooms = {path.parts[0] for path in tracked() if path.name == "__init__.py"} - {"tests"}
    for file in tracked():
        if file.parts[0] in rooms | {"examples"} and file.suffix not in {".md"}:
            assert str(file) in names, file
    for room in rooms:
        assert f"{room}/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]


def test_a_c_source_in_a_package_becomes_an_extension_module(wheel):
    built = [name for name in zipfile.ZipFile(wheel).namelist() if "_probe" in name]
    assert any(name.endswith(".so") for name in built)


def test_without_a_compiler_the_wheel_is_built_all_the_same(copy):
    shutil.rmtree(copy / "build", ignore_errors=True)  # of an earlier one, with its extensions
    names = zipfile.ZipFile(build(copy, "plain", CC="no-such-compiler")).namelist()
    assert not any(name.endswith(".so") for name in names)
    assert "psirp_sim/__init__.py" in names


def test_an_installed_wheel_runs_without_the_checkout(wheel, tmp_path):
    """A fresh environment that sees this one's dependencies, but not its psph."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    (here,) = Path(sys.prefix).glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(
        # Path only: the .pth files of the other environment, the editable psph, stay out.
        f"{here}\n"
    )
    calls = [["--version"], ["ids", "http://example.com/"], ["schedules", "--list"]]
    code = (
        f"import identifiers, psph.cli, sys; sys.exit(any(map(psph.cli.run, {calls!r})) or "
        f"(not identifiers.__file__.startswith({str(packages)!r})))"
    )
    subprocess.run(
        [place / "bin" / "python", "-c", code],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip


def test_the_import_table_holds():
    answer = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout


def test_no_module_is_named_after_nothing():
    for file in tracked():
        assert file.stem not in {"utils", "util", "helpers", "helper", "misc", "common"}, file
