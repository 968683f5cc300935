"""`socialrl doctor`: what this machine can run, and why not."""

from __future__ import annotations

from typing import Any

import typer


def doctor(json: bool = typer.Option(False, "--json", help="Print one JSON document.")) -> None:
    """Say what this machine can run, and why not.

    Looks at Python, packages, cores and what others do on them, memory, folders, torch, GPUs and engines.
    Exit code 1 when the quickstart cannot run here.

    \b
    Example: socialrl doctor
             socialrl doctor --json
    """
    from socialrl_cli.doctor import examine
    from socialrl_cli.output import emit

    report = examine()
    emit(report, as_json=json, show=lambda console: _show(console, report))
    if not report["ready"]:
        raise typer.Exit(1)


def _show(console: Any, report: dict[str, Any]) -> None:
    for finding in report["findings"]:
        remedy = f" ({finding['remedy']})" if finding["remedy"] else ""
        line = f"{finding['state']:<4}  {finding['name']:<12}  {finding['seen']}{remedy}"
        console.print(line, markup=False, soft_wrap=True)
    console.print("ready for make quickstart" if report["ready"] else "not ready: mend what says fail")
