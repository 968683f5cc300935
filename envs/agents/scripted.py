"""Scripted participants: policies that act on their own channel alone, for any game that describes its `Deals`. Games
of more than two seats have policies of their own (`PARTIES`).

    boulware, linear, conceder   aspiration a(t) = f + (1 - f)(1 - t^e), e = 4, 1, 0.25; t from 0 at the first own
                                 move to 1 at the last. Accepts an offer worth at least a(t); otherwise proposes, of
                                 the deals worth at least a(t), the one worth least to itself
    hardliner                    boulware with f = 0.6
    tit_for_tat                  gives up as much as it has been given (see `tit_for_tat` below)
    planner                      models the counterpart and plans ahead: the strong reference (`planner.py`)
    random                       any legal move
    first_offer                  accepts the first offer: the passive delegate
    demand_all                   asks for everything, never accepts
    leaky                        linear, and states its private numbers

f is a private floor in own utility, drawn per episode from {.2, .3, .4} (option f=…): below it the seat never
accepts, and when no reply can follow it walks away rather than go under. Nothing but the counterpart's offers and
the own clock moves a policy: not its words, not its silence, not its invalid answers.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import scenarios
from envs.agents.deals import SLACK, Space
from envs.agents.phrases import phrase
from envs.events import Action, ActionSpec, Event
from scenarios.errors import UsageError, nearest

DEALS = {name: f"envs.agents.{name}" for name in scenarios.NEGOTIATIONS}  # each has deals(briefing) -> Space
# each has Player(policy, seed) and the names POLICIES, OPPONENTS, BASELINES
PARTIES = {name: f"envs.agents.{name}" for name in scenarios.PARTIES}
OPPONENTS = ("linear", "boulware", "tit_for_tat")  # of a negotiation, when nobody else is named
BASELINES = ("demand_all", "first_offer")
GOODWILL = 0.1  # what tit_for_tat gives up first, so that two of them meet


class Choice(NamedTuple):
    """A move without words: the deal that is proposed, and the moment that its sentence is for."""

    move: str
    deal: int | None = None
    moment: str = ""


@dataclass(slots=True)
class State:
    """All that a policy knows at its turn."""

    deals: Space
    rng: random.Random
    floor: float
    turn: Mapping[str, Any] = field(default_factory=dict)  # the payload of the notification
    standing: int | None = None  # the counterpart's standing offer, as a deal
    received: list[int] = field(default_factory=list)  # every offer of the counterpart
    made: list[int] = field(default_factory=list)  # every own offer
    actions: Sequence[ActionSpec] = ()  # what is legal now
    memory: Any = None  # the policy's own

    @property
    def time(self) -> float:
        """0 at the first own move, 1 at the last."""
        limit = self.turn["limit"]
        return (self.turn["round"] - 1) / (limit - 1) if limit > 1 else 1.0

    @property
    def final(self) -> bool:
        """No move follows this one."""
        return self.turn["replies_left"] == 0


Policy = Callable[[State], Choice]


def aim(state: State, aspiration: float) -> Choice:
    """Accept what is worth the aspiration, otherwise ask for just that; walk away where asking is too late."""
    deals, standing = state.deals, state.standing
    if standing is not None and deals.utility(standing) >= aspiration - SLACK:
        return Choice("accept")
    if state.final:
        return Choice("walk_away")
    return Choice("propose", deals.ask_for(aspiration, state))


def curve(exponent: float) -> Policy:
    """Concession by the clock alone."""

    def policy(state: State) -> Choice:
        return aim(state, state.floor + (1 - state.floor) * (1 - state.time**exponent))

    return policy


def tit_for_tat(state: State) -> Choice:
    """Its aspiration is 1 less what the counterpart has conceded to it (in own utility) and less a first goodwill.

    Only offers count, each is counted once, and asking for more again takes nothing back; so silence, bluffs and
    repetition gain nothing.
    """
    goodwill = 0.0 if state.deals.relative and not state.made else GOODWILL
    return aim(state, max(state.floor, 1 - goodwill - state.deals.conceded(state.received)))


def planner(state: State) -> Choice:
    return _module(state.deals.planner).plan(state)


def anything(state: State) -> Choice:
    move = state.rng.choice([spec.name for spec in state.actions if spec.name in MOMENTS])
    return Choice(move, state.deals.draw(state.rng) if move == "propose" else None)


def first_offer(state: State) -> Choice:
    return Choice("accept" if any(spec.name == "accept" for spec in state.actions) else "message")


def demand_all(state: State) -> Choice:
    return Choice("propose", state.deals.best, "greedy")


POLICIES: dict[str, Policy] = {
    "boulware": curve(4.0),
    "linear": curve(1.0),
    "conceder": curve(0.25),
    "tit_for_tat": tit_for_tat,
    "hardliner": curve(4.0),
    "planner": planner,
    "random": anything,
    "first_offer": first_offer,
    "demand_all": demand_all,
    "leaky": curve(1.0),
}
OWN_FLOOR = {"hardliner": 0.6}
UNMOVED = ("random", "first_offer", "demand_all")  # have no floor, hence no options
MOMENTS = {"message": "ask", "propose": "", "accept": "accept", "reject": "reject", "walk_away": "walk_away"}


def names(env: str = "dnd") -> tuple[str, ...]:
    """The policies of an environment; all negotiations have the same."""
    return tuple(_module(PARTIES[env]).POLICIES if env in PARTIES else POLICIES)


def opponents(env: str) -> tuple[str, ...]:
    """The usual opponents in training and evaluation."""
    return _module(PARTIES[env]).OPPONENTS if env in PARTIES else OPPONENTS


def baselines(env: str) -> tuple[str, ...]:
    """The policies that show what passive play earns."""
    return _module(PARTIES[env]).BASELINES if env in PARTIES else BASELINES


def scripted(env: str, name: str, *, seed: int, options: Mapping[str, float | str] | None = None) -> Any:
    """A participant for one episode. Raises `UsageError` for an unknown environment, name or option."""
    if env not in DEALS and env not in PARTIES:
        raise UsageError(f"no scripted participants for environment {env!r}; {nearest(env, [*DEALS, *PARTIES])}")
    if name not in names(env):
        raise UsageError(f"unknown scripted participant {name!r}; {nearest(name, names(env))}")
    if env in PARTIES:
        for key in options or ():
            raise UsageError(f"scripted:{name} has no option {key!r}; it has none")
        return _module(PARTIES[env]).Player(name, seed)
    return Scripted(env, name, seed, _floor(name, options or {}))


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _floor(name: str, options: Mapping[str, float | str]) -> float | None:
    """The floor that the options or the policy fix; None when it is drawn."""
    for key in options:
        if name in UNMOVED or key != "f":
            expected = "it has none" if name in UNMOVED else "it has f, a floor from 0 to 1"
            raise UsageError(f"scripted:{name} has no option {key!r}; {expected}")
    if "f" not in options:
        return OWN_FLOOR.get(name)
    try:
        floor = float(options["f"])
    except (TypeError, ValueError):
        floor = -1.0
    if not 0 <= floor <= 1:
        raise UsageError(f"scripted:{name}: f is {options['f']!r}, expected a number from 0 to 1")
    return floor


class Scripted:
    """One seat of one episode, played by a policy."""

    def __init__(self, env: str, name: str, seed: int, floor: float | None = None) -> None:
        self.env, self.name = env, name
        self._policy = POLICIES[name]
        self._rng = random.Random(seed)
        self._floor = floor  # None: drawn
        self._state: State | None = None
        self._seen = 0

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        return self.choose(context, actions)

    def choose(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        state = self._look(context)
        if state is None:
            return Action("look", {})
        state.actions = actions
        choice = self._policy(state)
        deal = choice.deal
        if deal is None:
            return Action(choice.move, {"say": self._words(state, choice, None)})
        if not state.made:
            deal = state.deals.opening(deal)
        fields = {"offer": state.deals.offer(deal), "say": self._words(state, choice, deal)}
        state.made.append(deal)
        return Action(choice.move, fields)

    def _look(self, context: Sequence[Event]) -> State | None:
        """The state after all that has happened; None while something has to be looked at first."""
        state = self._state
        if state is None:
            briefing = context[0].payload
            module = _module(DEALS[self.env])
            if needed := getattr(module, "NEEDS", None):
                seen = next((event for event in context if event.type == needed), None)
                if seen is None:
                    return None
                briefing = {**briefing, **seen.payload}
            space: Space = module.deals(briefing)
            floor = self._rng.choice(space.floors) if self._floor is None else self._floor
            state = self._state = State(space.seated(self._rng, floor), self._rng, floor)
            self._seat = briefing["seat"]
        for event in context[self._seen :]:
            if event.type != "proposal":
                continue
            if event.payload["by"] != self._seat:
                state.received.append(state.deals.index(event.payload["gives"]))
            elif not state.turn:  # an opening that was made for this seat
                state.made.append(state.deals.number(event.payload["offer"]))
        self._seen = len(context)
        state.turn = turn = context[-1].payload
        given = turn["standing"]
        state.standing = None if given is None else state.deals.index(given)
        return state

    def _words(self, state: State, choice: Choice, deal: int | None) -> str:
        deals = state.deals
        if self.name == "leaky" and deal is not None:
            return deals.secrets[int(self._rng.random() * len(deals.secrets))]
        moment = choice.moment or MOMENTS[choice.move]
        if moment or deal is None:
            return phrase(moment, self._rng, "", deals.speech)
        if not state.made:
            moment = "open"
        elif state.turn["moves_left"] == 1:
            moment = "last"
        else:
            moment = "concede" if deals.utility(deal) < deals.utility(state.made[-1]) else "hold"
        return phrase(moment, self._rng, deals.topic(deal), deals.speech)
