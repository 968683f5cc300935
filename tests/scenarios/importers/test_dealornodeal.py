"""Importing Deal or No Deal files: every odd and every bad kind of row, on invented games."""

import os
from collections import defaultdict
from pathlib import Path

import pytest

from rewards.core import score
from scenarios import core as scenarios
from scenarios.errors import DataError, UsageError
from scenarios.importers import core

# Invented games. ONE and TWO are the two players of one game, in `count value` pairs.
ONE, TWO = "1 1 2 3 3 1", "1 2 2 1 3 2"  # counts 1 2 3; values 1 3 1 and 2 1 2
RED, BLUE = "2 2 2 2 1 2", "2 1 2 3 1 2"  # counts 2 2 1; values 2 2 2 and 1 3 2
TALK = "YOU: hats for me ? <eos> THEM: fine <eos> YOU: <selection>"
MIRROR = "THEM: hats for me ? <eos> YOU: fine <eos> THEM: <selection>"
ITEMS = "item0=0 item1=2 item2=0"  # of ONE: 6 points
OTHER = "item0=1 item1=0 item2=3"  # of TWO: 8 points


def tagged(own=ONE, talk=TALK, output=f"{ITEMS} {OTHER}", other=TWO):
    inside = f"<dialogue> {talk} </dialogue> <output> {output} </output>"
    return f"<input> {own} </input> {inside} <partner_input> {other} </partner_input>"


def flat(own=ONE, talk=TALK, claim=ITEMS, reward="6", mark="agree", other=TWO):
    return f"{own} {talk} {claim} <eos> reward={reward} {mark} {other}"


def six(word):
    return " ".join([f"<{word}>"] * 6)


def imported(tmp_path, *lines, format=None):
    path = tmp_path / "games.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return core.read("dealornodeal", [path], format)


def kinds(found):
    return [(odd.line, odd.kind) for odd in found.odd]


def reasons(found):
    return [(problem.line, problem.reason) for problem in found.bad]


def test_selfplay_takes_two_lines_for_a_game(tmp_path):
    found = imported(tmp_path, ONE, TWO)
    (only,) = found.scenarios
    assert only["counts"] == {"book": 1, "hat": 2, "ball": 3}
    assert only["values"] == {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}}
    assert only.source == "dealornodeal:games.txt:1"
    assert (found.formats, found.rows, found.games) == ({str(tmp_path / "games.txt"): "selfplay"}, 2, 1)
    assert found.played == []
    assert scenarios.check(only) == []


def test_a_scenario_is_kept_once_with_its_number_of_games_whoever_sat_where(tmp_path):
    found = imported(tmp_path, ONE, TWO, RED, BLUE, TWO, ONE, ONE, TWO)
    assert found.games == 4
    assert [s.source for s in found.scenarios] == [
        "dealornodeal:games.txt:1 (3 games)",
        "dealornodeal:games.txt:3",
    ]
    assert found.to_json()["repeated"] == 2


def test_a_bad_selfplay_line_costs_its_own_game_alone(tmp_path):
    found = imported(tmp_path, ONE, "1 2 2 1 3", RED, "", TWO, ONE, ONE, BLUE, TWO)
    assert found.games == 1
    assert reasons(found) == [
        (2, "the row is '1 2 2 1 3', expected six integers"),
        (4, "the row is '', expected six integers"),
        (7, "the players' counts differ: (1, 2, 3) and (2, 2, 1)"),
        (9, "the second player's line is missing"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("1 1 2 3 3 2", TWO, "everything is worth 13 to a, expected 10"),
        ("1 10 2 0 3 0", "1 0 2 2 3 2", "no item is worth something to both seats"),
        ("1 10 2 0 3 0", "1 4 2 3 3 0", "ball is worth nothing to both seats"),
        ("5 1 1 5 1 0", "5 1 1 4 1 1", "counts.book is 5, expected 1 to 4"),
        ("1 4 1 3 1 3", "1 4 1 3 1 3", "counts add up to 3, expected 5 to 7"),
        ("1 1 2 3 3 -1", TWO, "expected six integers"),
        ("1 1 2 3 3 1.0", TWO, "expected six integers"),
        ("1  1 2 3 3 1", TWO, "expected six integers"),
        ("1 1 2 3 3 ١", TWO, "expected six integers"),
        ("1 1 2 3 3 " + "9" * 400, TWO, "expected six integers"),
    ],
)
def test_numbers_that_break_the_rules_of_the_game_are_bad_rows(tmp_path, first, second, reason):
    found = imported(tmp_path, first, second, format="selfplay")
    assert found.scenarios == []
    assert reason in found.bad[0].reason


