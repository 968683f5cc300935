"""Werewolf: five to eight players talk and vote by day; by night the wolves among them meet in secret.

    night   wolves that are two whisper in turn, then name their victim at once; the seer looks at a player. In the
            first night nobody is attacked
    day     every living player speaks once, in turn, from a player that is drawn on; then all vote at once

Who is named most often is out, by day and by night; of several that are named as often, or when nobody is named,
nobody is. A player that is out shows its role, is asked nothing any more and goes on seeing what all see. The
villagers, seer included, win when no wolf lives; the wolves when they are as many as the others. A day takes two of
`Limits.moves_per_seat`, what happens at night none; when they are used up nobody has won (`timeout`). Inert is `pass`:
to say nothing, to name nobody. Scenario rules are in `scenarios/werewolf.py`, the reward in `rewards/werewolf.py`.

Players go by their names, seats by p1 … p8. Events, with the payload that everybody sees who is told:

    briefing   own seat only: env, seat, name, role, wolves (the other wolves, for a wolf), persona, players
               (seat: name), counts (role: how many), days (at most)
    night      day (the coming one)
    whisper    by, name, say, player (may be None): wolves alone
    attacks    votes (name: victim or None), once all have named one: wolves alone
    seen       by, name, player, wolf (whether it is one): the seer alone
    day        day, players (the living)
    message    by, name, say
    accuse     by, name, say, player
    votes      votes (name: player or None), once all have voted
    out        player and role (None: nobody), how: night or vote
    turn       the notification: phase (whisper, attack, look, talk, vote), day, days, players (the living)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import cycle
from types import MappingProxyType
from typing import Any, ClassVar

from envs import core
from envs.core import Action, ActionSpec, Limits, Outcome
from envs.werewolf_telling import SPEECH, answers, brief, tell
from rewards.werewolf import VILLAGERS, WOLVES, side
from scenarios.core import Scenario
from scenarios.jsonfile import shown
from scenarios.werewolf import SEATS, seats

__all__ = [
    "EVALUATED", "MOVES", "PRIVATE", "SEATS", "SPEECH", "TRAINABLE", "Environment", "answers", "brief", "team", "tell",
]  # fmt: skip

TRAINABLE = EVALUATED = SEATS
MOVES = ("message", "accuse", "vote", "whisper", "attack", "look", "pass")
PRIVATE = {seat: (("personas", seat),) for seat in SEATS}  # the wolves know each other, and who is out shows its role
DAY_MOVES = 2  # of a seat: to speak and to vote

SAY = {"type": "string", "description": "what you say to all"}
WHISPER = {"type": "string", "description": "what you say to the other wolves"}
PASS = ActionSpec("pass", {"type": "object", "properties": {}, "additionalProperties": False}, "say and name nothing")


def _move(name: str, description: str, required: tuple[str, ...], **fields: Any) -> ActionSpec:
    schema = {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}
    return ActionSpec(name, schema, description)


@lru_cache(maxsize=4096)
def possible(phase: str, players: tuple[str, ...]) -> tuple[ActionSpec, ...]:
    """The moves of a phase for a seat that may name these players."""
    named = {"type": "string", "enum": list(players), "description": "a player's name"}
    if phase == "whisper":
        return _move("whisper", "speak to the other wolves", ("say",), player=named, say=WHISPER), PASS
    if phase == "attack":
        return _move("attack", "name tonight's victim", ("player",), player=named), PASS
    if phase == "look":
        return _move("look", "learn whether a player is a wolf", ("player",), player=named), PASS
    if phase == "vote":
        return _move("vote", "vote a player out", ("player",), player=named), PASS
    message = _move("message", "speak to all", ("say",), say=SAY)
    return (
        message,
        _move("accuse", "say before all that you suspect a player", ("player",), player=named, say=SAY),
        PASS,
    )


def team(scenario: Scenario, seat: str) -> tuple[str, ...]:
    """The seats that win and lose with this one, itself included."""
    roles = scenario["roles"]
    return tuple(other for other in seats(roles) if side(roles[other]) == side(roles[seat]))


def most_named(names: Iterable[str | None]) -> str | None:
    """Who is named more often than anybody else; None when nobody is."""
    tally = Counter(name for name in names if name is not None).most_common(2)
    if not tally or (len(tally) == 2 and tally[0][1] == tally[1][1]):
        return None
    return tally[0][0]


class Environment(core.Environment):
    """One game of werewolf."""

    seats = SEATS
    inert: ClassVar[Action] = Action("pass", {})

    def __init__(self, scenario: Scenario, *, seed: int, limits: Limits | None = None) -> None:
        super().__init__(scenario, seed=seed, limits=limits)
        self.names: dict[str, str] = {seat: scenario["names"][seat] for seat in self.seats}
        self.roles: dict[str, str] = {seat: scenario["roles"][seat] for seat in self.seats}
        self.living = list(self.seats)
        self.days = -(-self.limits.moves_per_seat // DAY_MOVES)
        self.day = 0
        self.suspected: list[str | None] = []  # whom villagers voted for

    @classmethod
    def seats_of(cls, scenario: Scenario) -> tuple[str, ...]:
        return seats(scenario["roles"])

    # ---- the rules

    async def play(self) -> Outcome:
        left = self.limits.moves_per_seat
        for seat in self.seats:
            await self.broadcast("briefing", self.facts(seat), to=(seat,), actions=self.every_move(seat))
        for part in cycle((self.night, self.talk, self.vote)):
            if not left:
                return Outcome("timeout")
            await part()
            if winner := self.winner():
                return Outcome("agreement", {"winner": winner})
            left -= part != self.night
        raise AssertionError("the parts of a day come again and again")

    def winner(self) -> str | None:
        wolves = len(self.wolves())
        if wolves == 0:
            return VILLAGERS
        return WOLVES if 2 * wolves >= len(self.living) else None

    async def night(self) -> None:
        self.day += 1
        await self.broadcast("night", {"day": self.day})
        wolves = self.wolves()
        if len(wolves) > 1:
            for seat in wolves:
                action = await self.ask(seat, *self.turn("whisper", seat))
                if action.move == "whisper":
                    told = {"say": action.say, "player": action.fields.get("player")}
                    await self.broadcast("whisper", {**self.who(seat), **told}, to=wolves)
        for seat in self.living:
            if self.roles[seat] == "seer":
                action = await self.ask(seat, *self.turn("look", seat))
                if action.move == "look":
                    player = action.fields["player"]
                    told = {**self.who(seat), "player": player, "wolf": self.is_wolf(player)}
                    await self.broadcast("seen", told, to=(seat,))
        if self.day > 1:
            votes = await self.ballot("attack", wolves)
            await self.broadcast("attacks", {"votes": votes}, to=wolves)
            await self.out(most_named(votes.values()), "night")

    async def talk(self) -> None:
        await self.broadcast("day", {"day": self.day, "players": self.players()})
        first = self.rng.randrange(len(self.living))
        for seat in self.living[first:] + self.living[:first]:
            action = await self.ask(seat, *self.turn("talk", seat))
            told = {**self.who(seat), "say": action.say}
            if action.move == "accuse":
                await self.broadcast("accuse", {**told, "player": action.fields["player"]})
            else:
                await self.broadcast("message", told)

    async def vote(self) -> None:
        votes = await self.ballot("vote", tuple(self.living))
        self.suspected += [votes[self.names[seat]] for seat in self.living if self.roles[seat] != "wolf"]
        await self.broadcast("votes", {"votes": votes})
        await self.out(most_named(votes.values()), "vote")

    async def ballot(self, phase: str, voters: tuple[str, ...]) -> Mapping[str, str | None]:
        """Whom each voter names; they are asked together."""
        asked = {seat: self.turn(phase, seat) for seat in voters}
        answers = await self.ask_all(
            {seat: actions for seat, (actions, _) in asked.items()}, {seat: told for seat, (_, told) in asked.items()}
        )
        return MappingProxyType({self.names[seat]: answers[seat].fields.get("player") for seat in voters})

    async def out(self, player: str | None, how: str) -> None:
        role = None
        if player is not None:
            seat = self.seat_of(player)
            role = self.roles[seat]
            self.living.remove(seat)
        await self.broadcast("out", {"player": player, "role": role, "how": how})

    def fault(self, seat: str, action: Action) -> str | None:
        if "player" not in action.fields:
            return None
        player, may = action.fields["player"], self.may_name(seat, action.move)
        return None if player in may else f"player is {shown(player)}, expected one of {', '.join(may)}"

    # ---- who is who

    def wolves(self) -> tuple[str, ...]:
        """The wolves that live."""
        return tuple(seat for seat in self.living if self.roles[seat] == "wolf")

    def players(self) -> tuple[str, ...]:
        """The names of the living."""
        return tuple(self.names[seat] for seat in self.living)

    def seat_of(self, player: str) -> str:
        return next(seat for seat, name in self.names.items() if name == player)

    def is_wolf(self, player: str) -> bool:
        return self.roles[self.seat_of(player)] == "wolf"

    def who(self, seat: str) -> dict[str, str]:
        return {"by": seat, "name": self.names[seat]}

    def may_name(self, seat: str, move: str) -> tuple[str, ...]:
        """The living others; wolves do not attack wolves."""
        prey = move in ("whisper", "attack")
        return tuple(
            self.names[other] for other in self.living if other != seat and not (prey and self.roles[other] == "wolf")
        )

    def turn(self, phase: str, seat: str) -> tuple[tuple[ActionSpec, ...], Mapping[str, Any]]:
        """What a seat may do in a phase, and what its notification says."""
        told = {"phase": phase, "day": self.day, "days": self.days, "players": self.players()}
        return possible(phase, self.may_name(seat, phase)), told

    def facts(self, seat: str) -> Mapping[str, Any]:
        """What a seat knows from the start."""
        role = self.roles[seat]
        others = [other for other in self.wolves() if other != seat] if role == "wolf" else []
        return {
            "env": self.scenario.env,
            "seat": seat,
            "name": self.names[seat],
            "role": role,
            "wolves": tuple(self.names[other] for other in others),
            "persona": self.scenario["personas"][seat],
            "players": MappingProxyType(self.names),
            "counts": MappingProxyType(dict(Counter(sorted(self.roles.values())))),
            "days": self.days,
        }

    def every_move(self, seat: str) -> tuple[ActionSpec, ...]:
        """All moves that a seat may ever make."""
        night = {"wolf": ("whisper", "attack"), "seer": ("look",), "villager": ()}[self.roles[seat]]
        specs = [possible(phase, self.may_name(seat, phase)) for phase in ("talk", "vote", *night)]
        return (*(spec for phase in specs for spec in phase if spec is not PASS), PASS)

    def measures(self) -> Mapping[str, float]:
        """`days` that were begun; `votes_on_wolves`: the share of the villagers' votes, abstentions among them."""
        hits = sum(player is not None and self.is_wolf(player) for player in self.suspected)
        return {"days": float(self.day), "votes_on_wolves": hits / max(1, len(self.suspected))}
