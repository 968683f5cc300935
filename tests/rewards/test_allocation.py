"""Divisions of items: worked references, and the definitions checked by brute force."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards import allocation
from rewards.allocation import Game, allocations, analyse, efficiency, envy, pareto_optimal

CASINO = (3, 3, 3)  # food, water, firewood; high, medium, low are worth 5, 4, 3


def casino(a, b):
    return Game(CASINO, a, b, 36)


@st.composite
def games(draw):
    counts = draw(st.tuples(*[st.integers(1, 4)] * 3))
    values = st.tuples(*[st.integers(0, 6)] * 3)
    return Game(counts, draw(values), draw(values), 10)


@pytest.mark.parametrize(
    ("game", "m_a", "m_b"),
    [
        (Game((1, 2, 3), (1, 3, 1), (2, 1, 2), 10), 0.7, 0.8),
        (Game((1, 1, 3), (0, 1, 3), (1, 0, 3), 10), 0.4, 0.7),  # no envy-free one
        (casino((5, 4, 3), (3, 4, 5)), 0.638889, 0.638889),  # opposed orders
        (casino((5, 4, 3), (5, 4, 3)), 0.5, 0.5),  # the same order
        (casino((5, 4, 3), (4, 5, 3)), 0.583333, 0.583333),
    ],
)
def test_references_have_their_worked_numbers(game, m_a, m_b):
    facts = analyse(game)
    assert (facts.reference_a, facts.reference_b) == pytest.approx((m_a, m_b), abs=1e-6)


def test_the_worked_game_without_an_envy_free_division_by_hand():
    # One book, one hat, three balls; a values (0, 1, 3), b values (1, 0, 3): whoever has two balls is envied.
    # On the frontier a has the hat, b the book: a 1+3k, b 1+3(3-k). k=1 and k=2 are envied by 10-2·4 = 2 points,
    # both have sum 11 and minimum 4: the lexicographically smaller bundle of a is (0, 1, 1), so a 4, b 7.
    game = Game((1, 1, 3), (0, 1, 3), (1, 0, 3), 10)
    assert not [x for x in pareto_optimal(allocations(game)) if max(envy(game, x.bundle)) <= 0]
    assert [(x.bundle, x.a, x.b) for x in pareto_optimal(allocations(game))] == [
        ((0, 1, 0), 1, 10),
        ((0, 1, 1), 4, 7),
        ((0, 1, 2), 7, 4),
        ((0, 1, 3), 10, 1),
    ]


def test_every_division_is_listed_once_in_lexicographic_order():
    found = [x.bundle for x in allocations(Game((1, 2, 1), (1, 1, 1), (1, 1, 1), 4))]
    assert len(found) == 2 * 3 * 2
    assert found == sorted(set(found))


@given(games())
def test_the_frontier_is_what_the_definition_says(game):
    every = allocations(game)

    def beaten(x):
        return any(y.a >= x.a and y.b >= x.b and (y.a > x.a or y.b > x.b) for y in every)

    assert pareto_optimal(every) == [x for x in every if not beaten(x)]


@given(games())
def test_the_reference_is_what_the_definition_says(game):
    """A plain restatement: filter, then maximum, else the smallest envy with its three tie rules."""
    optimal = pareto_optimal(allocations(game))
    fair = []
    for x in optimal:
        other = allocation.rest(game.counts, x.bundle)
        own_a, own_b = allocation.points(game.a, x.bundle), allocation.points(game.b, other)
        if own_a >= allocation.points(game.a, other) and own_b >= allocation.points(game.b, x.bundle):
            fair.append(x)
    if fair:
        expected = max(x.a for x in fair), max(x.b for x in fair)
    else:
        least = min(max(envy(game, x.bundle)) for x in optimal)
        best = [x for x in optimal if max(envy(game, x.bundle)) == least]
        best = [x for x in best if x.a + x.b == max(y.a + y.b for y in best)]
        best = [x for x in best if min(x.a, x.b) == max(min(y.a, y.b) for y in best)]
        expected = min(best).a, min(best).b
    assert allocation.reference(game, optimal) == expected


@given(games())
def test_the_frontier_wastes_nothing_and_everything_else_is_off_it(game):
    frontier = {(x.a, x.b) for x in pareto_optimal(allocations(game))}
    for x in allocations(game):
        measures = efficiency(game, x.a, x.b)
        assert (measures["pareto_distance"] == 0) == ((x.a, x.b) in frontier)
        assert 0 <= measures["joint_share"] <= 1
        assert 0 <= measures["nash_share"] <= 1


def test_efficiency_by_hand():
    # counts (1,2,3), a (1,3,1), b (2,1,2). a takes hats and book: 7 and 6. Largest sum: a both hats 6, b the rest 8.
    # Largest product: 6·8 = 48.
    game = Game((1, 2, 3), (1, 3, 1), (2, 1, 2), 10)
    assert efficiency(game, 7, 6) == {"pareto_distance": 0.0, "joint_share": 13 / 14, "nash_share": 42 / 48}
    # No deal: the nearest point of the frontier to (0, 0) is (8, 4), sqrt(80) points away; (7, 6) is sqrt(85).
    assert efficiency(game, 0, 0)["pareto_distance"] == pytest.approx(0.894427, abs=1e-6)


@settings(max_examples=30)
@given(games())
def test_exchanging_the_seats_exchanges_frontier_and_fair_references(game):
    turned = Game(game.counts, game.b, game.a, game.total)
    assert {(b, a) for a, b in analyse(turned).frontier} == set(analyse(game).frontier)
    fair = any(max(envy(game, x.bundle)) <= 0 for x in pareto_optimal(allocations(game)))
    if fair:  # without an envy-free division the last tie rule looks at seat a's bundle
        assert (analyse(turned).reference_b, analyse(turned).reference_a) == analyse(game)[:2]
