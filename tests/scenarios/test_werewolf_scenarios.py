"""Werewolf's scenarios: their rules, and that the generator keeps them."""

from collections import Counter

import pytest

from scenarios import werewolf
from scenarios.core import Scenario, faults, generate, packaged

SEATS = werewolf.SEATS[:5]
GOOD = {
    "id": "w", "env": "werewolf", "split": "test", "source": "here",
    "names": dict(zip(SEATS, ("Ada", "Ben", "Cleo", "Dov", "Eva"), strict=True)),
    "personas": dict.fromkeys(SEATS, "You keep bees."),
    "roles": dict.fromkeys(SEATS, "villager") | {"p4": "wolf", "p5": "seer"},
}  # fmt: skip


def with_(key, **values):
    return GOOD | {key: GOOD[key] | values}


def without(key, *seats):
    return GOOD | {key: {seat: value for seat, value in GOOD[key].items() if seat not in seats}}


def test_a_good_scenario_has_no_fault_and_its_seats_may_stand_in_any_order():
    assert faults(GOOD) == []
    turned = GOOD | {"roles": dict(reversed(GOOD["roles"].items()))}
    assert faults(turned) == []
    assert werewolf.seats(turned["roles"]) == SEATS


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (with_("roles", p4="villager"), "roles has 0 wolves among 5, expected 1 to 1"),
        (with_("roles", p1="wolf"), "roles has 2 wolves among 5, expected 1 to 1"),
        (with_("roles", p1="seer"), "roles has 2 seers, expected one at most"),
        (with_("roles", p1="witch"), "roles.p1 is 'witch', expected villager, wolf or seer"),
        (with_("roles", p1=["wolf"]), "roles.p1 is ['wolf'], expected villager, wolf or seer"),
        (without("roles", "p2"), "roles names ['p1', 'p3', 'p4', 'p5'], expected p1 to p5"),
        (without("roles", "p5"), "expected p1 to p5"),
        (GOOD | {"roles": []}, "roles is [], expected an object with p1, p2"),
        (with_("names", p2="Ada"), "names has a name twice"),
        (with_("names", p2="ben the baker"), "names.p2 is 'ben the baker', expected a capitalised word"),
        (with_("names", p2=7), "names.p2 is 7, expected a text of one line"),
        (without("names", "p2"), "expected an object with p1, p2, p3, p4, p5"),
        (with_("personas", p3=""), "personas.p3 is '', expected a text of one line"),
        (with_("personas", p9="You keep bees."), "expected an object with p1, p2, p3, p4, p5"),
    ],
)
def test_what_breaks_a_rule_is_named(row, reason):
    found = "; ".join(faults(row))
    assert reason in found


def test_the_reward_needs_the_roles_alone():
    assert Scenario.from_json({"roles": GOOD["roles"]}, lenient=True, env="werewolf")["roles"] == GOOD["roles"]


def test_tables_of_every_size_have_their_wolves_and_now_and_then_a_seer():
    tables = [tuple(scenario["roles"].values()) for scenario in packaged("werewolf", "train")]
    assert Counter(map(len, tables)) == {5: 125, 6: 125, 7: 125, 8: 125}
    wolves = {size: {table.count("wolf") for table in tables if len(table) == size} for size in (5, 6, 7, 8)}
    assert wolves == {5: {1}, 6: {1}, 7: {1, 2}, 8: {1, 2}}
    assert 0.4 < sum("seer" in table for table in tables) / 500 < 0.6
    for seat in range(5):  # nobody's place tells the role
        assert 0.1 < sum(table[seat] == "wolf" for table in tables) / 500 < 0.35


def test_another_seed_gives_other_scenarios():
    one, two = generate("werewolf", 20, 1, "val"), generate("werewolf", 20, 2, "val")
    assert not {scenario.id for scenario in one} & {scenario.id for scenario in two}
