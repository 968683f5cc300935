"""`socialrl scenarios`, by what it prints."""

import io
import json
from copy import deepcopy

import pytest

from scenarios import core
from socialrl_cli.main import run

ONE, TWO = "1 1 2 3 3 1", "1 2 2 1 3 2"  # invented


def result(capsys, *argv):
    code = run(["scenarios", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list_counts_the_packaged_splits(capsys):
    assert result(capsys, "list", "--env", "dnd") == (0, "dnd           train 500  val 50  test 100\n", "")
    code, out, _ = result(capsys, "list", "--json")
    assert code == 0
    assert json.loads(out)["dnd"] == {"train": 500, "val": 50, "test": 100}


def test_list_names_the_scenarios_of_a_split(capsys):
    _, out, _ = result(capsys, "list", "--env", "dnd", "--split", "val")
    assert len(out.splitlines()) == 50
    assert out.splitlines()[0].startswith(core.packaged("dnd", "val")[0].id + "  ")


def test_show_gives_one_scenario_with_its_references(capsys, tmp_path):
    (scenario,) = core.generate("dnd", 1, 5, "test")
    path = tmp_path / "x.jsonl"
    core.write(path, [scenario])
    code, out, _ = result(capsys, "show", scenario.id, "--split", path, "--json")
    assert code == 0
    assert core.Scenario.from_json(json.loads(out)) == scenario
    code, out, _ = result(capsys, "show", scenario.id, "--split", path)
    assert out.splitlines()[-1].startswith("m      a 0.")
    code, out, _ = result(capsys, "show", core.packaged("dnd", "test")[3].id)
    assert out.splitlines()[0] == f"id     {core.packaged('dnd', 'test')[3].id}"


def test_show_of_an_unknown_id_is_wrong_usage(capsys):
    code, out, err = result(capsys, "show", "dnd-9")
    assert (code, out) == (2, "")
    assert err.startswith("socialrl: error: no scenario 'dnd-9' in dnd train, val, test")


def test_generate_writes_the_packaged_file_byte_for_byte(capsys, tmp_path):
    path = tmp_path / "val.jsonl"
    argv = ("generate", "--env", "dnd", "-n", 50, "--split", "val", "--seed", 0)
    code, out, err = result(capsys, *argv, "--out", path)
    assert (code, out) == (0, "")
    assert err == f"50 scenarios of dnd, split val, seed 0, written to {path}\n"
    expected = "".join(core.dumps(core.packaged("dnd", "val")))
    assert path.read_bytes() == expected.encode()
    assert result(capsys, *argv) == (0, expected, "")
    code, out, _ = result(capsys, *argv, "--json")
    assert len(json.loads(out)) == 50


def test_generate_does_not_replace_a_file_unasked(capsys, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("mine")
    code, _, err = result(capsys, "generate", "-n", 1, "--out", path)
    assert (code, path.read_text()) == (1, "mine")
    assert err == f"socialrl: error: {path}: exists; replace it with --force, or name another file\n"
    assert result(capsys, "generate", "-n", 1, "--out", path, "--force", "--json")[0] == 0
    assert len(core.read(path)[0]) == 1
    assert result(capsys, "generate", "--out", "")[2] == "socialrl: error: the name of the file to write is empty\n"
    code, _, err = result(capsys, "generate", "-n", 1, "--out", tmp_path, "--force")
    assert (code, err) == (1, f"socialrl: error: {tmp_path}: is a directory, expected the name of a file\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("generate", "--env", "dn", "-n", 1), "unknown environment 'dn'; did you mean 'dnd'?"),
        (("generate", "--split", "dev"), "unknown split 'dev'; known: test, train, val"),
        (("generate", "-n", 0), "cannot generate 0 scenarios; ask for at least 1"),
        (("generate", "-n", 9999), "dnd has only 2067 distinct scenarios in the split train, 9999 were asked for"),
        (("list", "--env", "go"), "unknown environment 'go'"),
        (("import", "corpus", "x"), "unknown corpus 'corpus'; known: "),
        (("import", "dealornodeal", "x", "--split", "dev"), "unknown split 'dev'"),
        (("import", "dealornodeal", "x", "--out", "-"), "--out and --outcomes need the names of two different files"),
        (("import", "dealornodeal", "x", "--out", "y", "--outcomes", "y"), "--out and --outcomes need"),
        ((), "Missing command"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_two(capsys, argv, message):
    code, out, err = result(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"socialrl: error: {message}")
    assert err.count("\n") == 1


def test_check_prints_each_offending_line_and_exits_one(capsys, tmp_path):
    path = tmp_path / "x.jsonl"
    good = core.packaged("dnd", "val")[0].to_json()
    bad = {**good, "id": "b", "counts": {"book": 1, "hat": 2, "ball": "3"}}
    path.write_text(f"{json.dumps(good)}\nnope\n{json.dumps(bad)}\n")
    code, out, err = result(capsys, "check", path)
    assert code == 1
    assert out.splitlines() == [
        f"{path}:2: not JSON: Expecting value at column 1",
        f"{path}:3: counts.ball is '3', expected an integer",
    ]
    assert err == "1 good scenarios, 2 bad lines\n"
    code, out, err = result(capsys, "check", path, "--json")
    document = json.loads(out)
    assert (code, err, document["ok"], document["scenarios"]) == (1, "", False, 1)
    assert document["problems"][0] == {
        "path": str(path),
        "line": 2,
        "reason": "not JSON: Expecting value at column 1",
    }


def test_check_reads_several_files_and_standard_input(capsys, tmp_path, monkeypatch):
    paths = []
    for split in ("val", "test"):
        paths.append(tmp_path / f"{split}.jsonl")
        core.write(paths[-1], core.packaged("dnd", split))
    assert result(capsys, "check", *paths) == (0, "", "150 good scenarios, 0 bad lines\n")
    data = io.BytesIO(paths[0].read_bytes() + b"[]\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
    code, out, _ = result(capsys, "check", "-")
    assert (code, out) == (1, "-:51: a scenario is a JSON object, got []\n")


@pytest.mark.parametrize("name", ["none.jsonl", ""])
def test_check_of_no_file_says_so(capsys, tmp_path, name):
    code, out, err = result(capsys, "check", tmp_path / name)
    assert (code, out) == (2, "")
    assert err.startswith(f"socialrl: error: {tmp_path / name}: ")


def test_import_writes_scenarios_and_outcomes_that_score_reads(capsys, tmp_path):
    talk = "YOU: hats ? <eos> THEM: <selection>"
    rows = [
        f"{ONE} {talk} item0=0 item1=2 item2=0 <eos> reward=6 agree {TWO}",
        f"{ONE} {talk.replace('hats', 'balls')} no agreement <eos> reward=no agreement agree {TWO}",
    ]
    path, out_path, outcomes = tmp_path / "games.txt", tmp_path / "s.jsonl", tmp_path / "o.jsonl"
    path.write_text("\n".join(rows))
    code, out, err = result(capsys, "import", "dealornodeal", path, "--out", out_path, "--outcomes", outcomes)
    assert code == 0
    assert out.splitlines() == [
        f"{path}: format flat",
        "2 rows, 2 games, 0 bad rows skipped",
        f"1 distinct scenarios kept ({core.read(out_path)[0][0].split} 1), 1 repeats of them",
        "outcomes: agreement 1, walk_away 1",
        f"scenarios written to {out_path}",
        f"outcomes written to {outcomes}",
    ]
    assert err.splitlines() == [
        f"{path}: 2 rows no_mirror (lines 1, 2)",
        f"{path}: 1 rows no_agreement (lines 2)",
    ]
    assert run(["scenarios", "check", str(out_path)]) == 0
    capsys.readouterr()
    assert run(["score", "--env", "dnd", "--scenario", str(out_path), "--outcome", str(outcomes), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n"] == 2
    assert [one["seats"]["a"]["raw"] for one in document["scores"]] == [6, 0]
    assert document["mean"]["statuses"] == {"agreement": 1, "walk_away": 1}
    assert document["mean"]["seats"]["b"]["raw"] == 4  # (8 + 0) / 2


def test_import_stops_at_bad_rows_unless_told_to_skip_them(capsys, tmp_path):
    path, out_path = tmp_path / "games.txt", tmp_path / "s.jsonl"
    path.write_text(f"{ONE}\n{TWO}\n{ONE}\n1 2 3\n")
    code, out, err = result(capsys, "import", "dealornodeal", path, "--out", out_path)
    assert (code, out, out_path.exists()) == (1, "", False)
    assert err.splitlines() == [
        f"{path}:4: the row is '1 2 3', expected six integers",
        "socialrl: error: 1 bad rows, nothing written; mend them or leave them out with --skip-bad",
    ]
    code, out, _ = result(capsys, "import", "dealornodeal", path, "--out", out_path, "--json")
    assert (code, json.loads(out)["written"], out_path.exists()) == (1, False, False)
    code, out, err = result(capsys, "import", "dealornodeal", path, "--out", out_path, "--skip-bad", "--json")
    document = json.loads(out)
    assert (code, err, document["skipped"], document["scenarios"], document["games"]) == (0, "", 1, 1, 1)
    assert document["bad"] == [
        {"path": str(path), "line": 4, "reason": "the row is '1 2 3', expected six integers"},
    ]
    assert len(core.read(out_path)[0]) == 1


def test_import_lists_each_odd_row_when_asked(capsys, tmp_path):
    path = tmp_path / "games.txt"
    talk = "YOU: hats ? <eos> THEM: <selection>"
    path.write_text(f"{ONE} {talk} disconnect <eos> reward=disconnect agree {TWO}\n")
    code, _, err = result(capsys, "import", "dealornodeal", path, "--odd")
    assert code == 0
    assert err.splitlines() == [
        f"{path}:1: disconnect: a player left, pays 0",
        f"{path}:1: disconnect, marked agree: pays 0 all the same",
        f"{path}:1: the partner's row of this game is missing",
    ]


@pytest.mark.parametrize("command", ["list", "show", "generate", "import", "check"])
def test_every_help_has_an_example(capsys, command):
    code, out, _ = result(capsys, command, "--help")
    assert code == 0
    assert f"Example: socialrl scenarios {command}" in out


def changed(env, *path, value):
    """A packaged scenario as a row, with one value replaced."""
    row = deepcopy(core.packaged(env, "test")[0].to_json())
    *way, last = path
    part = row
    for key in way:
        part = part[key]
    part[last] = value
    return row


BUSY = [{"start": "08:00", "end": "19:00", "title": "Market day", "secret": False}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (changed("dnd", "values", "a", "ball", value=7), "everything is worth 11 to a, expected 10"),
        (changed("casino", "priorities", "a", value=["food", "food", "water"]), "priorities.a is ['food', 'food'"),
        (changed("craigslist", "buyer_target", value=12000), "buyer_target 12000 is not below listing_price 12000"),
        (changed("marketplace", "reservation", "seller", value=150), "150 is not below reservation.buyer 101"),
        (changed("job_interview", "weights", "worker", "salary", value=0.5), "weights.worker add up to 1.43"),
        (changed("calendar", "calendars", "assistant", value=BUSY), "common free slots: none"),
        (changed("calendar", "requested", value=600), "requested is 600, expected a slot"),
        (changed("werewolf", "roles", "p5", value="villager"), "roles has 0 wolves among 5"),
    ],
    ids=lambda value: value["env"] if isinstance(value, dict) else "",
)
def test_what_breaks_a_rule_is_one_line_and_is_not_played(capsys, tmp_path, row, reason):
    path, folder = tmp_path / "x.jsonl", tmp_path / "run"
    path.write_text(json.dumps(row) + "\n")
    code, out, _ = result(capsys, "check", path)
    assert (code, len(out.splitlines())) == (1, 1)
    assert out.startswith(f"{path}:1: ")
    assert reason in out
    words = ["--env", row["env"], "--policy", "scripted:random", "--split", str(path), "-n", "1", "--run", str(folder)]
    assert run(["rollout", *words]) == 1
    assert capsys.readouterr().err == f"socialrl: error: {out}"
    assert not folder.exists()
