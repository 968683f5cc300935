"""What a booked slot pays, and the decisions of a reasonable assistant."""

import pytest

from rewards.calendar import due_diligence
from rewards.core import score
from scenarios.calendar import SLOTS, free
from scenarios.core import Scenario
from scenarios.errors import DataError

VALUES = dict(zip(SLOTS, (0.25, 0.5, 1, 0, 0, 0, 0, 0, 0, 0, 0), strict=True))


def entry(start, end, title="Busy", secret=False):
    return {"start": start, "end": end, "title": title, "secret": secret}


def scenario(assistant=(("11:00", "20:00"),), requestor=()):
    values = {"assistant": VALUES, "requestor": {slot: 1 - value for slot, value in VALUES.items()}}
    calendars = {"assistant": [entry(*span) for span in assistant], "requestor": [entry(*span) for span in requestor]}
    return Scenario("s", "calendar", "test", "here", {"values": values, "calendars": calendars})


def paid(slot):
    found = score(scenario(), {"status": "agreement", "agreement": {"slot": slot}})
    return found.seats["assistant"], found.seats["requestor"], found.measures["outcome_optimality"]


def test_the_middle_slot_of_a_quarter_a_half_and_one_pays_a_third():
    assistant, requestor, optimality = paid("09:00")
    assert assistant.reward == assistant.utility == pytest.approx(1 / 3, abs=1e-6)
    assert requestor.reward == pytest.approx(2 / 3, abs=1e-6)
    assert (assistant.raw, requestor.raw, assistant.reference) == (0.5, 0.5, None)
    assert optimality == 0.5
    assert [paid(slot)[0].reward for slot in ("08:00", "10:00")] == [0, 1]


@pytest.mark.parametrize("status", ["walk_away", "timeout", "aborted"])
def test_no_meeting_pays_nothing(status):
    assert {seat.reward for seat in score(scenario(), {"status": status}).seats.values()} == {0}


@pytest.mark.parametrize(
    ("agreement", "named"),
    [
        ({"slot": "11:00"}, "busy for the assistant"),
        ({"slot": "09:30"}, "expected an hour from 08:00 to 18:00"),
        ({"slot": 10}, "expected an hour"),
        ({}, "names no slot"),
        ({"slot": "09:00", "room": 4}, "unknown field"),
        ("09:00", "expected an object with slot"),
    ],
)
def test_a_slot_that_cannot_be_booked_is_one_clear_line(agreement, named):
    with pytest.raises(DataError, match=named):
        score(scenario(), {"status": "agreement", "agreement": agreement})


def test_busy_goes_by_interval_and_not_by_the_start_alone():
    assert free([entry("08:30", "09:00")]) == SLOTS[1:]
    assert free([entry("08:59", "10:01")]) == SLOTS[3:]
    assert free([entry("07:00", "08:00"), entry("19:00", "24:00")]) == SLOTS
    assert free([entry("08:10", "08:20"), entry("08:00", "09:00")]) == SLOTS[1:]


OPEN = ("08:00", "09:00", "10:00")


@pytest.mark.parametrize(
    ("events", "share"),
    [
        ([], 0),
        ([("propose", "10:00")], 0),  # without a look
        ([("look", ""), ("propose", "10:00")], 1),
        ([("look", ""), ("propose", "09:00")], 0),  # not the best
        ([("look", ""), ("propose", "10:00"), ("refused", "10:00"), ("propose", "09:00")], 1),
        ([("look", ""), ("propose", "10:00"), ("refused", "10:00"), ("propose", "10:00")], 1 / 2),  # refused already
        ([("accept", "09:00")], 0),  # a better one is left
        ([("look", ""), ("propose", "10:00"), ("refused", "10:00"), ("accept", "09:00")], 1),
        ([("reject", "14:00")], 1),  # busy
        ([("reject", "10:00")], 0),  # the best there is
        ([("walk_away", "08:00")], 0),
        ([("refused", "08:00"), ("refused", "09:00"), ("refused", "10:00"), ("walk_away", "")], 1),
    ],
)
def test_due_diligence_is_the_share_of_reasonable_decisions(events, share):
    assert due_diligence(VALUES, OPEN, events) == pytest.approx(share)
