"""docs/traces.md says what the tables in traces/ say, and its Arrow example runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from psph.trace_writer import TraceSettings, TraceWriter
from traces import COLUMNS, STAGES, Column, Stage, TraceEvent

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/traces.md has no section {title}"
    return found[1]


def rows(title: str) -> Iterator[list[str]]:
    """The cells of the section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def names(columns: frozenset[str]) -> str:
    return ", ".join(f"`{column.name}`" for column in COLUMNS if column.name in columns)


def test_the_columns_are_these_and_no_others() -> None:
    assert [row[0] for row in rows("Columns")] == [f"`{column.name}`" for column in COLUMNS]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_column_is_documented(column: Column) -> None:
    documented = {row[0]: row[1:] for row in rows("Columns")}
    null = "yes" if column.nullable else "no"
    assert documented[f"`{column.name}`"] == [column.type, null, column.meaning]


def test_the_stages_are_these_and_no_others() -> None:
    assert [row[0] for row in rows("Stages")] == [f"`{stage}`" for stage in Stage]


@pytest.mark.parametrize("stage", Stage)
def test_stage_is_documented(stage: Stage) -> None:
    documented = {row[0]: row[1:] for row in rows("Stages")}
    rule = STAGES[stage]
    required = names(rule.requires)
    if rule.unless_reason:
        required += f"; without `reason` also {names(rule.unless_reason)}"
    assert documented[f"`{stage}`"] == [rule.written_by, rule.meaning, required]


def test_the_settings_are_these_with_their_defaults() -> None:
    spelled = {"None": "none", "False": "false"}
    documented = {row[0]: row[1] for row in rows("Settings")}
    assert documented == {
        f"`{key}`": spelled.get(str(value), str(value))
        for key, value in msgspec.structs.asdict(TraceSettings()).items()
    }


def test_the_arrow_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for domain in ("site-a.test", "site-b.test"):
        with TraceWriter("traces", "n1", domain) as writer:
            for stage in (Stage.DELIVERED, Stage.DROPPED):
                writer.emit(TraceEvent(stage=stage, node="n1", domain=domain, wall_ns=7, mono_ns=7))
    example = re.search(r"```python\n(.*?)```", section("Reading"), re.DOTALL)
    assert example
    scope: dict[str, object] = {}
    exec(compile(example[1], "docs/traces.md", "exec"), scope)  # noqa: S102
    assert scope["delivered"].to_pylist() == [  # type: ignore[attr-defined]
        {"trace_id": None, "domain": "site-a.test", "node": "n1", "wall_ns": 7}
    ]
