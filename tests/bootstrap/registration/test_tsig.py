"""TSIG keys and their files, which BIND reads and writes, too."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.registration import tsig
from bootstrap.registration.private_files import BadKeyFile
from bootstrap.registration.tsig import ALGORITHMS, TsigKey

SLASHES = b"\xff" * 33
"""Its base64 is nothing but slashes, which begin a comment elsewhere."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_file_keeps_the_key(tmp_path, algorithm):
    path = tmp_path / "tsig.key"
    key = tsig.make("psph.site-a.test", algorithm)
    assert len(key.secret) == ALGORITHMS[algorithm]
    tsig.save(key, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert tsig.load(path) == key
    assert [each.name for each in tmp_path.iterdir()] == ["tsig.key"]


def test_no_key_is_overwritten(tmp_path):
    path = tmp_path / "tsig.key"
    first = tsig.make("one")
    tsig.save(first, path)
    with pytest.raises(FileExistsError):
        tsig.save(tsig.make("two"), path)
    assert tsig.load(path) == first


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_secret_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "tsig.key"
    tsig.save(tsig.make("one"), path)
    path.chmod(mode)
    with pytest.raises(BadKeyFile, match=rf"others can read this secret \(mode {mode:04o}\)"):
        tsig.load(path)


def _tool(name):
    return shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


def test_bind_reads_our_file_and_we_read_its(tmp_path):
    path = tmp_path / "tsig.key"
    tsig.save(TsigKey("psph.site-a.test", SLASHES, "hmac-sha512"), path)
    subprocess.run([_tool("named-checkconf"), path], check=True)
    made = subprocess.run(
        [_tool("tsig-keygen"), "-a", "hmac-sha384", "theirs"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    key = tsig.parse(made)
    assert (key.name, key.algorithm) == ("theirs", "hmac-sha384")
    assert key.text in made


def test_other_spellings_of_a_file():
    key = TsigKey("a.b", SLASHES)
    text = f"""
        // made by hand; /* for
        # one and all
        key a.b. {{ /* key "x" {{
            }} */ secret "{key.text}"; algorithm HMAC-SHA256.; }}"""
    assert tsig.parse(text) == TsigKey("a.b.", SLASHES)
    assert tsig.parse(f'key a.b{{algorithm hmac-sha256;secret "{key.text}";}};') == key


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no TSIG key file"),
        ("key {", "is no TSIG key file"),
        ('key "a" { algorithm hmac-sha256; };', "has no secret"),
        ('key "a" { secret "AAAA"; };', "has no algorithm"),
        ('key "a" { secret "AAAA"; secret "AAAA"; };', "has secret twice"),
        ('key "a" { algorithm hmac-md5; secret "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"; };', "hmac-md5"),
        ('key "a" { algorithm hmac-sha256; secret "!"; };', "is not base64"),
        ('key "a" { algorithm hmac-sha256; secret "AAAA"; };', "has 3 bytes: use 16"),
        ('key "a b" { algorithm hmac-sha256; secret "AAAA"; };', "is no name of a key"),
        ('key "a" { algorithm hmac-sha256; secret "AAAA; };', "a quote is not closed"),
        ('key "a" { server 10.0.0.1; };', "something else in its key"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    path = tmp_path / "tsig.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadKeyFile, match=said) as caught:
        tsig.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "AAAA" not in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(BadKeyFile, match="No such file"):
        tsig.load(tmp_path / "missing")
    with pytest.raises(BadKeyFile, match="directory"):
        tsig.load(tmp_path)
    large = tmp_path / "large"
    large.write_bytes(b" " * (1 << 20))
    large.chmod(0o600)
    with pytest.raises(BadKeyFile, match="larger than"):
        tsig.load(large)
    large.write_bytes(b"\xff")
    with pytest.raises(BadKeyFile, match="no text"):
        tsig.load(large)
    with pytest.raises(BadKeyFile, match="cannot be written"):
        tsig.save(tsig.make("a"), tmp_path / "missing" / "tsig.key")


_PIECES = ["key", '"', "{", "}", ";", "algorithm", "secret", "a", "//", "/*", "*/", "#", "\n", " "]


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(_PIECES)).map("".join)))
def test_any_text_is_a_key_or_refused(text):
    try:
        key = tsig.parse(text)
    except ValueError:
        return
    assert tsig.parse(key.for_bind()) == key


@given(st.binary(min_size=16, max_size=64), st.sampled_from(sorted(ALGORITHMS)))
def test_every_key_survives_its_text(secret, algorithm):
    key = TsigKey("psph-1.site_a.test", secret, algorithm)
    assert tsig.parse(key.for_bind()) == key
    assert TsigKey.parse(key.name, key.text, algorithm) == key


def test_a_secret_is_not_shown():
    key = TsigKey("a", b"a secret of some length")
    assert key.text not in repr(key)
    assert "secret of" not in f"{key} {key!r}"
