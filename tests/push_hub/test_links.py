"""Link headers: ours can be read by anybody's reader, anybody's by ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.links import Link, link_header, parse_link_headers

BASE = "http://example.com/dir/feed"


def hrefs(rel, *headers):
    return [link.href for link in parse_link_headers(headers, BASE) if rel in link.rels]


def test_our_own_header_has_both_links_and_the_topic_as_spelled():
    header = link_header("https://hub.example/hub", "HTTP://Example.com/a?x=[1]&y='%7E'#f")
    assert header == (
        '<https://hub.example/hub>; rel="hub", <HTTP://Example.com/a?x=[1]&y=\'%7E\'#f>; rel="self"'
    )
    assert hrefs("self", header) == ["HTTP://Example.com/a?x=[1]&y='%7E'#f"]


@given(st.text())
def test_no_topic_can_break_the_header(text):
    header = link_header("http://hub/", f"http://a.example/{text}")
    assert header.isascii()
    assert header.isprintable()
    found = parse_link_headers([header], BASE)
    assert [link.rels for link in found] == [{"hub"}, {"self"}]


@pytest.mark.parametrize(
    ("headers", "hubs"),
    [
        (['<http://h/>; rel="hub"'], ["http://h/"]),
        (["<http://h/>;rel=hub"], ["http://h/"]),
        (["<http://h/>; REL=Hub ; title=x"], ["http://h/"]),
        (['<http://h/>; rel="self hub"'], ["http://h/"]),
        (['<http://a,b/>; title="x, y; rel=z\\""; rel=hub, </c>; rel=hub'],
         ["http://a,b/", "http://example.com/c"]),
        (["<http://a/>; rel=hub", "<http://b/>; rel=hub"], ["http://a/", "http://b/"]),
        (['<http://h/>; rel="hub"; anchor="http://elsewhere/"'], []),
        (["<javascript:x>; rel=hub", "nonsense", "<http://h/"], []),
        (["<http://h/>; rel=hub garbage, <http://i/>; rel=hub"], ["http://h/"]),
    ],
)  # fmt: skip
def test_headers_of_others(headers, hubs):
    assert hrefs("hub", *headers) == hubs


def test_a_type_is_kept():
    (link,) = parse_link_headers(['<x>; rel=alternate; type="Application/Atom+XML"'], BASE)
    assert link == Link(
        "http://example.com/dir/x", frozenset({"alternate"}), "application/atom+xml"
    )


@given(st.lists(st.text(alphabet='<>;,="\\ relhubxy/:')))
def test_any_header_is_read(headers):
    parse_link_headers(headers, BASE)
