"""What a job interview pays: the worked example, the whole space of deals, and its speed."""

import json
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards import job_interview as rules
from rewards.core import score
from scenarios.core import Scenario, packaged
from scenarios.errors import DataError
from scenarios.job_interview import COMPANIES, ISSUES, POSITIONS, SEATS, WORKPLACES, numbers

TEST = packaged("job_interview", "test")


def options(position, workplace, company):
    """Values in listed order; the same positions at every company."""
    return {
        "workplace": dict(zip(WORKPLACES, workplace, strict=True)),
        "company": dict(zip(COMPANIES, company, strict=True)),
        "position": {name: dict(zip(POSITIONS, position, strict=True)) for name in COMPANIES},
    }


FIELDS = {
    "weights": {
        "worker": dict(zip(ISSUES, (0.35, 0.05, 0.3, 0.2, 0.1), strict=True)),
        "recruiter": dict(zip(ISSUES, (0.2, 0.2, 0.1, 0.2, 0.3), strict=True)),
    },
    "options": {
        "worker": options((1, 0.5, 0.2, 0), (1, 0.6, 0.3, 0), (1, 0.7, 0.3, 0)),
        "recruiter": options((0, 0.4, 1, 0.7), (0.2, 0, 1, 0.5), (0, 0.5, 0.4, 1)),
    },
}
WORKED = Scenario.from_json(FIELDS, lenient=True, env="job_interview")
BEST = {"salary": 50, "weekly_holiday": 2, "position": "Engineer", "workplace": "Beijing", "company": "Amazon"}


def agreed(**change):
    return {"status": "agreement", "agreement": {**BEST, **change}}


def test_the_worked_example_has_its_deal_and_references():
    facts = rules.analyse(numbers(FIELDS))
    assert rules.deal_of(facts.best) == BEST
    # worker .35·1 + .05·0 + .3·1 + .2·.3 + .1·0 = .71; recruiter .2·0 + .2·1 + .1·0 + .2·1 + .3·1 = .70
    assert facts.references == pytest.approx((0.71, 0.70))
    seats = score(WORKED, agreed()).seats
    assert [(got.utility, got.reference) for got in seats.values()] == [
        pytest.approx((0.71, 0.71)),
        pytest.approx((0.70, 0.70)),
    ]


def test_a_deal_is_paid_by_its_utility_by_hand():
    # worker .35·10/30 + .05·2/4 + .3·.2 + .2·.6 + .1·.7 = .116667 + .025 + .06 + .12 + .07 = .391667
    # recruiter .2·20/30 + .2·2/4 + .1·1 + .2·0 + .3·.5 = .133333 + .1 + .1 + 0 + .15 = .483333
    other = agreed(salary=30, weekly_holiday=4, position="Designer", workplace="Seoul", company="Facebook")
    seats = score(WORKED, other).seats
    assert [got.raw for got in seats.values()] == pytest.approx([0.391667, 0.483333], abs=1e-6)
    assert [got.utility for got in seats.values()] == [got.raw for got in seats.values()]


def test_position_is_looked_up_jointly_with_company():
    fields = json.loads(json.dumps(FIELDS))
    fields["options"]["worker"]["position"]["Apple"] = dict(zip(POSITIONS, (0, 0, 1, 0), strict=True))
    scenario = Scenario.from_json(fields, lenient=True, env="job_interview")
    paid = {
        (company, position): score(scenario, agreed(company=company, position=position)).seats["worker"].utility
        for company, position in product(("Apple", "Amazon"), ("Engineer", "Designer"))
    }
    assert paid["Apple", "Designer"] - paid["Apple", "Engineer"] == pytest.approx(0.3)  # weight .3 · (1 - 0)
    assert paid["Amazon", "Designer"] - paid["Amazon", "Engineer"] == pytest.approx(-0.24)  # .3 · (.2 - 1)


@pytest.mark.parametrize("status", ["walk_away", "timeout", "aborted"])
def test_no_deal_pays_nothing(status):
    found = score(WORKED, {"status": status})
    assert [(got.raw, got.reward) for got in found.seats.values()] == [(0.0, 0.0), (0.0, 0.0)]
    assert found.measures["joint_share"] == found.measures["nash_share"] == 0


def test_all_deals_at_once_are_worth_what_each_is_worth_alone():
    for scenario in (WORKED, TEST[0]):
        for seat, own in zip(SEATS, numbers(scenario.fields), strict=True):
            every = rules.utilities(own, seat)
            assert every.shape == (9920,)
            assert every.tolist() == [rules.utility(own, seat, number) for number in range(9920)]


def test_deals_are_numbered_in_the_order_of_the_issues():
    deals = [rules.deal_of(number) for number in range(rules.DEALS)]
    order = [
        dict(zip(ISSUES, deal, strict=True))
        for deal in product(range(20, 51), range(2, 7), POSITIONS, WORKPLACES, COMPANIES)
    ]
    assert deals == order
    assert [rules.number_of(deal) for deal in deals] == list(range(9920))


def slow_reference(fields):
    """d* straight from the definition: the largest (min, sum), the first of those within 1e-9."""
    worker, recruiter = numbers(fields)
    best = None
    for number in range(rules.DEALS):
        one, other = rules.utility(worker, "worker", number), rules.utility(recruiter, "recruiter", number)
        if best is None or min(one, other) > best[0] + 1e-9:
            best = (min(one, other), one + other, number)
        elif min(one, other) >= best[0] - 1e-9 and one + other > best[1] + 1e-9:
            best = (max(best[0], min(one, other)), one + other, number)
    return best[2]


