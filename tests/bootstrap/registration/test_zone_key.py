"""Zone keys and their files, which openssl reads, too."""

import base64
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.registration import zone_key
from bootstrap.registration.private_files import BadKeyFile


def test_a_file_keeps_the_key(tmp_path):
    path = tmp_path / "zone.key"
    made = zone_key.make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    loaded = zone_key.load(path)
    assert loaded.public == made.public
    assert base64.b64decode(loaded.text) == made.public
    signature = loaded.private.sign(b"something")
    made.private.public_key().verify(signature, b"something")
    with pytest.raises(FileExistsError):
        zone_key.make(path)
    assert zone_key.load(path).public == made.public


def test_openssl_reads_it(tmp_path):
    path = tmp_path / "zone.key"
    made = zone_key.make(path)
    openssl = shutil.which("openssl")
    assert openssl is not None
    command = [openssl, "pkey", "-in", path, "-pubout"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown == made.public_pem()


def test_the_public_half_alone(tmp_path):
    made = zone_key.make(tmp_path / "zone.key")
    public = tmp_path / "zone.pub"
    public.write_text(made.public_pem())
    public.chmod(0o644)
    loaded = zone_key.load(public)
    assert loaded.public == made.public
    assert loaded.private is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_private_key_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "zone.key"
    zone_key.make(path)
    path.chmod(mode)
    with pytest.raises(BadKeyFile, match="others can read this secret"):
        zone_key.load(path)


def _pem(key, protection):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_pem(X25519PrivateKey.generate(), NoEncryption()), "another kind than Ed25519"),
        (
            X25519PrivateKey.generate()
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            .decode(),
            "another kind than Ed25519",
        ),
        (
            _pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"x")),
            "protected by a passphrase",
        ),
        ("-----BEGIN PRIVATE KEY-----\n", "no private key that can be read"),
        ("", "is no key file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    path = tmp_path / "zone.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(BadKeyFile, match=said) as caught:
        zone_key.load(path)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=300), st.text("-BEGINPRVATKUL C\n=", max_size=80)))
def test_any_file_is_a_key_or_refused(tmp_path, content):
    path = tmp_path / "any"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    with pytest.raises(BadKeyFile):
        zone_key.load(path)


def test_public_keys_as_the_txt_record_has_them():
    assert zone_key.parse_public(base64.b64encode(b"\1" * 32).decode()) == b"\1" * 32
    for wrong in ("", "AAAA", "!" * 44, base64.b64encode(b"\1" * 32).decode() + "\n", "ä" * 44):
        with pytest.raises(ValueError, match="is no zone key"):
            zone_key.parse_public(wrong)


def test_a_private_key_is_not_shown(tmp_path):
    made = zone_key.make(tmp_path / "zone.key")
    assert "private" not in repr(made)
