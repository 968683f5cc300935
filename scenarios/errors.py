"""The errors a user may see, in one small tree.

    SocialRLError            exit 1
    ├── UsageError           exit 2   an unknown participant, environment, recipe key or flag value
    ├── DataError            exit 1   a bad file, row or scenario
    ├── ModelError           exit 1   a model, tokenizer or engine cannot do what was asked
    ├── RunError             exit 1   a run directory, the disk, the recorder
    ├── EngineError          exit 1   a server or engine died or did not answer in time
    └── ThresholdMissed      exit 3   the score is below --fail-under

A message is one line that names the thing, says what was wrong and what to do. The command line prints
it without a traceback and exits with `exit_code`. Programmers' mistakes are `assert` and `ValueError`,
not these. The tree lives in the lowest folder so that every other folder may raise from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike
from typing import Self


class SocialRLError(Exception):
    """Base of every error that is printed as one line."""

    exit_code = 1


class UsageError(SocialRLError):
    """The command line or a recipe asks for something that does not exist."""

    exit_code = 2


class DataError(SocialRLError):
    """A file, row or scenario is not what it should be."""

    @classmethod
    def at(cls, path: str | PathLike[str], line: int | None, reason: str) -> Self:
        """An error with its place: `path:line: reason` (`line` counts from 1; None where there is none)."""
        place = f"{path}" if line is None else f"{path}:{line}"
        return cls(f"{place}: {reason}")


class ModelError(SocialRLError):
    """A model, tokenizer or engine cannot do what was asked."""


class RunError(SocialRLError):
    """A run directory, the disk or the recorder failed."""


class EngineError(SocialRLError):
    """A server or engine died, or did not answer within its deadline."""


class ThresholdMissed(SocialRLError):
    """The evaluation ran, and its score is below what was asked for."""

    exit_code = 3


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint that ends a message about an unknown name: the closest known one, or all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + (", ".join(names) if names else "none")
