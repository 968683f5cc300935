"""What scripted participants say: short sentences by the kind of moment, for any negotiation.

`{it}` stands for what an offer is mainly about ("the hats", "the price"). No phrase holds a number, a name or
anything private; a sentence has at most eight words, so that a small model can learn to speak like this.
"""

from __future__ import annotations

import random

PHRASES: dict[str, tuple[str, ...]] = {
    "open": (
        "Hello, here is what I would like.",
        "Let me start with this.",
        "I would like {it} to start with.",
        "Hi, this would suit me well.",
        "My first offer is on the table.",
        "Shall we begin with this split?",
        "I mostly care about {it}.",
        "Good to meet you, how is this?",
        "This is where I would start.",
        "I hope this works for you.",
    ),
    "concede": (
        "I can come down a little.",
        "Fine, I will give you more.",
        "Here is a better offer for you.",
        "I moved, now it is your turn.",
        "Would this work better for you?",
        "Let me meet you part of the way.",
        "I give up some, but keep {it}.",
        "That is a step towards you.",
        "I can live with this instead.",
        "More for you, I still want {it}.",
    ),
    "hold": (
        "I need to stay with this.",
        "My offer has not changed.",
        "I still think this is right.",
        "I cannot move yet.",
        "This is still what I want.",
        "I am not ready to give more.",
        "Please think about {it} again.",
        "Your turn to move, I think.",
        "I would rather keep {it}.",
        "Not enough yet, I stay here.",
    ),
    "last": (
        "This is my last offer.",
        "Take this or we have nothing.",
        "We are out of time, please accept.",
        "Last chance for both of us.",
        "I cannot offer more than this.",
        "This is all I can do.",
        "Please take it, time is up.",
        "Final offer, I need {it}.",
    ),
    "greedy": (
        "I want all of it.",
        "Everything goes to me.",
        "I will not settle for less.",
        "All of this should be mine.",
        "I take it all.",
        "There is nothing for you here.",
        "I demand the whole lot.",
        "Give me everything.",
    ),
    "accept": (
        "Deal.",
        "That works for me.",
        "I agree, thank you.",
        "Good, we have a deal.",
        "Yes, I accept.",
        "Fair enough, done.",
        "Fine with me, thanks.",
        "I am happy with that.",
        "All right, let us do that.",
    ),
    "reject": (
        "No, thank you.",
        "I cannot take that.",
        "That does not work for me.",
        "No, that is too little.",
        "I have to turn that down.",
        "Please take that off the table.",
        "That is not good enough.",
        "Sorry, not like this.",
    ),
    "walk_away": (
        "Then we have no deal.",
        "I am leaving, goodbye.",
        "This does not lead anywhere.",
        "Sorry, I would rather walk away.",
        "I would rather have nothing.",
        "We are too far apart.",
        "No deal, good luck.",
        "I am done here.",
    ),
    "ask": (
        "What would you like?",
        "Please make me an offer.",
        "Tell me what you have in mind.",
        "What do you suggest?",
        "I am listening, what do you propose?",
        "You go first, please.",
        "Let me hear your idea.",
        "How would you do it?",
    ),
}


def phrase(moment: str, rng: random.Random, it: str) -> str:
    """A sentence for the moment."""
    choices = PHRASES[moment]
    text = choices[int(rng.random() * len(choices))]
    return text.replace("{it}", it) if "{it}" in text else text
