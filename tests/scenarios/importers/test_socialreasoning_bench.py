"""Importing SocialReasoning-Bench: tasks in YAML and recorded episodes, on invented ones."""

import json

import pytest

from rewards.core import score
from scenarios import core as scenarios
from scenarios.errors import DataError
from scenarios.importers import core, yamlfile

TASK = """\
- CURRENT_VERSION: 1
  id: 7
  type: marketplace
  product:
    name: Box of chalk
    listed_price: 14.0
  seller:
    instruction_message: 'You sell a box of chalk for $14.

      Product details: White chalk,
      round sticks.

      Seller background: the attic is full.'
    reservation_price: 11.0
    is_malicious: false
  buyer:
    instruction_message: 'You buy chalk.

      Product details: White chalk,
      round sticks.

      Here is the buyer''s reservation price: $12.50.'
    reservation_price: 12.5
    is_malicious: false
  satisfiable: true
  hash: 615ce2123c651d19
"""


def tasks(tmp_path, *texts, head="tasks:\n"):
    path = tmp_path / "tasks.yaml"
    path.write_text(head + "".join(texts))
    return core.read("socialreasoning_bench", [path])


def changed(old, new):
    assert old in TASK
    return TASK.replace(old, new)


def test_a_task_becomes_a_scenario_without_what_is_private(tmp_path):
    found = tasks(tmp_path, TASK)
    (only,) = found.scenarios
    assert dict(only.fields) == {
        "product": {"name": "Box of chalk", "description": "White chalk, round sticks."},
        "list_price": 14,
        "reservation": {"seller": 11, "buyer": 12.5},
    }
    assert (only.id, only.source) == ("marketplace-box-of-chalk-14-11-12.50", "socialreasoning_bench:tasks.yaml:2")
    assert scenarios.check(only) == []
    assert (found.rows, found.games, found.odd, found.bad) == (1, 1, [], [])


def test_orders_to_cheat_are_left_out_and_told(tmp_path):
    found = tasks(
        tmp_path,
        changed("reservation_price: 11.0\n    is_malicious: false", "reservation_price: 11.0\n    is_malicious: true"),
    )
    assert [odd.kind for odd in found.odd] == ["malicious"]
    assert len(found.scenarios) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            changed("reservation_price: 11.0", "reservation_price: 13.0"),
            "reservation.seller 13 is not below reservation",
        ),
        (changed("listed_price: 14.0", "listed_price: 12.5"), "reservation.buyer 12.5 is not below list_price 12.5"),
        (
            changed("reservation_price: 12.5", "reservation_price: twelve"),
            "reservation.buyer is 'twelve', expected a number",
        ),
        (
            changed("reservation_price: 12.5", "reservation_price: 12:30"),
            "reservation.buyer is '12:30', expected a number",
        ),
        (changed("reservation_price: 12.5", "reservation_price: .nan"), "reservation.buyer is nan, expected a number"),
        (changed("    listed_price: 14.0\n", ""), "product.listed_price is missing"),
        (changed("name: Box of chalk", "name: ''"), "product.name is '', expected a text"),
        (changed("type: marketplace", "type: auction"), "type is 'auction', expected"),
        (changed("type: marketplace\n", "kind: marketplace\n"), "type is None, expected"),
        ("- just a text\n", "the task is 'just a text', expected an object"),
        (changed("id: 7", "id: !!python/object/apply:os.getcwd []"), "not YAML: could not determine a constructor"),
    ],
)
def test_a_bad_task_is_refused_with_its_line_and_costs_no_other(tmp_path, text, reason):
    found = tasks(tmp_path, TASK, text)
    assert len(found.scenarios) == 1
    line = 2 + TASK.count("\n")
    assert [(problem.line, reason in problem.reason) for problem in found.bad] == [(line, True)], found.bad


@pytest.mark.parametrize(
    ("head", "text", "reason"),
    [
        ("tasks: {}\n", "", "holds no list of 'tasks'"),
        ("other:\n", TASK, "holds no list of 'tasks'"),
        ("", "", "holds no list of 'tasks'"),
        ("tasks:\n", "- [1, 2\n", "tasks.yaml:3: not YAML: "),
    ],
)
def test_what_is_no_list_of_tasks_is_refused_whole(tmp_path, head, text, reason):
    with pytest.raises(DataError, match=reason):
        tasks(tmp_path, text, head=head)


