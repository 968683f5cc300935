"""Calendar: an assistant and a requestor agree on a slot of one day for a meeting, each with an own calendar.

The day has eleven slots of an hour, 08:00 to 18:00. Each side values every slot: the assistant, for its principal,
at 0, .25, .5 or 1, the requestor at 1 minus that. Times are `HH:MM`, up to 24:00; what stands in a calendar may lie off
the hours and overlap, and a slot is busy when any of it reaches into the slot's hour. A scenario needs two slots
that are free on both sides and differ in value, and the requestor asks first for one that is busy or poor (below
.5) for the assistant. A meeting's title names its situation, which stands in one split only.

How a game is played is in `envs/calendar.py`, how it is paid in `rewards/calendar.py`, what generated meetings are
about in `texts/calendar.jsonl`.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

from scenarios import wording
from scenarios.core import Scenario, split_of
from scenarios.jsonfile import shown

SEATS = ("assistant", "requestor")
SLOTS = tuple(f"{hour:02d}:00" for hour in range(8, 19))
HOUR = 60  # minutes
VALUES = (0.0, 0.25, 0.5, 1.0)  # of a slot to the assistant's principal
POOR = 0.5  # below it the requested slot is poor for the assistant
CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")

FIELDS = ("date", "slots", "requested", "values", "calendars", "names", "meeting")
REWARD_FIELDS = ("values", "calendars")

Span = tuple[int, int]  # minutes since midnight, from and to


def minutes(clock: str) -> int:
    """Minutes since midnight of `HH:MM`."""
    return int(clock[:2]) * 60 + int(clock[3:])


def clock(minute: int) -> str:
    """The inverse of `minutes`."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


