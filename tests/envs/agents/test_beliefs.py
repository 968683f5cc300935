"""What the planner learns in a game of thousands of deals: the prior, and what an offer and a refusal say."""

import asyncio
import random

import numpy as np
import pytest

import envs
from envs.agents.beliefs import LOOSE, WAYS, Linear, clocks
from envs.agents.job_interview import deals, plausible
from envs.agents.scripted import scripted
from envs.core import run
from rewards.job_interview import utilities
from scenarios import job_interview as job
from scenarios.core import packaged

TEST = packaged("job_interview", "test")
WORKER, RECRUITER = job.numbers(TEST[0].fields)
BRIEFING = {"seat": "worker", "weights": TEST[0]["weights"]["worker"], "options": TEST[0]["options"]["worker"]}


def worths(numbers):
    """What each feature is worth to the seat of these numbers."""
    salary, holiday, position, workplace, company = numbers[:5]
    jobs = [company * numbers[9 + i] + position * numbers[13 + 4 * i + j] for i in range(4) for j in range(4)]
    return np.array([salary, holiday, *(workplace * value for value in numbers[5:9]), *jobs])


def test_a_utility_is_linear_in_the_features():
    features = plausible("recruiter", WORKER)
    assert features.columns @ worths(RECRUITER) == pytest.approx(utilities(RECRUITER, "recruiter"))


def test_the_prior_has_the_moments_of_counterparts_that_the_generator_may_draw():
    rng = random.Random(1)

    def drawn(opposite):
        while True:
            values = job.drawn_values(rng)
            if job.opposed(opposite, values):
                return values

    rows = []
    for _ in range(4000):
        parts = [drawn(WORKER[i : i + 4]) for i in range(5, len(WORKER), 4)]
        rows.append(worths((*job.drawn_weights(rng).values(), *(value for part in parts for value in part))))
    features = plausible("recruiter", WORKER)
    # standard errors: .16 / √4000 = .0026 of a mean, about .03 / √4000 = .0005 of a covariance
    assert np.abs(np.mean(rows, 0) - features.mean).max() < 0.01
    assert np.abs(np.cov(np.array(rows).T) - features.covariance).max() < 0.003


def test_offers_are_taken_in_as_by_bayesian_regression():
    """The posterior of each way is that of all its observations at once, in closed form."""
    believed = Linear(deals(BRIEFING), plausible("recruiter", WORKER))
    mean, covariance = believed.means[0].copy(), believed.covariances[0].copy()
    offers = [77, 4321, 9000]
    for i, offer in enumerate(offers):
        believed.update(i / 9, None, offer)
    for way in range(len(WAYS)):
        rows = believed.columns[offers]
        wants = np.array([clocks(i / 9)[way] for i in range(len(offers))])
        noise = LOOSE**2 * np.eye(len(offers))
        gain = covariance @ rows.T @ np.linalg.inv(rows @ covariance @ rows.T + noise)
        expected = mean + gain @ (wants - rows @ mean)
        surprising = np.abs(wants - rows @ mean) > 2.5 * np.sqrt(np.diag(rows @ covariance @ rows.T) + LOOSE**2)
        if not surprising.any():
            assert believed.means[way] == pytest.approx(expected)
            assert believed.covariances[way] == pytest.approx(covariance - gain @ rows @ covariance, abs=1e-9)


def test_a_refusal_cuts_off_what_would_have_been_accepted():
    """Mean and variance of the refused deal's utility are those of the truncated normal distribution, by sampling."""
    believed = Linear(deals(BRIEFING), plausible("recruiter", WORKER))
    row = believed.columns[5000]
    mean, deviation = row @ believed.means[0], np.sqrt(row @ believed.covariances[0] @ row + LOOSE**2)
    want = mean + 0.3 * deviation
    draws = np.random.default_rng(0).normal(mean, deviation, 400_000)
    below = draws[draws < want]
    believed._refused(0, row, want)
    share = 1 - LOOSE**2 / deviation**2  # of the variance that is not noise
    assert row @ believed.means[0] == pytest.approx(mean + share * (below.mean() - mean), abs=0.002)
    variance = share * deviation**2 * (1 - share * (1 - below.var() / deviation**2))
    assert row @ believed.covariances[0] @ row == pytest.approx(variance, abs=0.001)


@pytest.mark.parametrize("policy", ["linear", "boulware"])
def test_the_planner_learns_the_counterparts_utility(policy):
    better = []
    for number in range(0, 40, 4):
        scenario = TEST[number]
        env = envs.make(scenario, seed=number)
        planner = scripted("job_interview", "planner", seed=1)
        asyncio.run(run(env, {"worker": planner, "recruiter": scripted("job_interview", policy, seed=2)}))
        worker, recruiter = job.numbers(scenario.fields)
        truth = utilities(recruiter, "recruiter")
        prior = plausible("recruiter", worker)
        believed = planner._state.memory
        ways = np.exp(believed.evidence - believed.evidence.max())
        after = prior.columns @ (ways / ways.sum() @ believed.means)
        before, after = (np.corrcoef(guess, truth)[0, 1] for guess in (prior.columns @ prior.mean, after))
        better.append(after - before)
    assert np.mean(better) > 0.1
    assert np.mean(np.array(better) > 0) >= 0.8


def test_only_the_deals_that_are_expected_to_be_best_for_the_other_are_looked_at():
    believed = Linear(deals(BRIEFING), plausible("recruiter", WORKER))
    mine, expected = np.asarray(deals(BRIEFING).mine), believed.columns @ believed.means[0]
    assert len(believed.deals) <= 201
    assert believed.mine == pytest.approx(mine[believed.deals])
    for deal in believed.deals[::20]:
        alike = np.floor(mine / 0.005) == np.floor(mine[deal] / 0.005)
        assert expected[deal] == pytest.approx(expected[alike].max())