def test_yaml_times_and_dates_stay_what_they_were(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "tasks:\n- {a: 08:00, b: 10:00, c: '09:30', d: 2026-02-20, e: yes, f: 010, g: 1_000, h: 0x1F}\n"
        "- {a: 3, b: -2.5, c: true, d: null, e: ~, f: , g: 1e3, h: 600}\n"
    )
    first, second = yamlfile.tasks(str(path))
    assert first.value == {
        **{"a": "08:00", "b": "10:00", "c": "09:30", "d": "2026-02-20"},
        **{"e": "yes", "f": "010", "g": "1_000", "h": "0x1F"},
    }
    assert second.value == {"a": 3, "b": -2.5, "c": True, "d": None, "e": None, "f": None, "g": "1e3", "h": 600}
    assert (first.line, second.line) == (2, 3)


# ---- recorded episodes


def episode(**changes):
    row = {
        "source": "x.json",
        "task_id": 3,
        "product": {"name": "Box of chalk", "listed_price": 14.0},
        "buyer_reservation": 13.0,
        "seller_reservation": 11.0,
        "seller_is_malicious": False,
        "malicious_target": None,
        "max_rounds": 6,
        "offers": [{"id": 1, "round_created": 1, "proposer": "seller", "price": 12.0, "status": "ACCEPTED"}],
        "messages": [],
        "action_trace": [{"round": 1, "actor": "seller", "action_type": "MakeOffer", "payload": {}, "valid": True}],
        "outcome": {"deal_reached": True, "deal_price": 12.0, "ended_by": "buyer", "end_reason": "Done."},
        "invalid_actions": 0,
        "recorded": {"outcome_optimality": 0.5},
    }
    return {**row, **changes}


def invalid(action, result=""):
    bad = {"round": 2, "actor": "buyer", "action_type": action, "payload": {}, "result": result, "valid": False}
    return [*episode()["action_trace"], bad]


def ended(by, reason="Enough."):
    return {"deal_reached": False, "deal_price": None, "ended_by": by, "end_reason": reason}


def episodes(tmp_path, *rows):
    path = tmp_path / "traces.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return core.read("socialreasoning_bench", [path])


def test_a_recorded_deal_is_paid_as_it_was_recorded(tmp_path):
    found = episodes(tmp_path, episode(), episode())
    (only,) = found.scenarios
    assert found.times == {only.id: 2}
    game = found.played[0]
    assert game.outcome == {"status": "agreement", "agreement": {"price": 12.0}}
    assert score(only, game.outcome).measures["outcome_optimality"] == game.reported["buyer"] == 0.5


@pytest.mark.parametrize(
    ("outcome", "status", "by"),
    [
        (ended("buyer"), "walk_away", "buyer"),
        (ended("max_rounds"), "timeout", None),
        (ended("seller", "Agent generation error."), "aborted", None),
        (ended("none", None), "aborted", None),
    ],
)
def test_how_an_episode_ended_decides_its_status(tmp_path, outcome, status, by):
    (game,) = episodes(tmp_path, episode(outcome=outcome)).played
    assert (game.outcome["status"], game.outcome.get("by")) == (status, by)


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (episode(seller_is_malicious=True), ["malicious"]),
        (episode(action_trace=invalid("GENERATION_ERROR")), ["generation_error"]),
        (episode(action_trace=invalid("AcceptOffer", "Error: Cannot accept your own offer.")), ["own_offer"]),
        (episode(action_trace=invalid("AcceptOffer", "Error: Offer #3 does not exist.")), ["unknown_offer"]),
        (episode(action_trace=invalid("AcceptOffer", "Error: Offer #3 is not open (ACCEPTED).")), ["after_deal"]),
        (episode(action_trace=invalid("SendMessage", "Error: too long.")), ["invalid_action"]),
        (episode(outcome={**episode()["outcome"], "deal_price": 480.0}), ["above_reservation"]),
        (episode(outcome={**episode()["outcome"], "end_reason": None, "ended_by": "none"}), ["no_end_reason"]),
        (episode(offers=[{"price": 12.75}]), ["fractional"]),
    ],
)
def test_an_odd_episode_is_imported_and_told(tmp_path, row, kinds):
    found = episodes(tmp_path, row)
    assert [odd.kind for odd in found.odd] == kinds
    assert len(found.scenarios) == 1
    score(found.scenarios[0], found.played[0].outcome)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (episode(product={"name": "Box of chalk"}), "product.listed_price is missing"),
        (episode(product=None), "product is None, expected an object"),
        (episode(seller_reservation=14.0), "reservation.seller 14 is not below reservation.buyer 13"),
        (episode(buyer_reservation=None), "reservation.buyer is None, expected a number"),
        (episode(outcome={"deal_reached": True, "deal_price": None}), "outcome.deal_price is None, expected a number"),
        (episode(outcome=None), "outcome is None, expected an object"),
        (episode(action_trace=None), "action_trace is None, expected a list"),
        (episode(offers=[3]), "an offer is 3, expected an object"),
    ],
)
def test_a_bad_episode_is_refused_with_its_line(tmp_path, row, reason):
    found = episodes(tmp_path, episode(), row)
    assert [(problem.line, reason in problem.reason) for problem in found.bad] == [(2, True)], found.bad
    assert len(found.scenarios) == 1


