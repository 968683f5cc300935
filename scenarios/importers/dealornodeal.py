"""Deal or No Deal games in the three layouts in which they were published (end-to-end-negotiator).

    selfplay  two lines of six integers a game: lines 2k-1 and 2k are the two players
    tagged    <input> 6 </input> <dialogue> … <selection> </dialogue> <output> 6 tokens </output>
              <partner_input> 6 </partner_input>: one player's view; the output is own items, then the partner's,
              or one of <disagree> <no_agreement> <disconnect> six times
    flat      6 … <selection> item0=.. item1=.. item2=.. <eos> reward=R agree|disagree 6: one player's view with
              the own claim alone; instead of items and R `no agreement` or `disconnect`

Six integers are count value count value count value of book, hat, ball. The reader (YOU) is seat a.

How rows become games. A row and its mirror (inputs exchanged, YOU and THEM exchanged) are one game; a row
without mirror is a game too. Such rows are never paired by position. Games with the same content up to swapping
seats are one scenario, in the seats of the first; later outcomes are turned to those seats.

How records become outcomes: two claims that fit are an `agreement`; no_agreement, which both chose, is
`walk_away`; disagree (the players did not end alike) and disconnect are `aborted`. In `flat` the mark disagree
decides, whatever reward stands beside it: such rows pay 0. A row that tells of an agreement while its mirror
does not is bad, and so is the mirror. Dialogues are not kept.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from scenarios import dnd
from scenarios.core import Problem, Scenario, split_of
from scenarios.errors import DataError
from scenarios.importers.core import Imported, Odd, Played
from scenarios.importers.dealornodeal_rows import SIX, View, flat, pair, rest, six, tagged
from scenarios.jsonfile import read_bytes

ENV = "dnd"
FORMATS = ("selfplay", "tagged", "flat")
PROBED_ROWS = 200  # how many rows are looked at to tell the format

STATUS = {"agree": "agreement", "no_agreement": "walk_away", "disagree": "aborted", "disconnect": "aborted"}
WHY = {
    "disagree": "disagree: the players' claims do not fit, pays 0",
    "disagree_paid": "a disagree row that carries a reward of {reward}: pays 0",
    "no_agreement": "no agreement, pays 0",
    "no_agreement_marked_disagree": "no agreement, marked disagree: the players did not end alike",
    "disconnect": "disconnect: a player left, pays 0",
    "disconnect_marked_agree": "disconnect, marked agree: pays 0 all the same",
    "no_mirror": "the partner's row of this game is missing",
}

Lines = list[tuple[int, str | None]]  # number and text; None where a line is not UTF-8


def read(paths: Sequence[str | PathLike[str]], format: str | None = None) -> Imported:
    """The games of some files. Raises `DataError` where a file cannot be read or has no known format."""
    found = Imported()
    kept: dict[str, Scenario] = {}  # group -> scenario
    for path in map(str, paths):
        lines = _lines(path)
        layout = format or _format_of(path, lines)
        found.formats[path] = layout
        found.rows += sum(1 for _, text in lines if text is None or text.strip())
        games = _selfplay(path, lines, found) if layout == "selfplay" else _mirrored(path, lines, layout, found)
        for game in games:
            _keep(path, game, kept, found)
    for scenario in kept.values():
        times = found.times[scenario.id]
        more = f" ({times} games)" if times > 1 else ""
        found.scenarios.append(replace(scenario, source=scenario.source + more))
    found.bad.sort(key=lambda problem: (problem.path, problem.line or 0))
    found.odd.sort(key=lambda odd: (odd.path, odd.line))
    return found


def _keep(path: str, game: tuple[View, ...], kept: dict[str, Scenario], found: Imported) -> None:
    """Adds a game (one view, or a view and its mirror) to what was found."""
    view = game[0]
    source = f"dealornodeal:{Path(path).name}:{'+'.join(str(v.line) for v in game)}"
    group = dnd.group(view.counts, view.own, view.other)
    if group not in kept:
        kept[group] = dnd.build(view.counts, view.own, view.other, split=split_of(group), source=source)
    scenario = kept[group]
    found.games += 1
    found.times[scenario.id] += 1
    if view.record is None:
        return
    record = "disconnect" if any(v.record == "disconnect" for v in game) else view.record
    seats = ("a", "b") if dnd.triple(scenario["values"]["a"]) == view.own else ("b", "a")
    outcome: dict[str, object] = {"status": STATUS[record]}
    if view.claim is not None:
        parts = (view.claim, rest(view.counts, view.claim))
        outcome["agreement"] = {seat: dnd.named(part) for seat, part in sorted(zip(seats, parts, strict=True))}
    reported = {seat: v.reward for seat, v in zip(seats, game, strict=False) if v.reward is not None}
    found.played.append(Played(scenario.id, outcome, record, source, reported))


def _selfplay(path: str, lines: Lines, found: Imported) -> Iterator[tuple[View, ...]]:
    """Pairs lines 2k-1 and 2k. A bad line costs its own game alone."""
    for k in range(0, len(lines), 2):
        players = []
        for number, text in lines[k : k + 2]:
            try:
                players.append(six(_text(text), "the row"))
            except ValueError as error:
                found.bad.append(Problem(path, number, str(error)))
        number = lines[k][0]
        try:
            if len(lines) == k + 1 and players:
                raise ValueError("the second player's line is missing")
            if len(players) == 2:
                yield (pair(number, *players),)
        except ValueError as error:
            found.bad.append(Problem(path, number, str(error)))


def _mirrored(path: str, lines: Lines, layout: str, found: Imported) -> Iterator[tuple[View, ...]]:
    """Finds each row's mirror; yields the games in the order of their first rows."""
    parse = tagged if layout == "tagged" else flat
    alone: dict[tuple[object, ...], list[View]] = defaultdict(list)  # what the mirror must be -> views, first first
    games: dict[int, tuple[View, ...]] = {}
    for number, text in lines:
        if text is not None and not text.strip():
            continue
        try:
            view = parse(number, _text(text))
        except ValueError as error:
            found.bad.append(Problem(path, number, str(error)))
            continue
        partners = alone[view.counts, view.own, view.other, view.dialogue]
        if not partners:
            games[number] = (view,)
            alone[view.counts, view.other, view.own, _swapped(view.dialogue)].append(view)
            continue
        first = partners.pop(0)
        if _contradict(first, view):
            del games[first.line]
            for row, mirror in ((first, view), (view, first)):
                said, else_said = (f"{v.record} {v.claim or ''}".rstrip() for v in (row, mirror))
                reason = f"says {said}, but the mirrored row {mirror.line} says {else_said}"
                found.bad.append(Problem(path, row.line, reason))
        else:
            games[first.line] = (first, view)
    for game in games.values():
        for view in game:
            kinds = view.odd if len(game) == 2 else (*view.odd, "no_mirror")
            found.odd += [Odd(path, view.line, kind, WHY[kind].format(reward=view.reward)) for kind in kinds]
    yield from games.values()


