"""One line on stderr and the right exit code for each kind of failure; nothing but results on stdout."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import typer

from scenarios.errors import DataError, EngineError, ModelError, RunError, SocialRLError, ThresholdMissed, UsageError
from socialrl_cli import main


def failing_with(error: BaseException) -> Callable[[object], object]:
    """A stand-in for `build`: a group whose only command, `boom`, raises."""

    def boom(times: int = typer.Option(1, help="How often.")) -> None:
        """Raise."""
        raise error

    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.callback(invoke_without_command=True)(main.root)
    app.command("boom")(boom)
    return lambda _names: typer.main.get_command(app)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such thing"), 2),
        (DataError.at("s.jsonl", 3, "no such thing"), 1),
        (ModelError("no such thing"), 1),
        (RunError("no such\nthing"), 1),
        (EngineError("no such thing"), 1),
        (ThresholdMissed("no such thing"), 3),
        (SocialRLError("no such thing"), 1),
        (FileNotFoundError(2, "no such thing", "s.jsonl"), 1),
    ],
)
def test_a_failure_is_one_line_with_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "build", failing_with(error))
    assert main.run(["boom"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    place = "s.jsonl:3: " if isinstance(error, DataError) else "s.jsonl: " if isinstance(error, OSError) else ""
    assert err == f"socialrl: error: {place}no such thing\n"


@pytest.mark.parametrize("argv", [["--debug", "boom"], ["boom", "--debug"]])
def test_debug_shows_where_it_was_raised(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "build", failing_with(DataError("bad")))
    assert main.run(argv) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "raise error" in err
    assert err.endswith("socialrl: error: bad\n")


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "build", failing_with(KeyError("surprise")))
    with pytest.raises(KeyError, match="surprise"):
        main.run(["boom"])
    monkeypatch.setattr(main, "build", failing_with(ModuleNotFoundError("no", name="envs.nothing")))
    with pytest.raises(ModuleNotFoundError):
        main.run(["boom"])


def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "build", failing_with(ModuleNotFoundError("no", name="torch.nn")))
    assert main.run(["boom"]) == 1
    assert capsys.readouterr().err.startswith("socialrl: error: package 'torch' is not installed; ")


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main, "build", failing_with(KeyboardInterrupt()))
    assert main.run(["boom"]) == 130
    assert capsys.readouterr().err == "socialrl: interrupted\n"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["doctr"], "No such command 'doctr'. Did you mean 'doctor'? (see socialrl --help)"),
        (["doctor", "--jsn"], "No such option: --jsn (Possible options: --json) (see socialrl doctor --help)"),
        (["doctor", "now"], "Got unexpected extra argument(s) (now) (see socialrl doctor --help)"),
        (["scenarios"], "Missing command. (see socialrl scenarios --help)"),
        (["scenarios", "lst"], "No such command 'lst'. Did you mean 'list'? (see socialrl scenarios --help)"),
        (["--nonsense"], "No such option: --nonsense (see socialrl --help)"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"socialrl: error: {line}\n")


def test_the_help_lists_the_commands_in_the_order_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines()]
    assert listed == list(main.COMMANDS)


def test_without_a_command_the_help_is_shown_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 2
    assert "Commands:" in capsys.readouterr().out
    assert main.run(["--help"]) == 0
    assert "Commands:" in capsys.readouterr().out
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("socialrl ")


def test_recipes_and_doctor_print_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["recipes", "--json"], ["doctor", "--json"]):
        assert main.run(argv) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)
        assert err == ""


def test_a_recipe_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["recipes", "quickstrat"]) == 2
    assert "no recipe 'quickstrat'" in capsys.readouterr().err


def test_a_closed_pipe_is_not_a_traceback() -> None:
    script = "from socialrl_cli.main import main; main()"
    command = f"{sys.executable} -c '{script}' scenarios generate --env dnd -n 1500 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert json.loads(done.stdout)["env"] == "dnd"


def test_ctrl_c_in_a_process_ends_it_with_130() -> None:
    script = (
        "import signal, sys, time, typer; from socialrl_cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job is begun without it
        "app = typer.Typer(rich_markup_mode=None); app.callback()(lambda: None)\n"
        "app.command('wait')(lambda: print('in', flush=True) or time.sleep(20))\n"
        "main.build = lambda names: typer.main.get_command(app)\n"
        "sys.exit(main.run(['wait']))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in\n"
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=10)
    assert (child.returncode, err) == (130, b"socialrl: interrupted\n")
