"""Participants: scripted policies (`scripted`), language models (`llm`), people (`human`), programs elsewhere
(`remote`). All keep to one protocol, `envs.events.Agent`.

**A participant of your own** is any object with `decide`. It is made for one seat of one episode, gets that seat's
events so far and the actions that are legal now, and returns one of them:

    from envs.core import Action

    class Patient:
        # says nothing and takes what is there at its last move
        async def decide(self, context, actions):
            turn = context[-1].payload
            if turn["moves_left"] == 1 and turn["standing"] is not None:
                return Action("accept", {"say": "Fine."})
            return Action("message", {"say": ""})

`context[0]` is the briefing, `context[-1]` the notification; `envs/bargain.py` lists what they hold. Whatever goes
wrong in it (an exception, nonsense, a deadline) becomes an event of its seat and an empty message; nothing that it
does reaches the other seat except through legal moves. If it never waits for anything, let it have `choose` too,
the same without `async`. On the command line it is `python:MODULE:ATTR`, ATTR being called with env, seat and seed.

**A scripted policy** is a function from `scripted.State` to `scripted.Choice`, entered in `scripted.POLICIES`; it
sees deals and utilities, not the game, and so plays every game that describes itself as `deals.Deals`. What it says
comes from `phrases.PHRASES`.

**A game of more than two** has policies of its own, in a module named in `scripted.PARTIES`; `agents/werewolf.py` is
the example.

**A game for the scripted policies** is one function `deals(briefing) -> Deals` in a module named in
`scripted.DEALS`; `agents/dnd.py` is the example. Cache by content: it is called once for every episode and seat.
"""

from envs.events import Agent

__all__ = ["Agent"]
