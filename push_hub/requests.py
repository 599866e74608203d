"""What strangers ask of the hub, read from the forms they send.

One reader for three dialects. WebSub and PubSubHubbub 0.4 cannot be told apart and need not be;
a form with `hub.verify` comes from a 0.3 client, who expects its token echoed, may ask to be
verified before the answer, and knows no signature but sha1. Two parameters are our own and
optional: `hub.entries=new` (leave out entries already delivered) and `hub.signature=ALGORITHM`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from identifiers import InvalidTopic, Topic, identify
from push_hub.callbacks import check_callback
from push_hub.errors import BadRequest
from push_hub.signatures import ALGORITHMS

MAX_SECRET_BYTES: Final = 199
MAX_VERIFY_TOKEN_BYTES: Final = 1_024
MAX_TOPICS_PER_PING: Final = 100
MAX_FIELDS: Final = 250
# Longer numbers are clamped by the bounds all the same, and int() takes time for long ones.
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """A wish to subscribe or unsubscribe, in good form; nobody has confirmed it yet."""

    mode: str
    topic: Topic
    callback: str
    secret: bytes | None = None
    lease_seconds: int | None = None
    verify_token: str | None = None
    synchronous: bool = False
    new_entries_only: bool = False
    signature: str | None = None

    def __repr__(self) -> str:
        """Without the secret and the token, which must not end up in a log."""
        return f"SubscriptionRequest({self.mode} {self.topic.spelling} for {self.callback})"


@dataclass(frozen=True, slots=True)
class Ping:
    """A publisher says that these topics changed."""

    topics: tuple[Topic, ...]


Form = Mapping[str, Sequence[str]]
Named = Callable[[str], Topic]


def read_form(body: bytes) -> Form:
    """The fields of an application/x-www-form-urlencoded body."""
    try:
        return parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except UnicodeDecodeError:
        raise BadRequest("the form is not UTF-8, percent-encoded: encode it so") from None
    except ValueError:
        raise BadRequest(f"the form has more than {MAX_FIELDS} fields: send fewer") from None


def read_request(form: Form, named: Named = identify) -> SubscriptionRequest | Ping:
    """What the form asks for, or a BadRequest that says what to change; `named` knows topics."""
    mode = _one(form, "hub.mode").lower()
    if mode == "publish":
        return _ping(form, named)
    if mode in ("subscribe", "unsubscribe"):
        return _subscription(form, mode, named)
    raise BadRequest("hub.mode must be subscribe, unsubscribe or publish")


def _ping(form: Form, named: Named) -> Ping:
    spellings = [*form.get("hub.url", ()), *form.get("hub.topic", ()), *form.get("hub.url[]", ())]
    if not any(spellings):
        raise BadRequest("hub.url is missing: name the topic that changed (or in hub.topic)")
    if len(spellings) > MAX_TOPICS_PER_PING:
        raise BadRequest(f"more than {MAX_TOPICS_PER_PING} topics in one ping: send several pings")
    found = [web_topic(each, "hub.url", named) for each in spellings if each]
    return Ping(tuple({topic.canonical: topic for topic in found}.values()))


def _subscription(form: Form, mode: str, named: Named) -> SubscriptionRequest:
    callback = check_callback(_one(form, "hub.callback"))
    spelling = _one(form, "hub.topic")
    verify = [word for value in form.get("hub.verify", ()) for word in value.lower().split(",")]
    if verify and "#" in spelling:
        raise BadRequest("hub.topic has a fragment: leave it out")
    if verify and not {"sync", "async"} & set(verify):
        raise BadRequest("hub.verify must be sync or async, or be left out")
    known = [word for word in verify if word in ("sync", "async")]
    signature = _optional(form, "hub.signature") or ("sha1" if verify else None)
    if signature is not None and signature not in ALGORITHMS:
        raise BadRequest(f"hub.signature must be one of {', '.join(ALGORITHMS)}")
    return SubscriptionRequest(
        mode,
        web_topic(spelling, "hub.topic", named),
        callback,
        secret=_secret(form) if mode == "subscribe" else None,
        lease_seconds=_lease(form) if mode == "subscribe" else None,
        verify_token=_verify_token(form),
        synchronous=known[:1] == ["sync"],
        new_entries_only=_optional(form, "hub.entries") == "new",
        signature=signature,
    )


def _secret(form: Form) -> bytes | None:
    text = _optional(form, "hub.secret")
    if not text:
        return None
    secret = text.encode(errors="surrogatepass")
    if len(secret) > MAX_SECRET_BYTES:
        raise BadRequest("hub.secret must be shorter than 200 bytes")
    return secret


def _lease(form: Form) -> int | None:
    text = _optional(form, "hub.lease_seconds")
    # PubSubHubbub 0.3 lets the parameter be empty, and some of its clients send 0.
    if not text or (text == "0" and "hub.verify" in form):
        return None
    if not _NUMBER.fullmatch(text) or int(text) == 0:
        raise BadRequest("hub.lease_seconds must be a positive whole number of seconds")
    return int(text)


def _verify_token(form: Form) -> str | None:
    token = _optional(form, "hub.verify_token")
    if token is not None and len(token.encode()) > MAX_VERIFY_TOKEN_BYTES:
        raise BadRequest(f"hub.verify_token is longer than {MAX_VERIFY_TOKEN_BYTES} bytes")
    return token


def web_topic(spelling: str, field: str, named: Named = identify) -> Topic:
    """The topic that a field names, or a BadRequest that says what is wrong with it."""
    try:
        topic = named(spelling)
    except InvalidTopic as refusal:
        raise BadRequest(f"{field}: {refusal}") from None
    if not topic.canonical.startswith(("http:", "https:")):
        raise BadRequest(f"{field} must be an http or https URL")
    return topic


def _one(form: Form, field: str) -> str:
    value = _optional(form, field)
    if not value:
        raise BadRequest(f"{field} is missing")
    return value


def _optional(form: Form, field: str) -> str | None:
    values = form.get(field, ())
    if len(set(values)) > 1:
        raise BadRequest(f"{field} is given more than once, with different values: send one")
    return values[0] if values else None
