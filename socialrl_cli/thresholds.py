"""Whether an evaluation is good enough: `--fail-under [ENV=]X`, and the verdict as JUnit XML for CI.

A bare number is for the score: of the one environment, or the plain mean over several. Scores are in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from scenarios.errors import ThresholdMissed, UsageError, nearest

MEAN = "mean"  # names the score over several environments


def thresholds(given: Sequence[str], envs: Sequence[str]) -> dict[str, float]:
    """The least score by environment, or for the `mean` over several. Raises UsageError."""
    found: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        name = name if equals else envs[0] if len(envs) == 1 else MEAN
        try:
            least = float(number)
        except ValueError:
            least = math.nan
        if not 0 <= least <= 1:
            raise UsageError(f"--fail-under {text}: write a number from 0 to 1 or ENV=NUMBER, for example dnd=0.5")
        if equals and name not in envs:
            raise UsageError(f"--fail-under {text}: {name!r} is not evaluated here; {nearest(name, envs)}")
        if name in found:
            raise UsageError(f"--fail-under {text}: a threshold for {name} is given twice")
        found[name] = least
    return found


def missed(document: Mapping[str, Any], wanted: Mapping[str, float]) -> dict[str, str]:
    """What each score that is under its threshold is, in words."""
    scores = _scores(document)
    return {
        name: f"{name}: {document['policy']} scored {scores[name]:.4f}, under {least:g}"
        for name, least in wanted.items()
        if not scores[name] >= least
    }


def enforce(document: Mapping[str, Any], wanted: Mapping[str, float]) -> None:
    """Raises ThresholdMissed, which names every score that is under what was wanted."""
    faults = missed(document, wanted)
    if faults:
        raise ThresholdMissed("; ".join(faults.values()))


def junit(document: Mapping[str, Any], wanted: Mapping[str, float]) -> str:
    """One test case an environment, and one for the mean where it has a threshold."""
    faults, scores = missed(document, wanted), _scores(document)
    names = [name for name in scores if name != MEAN or MEAN in wanted]
    suite = ElementTree.Element("testsuite", name="socialrl eval", tests=str(len(names)), failures=str(len(faults)))
    for name in names:
        case = ElementTree.SubElement(suite, "testcase", classname="socialrl.eval", name=name)
        if name in faults:
            ElementTree.SubElement(case, "failure", message=faults[name])
        least = f"threshold {wanted[name]:g}" if name in wanted else "no threshold"
        figures = document["environments"].get(name, {}).get("policies", {}).get(document["policy"], {})
        games = f", {figures['games']} games, {figures['failed']} failed" if figures else ""
        ElementTree.SubElement(case, "system-out").text = f"score {scores[name]:.4f}, {least}{games}"
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True).decode() + "\n"


def check_junit(path: Path) -> None:
    """Refuse, before anything is played, a file that cannot be written."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--junit {path}: {'is a folder' if path.is_dir() else 'its folder does not exist'}")


def _scores(document: Mapping[str, Any]) -> dict[str, float]:
    scores = {name: found["score"] for name, found in document["environments"].items()}
    return scores if len(scores) == 1 else {**scores, MEAN: document["score"]}
