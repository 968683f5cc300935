"""What every command prints with: results on stdout, progress and warnings on stderr.

`emit` prints a result, as one JSON document or as people read it. `note` and `warn` print a line on stderr.
`progress` is a bar on a terminal and one line per step elsewhere. Rich is imported when it is first needed.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: tuples as lists, numbers that are not finite as null, the rest as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def emit(document: Any, *, as_json: bool, show: Callable[[Any], None] | None = None) -> None:
    """Print a result on stdout: `document` as JSON, or what `show(console)` prints on a rich console."""
    if as_json or show is None:
        print(json.dumps(plain(document), indent=2, ensure_ascii=False))
    else:
        show(console())


def console(stderr: bool = False) -> Any:
    """A rich console; piped output keeps its full width and has no colour codes."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 120, highlight=False, soft_wrap=False)


def note(message: str) -> None:
    """One line for people on stderr."""
    print(message, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """One line about something that is not right but does not stop the work."""
    print(f"socialrl: warning: {message}", file=sys.stderr, flush=True)


@contextmanager
def progress(label: str, total: int | None = None, *, every_s: float = 5.0) -> Iterator[Callable[..., None]]:
    """Show long work on stderr; yields `advance(n=1, **figures)`.

    On a terminal a rich bar. Elsewhere one line `label 40/100 name=value …`, at most one per `every_s` seconds
    (0: one for every call), and always the last one.
    """
    done = 0
    if sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        figures_column = TextColumn("{task.fields[figures]}")
        with Progress(*columns, figures_column, console=console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total, figures="")

            def advance(n: int = 1, **figures: Any) -> None:
                bar.update(task, advance=n, figures=_figures(figures))

            yield advance
        return

    shown_at, pending = time.monotonic() - every_s, False
    last: dict[str, Any] = {}

    def line() -> None:
        count = f"{done}" if total is None else f"{done}/{total}"
        note(f"{label} {count} {_figures(last)}".rstrip())

    def advance_line(n: int = 1, **figures: Any) -> None:
        nonlocal done, shown_at, pending, last
        done, last, pending = done + n, figures, True
        if time.monotonic() - shown_at >= every_s:
            line()
            shown_at, pending = time.monotonic(), False

    try:
        yield advance_line
    finally:
        if pending:
            line()


def _figures(figures: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures.items())
