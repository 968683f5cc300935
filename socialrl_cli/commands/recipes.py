"""`socialrl recipes`: what ships, and what each needs."""

from __future__ import annotations

from typing import Any

import typer


def recipes(
    name: str = typer.Argument("", help="Print this recipe's file instead of the list.", metavar="NAME"),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """List the recipes that ship, and what each needs.

    \b
    Example: socialrl recipes
             socialrl recipes quickstart > mine.toml
    """
    from socialrl_cli.config import find_recipe, packaged_recipes, recipe_info
    from socialrl_cli.output import emit

    if name:
        text = find_recipe(name).read_text(encoding="utf-8")
        emit({"name": name, "toml": text}, as_json=json, show=lambda _console: print(text, end=""))
        return
    found = []
    for stem, path in packaged_recipes().items():
        info = recipe_info(path)
        found.append({"name": stem, "command": info.command, "about": info.about, "needs": info.needs})
    emit(found, as_json=json, show=lambda console: _show(console, found))


def _show(console: Any, found: list[dict[str, str]]) -> None:
    for recipe in found:
        console.print(f"[bold]{recipe['name']}[/bold]  socialrl {recipe['command']} {recipe['name']}")
        console.print(f"    {recipe['about']}\n    needs: {recipe['needs']}", markup=False)
