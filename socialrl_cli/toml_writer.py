"""A frozen dataclass written as TOML, defaults included: what `config.loads` reads back as the same value.

The standard library reads TOML but does not write it; this covers what configs hold (bool, int, float, str, Path,
None, lists, tables, tables in lists). A None that is the field's default is left out, another one is "none".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from socialrl_cli.config import NONE


def dump(config: Any) -> str:
    """The whole config as TOML, defaults included."""
    return "\n".join(_table(config, "")).strip() + "\n"


def _table(config: Any, name: str) -> Iterator[str]:
    pairs = _pairs(config)
    below = {key: value for key, value in pairs.items() if _is_table(value)}
    if name and (len(below) < len(pairs) or not pairs):
        yield f"\n[{name}]"
    yield from (f"{_key(key)} = {_toml(value)}" for key, value in pairs.items() if key not in below)
    for key, value in below.items():
        yield from _table(value, f"{name}.{_key(key)}" if name else _key(key))


def _pairs(config: Any) -> dict[str, Any]:
    """The values to write: a None that is the default anyway is left out."""
    if isinstance(config, Mapping):
        return dict(config)
    written = [field for field in fields(config) if field.init]
    values = {field.name: getattr(config, field.name) for field in written}
    defaults = {field.name: field.default for field in written}
    return {key: value for key, value in values.items() if value is not None or defaults[key] is not None}


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: Any) -> str:
    if value is None:
        return f'"{NONE}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if _is_table(value):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in _pairs(value).items()) + " }"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
