"""Recipes become dataclasses strictly, and a dataclass written as TOML reads back as itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.errors import DataError, UsageError
from socialrl_cli.config import apply_sets, find_recipe, load, load_json, loads, options
from socialrl_cli.toml_writer import dump


@dataclass(frozen=True)
class Lora:
    rank: int = 32
    dropout: float = 0.0


@dataclass(frozen=True)
class Train:
    steps: int = 200
    lr: float = 2e-6
    aggregation: Literal["token", "dialogue"] = "token"
    clip: float | None = 5.0
    lora: Lora | None = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps, got {self.steps}, expected at least 0")


@dataclass(frozen=True)
class Config:
    name: str = "demo"
    resume: bool = False
    opponents: tuple[str, ...] = ("scripted:boulware",)
    betas: tuple[float, float] = (0.9, 0.95)
    folder: Path = Path("runs")
    limit: int | str = 3
    weights: dict[str, float] = field(default_factory=dict)
    adapters: tuple[Lora, ...] = ()
    extra: Any = None
    train: Train = field(default_factory=Train)


@dataclass(frozen=True)
class Needy:
    model: str
    seed: int = 0


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_fills_what_it_names_and_the_dataclass_the_rest(tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "x"\nopponents = ["a", "b"]\n[train]\nsteps = 5\nlr = 1\n[train.lora]\nrank = 8\n')
    config = load(Config, path)
    assert config == Config(name="x", opponents=("a", "b"), train=Train(steps=5, lr=1.0, lora=Lora(rank=8)))
    assert isinstance(config.train.lr, float)  # an int where a float is meant


def test_a_set_value_is_read_as_the_type_of_its_field(tmp_path: Path) -> None:
    path = written(tmp_path, 'name = "x"\n[train]\nsteps = 5\n')
    sets = ["name=20", "train.lr=3e-4", "resume=true", 'opponents=["p:q=1,r=2"]', "train.lora.rank=4", "limit=all"]
    config = load(Config, path, [*sets, "train.steps=6", "train.steps=7", "weights.dnd=.5", "extra=[1, 2]"])
    assert (config.name, config.train.lr, config.resume) == ("20", 3e-4, True)
    assert config.opponents == ("p:q=1,r=2",)
    assert config.train.lora == Lora(rank=4)
    assert config.limit == "all"
    assert config.train.steps == 7  # the last one wins
    assert config.weights == {"dnd": 0.5}
    assert config.extra == [1, 2]


def test_the_word_none_clears_an_optional_value() -> None:
    assert load(Config, None, ["train.clip=none"]).train.clip is None
    assert loads(Config, '[train]\nclip = "none"\n', "x").train.clip is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nstepps = 3\n", "unknown key 'train.stepps'; did you mean 'train.steps'?"),
        ("lr = 3\n", "unknown key 'lr'; did you mean 'train.lr'?"),
        ("zzz = 3\n", "unknown key 'zzz'; known: adapters, "),
        ("[train.lora]\nrnk = 3\n", "unknown key 'train.lora.rnk'; did you mean 'train.lora.rank'?"),
        ('[train]\nsteps = "3"\n', 'train.steps: expected an integer, got "3"'),
        ("[train]\nsteps = 3.0\n", "train.steps: expected an integer, got 3.0"),
        ("[train]\nsteps = true\n", "train.steps: expected an integer, got true"),
        ("[train]\nlr = true\n", "train.lr: expected a number, got true"),
        ("resume = 1\n", "resume: expected true or false, got 1"),
        ('[train]\naggregation = "tokens"\n', 'train.aggregation: expected one of "token", "dialogue", got "tokens"'),
        ('opponents = "a"\n', 'opponents: expected a list, each a string, got "a"'),
        ('opponents = ["a", 3]\n', "opponents[1]: expected a string, got 3"),
        ("betas = [0.9]\n", "betas: expected a list of a number, a number, got [0.9]"),
        ("train = 3\n", "train: expected a table, got 3"),
        ("limit = 1.5\n", "limit: expected an integer or a string, got 1.5"),
        ("weights = {a = true}\n", "weights.a: expected a number, got true"),
        ("adapters = [{rank = 1}, {rnk = 1}]\n", "unknown key 'adapters[1].rnk'"),
        ("[train]\nsteps = -1\n", "train: steps, got -1, expected at least 0"),
        ("[recipe]\nabuot = 'x'\n", "unknown key 'recipe.abuot'; did you mean 'recipe.about'?"),
    ],
)
def test_a_bad_recipe_is_refused_with_the_file_the_key_and_the_mistake(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(Config, path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("train.stepps=3", "--set train.stepps=3: unknown key 'train.stepps'; did you mean 'train.steps'?"),
        ("train.steps=many", "--set train.steps=many: train.steps: expected an integer, got many"),
        ("train.steps=1e3", "--set train.steps=1e3: train.steps: expected an integer, got 1e3"),
        ("train.steps.x=1", "--set train.steps.x=1: train.steps: expected an integer, got a table"),
        ("resume=yes", "--set resume=yes: resume: expected true or false, got yes"),
        ("train=3", "--set train=3: train: expected a table, got 3"),
        ("opponents=a", "--set opponents=a: opponents: expected a list, each a string, got a"),
        ("train.steps", "--set train.steps: write it as key=value, for example --set seed=1"),
        ("train..steps=1", "--set train..steps=1: write it as key=value, for example --set seed=1"),
        ("train.steps=-5", "--set train.steps=-5: train: steps, got -5, expected at least 0"),
    ],
)
def test_a_bad_set_value_is_refused_and_named(item: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(Config, None, [item])
    assert str(caught.value) == message


def test_a_value_that_its_table_refuses_is_named_where_it_was_given(tmp_path: Path) -> None:
    path = written(tmp_path, "[train]\nlr = 1\n")
    with pytest.raises(UsageError) as caught:
        load(Config, path, ["name=x", "train.steps=-5"])
    assert str(caught.value) == "--set train.steps=-5: train: steps, got -5, expected at least 0"
    with pytest.raises(UsageError) as caught:
        load(Config, written(tmp_path, "[train]\nsteps = -5\n"), ["train.lr=2"])
    assert str(caught.value) == f"{path}, --set train.lr=2: train: steps, got -5, expected at least 0"
    with pytest.raises(UsageError) as caught:
        load(Train, None, ["steps=-5"])
    assert str(caught.value) == "--set steps=-5: steps, got -5, expected at least 0"
    with pytest.raises(UsageError, match=r"^--steps -5: steps, got -5, expected at least 0$"):
        load(Train, None, options({"steps": -5, "lr": None}))


def test_a_missing_required_key_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "seed = 1\n")
    with pytest.raises(UsageError, match="key 'model' is missing; it must be a string"):
        load(Needy, path)


def test_a_file_that_is_not_toml_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"recipe\.toml: is not valid TOML: .*line 2"):
        load(Config, written(tmp_path, 'name = "x"\nname == 3\n'))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        load(Config, binary)


def test_a_recipe_that_does_not_exist_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no recipe 'quickstrt'"):
        find_recipe("quickstrt")
    with pytest.raises(UsageError, match=r"no recipe file nowhere/x\.toml"):
        find_recipe("nowhere/x.toml")


def test_laying_values_over_a_recipe_leaves_the_recipe_alone() -> None:
    tree = {"train": {"steps": 1}}
    apply_sets(tree, ["train.steps=2", "train.lora.rank=3"])
    assert tree == {"train": {"steps": 1}}


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).filter(lambda text: text != "none")
numbers = st.floats(allow_nan=False)
loras = st.builds(Lora, rank=st.integers(), dropout=numbers)
trains = st.builds(
    Train,
    steps=st.integers(0, 10**6),
    lr=numbers,
    aggregation=st.sampled_from(["token", "dialogue"]),
    clip=st.none() | numbers,
    lora=st.none() | loras,
)
configs = st.builds(
    Config,
    name=texts,
    resume=st.booleans(),
    opponents=st.lists(texts, max_size=3).map(tuple),
    betas=st.tuples(numbers, numbers),
    limit=st.integers() | texts,
    weights=st.dictionaries(texts, numbers, max_size=3),
    adapters=st.lists(loras, max_size=2).map(tuple),
    extra=st.none() | st.integers() | st.lists(st.integers(), max_size=2),
    train=trains,
)


@given(configs)
def test_what_is_written_reads_back_as_the_same_config(config: Config) -> None:
    assert loads(Config, dump(config), "written") == config


def test_the_written_form_is_plain_toml() -> None:
    text = dump(Config(weights={"a b": 1.0}, train=Train(clip=None, lora=Lora())))
    assert text == (
        'name = "demo"\nresume = false\nopponents = ["scripted:boulware"]\nbetas = [0.9, 0.95]\nfolder = "runs"\n'
        'limit = 3\nadapters = []\n\n[weights]\n"a b" = 1.0\n\n[train]\nsteps = 200\nlr = 2e-06\n'
        'aggregation = "token"\nclip = "none"\n\n[train.lora]\nrank = 32\ndropout = 0.0\n'
    )


def test_a_json_file_is_read_as_strictly(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text('{"steps": 3, "clip": null, "lora": {"rank": 4}}')
    assert load_json(Train, path) == Train(steps=3, clip=None, lora=Lora(rank=4))
    for text, message in (
        ('{"stps": 3}', "unknown key 'stps'; did you mean 'steps'"),
        ("[]", "expected a table"),
        ("{", "JSON"),
    ):
        path.write_text(text)
        with pytest.raises((UsageError, DataError), match=message):
            load_json(Train, path)
