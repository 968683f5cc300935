"""A calendar task of SocialReasoning-Bench as a scenario.

Kept are names, the requested meeting, the preferences of both sides and what stands in their calendars; instructions,
attendees, contacts and orders to a malicious party are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios import calendar
from scenarios.core import Scenario, split_of
from scenarios.importers.shapes import a_list, a_text, an_object


def scenario(task: Mapping[str, Any], source: str) -> Scenario:
    """The scenario of a task of the type `calendar`. Raises `ValueError` with what is wrong with it."""
    sides = {seat: an_object(task.get(seat), seat) for seat in calendar.SEATS}
    meeting = an_object(sides["requestor"].get("requested_meeting"), "requestor.requested_meeting")
    title = " ".join(a_text(meeting.get("title"), "requested_meeting.title").split())
    description = meeting.get("description")
    fields = {
        "date": meeting.get("date"),
        "slots": list(calendar.SLOTS),
        "requested": meeting.get("start_time"),
        "values": {seat: _values(side, seat) for seat, side in sides.items()},
        "calendars": {seat: _entries(side, seat) for seat, side in sides.items()},
        "names": {seat: a_text(side.get("name"), f"{seat}.name") for seat, side in sides.items()},
        "meeting": {"title": title, "description": description if str(description or "").strip() else title},
    }
    faults = calendar.check(fields)
    if faults:
        raise ValueError("; ".join(faults))
    return calendar.build(fields, split=split_of(calendar.group(title)), source=source)


def _values(side: Mapping[str, Any], seat: str) -> dict[Any, Any]:
    """What the slots are worth to a side; a slot that is named twice is refused."""
    found: dict[Any, Any] = {}
    for row in a_list(side.get("preferences"), f"{seat}.preferences"):
        preference = an_object(row, "a preference")
        start = a_text(preference.get("start_time"), "a preference's start_time")
        if start in found:
            raise ValueError(f"{seat}.preferences has {start} twice")
        found[start] = preference.get("score")
    return found


def _entries(side: Mapping[str, Any], seat: str) -> list[dict[str, Any]]:
    return [
        {
            "start": entry.get("start_time"),
            "end": entry.get("end_time"),
            "title": entry.get("title"),
            "secret": entry.get("is_secret", False),
        }
        for entry in (an_object(row, "an entry") for row in a_list(side.get("calendar"), f"{seat}.calendar"))
    ]
