"""TSIG (RFC 8945): good signatures, and each way in which one can be bad."""

from __future__ import annotations

import dns.message
import dns.name
import dns.rcode
import dns.tsig
import pytest

from tests.bootstrap.name_servers import KEY, TsigKey
from tests.bootstrap.server.core import NOW, ZONE, Core, at, signed


@pytest.fixture
def core():
    return Core()


def question(key=KEY, kind="A", **options):
    made = dns.message.make_query(f"news.{ZONE}", kind)
    made.use_tsig(key.dnspython, **options)
    return made


def answer_of(core, made, wire):
    (answer,) = core.handle(wire)
    return dns.message.from_wire(answer, keyring=False), answer


def test_a_signed_question_gets_a_signed_answer(core):
    made = question()
    wire = signed(made, NOW)
    (answer,) = core.handle(wire)
    with at(NOW):
        checked = dns.message.from_wire(answer, keyring=KEY.dnspython, request_mac=made.mac)
    assert checked.had_tsig
    assert checked.answer


def assert_error(core, made, wire, error, signed_answer=False):
    answer, raw = answer_of(core, made, wire)
    assert answer.rcode() == dns.rcode.NOTAUTH
    assert answer.tsig_error == error
    assert bool(answer.tsig[0].mac) == signed_answer
    assert not answer.answer
    return answer, raw


def test_an_unknown_key(core):
    made = question(TsigKey("nobody", KEY.secret))
    assert_error(core, made, signed(made, NOW), dns.rcode.BADKEY)


def test_a_known_key_with_another_algorithm(core):
    made = question(TsigKey(KEY.name, KEY.secret, "hmac-sha512"))
    assert_error(core, made, signed(made, NOW), dns.rcode.BADKEY)
    made = question(TsigKey(KEY.name, KEY.secret, "hmac-md5.sig-alg.reg.int"))
    assert_error(core, made, signed(made, NOW), dns.rcode.BADKEY)


def test_a_wrong_secret(core):
    made = question(TsigKey(KEY.name, b"guessed, but not right"))
    answer, _ = assert_error(core, made, signed(made, NOW), dns.rcode.BADSIG)
    assert answer.tsig[0].time_signed == NOW


def test_a_changed_message(core):
    made = question()
    wire = bytearray(signed(made, NOW))
    wire[13] ^= 0x20  # the case of a letter in the name
    assert_error(core, made, bytes(wire), dns.rcode.BADSIG)


@pytest.mark.parametrize("skew", [-301, 301, 100_000])
def test_a_wrong_clock_is_told_the_time(core, skew):
    made = question()
    wire = signed(made, NOW + skew)
    answer, raw = assert_error(core, made, wire, dns.rcode.BADTIME, signed_answer=True)
    assert int.from_bytes(answer.tsig[0].other, "big") == NOW
    assert answer.tsig[0].time_signed == NOW + skew
    # The client can check that it is the server who says so, by its own clock. It must not trust
    # the error before that.
    start = raw.index(answer.tsig.name.to_wire() + b"\0\xfa\0\xff", 12)
    with pytest.raises(dns.tsig.PeerBadTime):
        dns.tsig.validate(
            raw, KEY.dnspython, answer.tsig.name, answer.tsig[0], NOW + skew, made.mac, start
        )
    without_error = answer.tsig[0]
    rebuilt = dns.tsig._digest(
        raw[:10] + b"\0\0" + raw[12:start], KEY.dnspython, without_error, None, made.mac
    )
    rebuilt.verify(without_error.mac)


@pytest.mark.parametrize("skew", [-299, 0, 299])
def test_clocks_may_differ_a_little(core, skew):
    made = question()
    answer, _ = answer_of(core, made, signed(made, NOW + skew))
    assert answer.rcode() == dns.rcode.NOERROR


def test_a_client_cannot_grant_itself_more_time(core):
    made = question(fudge=60_000)
    assert_error(core, made, signed(made, NOW - 400), dns.rcode.BADTIME, signed_answer=True)
    made = question(fudge=10)
    assert_error(core, made, signed(made, NOW - 20), dns.rcode.BADTIME, signed_answer=True)


def with_mac(wire, length):
    """The message with its signature cut to a length."""
    mac_at = wire.index(dns.name.from_text("hmac-sha256.").to_wire(), 12) + 13 + 8
    whole = int.from_bytes(wire[mac_at : mac_at + 2], "big")
    size_at = wire.index(b"\0\xfa\0\xff\0\0\0\0") + 8
    size = int.from_bytes(wire[size_at : size_at + 2], "big")
    return (
        wire[:size_at]
        + (size - whole + length).to_bytes(2, "big")
        + wire[size_at + 2 : mac_at]
        + length.to_bytes(2, "big")
        + wire[mac_at + 2 : mac_at + 2 + length]
        + bytes(max(0, length - whole))
        + wire[mac_at + 2 + whole :]
    )


def test_signatures_of_another_length(core):
    made = question()
    wire = signed(made, NOW)
    assert with_mac(wire, 32) == wire
    assert_error(core, made, with_mac(wire, 16), dns.rcode.BADTRUNC)
    for length in (0, 15, 33):
        (answer,) = core.handle(with_mac(wire, length))
        assert dns.message.from_wire(answer).rcode() == dns.rcode.FORMERR


def test_a_signature_is_the_last_record_and_there_is_one(core):
    wire = signed(question(), NOW)
    header, rest = wire[:12], wire[12:]
    start = wire.index(dns.name.from_text(KEY.name).to_wire(), 12) - 12
    signature = rest[start:]
    text = b"\1x\0\0\x10\0\1\0\0\0\0\0\2\1y"
    for changed in (
        header[:10] + b"\0\2" + rest + text,
        header[:10] + b"\0\2" + rest + signature,
        header[:6] + b"\0\1" + header[8:10] + b"\0\0" + rest,
        wire.replace(b"\0\xfa\0\xff", b"\0\xfa\0\1"),
    ):
        (answer,) = core.handle(changed)
        assert dns.message.from_wire(answer).rcode() == dns.rcode.FORMERR


def test_updates_with_a_bad_signature_change_nothing(core):
    before = core.zone
    for key in (TsigKey(KEY.name, b"guessed, but not right"), TsigKey("nobody", KEY.secret)):
        update = core.update(key=key)
        update.add("x", 60, "A", "192.0.2.9")
        assert core.send(update) == dns.rcode.NOTAUTH
    update = core.update()
    update.add("x", 60, "A", "192.0.2.9")
    (late,) = core.handle(signed(update, NOW - 1000))
    assert dns.message.from_wire(late, keyring=False).rcode() == dns.rcode.NOTAUTH
    assert core.zone is before


def test_secrets_are_not_shown():
    assert "secret" not in repr(Core().settings.keys[0])
    assert KEY.secret.decode() not in repr(Core().settings)
