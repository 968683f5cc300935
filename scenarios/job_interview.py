"""Job interview: a worker and a recruiter agree on salary, weekly holiday, position, workplace and company.

Salary (20 to 50) and weekly holiday (2 to 6 days) are whole numbers, the other three have four options each: 9,920
deals. A seat's utility of a deal is Σ weight · value over the five issues, in [0, 1]: the weights add up to 1; of
salary and holiday the value rises from 0 to 1 for the worker and falls for the recruiter; of workplace and company
it is the option's; of position it is the option's at the company of the deal. Weights and option values are private.
How a game is played is in `envs/job_interview.py`, how it is paid in `rewards/job_interview.py`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

from scenarios.core import Scenario, split_of
from scenarios.jsonfile import is_int, shown

SEATS = ("worker", "recruiter")
SALARY = (20, 50)
WEEKLY_HOLIDAY = (2, 6)
POSITIONS = ("Engineer", "Manager", "Designer", "Sales")
WORKPLACES = ("Tokyo", "Seoul", "Beijing", "Sydney")
COMPANIES = ("Google", "Facebook", "Apple", "Amazon")
ISSUES = ("salary", "weekly_holiday", "position", "workplace", "company")
BOUNDS = {"salary": SALARY, "weekly_holiday": WEEKLY_HOLIDAY}
OPTIONS = {"position": POSITIONS, "workplace": WORKPLACES, "company": COMPANIES}
PARTS = ("workplace", "company", "position")  # of a seat's options, in the order in which they are written
SLACK = 1e-6  # by which the weights may miss 1

LEAST_WEIGHT = 4  # hundredths that a generated weight has at least
STEPS = 10  # a generated option value is so many tenths
MOST_LEFT = 1  # tenths that the one seat's best option is worth to the other at most

FIELDS = ("weights", "options")
REWARD_FIELDS = FIELDS


def check(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with `weights` and `options`."""
    found: list[str] = []
    for name, faults in (("weights", _weights_faults), ("options", _options_faults)):
        given = fields[name]
        if not isinstance(given, Mapping):
            found.append(f"{name} is {shown(given)}, expected an object with worker and recruiter")
            continue
        found += _key_faults(name, given, SEATS)
        for seat in SEATS:
            if seat in given:
                found += faults(f"{name}.{seat}", given[seat])
    return found


def deal_fault(deal: Any) -> str | None:
    """Why something is not a deal, as the end of a sentence; None when it is one."""
    if not isinstance(deal, Mapping):
        return f"is {shown(deal)}, expected an object with {', '.join(ISSUES)}"
    for issue in ISSUES:
        if issue not in deal:
            return f"does not name the {issue}"
        value = deal[issue]
        if issue in BOUNDS:
            low, high = BOUNDS[issue]
            if not is_int(value):
                return f"has the {issue} {shown(value)}, expected a whole number"
            if not low <= value <= high:
                return f"has the {issue} {shown(value)}, expected {low} to {high}"
        elif not isinstance(value, str) or value not in OPTIONS[issue]:
            return f"has the {issue} {shown(value)}, expected {', '.join(OPTIONS[issue][:-1])} or {OPTIONS[issue][-1]}"
    if len(deal) > len(ISSUES):
        return f"has an unknown issue {shown(next(key for key in deal if key not in ISSUES))}"
    return None


def build(weights: Mapping[str, Any], options: Mapping[str, Any], *, split: str | None = None, source: str) -> Scenario:
    """A scenario named by its content, which decides the split where none is given."""
    fields = {
        "weights": {seat: {issue: weights[seat][issue] for issue in ISSUES} for seat in SEATS},
        "options": {seat: _ordered(options[seat]) for seat in SEATS},
    }
    name = content(fields)
    return Scenario(f"job-{name}", "job_interview", split or split_of(f"job_interview {name}"), source, fields)


def content(fields: Mapping[str, Any]) -> str:
    """The game's numbers as a short name."""
    return hashlib.blake2b(repr(numbers(fields)).encode(), digest_size=8).hexdigest()


def numbers(fields: Mapping[str, Any]) -> tuple[tuple[float, ...], ...]:
    """Each seat's weights (in the order of ISSUES), then its values of workplaces, of companies, and of positions at
    each company: 5 + 4 + 4 + 4·4 numbers."""
    return tuple(seat_numbers(fields["weights"][seat], fields["options"][seat]) for seat in SEATS)


def seat_numbers(weights: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[float, ...]:
    """One seat's part of `numbers`."""
    position = options["position"]
    return (
        *(float(weights[issue]) for issue in ISSUES),
        *(float(options["workplace"][place]) for place in WORKPLACES),
        *(float(options["company"][company]) for company in COMPANIES),
        *(float(position[company][title]) for company in COMPANIES for title in POSITIONS),
    )


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"job_interview {content(fields)}",)


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """`n` distinct games of the split: weights in hundredths, all different; option values in tenths, from 0 to 1.

    What is best for the one is worth next to nothing to the other, with positions at each company; so a seat that
    demands the best of everything leaves less than a tenth, and an agreement is found among the second bests.
    """
    rng = random.Random(f"job_interview {seed} {split}")
    seen: set[str] = set()
    while len(seen) < n:
        weights = {seat: drawn_weights(rng) for seat in SEATS}
        scenario = build(weights, _drawn_options(rng), source=f"generator:job_interview:seed={seed}")
        if scenario.split == split and scenario.id not in seen:
            seen.add(scenario.id)
            yield scenario


