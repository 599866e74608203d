"""Signatures: those of the standard, checked against known values, refused when anything is off."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.signatures import ALGORITHMS, signature, verified


def test_a_known_value():
    # RFC 4231, test case 2.
    assert signature(b"Jefe", b"what do ya want for nothing?") == (
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_is_that_of_its_name(algorithm):
    expected = hmac.new(b"k", b"body", getattr(hashlib, algorithm)).hexdigest()
    assert signature(b"k", b"body", algorithm) == f"{algorithm}={expected}"
    assert verified(f"{algorithm}={expected.upper()}", b"k", b"body") is True


@given(st.text(), st.binary())
def test_no_other_header_passes(header, body):
    assert not verified(header, b"secret", body)


def test_a_changed_body_or_secret_is_found():
    header = signature(b"secret", b"body")
    assert not verified(header, b"secret", b"bodY")
    assert not verified(header, b"Secret", b"body")
