"""One row of a published Deal or No Deal file, read and checked; the layouts are described in `dealornodeal.py`.

`tagged` and `flat` turn a row's text into a `View`, or raise `ValueError` with what is wrong with it. `six` reads
one player's numbers. Numbers are digits alone, words are parted by single spaces, as in the published files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from scenarios import dnd
from scenarios.dnd import Triple
from scenarios.jsonfile import shown

SIX = re.compile(r"[0-9]{1,3}(?: [0-9]{1,3}){5}")
CLAIM = re.compile(r"item0=([0-9]{1,3}) item1=([0-9]{1,3}) item2=([0-9]{1,3})")
TAGS = (
    *("<input>", "</input>", "<dialogue>", "</dialogue>"),
    *("<output>", "</output>", "<partner_input>", "</partner_input>"),
)
NO_DEAL = ("disagree", "no_agreement", "disconnect")


@dataclass(frozen=True)
class View:
    """One player's row. `own` are the reader's values, `other` the partner's."""

    line: int
    counts: Triple
    own: Triple
    other: Triple
    dialogue: str = ""
    record: str | None = None  # agree, disagree, no_agreement, disconnect; None: nothing was recorded
    claim: Triple | None = None  # the reader's part of an agreement
    reward: int | None = None  # the reader's, as recorded
    odd: tuple[str, ...] = ()  # kinds, explained in dealornodeal.py

    def __post_init__(self) -> None:
        """Raises `ValueError` for what breaks the rules of the game."""
        values = {"a": dnd.named(self.own), "b": dnd.named(self.other)}
        faults = dnd.check({"counts": dnd.named(self.counts), "values": values})
        if faults:
            raise ValueError("; ".join(faults))
        if self.claim is not None and min(rest(self.counts, self.claim)) < 0:
            raise ValueError(f"the claim {self.claim} is more than the counts {self.counts}")
        words = self.dialogue.split(" ")
        if self.dialogue and not (words[0] in ("YOU:", "THEM:") and words[-1] == "<selection>"):
            raise ValueError("the dialogue does not begin with YOU: or THEM: and end with <selection>")


def pair(line: int, mine: tuple[Triple, Triple], theirs: tuple[Triple, Triple], **more: object) -> View:
    """The view of two players' counts and values, which must agree on the counts."""
    if mine[0] != theirs[0]:
        raise ValueError(f"the players' counts differ: {mine[0]} and {theirs[0]}")
    return View(line, mine[0], mine[1], theirs[1], **more)  # type: ignore[arg-type]


def six(text: str, name: str) -> tuple[Triple, Triple]:
    """Counts and values of `count value count value count value`."""
    if SIX.fullmatch(text) is None:
        raise ValueError(f"{name} is {shown(text)}, expected six integers")
    numbers = text.split(" ")
    return _ints(numbers[0::2]), _ints(numbers[1::2])


def tagged(line: int, text: str) -> View:
    words = text.split(" ")
    for tag in TAGS:
        if words.count(tag) != 1:
            raise ValueError(f"{tag} is missing" if tag not in words else f"{tag} stands twice")
    at = [words.index(tag) for tag in TAGS]
    touching = all(at[i] + 1 == at[i + 1] for i in (1, 3, 5))
    if at != sorted(at) or not touching or at[0] != 0 or at[-1] != len(words) - 1:
        raise ValueError("the tags are not in their order, or something stands outside them")
    mine, dialogue, output, theirs = (" ".join(words[at[i] + 1 : at[i + 1]]) for i in (0, 2, 4, 6))
    own, other = six(mine, "<input>"), six(theirs, "<partner_input>")
    tokens = output.split(" ")
    kind = tokens[0].strip("<>")
    if kind in NO_DEAL and tokens == [f"<{kind}>"] * 6:
        return pair(line, own, other, dialogue=dialogue, record=kind, odd=(kind,))
    first, second = CLAIM.fullmatch(" ".join(tokens[:3])), CLAIM.fullmatch(" ".join(tokens[3:]))
    if first is None or second is None:
        expected = "item0= item1= item2= twice, or <disagree>, <no_agreement> or <disconnect> six times"
        raise ValueError(f"<output> is {shown(output)}, expected {expected}")
    claim, partners = _ints(first.groups()), _ints(second.groups())
    view = pair(line, own, other, dialogue=dialogue, record="agree", claim=claim)
    if rest(view.counts, claim) != partners:
        raise ValueError(f"the claims {claim} and {partners} do not add up to the counts {view.counts}")
    return view


def flat(line: int, text: str) -> View:
    words = text.split(" ")
    if words.count("<selection>") != 1:
        raise ValueError("<selection> is missing" if "<selection>" not in words else "<selection> stands twice")
    end = words.index("<selection>")
    own, other = six(" ".join(words[:6]), "the reader's part"), six(" ".join(words[-6:]), "the partner's part")
    dialogue = " ".join(words[6 : end + 1])
    selection, eos, reward = " ".join(words[end + 1 : -7]).partition(" <eos> reward=")
    mark = words[-7]
    if not eos:
        raise ValueError("the row does not end in claim <eos> reward=R agree|disagree and six integers")
    if mark not in ("agree", "disagree"):
        raise ValueError(f"the mark is {shown(mark)}, expected agree or disagree")
    match = CLAIM.fullmatch(selection)
    if match is None:
        return _flat_without_items(line, own, other, dialogue, selection, reward, mark)
    claim = _ints(match.groups())
    view = pair(line, own, other, dialogue=dialogue, record="agree", claim=claim)
    worth = sum(units * value for units, value in zip(claim, view.own, strict=True))
    if reward != str(worth):
        raise ValueError(f"the reward is {shown(reward)}, but the claim is worth {worth}")
    if mark == "agree":
        return pair(line, own, other, dialogue=dialogue, record="agree", claim=claim, reward=worth)
    odd = ("disagree", "disagree_paid") if worth else ("disagree",)
    return pair(line, own, other, dialogue=dialogue, record="disagree", reward=worth, odd=odd)


def _flat_without_items(
    line: int,
    own: tuple[Triple, Triple],
    other: tuple[Triple, Triple],
    dialogue: str,
    selection: str,
    reward: str,
    mark: str,
) -> View:
    if selection not in ("no agreement", "disconnect"):
        raise ValueError(f"the claim is {shown(selection)}, expected items, no agreement or disconnect")
    if reward != selection:
        raise ValueError(f"the reward is {shown(reward)}, though the claim is {selection}")
    if selection == "disconnect":
        odd = ("disconnect", "disconnect_marked_agree") if mark == "agree" else ("disconnect",)
        return pair(line, own, other, dialogue=dialogue, record="disconnect", odd=odd)
    if mark == "agree":
        return pair(line, own, other, dialogue=dialogue, record="no_agreement", odd=("no_agreement",))
    odd = ("no_agreement", "no_agreement_marked_disagree")
    return pair(line, own, other, dialogue=dialogue, record="disagree", odd=odd)


def rest(counts: Triple, part: Triple) -> Triple:
    """What a part leaves of the counts."""
    return counts[0] - part[0], counts[1] - part[1], counts[2] - part[2]


def _ints(words: Sequence[str]) -> Triple:
    book, hat, ball = map(int, words)
    return book, hat, ball
