"""TOML recipes and `--set key=value` → frozen dataclasses, strictly.

`load(Config, "quickstart", ["ppo.steps=20"])` reads a packaged recipe by name or a file by path, lays the `--set`
values over it and builds `Config` from the result. Defaults live in the dataclasses alone. Refused with one line
that names the file and the key: an unknown key (with the nearest known one), a wrong type, a missing value, and
whatever a dataclass's own `__post_init__` raises as ValueError. An int is accepted where a float is meant; a float
for an int, or a number for a bool, is not.

TOML has no null: where a field may be None, the string "none" means it. A recipe may carry a table `[recipe]`
(`RecipeInfo`) that says what it is for. `toml_writer.dump` writes a config back.
"""

from __future__ import annotations

import json
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from scenarios.errors import DataError, UsageError, nearest

T = TypeVar("T")
NONE = "none"
NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path"}


@dataclass(frozen=True)
class RecipeInfo:
    """The table `[recipe]` of a recipe: the command that it is for, and what it needs."""

    command: str = ""
    about: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """The text of a `--set` value; it is read as the type of the field that it lands on."""

    text: str
    origin: str


class Option(str):
    """A `key=value` that a command's option stands for; messages name what was typed."""

    origin: str

    def __new__(cls, key: str, value: object, typed: str) -> Option:
        new = super().__new__(cls, f"{key}={value}")
        new.origin = f"{typed} {value}"
        return new


def options(values: Mapping[str, object]) -> list[str]:
    """Those of a command's options that were given, for keys of the same name."""
    return [Option(key, value, f"--{key}") for key, value in values.items() if value not in ("", None)]


def load(kind: type[T], recipe: str | Path | None = None, sets: Sequence[str] = ()) -> T:
    """Build `kind` from a recipe (a packaged name or a path; None: defaults alone) and `--set` values."""
    path = None if recipe is None else find_recipe(recipe)
    tree = {} if path is None else read_toml(path)
    source = "--set" if path is None else str(path)
    build(RecipeInfo, tree.pop("recipe", {}), source, "recipe.")
    return build(kind, apply_sets(tree, sets), source)


def loads(kind: type[T], text: str, source: str) -> T:
    """Build `kind` from TOML text, for example a run's own `config.toml`."""
    tree = _parse(text, source)
    tree.pop("recipe", None)
    return build(kind, tree, source)


