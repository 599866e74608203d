"""The table [bootstrap] of a node's configuration."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from bootstrap.registration import tsig, zone_key
from bootstrap.registration.settings import Target
from psph import cli
from psph.configuration import NodeConfiguration, load
from psph.configuration.loading import ConfigurationError

SECRET = base64.b64encode(b"a secret of some length").decode()
NODE = '[node]\nname = "a1"\ndomain = "site-a.test"\n[bootstrap]\n'
REGISTERING = """
update_server = "127.0.0.1:53"
zones = ["site-a.test"]
endpoint = "psph1.site-a.test:8080"
"""
INLINE = f'tsig = {{ name = "psph", secret = "{SECRET}" }}\n'


def loaded(tmp_path, text):
    file = tmp_path / "node.toml"
    file.write_text(NODE + text)
    return load(file, NodeConfiguration).bootstrap


def test_everything_that_can_be_said(tmp_path):
    (tmp_path / "keys").mkdir()
    tsig.save(tsig.make("psph"), tmp_path / "keys" / "tsig.key")
    keys = [zone_key.make(tmp_path / name).public for name in ("new.key", "old.key")]
    retired = base64.b64encode(b"\7" * 32).decode()
    bootstrap = loaded(
        tmp_path,
        f"""
        nameservers = ["127.0.0.1:53", "[::1]:5300"]
        {REGISTERING}
        learn = ["site-b.test"]
        rendezvous = ["rv.site-a.test:4000"]
        tsig_file = "keys/tsig.key"
        zone_key_files = ["new.key", "old.key"]
        retired_keys = ["{retired}"]
        ttl_s = 60
        priority = 1
        weight = 2
        take_over_after_s = 90
        """,
    )
    assert bootstrap.nameservers == ["127.0.0.1:53", "[::1]:5300"]
    settings = bootstrap.registrar_settings(tmp_path)
    assert settings.nameserver == ("127.0.0.1", 53)
    assert settings.key == tsig.load(tmp_path / "keys" / "tsig.key")
    assert settings.target == Target("psph1.site-a.test", 8080)
    assert settings.rendezvous == (Target("rv.site-a.test", 4000),)
    assert (settings.zones, settings.learn) == (("site-a.test",), ("site-b.test",))
    assert settings.zone_keys == tuple(keys)
    assert settings.retired_keys == (b"\7" * 32,)
    assert (settings.ttl, settings.priority, settings.weight) == (60, 1, 2)
    assert settings.take_over_after == 90


def test_only_asking_registers_nothing(tmp_path):
    assert loaded(tmp_path, "").registrar_settings(tmp_path) is None
    file = tmp_path / "node.toml"
    file.write_text(NODE.replace("[bootstrap]\n", ""))
    assert load(file, NodeConfiguration).bootstrap is None


def test_nobody_is_taken_over_from_unless_it_is_said(tmp_path):
    settings = loaded(tmp_path, REGISTERING + INLINE).registrar_settings(tmp_path)
    assert settings.take_over_after is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nameservers = ["x"]', "is no address"),
        ('nameservers = ["127.0.0.1:0"]', "0 is none"),
        ('zones = ["site-a.test"]', "zones is for registering, which needs update_server"),
        ("take_over_after_s = 5", "needs update_server"),
        (INLINE, "needs update_server"),
        ('update_server = "127.0.0.1:53"', "update_server needs endpoint"),
        (REGISTERING, "needs a TSIG key: either tsig or tsig_file"),
        (REGISTERING + INLINE + 'tsig_file = "x"', "either tsig or tsig_file"),
        (REGISTERING.replace('["site-a.test"]', "[]") + INLINE, "needs zones, or learn"),
        (REGISTERING.replace("site-a.test:8080", "0.2.1:80"), "0.2.1"),
        (REGISTERING + INLINE + 'retired_keys = ["x"]', "is no zone key"),
        (REGISTERING + INLINE + 'zone_key_files = ["a", "b", "c"]', "zone_key_files"),
        (REGISTERING + INLINE + "ttl_s = 0", "ttl_s"),
        ('tsig = { name = "a", secret = "!" }', "is not base64"),
        ('tsig = { name = "a b", secret = "AAAA" }', "is no name of a key"),
        ("update_servers = 1", 'did you mean "update_server"?'),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, text)
    assert said in str(caught.value)
    assert "bootstrap" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('tsig_file = "missing"', "missing: No such file"),
        (INLINE + 'zone_key_files = ["missing"]', "missing: No such file"),
        (INLINE + 'zone_key_files = ["open.key"]', "others can read this secret"),
    ],
)
def test_key_files_that_cannot_be_used(tmp_path, line, said):
    zone_key.make(tmp_path / "open.key")
    (tmp_path / "open.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match=said):
        loaded(tmp_path, REGISTERING + line).registrar_settings(tmp_path)


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_the_secret_is_not_shown(tmp_path, capsys, json):
    loaded(tmp_path, REGISTERING + INLINE)
    assert cli.run(["config", str(tmp_path / "node.toml"), *json]) == 0
    output = capsys.readouterr().out
    assert "update_server" in output
    assert SECRET not in output


def test_the_example_registers_at_the_example_of_a_name_server():
    examples = Path(__file__).parents[2] / "examples"
    server = load(examples / "dns.toml", NodeConfiguration).dns
    settings = load(examples / "registering.toml", NodeConfiguration).bootstrap.registrar_settings(
        examples
    )
    (key,) = server.key
    assert (settings.key.name, settings.key.text) == (key.name, key.secret)
    (zone,) = server.zone
    assert settings.zones == (zone.origin,)
    assert key.name in zone.update
    assert f"{settings.nameserver[0]}:{settings.nameserver[1]}" in server.listen
