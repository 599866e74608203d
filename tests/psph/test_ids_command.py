"""`psph ids` on the command line."""

import json
from importlib.resources import files

import pytest
from click.testing import CliRunner, Result

import identifiers
from psph.commands.ids import ids


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(ids, arguments, input=stdin)


def test_prints_a_list_in_the_order_of_the_arguments() -> None:
    result = run("HTTP://Example.com:80/feed", "http://127.0.0.1/")
    assert result.exit_code == 0
    assert result.stderr == ""
    first, second = json.loads(result.stdout)
    assert list(first) == ["topic", "canonical", "zone", "sid", "rid", "channel"]
    assert first["topic"] == "HTTP://Example.com:80/feed"
    assert first["canonical"] == "http://example.com/feed"
    assert first["zone"] == "example.com"
    assert second["channel"] is None


def test_agrees_with_the_vectors() -> None:
    cases = json.loads((files(identifiers) / "vectors.json").read_text("ascii"))["topics"]
    result = run("--", *(case["input"] for case in cases))
    assert result.exit_code == 0
    for row, case in zip(json.loads(result.stdout), cases, strict=True):
        assert row["topic"] == case["input"]
        for key in ("canonical", "zone", "sid", "rid", "channel"):
            assert row[key] == case[key]


def test_reads_topics_from_standard_input() -> None:
    result = run("-", stdin="http://example.com/a\n\nhttp://example.com/b\n")
    assert [row["topic"] for row in json.loads(result.stdout)] == [
        "http://example.com/a",
        "http://example.com/b",
    ]
    assert json.loads(run("-", stdin="").stdout) == []


@pytest.mark.parametrize("topic", ["feed.xml", "http://example.com/\nevil", "http://\ud800/"])
def test_a_refused_topic_is_one_line_and_nothing_else(topic: str) -> None:
    result = run("http://example.com/", topic)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {topic!r}: the topic ")
    assert result.stderr.count("\n") == 1


def test_input_that_is_not_utf_8_is_refused_like_any_other() -> None:
    result = run("-", stdin=b"http://example.com/\xff\n")
    assert result.exit_code == 1
    assert "U+DCFF" in result.stderr


def test_no_topic_is_bad_usage() -> None:
    result = run()
    assert result.exit_code == 2
    assert "TOPIC" in result.stderr
