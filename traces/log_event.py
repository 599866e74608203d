"""What a line of a log says: the name of an event, `noun.verb`, and its fields.

It is the message that is given to a logger: `log.warning(LogEvent("fetch.failed", topic=topic))`.
As text it is `fetch.failed topic=...`, so no handler loses the fields; `push_hub.logs` writes it as
JSON, too.
"""

import json
import re

_PLAIN = re.compile(r'[^\s"=\\]+')


class LogEvent:
    """A name and fields; those that are None are left out."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: object) -> None:
        self.name = name
        self.fields = {key: value for key, value in fields.items() if value is not None}

    def __str__(self) -> str:
        return "".join([self.name, *(f" {key}={_text(self.fields[key])}" for key in self.fields)])


def _text(value: object) -> str:
    """Quoted where it would not end at the next space; a line end is escaped, so that a
    field cannot forge a line."""
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text.isprintable()
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
