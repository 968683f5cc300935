"""What scripted participants say: short sentences by the kind of moment and the kind of bargain.

`PHRASES` has a set for each `Deals.speech`: `split` for dividing things, `buyer` and `seller` for a price, `job` for
a contract, `meeting` for an hour; what fits every bargain stands in `COMMON`. `{it}` stands for what an offer is mainly
about ("the hats", "the price"). No phrase holds a number, a name or anything private; a sentence has at most eight
words, so that a small model can learn to speak like this.
"""

from __future__ import annotations

import random

from envs.agents.phrases_job import JOB
from envs.agents.phrases_meeting import MEETING

COMMON: dict[str, tuple[str, ...]] = {
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

PHRASES: dict[str, dict[str, tuple[str, ...]]] = {
    "split": COMMON
    | {
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
    },
    "buyer": COMMON
    | {
        "open": (
            "Hello, is it still available?",
            "Hi, this is what I can pay.",
            "I like it, here is my offer.",
            "Would you take this for it?",
            "I could come for it at this price.",
            "Let me start with this offer.",
            "Hello, how does this sound to you?",
            "I am interested, this is my offer.",
            "Could we talk about {it}?",
        ),
        "concede": (
            "I can pay a little more.",
            "Fine, I will go up a bit.",
            "Here is a better offer.",
            "I moved up, can you come down?",
            "Would you let it go for this?",
            "That is a step towards your price.",
            "I can stretch a little further.",
            "More than before, what do you say?",
            "All right, I add something.",
        ),
        "hold": (
            "I need to stay at this.",
            "My offer has not changed.",
            "I cannot go up yet.",
            "That is still a lot for it.",
            "I still think this is fair.",
            "Please think about {it} again.",
            "Your turn to come down, I think.",
            "Not cheap enough yet, I stay here.",
            "There are others for sale, you know.",
        ),
        "last": (
            "This is my last offer.",
            "I cannot pay more than this.",
            "This is all I can spend.",
            "Take it, or I look elsewhere.",
            "We are out of time, please accept.",
            "Final offer, I need {it} this low.",
            "That is my last word on {it}.",
            "Please take it, time is up.",
        ),
        "greedy": (
            "I want it for next to nothing.",
            "You should simply give it to me.",
            "I will not pay a proper price.",
            "Nobody else wants it anyway.",
            "I pay this and nothing more.",
            "Let me have it almost for free.",
            "Take this and be glad.",
            "My price, or I keep waiting.",
        ),
        "reject": (
            "No, that is too much.",
            "I cannot pay that.",
            "Sorry, too expensive for me.",
            "That does not work for me.",
            "It is not worth that to me.",
            "Please take that off the table.",
            "No, thank you, not at this price.",
            "I have to turn that down.",
        ),
    },
    "seller": COMMON
    | {
        "open": (
            "Hello, yes, it is available.",
            "Hi, this is what I ask for it.",
            "It is in good shape, here is my price.",
            "You will like it, this is the price.",
            "Let me start with this price.",
            "Thanks for asking, I would take this.",
            "Hello, how does this sound to you?",
            "That is what it should bring me.",
            "Good choice, {it} would be this.",
        ),
        "concede": (
            "I can come down a little.",
            "Fine, I will make it cheaper.",
            "Here is a better price for you.",
            "I moved down, can you come up?",
            "I could let it go for this.",
            "That is a step towards your offer.",
            "I can give you a small discount.",
            "Less than before, what do you say?",
            "All right, I take something off.",
        ),
        "hold": (
            "I need to stay at this.",
            "My price has not changed.",
            "I cannot go lower yet.",
            "It is worth that, have a look.",
            "I still think this is fair.",
            "Please think about {it} again.",
            "Your turn to come up, I think.",
            "Others are asking for it as well.",
            "Not enough yet, I stay here.",
        ),
        "last": (
            "This is my last price.",
            "I cannot go lower than this.",
            "This is as cheap as it gets.",
            "Take it, or I sell it elsewhere.",
            "We are out of time, please accept.",
            "Final offer, I need {it} this high.",
            "That is my last word on {it}.",
            "Please take it, time is up.",
        ),
        "greedy": (
            "I want the full price.",
            "You pay what I ask.",
            "There is no discount for anybody.",
            "I will not come down at all.",
            "It is worth every bit of that.",
            "My price, or I keep waiting.",
            "Pay it all or leave it.",
            "I take nothing less than that.",
        ),
        "reject": (
            "No, that is too little.",
            "I cannot sell it for that.",
            "Sorry, that is too low.",
            "That does not work for me.",
            "It is worth more than that.",
            "Please take that off the table.",
            "No, thank you, not at this price.",
            "I have to turn that down.",
        ),
    },
    "job": COMMON | JOB,
    "meeting": COMMON | MEETING,
}


def phrase(moment: str, rng: random.Random, it: str, speech: str = "split") -> str:
    """A sentence for the moment."""
    choices = PHRASES[speech][moment]
    text = choices[int(rng.random() * len(choices))]
    return text.replace("{it}", it) if "{it}" in text else text
