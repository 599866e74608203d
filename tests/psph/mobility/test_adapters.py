"""Another pub/sub system takes an adapter of under 150 lines of code: those that are there do."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

import psph.mobility

FOLDER = Path(psph.mobility.__file__).parent
ADAPTERS = sorted([*FOLDER.glob("*_port.py"), FOLDER / "mqtt.py"])
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def lines_of_code(text):
    """Without empty lines, comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {token.start[0] for token in tokens if token.type not in NO_CODE}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda path: path.stem)
def test_an_adapter_is_small(adapter):
    assert lines_of_code(adapter.read_text()) < 150


def test_only_code_counts():
    assert lines_of_code('"""One\ntwo."""\n\n# three\nx = 1\n\n\ndef f():\n    """Four."""\n') == 2
