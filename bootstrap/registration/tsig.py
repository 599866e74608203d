"""TSIG keys: the secret that a name server and those who may change its zones share (RFC 8945).

The file is what BIND's tsig-keygen writes, so that one file serves both sides:

    key "psph.site-a.test" {
        algorithm hmac-sha256;
        secret "...";
    };
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dns.exception
import dns.name
import dns.tsig

from bootstrap.registration.private_files import BadKeyFile, read, refuse_readable, write_new

ALGORITHMS: Final = {
    "hmac-sha224": 28,
    "hmac-sha256": 32,
    "hmac-sha384": 48,
    "hmac-sha512": 64,
}
"""With the bytes of a good secret. MD5 and SHA-1 are left out: nobody has to use them."""
SHORTEST: Final = 16
LONGEST: Final = 512
"""Bytes of a secret."""

_TOKEN = re.compile(
    r"""\s+ | /\*.*?\*/ | //[^\n]* | \#[^\n]*   # what says nothing
      | "(?P<quoted>[^"\n]*)" | (?P<mark>[{};]) | (?P<word>[^\s{};"\#/][^\s{};"]*)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class TsigKey:
    """Its repr does not show the secret; dnspython's own key does, so it is made late."""

    name: str
    secret: bytes = field(repr=False)
    algorithm: str = "hmac-sha256"

    def __post_init__(self) -> None:
        check_name(self.name)
        check_algorithm(self.algorithm)
        if not SHORTEST <= len(self.secret) <= LONGEST:
            raise ValueError(
                f"the secret of the TSIG key {self.name} has {len(self.secret)} bytes: use"
                f" {SHORTEST} to {LONGEST}"
            )

    @classmethod
    def parse(cls, name: str, secret: str, algorithm: str = "hmac-sha256") -> TsigKey:
        """With the secret in base64, as configurations have it."""
        try:
            raw = base64.b64decode(secret, validate=True)
        except ValueError:
            raise ValueError(f"the secret of the TSIG key {name[:80]} is not base64") from None
        return cls(name, raw, algorithm)

    @property
    def text(self) -> str:
        """The secret in base64."""
        return base64.b64encode(self.secret).decode("ascii")

    def for_bind(self) -> str:
        """As BIND and our key files have it."""
        return (
            f'key "{self.name}" {{\n\talgorithm {self.algorithm};\n\tsecret "{self.text}";\n}};\n'
        )

    def for_dnspython(self) -> dns.tsig.Key:
        return dns.tsig.Key(dns.name.from_text(self.name), self.secret, f"{self.algorithm}.")


def check_name(name: str) -> None:
    """ValueError when it cannot be the name of a key."""
    try:
        dns.name.from_text(name)
    except dns.exception.DNSException:
        good = False
    else:
        # More would be allowed in DNS, but has to be escaped in configuration files.
        good = bool(re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", name))
    if not good:
        raise ValueError(f"{name[:80]!r} is no name of a key: write one such as psph.example.com")


def check_algorithm(algorithm: str) -> None:
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"{algorithm[:80]!r} is no TSIG algorithm: choose one of {', '.join(ALGORITHMS)}"
        )


def make(name: str, algorithm: str = "hmac-sha256") -> TsigKey:
    """A new key."""
    check_algorithm(algorithm)
    return TsigKey(name, secrets.token_bytes(ALGORITHMS[algorithm]), algorithm)


def save(key: TsigKey, path: Path) -> None:
    """Into a new file; FileExistsError when there is one."""
    write_new(path, key.for_bind())


def load(path: Path) -> TsigKey:
    """The key of a file that only its owner can read."""
    text, mode = read(path)
    refuse_readable(path, mode)
    try:
        return parse(text)
    except ValueError as error:
        raise BadKeyFile(f"{path}: {error}") from None


def parse(text: str) -> TsigKey:
    """The one key of a file's text."""
    match list(_tokens(text)):
        case ["key", name, "{", *statements, "}", ";"] | ["key", name, "{", *statements, "}"]:
            values = _values(statements)
        case _:
            raise ValueError('is no TSIG key file: expected one key "NAME" { algorithm ...; ... };')
    for wanted in ("algorithm", "secret"):
        if wanted not in values:
            raise ValueError(f"has no {wanted} in its key")
    return TsigKey.parse(name, values["secret"], values["algorithm"].lower().removesuffix("."))


def _values(statements: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    while statements:
        match statements:
            case [("algorithm" | "secret") as name, value, ";", *statements]:
                if name in values:
                    raise ValueError(f"has {name} twice")
                values[name] = value
            case _:  # what cannot be read is not shown: it may be the secret
                raise ValueError("has something else in its key than algorithm and secret")
    return values


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError("is no TSIG key file: a quote is not closed, or the like")
        at = token.end()
        for kind in ("quoted", "mark", "word"):
            if token[kind] is not None:
                yield token[kind]
