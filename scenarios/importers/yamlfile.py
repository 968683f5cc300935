"""YAML lists of tasks, read so that nothing turns into what its author did not write.

Only plain decimal numbers, true, false and null are not texts: 08:00 and 10:00 stay times (YAML 1.1 reads 10:00 as
the number 600), dates stay texts, and so do yes and no. Nothing is executed, whatever tags a file holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

from scenarios.errors import DataError
from scenarios.jsonfile import Row, read_bytes, shown

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """A safe loader with the four kinds of plain values that are meant."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,300})", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?|[-+]?\.inf|\.nan", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def tasks(path: str, key: str = "tasks") -> Iterator[Row]:
    """The items of the list under `key`, each with the line where it begins; a bad one is yielded with its fault.

    Raises `DataError` for a file that is no YAML or has no such list.
    """
    try:
        loader = _Loader(read_bytes(path).decode("utf-8"))
        root = loader.get_single_node()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start + 1})") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise DataError.at(path, _line(error), f"not YAML: {_problem(error)}") from None
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    nodes = next((node for name, node in pairs if name.value == key), None)
    if not isinstance(nodes, yaml.SequenceNode):
        raise DataError(f"{path}: holds no list of {shown(key)}")
    for node in nodes.value:
        line = node.start_mark.line + 1
        try:
            yield Row(line, loader.construct_object(node, deep=True), None)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            yield Row(line, None, f"not YAML: {_problem(error)}")


def _line(error: Exception) -> int | None:
    mark = getattr(error, "problem_mark", None)
    return None if mark is None else mark.line + 1


def _problem(error: Exception) -> str:
    return str(getattr(error, "problem", None) or error).split("\n")[0]