def drawn_weights(rng: random.Random) -> dict[str, float]:
    """Weights that add up to 1, any such five hundredths from LEAST_WEIGHT on being as likely, no two equal."""
    spare = 100 - LEAST_WEIGHT * len(ISSUES)
    while True:
        bars = sorted(rng.sample(range(spare + len(ISSUES) - 1), len(ISSUES) - 1))
        ends = [-1, *bars, spare + len(ISSUES) - 1]
        parts = [LEAST_WEIGHT + ends[i + 1] - ends[i] - 1 for i in range(len(ISSUES))]
        if len(set(parts)) == len(parts):
            return {issue: part / 100 for issue, part in zip(ISSUES, parts, strict=True)}


def drawn_values(rng: random.Random) -> tuple[float, ...]:
    """One seat's values of four options: the best is worth 1, the worst 0, the others something between."""
    values = [STEPS, 0, *rng.choices(range(1, STEPS), k=2)]
    rng.shuffle(values)
    return tuple(value / STEPS for value in values)


def opposed(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Is what is best for each worth next to nothing to the other?"""
    most = MOST_LEFT / STEPS
    return other[one.index(max(one))] <= most and one[other.index(max(other))] <= most


def _drawn_options(rng: random.Random) -> dict[str, dict[str, Any]]:
    """Option values of both seats: of workplaces, of companies, and of positions at every company alone."""
    places, companies = _drawn_pair(rng, WORKPLACES), _drawn_pair(rng, COMPANIES)
    titles = {company: _drawn_pair(rng, POSITIONS) for company in COMPANIES}
    return {
        seat: {
            "workplace": places[i],
            "company": companies[i],
            "position": {company: pair[i] for company, pair in titles.items()},
        }
        for i, seat in enumerate(SEATS)
    }


def _drawn_pair(rng: random.Random, names: tuple[str, ...]) -> list[dict[str, float]]:
    """Both seats' values of some options."""
    while True:
        pair = drawn_values(rng), drawn_values(rng)
        if opposed(*pair):
            return [dict(zip(names, values, strict=True)) for values in pair]


def summary(fields: Mapping[str, Any]) -> str:
    return " · ".join(
        f"{seat}: " + " > ".join(f"{issue} {weight:g}" for issue, weight in by_weight(fields["weights"][seat]))
        for seat in SEATS
    )


def by_weight(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """The issues from the heaviest to the lightest; equal ones in the order of ISSUES."""
    return sorted(((issue, weights[issue]) for issue in ISSUES), key=lambda pair: -pair[1])


def _ordered(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "workplace": {place: options["workplace"][place] for place in WORKPLACES},
        "company": {company: options["company"][company] for company in COMPANIES},
        "position": {company: {t: options["position"][company][t] for t in POSITIONS} for company in COMPANIES},
    }


def _weights_faults(name: str, given: Any) -> list[str]:
    found = _values_faults(name, given, ISSUES)
    if not found and abs(sum(given.values()) - 1) > SLACK:
        found.append(f"{name} add up to {sum(given.values()):.6g}, expected 1")
    return found


def _options_faults(name: str, given: Any) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{name} is {shown(given)}, expected an object with workplace, company and position"]
    found = _key_faults(name, given, PARTS)
    for part, names in (("workplace", WORKPLACES), ("company", COMPANIES)):
        if part in given:
            found += _values_faults(f"{name}.{part}", given[part], names)
    if "position" in given:
        position = given["position"]
        if not isinstance(position, Mapping):
            return [*found, f"{name}.position is {shown(position)}, expected an object with an entry for each company"]
        found += _key_faults(f"{name}.position", position, COMPANIES)
        for company in COMPANIES:
            if company in position:
                found += _values_faults(f"{name}.position.{company}", position[company], POSITIONS)
    return found


def _values_faults(name: str, given: Any, keys: tuple[str, ...]) -> list[str]:
    """What is wrong with an object of one number from 0 to 1 for each key."""
    if not isinstance(given, Mapping):
        return [f"{name} is {shown(given)}, expected an object with {', '.join(keys[:-1])} and {keys[-1]}"]
    found = _key_faults(name, given, keys)
    for key in keys:
        if key in given:
            value = given[key]
            if not is_int(value) and not isinstance(value, float):
                found.append(f"{name}.{key} is {shown(value)}, expected a number")
            elif not 0 <= value <= 1:
                found.append(f"{name}.{key} is {shown(value)}, expected 0 to 1")
    return found


def _key_faults(name: str, given: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    missing = [f"{name}.{key} is missing" for key in keys if key not in given]
    return missing + [f"{name} has an unknown key {shown(key)}" for key in given if key not in keys]