def _contradict(first: View, second: View) -> bool:
    """Whether a row and its mirror cannot both be true: one agreed and the other not, or on something else."""
    if first.claim is None or second.claim is None:
        return first.claim is not second.claim
    return rest(first.counts, first.claim) != second.claim


def _swapped(dialogue: str) -> str:
    """The same talk from the other side."""
    return re.sub(r"(?<!\S)(YOU|THEM):(?!\S)", lambda who: "THEM:" if who[1] == "YOU" else "YOU:", dialogue)


def _lines(path: str) -> Lines:
    """Numbered lines without their ends. Raises `DataError` for an empty file."""
    raw = read_bytes(path).split(b"\n")
    while raw and not raw[-1].strip():
        raw.pop()
    if not raw:
        raise DataError(f"{path}: is empty")
    found: Lines = []
    for number, line in enumerate(raw, start=1):
        try:
            found.append((number, line.decode("utf-8").rstrip("\r")))
        except UnicodeDecodeError:
            found.append((number, None))
    return found


def _text(line: str | None) -> str:
    if line is None:
        raise ValueError("not UTF-8")
    return line


def _format_of(path: str, lines: Lines) -> str:
    """The layout that most of the first rows look like. Raises `DataError`."""
    votes = dict.fromkeys(FORMATS, 0)
    for _, text in lines[:PROBED_ROWS]:
        if text is None:
            continue
        if "<input>" in text or "<partner_input>" in text:
            votes["tagged"] += 1
        elif "<selection>" in text or "reward=" in text:
            votes["flat"] += 1
        elif SIX.fullmatch(text):
            votes["selfplay"] += 1
    best = max(FORMATS, key=lambda name: votes[name])
    if not votes[best]:
        raise DataError(f"{path}: looks like none of the formats {', '.join(FORMATS)}; name one with --format")
    return best
