"""Results as people read them on a terminal: score tables, tables by opponent, the reward curve.

Every function takes the plain dicts that `--json` prints (`mean`, `low`, `high`, `sd`, `agreement`, `invalid`,
`failed`, `games`, `by_opponent`; rates in [0, 1]) and leaves out what a dict does not have, so that what is shown and
what is printed as JSON are the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
MISSING = "–"
NAME_WIDTH = 44  # characters of a policy's name, so that its figures stay in sight
Summary = Mapping[str, Any]


def score_table(
    rows: Mapping[str, Summary], *, title: str = "", star: str | None = None, first: str = "policy"
) -> Table:
    """One line a policy (or whatever `first` heads): its mean reward with the interval, and how its games went.
    `star` is shown in bold."""
    table = _table(title, first)
    columns = {
        "reward": lambda row: number(row.get("mean")),
        "95% interval": lambda row: between(row.get("low"), row.get("high")),
        "sd": lambda row: number(row.get("sd")),
        "utility": lambda row: number(row.get("utility")),
        "agreement": lambda row: percent(row.get("agreement")),
        "invalid": lambda row: percent(row.get("invalid"), 1),
        "failed": lambda row: str(row.get("failed", MISSING)),
        "games": lambda row: str(row.get("games", MISSING)),
    }
    needs = {"95% interval": "low", "reward": "mean"}
    shown = {
        name: cell
        for name, cell in columns.items()
        if any(_is_number(row.get(needs.get(name, name))) for row in rows.values())
    }
    if not any(row.get("failed") for row in rows.values()):
        shown.pop("failed", None)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(cell(row) for cell in shown.values()), style="bold" if name == star else "")
    return table


def opponent_table(
    rows: Mapping[str, Summary], *, title: str = "", marks: Mapping[str, str] | None = None, first: str = "policy"
) -> Table:
    """One line a policy (or whatever `first` heads), one column an opponent: mean reward ± half the interval.
    `marks` are added to headings."""
    table = _table(title, first)
    opponents = list(dict.fromkeys(name for row in rows.values() for name in row.get("by_opponent", {})))
    for name in opponents:
        table.add_column(short(name) + (marks or {}).get(name, ""), justify="right", no_wrap=True)
    for name, row in rows.items():
        cells = (row.get("by_opponent", {}).get(opponent, {}) for opponent in opponents)
        table.add_row(name, *(plus_minus(cell) for cell in cells))
    return table


def environment_table(document: Mapping[str, Any], *, title: str = "", star: str | None = None) -> Table:
    """One line a policy, one column an environment, and the plain mean: mean reward ± sd over repeats."""
    environments = document["environments"]
    table = _table(title, "policy")
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"  # six environments: figures come before names
    for name in (*environments, "mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, mean in document["policies"].items():
        cells = [found["policies"][name] for found in environments.values()]
        table.add_row(short(name), *map(with_sd, (*cells, mean)), style="bold" if name == star else "")
    return table


def figures_table(figures: Mapping[str, Any], *, title: str = "") -> Table:
    """Names and values, for anything flat."""
    table = _table(title, "what")
    table.add_column("", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.4g}" if isinstance(value, float) else str(value))
    return table


def difference_line(difference: Summary, *, a: str, b: str) -> str:
    """`b − a: +0.123 [+0.100, +0.146], paired over 800 games`."""
    mean, low, high = (difference[key] for key in ("mean", "low", "high"))
    return f"{b} − {a}: {mean:+.3f} [{low:+.3f}, {high:+.3f}], paired over {difference['games']} games"


def sparkline(values: Sequence[float], *, low: float | None = None, high: float | None = None) -> str:
    """One character a value between `low` and `high` (default: those of the values); a gap where it is not finite."""
    finite = [value for value in values if _is_number(value)]
    if not finite:
        return ""
    bottom = min(finite) if low is None else low
    span = (max(finite) if high is None else high) - bottom

    def bar(value: float) -> str:
        if not _is_number(value):
            return " "
        share = (value - bottom) / span if span > 0 else 0.5
        return BARS[min(len(BARS) - 1, max(0, int(share * len(BARS))))]

    return "".join(map(bar, values))


def curve(
    points: Iterable[tuple[float, float]], *, title: str = "", unit: str = "step", width: int = 60, height: int = 8
) -> str:
    """A plot in characters: (x, y) points, the mean of each column, y from the lowest to the highest column."""
    known = [(x, y) for x, y in points if _is_number(y)]
    if not known:
        return f"{title}: no points yet" if title else "no points yet"
    first, last = min(x for x, _ in known), max(x for x, _ in known)
    columns: dict[int, list[float]] = {}
    width = min(width, len({x for x, _ in known}))
    for x, y in known:
        share = (x - first) / (last - first) if last > first else 0.0
        columns.setdefault(min(width - 1, int(share * width)), []).append(y)
    means = {column: sum(ys) / len(ys) for column, ys in columns.items()}
    bottom, top = min(means.values()), max(means.values())
    if bottom == top:
        bottom, top = bottom - 0.5, top + 0.5
    lines = []
    for level in range(height - 1, -1, -1):
        edge = bottom + (top - bottom) * (level + 1) / height
        label = f"{bottom + (top - bottom) * level / (height - 1):.2f}" if level in (0, height - 1) else ""
        lines.append(f"{label:>6} │" + "".join(_block(means.get(x), edge, bottom, top, height) for x in range(width)))
    lines.append(f"{'':>6} └{'─' * width}")
    lines.append(f"{'':>8}{unit} {first:g} to {last:g}")
    return "\n".join(([title] if title else []) + [line.rstrip() for line in lines])


def _block(value: float | None, edge: float, bottom: float, top: float, height: int) -> str:
    """The part of a column that reaches into the row whose upper edge is `edge`."""
    if value is None:
        return " "
    row = (top - bottom) / height
    filled = (value - (edge - row)) / row  # 0 at the row's lower edge, 1 at its upper one
    if filled <= 0:
        return "▁" if edge - row <= bottom else " "
    return BARS[min(len(BARS) - 1, max(0, math.ceil(filled * len(BARS)) - 1))]


def number(value: Any) -> str:
    return f"{value:.3f}" if _is_number(value) else MISSING


def percent(value: Any, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f}%" if _is_number(value) else MISSING


def between(low: Any, high: Any) -> str:
    return f"{low:.3f} to {high:.3f}" if _is_number(low) and _is_number(high) else MISSING


def plus_minus(row: Summary) -> str:
    """`0.512 ±.021`: the mean and half the width of its interval."""
    if not _is_number(row.get("mean")):
        return MISSING
    if not (_is_number(row.get("low")) and _is_number(row.get("high"))):
        return f"{row['mean']:.3f}"
    return f"{row['mean']:.3f} ±" + f"{(row['high'] - row['low']) / 2:.3f}".lstrip("0")


def with_sd(row: Summary) -> str:
    """`0.512 ±.021`: the mean and the sd, where there is one."""
    if not _is_number(row.get("mean")):
        return MISSING
    spread = f" ±{row['sd']:.3f}".replace("±0.", "±.") if _is_number(row.get("sd")) else ""
    return f"{row['mean']:.3f}{spread}"


def short(name: str) -> str:
    """A participant's name for a heading: without `scripted:`."""
    return name.removeprefix("scripted:")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _table(title: str, first: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis", max_width=NAME_WIDTH)
    return table