def free(calendar: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The slots that nothing in a calendar reaches into."""
    return _free(tuple((entry["start"], entry["end"]) for entry in calendar))


@lru_cache(maxsize=1 << 12)
def _free(entries: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    spans = [(minutes(start), minutes(end)) for start, end in entries]
    return tuple(
        slot
        for slot, at in ((slot, minutes(slot)) for slot in SLOTS)
        if not any(start < at + HOUR and end > at for start, end in spans)
    )


def zone(calendars: Mapping[str, Any]) -> tuple[str, ...]:
    """The slots that are free on both sides."""
    theirs = free(calendars["requestor"])
    return tuple(slot for slot in free(calendars["assistant"]) if slot in theirs)


# ---- the rules of a scenario


def check(fields: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a scenario's own fields."""
    found = _value_faults(fields["values"]) + _calendar_faults(fields["calendars"])
    if "date" in fields and not _is_date(fields["date"]):
        found.append(f"date is {shown(fields['date'])}, expected YYYY-MM-DD")
    if "slots" in fields and fields["slots"] != list(SLOTS):
        found.append(f"slots is {shown(fields['slots'])}, expected the eleven hours {SLOTS[0]} to {SLOTS[-1]}")
    if "requested" in fields and fields["requested"] not in SLOTS:
        found.append(f"requested is {shown(fields['requested'])}, expected a slot from {SLOTS[0]} to {SLOTS[-1]}")
    for key, names in (("names", SEATS), ("meeting", ("title", "description"))):
        if key in fields:
            found += _text_faults(key, fields[key], names)
    return found or _game_faults(fields)


def _value_faults(values: Any) -> list[str]:
    found = _key_faults("values", values, SEATS)
    for seat in SEATS if not found else ():
        worth = values[seat]
        found += _key_faults(f"values.{seat}", worth, SLOTS)
        for slot in SLOTS:
            if isinstance(worth, Mapping) and slot in worth and not (_is_number(worth[slot]) and 0 <= worth[slot] <= 1):
                found.append(f"values.{seat}.{slot} is {shown(worth[slot])}, expected a number from 0 to 1")
    if found:
        return found
    mine, theirs = values["assistant"], values["requestor"]
    for slot in SLOTS:
        if mine[slot] not in VALUES:
            found.append(f"values.assistant.{slot} is {shown(mine[slot])}, expected 0, .25, .5 or 1")
        elif abs(mine[slot] + theirs[slot] - 1) > 1e-9:
            found.append(f"values.requestor.{slot} is {shown(theirs[slot])}, expected {1 - mine[slot]:g}")
    return found


def _calendar_faults(calendars: Any) -> list[str]:
    found = _key_faults("calendars", calendars, SEATS)
    for seat in SEATS if not found else ():
        if not isinstance(calendars[seat], Sequence) or isinstance(calendars[seat], str):
            found.append(f"calendars.{seat} is {shown(calendars[seat])}, expected a list")
            continue
        for i, entry in enumerate(calendars[seat]):
            found += _entry_faults(f"calendars.{seat}[{i}]", entry)
    return found


def _entry_faults(place: str, entry: Any) -> list[str]:
    found = _key_faults(place, entry, ("start", "end", "title", "secret"))
    if found:
        return found
    for key in ("start", "end"):
        if not isinstance(entry[key], str) or not CLOCK.fullmatch(entry[key]):
            found.append(f"{place}.{key} is {shown(entry[key])}, expected a text HH:MM")
    if not found and minutes(entry["start"]) >= minutes(entry["end"]):
        found.append(f"{place} ends at {entry['end']}, not after its start {entry['start']}")
    if not isinstance(entry["title"], str):
        found.append(f"{place}.title is {shown(entry['title'])}, expected a text")
    if not isinstance(entry["secret"], bool):
        found.append(f"{place}.secret is {shown(entry['secret'])}, expected true or false")
    return found


def _game_faults(fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with a game whose fields each are well formed."""
    mine, calendars, asked = fields["values"]["assistant"], fields["calendars"], fields.get("requested")
    common, found = zone(calendars), []
    if len({mine[slot] for slot in common}) < 2:
        slots = ", ".join(common) or "none"
        found.append(f"common free slots: {slots}; expected at least two that differ in value")
    if asked is not None and asked not in free(calendars["requestor"]):
        found.append(f"requested {asked} is busy for the requestor")
    if asked is not None and asked in free(calendars["assistant"]) and mine[asked] >= POOR:
        found.append(
            f"requested {asked} is free and worth {mine[asked]:g} to the assistant, expected busy or below {POOR:g}"
        )
    return found


def _text_faults(name: str, given: Any, keys: tuple[str, ...]) -> list[str]:
    found = _key_faults(name, given, keys)
    for key in keys if not found else ():
        if not isinstance(given[key], str) or not given[key].strip():
            found.append(f"{name}.{key} is {shown(given[key])}, expected a text")
    return found


def _key_faults(name: str, given: Any, keys: tuple[str, ...]) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{name} is {shown(given)}, expected an object with {', '.join(keys)}"]
    missing = [f"{name}.{key} is missing" for key in keys if key not in given]
    return missing + [f"{name} has an unknown key {shown(key)}" for key in given if key not in keys]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


# ---- scenarios of our own


def group(title: str) -> str:
    """The situation of a meeting."""
    return f"calendar {' '.join(title.casefold().split())}"


def groups(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return (group(fields["meeting"]["title"]),)


def build(fields: Mapping[str, Any], *, split: str, source: str) -> Scenario:
    """A scenario whose id is a digest of its content."""
    ordered = {key: fields[key] for key in FIELDS}
    digest = blake2b(repr(ordered).encode(), digest_size=5).hexdigest()
    return Scenario(f"calendar-{digest}", "calendar", split, source, ordered)


@cache
def situations() -> dict[str, list[str]]:
    """What our meetings are about: title → agenda."""
    return {row["title"]: row["agenda"] for row in wording.pool("calendar") if "title" in row}


@cache
def texts() -> dict[str, list[str]]:
    """What else our scenarios are written from, by kind."""
    return {kind: items for row in wording.pool("calendar") if "title" not in row for kind, items in row.items()}


def generate(n: int, seed: int, split: str) -> Iterator[Scenario]:
    """Any number of scenarios; the split's situations come in turn, everything else is drawn."""
    titles = [title for title in situations() if split_of(group(title)) == split]
    random.Random(f"calendar {seed} {split}").shuffle(titles)
    for number in range(n):
        rng = random.Random(f"calendar {seed} {split} {number}")
        yield build(_draw(rng, titles[number % len(titles)]), split=split, source=f"generator:calendar:seed={seed}")


def _draw(rng: random.Random, title: str) -> dict[str, Any]:
    worth = dict(zip(SLOTS, rng.choices(VALUES, k=len(SLOTS)), strict=True))
    slots = list(SLOTS)
    rng.shuffle(slots)
    common = slots[: rng.choice((3, 3, 4, 4, 5))]
    levels = rng.sample(VALUES, rng.choice((2, 3, 3)))
    levels += rng.choices(levels, k=len(common) - len(levels))
    worth.update(zip(common, levels, strict=True))
    busy = slots[len(common) :]  # of these, each is free on one side at most
    asked = busy.pop()
    worth[asked] = rng.choice((0.0, 0.0, 0.25))
    if rng.random() < 0.2:
        common.append(asked)
    mine = {*common, *(slot for slot in busy if rng.random() < 0.25)}
    theirs = {*common, asked, *(slot for slot in busy if slot not in mine and rng.random() < 0.3)}
    names = [f"{rng.choice(texts()['first_names'])} {rng.choice(texts()['last_names'])}" for _ in SEATS]
    return {
        "date": (datetime.date(2026, 1, 5) + datetime.timedelta(days=rng.randrange(700))).isoformat(),
        "slots": list(SLOTS),
        "requested": asked,
        "values": {"assistant": worth, "requestor": {slot: 1 - worth[slot] for slot in SLOTS}},
        "calendars": {
            "assistant": _fill(rng, mine, secret=asked),
            "requestor": _fill(rng, theirs, secret=""),
        },
        "names": dict(zip(SEATS, names, strict=True)),
        "meeting": {"title": title, "description": _describe(rng, title)},
    }


def _fill(rng: random.Random, open_slots: set[str], secret: str) -> list[dict[str, Any]]:
    """A calendar that leaves just these slots free: meetings of one or two slots, many of them off the hours, some
    overlapping. What lies in the slot `secret` is secret more often than not."""
    busy = [minutes(slot) for slot in SLOTS if slot not in open_slots]
    spans: list[Span] = []
    while busy:
        start = busy.pop(0)
        end = start + HOUR
        if busy and busy[0] == end and rng.random() < 0.4:
            end = busy.pop(0) + HOUR
        late, early = (rng.choice((0, 0, 0, 15, 20, 30)) for _ in range(2))
        spans.append((start + late, end - early if end - early > max(start + late, end - HOUR) else end))
        if rng.random() < 0.15:
            spans.append((start + rng.choice((5, 10, 30)), end))
    if rng.random() < 0.3:
        spans.append((rng.choice((6 * 60, 6 * 60 + 45, 7 * 60)), 7 * 60 + 50))
    spans.sort()
    public, private = rng.sample(texts()["busy"], len(spans)), rng.sample(texts()["secret"], len(spans))
    at = minutes(secret) if secret else -HOUR
    entries = []
    for (start, end), title, other in zip(spans, public, private, strict=True):
        hidden = rng.random() < (0.7 if start < at + HOUR and end > at else 0.15)
        entries.append(
            {"start": clock(start), "end": clock(end), "title": other if hidden else title, "secret": hidden}
        )
    return entries


def _describe(rng: random.Random, title: str) -> str:
    items = rng.sample(situations()[title], 3)
    return f"{rng.choice(texts()['openers'])} {items[0]}, {items[1]} and {items[2]}. {rng.choice(texts()['closers'])}"


def summary(fields: Mapping[str, Any]) -> str:
    common = ", ".join(f"{slot} ({fields['values']['assistant'][slot]:g})" for slot in zone(fields["calendars"]))
    return f"{fields['meeting']['title']} · asked for {fields['requested']} · common free slots {common}"