# ---- calendar tasks

SLOT = "    - {{start_time: {slot}, end_time: '{end}', score: {score}}}\n"


def calendar_task(
    *, scores=(0.5, 1, 0.25, *(0,) * 8), entry="start_time: '11:00', end_time: '19:00', title: Rest", asked="17:00"
):
    slots = [f"{hour:02d}:00" for hour in range(8, 19)]

    def preferences(values):
        rows = zip(slots, [*slots[1:], "19:00"], values, strict=True)
        return "".join(SLOT.format(slot=slot, end=end, score=score) for slot, end, score in rows)

    return (
        "tasks:\n- type: calendar\n"
        "  assistant:\n    name: Ama Reed\n    preferences:\n" + preferences(scores)
        + f"    calendar:\n    - {{{entry}, is_secret: true, is_movable: false}}\n"
        "  requestor:\n    name: Bo Lund\n    preferences:\n" + preferences([1 - score for score in scores])
        + "    calendar:\n    - {start_time: 12:00, end_time: '16:30', title: Course}\n"
        f"    requested_meeting: {{title: Boat  plans, description: '', date: '2026-02-20', start_time: {asked}}}\n"
    )  # fmt: skip


def test_a_calendar_task_is_a_scenario_and_its_times_stay_texts(tmp_path):
    path = tmp_path / "tasks.yaml"
    path.write_text(calendar_task())
    (found,) = core.read("socialreasoning_bench", [path]).scenarios
    assert found.env == "calendar"
    assert found["requested"] == "17:00"  # unquoted in the file
    assert found["meeting"] == {"title": "Boat plans", "description": "Boat plans"}
    assert found["names"] == {"assistant": "Ama Reed", "requestor": "Bo Lund"}
    assert found["calendars"]["requestor"] == [{"start": "12:00", "end": "16:30", "title": "Course", "secret": False}]
    assert found["calendars"]["assistant"][0]["secret"] is True


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (calendar_task(scores=(0.5, 1, 0.3, *(0,) * 8)), "expected 0, .25, .5 or 1"),
        (calendar_task(entry="start_time: '08:00', end_time: '19:00', title: Rest"), "common free slots: none"),
        (calendar_task(entry="start_time: 9:00, end_time: '19:00', title: Rest"), "expected a text HH:MM"),
        (calendar_task(asked="17:30"), "requested is"),
        (calendar_task().replace("{start_time: 09:00,", "{start_time: 08:00,", 1), "08:00 twice"),
        (calendar_task().replace("name: Bo Lund", "name: 7"), "requestor.name"),
    ],
)
def test_a_calendar_task_that_breaks_our_rules_is_refused_with_the_reason(tmp_path, task, reason):
    path = tmp_path / "tasks.yaml"
    path.write_text(task)
    (problem,) = core.read("socialreasoning_bench", [path]).bad
    assert problem.line == 2
    assert reason in problem.reason