@pytest.mark.parametrize(
    ("rows", "status", "agreement"),
    [
        ([tagged(), tagged(TWO, MIRROR, f"{OTHER} {ITEMS}", ONE)], "agreement", True),
        ([flat(), flat(TWO, MIRROR, OTHER, "8", "agree", ONE)], "agreement", True),
        ([tagged(output=six("no_agreement")), tagged(TWO, MIRROR, six("no_agreement"), ONE)], "walk_away", False),
        ([tagged(output=six("disagree")), tagged(TWO, MIRROR, six("disagree"), ONE)], "aborted", False),
        ([tagged(output=six("disconnect")), tagged(TWO, MIRROR, six("disconnect"), ONE)], "aborted", False),
    ],
)
def test_a_row_and_its_mirror_are_one_game_with_one_outcome(tmp_path, rows, status, agreement):
    found = imported(tmp_path, *rows)
    assert (found.rows, found.games, found.bad) == (2, 1, [])
    (game,) = found.played
    assert game.outcome["status"] == status
    assert game.source == "dealornodeal:games.txt:1+2"
    if agreement:
        parts = {"a": {"book": 0, "hat": 2, "ball": 0}, "b": {"book": 1, "hat": 0, "ball": 3}}
        assert game.outcome["agreement"] == parts
    else:
        assert "agreement" not in game.outcome


def test_mirrors_are_found_wherever_they_stand(tmp_path):
    lone = tagged(RED, TALK, six("disagree"), BLUE)
    rows = [tagged(), lone, tagged(TWO, MIRROR, f"{OTHER} {ITEMS}", ONE), tagged()]
    found = imported(tmp_path, *rows)
    assert found.games == 3
    assert [game.source.rsplit(":", 1)[1] for game in found.played] == ["1+3", "2", "4"]
    assert kinds(found) == [(2, "disagree"), (2, "no_mirror"), (4, "no_mirror")]


def test_each_odd_kind_of_tagged_row_is_reported_and_imported(tmp_path):
    found = imported(
        tmp_path,
        tagged(output=six("disagree")),
        tagged(RED, TALK, six("no_agreement"), BLUE),
        tagged(BLUE, "THEM: take it or leave it <eos> YOU: <selection>", six("disconnect"), RED),
    )
    assert [(line, kind) for line, kind in kinds(found) if kind != "no_mirror"] == [
        (1, "disagree"),
        (2, "no_agreement"),
        (3, "disconnect"),
    ]
    assert len(found.scenarios) == 2
    assert [game.record for game in found.played] == ["disagree", "no_agreement", "disconnect"]
    assert str(found.odd[0]).endswith("games.txt:1: disagree: the players' claims do not fit, pays 0")


def test_each_odd_kind_of_flat_row_is_reported_and_pays_nothing(tmp_path):
    found = imported(
        tmp_path,
        flat(mark="disagree"),
        flat(RED, claim="item0=0 item1=0 item2=0", reward="0", mark="disagree", other=BLUE),
        flat(claim="no agreement", reward="no agreement", talk="YOU: no <eos> THEM: <selection>"),
        flat(claim="no agreement", reward="no agreement", mark="disagree", talk="YOU: never <eos> THEM: <selection>"),
        flat(claim="disconnect", reward="disconnect", talk="THEM: hm <eos> YOU: <selection>"),
        flat(claim="disconnect", reward="disconnect", mark="disagree", talk="THEM: well <eos> YOU: <selection>"),
    )
    assert found.bad == []
    assert [pair for pair in kinds(found) if pair[1] != "no_mirror"] == [
        (1, "disagree"),
        (1, "disagree_paid"),
        (2, "disagree"),
        (3, "no_agreement"),
        (4, "no_agreement"),
        (4, "no_agreement_marked_disagree"),
        (5, "disconnect"),
        (5, "disconnect_marked_agree"),
        (6, "disconnect"),
    ]
    assert [game.record for game in found.played] == [
        *("disagree", "disagree", "no_agreement", "disagree", "disconnect", "disconnect")
    ]
    assert found.odd[1].reason == "a disagree row that carries a reward of 6: pays 0"
    by_id = {scenario.id: scenario for scenario in found.scenarios}
    for game in found.played:
        assert [seat.reward for seat in score(by_id[game.scenario], game.outcome).seats.values()] == [0, 0]


