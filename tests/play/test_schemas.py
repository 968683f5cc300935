"""What constrained decoding allows in every game: each legal move as the harness writes it, and no other."""

import json
from functools import cache

import pytest

import envs
from algos.grammars import Guide, allows, json_grammar
from envs.agents import formats, tom
from envs.agents.harness import HarnessConfig
from envs.agents.llm import write_action
from envs.agents.scripted import scripted
from envs.core import Action, run
from scenarios.core import packaged

GAMES = [name for name in envs.ENVIRONMENTS if hasattr(envs.module(name), "MIND")]
END = 0


@cache
def guide():
    """A tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(["<end>", *letters])}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    return Guide(PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>"), 257, {END})


def accepts(grammar, text):
    """Would a model under this grammar have been allowed to write this?"""
    state = guide().matcher(grammar)
    for token in [*guide().tokenizer.encode(text, add_special_tokens=False), END]:
        if not allows(guide().mask(state), token):
            return False
        state.consume_token(token)
    return True


class Watched:
    """Another participant, and what was legal when it moved."""

    def __init__(self, agent):
        self.agent, self.moves = agent, []

    def choose(self, context, actions):
        action = self.agent.choose(context, actions)
        self.moves.append((actions, action))
        return action


async def moves_of(name, policies=("random", "linear", "planner", "conceder")):
    found = []
    for number, policy in enumerate(policies):
        env = envs.make(packaged(name, "val")[number], seed=number)
        agents = {seat: Watched(scripted(name, policy, seed=number)) for seat in env.seats}
        await run(env, agents)
        found += [move for agent in agents.values() for move in agent.moves]
    return found


@pytest.mark.parametrize("name", GAMES)
async def test_every_legal_move_may_be_written_and_no_other(name):
    config = HarnessConfig(format="schema")
    seen = set()
    for actions, action in await moves_of(name):
        grammar = json_grammar(formats.answer_schema(name, actions, config))
        assert accepts(grammar, write_action(action)), write_action(action)
        seen.add(action.move)
        legal = {spec.name for spec in actions}
        for move in ("accept", "reject", "walk_away"):
            assert accepts(grammar, json.dumps({"move": move}, separators=(",", ":"))) == (move in legal)
        assert not accepts(grammar, '{"move": "walk_away"}')  # white space is not free
        assert not accepts(grammar, '{"move":"propose"}')  # what is required cannot be left out
        assert not accepts(grammar, '{"move":"accept","say":"Yes.","price":1}')
        assert not accepts(grammar, '{"say":"Yes.","move":"walk_away"}')
    assert len(seen) >= 3


@pytest.mark.parametrize("name", GAMES)
async def test_with_the_scaffold_an_answer_begins_with_a_belief_and_ends_with_a_prediction(name):
    config = HarnessConfig(format="schema", scaffold="tom")
    mind, scenario = envs.module(name).MIND, packaged(name, "val")[0]
    seat = next(seat for seat in envs.module(name).SEATS if mind.truth(scenario, seat) is not None)
    belief = mind.truth(scenario, seat)
    for actions, action in (await moves_of(name, ("linear",)))[:6]:
        grammar = json_grammar(formats.answer_schema(name, actions, config))
        move = json.loads(write_action(action))
        whole = {"infer": belief, **move, "anticipate": {"reply": "propose", "offer": "worse"}}
        text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        assert accepts(grammar, text), text
        assert not accepts(grammar, write_action(action))
        found, answer = formats.read({"content": text}, actions, config)
        assert isinstance(found, Action)
        assert found.move == action.move
        note = tom.note(name, answer, turn=0, seen=1)
        assert (note.infer, note.anticipate) == (belief, whole["anticipate"])


@pytest.mark.parametrize("name", GAMES)
async def test_a_move_is_the_same_as_a_function_call(name):
    config = HarnessConfig(format="tools")
    for number, (actions, action) in enumerate(await moves_of(name)):
        reply = formats.written(action, config, number)
        found, _ = formats.read(reply, actions, config)
        assert isinstance(found, Action), found
        assert write_action(found) == write_action(action)
        offered = {tool["function"]["name"] for tool in formats.tools(name, actions, config)}
        assert offered == {spec.name for spec in actions}


@pytest.mark.parametrize("name", GAMES)
def test_the_example_of_a_belief_has_the_form_of_one(name):
    mind = envs.module(name).MIND
    assert tom.read_field(tom.example(mind.schema), mind.schema) is not None
    assert mind.about in tom.instructions(name)
