"""The campers' scenarios: the rules, the generator, the personas."""

from collections import Counter

import pytest

from scenarios import casino, core
from scenarios.casino_personas import OPENERS, personas
from scenarios.core import Scenario, packaged

ORDER = ["food", "water", "firewood"]
REASONS = {item: f"I like {item}." for item in ORDER}
FIELDS = {
    "priorities": {"a": ORDER, "b": ORDER},
    "personas": {"a": "a cook", "b": "a clown"},
    "reasons": {"a": REASONS, "b": REASONS},
}


def test_sixty_personas_have_their_own_reasons_and_one_split():
    every = [persona for split in core.SPLITS for persona in personas(split)]
    assert len({persona.who for persona in every}) == len(every) == 60
    reasons = [text for persona in every for pair in persona.reasons for text in pair]
    assert len(set(reasons)) == len(reasons) == 360
    assert all(len(persona.reasons) == len(casino.ITEMS) for persona in every)


def test_no_persona_stands_in_two_packaged_splits():
    seen = {split: {who for s in packaged("casino", split) for who in s["personas"].values()} for split in core.SPLITS}
    assert {split: len(who) for split, who in seen.items()} == {"train": 30, "val": 12, "test": 18}
    assert not seen["train"] & seen["val"]
    assert not seen["train"] & seen["test"]
    assert not seen["val"] & seen["test"]


@pytest.mark.parametrize(("split", "n"), [("train", 500), ("val", 50), ("test", 100)])
def test_the_packaged_splits_are_what_the_generator_gives(split, n):
    assert list(packaged("casino", split)) == core.generate("casino", n, 0, split)


def test_the_same_seed_draws_the_same_and_a_shorter_draw_is_its_beginning():
    assert core.generate("casino", 40, 7, "val") == core.generate("casino", 40, 7, "val")
    assert core.generate("casino", 40, 7, "val")[:10] == core.generate("casino", 10, 7, "val")
    assert core.generate("casino", 40, 7, "val") != core.generate("casino", 40, 8, "val")


def test_generated_scenarios_keep_the_rules_and_no_game_is_drawn_twice():
    found = core.generate("casino", 2000, 3, "val")
    games = set()
    for scenario in found:
        assert core.check(scenario) == []
        sides = [(scenario["personas"][seat], *scenario["priorities"][seat]) for seat in casino.SEATS]
        games.add(tuple(sorted(sides)))
        assert sides[0][0] != sides[1][0]
    assert len(games) == len({scenario.id for scenario in found}) == 2000


def test_every_pair_of_orders_is_reached_the_same_order_too():
    orders = Counter(tuple(tuple(s["priorities"][seat]) for seat in "ab") for s in packaged("casino", "train"))
    assert len(orders) == 36
    assert sum(n for (a, b), n in orders.items() if a == b) > 40  # 500/6


def test_how_a_reason_begins_follows_the_priority():
    for scenario in packaged("casino", "val"):
        for seat in casino.SEATS:
            for level, item in enumerate(scenario["priorities"][seat]):
                assert scenario["reasons"][seat][item].startswith(OPENERS[level])


def test_the_points_of_a_package_follow_the_order():
    assert casino.points_of(("firewood", "food", "water")) == (4, 3, 5)
    assert sum(3 * points for points in casino.points_of(tuple(ORDER))) == casino.TOTAL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"priorities": []}, "priorities is [], expected an object with a and b"),
        ({"priorities": {"a": ORDER}}, "priorities.b is missing"),
        ({"priorities": {"a": ORDER, "b": ORDER, "c": ORDER}}, "priorities has an unknown key 'c'"),
        ({"priorities": {"a": "food", "b": ORDER}}, "priorities.a is 'food', expected a list"),
        ({"priorities": {"a": [1, 2, 3], "b": ORDER}}, "priorities.a is [1, 2, 3], expected a list"),
        ({"priorities": {"a": ["food", "food", "water"], "b": ORDER}}, "expected food, water and firewood once each"),
        ({"priorities": {"a": ["Food", "Water", "Firewood"], "b": ORDER}}, "once each"),
        ({"priorities": {"a": ["food", "water"], "b": ORDER}}, "once each"),
        ({"personas": {"a": "a cook"}}, "personas.b is missing"),
        ({"personas": {"a": "a cook", "b": " "}}, "personas.b is ' ', expected a text"),
        ({"personas": "cooks"}, "personas is 'cooks', expected an object"),
        ({"reasons": {"a": REASONS}}, "reasons.b is missing"),
        ({"reasons": {"a": REASONS, "b": {"food": "x"}}}, "reasons.b.water is missing"),
        ({"reasons": {"a": REASONS, "b": {**REASONS, "water": 3}}}, "reasons.b.water is 3, expected a text"),
        ({"reasons": {"a": REASONS, "b": "none"}}, "reasons.b is 'none', expected an object"),
    ],
)
def test_each_broken_rule_is_named(change, reason):
    assert casino.check(FIELDS) == []
    assert any(reason in found for found in casino.check({**FIELDS, **change})), casino.check({**FIELDS, **change})


def test_the_priorities_are_enough_for_scoring():
    Scenario.from_json({"priorities": FIELDS["priorities"]}, lenient=True, env="casino")
    with pytest.raises(core.DataError, match="personas is missing"):
        Scenario.from_json({"priorities": FIELDS["priorities"]}, env="casino")


def test_a_summary_reads_as_a_sentence():
    assert casino.summary(FIELDS).startswith("a (a cook) wants food > water > firewood · b (a clown) wants food")
