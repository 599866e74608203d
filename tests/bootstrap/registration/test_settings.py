"""Settings that make no sense are refused with a reason."""

import pytest

from bootstrap.registration import RegistrarSettings, TsigKey
from bootstrap.registration.settings import Target

KEY = TsigKey("a", bytes(16))
GOOD = {
    "nameserver": ("127.0.0.1", 53),
    "key": KEY,
    "target": Target("psph1.site-a.test", 80),
    "zones": ("site-a.test",),
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"zones": ()}, "needs zones"),
        ({"zones": ("192.0.2.1",)}, "is an address"),
        ({"learn": ("not a name",)}, "not a valid host"),
        ({"zone_keys": (b"short",)}, "has 32 bytes"),
        ({"zone_keys": (b"\1" * 32, b"\2" * 32, b"\3" * 32)}, "at most 2 keys"),
        ({"zone_keys": (b"\1" * 32,), "retired_keys": (b"\1" * 32,)}, "at once"),
        ({"ttl": 0}, "a TTL has"),
        ({"ttl": 10**9}, "a TTL has"),
        ({"weight": 65_536}, "weight is"),
        ({"priority": -1}, "priority is"),
        ({"take_over_after": 0}, "take_over_after"),
        ({"time_limit": 0}, "time_limit"),
    ],
)
def test_what_makes_no_sense_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        RegistrarSettings(**GOOD | change)


def test_names_are_in_normal_form():
    settings = RegistrarSettings(**GOOD | {"zones": ("Site-A.test.", "site-a.TEST", "bücher.test")})
    assert settings.zones == ("site-a.test", "xn--bcher-kva.test")
    assert str(Target("PSPH.example.", 80)) == "psph.example:80"


@pytest.mark.parametrize("wrong", [("192.0.2.1", 80), ("[::1]", 80), ("a.test", 0), ("", 1)])
def test_a_target_is_a_name_and_a_port(wrong):
    with pytest.raises(ValueError, match=r"is an address|is no port|not a valid host"):
        Target(*wrong)


def test_a_pause_is_shorter_than_either_ttl():
    settings = RegistrarSettings(**GOOD | {"ttl": 100})
    assert settings.pause(100) == 40
    assert settings.pause(10) == 4
    assert settings.pause(100_000) == 40
    assert RegistrarSettings(**GOOD | {"ttl": 86_400}).pause(86_400) == 900


def test_the_secret_is_not_shown():
    key = TsigKey("a", b"a secret of some length")
    assert "secret of" not in repr(RegistrarSettings(**GOOD | {"key": key}))
