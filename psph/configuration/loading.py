"""From a TOML file to a msgspec.Struct, with errors that name the file, the key and the remedy."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from psph.errors import PsphError

LARGEST = 1 << 20
"""Bytes in a configuration file; anything larger is not one."""

S = TypeVar("S", bound=Struct)


class ConfigurationError(PsphError):
    """A configuration file that cannot be used; the message names file, key and remedy."""


def load(path: Path, kind: type[S]) -> S:
    """Read a file and check it against the structure."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    if len(raw) > LARGEST:
        raise ConfigurationError(f"{path}: larger than {LARGEST} bytes, so no configuration file")
    try:
        data = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, or of a number's length
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from error
    return check(data, kind, str(path))


def check(data: object, kind: type[S], source: str) -> S:
    """Check what was read; `source` is the file for messages."""
    try:
        value = _convert(data, kind, "")
    except _Wrong as wrong:
        where = f'key "{wrong.key}": ' if wrong.key else ""
        raise ConfigurationError(f"{source}: {where}{wrong}") from wrong
    assert isinstance(value, kind)
    return value


class _Wrong(Exception):
    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def _convert(data: object, kind: Any, key: str) -> object:
    """Like msgspec.convert, one level at a time, so that an error knows its exact place."""
    for member in _members(kind):
        if isinstance(data, dict) and isinstance(member, type) and issubclass(member, Struct):
            return _convert_struct(data, member, key)
        if isinstance(data, list) and get_origin(member) is list:
            (item,) = get_args(member)
            return [_convert(value, item, f"{key}[{index}]") for index, value in enumerate(data)]
    return _leaf(data, kind, key)


def _convert_struct(data: dict[str, object], struct: type[Struct], key: str) -> object:
    hints = get_type_hints(struct, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for name in data:
        if name not in fields:
            raise _Wrong(_join(key, name), f"unknown; {_known(name, list(fields))}")
    values = {}
    for name, field in fields.items():
        if name in data:
            values[field.name] = _convert(data[name], hints[field.name], _join(key, name))
        elif field.required:
            raise _Wrong(_join(key, name), "missing, and it has no default")
    try:
        return struct(**values)
    except ValueError as error:
        raise _Wrong(key, str(error)) from error


def _leaf(data: object, kind: Any, key: str) -> object:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text = str(error).split(" - at ")[0]
        raise _Wrong(key, text[0].lower() + text[1:].replace("`", "")) from error


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _known(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(names)}"
