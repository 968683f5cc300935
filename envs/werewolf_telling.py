"""A game of werewolf as text: its briefing, how to answer, and its events as a seat reads them (`envs/werewolf.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.core import Event
from envs.telling import Prompt, one_line, quoted, troubled

SPEECH = "All players read what you say; a whisper is read by the other wolves alone."

BRIEF = """\
You play werewolf. The players are {players}; you are {name}. {persona}
Among them {counts}; nobody is told who has which role, but the wolves know each other. {role}
By night the wolves whisper to each other and attack a player{seer}; in the first night nobody is attacked. By day \
every living player speaks once, then all vote at the same time. Who is named most often is out; when several are \
named as often nobody is. Who is out shows its role and takes no further part.
The villagers{seer_too} win when no wolf is left, the wolves when they are as many as the others. Your side's victory \
counts for you even if you are out. After {days} days without a victory nobody wins."""
ROLES = {
    "villager": "You are a villager.",
    "seer": "You are the seer, on the villagers' side: each night you learn of one player whether it is a wolf.",
    "wolf": "You are the only wolf; do not let the others find out.",
}
FELLOW = "You are a wolf, and so is {wolves}; do not let the others find out."

MOVES = {
    "message": '{"move":"message","say":"Who has been quiet?"} to speak to all',
    "accuse": '{"move":"accuse","player":"%s","say":"I do not trust you."} to say before all whom you suspect',
    "vote": '{"move":"vote","player":"%s"} to vote a player out',
    "whisper": '{"move":"whisper","say":"This one first?","player":"%s"} to speak to the other wolves, and to name a '
    "victim if you like",
    "attack": '{"move":"attack","player":"%s"} to attack a player',
    "look": '{"move":"look","player":"%s"} to learn whether a player is a wolf',
    "pass": '{"move":"pass"} to say and name nothing',
}
CALLS = {
    "whisper": "It is night. What do you whisper to the other wolves?",
    "attack": "It is night. Whom do you attack?",
    "look": "It is night. At whom do you look?",
    "talk": "It is your turn to speak.",
    "vote": "Now all vote at the same time. Whom do you vote out?",
}
INSTEAD = "you passed"


def brief(event: Event, prompt: Prompt) -> str:
    """What a seat is told at the start: the players, its role, the rules."""
    payload = event.payload
    role, wolves, counts = payload["role"], payload["wolves"], payload["counts"]
    together = f"{role} with {' and '.join(wolves)}" if wolves else role
    players = ", ".join(payload["players"].values())
    if prompt == "people":
        return f"{payload['name']}, {together}: {one_line(payload['persona'])}"
    if prompt == "compact":
        numbers = " ".join(f"{counts[name]} {name}" for name in counts)
        return f"Werewolf. You are {payload['name']}, {together}. Players {players}. {numbers}."
    return BRIEF.format(
        players=players,
        name=payload["name"],
        persona=one_line(payload["persona"]),
        counts=_counted(counts),
        role=FELLOW.format(wolves=" and ".join(wolves)) if wolves else ROLES[role],
        seer=", and the seer learns of one player whether it is a wolf" if "seer" in counts else "",
        seer_too=", the seer among them," if "seer" in counts else "",
        days=payload["days"],
    )


def _counted(counts: Mapping[str, int]) -> str:
    """ "are 2 wolves, 1 seer and 4 villagers"."""
    plural = {"wolf": "wolves", "seer": "seers", "villager": "villagers"}
    parts = [f"{n} {name if n == 1 else plural[name]}" for name in plural if (n := counts.get(name, 0))]
    return f"{'is' if parts[0].startswith('1 ') else 'are'} {', '.join(parts[:-1])} and {parts[-1]}"


def answers(event: Event) -> str:
    """How to answer in JSON: an example of each of the seat's moves."""
    payload = event.payload
    others = [name for name in payload["players"].values() if name not in (payload["name"], *payload["wolves"])]
    lines = [MOVES[spec.name].replace("%s", others[0]) for spec in event.actions]
    return "\n".join(["Answer with one JSON object, one of those that are possible at the time:", *lines, SPEECH])


