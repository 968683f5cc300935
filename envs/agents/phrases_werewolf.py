"""What scripted players of werewolf say. `{player}` stands for whom they speak of; nobody says what it is itself."""

from __future__ import annotations

import random

WEREWOLF: dict[str, tuple[str, ...]] = {
    "ask": (
        "Who has something to tell us?",
        "Let us hear everybody first.",
        "I have no clear idea yet.",
        "We should look at the votes.",
        "Somebody here is hiding something.",
        "Let us not rush this.",
        "I am still watching all of you.",
        "What do the others think?",
        "Nothing stands out to me today.",
    ),
    "accuse": (
        "I do not trust {player}.",
        "{player} looks guilty to me.",
        "My suspicion falls on {player}.",
        "I think {player} is a wolf.",
        "Watch {player}, something is wrong there.",
        "{player} has been acting strangely.",
        "I would vote for {player} today.",
        "Ask {player} what happened last night.",
        "It has to be {player}, I think.",
    ),
    "join": (
        "I agree, {player} looks suspicious.",
        "Yes, I wondered about {player} too.",
        "Then let us vote for {player}.",
        "You are right about {player}.",
        "I am with you, {player} it is.",
        "{player} worries me as well.",
        "I have the same feeling about {player}.",
        "Good point, {player} should explain.",
    ),
    "defend": (
        "You are wrong about me.",
        "Why me? I did nothing.",
        "Look at who accuses me.",
        "You would lose a friend.",
        "I sleep at night, believe me.",
        "That is a strange thing to say.",
        "Please think again before you vote.",
        "I only want us to survive.",
    ),
    "greet": (
        "Good, we know each other now.",
        "Stay calm and stay hidden.",
        "Never speak against me tomorrow.",
        "We vote together, but not first.",
        "Let the others accuse each other.",
        "Nobody suspects us yet.",
        "I will follow your lead.",
        "Keep your voice down tomorrow.",
    ),
    "plan": (
        "Let us take {player} tonight.",
        "{player} is a danger to us.",
        "I would go for {player}.",
        "{player} must not see the morning.",
        "Tonight it should be {player}.",
        "How about {player} this time?",
        "{player} has talked too much.",
        "I say we visit {player}.",
    ),
    "follow": (
        "Yes, {player} it is.",
        "Fine, I go for {player} too.",
        "Agreed, {player} tonight.",
        "I am with you on {player}.",
        "Good choice, {player}.",
        "Then both of us take {player}.",
        "{player}, as you say.",
        "All right, {player} then.",
    ),
}


def phrase(moment: str, rng: random.Random, player: str | None = None) -> str:
    """A sentence for a moment."""
    return rng.choice(WEREWOLF[moment]).format(player=player)
