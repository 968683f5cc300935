"""The space of Deal or No Deal: exactly the rules, and the generator reaches all of it."""

from itertools import product

import pytest

from scenarios import core, dnd
from scenarios.errors import UsageError


def brute_force():
    """Every ordered scenario, straight from the rules."""
    found = set()
    for counts in product(range(1, 5), repeat=3):
        if 5 <= sum(counts) <= 7:
            values = [
                v for v in product(range(11), repeat=3) if sum(c * x for c, x in zip(counts, v, strict=True)) == 10
            ]
            for a, b in product(values, repeat=2):
                somebody = all(x + y > 0 for x, y in zip(a, b, strict=True))
                both = any(x > 0 and y > 0 for x, y in zip(a, b, strict=True))
                if somebody and both:
                    found.add((counts, a, b))
    return found


def content(scenario):
    values = scenario["values"]
    return dnd.triple(scenario["counts"]), dnd.triple(values["a"]), dnd.triple(values["b"])


def test_the_space_is_what_the_rules_allow():
    expected = brute_force()
    assert len(expected) == 5295
    assert len(dnd.space()) == 2706
    assert {(c, *seats) for c, a, b in dnd.space() for seats in ((a, b), (b, a))} == expected


def test_the_generator_reaches_every_game_once_over_the_three_splits():
    found = [dnd.groups(s.fields)[0] for split in core.SPLITS for s in dnd.generate(10_000, 3, split)]
    assert len(found) == len(set(found)) == 2706


def test_no_seed_puts_a_game_into_another_split():
    train = {group for s in core.generate("dnd", 800, 1, "train") for group in dnd.groups(s.fields)}
    test = {group for s in core.generate("dnd", 300, 2, "test") for group in dnd.groups(s.fields)}
    assert not train & test


def test_the_same_seed_draws_the_same_and_a_shorter_draw_is_its_beginning():
    assert core.generate("dnd", 40, 7, "val") == core.generate("dnd", 40, 7, "val")
    assert core.generate("dnd", 40, 7, "val")[:10] == core.generate("dnd", 10, 7, "val")
    assert core.generate("dnd", 40, 7, "val") != core.generate("dnd", 40, 8, "val")


def test_every_generated_scenario_keeps_the_rules_and_is_named_by_its_content():
    for scenario in core.generate("dnd", 150, 11, "train"):
        assert core.check(scenario) == []
        assert scenario.id == "dnd-" + "-".join(".".join(map(str, numbers)) for numbers in content(scenario))


def test_who_sits_where_is_drawn():
    drawn = [content(s) for s in core.generate("dnd", 400, 0, "train")]
    turned = sum(a > b for _, a, b in drawn)
    assert 140 < turned < 260


def test_more_scenarios_than_there_are_is_said():
    with pytest.raises(UsageError, match="dnd has only 211 distinct scenarios in the split val, 212 were asked for"):
        core.generate("dnd", 212, 0, "val")
    with pytest.raises(UsageError, match="at least 1"):
        core.generate("dnd", 0, 0, "val")
    with pytest.raises(UsageError, match="did you mean 'train'"):
        core.generate("dnd", 1, 0, "trian")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"counts": 3}, "counts is 3, expected an object with book, hat and ball"),
        ({"counts": {"book": 1, "hat": 2}}, "counts.ball is missing"),
        ({"counts": {"book": 1, "hat": 2, "ball": 3, "pen": 1}}, "counts has an unknown key 'pen'"),
        ({"counts": {"book": 0, "hat": 2, "ball": 3}}, "counts.book is 0, expected 1 to 4"),
        ({"counts": {"book": 5, "hat": 2, "ball": 3}}, "counts.book is 5, expected 1 to 4"),
        ({"counts": {"book": True, "hat": 2, "ball": 3}}, "counts.book is True, expected an integer"),
        ({"counts": {"book": 1.0, "hat": 2, "ball": 3}}, "counts.book is 1.0, expected an integer"),
        ({"values": []}, "values is [], expected an object with a and b"),
        ({"values": {"a": {"book": 1, "hat": 3, "ball": 1}}}, "values.b is missing"),
        ({"a": {"book": -1, "hat": 4, "ball": 1}}, "values.a.book is -1, expected 0 to 10"),
        ({"a": {"book": 2, "hat": 3, "ball": 1}}, "everything is worth 11 to a, expected 10"),
        ({"a": {"book": 10**30, "hat": 3, "ball": 1}}, "values.a.book is 1000000000000000000000000000000, expected"),
        ({"b": None}, "values.b is None, expected an object"),
        ({"a": {"book": 10, "hat": 0, "ball": 0}, "b": {"book": 4, "hat": 3, "ball": 0}}, "ball is worth nothing"),
        ({"a": {"book": 10, "hat": 0, "ball": 0}, "b": {"book": 0, "hat": 2, "ball": 2}}, "no item is worth something"),
        ({"counts": {"book": 1, "hat": 1, "ball": 1}}, "counts add up to 3, expected 5 to 7"),
    ],
)
def test_each_broken_rule_is_named(change, reason):
    values = {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}}
    values |= {seat: change[seat] for seat in ("a", "b") if seat in change}
    fields = {"counts": {"book": 1, "hat": 2, "ball": 3}, "values": values}
    fields |= {key: change[key] for key in ("counts", "values") if key in change}
    assert any(reason in found for found in dnd.check(fields)), dnd.check(fields)


def test_a_summary_reads_as_a_sentence():
    scenario = dnd.build((1, 2, 3), (1, 3, 1), (2, 1, 2), split="test", source="test")
    assert dnd.summary(scenario.fields) == "1 book, 2 hats, 3 balls · a values them 1/3/1 · b values them 2/1/2"
