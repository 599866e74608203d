"""identifiers/vectors.json: the file is right by itself, and the code agrees with it."""

import json
from importlib.resources import files
from typing import Any

import pytest
from blake3 import blake3

import identifiers
from identifiers import ID_VERSION, InvalidTopic, canonical_topic, identify, zone_channel

VECTORS: dict[str, Any] = json.loads((files(identifiers) / "vectors.json").read_text("ascii"))


def case_name(case: dict[str, Any]) -> str:
    return ascii(case["input"])[:60]


def derive(context: str, data: bytes) -> bytes:
    return blake3(data, derive_key_context=context).digest()


def test_the_file_belongs_to_the_installed_suffix_list() -> None:
    assert VECTORS["id_version"] == str(ID_VERSION)


def test_there_are_enough_cases_and_none_twice() -> None:
    cases = [case["input"] for kind in ("topics", "refused") for case in VECTORS[kind]]
    assert len(cases) >= 80
    assert len(set(cases)) == len(cases)


@pytest.mark.parametrize("case", VECTORS["topics"], ids=case_name)
def test_ids_in_the_file_follow_from_canonical_form_and_zone(case: dict[str, Any]) -> None:
    sid = derive("psph 1 scope", case["zone"].encode())
    assert case["sid"] == sid.hex()
    assert case["rid"] == derive("psph 1 rendezvous", sid + case["canonical"].encode()).hex()
    if case["channel"] is not None:
        label, _, suffix = case["zone"].partition(".")
        assert case["channel"] == {
            "sid": derive("psph 1 zone channel scope", label.encode()).hex(),
            "rid": derive("psph 1 zone channel item", f".{suffix}".encode()).hex(),
        }


@pytest.mark.parametrize("case", VECTORS["topics"], ids=case_name)
def test_topic(case: dict[str, Any]) -> None:
    topic = identify(case["input"])
    channel = zone_channel(topic.zone)
    assert {
        "input": topic.spelling,
        "canonical": topic.canonical,
        "zone": topic.zone,
        "sid": str(topic.sid),
        "rid": str(topic.rid),
        "channel": channel and {"sid": str(channel.sid), "rid": str(channel.rid)},
        "why": case["why"],
    } == case
    assert canonical_topic(topic.canonical) == topic.canonical


@pytest.mark.parametrize("case", VECTORS["refused"], ids=case_name)
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidTopic) as refusal:
        identify(case["input"])
    assert type(refusal.value).__name__ == case["error"]
    # One printable line, short enough to read, that says what to do after the colon.
    sentence = str(refusal.value)
    assert sentence.isprintable()
    assert ": " in sentence
    assert len(sentence) < 250
