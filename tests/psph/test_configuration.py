"""Configuration files: what is accepted, what is refused and how, and that the docs know it."""

from __future__ import annotations

import json
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
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.scenario import Scenario
from psph import cli
from psph.configuration import ConfigurationError, NodeConfiguration, check, load

DOCS = Path(__file__).parents[2] / "docs"

GOOD = """
[node]
name = "a1"
domain = "site-a.test"
"""
PUBLISHER = '[[hub.publisher]]\ntoken = "{token}"\nprefix = "{prefix}"\n'


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
        (GOOD + PUBLISHER.format(token="short", prefix="http://a.test/"), "length >= 16"),
        (GOOD + PUBLISHER.format(token="x" * 16, prefix="http://a.test"), "'http://a.test/'"),
        (GOOD + PUBLISHER.format(token="x" * 16, prefix="xmpp:a@a.test"), "must be a URL"),
        (
            GOOD + PUBLISHER.format(token="x" * 16, prefix="a.test"),
            'key "hub.publisher[0]": prefix',
        ),
        (GOOD + "[mobility]\nnative_scopes = ['5C']", "'5C' is no scope id"),
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


FABRIC = GOOD + '[fabric]\nkeys = ["secret key"]\nlink_seed = "x"\n'
LINK = '[[fabric.link]]\nname = "l"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('rendezvous = "r1:4000"', 'key "fabric.rendezvous": expected array, got str'),
        ("rendezvous = [4000]", 'key "fabric.rendezvous[0]": expected str, got int'),
        ('rendezvous = ["r1:1", "r2"]', "key \"fabric\": rendezvous[1] 'r2' is no address"),
        ('rendezvous = ["r1:0"]', "rendezvous[0] 'r1:0': no link leads to port 0"),
        ('rendezvous = ["r1:1", "R1:1"]', "rendezvous[1] 'R1:1' is named twice"),
        ('rendezvous = ["[::1]:1", "[0::1]:1"]', "is named twice"),
        (f'rendezvous = ["r1:1"]\n{LINK}address = "r1:1"', "lead to the same neighbour"),
        (
            'rendezvous = ["r1:1"]\n[[fabric.link]]\nname = "rv-r1-1"\naddress = "r2:1"',
            "two links have the same name",
        ),
        ("accept_links = -1", 'key "fabric.accept_links": expected int >= 0'),
        ("accept_links = 1025", 'key "fabric.accept_links": expected int <= 1024'),
        ('accept_links = "all"', 'key "fabric.accept_links": expected int | null, got str'),
        ('accept_links = 1024\nrendezvous = ["r1:1"]', "at most 1024 links, with those of accept"),
        (
            f'accept_links = 1\n{LINK}interface = "eth0"\nmac = "02:00:00:00:00:01"',
            "rendezvous and accept_links are for nodes whose links are over UDP",
        ),
    ],
)
def test_bad_ways_to_join_are_refused(tmp_path, text, message):
    with pytest.raises(ConfigurationError) as caught:
        load(written(tmp_path, FABRIC + text), NodeConfiguration)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("roles", "text", "listen", "accepted"),
    [
        ([], "", "127.0.0.1:0", 0),
        (["rendezvous"], "", "127.0.0.1:0", 64),
        (["rendezvous"], "accept_links = 0", "127.0.0.1:0", 0),
        (["forwarder"], 'accept_links = 7\nlisten = "[::1]:4000"', "[::1]:4000", 7),
        (["forwarder"], 'rendezvous = ["r1:4000"]', "0.0.0.0:0", 0),
        (["forwarder"], 'rendezvous = ["r1:4000", "[::1]:4000"]', "[::]:0", 0),
        (["rendezvous"], f'{LINK}interface = "e"\nmac = "02:00:00:00:00:01"', "127.0.0.1:0", 0),
    ],
)
def test_what_is_not_said_about_joining(tmp_path, capsys, roles, text, listen, accepted):
    file = written(tmp_path, FABRIC.replace("[fabric]", f"roles = {roles}\n[fabric]") + text)
    assert cli.run(["config", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["fabric"]
    assert (shown["listen"], shown["accept_links"]) == (listen, accepted)


def test_links_to_rendezvous_servers_are_named_by_their_addresses(tmp_path):
    text = 'rendezvous = ["R1.site.test:4000", "192.0.2.7:4000", "[2001:db8::7]:4000"]'
    fabric = load(written(tmp_path, FABRIC + text), NodeConfiguration).fabric
    assert fabric.rendezvous_links() == {
        "rv-r1.site.test-4000": ("R1.site.test", 4000),
        "rv-192.0.2.7-4000": ("192.0.2.7", 4000),
        "rv-2001-db8--7-4000": ("2001:db8::7", 4000),
    }


PUBLICATIONS = GOOD + "[publications]\n"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("largest = 0", 'key "publications.largest": expected int >= 1'),
        (f"largest = {16 * MIB + 1}", f'key "publications.largest": expected int <= {16 * MIB}'),
        ('largest = "1 MiB"', 'key "publications.largest": expected int, got str'),
        ("history_versions = 0", 'key "publications.history_versions": expected int >= 1'),
        ("history_bytes = 0", 'key "publications.history_bytes": expected int >= 1'),
        ("history = 5", 'key "publications.history": unknown; did you mean "history_bytes"?'),
        ("waiting_bytes = 1000", f'key "publications.waiting_bytes": expected int >= {MIB}'),
        ("unfinished_events = 0", 'key "publications.unfinished_events": expected int >= 1'),
        ("linger_s = -1", 'key "publications.linger_s": expected int >= 0'),
        ("accept_unsigned = 0", 'key "publications.accept_unsigned": expected bool, got int'),
        (
            f"history_bytes = {300 * MIB}",
            f'key "publications": all_history_bytes ({256 * MIB}) is less than history_bytes'
            f" ({300 * MIB})",
        ),
        (
            f"history_bytes = {MIB}\nall_history_bytes = {16 * MIB}",
            f"no room for one publication of the size largest ({16 * MIB}) with its header: at"
            f" least {16 * MIB + 18_432}",
        ),
    ],
)
def test_bad_bounds_of_publications_are_refused(tmp_path, text, message):
    with pytest.raises(ConfigurationError) as caught:
        load(written(tmp_path, PUBLICATIONS + text), NodeConfiguration)
    assert message in str(caught.value)


