"""Scenario files: read, checked, written, and the splits that ship."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios import ENVIRONMENTS, core, dnd
from scenarios.core import Scenario
from scenarios.errors import DataError, UsageError

PACKAGED = {"train": 500, "val": 50, "test": 100}
ROW = {
    "id": "x",
    "env": "dnd",
    "split": "test",
    "source": "by hand",
    "counts": {"book": 1, "hat": 2, "ball": 3},
    "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}},
}


def without(*keys):
    return {key: value for key, value in ROW.items() if key not in keys}


def write_lines(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("env", ENVIRONMENTS)
@pytest.mark.parametrize("split", core.SPLITS)
def test_the_packaged_splits_are_what_the_generator_writes_with_seed_zero(env, split):
    found = core.packaged(env, split)
    assert len(found) == PACKAGED[split]
    from importlib import resources

    shipped = (resources.files("scenarios") / "data" / env / f"{split}.jsonl").read_bytes()
    assert "".join(core.dumps(core.generate(env, PACKAGED[split], 0, split))).encode() == shipped


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_no_packaged_game_stands_in_two_splits_even_with_the_seats_exchanged(env):
    rules = core.module(env)
    groups = {split: {g for s in core.packaged(env, split) for g in rules.groups(s.fields)} for split in core.SPLITS}
    assert not groups["train"] & groups["val"]
    assert not groups["train"] & groups["test"]
    assert not groups["val"] & groups["test"]


def test_swapped_seats_are_the_same_group():
    one = dnd.build((1, 2, 3), (1, 3, 1), (2, 1, 2), split="test", source="test")
    other = dnd.build((1, 2, 3), (2, 1, 2), (1, 3, 1), split="test", source="test")
    assert one.id != other.id
    assert dnd.groups(one.fields) == dnd.groups(other.fields)


def test_a_scenario_read_again_is_the_one_that_was_written(tmp_path):
    found = core.packaged("dnd", "val")
    core.write(tmp_path / "x.jsonl", found)
    assert tuple(core.read(tmp_path / "x.jsonl")[0]) == found
    assert not [p for p in tmp_path.iterdir() if p.name != "x.jsonl"]


@given(st.text(min_size=1).filter(lambda t: t.strip() and t.isprintable()))
def test_any_printable_name_survives_json(name):
    scenario = Scenario.from_json({**ROW, "id": name})
    assert Scenario.from_json(json.loads("".join(core.dumps([scenario])))) == scenario


def test_a_scenario_can_stand_in_a_set():
    assert len({Scenario.from_json(ROW), Scenario.from_json(dict(ROW))}) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([1], "a scenario is a JSON object, got [1]"),
        (None, "a scenario is a JSON object, got None"),
        (without("id"), "id is missing"),
        ({**ROW, "id": 5}, "id is 5, expected a text"),
        ({**ROW, "id": " "}, "id is ' ', expected a text"),
        ({**ROW, "id": "x\x1b[2J"}, "id is 'x\\x1b[2J', expected a text of one line"),
        ({**ROW, "source": "a\nb"}, "source is 'a\\nb', expected a text of one line"),
        (without("env"), "env is missing"),
        ({**ROW, "env": None}, "env is None, expected a text"),
        ({**ROW, "env": "dmd"}, "env is 'dmd'; did you mean 'dnd'?"),
        ({**ROW, "split": "dev"}, "split is 'dev', expected train, val or test"),
        (without("source"), "source is missing"),
        (without("values"), "values is missing"),
        ({**ROW, "value": 1}, "'value' is not a field of dnd"),
    ],
)
def test_each_fault_of_the_head_is_named(row, reason):
    with pytest.raises(DataError) as error:
        Scenario.from_json(row)
    assert reason in str(error.value)


def test_a_lenient_reading_needs_only_what_the_reward_needs():
    bare = {"counts": ROW["counts"], "values": ROW["values"], "note": "mine", "id": 7}
    scenario = Scenario.from_json(bare, lenient=True, env="dnd")
    assert (scenario.id, scenario.env, set(scenario.fields)) == ("", "dnd", {"counts", "values"})
    with pytest.raises(DataError, match="env is missing"):
        Scenario.from_json(bare, lenient=True)
    with pytest.raises(DataError, match="env is missing"):
        Scenario.from_json({**bare, "env": None}, lenient=True)
    with pytest.raises(DataError, match="everything is worth"):
        Scenario.from_json({**bare, "counts": {"book": 2, "hat": 2, "ball": 3}}, lenient=True, env="dnd")


def test_each_bad_line_is_a_problem_and_the_good_ones_are_kept(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", ROW, "nope", "", {**ROW, "id": "y", "split": "dev"}, {**ROW, "id": "z"})
    good, problems = core.read(path, skip_bad=True)
    assert [s.id for s in good] == ["x", "z"]
    assert [str(p) for p in problems] == [
        f"{path}:2: not JSON: Expecting value at column 1",
        f"{path}:4: split is 'dev', expected train, val or test",
    ]
    with pytest.raises(DataError, match=r"x.jsonl:2: not JSON.* \(and 1 more bad lines\)"):
        core.read(path)


def test_an_id_twice_and_a_game_in_two_splits_are_offences(tmp_path):
    turned = {"a": ROW["values"]["b"], "b": ROW["values"]["a"]}
    one = write_lines(tmp_path / "one.jsonl", ROW, ROW)
    two = write_lines(tmp_path / "two.jsonl", {**ROW, "id": "y", "split": "train", "values": turned})
    good, problems = core.check_files([one, two])
    assert len(good) == 1
    assert [str(p) for p in problems] == [
        f"{one}:2: id 'x' stands already at {one}:1",
        f"{two}:1: the same game stands in the split test at {one}:1",
    ]


def test_the_same_game_twice_in_one_split_is_no_offence(tmp_path):
    path = write_lines(tmp_path / "x.jsonl", ROW, {**ROW, "id": "y"})
    assert core.check_files([path])[1] == []


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_scenarios_is_a_problem(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="holds no scenario"):
        core.read(path)


def test_line_ends_and_a_byte_order_mark_of_other_systems_are_accepted(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n")
    assert core.read(path)[0] == [Scenario.from_json(ROW)]


def test_a_split_is_named_or_is_a_file(tmp_path):
    assert core.resolve("dnd", "val") is core.packaged("dnd", "val")
    path = write_lines(tmp_path / "x.jsonl", ROW)
    assert core.resolve("dnd", str(path)) == (Scenario.from_json(ROW),)
    with pytest.raises(UsageError, match="unknown split 'tets'; did you mean 'test'"):
        core.resolve("dnd", "tets")
    with pytest.raises(UsageError, match="no such file"):
        core.resolve("dnd", str(tmp_path / "none.jsonl"))
    with pytest.raises(UsageError, match="is a directory"):
        core.resolve("dnd", str(tmp_path))
    with pytest.raises(UsageError, match="unknown environment 'chess'"):
        core.resolve("chess", "test")


def test_a_file_of_another_environment_is_refused(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "x.jsonl", ROW)
    monkeypatch.setattr(core, "ENVIRONMENTS", ("dnd", "go"))
    monkeypatch.setattr(core, "module", lambda env: dnd)
    with pytest.raises(DataError, match="scenario x is of dnd, expected go"):
        core.resolve("go", str(path))


def test_writing_where_nothing_can_be_written_is_said(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        core.write(tmp_path / "none" / "x.jsonl", core.packaged("dnd", "val"))
    with pytest.raises(DataError, match="cannot be written"):
        core.write(tmp_path, core.packaged("dnd", "val"))


def test_splits_are_shared_out_in_their_proportions():
    counts = dict.fromkeys(core.SPLITS, 0)
    for i in range(13_000):
        counts[core.split_of(str(i))] += 1
    assert counts == pytest.approx({"train": 10_000, "val": 1_000, "test": 2_000}, rel=0.1)
