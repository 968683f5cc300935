"""Scripted players of werewolf. They hear who accuses whom, see votes and shown roles, and act on their channel alone.

    sleuth   suspects by what has come out: who voted for players that proved to be no wolves, whom victims of the
             night had accused, who is accused by players that were right before. It knows its own innocence. A seer
             accuses whom it has seen
    crowd    names whoever is accused most today
    random   any legal move, any player
    silent   passes: the passive baseline

As wolves, sleuth and crowd never name a fellow wolf by day, and agree by whispers on one victim: sleuth on the player
that is the greatest danger to wolves, crowd on any. What they say comes from `phrases_werewolf.py`, the same for all
roles.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.agents.phrases_werewolf import phrase
from envs.events import Action, ActionSpec, Event

OPPONENTS = ("sleuth", "crowd")  # whom one meets when nobody else is named
BASELINES = ("random", "silent")
QUIET = 0.5  # how likely a player without a suspicion speaks of nobody
KNOWN = 100.0  # suspicion of a player that the seer has seen to be a wolf


@dataclass(slots=True)
class Known:
    """All that a player knows. Players are names; `accused` holds (who, whom) of each day, `ballots` its votes."""

    name: str
    role: str
    wolves: tuple[str, ...]  # fellow wolves
    rng: random.Random
    turn: Mapping[str, Any] = field(default_factory=dict)  # the notification's payload
    accused: list[list[tuple[str, str]]] = field(default_factory=list)
    ballots: list[Mapping[str, str | None]] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)  # the roles of those who are out
    killed: list[str] = field(default_factory=list)  # by night
    seen: dict[str, bool] = field(default_factory=dict)  # by the seer: is it a wolf?
    whispered: list[str] = field(default_factory=list)  # victims that were named tonight

    def hear(self, event: Event) -> None:
        """Remember an event."""
        payload, kind = event.payload, event.type
        if kind == "day":
            self.accused.append([])
        elif kind == "night":
            self.whispered = []
        elif kind == "accuse":
            self.accused[-1].append((payload["name"], payload["player"]))
        elif kind == "votes":
            self.ballots.append(payload["votes"])
        elif kind == "seen":
            self.seen[payload["player"]] = payload["wolf"]
        elif kind == "whisper" and payload["player"]:
            self.whispered.append(payload["player"])
        elif kind == "out" and payload["player"]:
            self.shown[payload["player"]] = payload["role"]
            if payload["how"] == "night":
                self.killed.append(payload["player"])

    @property
    def others(self) -> list[str]:
        """The living that may be named: all others, for a wolf those that are none."""
        return [player for player in self.turn["players"] if player != self.name and player not in self.wolves]

    @property
    def proved(self) -> dict[str, str]:
        """The roles that are certain: of those who are out, of whom the seer saw to be none, and of oneself unless
        one plays a villager."""
        own = {} if self.role == "wolf" else {self.name: "villager"}
        return self.shown | {player: "villager" for player, wolf in self.seen.items() if not wolf} | own

    @property
    def today(self) -> list[tuple[str, str]]:
        return self.accused[-1] if self.accused else []


Suspicion = Callable[[Known, str], float]


def by_the_crowd(known: Known, player: str) -> float:
    """How many accuse the player today."""
    return float(len({who for who, whom in known.today if whom == player}))


def by_evidence(known: Known, player: str) -> float:
    """How much speaks for the player being a wolf (see the module). A vote says the less the more cast the same."""
    if player in known.seen:
        return KNOWN if known.seen[player] else -KNOWN
    proved = known.proved
    found = -0.5 * right_about(known, player)
    for votes in known.ballots:
        if (target := votes.get(player)) in proved:
            others = [vote for who, vote in votes.items() if who not in (player, target)]
            alone = 1 - others.count(target) / max(1, len(others))
            found += alone * (-1.0 if proved[target] == "wolf" else 0.5)
    found += 0.5 * sum(player == whom for day in known.accused for who, whom in day if who in known.killed)
    return found + sum(0.5 + max(0, right_about(known, who)) for who, whom in set(known.today) if whom == player)


def right_about(known: Known, player: str) -> int:
    """How many of the player's accusations have proved right, less those that have proved wrong."""
    named = {whom for day in known.accused for who, whom in day if who == player}
    return sum((1 if known.proved[whom] == "wolf" else -1) for whom in named if whom in known.proved)


