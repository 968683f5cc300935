"""Campers' dialogues in the two layouts in which they are around (Chawla et al., CaSiNo; its summaries).

    dialogues  a JSON list: dialogue_id, chat_logs, participant_info (value2issue, value2reason, outcomes), annotations
    summaries  one JSON object a line: dialogue_id, agents, outcome, deal, n_utterances

The first participant is seat a, the second seat b. No persona is recorded, so a camper is named by its dialogue; its
reasons are the recorded ones. Utterances, annotations and judgements are not kept.

How records become outcomes: an accepted submission is an `agreement`, a walk-away is `walk_away`; a dialogue that
ends otherwise is `aborted`. A row is bad when its deal does not divide three packages of each, when somebody accepts
what was not offered, or when the recorded points are not those of the deal. A dialogue that stands in several files
is one game; where the two records differ, the later one is bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

from scenarios import casino
from scenarios.casino import COUNTS, ITEMS, OUTSIDE, SEATS
from scenarios.core import Problem
from scenarios.errors import DataError
from scenarios.importers.core import Imported, Odd, Played, records
from scenarios.importers.shapes import a_count, a_list, a_text, an_object, one_of
from scenarios.jsonfile import shown

ENV = "casino"
FORMATS = ("dialogues", "summaries")
LEVELS = ("High", "Medium", "Low")
NAMES = {item.capitalize(): item for item in ITEMS}  # as the corpus writes them
MOVES = ("Submit-Deal", "Accept-Deal", "Reject-Deal", "Walk-Away")
ENDS = ("Accept-Deal", "Walk-Away")
STATUS = {"Accept-Deal": "agreement", "Walk-Away": "walk_away", "none": "aborted"}
MANY = 4  # rejections in one dialogue that are remarkable

WHY = {
    "walk_away": "somebody walked away: both get the outside option",
    "pending": "somebody walked away from a submission",
    "no_gain": "the deal is worth no more than walking away to a seat",
    "rejections": f"{MANY} or more submissions were rejected",
    "no_end": "the dialogue ends with neither a deal nor a walk-away: pays 0",
    "after_end": "something follows the end",
    "twice_in_a_row": "one camper makes two utterances or moves in a row",
    "annotations_missing": "there are fewer annotations than utterances",
    "no_annotations": "there are no annotations",
    "again": "the same dialogue stood in an earlier record",
}

Bundle = dict[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """What a row of either layout says; `odd` are keys of WHY."""

    dialogue: int
    orders: tuple[tuple[str, ...], ...]
    reasons: tuple[dict[str, str], ...]
    end: str  # a key of STATUS
    by: str | None  # who walked away
    deal: tuple[Bundle, ...] | None
    points: tuple[int, ...]
    odd: tuple[str, ...]

    def said(self) -> tuple[Any, ...]:
        """What two records of one dialogue must agree on; the summaries do not say who walked away."""
        return self.orders, self.reasons, self.end, self.deal, self.points


def read(paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """The games of some files. Raises `DataError` where a file cannot be read or has no known format."""
    found = Imported()
    seen: dict[int, tuple[str, Record]] = {}
    for path in map(str, paths):
        layout = format
        for number, value, fault in records(path):
            layout = layout or _format_of(path, value)
            found.rows += 1
            try:
                if fault:
                    raise ValueError(fault)
                record = (_dialogue if layout == "dialogues" else _summary)(value)
                earlier = seen.get(record.dialogue)
                if earlier and earlier[1].said() != record.said():
                    raise ValueError(f"dialogue {record.dialogue} contradicts its record at {earlier[0]}")
            except ValueError as error:
                found.bad.append(Problem(path, number, str(error)))
                continue
            odd = ("again", *record.odd) if earlier else record.odd
            found.odd += [Odd(path, number, kind, WHY[kind]) for kind in odd]
            if not earlier:
                seen[record.dialogue] = f"{path}:{number}", record
                _keep(found, record, f"casino:{Path(path).name}:{number}")
        if layout is None:
            raise DataError(f"{path}: holds no record that can be read")
        found.formats[path] = layout
    return found


def _keep(found: Imported, record: Record, source: str) -> None:
    people = [f"camper {i} of dialogue {record.dialogue}" for i in (1, 2)]
    scenario = found.keep(casino.build(record.orders, people, record.reasons, source=source))
    found.games += 1
    outcome: dict[str, Any] = {"status": STATUS[record.end]}
    if record.deal is not None:
        outcome["agreement"] = dict(zip(SEATS, record.deal, strict=True))
    if record.by is not None:
        outcome["by"] = record.by
    points = dict(zip(SEATS, map(float, record.points), strict=True))
    found.played.append(Played(scenario.id, outcome, record.end, source, points))


def _format_of(path: str, value: Any) -> str | None:
    """The layout that a record looks like; None for one that is broken. Raises `DataError`."""
    if not isinstance(value, Mapping):
        return None
    for layout, key in (("dialogues", "chat_logs"), ("summaries", "agents")):
        if key in value:
            return layout
    raise DataError(f"{path}: looks like none of the formats {', '.join(FORMATS)}; name one with --format")


def _dialogue(row: Any) -> Record:
    row = an_object(row, "the record")
    people = _people(row.get("participant_info"), "participant_info")
    points = [_points(an_object(info.get("outcomes"), "outcomes").get("points_scored")) for info in people.values()]
    log = [an_object(event, "an entry of chat_logs") for event in a_list(row.get("chat_logs"), "chat_logs")]
    events = [(_who(event.get("id"), people), a_text(event.get("text"), "text"), event) for event in log]
    submitted: tuple[str, Bundle] | None = None  # by whom, and what they get
    end, by, deal, rejected, odd = "none", None, None, 0, []
    for seat, text, event in events:
        if end != "none":
            odd.append("after_end")
            break
        if text == "Submit-Deal":
            submitted = seat, _submission(an_object(event.get("task_data"), "task_data"))
        elif text == "Reject-Deal":
            submitted, rejected = None, rejected + 1
        elif text == "Accept-Deal":
            if submitted is None or submitted[0] == seat:
                whose = "its own submission" if submitted else "without a submission"
                raise ValueError(f"camper {seat} accepts {whose}")
            end, deal = text, _parts(submitted[0], submitted[1])
        elif text == "Walk-Away":
            odd += ["walk_away", "pending"] if submitted and submitted[0] != seat else ["walk_away"]
            end, by = text, seat
    odd += ["no_end"] if end == "none" else []
    odd += ["rejections"] if rejected >= MANY else []
    odd += ["twice_in_a_row"] if any(x[0] == y[0] for x, y in pairwise(events)) else []
    odd += _annotated(row.get("annotations", []), sum(text not in MOVES for _, text, _ in events))
    return _checked(row, people, end, by, deal, points, odd)


def _summary(row: Any) -> Record:
    row = an_object(row, "the record")
    people = _people(row.get("agents"), "agents")
    points = [_points(info.get("points_scored")) for info in people.values()]
    end = one_of(row.get("outcome"), "outcome", ENDS)
    deal = None
    if (row.get("deal") is None) != (end == "Walk-Away"):
        raise ValueError(f"deal is {shown(row.get('deal'))}, though the outcome is {end}")
    if row["deal"] is not None:
        taken = an_object(row["deal"], "deal")
        parts = [_bundle(taken.get(name), f"deal.{name}") for name in people]
        if any(parts[0][item] + parts[1][item] != count for item, count in zip(ITEMS, COUNTS, strict=True)):
            raise ValueError(f"the deal {shown(parts)} does not divide three packages of each")
        deal = tuple(parts)
    return _checked(row, people, end, None, deal, points, ["walk_away"] if end == "Walk-Away" else [])


def _checked(
    row: Mapping[str, Any],
    people: Mapping[str, Mapping[str, Any]],
    end: str,
    by: str | None,
    deal: tuple[Bundle, ...] | None,
    points: list[int],
    odd: list[str],
) -> Record:
    """The record, when its points are those of its end. Raises `ValueError`."""
    known = [_order_and_reasons(name, info) for name, info in people.items()]
    orders = tuple(order for order, _ in known)
    for i, order in enumerate(orders):
        expected = {"Walk-Away": OUTSIDE, "none": points[i]}.get(end, 0)
        if deal is not None:
            expected = sum(v * deal[i][item] for v, item in zip(casino.points_of(order), ITEMS, strict=True))
        if points[i] != expected:
            raise ValueError(f"camper {SEATS[i]} is recorded with {points[i]} points, its end is worth {expected}")
    if deal is not None and min(points) <= OUTSIDE:
        odd.append("no_gain")
    dialogue = a_count(row.get("dialogue_id"), "dialogue_id")
    return Record(dialogue, orders, tuple(texts for _, texts in known), end, by, deal, tuple(points), tuple(odd))


def _people(value: Any, name: str) -> dict[str, Mapping[str, Any]]:
    """Both participants, the first one first."""
    people = an_object(value, name)
    if len(people) != 2:
        raise ValueError(f"{name} holds {len(people)} participants, expected two")
    return {key: an_object(people[key], f"{name}.{key}") for key in sorted(people)}


def _order_and_reasons(name: str, info: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    issues = an_object(info.get("value2issue"), f"{name}.value2issue")
    reasons = an_object(info.get("value2reason"), f"{name}.value2reason")
    order = tuple(NAMES[one_of(issues.get(level), f"{name}'s {level} issue", tuple(NAMES))] for level in LEVELS)
    if len(set(order)) < len(order):
        raise ValueError(f"{name} has the priorities {shown(list(order))}, expected food, water and firewood once each")
    texts = [a_text(reasons.get(level), f"{name}'s {level} reason") for level in LEVELS]
    return order, {item: " ".join(text.split()) for item, text in zip(order, texts, strict=True)}


def _who(name: Any, people: Mapping[str, Any]) -> str:
    """The seat of a participant."""
    if name not in people:
        raise ValueError(f"an entry of chat_logs is by {shown(name)}, expected {' or '.join(people)}")
    return SEATS[list(people).index(name)]


def _submission(data: Mapping[str, Any]) -> Bundle:
    """What the submitter gets, when both parts are three packages of each."""
    mine, theirs = (_bundle(data.get(key), key) for key in ("issue2youget", "issue2theyget"))
    if any(mine[item] + theirs[item] != count for item, count in zip(ITEMS, COUNTS, strict=True)):
        raise ValueError(f"a submission of {shown(mine)} and {shown(theirs)} does not divide three packages of each")
    return mine


def _bundle(value: Any, name: str) -> Bundle:
    taken = an_object(value, name)
    return {item: a_count(taken.get(key), f"{name}.{key}") for key, item in NAMES.items()}


def _parts(seat: str, taken: Bundle) -> tuple[Bundle, ...]:
    rest = {item: count - taken[item] for item, count in zip(ITEMS, COUNTS, strict=True)}
    return (taken, rest) if seat == "a" else (rest, taken)


def _points(value: Any) -> int:
    return a_count(value, "points_scored")


def _annotated(value: Any, utterances: int) -> Iterator[str]:
    annotations = a_list(value, "annotations")
    if not annotations:
        yield "no_annotations"
    elif len(annotations) < utterances:
        yield "annotations_missing"