def test_one_who_left_and_one_who_did_not_agree_are_one_game(tmp_path):
    found = imported(
        tmp_path,
        flat(claim="no agreement", reward="no agreement", mark="disagree"),
        flat(TWO, MIRROR, "disconnect", "disconnect", "disagree", ONE),
    )
    assert (found.games, found.bad) == (1, [])
    assert found.played[0].record == "disconnect"


def test_an_outcome_is_turned_to_the_seats_of_the_scenario_that_was_kept(tmp_path):
    found = imported(tmp_path, flat(), flat(TWO, "YOU: mine <eos> THEM: <selection>", OTHER, "8", "agree", ONE))
    first, second = found.played
    assert first.scenario == second.scenario
    assert first.outcome == second.outcome
    assert (dict(first.reported), dict(second.reported)) == ({"a": 6}, {"b": 8})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (tagged(output=f"{ITEMS} {ITEMS}"), "do not add up to the counts (1, 2, 3)"),
        (tagged(output=f"item0=2 item1=0 item2=0 {OTHER}"), "the claim (2, 0, 0) is more than the counts"),
        (tagged(output="item0=0 item1=2 item2=0"), "expected item0= item1= item2= twice"),
        (tagged(output="item1=0 item0=2 item2=0 " + OTHER), "expected item0= item1= item2= twice"),
        (tagged(output="<disagree> " * 5 + "<no_agreement>"), "or <disconnect> six times"),
        (tagged(output=six("agree")), "expected item0= item1= item2= twice"),
        (tagged(output=""), "expected item0= item1= item2= twice"),
        (tagged().replace("<output> ", ""), "<output> is missing"),
        (tagged() + " <input>", "<input> stands twice"),
        (tagged() + " more", "something stands outside"),
        (tagged(own="1 1 2 3 3"), "<input> is '1 1 2 3 3', expected six integers"),
        (tagged(other="1 2 2 1 2 3"), "the players' counts differ"),
        (tagged(talk="hats for me ? <selection>"), "does not begin with YOU: or THEM:"),
        (tagged(talk="YOU: hats for me ?"), "end with <selection>"),
    ],
)
def test_a_bad_tagged_row_is_left_out_with_its_reason(tmp_path, row, reason):
    found = imported(tmp_path, row, tagged(RED, TALK, six("disagree"), BLUE))
    assert [problem.line for problem in found.bad] == [1]
    assert reason in found.bad[0].reason
    assert found.games == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (flat(reward="7"), "the reward is '7', but the claim is worth 6"),
        (flat(reward="7", mark="disagree"), "the reward is '7', but the claim is worth 6"),
        (flat(reward="no agreement"), "the reward is 'no agreement', but the claim is worth 6"),
        (flat(claim="no agreement", reward="6"), "the reward is '6', though the claim is no agreement"),
        (flat(claim="disconnect", reward="no agreement"), "though the claim is disconnect"),
        (flat(claim="maybe", reward="maybe"), "the claim is 'maybe', expected items, no agreement or disconnect"),
        (flat(claim="item0=0 item1=3 item2=0", reward="9"), "the claim (0, 3, 0) is more than the counts"),
        (flat(mark="agreed"), "the mark is 'agreed', expected agree or disagree"),
        (flat().replace("<selection> ", ""), "<selection> is missing"),
        (flat().replace("fine", "<selection>"), "<selection> stands twice"),
        (flat().replace("<eos> reward=6", ""), "does not end in claim <eos> reward=R"),
        (flat(own="1 1 2 3 3"), "the reader's part is"),
        (flat(other="1 2 2 1 3"), "the partner's part is"),
        (flat(other="1 2 2 1 2 3"), "the players' counts differ"),
    ],
)
def test_a_bad_flat_row_is_left_out_with_its_reason(tmp_path, row, reason):
    found = imported(tmp_path, flat(RED, TALK, "disconnect", "disconnect", "agree", BLUE), row)
    assert [problem.line for problem in found.bad] == [2]
    assert reason in found.bad[0].reason
    assert found.games == 1


@pytest.mark.parametrize(
    "mirror",
    [
        flat(TWO, MIRROR, "item0=1 item1=1 item2=2", "7", "agree", ONE),
        flat(TWO, MIRROR, "no agreement", "no agreement", "agree", ONE),
    ],
)
def test_a_row_and_a_mirror_that_contradict_each_other_are_both_bad(tmp_path, mirror):
    found = imported(tmp_path, flat(), mirror)
    assert [problem.line for problem in found.bad] == [1, 2]
    assert found.bad[0].reason.startswith("says agree (0, 2, 0), but the mirrored row 2 says ")
    assert (found.games, found.scenarios, found.odd) == (0, [], [])


