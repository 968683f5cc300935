"""Every recipe that ships loads as the configuration of its command, and says what it needs."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from socialrl_cli import main
from socialrl_cli.config import load, loads, packaged_recipes, recipe_info
from socialrl_cli.recipes import CONFIGS
from socialrl_cli.toml_writer import dump


def config_type(command: str) -> type:
    module, _, name = CONFIGS[command].partition(":")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("path", packaged_recipes().values(), ids=lambda path: path.stem)
def test_a_recipe_loads_and_says_what_it_is_for(path: Path) -> None:
    info = recipe_info(path)
    assert info.command in CONFIGS
    assert info.about
    assert info.needs
    config = load(config_type(info.command), path.stem)
    assert config == load(config_type(info.command), path)


@pytest.mark.parametrize("command", CONFIGS)
def test_the_resolved_configuration_reads_back_as_itself(command: str) -> None:
    for path in [None, *(p for p in packaged_recipes().values() if recipe_info(p).command == command)]:
        config = load(config_type(command), path)
        assert loads(config_type(command), dump(config), "dump") == config


def test_the_list_of_recipes_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [recipe["name"] for recipe in listed] == list(packaged_recipes())
    assert main.run(["recipes"]) == 0
    shown = capsys.readouterr().out
    for recipe in listed:
        assert f"socialrl {recipe['command']} {recipe['name']}" in shown
        assert recipe["needs"] in shown


def test_a_recipe_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    name, path = next(iter(packaged_recipes().items()))
    assert main.run(["recipes", name]) == 0
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")
