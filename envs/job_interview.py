"""Job interview: a worker and a recruiter agree on salary, weekly holiday, position, workplace and company.

An offer names all five; it means the same to both. Each seat knows its own weights and option values alone. The
worker moves first. The moves are in `envs/bargain.py`, scenario rules and utilities in `scenarios/job_interview.py`,
the reward in `rewards/job_interview.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from envs import telling
from envs.bargain import Bargain, moves, without_answers
from envs.core import ActionSpec, Event, Limits
from envs.minds import Mind
from envs.telling import Prompt
from rewards.job_interview import DEALS, deal_of, number_of, utility
from scenarios.core import Scenario
from scenarios.job_interview import BOUNDS, ISSUES, OPTIONS, SEATS, by_weight, deal_fault, seat_numbers

TRAINABLE = SEATS
EVALUATED = ("worker",)
MOVES = ("message", "propose", "accept", "reject", "walk_away")
PRIVATE = {seat: (("weights", seat), ("options", seat)) for seat in SEATS}


def _numbers(scenario: Scenario, seat: str) -> tuple[float, ...]:
    return seat_numbers(scenario["weights"][seat], scenario["options"][seat])


MIND = Mind(
    about="the other party's issues from the one that counts most for it to the one that counts least",
    schema={
        "type": "array",
        "items": {"type": "string", "enum": list(ISSUES)},
        "minItems": len(ISSUES),
        "maxItems": len(ISSUES),
    },
    truth=lambda scenario, seat: [issue for issue, _ in by_weight(scenario["weights"][_other(seat)])],
    worth=lambda scenario, seat, given: utility(_numbers(scenario, seat), seat, number_of(given)),
)


def _other(seat: str) -> str:
    return SEATS[1 - SEATS.index(seat)]


class Environment(Bargain):
    """One interview."""

    seats = SEATS

    def __init__(self, scenario: Scenario, *, seed: int, limits: Limits | None = None) -> None:
        self.numbers = {seat: _numbers(scenario, seat) for seat in SEATS}
        super().__init__(scenario, seed=seed, limits=limits)

    def specs(self) -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
        return _SPECS

    def facts(self, seat: str) -> Mapping[str, Any]:
        weights, options = (MappingProxyType(self.scenario[field][seat]) for field in ("weights", "options"))
        return {"weights": weights, "options": options}

    def offer_fault(self, offer: Any) -> str | None:
        return deal_fault(offer)

    def copy(self, offer: Any) -> Mapping[str, Any]:
        return deal(number_of(offer))

    def gives(self, offer: Any) -> Mapping[str, Any]:
        return offer

    def value(self, seat: str, given: Any) -> Mapping[str, Any]:
        return {"worth": round(utility(self.numbers[seat], seat, number_of(given)), 4)}

    def secrets(self, seat: str) -> Collection[float]:
        """Weights and option values, as parts of 1 and in hundredths, without what an offer can name, 0, 1 and 100."""
        options = self.scenario["options"][seat]
        tables = (
            self.scenario["weights"][seat],
            options["workplace"],
            options["company"],
            *options["position"].values(),
        )
        parts = {value for table in tables for value in table.values()}
        return {round(number, 2) for part in parts for number in (part, 100 * part)} - _SPOKEN

    def terms(self, proposer: str, offer: Any) -> Mapping[str, Any]:
        return dict(offer)


_SPOKEN = {0, 1, 100} | {number for low, high in BOUNDS.values() for number in range(low, high + 1)}


@lru_cache(maxsize=DEALS)
def deal(number: int) -> Mapping[str, Any]:
    """A deal by its number, in one read-only form."""
    return MappingProxyType(deal_of(number))


def _specs() -> tuple[tuple[ActionSpec, ...], tuple[ActionSpec, ...]]:
    about = {"salary": "the salary", "weekly_holiday": "days off in a week"}
    numbers = {
        issue: {"type": "integer", "minimum": low, "maximum": high, "description": about[issue]}
        for issue, (low, high) in BOUNDS.items()
    }
    names = {issue: {"type": "string", "enum": list(options)} for issue, options in OPTIONS.items()}
    every = moves(
        {
            "type": "object",
            "properties": {**numbers, **names},
            "required": list(ISSUES),
            "additionalProperties": False,
            "description": "the terms of the job, all five of them",
        }
    )
    return every, without_answers(every)


_SPECS = _specs()

BRIEF = """\
You are the {seat} in a job interview. You and the {other} agree on five things:
{issues}
Your score is the sum of what they are worth to you, out of 100 points. {directions}
{options}
The {other} has other weights and values, which you do not know. Without an agreement both of you get nothing.
You move in turn, {limit} moves each. When the moves are used up there is no agreement."""
RANGES = {
    "salary": f"salary: {BOUNDS['salary'][0]} to {BOUNDS['salary'][1]}",
    "weekly_holiday": f"weekly_holiday: {BOUNDS['weekly_holiday'][0]} to {BOUNDS['weekly_holiday'][1]} days",
    **{issue: f"{issue}: {', '.join(names)}" for issue, names in OPTIONS.items()},
}
DIRECTIONS = {
    "worker": "Salary and weekly_holiday are worth nothing at their lowest and all their points at their highest.",
    "recruiter": "Salary and weekly_holiday are worth nothing at their highest and all their points at their lowest.",
}
ANSWERS = """\
Answer with one JSON object, one of:
{"move":"message","say":"What matters most to you?"} to talk only
{"move":"propose","offer":{"salary":35,"weekly_holiday":4,"position":"Designer","workplace":"Seoul",\
"company":"Apple"},"say":"How about this?"} to offer terms, all five of them; it replaces your earlier offer
{"move":"accept"} to close on the other party's offer
{"move":"reject"} to turn the other party's offer down; it is then off the table
{"move":"walk_away"} to end without agreement
The other party reads what you "say"; you may add it to any move."""


def brief(event: Event, prompt: Prompt) -> str:
    """What a seat is told at the start: the rules, its weights and its option values, in hundredths."""
    seat, weights, options = (event.payload[key] for key in ("seat", "weights", "options"))
    points = {issue: _hundredths(weights[issue]) for issue in ISSUES}
    separator = " " if prompt == "compact" else ", "
    values = {part: _values(options[part], separator) for part in ("workplace", "company")}
    titles = {company: _values(row, separator) for company, row in options["position"].items()}
    if prompt == "people":
        weighed = ", ".join(f"{issue} {_hundredths(weight)}" for issue, weight in by_weight(weights))
        rows = [f"{part}: {row}" for part, row in values.items()]
        rows += [f"position at {company}: {row}" for company, row in titles.items()]
        end = "highest" if seat == "worker" else "lowest"
        return "\n    ".join([f"of 100 points, {weighed}", f"salary and weekly_holiday: best at their {end}", *rows])
    if prompt == "compact":
        rising = "up" if seat == "worker" else "down"
        weighed = " ".join(f"{issue} {points[issue]}" for issue in ISSUES)
        rows = [f"{name} {row}" for name, row in {**values, **titles}.items()]
        return f"Job {seat}. my weight: {weighed}. salary holiday {rising}\n" + "\n".join(rows)
    rows = [f"Of {part} you get this part, in percent: {row}." for part, row in values.items()]
    rows += [f"Of position, at {company}: {row}." for company, row in titles.items()]
    return BRIEF.format(
        seat=seat,
        other=_other(seat),
        issues="\n".join(f"{RANGES[issue]} (at most {points[issue]} points for you)" for issue in ISSUES),
        directions=DIRECTIONS[seat],
        options="\n".join(rows),
        limit=event.payload["limit"],
    )


def answers(event: Event) -> str:
    """How to answer in JSON; `event` is the seat's briefing."""
    return ANSWERS


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it."""
    return telling.tell(event, seat, prompt, _SHOWN[prompt], _WORTH[prompt])


def _hundredths(value: float) -> str:
    return f"{100 * value:.3g}"


def _values(values: Mapping[str, float], separator: str) -> str:
    return separator.join(f"{name} {_hundredths(value)}" for name, value in values.items())


def _terms(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{issue} {given[issue]}" for issue in ISSUES)


_SHOWN = {
    "full": lambda given: f"the terms are {_terms(given)}",
    "compact": lambda given: " ".join(str(given[issue]) for issue in ISSUES),
    "people": _terms,
}
_WORTH = {
    "full": lambda turn: f"worth {_hundredths(turn['worth'])} of 100 points to you",
    "compact": lambda turn: _hundredths(turn["worth"]),
    "people": lambda turn: _hundredths(turn["worth"]),
}
