"""Configuration files: what is accepted, what is refused and how, and that the docs know it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.courier.traffic import Settings
from psirp_sim.runtime.scenario import Scenario
from psph import cli
from psph.configuration import ConfigurationError, NodeConfiguration, check, load

DOCS = Path(__file__).parents[2] / "docs"

GOOD = """
[node]
name = "a1"
domain = "site-a.test"
"""


def written(tmp_path, text):
    file = tmp_path / "node.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_a_good_file(tmp_path):
    configuration = load(written(tmp_path, GOOD), NodeConfiguration)
    assert configuration.node.name == "a1"
    assert configuration.traces.directory is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'key "node": missing, and it has no default'),
        ('[node]\nname = "a"', 'key "node.domain": missing'),
        (GOOD + "color = 1", 'key "node.color": unknown; known here: name, domain, roles, data'),
        (GOOD + "[trace]", 'key "trace": unknown; did you mean "traces"?'),
        (GOOD + "[traces]\nrotate_bytes = 'x'", 'key "traces.rotate_bytes": expected int, got str'),
        (GOOD + "[traces]\nrotate_bytes = 0", 'key "traces.rotate_bytes": expected int >= 1'),
        (GOOD.replace("a1", "A 1"), "key \"node\": name 'A 1' must be 1 to 63 lower-case"),
        ("node = 3", 'key "node": expected object, got int'),
        (b"\xff\xfe", "not valid TOML"),
        ("node = [" * 5000, "not valid TOML"),
        ("a" * (1 << 20) + "b", "larger than"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_key(tmp_path, text, message):
    file = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load(file, NodeConfiguration)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        load(tmp_path / "none.toml", NodeConfiguration)
    with pytest.raises(ConfigurationError, match="Is a directory"):
        load(tmp_path, NodeConfiguration)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["node", "link", "fault", "name", "delay", "between", "loss", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(values)
def test_anything_is_accepted_or_refused_by_name(data):
    for kind in (NodeConfiguration, Scenario):
        with suppress(ConfigurationError):
            check(data, kind, "fuzz")


def test_config_shows_every_setting_but_no_secret(capsys):
    file = DOCS.parent / "examples" / "six-nodes" / "n1.toml"
    assert cli.run(["config", str(file)]) == 0
    out = capsys.readouterr().out
    assert "is valid" in out
    for key in keys(NodeConfiguration):
        shown = key.replace("fabric.link.", "fabric.link[0].")
        assert re.search(rf"^ {re.escape(shown)} ", out, re.MULTILINE), key
    assert "change this" not in out


def keys(kind, prefix=""):
    """Every key a file of this kind may have, dotted."""
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        key = prefix + field.encode_name
        hint = hints[field.name]
        if key == "link.back":
            yield key  # the same keys as of the link itself
            continue
        structs = [struct for member in members(hint) for struct in structs_of(member)]
        for struct in structs:
            yield from keys(struct, f"{key}.")
        if any(not structs_of(member) for member in members(hint) if member is not type(None)):
            yield key


def members(kind):
    return get_args(kind) if get_origin(kind) is UnionType else (kind,)


def structs_of(kind):
    (item,) = get_args(kind) if get_origin(kind) is list else (kind,)
    return [item] if isinstance(item, type) and issubclass(item, msgspec.Struct) else []


@pytest.mark.parametrize(
    ("kind", "page", "prefix"),
    [
        (NodeConfiguration, "configuration.md", ""),
        (Scenario, "simulator.md", ""),
        (Settings, "simulator.md", "node.settings."),
    ],
)
def test_every_key_is_documented_and_no_other(kind, page, prefix):
    text = (DOCS / page).read_text()
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", text, re.MULTILINE))
    known = set(keys(kind, prefix))
    assert known <= documented, "missing in the docs"
    if not prefix:
        settings = set(keys(Settings, "node.settings.")) if kind is Scenario else set()
        assert documented - settings <= known, "the docs name keys that do not exist"
