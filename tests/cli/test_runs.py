"""A run directory is never half anything, whatever stops the process that writes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from scenarios.errors import RunError, UsageError
from socialrl_cli import rundir, runs
from socialrl_cli.rundir import find_checkpoint, read_metrics
from socialrl_cli.runs import Run


def weights(text: str):
    """A writer of a checkpoint with one file."""

    def write(folder: Path) -> None:
        (folder / "weights").write_text(text)

    return write


def tree(path: Path) -> list[str]:
    return sorted(str(item.relative_to(path)) for item in path.rglob("*"))


def test_a_new_run_holds_its_config_and_its_first_attempt(tmp_path: Path) -> None:
    with Run.open(tmp_path / "a" / "demo", "steps = 3\n") as run:
        run.say("hello")
    path = tmp_path / "a" / "demo"
    assert rundir.is_run(path)
    assert rundir.read_config(path) == "steps = 3\n"
    assert (path / "attempts" / "1.log").read_text().endswith("Z hello\n")


def test_starting_into_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run") as run:
        run.save(4, weights("a"))
    with pytest.raises(RunError, match=r"is not empty: it holds a run with a checkpoint of step 4; --resume contin"):
        Run.open(tmp_path / "run")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty and holds no run: choose another --run"):
        Run.open(other)
    with pytest.raises(UsageError, match="there is no run to resume"):
        Run.open(other, resume=True)
    with pytest.raises(RunError, match="--clean removes only what a run has written"):
        Run.open(other, clean=True)
    assert tree(other) == ["thesis.txt"]
    assert (other / "thesis.txt").read_text() == "mine"


def test_resume_of_nothing_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run to resume; start it without --resume"):
        Run.open(tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="give one of them"):
        Run.open(tmp_path / "run", resume=True, clean=True)


def test_clean_starts_over_and_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    with Run.open(tmp_path / "run", "a = 1\n") as run:
        run.log(1, {"loss": 1.0})
        run.save(1, weights("a"))
    (tmp_path / "run" / "buffer").symlink_to(precious)
    with Run.open(tmp_path / "run", "a = 2\n", clean=True) as run:
        assert (run.attempt, run.latest(), run.metrics()) == (1, None, [])
    assert (precious / "file").read_text() == "x"
    assert not (tmp_path / "run" / "buffer").exists()


def test_resume_drops_metrics_of_steps_that_are_done_again(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run") as run:
        for step in (1, 2, 3):
            run.log(step, {"loss": float(step)})
            if step == 2:
                run.save(2, weights("two"))
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "lo')  # torn by a kill
    with Run.open(tmp_path / "run", resume=True) as run:
        assert [row["step"] for row in run.metrics()] == [1, 2]
        assert run.attempt == 2
        run.log(3, {"loss": 3.5})
    assert [(row["step"], row["loss"]) for row in read_metrics(tmp_path / "run")] == [(1, 1.0), (2, 2.0), (3, 3.5)]


def test_a_resume_says_what_changed_in_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(tmp_path / "run", "seed = 1\n[ppo]\nsteps = 3\nlr = 1.0\n"):
        pass
    with Run.open(tmp_path / "run", "seed = 1\n[ppo]\nsteps = 5\n", resume=True) as run:
        assert run.changes == {"ppo.steps": (3, 5), "ppo.lr": (1.0, None)}
    assert "resuming with ppo.steps = 5, it was 3" in capsys.readouterr().err


def test_watchers_hear_of_every_line_of_metrics(tmp_path: Path) -> None:
    heard = []
    with Run.open(tmp_path / "run") as run:
        run.watchers.append(lambda step, metrics: heard.append((step, metrics["loss"])))
        run.log(1, {"loss": 0.5})
    assert heard == [(1, 0.5)]


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run") as run:
        run.log(1, {"loss": float("nan"), "kl": float("inf"), "n": 3})
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text()) == {"step": 1, "loss": None, "kl": None, "n": 3}


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise ValueError("boom")

    with Run.open(tmp_path / "run") as run:
        run.save(1, weights("one"))
        with pytest.raises(ValueError, match="boom"):
            run.save(2, fails)
        with pytest.raises(ValueError, match="boom"):
            run.save(1, fails)  # done again, and failing: the first one stays
        assert tree(run.path / "checkpoints") == ["step-1", "step-1/weights"]
        run.save(1, weights("again"))
        assert tree(run.path / "checkpoints") == ["step-1", "step-1/weights"]
        assert (run.latest() / "weights").read_text() == "again"


@pytest.mark.parametrize("moment", [".old-1", ".new-1", ".gone-step-1"])
def test_what_a_kill_left_of_a_checkpoint_is_mended_on_resume(tmp_path: Path, moment: str) -> None:
    with Run.open(tmp_path / "run") as run:
        run.save(1, weights("one"))
    checkpoints = tmp_path / "run" / "checkpoints"
    if moment == ".old-1":  # killed between the two renames of a step that is done again
        (checkpoints / "step-1").rename(checkpoints / ".old-1")
        (checkpoints / ".new-1").mkdir()
    else:
        (checkpoints / moment).mkdir()
        (checkpoints / moment / "weights").write_text("half")
    with Run.open(tmp_path / "run", resume=True) as run:
        assert tree(checkpoints) == ["step-1", "step-1/weights"]
        assert (run.latest() / "weights").read_text() == "one"


def test_the_newest_checkpoints_and_the_best_one_are_kept(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", keep=2) as run:
        for step, score in enumerate([0.1, 0.5, 0.3, 0.5, 0.2], start=1):
            run.save(step, weights(str(step)))
            assert run.mark_best(step, score) == (step in (1, 2))  # the first of equals stays
        assert rundir.steps(run.path) == [2, 4, 5]
        assert run.best() == run.path / "checkpoints" / "step-2"
    assert find_checkpoint(run.path) == run.path / "checkpoints" / "step-2"
    assert find_checkpoint(run.path, "latest") == run.path / "checkpoints" / "step-5"
    assert find_checkpoint(run.path, "4") == run.path / "checkpoints" / "step-4"
    for step in (3, "3", "last", "04"):
        with pytest.raises(UsageError, match=r"has no checkpoint .*; it has 2, 4, 5, best, latest"):
            find_checkpoint(run.path, step)


def test_a_run_without_a_checkpoint_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run directory"):
        find_checkpoint(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no run; a model comes from a run of socialrl train"):
        find_checkpoint(tmp_path)
    with Run.open(tmp_path / "run"):
        pass
    with pytest.raises(UsageError, match="holds a run with no checkpoint yet"):
        find_checkpoint(tmp_path / "run")
    for folder, words in (("events", "episodes"), ("eval", "an evaluation")):
        (tmp_path / "run" / folder).mkdir()
        (tmp_path / "run" / folder / "file").touch()
        with pytest.raises(UsageError, match=f"holds {words} and no checkpoint"):
            find_checkpoint(tmp_path / "run")


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    script = (
        "import sys; from socialrl_cli.runs import Run\nwith Run.open(sys.argv[1]): print('in', flush=True); input()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        for options in ({}, {"resume": True}, {"clean": True}):
            with pytest.raises(RunError, match=f"is in use by process {other.pid}"):
                Run.open(tmp_path / "run", **options)
        other.kill()
        other.wait()
    with Run.open(tmp_path / "run", resume=True) as run:  # the lock went with the process
        assert run.attempt == 2


def test_a_path_that_cannot_be_written_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be opened: Not a directory; choose another --run"):
        Run.open(tmp_path / "file" / "run")
    with pytest.raises(RunError, match="cannot be opened: File exists"):
        Run.open(tmp_path / "file")


def test_a_full_disk_is_recognised_behind_another_librarys_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_folder: Path) -> None:
        raise OSError(28, "No space left on device")

    def hidden(_folder: Path) -> None:
        raise RuntimeError("unexpected pos 64 vs 0")

    with Run.open(tmp_path / "run") as run:
        with pytest.raises(RunError, match="checkpoint step-1 could not be written: No space left on device; mend it"):
            run.save(1, no_space)
        with pytest.raises(RuntimeError, match="unexpected pos"):
            run.save(1, hidden)
        monkeypatch.setattr(runs.shutil, "disk_usage", lambda _path: Usage())
        with pytest.raises(RunError, match="checkpoint step-1 could not be written: the disk is full"):
            run.save(1, hidden)
        assert tree(run.path / "checkpoints") == []


class Usage:
    free = 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_metrics_that_cannot_be_written_stop_the_run_with_one_line(tmp_path: Path) -> None:
    def work() -> None:
        with Run.open(tmp_path / "run") as run:
            run._metrics.close()
            run._metrics = Path("/dev/full").open("w")  # noqa: SIM115
            run.log(1, {"loss": 1.0})

    with pytest.raises(RunError, match="full could not be written: No space left on device; mend it, then continue"):
        work()


def test_a_failing_attempt_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Run.open(tmp_path / "run"):
        _ = 1 / 0
    assert "ZeroDivisionError: division by zero" in (tmp_path / "run" / "attempts" / "1.log").read_text()


def test_a_run_that_is_refused_before_it_began_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(resume: bool) -> None:
        with Run.open(tmp_path / "run", resume=resume) as run:
            (run.path / "buffer").mkdir(exist_ok=True)
            (run.path / "games.jsonl").touch()
            raise UsageError("no such model")

    with pytest.raises(UsageError):
        refused(resume=False)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    with pytest.raises(UsageError), Run.open("."):
        raise UsageError("no such model")
    assert tree(tmp_path) == ["run"]  # it was there before
    with Run.open(tmp_path / "run") as run:
        run.save(1, weights("one"))
    with pytest.raises(UsageError):
        refused(resume=True)
    assert rundir.steps(tmp_path / "run") == [1]


def test_the_first_interrupt_asks_and_the_second_stops(tmp_path: Path) -> None:
    run = Run.open(tmp_path / "run")
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with run:
            assert not run.should_stop()
            os.kill(os.getpid(), signal.SIGINT)
            assert run.should_stop()
            run.save(1, weights("saved"))
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second interrupt must stop at once")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before
    assert (run.latest() / "weights").read_text() == "saved"


def test_leaving_after_an_interrupt_is_an_interruption_unless_all_is_done(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Run.open(tmp_path / "a"):
        os.kill(os.getpid(), signal.SIGTERM)
    with Run.open(tmp_path / "b") as run:
        os.kill(os.getpid(), signal.SIGTERM)
        run.done()


def test_a_run_on_another_thread_leaves_the_signals_alone(tmp_path: Path) -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Run.open(tmp_path / "run"):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=10)
    assert seen == [before]


def test_kill_9_while_checkpoints_are_written_leaves_whole_ones_only(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from socialrl_cli.runs import Run

        def write(folder):
            for part in range(20):
                (folder / f"part-{part}").write_text("x" * 1000)

        with Run.open(sys.argv[1], keep=2) as run:
            for step in range(1, 10_000):
                run.save(step % 7 + 1, write)
                run.log(step, {"loss": 1.0})
                print(step, flush=True)
        """
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        for _ in range(12):
            other.stdout.readline()
        other.kill()
        other.wait()
    with Run.open(tmp_path / "run", resume=True):
        folders = list((tmp_path / "run" / "checkpoints").iterdir())
        assert folders
        assert all(len(list(folder.iterdir())) == 20 for folder in folders)
