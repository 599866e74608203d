"""The zone's Ed25519 key in a file: PKCS #8 in PEM, which openssl reads, too.

The public half alone (BEGIN PUBLIC KEY) serves where records are written and nothing is signed.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from bootstrap.registration.private_files import BadKeyFile, read, refuse_readable, write_new


@dataclass(frozen=True, slots=True)
class ZoneKey:
    """A zone's key; `private` is absent where only the public half is known."""

    public: bytes
    private: Ed25519PrivateKey | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The public key as the TXT record has it."""
        return base64.b64encode(self.public).decode("ascii")

    def public_pem(self) -> str:
        """The public half as a file of its own."""
        key = Ed25519PublicKey.from_public_bytes(self.public)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def make(path: Path) -> ZoneKey:
    """A new key in a new file; FileExistsError when there is one."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_new(path, pem.decode("ascii"))
    return _of(private)


def load(path: Path) -> ZoneKey:
    """The key of a file, whichever half it has; a private one must be its owner's alone."""
    text, mode = read(path)
    if "PRIVATE KEY" in text:
        refuse_readable(path, mode)
        return _of(_private(path, text))
    try:
        public = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise BadKeyFile(
            f"{path}: is no key file: expected PEM, such as psph zone-key writes"
        ) from None
    if not isinstance(public, Ed25519PublicKey):
        raise BadKeyFile(f"{path}: holds a key of another kind than Ed25519")
    return ZoneKey(public.public_bytes_raw())


def parse_public(text: str) -> bytes:
    """A public key as the TXT record has it."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != 32 or base64.b64encode(key).decode() != text:
        raise ValueError(f"{text[:60]!r} is no zone key: write 32 bytes in base64, as TXT has them")
    return key


def _private(path: Path, text: str) -> Ed25519PrivateKey:
    try:
        private = load_pem_private_key(text.encode(), None)
    except TypeError:
        raise BadKeyFile(
            f"{path}: is protected by a passphrase, which nobody can enter at a start: use a"
            " file without"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadKeyFile(f"{path}: holds no private key that can be read") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise BadKeyFile(f"{path}: holds a key of another kind than Ed25519")
    return private


def _of(private: Ed25519PrivateKey) -> ZoneKey:
    return ZoneKey(private.public_key().public_bytes_raw(), private)
