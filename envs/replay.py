"""Episodes on disk: one JSON line each, read back, told as a conversation, and played again.

A line holds what every seat was told, in order (`events`, each once with its audience in `to`), what came back
(`answers`), the outcome, and what the game began from (scenario, seed, limits); `walls` are seconds since the epoch
beside the events. From these `replay` plays the episode again under the rules as they are now and says what differs.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from envs import make, module
from envs.core import Action, Answer, Environment, Event, Limits
from envs.telling import one_line
from scenarios.core import Scenario
from scenarios.errors import DataError, UsageError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpisodeLog:
    """A finished episode. `agents` names the participant in each seat; `meta` is whatever its player adds."""

    episode_id: str
    env: str
    scenario: Json
    seed: int
    limits: Json
    agents: Mapping[str, str]
    events: list[Json]
    answers: list[Json]
    outcome: Json
    meta: Json
    walls: list[float]

    @classmethod
    def of(
        cls, env: Environment, *, episode_id: str, agents: Mapping[str, str], meta: Mapping[str, Any] | None = None
    ) -> EpisodeLog:
        """The log of an environment that has been played."""
        assert env.outcome is not None, "an episode is logged when it has ended"
        return cls(
            episode_id=episode_id,
            env=env.scenario.env,
            scenario=env.scenario.to_json(),
            seed=env.seed,
            limits=asdict(env.limits),
            agents=dict(agents),
            events=[_event(to, event) for to, event in env.journal],
            answers=[_answer(answer) for answer in env.answers],
            outcome=plain(env.outcome.to_json()),
            meta=plain(meta or {}),
            walls=list(env.walls),
        )

    def line(self, *, walls: bool = True) -> str:
        """The log as a line of a file. Without `walls` the same episode gives the same bytes."""
        fields = {name: getattr(self, name) for name in self.__slots__ if walls or name != "walls"}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> EpisodeLog:
        """The inverse of `line`. Raises `DataError`."""
        try:
            row = json.loads(line)
            beside = {"meta": row.get("meta", {}), "walls": row.get("walls", [])}
            return cls(**{name: row[name] for name in cls.__slots__ if name not in beside}, **beside)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not the log of an episode ({type(error).__name__}: {error})") from None

    def told(self, seat: str | None = None) -> list[Event]:
        """The events of a seat's channel, or of all seats (each once; `seq` then counts over the episode)."""
        names = [event for event in self.events if seat is None or seat in event["to"]]
        return [
            Event(i, row["kind"], row["type"], row["payload"], row["at"], row.get("notification_id"))
            for i, row in enumerate(names)
        ]


def append(path: str | os.PathLike[str], logs: Iterable[EpisodeLog]) -> None:
    """Add episodes to a file. A torn last line that a crash left there is ended, so that it stays alone."""
    with open(path, "ab+") as file:
        if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            file.write(b"\n")
        file.write("".join(log.line() for log in logs).encode())


def find(run: str | os.PathLike[str], episode: str) -> EpisodeLog:
    """The episode of a run whose id is, or alone begins with, `episode`. Raises `UsageError` where there is none."""
    folder = Path(run) / "events"
    if not folder.is_dir():
        raise UsageError(f"{run}: no run with episodes (there is no folder {folder})")
    beginnings: dict[str, str] = {}
    some: list[str] = []
    for line in _lines(folder):
        name = _id(line)
        if name == episode:
            return EpisodeLog.from_line(line)
        if name is not None and name.startswith(episode):
            beginnings[name] = line
        elif name is not None and len(some) < 3:
            some.append(name)
    if len(beginnings) == 1:
        return EpisodeLog.from_line(next(iter(beginnings.values())))
    if beginnings:
        raise UsageError(f"{run}: {len(beginnings)} episodes begin with {episode!r}: {', '.join([*beginnings][:3])} …")
    raise UsageError(f"{run}: no episode {episode!r}; {'there are e.g. ' + ', '.join(some) if some else 'it has none'}")


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl")):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file