def test_publications_as_the_cores_want_them(tmp_path):
    said_nothing = load(written(tmp_path, FABRIC), NodeConfiguration)
    assert said_nothing.publications.settings() == PublicationSettings(history_versions=4_096)
    text = f"""
        [publications]
        largest = {MIB}
        history_versions = 7
        history_bytes = {2 * MIB}
        all_history_bytes = {3 * MIB}
        waiting_bytes = {4 * MIB}
        unfinished_events = 8
        unfinished_bytes = {5 * MIB}
        linger_s = 9
        accept_unsigned = false
    """
    configuration = load(written(tmp_path, FABRIC + text), NodeConfiguration)
    settings = configuration.fabric.settings(
        configuration.rendezvous.settings(), configuration.publications.settings()
    )
    assert settings.publications == PublicationSettings(
        largest=MIB,
        history_versions=7,
        history_bytes=2 * MIB,
        all_history_bytes=3 * MIB,
        waiting_bytes=4 * MIB,
        unfinished_events=8,
        unfinished_bytes=5 * MIB,
        linger=9 * SECOND,
        accept_unsigned=False,
    )


def test_a_small_history_is_enough_for_small_publications(tmp_path):
    text = f"largest = 1\nhistory_bytes = 1\nall_history_bytes = {1 + 18_432}"
    assert load(written(tmp_path, PUBLICATIONS + text), NodeConfiguration)


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
    out = ""
    for name in ("six-nodes/n1.toml", "dns.toml", "registering.toml", "moving.toml"):
        assert cli.run(["config", str(DOCS.parent / "examples" / name)]) == 0
        out += capsys.readouterr().out
    assert "is valid" in out
    for key in keys(NodeConfiguration):
        shown = r"(\[0\])?\.".join(map(re.escape, key.split(".")))
        assert re.search(rf"^ {shown} ", out, re.MULTILINE), key
    assert "change this" not in out
    assert "Y2hhbmdlIHRo" not in out  # the same in base64


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
