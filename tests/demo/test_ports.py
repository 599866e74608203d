"""Ports stay the same in a directory, and a port that is taken is said to be."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, closing

import pytest

from demo import ports
from psph.errors import PsphError
from tests.ports import free_block


@pytest.fixture(scope="module")
def two_blocks():
    return free_block(80)


@pytest.fixture(autouse=True)
def alone(monkeypatch, two_blocks):
    """The range of these tests: no other process chooses from it."""
    monkeypatch.setattr(ports, "RANGE", two_blocks)
    with ExitStack() as held:
        monkeypatch.setattr(ports, "_held", held)
        yield


def choose(directory, names):
    """The ports of a world that has ended."""
    with closing(ports.reserve(directory, names)) as reservation:
        return reservation.ports


def test_ports_are_chosen_once(tmp_path):
    chosen = choose(tmp_path, ["a", "b", "c"])
    assert len(set(chosen.values())) == 3
    assert all(port in ports.RANGE for port in chosen.values())
    assert choose(tmp_path, ["c", "b", "a"]) == chosen


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_named(tmp_path, kind):
    chosen = choose(tmp_path, ["dns"])
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", chosen["dns"]))
        if kind is socket.SOCK_STREAM:
            other.listen()
        with pytest.raises(PsphError, match=f"port {chosen['dns']}, which dns had .*in use"):
            ports.reserve(tmp_path, ["dns"])


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}', "null"])
def test_a_file_that_is_none_of_ours_is_said_to_be(tmp_path, text):
    (tmp_path / ports.NAME).write_text(text)
    with pytest.raises(PsphError, match="choose another --data"):
        ports.reserve(tmp_path, ["dns"])


def test_a_taken_port_is_not_chosen(tmp_path, monkeypatch):
    free = choose(tmp_path, ["a", "b"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", free["a"]))
        monkeypatch.setattr(ports, "RANGE", range(free["a"] - 1, free["a"] + 1))
        (tmp_path / ports.NAME).unlink()
        with pytest.raises(PsphError, match="no 1 free ports"):
            ports.reserve(tmp_path, ["a"])
    assert json.loads(json.dumps(choose(tmp_path, ["a"]))) == {"a": free["a"]}


def test_ports_that_nothing_has_bound_yet_are_given_out_once(tmp_path):
    chosen = [*ports.free_ports(2), *ports.free_ports(2)]
    assert len(set(chosen)) == 4
    with pytest.raises(PsphError, match="no 1 free ports"):
        ports.free_ports(1)
    with pytest.raises(PsphError, match="no 1 free ports"):
        ports.reserve(tmp_path, ["a"])


def test_worlds_that_run_at_the_same_time_share_no_port(tmp_path):
    """Although none of their parts has bound its port yet."""
    directories = [tmp_path / name for name in ("one", "two", "three")]
    for directory in directories:
        directory.mkdir()
    with (
        closing(ports.reserve(directories[0], ["a", "b"])) as one,
        closing(ports.reserve(directories[1], ["a", "b"])) as two,
    ):
        assert len({*one.ports.values(), *two.ports.values()}) == 4
        with pytest.raises(PsphError, match="no 2 free ports"):
            ports.reserve(directories[2], ["a", "b"])
        with pytest.raises(PsphError, match="in use: stop the other psph up"):
            ports.reserve(directories[0], ["a", "b"])