def load_json(kind: type[T], path: Path) -> T:
    """Build `kind` from a JSON file, as strictly; null is None."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: is not valid JSON: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return build(kind, tree, str(path))


def packaged_recipes() -> dict[str, Path]:
    """Name → file of every recipe that ships."""
    folder = Path(str(files("socialrl_cli.recipes")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem)}


def find_recipe(name: str | Path) -> Path:
    """A packaged recipe's file by its name; anything that ends in .toml or has a slash is a path."""
    text = str(name)
    if isinstance(name, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        if not Path(text).is_file():
            raise UsageError(f"no recipe file {text}")
        return Path(text)
    known = packaged_recipes()
    if text not in known:
        raise UsageError(f"no recipe {text!r}; {nearest(text, known)} (a file of your own: path/to/recipe.toml)")
    return known[text]


def recipe_info(path: Path) -> RecipeInfo:
    """What a recipe says of itself."""
    return build(RecipeInfo, read_toml(path).get("recipe", {}), str(path), "recipe.")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return _parse(text, str(path))


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{source}: is not valid TOML: {error}") from error


def apply_sets(tree: Mapping[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """`tree` with each `a.b=value` laid over it; later ones win. The tree itself is left as it was."""
    result = dict(tree)
    for item in sets:
        key, equals, value = item.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise UsageError(f"--set {item}: write it as key=value, for example --set seed=1")
        here = result
        for part in path[:-1]:
            below = here.get(part)
            here[part] = dict(below) if isinstance(below, Mapping) else {}
            here = here[part]
        here[path[-1]] = Given(value.strip(), getattr(item, "origin", f"--set {item}"))
    return result


def build(kind: type[T], tree: Any, source: str, at: str = "") -> T:
    """A dataclass from a table; `at` is the table's own dotted name with a dot, for messages."""
    place = at.rstrip(".") or "the recipe"
    if not isinstance(tree, Mapping):
        raise _wrong(source, place, "a table", tree)
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind) if field.init}  # type: ignore[arg-type]
    for key, value in tree.items():
        if key not in known:
            raise UsageError(f"{_origin(value, source)}: unknown key {at + key!r}; {_meant(kind, key, at)}")
    values = {}
    for name, field in known.items():
        if name in tree:
            values[name] = _value(hints[name], tree[name], source, at + name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(f"{source}: key {at + name!r} is missing; it must be {describe(hints[name])}")
    try:
        return kind(**values)
    except ValueError as error:
        table = f"{at.rstrip('.')}: " if at else ""
        raise UsageError(f"{_origins(tree, source, str(error))}: {table}{error}") from error


def _meant(kind: type, key: str, at: str) -> str:
    """The hint for an unknown key: the nearest one, in this table first, then in the tables below it."""
    names = list(_paths(kind, at))
    ends = {name.rsplit(".", 1)[-1]: name for name in reversed(names)}  # the first path wins
    close = get_close_matches(key, ends, n=1)
    return f"did you mean {ends[close[0]]!r}?" if close else nearest("", [field.name for field in fields(kind)])


def _paths(kind: type, at: str) -> Iterator[str]:
    hints = get_type_hints(kind)
    yield from (at + field.name for field in fields(kind))
    for field in fields(kind):
        for member in (hints[field.name], *get_args(hints[field.name])):
            if isinstance(member, type) and is_dataclass(member):
                yield from _paths(member, f"{at}{field.name}.")


def _value(kind: Any, value: Any, source: str, at: str) -> Any:
    origin, members = get_origin(kind), get_args(kind)
    text = value.text if isinstance(value, Given) else value
    if kind is Any:
        parsed = _toml_value(value)
        return parsed.text if isinstance(parsed, Given) else parsed
    if origin in (Union, types.UnionType):
        if type(None) in members and (text == NONE or text is None):
            return None
        return _one_of([m for m in members if m is not type(None)], kind, value, source, at)
    if origin is Literal:
        for option in members:
            given = isinstance(value, Given) and str(option) == text
            if given or (type(option) is type(value) and option == value):
                return option
        raise _wrong(source, at, describe(kind), value)
    if isinstance(kind, type) and is_dataclass(kind):
        return build(kind, _toml_value(value), _origin(value, source), f"{at}.")
    if origin in (tuple, list, Sequence):
        return _sequence(kind, value, source, at)
    if kind is dict or origin in (dict, Mapping):
        table = _toml_value(value)
        if not isinstance(table, Mapping):
            raise _wrong(source, at, "a table", value)
        inner = members[1] if members else Any
        return {key: _value(inner, item, source, f"{at}.{key}") for key, item in table.items()}
    return _scalar(kind, value, source, at)


def _one_of(members: Sequence[Any], kind: Any, value: Any, source: str, at: str) -> Any:
    if len(members) == 1:
        return _value(members[0], value, source, at)
    for member in sorted(members, key=lambda member: member is str):  # text from --set is a string only at last
        try:
            return _value(member, value, source, at)
        except UsageError:
            continue
    raise _wrong(source, at, describe(kind), value)


def _sequence(kind: Any, value: Any, source: str, at: str) -> Any:
    members = get_args(kind)
    items = _toml_value(value)
    if not isinstance(items, list):
        raise _wrong(source, at, describe(kind), value)
    if get_origin(kind) is tuple and members[-1] is not Ellipsis:
        if len(items) != len(members):
            raise _wrong(source, at, describe(kind), value)
        kinds = list(members)
    else:
        kinds = [members[0]] * len(items)
    built = [_value(k, item, source, f"{at}[{i}]") for i, (k, item) in enumerate(zip(kinds, items, strict=True))]
    return built if get_origin(kind) is list else tuple(built)


def _scalar(kind: Any, value: Any, source: str, at: str) -> Any:
    if isinstance(value, Given):
        if kind is bool and value.text in ("true", "false"):
            return value.text == "true"
        if kind in (str, Path):
            parsed = _toml_value(value) if value.text[:1] in ("'", '"') else value.text
            return kind(parsed if isinstance(parsed, str) else value.text)
        if kind in (int, float):
            try:
                return kind(value.text)
            except ValueError:
                pass
        raise _wrong(source, at, describe(kind), value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind in (bool, int, float, str) and type(value) is kind:
        return value
    raise _wrong(source, at, describe(kind), value)


def _toml_value(value: Any) -> Any:
    """A `--set` text read as a TOML value where it is one (a list, a quoted string, a number), else as it is."""
    if not isinstance(value, Given):
        return value
    try:
        return tomllib.loads(f"value = {value.text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return value


def _origin(value: Any, source: str) -> str:
    """Where a value was given: its `--set`, where all of it came from one, else the file."""
    while isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    return value.origin if isinstance(value, Given) else source


def _origins(tree: Mapping[str, Any], source: str, fault: str) -> str:
    """Where the value was given whose key the fault begins with; else all places: the file, and each `--set`."""
    named = tree.get(fault.replace(":", ",").partition(",")[0])
    if isinstance(named, Given):
        return named.origin
    sets = [value.origin for value in tree.values() if isinstance(value, Given)]
    whole = len(sets) == len(tree) or source == "--set"
    return ", ".join(sets if whole and sets else [source, *sets])


def _wrong(source: str, at: str, expected: str, value: Any) -> UsageError:
    shown = value.text if isinstance(value, Given) else "a table" if isinstance(value, Mapping) else json_text(value)
    return UsageError(f"{_origin(value, source)}: {at}: expected {expected}, got {shown}")


def describe(kind: Any) -> str:
    """A type in words: `an integer`, `one of "a", "b"`, `a list of strings`."""
    origin, members = get_origin(kind), get_args(kind)
    if kind is type(None):
        return f'"{NONE}"'
    if origin is Literal:
        return "one of " + ", ".join(json_text(option) for option in members)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(member) for member in members)
    if origin is tuple and members[-1] is not Ellipsis:
        return "a list of " + ", ".join(describe(member) for member in members)
    if origin is not None and members and origin not in (dict, Mapping):
        return f"a list, each {describe(members[0])}"
    return NAMES.get(kind, "a table")


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
