"""The sample of two domains: every file is valid, and an update crosses."""

import json
from contextlib import ExitStack

import pytest

from bench.crossing_world import EXAMPLE, NODES, A, B, copy_example, start_world
from bootstrap.registration import zone_key
from psph import cli

FILES = sorted(EXAMPLE.glob("*.toml"))


@pytest.fixture
def psph(capsys):
    """Runs a command here, and answers its exit code, output and errors."""

    def call(*arguments):
        return cli.run(arguments), *capsys.readouterr()

    return call


def test_all_files_are_known():
    assert [file.stem for file in FILES] == sorted(NODES)


@pytest.fixture(scope="module")
def with_keys(tmp_path_factory):
    """The example after its first step: the keys of the zones are made."""
    copy = tmp_path_factory.mktemp("example")
    for file in FILES:
        (copy / file.name).write_text(file.read_text())
    for name in ("zone-a.key", "zone-b.key"):
        zone_key.make(copy / name)
    return copy


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_valid(psph, file, with_keys):
    code, _, errors = psph("serve", "--config", str(with_keys / file.name), "--check")
    assert code == 0, errors


def test_a_missing_key_is_said_before_anything_runs(psph, with_keys):
    copy = with_keys / "elsewhere"
    copy.mkdir()
    (copy / "psph-a.toml").write_text((with_keys / "psph-a.toml").read_text())
    code, _, errors = psph("serve", "--config", str(copy / "psph-a.toml"), "--check")
    assert code == 1
    assert "zone-a.key: No such file" in errors
    assert errors.count("\n") == 1


def test_a_copy_shares_no_port_with_the_example(tmp_path):
    moved = copy_example(tmp_path / "copy")
    assert len(set(moved.values())) == len(moved)
    for name in NODES:
        text = (tmp_path / "copy" / f"{name}.toml").read_text()
        left = [old for old in moved if old in text and old not in moved.values()]
        assert not left, f"{name}: {left}"


def test_an_update_crosses(psph, tmp_path):
    with ExitStack() as stack:
        world = start_world(stack, tmp_path / "world")
        code, there, errors = psph("resolve", B, "--dns", world.dns, "--json")
        assert code == 0, errors
        found = json.loads(there)
        assert len(found["rendezvous"]) == 2
        assert len(found["keys"]) == 1
        for domain, reader in ((B, world.a), (A, world.b)):
            code, crossed, errors = psph(
                "probe", domain, "--hub", reader.url, "--dns", world.dns,
                "--count", "1", "--timeout", "60", "--json",
            )  # fmt: skip
            assert code == 0, errors
            assert len(json.loads(crossed)["crossings"]) == 1
            topic = f"http://{domain}/.well-known/psph-probe"
            wanted = reader.status("/proxy/status")["wanted_here"]
            assert wanted[topic]["state"] == "the fabric brings it"
