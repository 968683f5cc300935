"""What is the interview's own: five issues, public directions, private weights and values."""

import pytest

import envs
from envs.agents.job_interview import deals
from envs.core import Action, run
from envs.job_interview import answers, brief, tell
from scenarios.core import packaged

SCENARIO = packaged("job_interview", "test")[0]
DEAL = {"salary": 35, "weekly_holiday": 4, "position": "Designer", "workplace": "Seoul", "company": "Apple"}


class Moves:
    def __init__(self, *moves):
        self.moves, self.asked = list(moves), []

    async def decide(self, context, actions):
        self.asked.append(context[-1])
        return self.moves.pop(0)


def offer(**change):
    return Action("propose", {"offer": {**DEAL, **change}, "say": "So?"})


async def game(worker, recruiter):
    env = envs.make(SCENARIO, seed=3)
    agents = {"worker": Moves(*worker), "recruiter": Moves(*recruiter)}
    await run(env, agents)
    return env, agents


async def test_the_worker_opens_and_an_offer_means_the_same_to_both():
    env, agents = await game([offer()], [Action("accept")])
    assert env.outcome.agreement == DEAL
    turn = agents["recruiter"].asked[0].payload
    assert turn["standing"] == DEAL
    assert turn["worth"] == pytest.approx(env.outcome.seats["recruiter"].utility, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"salary": 51}, "offer has the salary 51, expected 20 to 50"),
        ({"salary": 35.5}, "offer has the salary 35.5, expected a whole number"),
        ({"company": "Netflix"}, "offer has the company 'Netflix', expected Google, Facebook, Apple or Amazon"),
        ({"bonus": 1}, "offer has an unknown issue 'bonus'"),
    ],
)
async def test_an_offer_names_all_five_issues_within_their_bounds(change, reason):
    env, _ = await game([offer(**change), Action("walk_away")], [])
    found = [event.payload["reason"] for event in env.channels["worker"].events if event.type == "invalid_action"]
    assert found == [reason]
    assert env.outcome.status == "walk_away"
    assert {got.reward for got in env.outcome.seats.values()} == {0}


async def test_each_seat_is_briefed_on_its_own_numbers_alone():
    env, _ = await game([Action("walk_away")], [])
    for seat in env.seats:
        facts = env.channels[seat].events[0].payload
        assert facts["weights"] == SCENARIO["weights"][seat]
        assert facts["options"] == SCENARIO["options"][seat]


async def test_the_brief_tells_rules_weights_values_and_direction():
    env, _ = await game([Action("walk_away")], [])
    for seat, rising in (("worker", True), ("recruiter", False)):
        event = env.channels[seat].events[0]
        full, compact = brief(event, "full"), brief(event, "compact")
        assert f"You are the {seat} in a job interview." in full
        for issue, weight in SCENARIO["weights"][seat].items():
            assert f"{issue}: " in full
            assert f"(at most {100 * weight:.3g} points for you)" in full
            assert f"{issue} {100 * weight:.3g}" in compact
        assert ("all their points at their highest" in full) is rising
        assert ("salary holiday up" in compact) is rising
        for part in ("workplace", "company"):
            for option, value in SCENARIO["options"][seat][part].items():
                assert f"{option} {100 * value:.3g}" in full
                assert f"{option} {100 * value:.3g}" in compact
        assert len(compact) < len(full) / 2
    assert '"company":"Apple"' in answers(event)


async def test_offers_are_told_in_each_prompt():
    env, agents = await game([offer()], [Action("accept")])
    proposal = next(event for event in env.channels["recruiter"].events if event.type == "proposal")
    full = "the terms are salary 35, weekly_holiday 4, position Designer, workplace Seoul, company Apple"
    assert tell(proposal, "recruiter", "full") == f'The other side offers: {full}. It says: "So?"'
    assert tell(agents["recruiter"].asked[0], "recruiter", "compact").startswith("35 4 Designer Seoul Apple =")


def test_the_schema_of_an_offer_bounds_numbers_and_lists_options():
    every, openers = envs.make(SCENARIO, seed=0).specs()
    (propose,) = [spec for spec in openers if spec.name == "propose"]
    issues = propose.fields["properties"]["offer"]["properties"]
    assert (issues["salary"]["minimum"], issues["salary"]["maximum"]) == (20, 50)
    assert issues["workplace"]["enum"] == ["Tokyo", "Seoul", "Beijing", "Sydney"]
    assert [spec.name for spec in every] == list(envs.module("job_interview").MOVES)


@pytest.mark.parametrize("seat", ["worker", "recruiter"])
def test_the_deals_are_all_deals_and_the_least_one_is_found_by_own_utility(seat):
    briefing = {"seat": seat, "weights": SCENARIO["weights"][seat], "options": SCENARIO["options"][seat]}
    space = deals(briefing)
    mine = list(space.mine)
    assert len(mine) == len(space.offers) == 9920
    assert mine[space.best] == pytest.approx(1)
    for aspiration in (0, 0.123, 0.5, 0.77, 0.999, 1):
        enough = [i for i, value in enumerate(mine) if value >= aspiration - 1e-9]
        least = min(mine[i] for i in enough)
        alike = [i for i in enough if mine[i] <= least + 1e-9]
        best = max(space.guess[i] for i in alike)
        assert sorted(space.least(aspiration)) == [i for i in alike if space.guess[i] >= best - 1e-9]
    for number in range(0, 9920, 991):
        assert space.index(space.offers[number]) == space.number(space.offers[number]) == number
    guess = space.guess  # of salary and holiday alone, .2 each: one unit of salary is worth .2/30
    step = space.index({**DEAL, "salary": 36}) - space.index(DEAL)
    assert abs(guess[step] - guess[0]) == pytest.approx(0.2 / 30)


def test_a_deal_is_about_what_is_worth_most_in_it_to_its_author():
    weights = {"salary": 0.1, "weekly_holiday": 0.1, "position": 0.1, "workplace": 0.6, "company": 0.1}
    space = deals({"seat": "worker", "weights": weights, "options": SCENARIO["options"]["worker"]})
    assert space.about[space.best] == "the workplace"
