"""Meetings to be agreed on: what makes a scenario, and the generator."""

import copy

import pytest

from scenarios.calendar import POOR, SLOTS, free, situations, zone
from scenarios.core import Scenario, check, generate, packaged


def scenario(change):
    fields = copy.deepcopy(dict(packaged("calendar", "test")[0].fields))
    change(fields)
    return Scenario("s", "calendar", "test", "here", fields)


def entry(**other):
    return {"start": "09:00", "end": "10:00", "title": "x", "secret": False, **other}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda f: f["values"]["requestor"].update({"08:00": 0.3}), "values.requestor.08:00 is 0.3, expected"),
        (lambda f: f["values"]["assistant"].update({"08:00": 0.3}), "expected 0, .25, .5 or 1"),
        (lambda f: f["values"]["assistant"].update({"08:00": True}), "expected a number from 0 to 1"),
        (lambda f: f["values"]["assistant"].pop("18:00"), "values.assistant.18:00 is missing"),
        (lambda f: f["calendars"]["assistant"].append(entry(start=540)), "start is 540, expected a text HH:MM"),
        (lambda f: f["calendars"]["assistant"].append(entry(end="09:00")), "not after its start 09:00"),
        (lambda f: f["calendars"]["requestor"].append(entry(secret="no")), "expected true or false"),
        (lambda f: f["calendars"]["requestor"].append(entry(start="00:00", end="24:00")), "common free slots: none"),
        (lambda f: f.update(requested="09:30"), '09:30'),
        (lambda f: f.update(date="2026-2-3"), "expected YYYY-MM-DD"),
        (lambda f: f.update(slots=list(SLOTS[:5])), "expected the eleven hours"),
        (lambda f: f["names"].pop("assistant"), "names.assistant is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_names_it(change, named):
    assert check(scenario(lambda fields: None)) == []
    assert any(named in fault for fault in check(scenario(change)))


def test_the_packaged_meetings_keep_their_promises():
    seen = {}
    for split in ("train", "val", "test"):
        for found in packaged("calendar", split):
            mine, calendars, asked = found["values"]["assistant"], found["calendars"], found["requested"]
            assert len({mine[slot] for slot in zone(calendars)}) >= 2
            assert asked in free(calendars["requestor"])
            assert asked not in free(calendars["assistant"]) or mine[asked] < POOR
            assert seen.setdefault(found["meeting"]["title"], split) == split
    assert len(seen) == len(situations()) >= 40


def test_the_generator_repeats_itself():
    one, two, other = (list(generate("calendar", 20, seed, "train")) for seed in (3, 3, 4))
    assert one == two != other
    assert packaged("calendar", "val") == tuple(generate("calendar", 50, 0, "val"))
