"""Which answers may come from a cache, and which validators are kept of an answer."""

import pytest
from multidict import CIMultiDict

from push_hub.freshness import kept_validators, may_be_cached

NOON = "Wed, 18 Nov 2026 12:00:00 GMT"
SECOND_BEFORE = "Wed, 18 Nov 2026 11:59:59 GMT"
MINUTE_BEFORE = "Wed, 18 Nov 2026 11:59:00 GMT"
OF_NGINX = '"6afd9340-5"'
"""The seconds since 1970 at noon, and the size."""


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, True),
        ({"ETag": 'W/"a"'}, True),
        ({"ETag": "odd"}, True),
        ({"ETag": '"a"'}, False),
        ({"ETag": '"a"', "Age": "0"}, True),
        ({"etag": '"a"', "age": "7"}, True),
        ({"ETag": '"a"', "Cache-Control": "public, Max-Age=3"}, True),
        ({"ETag": '"a"', "Cache-Control": "max-age=0, s-maxage=60"}, True),
        ({"ETag": '"a"', "Cache-Control": "max-age=60, s-maxage=0"}, False),
        ({"ETag": '"a"', "Cache-Control": "max-age=0"}, False),
        ({"ETag": '"a"', "Cache-Control": "max-age=many"}, True),
        ({"ETag": '"a"', "Cache-Control": "no-cache, max-age=60"}, False),
        ({"ETag": '"a"', "Cache-Control": "no-store"}, False),
        ({"ETag": 'W/"a"', "Cache-Control": "no-store"}, True),
        ({"ETag": '"a"', "Date": SECOND_BEFORE, "Expires": NOON}, True),
        ({"ETag": '"a"', "Date": NOON, "Expires": NOON}, False),
        ({"ETag": '"a"', "Date": NOON, "Expires": "0"}, False),
        ({"ETag": '"a"', "Date": NOON, "Expires": "0", "Last-Modified": NOON}, False),
        ({"ETag": '"a"', "Expires": NOON}, True),
        ({"ETag": '"a"', "Last-Modified": NOON}, True),
        ({"ETag": '"a"', "Last-Modified": NOON, "Cache-Control": "no-cache"}, False),
    ],
)
def test_an_answer_may_come_from_a_cache_unless_it_says_that_it_does_not(headers, expected):
    assert may_be_cached(CIMultiDict(headers)) is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (None, None)),
        ({"ETag": '"a"', "Last-Modified": MINUTE_BEFORE, "Date": NOON}, ('"a"', MINUTE_BEFORE)),
        ({"ETag": '"a"', "Last-Modified": SECOND_BEFORE, "Date": NOON}, ('"a"', None)),
        ({"ETag": '"a"', "Last-Modified": NOON, "Date": NOON}, ('"a"', None)),
        ({"Last-Modified": NOON, "Date": MINUTE_BEFORE}, (None, None)),
        ({"Last-Modified": NOON}, (None, NOON)),
        ({"Last-Modified": "then", "Date": NOON}, (None, "then")),
        ({"ETag": OF_NGINX, "Last-Modified": NOON, "Date": NOON}, (None, None)),
        ({"ETag": f"W/{OF_NGINX}", "Last-Modified": NOON, "Date": NOON}, (None, None)),
        ({"ETag": OF_NGINX, "Last-Modified": NOON, "Date": "Wed, 18 Nov 2026 12:05:00 GMT"},
         (OF_NGINX, NOON)),
        ({"ETag": '"' + "x" * 1_000 + '"'}, (None, None)),
        ({"ETag": '"\xfc"'}, (None, None)),
    ],
)  # fmt: skip
def test_a_date_of_the_second_that_is_not_over_is_no_validator(headers, expected):
    assert kept_validators(CIMultiDict(headers)) == expected
