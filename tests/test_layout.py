"""The house stays in order: arrows, names, start-up, sizes, words, and a help that cannot drift."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from socialrl_cli.main import COMMANDS, build, run

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "scenarios": {"scenarios"},
    "rewards": {"scenarios", "rewards"},
    "envs": {"scenarios", "rewards", "envs"},
    "algos": {"scenarios", "rewards", "algos"},
    "socialrl_cli": {"scenarios", "rewards", "envs", "algos", "socialrl_cli"},
}
HEAVY = ("torch", "transformers", "peft", "pyarrow", "openai", "aiohttp", "numpy", "pandas", "matplotlib", "asyncio")
LONGEST = 320  # lines of a module
SLOWEST = 1.5  # times the start of an empty typer app
HOSTS = (
    "py" + "pi.org",
    "python" + "hosted",
    "npm" + "js",
    "pytorch" + ".org",
    "hugging" + "face.co",
    "deb" + "ian.org",
)
MAKING = (r"\bissues? #?\d", r"issues" + " show", "contracts" + r"\.md", "sub" + "agent", "chat" + "gpt", "clau" + "de")
PLACES = (r"(?<![\w.}$])/(root|home|work)/", "scratch" + "/venv")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level names of every import in a file, those inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_arrows_point_one_way(package: str) -> None:
    found = {path: imported(path) & set(MAY_IMPORT) - MAY_IMPORT[package] for path in modules(package)}
    assert {str(path.relative_to(ROOT)): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("package", ["scenarios", "rewards", "envs"])
def test_playing_knows_nothing_of_models_and_tables(package: str) -> None:
    heavy = {"torch", "transformers", "peft", "pyarrow", "openai", "aiohttp"}
    found = {path: imported(path) & heavy for path in modules(package)}
    assert {str(path.relative_to(ROOT)): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_our_top_level_names_are_our_own_files(package: str) -> None:
    assert importlib.import_module(package).__file__ == str(ROOT / package / "__init__.py")


def test_the_wheel_lists_every_package_that_is_there() -> None:
    import tomllib

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for package in MAY_IMPORT
        for path in (ROOT / package).rglob("*.py")
    }
    assert sorted(listed) == sorted(there)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from socialrl_cli.main import run\n"
        f"codes = [run([*words, '--help']) for words in ([], *([name] for name in {COMMANDS}))]\n"
        f"sys.exit(' '.join(sorted(set(sys.modules) & set({HEAVY}))) or max(codes))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_is_nearly_as_quick_as_that_of_an_empty_app() -> None:
    bare = "import typer; app = typer.Typer(); app.command('a')(lambda: None); app.command('b')(lambda: None); app()"
    ours = "from socialrl_cli.main import main; main()"
    best = dict.fromkeys((bare, ours), 9.0)
    for _ in range(5):
        for script in best:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", script, "--help"], stdout=subprocess.DEVNULL, check=True)
            best[script] = min(best[script], time.perf_counter() - start)
    assert best[ours] <= SLOWEST * best[bare]


def test_no_module_is_too_long_to_hold_one_idea() -> None:
    sizes = {path: path.read_text(encoding="utf-8").count("\n") for package in MAY_IMPORT for path in modules(package)}
    assert {str(path.relative_to(ROOT)): lines for path, lines in sizes.items() if lines > LONGEST} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in MAY_IMPORT
        for path in modules(package)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def own_texts() -> Iterator[Path]:
    """Every text file of the project: what git tracks, else what is there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [
        path for package in (*MAY_IMPORT, "tests") for path in modules(package)
    ]
    yield from (path for path in paths if path.is_file() and path.suffix not in {".parquet", ".jsonl", ".png"})


def test_the_project_speaks_of_itself_alone() -> None:
    """No hosts of package registries, no paths of one machine, no word of how it is made."""
    wanted = re.compile("|".join((*map(re.escape, HOSTS), *MAKING, *PLACES)), re.IGNORECASE)
    found = []
    for path in own_texts():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if hit := wanted.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {hit[0]}")
    assert found == []


def commands(group: object = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command that runs something, with the words that name it."""
    group = group or build()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


ALL = dict(commands())


def unknown_words(line: str) -> list[str]:
    """The words of an example that name no command and no option of it."""
    words = shlex.split(line, comments=True)
    assert words[0] == "socialrl"
    if words[1] in ("--help", "--version"):
        return []
    named = max((path for path in ALL if tuple(words[1 : 1 + len(path)]) == path), key=len, default=None)
    if named is None:
        return words[1:3]
    options = {option for parameter in ALL[named].params for option in parameter.opts + parameter.secondary_opts}
    options |= {"--help", "--debug"}
    rest = words[1 + len(named) :]
    return [word for word in rest if re.match(r"--?[a-z]", word) and word.split("=")[0] not in options]


def test_all_commands_are_mounted() -> None:
    assert {path[0] for path in ALL} == set(COMMANDS)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_an_example_that_names_what_exists(path: tuple[str, ...]) -> None:
    text = ALL[path].help or ""
    assert "\b\n" in text, "the example needs a line with \\b before it, else it is reflowed"
    start = re.search(r"Examples?: ", text)
    assert start is not None
    examples = re.findall(r"socialrl (?!:).*", text[start.end() :])
    assert any(line.startswith(f"socialrl {' '.join(path)}") for line in examples)
    assert {line: words for line in examples if (words := unknown_words(line))} == {}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    silent = [parameter.name for parameter in ALL[path].params if not getattr(parameter, "help", None)]
    assert silent == []


def test_the_readme_shows_every_command_with_an_example_that_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [" ".join(path) for path in ALL if f"socialrl {' '.join(path)}" not in text] == []
    examples = re.findall(r"^ {4}(socialrl .*?)(?: {3,}.*)?$", text, re.MULTILINE)
    assert examples
    assert {line: words for line in examples if (words := unknown_words(line))} == {}


def test_the_readme_shows_the_recipes_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- output of: socialrl recipes -->\n+```\n(.*?)\n```", text, re.DOTALL)
    assert run(["recipes"]) == 0
    assert shown is not None
    assert shown[1] == capsys.readouterr().out.strip(), "make readme renews it"


def test_the_readme_and_the_makefile_know_the_same_targets() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z][a-z-]*)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M))
    assert named - targets == set()
