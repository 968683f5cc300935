"""A negotiation as a scripted participant sees it: the deals there are, and what each is worth to it.

Each game describes its deals to the scripted policies once, as a `Deals`; the policies know nothing else of the
game. Utilities run from 0 to 1 on the seat's own scale. Nothing here knows the counterpart's private values:
`guess` is what somebody without information believes, `theirs` lists what is conceivable.

Numbers of deals may be many (a job interview has 9,920), so they are kept as flat arrays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import random

    from envs.agents.scripted import State

FLOORS = (0.2, 0.3, 0.4)  # that a participant draws its floor from, in own utility
SLACK = 1e-9  # utilities closer than this are equal


def one_of(space: Space, aspiration: float, state: State) -> int:
    """One of the `least`; of what is equal to the seat what it has proposed last, so that it says the same again."""
    ties = space.least(aspiration)
    deal = ties[0] if len(ties) == 1 else ties[int(state.rng.random() * len(ties))]
    if state.made and space.utility(state.made[-1]) == space.utility(deal):
        return state.made[-1]
    return deal


class Space(Protocol):
    """What a policy knows of the deals, which go by numbers: an enumerated game is a `Deals`, a price a `Prices`."""

    floors: Sequence[float]  # what a floor is drawn from
    planner: str  # the module whose `plan` is the planner's policy
    relative: bool  # concessions are counted from the first offer, so that one holds nothing back
    secrets: Sequence[str]
    speech: str

    def seated(self, rng: random.Random, floor: float) -> Space:
        """The deals as one participant sees them, who draws for itself what is not given."""

    def utility(self, deal: int) -> float: ...
    def offer(self, deal: int) -> Mapping[str, Any]:
        """What this seat says to propose the deal."""

    def topic(self, deal: int) -> str:
        """What the deal is mainly about."""

    def index(self, given: Any) -> int:
        """The number of the deal in which this seat gets `given`."""

    def number(self, offer: Mapping[str, Any]) -> int:
        """The number of the deal that this seat proposes in these words."""

    def conceded(self, received: Sequence[int]) -> float:
        """How much own utility the counterpart's offers have conceded so far."""

    def least(self, aspiration: float) -> Sequence[int]:
        """The deals worth least among those worth at least `aspiration`."""

    def ask_for(self, aspiration: float, state: State) -> int:
        """What to propose with this aspiration, one of the `least`."""

    @property
    def best(self) -> int: ...
    def opening(self, deal: int) -> int:
        """The deal, or one as good that gives nothing away as a first offer."""

    def draw(self, rng: random.Random) -> int:
        """Any legal deal."""


class Deals:
    """All deals of one game for one seat, numbered from 0.

    offers  what this seat says to propose deal i
    mine    own utility of deal i
    guess   the counterpart's benefit from deal i by a uniform guess, on any scale
    guessed this seat's benefit from deal i as the counterpart would guess it
    find    gives the number of a deal by what this seat gets in it, as the standing offer in a notification says
    theirs  makes the conceivable utilities of the counterpart: one row per hypothesis, one column per deal
    secrets sentences that give this seat's private numbers away
    about   what deal i is mainly about for its proposer ("the hats")
    speech  which set of `phrases.PHRASES` the seat speaks with
    outside own utility of walking away
    """

    floors: Sequence[float] = FLOORS
    planner = "envs.agents.planner"
    relative = False

    def __init__(
        self,
        *,
        offers: Sequence[Mapping[str, Any]],
        mine: Sequence[float] | np.ndarray,
        guess: Sequence[float] | np.ndarray,
        guessed: Sequence[float] | np.ndarray,
        find: Callable[[Any], int],
        theirs: Callable[[], Any],
        secrets: Sequence[str],
        about: Sequence[str],
        speech: str = "split",
        outside: float = 0.0,
    ) -> None:
        self.offers, self.outside = offers, outside
        self.mine = array("d", mine)
        self.guess, self.guessed = np.asarray(guess, dtype=float), np.asarray(guessed, dtype=float)  # (D,)
        self.secrets, self.about, self.speech = secrets, about, speech
        self._find, self._theirs = find, theirs
        levels = np.asarray(self.mine).round(9)
        self._order = np.lexsort((-self.guess, levels))  # by own utility; of equal ones the best guess first
        rising = np.diff(levels[self._order], prepend=-np.inf) > 0
        self._levels = array("d", levels[self._order][rising])
        self._starts = np.append(np.flatnonzero(rising), len(levels))  # where each level begins in the order
        self._ties: dict[int, list[int]] = {}  # level -> its deals that are the best guess

    def seated(self, rng: random.Random, floor: float) -> Deals:
        """The same for everybody in this seat."""
        return self

    def utility(self, deal: int) -> float:
        return self.mine[deal]

    def offer(self, deal: int) -> Mapping[str, Any]:
        return self.offers[deal]

    def topic(self, deal: int) -> str:
        return self.about[deal]

    def conceded(self, received: Sequence[int]) -> float:
        """The best that was offered: a counterpart begins by asking for everything."""
        return max((self.mine[deal] for deal in received), default=0.0)

    def opening(self, deal: int) -> int:
        return deal

    def draw(self, rng: random.Random) -> int:
        return rng.randrange(len(self.mine))

    def index(self, given: Any) -> int:
        """The number of the deal in which this seat gets `given`."""
        return self._find(given)

    def number(self, offer: Mapping[str, Any]) -> int:
        """The number of the deal that this seat proposes in these words."""
        return self.offers.index(offer)

    def least(self, aspiration: float) -> list[int]:
        """The deals worth least among those worth at least `aspiration`; of these the ones that by a uniform
        guess are worth most to the counterpart. Never empty: above the best deal it is the best deal."""
        place = bisect_left(self._levels, aspiration - SLACK)
        place = min(place, len(self._levels) - 1)
        if place not in self._ties:
            level = self._order[self._starts[place] : self._starts[place + 1]]
            self._ties[place] = level[self.guess[level] >= self.guess[level[0]] - SLACK].tolist()
        return self._ties[place]

    def ask_for(self, aspiration: float, state: State) -> int:
        return one_of(self, aspiration, state)

    @cached_property
    def best(self) -> int:
        """The deal that is worth most to this seat and, by the guess, least to the counterpart."""
        mine = np.asarray(self.mine)
        return int(np.lexsort((self.guess, -mine))[0])

    @cached_property
    def theirs(self) -> Any:
        return self._theirs()
