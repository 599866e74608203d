"""Forms from strangers: what is read from them, and what is refused with which words."""

import contextlib
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.errors import BadRequest
from push_hub.requests import Ping, SubscriptionRequest, read_form, read_request

SUBSCRIBE = {
    "hub.mode": "subscribe",
    "hub.topic": "http://Example.com/feed",
    "hub.callback": "https://reader.example/cb?id=1",
}


def read(*pairs, **changes):
    fields = {**SUBSCRIBE, **{f"hub.{name}": value for name, value in changes.items()}}
    fields = {name: value for name, value in fields.items() if value is not None}
    return read_request(read_form(urlencode([*fields.items(), *pairs]).encode()))


def test_a_subscription_keeps_the_spellings_of_the_subscriber():
    request = read()
    assert request.topic.spelling == "http://Example.com/feed"
    assert request.callback == "https://reader.example/cb?id=1"
    assert (request.secret, request.lease_seconds, request.synchronous) == (None, None, False)


def test_everything_a_subscriber_may_add():
    request = read(secret="s3crét", lease_seconds="3600", entries="new", signature="sha512")
    assert request.secret == "s3crét".encode()
    assert request.lease_seconds == 3600
    assert request.new_entries_only
    assert request.signature == "sha512"


def test_unknown_parameters_are_ignored():
    assert read(("hub.colour", "green"), ("page", "2")) == read()


def test_a_secret_is_counted_in_bytes():
    assert read(secret="x" * 199).secret == b"x" * 199
    with pytest.raises(BadRequest, match="200 bytes"):
        read(secret="é" * 100)


@pytest.mark.parametrize("lease", ["-1", "0", "1.5", "ten", "٣", "1" * 30])
def test_a_lease_is_a_positive_whole_number(lease):
    with pytest.raises(BadRequest, match=r"hub\.lease_seconds"):
        read(lease_seconds=lease)


def test_secret_and_lease_mean_nothing_on_unsubscribe():
    request = read(mode="unsubscribe", lease_seconds="nonsense", secret="x" * 500)
    assert (request.secret, request.lease_seconds) == (None, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": None}, "hub.mode is missing"),
        ({"mode": "dance"}, "hub.mode must be"),
        ({"topic": None}, "hub.topic is missing"),
        ({"topic": "feed"}, "hub.topic"),
        ({"topic": "xmpp:a@example.com"}, "http or https"),
        ({"callback": None}, "hub.callback is missing"),
        ({"callback": "/cb"}, "absolute"),
        ({"callback": "ftp://h/cb"}, "absolute"),
        ({"callback": "http://user:pw@h/cb"}, "user name"),
        ({"callback": "http://h/c b"}, "white space"),
        ({"callback": "http://h:0/"}, "port 0"),
        ({"callback": "http://h:99999/"}, "host and port"),
        ({"callback": "http://h/#top"}, "fragment"),
        ({"callback": "http://h/" + "x" * 2048}, "longer than"),
        ({"callback": "http://[::1/"}, "no valid URL"),
        ({"signature": "md5"}, "hub.signature"),
    ],
)
def test_a_refusal_names_the_parameter(changes, words):
    with pytest.raises(BadRequest, match=words.replace(".", r"\.")):
        read(**changes)


def test_the_same_parameter_twice_must_say_the_same():
    assert read(("hub.topic", SUBSCRIBE["hub.topic"])) == read()
    with pytest.raises(BadRequest, match="more than once"):
        read(("hub.topic", "http://example.com/other"))


def test_a_request_is_shown_without_its_secret():
    assert "geheim" not in repr(read(secret="geheim", verify_token="geheim"))


class TestPubSubHubbub03:
    """Forms with hub.verify."""

    def test_sync_is_verified_before_the_answer(self):
        assert read(verify="sync").synchronous
        assert not read(verify="async").synchronous
        assert not read(verify="async,sync").synchronous
        assert read(verify="sync,async").synchronous

    def test_the_token_is_kept(self):
        assert read(verify="async", verify_token="t&k").verify_token == "t&k"

    def test_the_signature_is_the_only_one_such_a_client_knows(self):
        assert read(verify="async").signature == "sha1"
        assert read().signature is None

    def test_an_empty_lease_means_the_default(self):
        assert read(verify="async", lease_seconds="").lease_seconds is None
        assert read(verify="async", lease_seconds="0").lease_seconds is None

    def test_fragments_are_refused(self):
        with pytest.raises(BadRequest, match="fragment"):
            read(verify="async", topic="http://example.com/feed#top")
        assert read(topic="http://example.com/feed#top").topic.spelling.endswith("#top")

    def test_another_way_to_verify_is_refused(self):
        with pytest.raises(BadRequest, match="sync or async"):
            read(verify="carrier-pigeon")


class TestPings:
    @pytest.mark.parametrize("field", ["hub.url", "hub.topic", "hub.url[]"])
    def test_either_field_names_topics(self, field):
        form = urlencode(
            [("hub.mode", "publish"), (field, "http://a.example/1"), (field, "http://a.example/2")]
        )
        found = read_request(read_form(form.encode()))
        assert isinstance(found, Ping)
        assert [topic.spelling for topic in found.topics] == [
            "http://a.example/1",
            "http://a.example/2",
        ]

    def test_spellings_of_one_topic_are_one(self):
        form = b"hub.mode=publish&hub.url=http://a.example/&hub.topic=HTTP://A.example"
        assert len(read_request(read_form(form)).topics) == 1

    def test_a_ping_needs_a_topic_and_not_too_many(self):
        with pytest.raises(BadRequest, match=r"hub\.url is missing"):
            read_request(read_form(b"hub.mode=publish"))
        many = "hub.mode=publish" + "".join(f"&hub.url=http://a.example/{n}" for n in range(101))
        with pytest.raises(BadRequest, match="more than 100"):
            read_request(read_form(many.encode()))


def test_a_form_that_is_not_utf8_or_too_long_is_refused():
    with pytest.raises(BadRequest, match="UTF-8"):
        read_form(b"hub.mode=\xff")
    with pytest.raises(BadRequest, match="UTF-8"):
        read_form(b"hub.mode=%ff")
    with pytest.raises(BadRequest, match="fields"):
        read_form(b"&".join([b"a=1"] * 300))


FIELDS = ["mode", "topic", "callback", "secret", "lease_seconds", "verify", "verify_token", "url"]


@given(st.dictionaries(st.sampled_from(FIELDS), st.text()))
def test_any_form_is_read_or_refused(fields):
    form = {**SUBSCRIBE, **{f"hub.{name}": value for name, value in fields.items()}}
    with contextlib.suppress(BadRequest):
        read_request(read_form(urlencode(form, errors="surrogatepass").encode()))


@given(st.binary())
def test_any_body_is_read_or_refused(body):
    try:
        found = read_request(read_form(body))
    except BadRequest:
        return
    assert isinstance(found, SubscriptionRequest | Ping)
