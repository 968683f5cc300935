"""What Deal or No Deal pays, by the worked table and by properties over the whole space."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.core import score
from rewards.division import bundle_fault
from rewards.dnd import references, utility
from scenarios import dnd
from scenarios.core import Scenario, packaged
from scenarios.errors import DataError

ROW = {
    "counts": {"book": 1, "hat": 2, "ball": 3},
    "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}},
}
WORKED = Scenario.from_json(ROW, lenient=True, env="dnd")


def bundle(book, hat, ball):
    return {"book": book, "hat": hat, "ball": ball}


def deal(**parts):
    return {"status": "agreement", "agreement": {seat: bundle(*part) for seat, part in parts.items()}}


@st.composite
def played(draw):
    """Any scenario of the space and any division of it."""
    counts, x, y = draw(st.sampled_from(dnd.space()))
    a, b = draw(st.permutations([x, y]))
    taken = draw(st.tuples(*(st.integers(0, count) for count in counts)))
    return dnd.build(counts, a, b, split="test", source="test"), taken


@pytest.mark.parametrize(
    ("taken", "raw", "reward"),
    [((1, 2, 0), (7, 6), (0.597121, 0.351935)), ((0, 2, 0), (6, 8), (0.441767, 0.675968))],
)
def test_the_worked_deals_pay_their_numbers(taken, raw, reward):
    seats = score(WORKED, deal(a=taken)).seats
    assert (seats["a"].raw, seats["b"].raw) == raw
    assert (seats["a"].utility, seats["b"].utility) == (raw[0] / 10, raw[1] / 10)
    assert (seats["a"].reference, seats["b"].reference) == (0.7, 0.8)
    assert (seats["a"].reward, seats["b"].reward) == pytest.approx(reward, abs=1e-6)


@pytest.mark.parametrize("status", ["walk_away", "timeout", "aborted"])
def test_no_deal_pays_nothing(status):
    found = score(WORKED, {"status": status, "by": "a"} if status == "walk_away" else {"status": status})
    assert found.status == status
    assert [seat.reward for seat in found.seats.values()] == [0.0, 0.0]
    assert [seat.raw for seat in found.seats.values()] == [0, 0]
    assert found.measures["joint_share"] == 0.0


def test_an_agreement_may_name_either_part_or_both():
    assert score(WORKED, deal(a=(1, 2, 0))) == score(WORKED, deal(b=(0, 0, 3)))
    assert score(WORKED, deal(a=(1, 2, 0))) == score(WORKED, deal(a=(1, 2, 0), b=(0, 0, 3)))


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ([], "an outcome is a JSON object"),
        ({}, "status is missing"),
        ({"status": "deal"}, "status is 'deal'"),
        ({"status": True}, "status is True"),
        ({"status": ["agreement"]}, "status is"),
        ({"status": "agreement"}, "agreement is missing"),
        ({"status": "agreement", "agreement": None}, "agreement is missing"),
        ({"status": "timeout", "agreement": {"a": bundle(1, 2, 0)}}, "though the status is timeout"),
        ({"status": "walk_away", "by": "c"}, "by is 'c'"),
        ({"status": "walk_away", "by": ["a"]}, "by is"),
        ({"status": "agreement", "agreement": {}}, "expected an object with what a or b takes"),
        ({"status": "agreement", "agreement": "a"}, "expected an object with what a or b takes"),
        ({"status": "agreement", "agreement": {"price": 190}}, "names 'price'"),
        ({"status": "agreement", "agreement": {"a": 3}}, "a's part is 3"),
        ({"status": "agreement", "agreement": {"a": {"book": 1, "hat": 2}}}, "does not say how many of ball"),
        ({"status": "agreement", "agreement": {"a": {**bundle(1, 2, 0), "pen": 1}}}, "unknown item 'pen'"),
        (deal(a=(2, 2, 0)), "has 2 of book, expected 0 to 1"),
        (deal(a=(-1, 2, 0)), "has -1 of book"),
        (deal(a=(0.5, 2, 0)), "has 0.5 of book, expected an integer"),
        (deal(a=(1.0, 2, 0)), "has 1.0 of book, expected an integer"),
        (deal(a=(True, 2, 0)), "has True of book, expected an integer"),
        (deal(a=("1", 2, 0)), "has '1' of book, expected an integer"),
        (deal(a=(None, 2, 0)), "has None of book, expected an integer"),
        (deal(a=(float("nan"), 2, 0)), "has nan of book"),
        (deal(a=(10**5000, 2, 0)), "has a int too large to print of book"),
        (deal(a=(1, 2, 0), b=(0, 0, 2)), "the parts do not add up"),
        (deal(a=(1, 2, 0), b=(1, 0, 3)), "the parts do not add up"),
    ],
)
def test_an_impossible_outcome_is_refused_with_its_reason(outcome, reason):
    with pytest.raises(DataError) as error:
        score(WORKED, outcome)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@given(played())
def test_every_reward_lies_between_zero_and_one_and_nobody_is_paid_from_nowhere(game):
    scenario, taken = game
    found = score(scenario, deal(a=taken))
    assert all(0 <= seat.reward <= 1 for seat in found.seats.values())
    values, counts = scenario["values"], dnd.triple(scenario["counts"])
    rest = tuple(c - t for c, t in zip(counts, taken, strict=True))
    assert found.seats["a"].utility == utility(counts, dnd.triple(values["a"]), taken)
    assert found.seats["b"].utility == utility(counts, dnd.triple(values["b"]), rest)


@given(played())
def test_taking_one_more_useful_unit_pays_more(game):
    scenario, taken = game
    counts, values = dnd.triple(scenario["counts"]), dnd.triple(scenario["values"]["a"])
    for i in range(3):
        if taken[i] < counts[i] and values[i]:
            more = tuple(units + (i == j) for j, units in enumerate(taken))
            assert score(scenario, deal(a=more)).seats["a"].reward > score(scenario, deal(a=taken)).seats["a"].reward


@given(played())
def test_the_same_deal_with_the_seats_exchanged_gives_the_exchanged_points(game):
    scenario, taken = game
    counts, a, b = (dnd.triple(x) for x in (scenario["counts"], scenario["values"]["a"], scenario["values"]["b"]))
    turned = dnd.build(counts, b, a, split="test", source="test")
    one, other = score(scenario, deal(a=taken)), score(turned, deal(b=taken))
    assert (one.seats["a"].raw, one.seats["b"].raw) == (other.seats["b"].raw, other.seats["a"].raw)
    assert one.measures == other.measures


def test_references_of_the_packaged_scenarios_leave_room_for_both():
    for scenario in packaged("dnd", "test"):
        m = references(scenario)
        assert 0 < m["a"] <= 1
        assert 0 < m["b"] <= 1


def test_a_score_is_the_callers_own():
    first = score(WORKED, deal(a=(1, 2, 0)))
    first.measures.clear()
    first.seats.clear()
    assert score(WORKED, deal(a=(1, 2, 0))).measures["joint_share"] == pytest.approx(13 / 14)


def test_a_score_prints_as_the_documented_json():
    found = json.loads(json.dumps(score(WORKED, deal(a=(1, 2, 0))).to_json()))
    assert list(found) == ["env", "status", "seats", "measures"]
    assert list(found["seats"]["a"]) == ["raw", "utility", "reference", "reward"]
    assert set(found["measures"]) == {"pareto_distance", "joint_share", "nash_share"}


def test_a_legal_part_has_no_fault():
    assert bundle_fault(dnd.ITEMS, (1, 2, 3), bundle(0, 2, 3)) is None


def test_scoring_a_known_scenario_again_is_quick():
    outcome = deal(a=(1, 2, 0), b=(0, 0, 3))
    score(WORKED, outcome)
    best = float("inf")
    for _ in range(20):  # the best of many short runs: other work on the machine does not count
        start = time.perf_counter()
        for _ in range(100):
            score(WORKED, outcome)
        best = min(best, (time.perf_counter() - start) / 100)
    assert best < 100e-6  # about 10 µs on a free core
