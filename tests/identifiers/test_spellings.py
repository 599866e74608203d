"""Spellings of one web topic have one canonical form, and so one pair of ids."""

from hypothesis import given, settings
from hypothesis import strategies as st

from identifiers import canonical_topic, identify

Spelled = tuple[str, str]  # how something is written, and what it is in canonical form


def escapes(character: str) -> list[str]:
    upper = "".join(f"%{byte:02X}" for byte in character.encode())
    return [upper, upper.lower()]


def unreserved(character: str) -> list[Spelled]:
    return [(written, character) for written in [character, *escapes(character)]]


def never_plain(character: str) -> list[Spelled]:
    return [(written, escapes(character)[0]) for written in [character, *escapes(character)]]


def reserved(character: str) -> list[Spelled]:
    """Escaped and not, a reserved character makes two topics, not two spellings of one."""
    escaped = [(written, escapes(character)[0]) for written in escapes(character)]
    return [(character, character), *escaped]


CHARACTERS = [
    *(spelled for character in "aZ0-_~" for spelled in unreserved(character)),
    *(spelled for character in 'é日📰 "<>^`{|}' for spelled in never_plain(character)),
    *(spelled for character in "!$&'()*+,;=:@" for spelled in reserved(character)),
    *((written, written.upper()) for written in ("%2F", "%2f", "%23", "%3f", "%00", "%ff")),
]
HOSTS = ["example.com", "www.example.co.uk", "localhost", "a_b.site-a.test"]
DETOURS = ["", "", "", "./", "%2e/", "x/../", "x/y/../%2E%2e/", "x/./.%2e/"]


@st.composite
def cased(draw: st.DrawFn, text: str) -> str:
    return "".join(draw(st.sampled_from([c.lower(), c.upper()])) for c in text)


@st.composite
def texts(draw: st.DrawFn) -> Spelled:
    pieces = draw(st.lists(st.sampled_from(CHARACTERS), max_size=6))
    return "".join(written for written, _ in pieces), "".join(form for _, form in pieces)


@st.composite
def ports(draw: st.DrawFn, default: int) -> Spelled:
    number = draw(st.sampled_from([None, default]) | st.integers(1_024, 65_535))
    if number is None:
        return draw(st.sampled_from(["", ":"])), ""
    zeros = draw(st.sampled_from(["", "0", "000"]))
    return f":{zeros}{number}", "" if number == default else f":{number}"


@st.composite
def web_topics(draw: st.DrawFn) -> Spelled:
    scheme, default = draw(st.sampled_from([("http", 80), ("https", 443)]))
    host = draw(st.sampled_from(HOSTS))
    port, port_form = draw(ports(default))
    path, path_form = "", ""
    for segment, segment_form in draw(st.lists(texts(), max_size=4)):
        path += "/" + draw(st.sampled_from(DETOURS)) + segment
        path_form += "/" + segment_form
    query, query_form = draw(st.just(("", "")) | texts().map(lambda t: ("?" + t[0], "?" + t[1])))
    site = draw(cased(host)) + draw(st.sampled_from(["", "."])) + port
    # The fragment also keeps the topic from ending in a space, which is refused.
    fragment = draw(st.sampled_from(["#", "#top", "#%zz"]))
    return (
        f"{draw(cased(scheme))}://{site}{path}{query}{fragment}",
        f"{scheme}://{host}{port_form}{path_form or '/'}{query_form}",
    )


@settings(max_examples=300, deadline=None)
@given(web_topics())
def test_every_spelling_has_the_canonical_form_it_was_made_from(topic: Spelled) -> None:
    written, canonical = topic
    assert canonical_topic(written) == canonical


# Few enough pieces that two topics are often the same.
FEW_PIECES = st.lists(st.sampled_from(["a", "%61", "A", "/", "/./", "?", "%2F", "%2f"]), max_size=2)
FEW_HOSTS = st.sampled_from(["h", "H.", "h.com", "x.h.com"])
FEW_TOPICS = st.builds(
    lambda host, pieces: f"http://{host}/{''.join(pieces)}", FEW_HOSTS, FEW_PIECES
)


@settings(max_examples=500, deadline=None)
@given(FEW_TOPICS, FEW_TOPICS)
def test_equal_ids_mean_equal_canonical_forms(one: str, other: str) -> None:
    a, b = identify(one), identify(other)
    assert (a.canonical == b.canonical) == ((a.sid, a.rid) == (b.sid, b.rid))
    assert (a.zone == b.zone) == (a.sid == b.sid)