@pytest.mark.parametrize("number", range(0, 100, 20))
def test_the_reference_is_what_the_definition_says(number):
    assert rules.analyse(numbers(TEST[number].fields)).best == slow_reference(TEST[number].fields)


def test_ties_go_to_the_larger_sum_and_then_to_the_first_deal():
    flat = {"worker": options(*[(0, 0, 0, 0)] * 3), "recruiter": options(*[(0, 0, 0, 0)] * 3)}
    weights = {seat: dict(zip(ISSUES, (0, 0, 0.5, 0.25, 0.25), strict=True)) for seat in SEATS}
    nothing = {"weights": weights, "options": flat}
    assert rules.analyse(numbers(nothing)).best == 0  # all deals are worth 0 to both
    better = json.loads(json.dumps(nothing))
    better["options"]["recruiter"]["workplace"] = {"Tokyo": 0, "Seoul": 1, "Beijing": 1, "Sydney": 0}
    facts = rules.analyse(numbers(better))
    assert rules.deal_of(facts.best) == {  # the minimum is 0 everywhere, Seoul adds .25 and comes before Beijing
        "salary": 20,
        "weekly_holiday": 2,
        "position": "Engineer",
        "workplace": "Seoul",
        "company": "Google",
    }
    assert score(Scenario("", "job_interview", "", "", nothing), {"status": "aborted"}).measures["joint_share"] == 0


def test_a_scenarios_reference_takes_under_five_milliseconds_and_is_computed_once():
    spent = []
    for scenario in TEST[:20]:
        rules.analyse.cache_clear()
        start = time.process_time()
        score(scenario, {"status": "aborted"})
        spent.append(time.process_time() - start)
    assert min(spent) < 0.005
    rules.analyse.cache_clear()
    for _ in range(5):
        score(TEST[0], agreed())
    assert rules.analyse.cache_info().misses == 1


def test_the_frontier_is_what_the_definition_says():
    worker, recruiter = numbers(TEST[1].fields)
    one, other = rules.utilities(worker, "worker"), rules.utilities(recruiter, "recruiter")
    points = {(x, y) for x, y in zip(one.tolist(), other.tolist(), strict=True)}
    frontier = {tuple(point) for point in rules.analyse((worker, recruiter)).frontier.tolist()}
    assert frontier <= points
    for x, y in frontier:
        assert not np.any((one >= x) & (other >= y) & ((one > x) | (other > y)))
    best = {x: max(v for u, v in points if u >= x) for x, _ in frontier}
    assert all(best[x] == y for x, y in frontier)
    sample = range(0, rules.DEALS, 97)
    for number in sample:
        dominated = np.any(
            (one >= one[number]) & (other >= other[number]) & ((one > one[number]) | (other > other[number]))
        )
        assert dominated or (one[number], other[number]) in frontier


@given(scenario=st.sampled_from(TEST), number=st.integers(0, rules.DEALS - 1))
def test_rewards_and_measures_lie_between_zero_and_one(scenario, number):
    found = score(scenario, {"status": "agreement", "agreement": rules.deal_of(number)})
    assert all(0 <= got.reward <= 1 and 0 <= got.utility <= 1 for got in found.seats.values())
    assert all(-1e-9 <= value <= 1 + 1e-9 for key, value in found.measures.items() if key != "pareto_distance")


@pytest.mark.parametrize(
    ("agreement", "reason"),
    [
        ({}, "does not name the salary"),
        ({"salary": 35}, "does not name the weekly_holiday"),
        ({**BEST, "salary": 51}, "has the salary 51, expected 20 to 50"),
        ({**BEST, "salary": 35.5}, "has the salary 35.5, expected a whole number"),
        ({**BEST, "salary": 35.0}, "has the salary 35.0, expected a whole number"),
        ({**BEST, "salary": True}, "has the salary True, expected a whole number"),
        ({**BEST, "salary": "35"}, "has the salary '35', expected a whole number"),
        ({**BEST, "weekly_holiday": 7}, "has the weekly_holiday 7, expected 2 to 6"),
        ({**BEST, "position": "Janitor"}, "has the position 'Janitor', expected Engineer, Manager, Designer or Sales"),
        ({**BEST, "workplace": ["Tokyo"]}, "has the workplace ['Tokyo'], expected Tokyo"),
        ({**BEST, "company": None}, "has the company None, expected Google"),
        ({**BEST, "bonus": 3}, "has an unknown issue 'bonus'"),
        ("Amazon", "is 'Amazon', expected an object"),
    ],
)
def test_an_impossible_agreement_is_refused_with_its_reason(agreement, reason):
    with pytest.raises(DataError) as error:
        score(WORKED, {"status": "agreement", "agreement": agreement})
    assert f"agreement {reason}" in str(error.value)


def test_a_score_prints_as_the_documented_json():
    printed = score(WORKED, agreed()).to_json()
    assert json.loads(json.dumps(printed)) == printed
    assert set(printed["seats"]) == {"worker", "recruiter"}
    assert set(printed["measures"]) == {"pareto_distance", "joint_share", "nash_share"}
