"""Ports stay the same in a directory, and a port that is taken is said to be."""

from __future__ import annotations

import json
import socket

import pytest

from demo import ports
from psph.errors import PsphError


def test_ports_are_chosen_once(tmp_path):
    chosen = ports.keep(tmp_path, ["a", "b", "c"])
    assert len(set(chosen.values())) == 3
    assert all(port in ports.RANGE for port in chosen.values())
    assert ports.keep(tmp_path, ["c", "b", "a"]) == chosen


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_named(tmp_path, kind):
    chosen = ports.keep(tmp_path, ["dns"])
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", chosen["dns"]))
        if kind is socket.SOCK_STREAM:
            other.listen()
        with pytest.raises(PsphError, match=f"port {chosen['dns']}, which dns had .*in use"):
            ports.keep(tmp_path, ["dns"])


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}', "null"])
def test_a_file_that_is_none_of_ours_is_said_to_be(tmp_path, text):
    (tmp_path / ports.NAME).write_text(text)
    with pytest.raises(PsphError, match="choose another --data"):
        ports.keep(tmp_path, ["dns"])


def test_a_taken_port_is_not_chosen(tmp_path, monkeypatch):
    free = ports.keep(tmp_path, ["a", "b"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", free["a"]))
        monkeypatch.setattr(ports, "RANGE", range(free["a"], free["a"] + 1))
        (tmp_path / ports.NAME).unlink()
        with pytest.raises(PsphError, match="no 1 free ports"):
            ports.keep(tmp_path, ["a"])
    assert json.loads(json.dumps(ports.keep(tmp_path, ["a"]))) == {"a": free["a"]}
