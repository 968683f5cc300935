"""How a game of werewolf is paid: 1 to every player of the side that wins, alive or not, and 0 to the other side.

The seer is a villager. An agreement names the winners: `{"winner": "villagers"}` or `{"winner": "wolves"}`. When the
moves were used up, or the game was aborted, nobody has won. `wolves_won` is reported beside the reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewards.core import Score, SeatScore, status_of
from scenarios.core import Scenario
from scenarios.errors import DataError
from scenarios.jsonfile import shown
from scenarios.werewolf import seats

VILLAGERS, WOLVES = "villagers", "wolves"
WON, LOST = SeatScore(1.0, 1.0, None, 1.0), SeatScore(0.0, 0.0, None, 0.0)


def side(role: str) -> str:
    """Whom a role wins with."""
    return WOLVES if role == "wolf" else VILLAGERS


def score(scenario: Scenario, outcome: Mapping[str, Any]) -> Score:
    """The scores of all players. Raises `DataError` for an impossible outcome."""
    roles = scenario.fields["roles"]
    status = status_of(outcome, seats(roles))
    if status == "walk_away":
        raise DataError("status is 'walk_away', and nobody can leave a game of werewolf")
    winner = _winner(outcome["agreement"]) if status == "agreement" else None
    paid = {seat: WON if side(roles[seat]) == winner else LOST for seat in seats(roles)}
    return Score("werewolf", status, paid, {"wolves_won": float(winner == WOLVES)})


def _winner(agreement: Any) -> str:
    if not isinstance(agreement, Mapping) or set(agreement) != {"winner"}:
        raise DataError(f"agreement is {shown(agreement)}, expected an object with winner alone")
    winner = agreement["winner"]
    if winner not in (VILLAGERS, WOLVES):
        raise DataError(f"agreement has the winner {shown(winner)}, expected {VILLAGERS} or {WOLVES}")
    return winner
