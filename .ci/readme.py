"""Rewrite the blocks of a Markdown file that hold a command's output: python .ci/readme.py README.md

A block stands between `<!-- output of: COMMAND -->` and `<!-- end of output -->`. The command runs in the folder of
the file, with the interpreter's own `bin` first on the path; the block of one that fails stays as it was.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"(<!-- output of: (.+?) -->\n).*?(<!-- end of output -->)", re.DOTALL)


def output(command: str, folder: Path) -> str | None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "TERM": "dumb", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        print(f"not renewed, exit code {done.returncode}: {command}", file=sys.stderr)
        return None
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def main() -> None:
    file = Path(sys.argv[1])

    def renewed(block: re.Match[str]) -> str:
        text = output(block[2], file.absolute().parent)
        return block[0] if text is None else f"{block[1]}\n```\n{text}\n```\n\n{block[3]}"

    file.write_text(BLOCK.sub(renewed, file.read_text(encoding="utf-8")), encoding="utf-8")


main()
