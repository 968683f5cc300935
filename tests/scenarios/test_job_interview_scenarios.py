"""Job interviews: the rules of a scenario, and what the generator draws."""

import copy

import pytest

from scenarios import core
from scenarios import job_interview as job
from scenarios.core import packaged

FIELDS = packaged("job_interview", "val")[0].fields


@pytest.mark.parametrize(("split", "n"), [("train", 500), ("val", 50), ("test", 100)])
def test_the_packaged_splits_are_what_the_generator_gives(split, n):
    assert list(packaged("job_interview", split)) == core.generate("job_interview", n, 0, split)


def test_the_same_seed_draws_the_same_and_a_shorter_draw_is_its_beginning():
    assert core.generate("job_interview", 30, 7, "val")[:10] == core.generate("job_interview", 10, 7, "val")
    assert core.generate("job_interview", 10, 7, "val") != core.generate("job_interview", 10, 8, "val")


def test_content_decides_the_split_whatever_the_seed():
    for seed in (1, 2):
        for split in core.SPLITS:
            for scenario in core.generate("job_interview", 20, seed, split):
                assert [core.split_of(group) for group in job.groups(scenario.fields)] == [split]


def test_generated_numbers_are_round_and_span_zero_to_one():
    for scenario in core.generate("job_interview", 60, 3, "train"):
        assert core.check(scenario) == []
        for seat in job.SEATS:
            weights = [100 * weight for weight in scenario["weights"][seat].values()]
            assert weights == pytest.approx([round(weight) for weight in weights])
            assert len(set(weights)) == 5
            assert min(weights) >= 4 - 1e-9
            options = scenario["options"][seat]
            for values in (options["workplace"], options["company"], *options["position"].values()):
                assert (min(values.values()), max(values.values())) == (0, 1)


def test_what_is_best_for_the_one_is_next_to_nothing_for_the_other():
    for scenario in packaged("job_interview", "test"):
        tables = [scenario["options"][seat] for seat in job.SEATS]
        for one, other in (tables, tables[::-1]):
            pairs = [(one[part], other[part]) for part in ("workplace", "company")]
            pairs += [(one["position"][company], other["position"][company]) for company in job.COMPANIES]
            assert all(theirs[max(mine, key=mine.get)] <= 0.1 for mine, theirs in pairs)


def test_weights_are_about_as_likely_one_way_as_another():
    heaviest = [job.by_weight(s["weights"]["worker"])[0][0] for s in packaged("job_interview", "train")]
    assert {issue: 60 < heaviest.count(issue) < 140 for issue in job.ISSUES} == dict.fromkeys(job.ISSUES, True)


def test_the_order_of_keys_and_the_writing_of_a_number_do_not_make_another_game():
    turned = copy.deepcopy(FIELDS)
    for seat in job.SEATS:
        turned["weights"][seat] = dict(reversed(turned["weights"][seat].items()))
        turned["options"][seat]["workplace"] = {
            place: int(value) if value in (0, 1) else value
            for place, value in reversed(turned["options"][seat]["workplace"].items())
        }
    assert job.groups(turned) == job.groups(FIELDS)


def changed(path, value):
    fields = copy.deepcopy(dict(FIELDS))
    spot = fields
    for key in path[:-1]:
        spot = spot[key]
    if value is KeyError:
        del spot[path[-1]]
    else:
        spot[path[-1]] = value
    return fields


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("weights",), 3, "weights is 3, expected an object with worker and recruiter"),
        (("weights", "worker"), KeyError, "weights.worker is missing"),
        (("weights", "boss"), {}, "weights has an unknown key 'boss'"),
        (("weights", "worker"), [1], "weights.worker is [1], expected an object with salary"),
        (("weights", "worker", "salary"), KeyError, "weights.worker.salary is missing"),
        (("weights", "worker", "salary"), "0.2", "weights.worker.salary is '0.2', expected a number"),
        (("weights", "worker", "salary"), True, "weights.worker.salary is True, expected a number"),
        (("weights", "worker", "salary"), -0.1, "weights.worker.salary is -0.1, expected 0 to 1"),
        (("weights", "worker", "salary"), 0.999, "weights.worker add up to"),
        (("options",), None, "options is None, expected an object"),
        (("options", "recruiter"), [], "options.recruiter is [], expected an object with workplace"),
        (("options", "recruiter", "company"), KeyError, "options.recruiter.company is missing"),
        (("options", "recruiter", "pay"), {}, "options.recruiter has an unknown key 'pay'"),
        (("options", "worker", "workplace", "Tokyo"), 1.5, "options.worker.workplace.Tokyo is 1.5, expected 0 to 1"),
        (("options", "worker", "workplace", "Paris"), 1, "options.worker.workplace has an unknown key 'Paris'"),
        (("options", "worker", "position"), {}, "options.worker.position.Google is missing"),
        (("options", "worker", "position"), 1, "options.worker.position is 1, expected an object"),
        (("options", "worker", "position", "Apple", "Sales"), None, "options.worker.position.Apple.Sales is None"),
    ],
)
def test_each_broken_rule_is_named(path, value, reason):
    assert job.check(FIELDS) == []
    found = job.check(changed(path, value))
    assert any(reason in fault for fault in found), found


def test_a_summary_reads_from_the_heaviest_issue_to_the_lightest():
    worker = job.summary(FIELDS).split(" · ")[0]
    weights = [float(part.rsplit(" ", 1)[1]) for part in worker.removeprefix("worker: ").split(" > ")]
    assert weights == sorted(weights, reverse=True)