def by_danger(known: Known, player: str) -> float:
    """How dangerous the player is to wolves: it has accused them or voted for them."""
    wolves = {known.name, *known.wolves} | {name for name, role in known.shown.items() if role == "wolf"}
    accused = sum(who == player and whom in wolves for day in known.accused for who, whom in day)
    return accused + 0.5 * sum(votes.get(player) in wolves for votes in known.ballots)


def anyone(known: Known, player: str) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How a player finds whom to name: by day, and as a wolf by night."""

    day: Suspicion
    night: Suspicion


POLICIES: dict[str, Policy | None] = {
    "sleuth": Policy(by_evidence, by_danger),
    "crowd": Policy(by_the_crowd, anyone),
    "random": Policy(anyone, anyone),
    "silent": None,
}


class Player:
    """One seat of one episode, played by a policy."""

    def __init__(self, policy: str, seed: int) -> None:
        self.name, self._policy = policy, POLICIES[policy]
        self._rng = random.Random(seed)
        self._known: Known | None = None
        self._heard = 0

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        return self.choose(context, actions)

    def choose(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        known = self._known
        if known is None:
            facts = context[0].payload
            known = self._known = Known(facts["name"], facts["role"], facts["wolves"], self._rng)
        for event in context[self._heard :]:
            known.hear(event)
        self._heard, known.turn = len(context), context[-1].payload
        if self._policy is None:
            return Action("pass", {})
        if self.name == "random":
            return _anything(known, actions)
        return _PHASES[known.turn["phase"]](known, self._policy)


def _anything(known: Known, actions: Sequence[ActionSpec]) -> Action:
    spec = known.rng.choice(actions)
    properties = spec.fields["properties"]
    fields: dict[str, Any] = {}
    if "player" in properties:
        fields["player"] = known.rng.choice(properties["player"]["enum"])
    if "say" in properties:
        moment = {"message": "ask", "accuse": "accuse", "whisper": "plan"}[spec.name]
        fields["say"] = phrase(moment, known.rng, fields.get("player"))
    return Action(spec.name, fields)


def _most(known: Known, players: Sequence[str], suspicion: Suspicion) -> tuple[str, float]:
    """One of the most suspect players, and how suspect it is."""
    found = {player: suspicion(known, player) for player in players}
    most = max(found.values())
    return known.rng.choice([player for player in players if found[player] == most]), most


def _talk(known: Known, policy: Policy) -> Action:
    player, suspicion = _most(known, known.others, policy.day)
    accused = Counter(whom for _, whom in known.today)
    if suspicion <= 0 and known.rng.random() < QUIET:
        moment = "defend" if accused[known.name] else "ask"
        return Action("message", {"say": phrase(moment, known.rng)})
    moment = "join" if accused[player] else "accuse"
    return Action("accuse", {"player": player, "say": phrase(moment, known.rng, player)})


def _vote(known: Known, policy: Policy) -> Action:
    return Action("vote", {"player": _most(known, known.others, policy.day)[0]})


def _whisper(known: Known, policy: Policy) -> Action:
    if known.turn["day"] == 1:
        return Action("whisper", {"say": phrase("greet", known.rng)})
    moment, player = ("follow" if known.whispered else "plan"), _victim(known, policy)
    return Action("whisper", {"say": phrase(moment, known.rng, player), "player": player})


def _attack(known: Known, policy: Policy) -> Action:
    return Action("attack", {"player": _victim(known, policy)})


def _victim(known: Known, policy: Policy) -> str:
    """Whom a whisper has named first tonight, else an own choice."""
    return known.whispered[0] if known.whispered else _most(known, known.others, policy.night)[0]


def _look(known: Known, policy: Policy) -> Action:
    unseen = [player for player in known.others if player not in known.seen]
    return Action("look", {"player": _most(known, unseen, policy.day)[0]}) if unseen else Action("pass", {})


_PHASES = {"talk": _talk, "vote": _vote, "whisper": _whisper, "attack": _attack, "look": _look}
