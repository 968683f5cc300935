"""The `socialrl` command: finds the command's file, parses, runs it, and turns errors into one line.

Each command is a file in `commands/`: a Typer app named `app`, or a function with the file's name. Those files
import nothing heavy at the top, so that `socialrl --help`, which reads all of them, stays as quick as an empty
app; `socialrl NAME …` reads only that one. Torch and its kind are imported by the body of a command.

Exit codes: 0 done, 1 a failure that the message says how to mend, 2 wrong usage, 3 a threshold missed,
130 interrupted and resumable. An error of the user's is one line on stderr; `--debug`, anywhere on the line,
shows where it was raised. A fault of ours keeps its traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from scenarios.errors import SocialRLError

COMMANDS = (  # in the order of the help
    "quickstart",
    "rollout",
    "train",
    "eval",
    "recipes",
    "score",
    "scenarios",
    "play",
    "serve",
    "replay",
    "proxy",
    "bench",
    "doctor",
)
OURS = ("socialrl_cli", "envs", "rewards", "algos", "scenarios")
INTERRUPTED = 130


def build(names: Sequence[str] = COMMANDS) -> Any:
    """The command group with the named commands mounted, in their order."""
    app = typer.Typer(
        name="socialrl",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        module = import_module(f"socialrl_cli.commands.{name}")
        if isinstance(getattr(module, "app", None), typer.Typer):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    group = typer.main.get_command(app)
    group.commands = {name: group.commands[name] for name in names}  # type: ignore[attr-defined]
    return group


def show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"socialrl {version('socialrl')}")
        raise typer.Exit


def root(
    ctx: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error; may stand anywhere."),
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Show the version."),
) -> None:
    """Train a small language model to act for somebody: play, learn, evaluate.

    \b
    Example: socialrl rollout --env dnd --policy scripted:boulware --opponent scripted:conceder -n 10
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def run(argv: Sequence[str]) -> int:
    """Run one command line (without the program's name); returns the exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning barriers starve a shared machine
    debug = "--debug" in argv
    words = [word for word in argv if word != "--debug"]
    named = next((word for word in words if not word.startswith("-")), None)
    group = build((named,) if named in COMMANDS else COMMANDS)
    try:
        code = group.main(words, prog_name="socialrl", standalone_mode=False)
    except SocialRLError as error:
        return _complain(error, str(error), error.exit_code, debug)
    except typer.TyperException as error:
        return _complain(error, error.format_message() + _hint(error), error.exit_code, debug)
    except typer.Abort as error:
        return _complain(error, "no answer: standard input is closed", 1, debug)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in OURS:
            raise
        return _complain(error, f"package {package!r} is not installed; socialrl doctor says how to mend it", 1, debug)
    except OSError as error:
        named_file = f"{error.filename}: " if error.filename else ""
        return _complain(error, f"{named_file}{error.strerror or error}", 1, debug)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("socialrl: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see {context.command_path} --help)" if context is not None else ""


def _complain(error: BaseException, message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"socialrl: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
