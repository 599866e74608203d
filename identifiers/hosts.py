"""Hosts in normal form: domain names as lower-case A-labels, IP addresses in one spelling each.

Domain names follow UTS-46 (non-transitional) with the code points and mappings of the `idna`
package. ASCII labels may hold underscores and hyphens anywhere but at the ends, because such
hosts exist (my_host.example, r3---sn-x.example). Ports and user names: authority.py.
"""

import ipaddress
import re
from functools import lru_cache
from typing import Final

import idna

from identifiers.errors import InvalidHost, shown

MAX_HOST: Final = 253
MAX_LABEL: Final = 63
# Before mapping, which may drop or join characters; no sensible name is near it.
_MAX_SPELLING: Final = 1_024

# No zone id (fe80::1%eth0), which means something on one machine only.
_BRACKETED: Final = re.compile(r"\[([0-9A-Fa-f:.]+)\]")
_ASCII_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]+(?<!-)")
_FORBIDDEN_ASCII: Final = re.compile(r"[^a-z0-9_\-\u0080-\U0010ffff]")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_JOINER: Final = re.compile("[\u200c\u200d]")


@lru_cache(maxsize=8_192)
def normalise_host(host: str) -> str:
    """The one spelling of `host`, which is already percent-decoded. IPv6 keeps its brackets."""
    if host.startswith("["):
        return _ipv6(host)
    name = _mapped(host).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    normal = ".".join([_label(label, host) for label in labels])
    if len(normal) > MAX_HOST:
        raise InvalidHost(
            f"the host has {len(normal)} characters: a domain name has at most {MAX_HOST}"
        )
    return normal


def is_address(host: str) -> bool:
    """Whether `host`, in normal form, is an IP address and not a domain name."""
    return host.startswith("[") or host.rpartition(".")[2].isdigit()


def _ipv6(host: str) -> str:
    inner = _BRACKETED.fullmatch(host)
    try:
        address = ipaddress.IPv6Address(inner[1] if inner else "")
    except ValueError:
        raise InvalidHost(
            f"{shown(host)} is not an IPv6 address: write one such as [2001:db8::1]"
        ) from None
    if mapped := address.ipv4_mapped:
        # Python 3.13 began to print these as ::ffff:192.0.2.1; the normal form is hexadecimal.
        return f"[::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}]"
    return f"[{address}]"


def _ipv4(name: str) -> str:
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        # Browsers read 127.1, 0177.0.0.1 and 0x7f.1 as addresses, others as names.
        raise InvalidHost(
            f"the host {shown(name)} ends in a number but is not an IPv4 address: "
            "write four decimal numbers such as 192.0.2.1"
        ) from None


def _mapped(host: str) -> str:
    """`host` after the UTS-46 mapping: lower case, compatible characters replaced, NFC."""
    if len(host) > _MAX_SPELLING:
        raise InvalidHost(f"the host has more than {_MAX_SPELLING:,} characters: use a shorter one")
    try:
        return idna.uts46_remap(host, std3_rules=False)
    except idna.IDNAError as error:
        raise _not_a_name(host, str(error)) from None


def _label(label: str, host: str) -> str:
    if label.startswith("xn--"):
        _check_a_label(label, host)
    elif label.isascii():
        if not _ASCII_LABEL.fullmatch(label):
            raise _not_a_name(host, f"the label {shown(label)} is not allowed")
    else:
        _check_u_label(label, host)
        label = "xn--" + label.encode("punycode").decode("ascii")
    if len(label) > MAX_LABEL:
        raise _not_a_name(host, f"a label has more than {MAX_LABEL} characters")
    return label


def _check_a_label(label: str, host: str) -> None:
    """An A-label stands for a valid U-label, and is the only one that does."""
    encoded = label.removeprefix("xn--")
    try:
        decoded = encoded.encode("ascii").decode("punycode")
        canonical = not decoded.isascii() and decoded.encode("punycode").decode("ascii") == encoded
    except UnicodeError:
        canonical = False
    if not canonical:
        raise _not_a_name(host, f"{shown(label)} does not decode to a label")
    _check_u_label(decoded, host)


def _check_u_label(label: str, host: str) -> None:
    """What UTS-46 section 4.1 asks of a label: mapped, hyphens, first character, joiners, bidi."""
    try:
        valid = (
            idna.uts46_remap(label, std3_rules=False) == label
            and not _FORBIDDEN_ASCII.search(label)
            and not label.startswith("-")
            and not label.endswith("-")
            and idna.check_initial_combiner(label)
            and idna.check_bidi(label)
            and all(idna.valid_contextj(label, found.start()) for found in _JOINER.finditer(label))
        )
    except ValueError:  # idna's own errors, and unicodedata's for what it does not know
        valid = False
    if not valid:
        raise _not_a_name(host, f"the label {shown(label)} is not allowed")


def _not_a_name(host: str, reason: str) -> InvalidHost:
    return InvalidHost(
        f"{shown(host)} is not a valid host ({reason}): "
        "write a domain name such as example.com, or an IP address"
    )
