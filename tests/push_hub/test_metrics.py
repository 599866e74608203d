"""Every event that is counted is explained to the operator, and the other way round."""

import re
from pathlib import Path

import push_hub
from push_hub.store.records import Outcome

HUB = Path(push_hub.__file__).parent
PAGE = HUB.parent / "docs" / "operations.md"


def counted():
    # A client counts what happens to it; that is shown by no hub.
    paths = [path for path in HUB.rglob("*.py") if "client" not in path.parts]
    texts = [path.read_text() for path in paths]
    names = {name for text in texts for name in re.findall(r'counters\["(\w+)"\]', text)}
    return names | {f"deliveries_{outcome}" for outcome in Outcome}


def explained():
    _, _, table = PAGE.read_text().partition("| `what` | counts |")
    rows = re.findall(r"^\| (`.*?`) \|", table.partition("\n\n")[0], re.MULTILINE)
    names = set()
    for row in rows:
        for name in re.findall(r"`(\w+)`", row):
            names.add(f"deliveries{name}" if name.startswith("_") else name)
    return names


def test_the_counters_are_documented():
    assert explained() == counted()