def tell(event: Event, seat: str, prompt: Prompt) -> str:
    """One event as a seat reads it; "" for what a model knows already (its own words, its briefing)."""
    payload, kind = event.payload, event.type
    if trouble := troubled(event, prompt, INSTEAD):
        return trouble
    if kind == "turn":
        return "" if prompt == "people" else _turn(event, prompt)
    own = prompt != "people" and payload.get("by") == seat
    if kind == "seen":
        return _seen(payload, prompt)
    return "" if own or kind not in _TOLD else _TOLD[kind](payload, prompt == "compact")


def _turn(event: Event, prompt: Prompt) -> str:
    payload = event.payload
    if prompt == "compact":
        return f"{payload['phase']} {payload['day']}/{payload['days']}"
    moves = ", ".join(spec.name for spec in event.actions)
    return f"{CALLS[payload['phase']]} Possible now: {moves}."


def _night(payload: Mapping[str, Any], compact: bool) -> str:
    return f"night {payload['day']}" if compact else f"Night falls before day {payload['day']}."


def _day(payload: Mapping[str, Any], compact: bool) -> str:
    players = payload["players"]
    if compact:
        return f"day {payload['day']}: {' '.join(players)}"
    return f"Day {payload['day']} begins. Alive: {', '.join(players)}."


def _message(payload: Mapping[str, Any], compact: bool) -> str:
    say = one_line(payload["say"])
    if compact:
        return f"{payload['name']}: {say}".rstrip()
    return f"{payload['name']} says: {quoted(say)}" if say else f"{payload['name']} says nothing."


def _accuse(payload: Mapping[str, Any], compact: bool) -> str:
    name, player, say = payload["name"], payload["player"], one_line(payload["say"])
    if compact:
        return f"{name} accuses {player}: {say}".rstrip(": ")
    return f"{name} accuses {player}: {quoted(say)}" if say else f"{name} accuses {player}."


def _whisper(payload: Mapping[str, Any], compact: bool) -> str:
    victim = f" and names {payload['player']}" if payload["player"] else ""
    say = one_line(payload["say"])
    if compact:
        return f"{payload['name']} whispers{victim}: {say}".rstrip(": ")
    return f"{payload['name']} whispers to the wolves{victim}: {quoted(say)}"


def _votes(payload: Mapping[str, Any], compact: bool) -> str:
    votes = payload["votes"].items()
    if compact:
        return "votes " + " ".join(f"{name}>{player or '-'}" for name, player in votes)
    return "Votes: " + ", ".join(f"{name} for {player or 'nobody'}" for name, player in votes) + "."


def _attacks(payload: Mapping[str, Any], compact: bool) -> str:
    votes = payload["votes"].items()
    if compact:
        return "attacks " + " ".join(f"{name}>{player or '-'}" for name, player in votes)
    return "The wolves attack: " + ", ".join(f"{name} names {player or 'nobody'}" for name, player in votes) + "."


def _out(payload: Mapping[str, Any], compact: bool) -> str:
    player, role, night = payload["player"], payload["role"], payload["how"] == "night"
    if compact:
        return f"out {player} {role}" if player else "out nobody"
    if player is None:
        return "Nobody was killed in the night." if night else "Nobody is voted out."
    return f"{player} {'was killed in the night' if night else 'is voted out'}, and was a {role}."


def _seen(payload: Mapping[str, Any], prompt: Prompt) -> str:
    player, wolf = payload["player"], payload["wolf"]
    if prompt == "compact":
        return f"seen {player} {'wolf' if wolf else 'no wolf'}"
    who = f"{payload['name']} looks" if prompt == "people" else "You look"
    return f"{who} at {player}: {'a wolf' if wolf else 'not a wolf'}."


_TOLD = {
    "night": _night,
    "day": _day,
    "message": _message,
    "accuse": _accuse,
    "whisper": _whisper,
    "attacks": _attacks,
    "votes": _votes,
    "out": _out,
}