def test_odd_bytes_line_ends_and_blank_lines_do_not_move_the_line_numbers(tmp_path):
    path = tmp_path / "games.txt"
    rows = [tagged().encode(), b"", b"\xff\xfe", tagged(TWO, MIRROR, f"{OTHER} {ITEMS}", ONE).encode()]
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(rows) + b"\r\n\r\n")
    found = core.read("dealornodeal", [path])
    assert (found.games, found.rows) == (1, 3)
    assert reasons(found) == [(3, "not UTF-8")]


def test_several_files_are_one_collection(tmp_path):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text(f"{ONE}\n{TWO}\n")
    two.write_text(tagged() + "\n")
    found = core.read("dealornodeal", [one, two])
    assert list(found.formats.values()) == ["selfplay", "tagged"]
    assert [s.source for s in found.scenarios] == ["dealornodeal:one.txt:1 (2 games)"]


def test_only_one_split_may_be_kept(tmp_path):
    found = imported(tmp_path, ONE, TWO, RED, BLUE)
    parts = {split: found.kept(split) for split in scenarios.SPLITS}
    assert sorted(s.id for part in parts.values() for s in part.scenarios) == sorted(s.id for s in found.scenarios)
    assert all(s.split == split for split, part in parts.items() for s in part.scenarios)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"hello\n", "looks like none of the formats selfplay, tagged, flat"),
        (b"\xff\xfe\x00", "looks like none of the formats"),
        (b'{"a": 1}\n', "looks like none of the formats"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, reason):
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        core.read("dealornodeal", [path])


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(UsageError, match="unknown corpus 'dealnodeal'; did you mean 'dealornodeal'"):
        core.read("dealnodeal", [tmp_path])
    with pytest.raises(UsageError, match="has no format 'taged'; did you mean 'tagged'"):
        core.read("dealornodeal", [tmp_path], "taged")


# --- the published files, where they are ------------------------------------------------------------------------

HERE = Path(__file__).resolve().parents[3]
CORPUS = Path(os.environ.get("SOCIALRL_DATA", HERE.parent / "shared" / "data")) / "dealornodeal"
published = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")


def lines_of(found):
    lines = defaultdict(list)
    for odd in found.odd:
        lines[odd.kind].append(odd.line)
    return {kind: (len(at), tuple(at[:3])) for kind, at in lines.items()}


@published
def test_the_published_selfplay_file_holds_its_documented_games():
    found = core.read("dealornodeal", [CORPUS / "selfplay.txt"])
    assert (found.rows, found.games, len(found.scenarios)) == (8172, 4086, 2215)
    assert (found.bad, found.odd, found.played) == ([], [], [])
    assert all(scenarios.check(scenario) == [] for scenario in found.scenarios)


@published
def test_the_published_tagged_file_has_its_documented_odd_rows():
    found = core.read("dealornodeal", [CORPUS / "val_head300.txt"])
    assert (found.rows, found.games, found.bad) == (300, 155, [])
    assert lines_of(found) == {
        "disagree": (42, (1, 26, 45)),
        "no_agreement": (28, (6, 7, 22)),
        "disconnect": (6, (295, 296, 297)),
        "no_mirror": (10, (1, 26, 95)),
    }
    assert [odd.line for odd in found.odd if odd.kind == "no_mirror"] == [
        *(1, 26, 95, 118, 179, 182, 211, 262, 289, 294)
    ]


@published
def test_the_published_flat_file_has_its_documented_odd_rows_and_recorded_rewards():
    found = core.read("dealornodeal", [CORPUS / "data_alt_format_sample.txt"])
    assert (found.rows, found.bad) == (626, [])
    assert lines_of(found) == {
        "disagree": (23, (3, 6, 19)),
        "disagree_paid": (23, (3, 6, 19)),
        "no_agreement": (363, (11, 12, 22)),
        "no_agreement_marked_disagree": (43, (147, 192, 260)),
        "disconnect": (22, (275, 276, 286)),
        "disconnect_marked_agree": (20, (275, 276, 286)),
        "no_mirror": (48, (3, 6, 19)),
    }
    by_id = {scenario.id: scenario for scenario in found.scenarios}
    for game in found.played:
        seats = score(by_id[game.scenario], game.outcome).seats
        for seat, reward in game.reported.items():
            assert seats[seat].raw == (reward if game.record == "agree" else 0)
