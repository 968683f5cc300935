"""A negotiation as a scripted participant sees it: the deals there are, and what each is worth to it.

Each game describes its deals to the scripted policies once, as a `Deals`; the policies know nothing else of the
game. Utilities run from 0 to 1 on the seat's own scale. Nothing here knows the counterpart's private values:
`guess` is what somebody without information believes, `theirs` lists what is conceivable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

SLACK = 1e-9  # utilities closer than this are equal


class Deals:
    """All deals of one game for one seat, numbered from 0.

    offers  what this seat says to propose deal i
    mine    own utility of deal i
    guess   the counterpart's benefit from deal i by a uniform guess, on any scale
    guessed this seat's benefit from deal i as the counterpart would guess it
    given   names deal i by what this seat gets, as the standing offer in a notification does (through `key`)
    theirs  makes the conceivable utilities of the counterpart: one row per hypothesis, one column per deal
    secrets sentences that give this seat's private numbers away
    about   what deal i is mainly about for its proposer ("the hats")
    speech  which set of `phrases.PHRASES` the seat speaks with
    outside own utility of walking away
    """

    def __init__(
        self,
        *,
        offers: Sequence[Mapping[str, Any]],
        mine: Sequence[float],
        guess: Sequence[float],
        guessed: Sequence[float],
        given: Sequence[Hashable],
        key: Callable[[Any], Hashable],
        theirs: Callable[[], Sequence[Sequence[float]]],
        secrets: Sequence[str],
        about: Sequence[str],
        speech: str = "split",
        outside: float = 0.0,
    ) -> None:
        self.offers, self.mine, self.outside = offers, mine, outside
        self.guess, self.guessed = guess, guessed
        self.secrets, self.about, self.speech = secrets, about, speech
        self._key, self._theirs = key, theirs
        self._number = {name: i for i, name in enumerate(given)}
        ranked = sorted(range(len(mine)), key=lambda i: (mine[i], -guess[i], i))
        levels: list[tuple[float, list[int]]] = []  # own utility, its deals that are the best guess
        for i in ranked:
            if not levels or mine[i] > levels[-1][0] + SLACK:
                levels.append((mine[i], [i]))
            elif guess[i] >= guess[levels[-1][1][0]] - SLACK:
                levels[-1][1].append(i)
        self._levels = [level for level, _ in levels]
        self._ties = [ties for _, ties in levels]

    def index(self, given: Any) -> int:
        """The number of the deal in which this seat gets `given`."""
        return self._number[self._key(given)]

    def number(self, offer: Mapping[str, Any]) -> int:
        """The number of the deal that this seat proposes in these words."""
        return self.offers.index(offer)

    def least(self, aspiration: float) -> list[int]:
        """The deals worth least among those worth at least `aspiration`; of these the ones that by a uniform
        guess are worth most to the counterpart. Never empty: above the best deal it is the best deal."""
        place = bisect_left(self._levels, aspiration - SLACK)
        return self._ties[min(place, len(self._ties) - 1)]

    @cached_property
    def best(self) -> int:
        """The deal that is worth most to this seat and, by the guess, least to the counterpart."""
        return max(range(len(self.mine)), key=lambda i: (self.mine[i], -self.guess[i]))

    @cached_property
    def theirs(self) -> Sequence[Sequence[float]]:
        return self._theirs()
