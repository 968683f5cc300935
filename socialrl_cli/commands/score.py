"""`socialrl score`: what an outcome pays, from the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rewards.core import Score
    from scenarios.core import Scenario


def score(
    env: Annotated[str, typer.Option("--env", metavar="ENV", help="The environment, for example dnd.")],
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="FILE", help="A scenario as JSON, or a file of them; - is stdin.")
    ],
    outcome: Annotated[
        str, typer.Option("--outcome", metavar="FILE", help="An outcome as JSON, or a file of them; - is stdin.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Score an outcome: for every seat raw, utility, reference and reward.

    The scenario needs only the fields that the reward needs. Where the scenario file holds several, an outcome
    names its own by a key "scenario"; several outcomes, one a line, are scored one by one and averaged.

    \b
    Example: socialrl score --env dnd --scenario s.json --outcome o.json
    """
    from rewards.core import score as score_one
    from scenarios import core
    from scenarios.errors import DataError, UsageError
    from scenarios.jsonfile import documents
    from socialrl_cli.output import emit

    if scenario == outcome == "-":
        raise UsageError("only one of --scenario and --outcome can be read from standard input")
    core.module(env)
    known = _scenarios(env, scenario)
    rows = documents(outcome)
    scores: list[tuple[Scenario, Score]] = []
    for line, value, _ in rows:
        try:
            mine = _named(known, value, scenario)
            scores.append((mine, score_one(mine, value)))
        except DataError as error:
            raise DataError.at(outcome, line if len(rows) > 1 else None, str(error)) from None
    if len(scores) == 1:
        found = scores[0][1]
        emit(found.to_json(), as_json=json, show=lambda _: typer.echo(_table(found.to_json())))
        return
    mean = _mean([found for _, found in scores])
    each = [{"scenario": mine.id, **found.to_json()} for mine, found in scores]
    document = {"env": env, "n": len(scores), "mean": mean, "scores": each}
    emit(document, as_json=json, show=lambda _: typer.echo(_table(mean)))


def _scenarios(env: str, path: str) -> list[Scenario]:
    """The scenarios of a file, each with the fields that the reward needs."""
    from scenarios.core import Scenario
    from scenarios.errors import DataError
    from scenarios.jsonfile import documents

    rows = documents(path)
    found = []
    for line, value, _ in rows:
        try:
            found.append(Scenario.from_json(value, lenient=True, env=env))
        except DataError as error:
            raise DataError.at(path, line if len(rows) > 1 else None, str(error)) from None
    return found


def _named(known: list[Scenario], outcome: Any, path: str) -> Scenario:
    """The scenario that an outcome belongs to."""
    from scenarios.errors import DataError
    from scenarios.jsonfile import shown

    name = outcome.get("scenario") if isinstance(outcome, dict) else None
    if name is None:
        if len(known) == 1:
            return known[0]
        raise DataError(f'{path} holds {len(known)} scenarios; name one of them in the outcome by "scenario": ID')
    matches = [scenario for scenario in known if scenario.id == name]
    if not matches and len(known) == 1 and not known[0].id:
        return known[0]
    if len(matches) != 1:
        raise DataError(f"{path} has {len(matches) or 'no'} scenarios with the id {shown(name)}, expected one")
    return matches[0]


def _mean(scores: list[Score]) -> dict[str, Any]:
    """Means over scores of one environment; `reference` only where each has one."""
    from collections import Counter

    def mean(values: list[Any]) -> float | None:
        return None if None in values else sum(values) / len(values)

    seats = list(dict.fromkeys(seat for found in scores for seat in found.seats))  # tables may differ in size
    parts = ("raw", "utility", "reference", "reward")

    def mean_of(seat: str, part: str) -> float | None:
        return mean([getattr(found.seats[seat], part) for found in scores if seat in found.seats])

    return {
        "env": scores[0].env,
        "statuses": dict(Counter(found.status for found in scores)),
        "seats": {seat: {part: mean_of(seat, part) for part in parts} for seat in seats},
        "measures": {name: mean([found.measures[name] for found in scores]) for name in scores[0].measures},
    }


def _table(document: dict[str, Any]) -> str:
    """A score, or the mean of several, for people."""
    statuses = document.get("statuses")
    if statuses is None:
        head = f"{document['env']}: {document['status']}"
    else:
        n = sum(statuses.values())
        head = f"{document['env']}: mean of {n} (" + ", ".join(f"{k} {v}" for k, v in sorted(statuses.items())) + ")"
    lines = [head, f"{'seat':<12}{'raw':>10}{'utility':>10}{'reference':>11}{'reward':>10}"]
    for seat, part in document["seats"].items():
        reference = "-" if part["reference"] is None else f"{part['reference']:.6g}"
        lines.append(f"{seat:<12}{part['raw']:>10.6g}{part['utility']:>10.6g}{reference:>11}{part['reward']:>10.6f}")
    lines += [f"{name:<22}{value:>10.6f}" for name, value in document["measures"].items()]
    return "\n".join(lines)