def _id(line: str) -> str | None:
    """The episode's id, which stands first in its line; None for a torn line."""
    head = '{"episode_id":'
    if not line.startswith(head) or not line.endswith("}\n"):
        return None
    try:
        name, _ = json.JSONDecoder().raw_decode(line, len(head))
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def transcript(log: EpisodeLog, seat: str | None = None) -> str:
    """The episode as a conversation, as everybody sees it or as one seat does."""
    rules = module(log.env)
    if seat is not None and seat not in log.outcome["seats"]:
        raise UsageError(f"no seat {seat!r} in {log.env}, expected {' or '.join(log.outcome['seats'])}")
    told = log.told(seat)
    opener = next((event.payload["by"] for event in told if "by" in event.payload), None)
    lines = [f"{log.env} · scenario {log.scenario.get('id', '')} · episode {log.episode_id}"]
    count = 0
    for event in told:
        if event.type == "briefing":
            name = event.payload["seat"]
            opens = " · opens" if "first" in event.payload and opener == name else ""
            lines.append(f"{name} ({log.agents.get(name, 'absent')}{opens}): {rules.brief(event, 'people')}")
            lines += _at_hand(log.scenario, rules.PRIVATE[name], event)
        elif event.kind == "observation" and event.type != "outcome":
            text = rules.tell(event, seat or "", "people")
            count += "by" in event.payload
            lines.append(f"{count:3d}. {text}" if "by" in event.payload else text)
    by = f" by {log.outcome['by']}" if log.outcome["by"] else ""
    why = f" ({log.outcome['error']})" if log.outcome.get("error") else ""
    terms = json.dumps(log.outcome["agreement"]) if log.outcome["agreement"] else ""
    lines.append(f"=> {log.outcome['status']}{by}{why} {terms}".rstrip())
    for name, got in log.outcome["seats"].items():
        if seat in (None, name):
            reference = "" if got["reference"] is None else f", reference {got['reference']:.2f}"
            lines.append(
                f"{name}: raw {got['raw']:g}, utility {got['utility']:.2f}{reference}, reward {got['reward']:.3f}"
            )
    return "\n".join(lines)


def _at_hand(scenario: Json, paths: Iterable[tuple[str, ...]], briefing: Event) -> Iterator[str]:
    """The private facts that a seat's briefing does not hold: what it may look up."""
    known = [plain(value) for value in briefing.payload.values()]
    for path in paths:
        value: Any = scenario
        for key in path:
            value = value.get(key, {})
        if value and value not in known:
            yield f"    may look up: {_words(value)}"


def _words(value: Any) -> str:
    """A value of a scenario in plain words."""
    if isinstance(value, Mapping):
        hours = [f"{value['start']} to {value['end']}"] if {"start", "end"} <= set(value) else []
        rest = {
            key: part for key, part in value.items() if part is not False and not (hours and key in ("start", "end"))
        }
        return ", ".join(hours + [key if part is True else f"{key} {_words(part)}" for key, part in rest.items()])
    return "; ".join(map(_words, value)) if isinstance(value, list) else one_line(str(value))


async def replay(log: EpisodeLog) -> list[str]:
    """Play the logged answers again; what differs from the log, empty when nothing does."""
    limits = replace(Limits(**log.limits), decide_timeout_s=None, episode_timeout_s=None)
    env: Environment = make(Scenario.from_json(log.scenario, lenient=True), seed=log.seed, limits=limits)
    game = asyncio.create_task(env.conduct())
    for row in log.answers:
        await asyncio.sleep(0)  # the rules run to their next question: they wait for nothing else
        if game.done():
            break
        _feed(env, row)
    await asyncio.sleep(0)
    if not game.done():
        env.abort(log.outcome.get("error") or "the log has no more answers")
    await game
    again = EpisodeLog.of(env, episode_id=log.episode_id, agents=log.agents)
    found = [
        f"event {i}: {then} in the log, {now} when played again"
        for i, (then, now) in enumerate(zip(log.events, again.events, strict=False))
        if then != now
    ][:1]
    if len(log.events) != len(again.events):
        found.append(f"{len(log.events)} events in the log, {len(again.events)} when played again")
    if log.outcome != again.outcome:
        found.append(f"outcome {log.outcome} in the log, {again.outcome} when played again")
    return found


def _feed(env: Environment, row: Json) -> None:
    seat, name, kind = row["seat"], row["notification_id"], row["kind"]
    if kind == "action":
        action = row["action"]
        env.submit(seat, name, Action(action["move"], {key: action[key] for key in action if key != "move"}))
    elif kind == "invalid":
        env.refuse(seat, name, row["text"], row["reason"])
    else:
        env.fail(seat, name, kind, row["text"])


_PLAIN = {str, int, float, bool, type(None)}


def plain(value: Any) -> Any:
    """Read-only payloads as JSON holds them."""
    if type(value) in _PLAIN:  # the fast way for most
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _event(to: tuple[str, ...], event: Event) -> Json:
    row = {"at": event.at, "to": list(to), "kind": event.kind, "type": event.type, "payload": plain(event.payload)}
    if event.notification_id is not None:
        row |= {"notification_id": event.notification_id, "actions": [spec.name for spec in event.actions]}
    return row


def _answer(answer: Answer) -> Json:
    row: Json = {"seat": answer.seat, "notification_id": answer.notification_id, "kind": answer.kind}
    if answer.action is not None:
        return {**row, "action": {"move": answer.action.move, **plain(answer.action.fields)}}
    return {**row, "text": answer.text, "reason": answer.reason}
