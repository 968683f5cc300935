"""The LLM harness: its prompts to the letter, a conversation that only grows, failures that leave no trace."""

import asyncio

import pytest

import envs
from envs.agents.llm import HarnessConfig, LLMAgent, Transcribed, opening, say_events, write_action
from envs.agents.scripted import names, scripted
from envs.core import Action, Limits, derive_seed, run
from scenarios.core import Scenario, packaged
from scenarios.errors import EngineError

SCENARIO = Scenario(
    "s1",
    "dnd",
    "test",
    "here",
    {
        "counts": {"book": 1, "hat": 2, "ball": 3},
        "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}},
    },
)
SEED_A = next(seed for seed in range(9) if envs.make(SCENARIO, seed=seed).order[0] == "a")
SEED_B = next(seed for seed in range(9) if envs.make(SCENARIO, seed=seed).order[0] == "b")
FULL, COMPACT = HarnessConfig(), HarnessConfig(prompt="compact", max_tokens=40, temperature=0.7)

FULL_SYSTEM = """\
You negotiate with another party about dividing some items. There are book: 1, hat: 2, ball: 3.
To you one book is worth 1, one hat is worth 3, one ball is worth 1; all of them together are worth 10. The other \
party's values add up to 10 too, but differ from yours; neither of you knows the other's.
Your score grows with what you get. Without an agreement both of you get nothing.
You move in turn, 10 moves each. When the moves are used up there is no agreement.

Answer with one JSON object, one of:
{"move":"message","say":"What do you need most?"} to talk only
{"move":"propose","offer":{"book":0,"hat":1,"ball":1},"say":"How about this?"} to offer a division; "offer" says what \
you take of each item, the other party gets the rest; it replaces your earlier offer
{"move":"accept"} to close on the other party's offer
{"move":"reject"} to turn the other party's offer down; it is then off the table
{"move":"walk_away"} to end without agreement
The other party reads what you "say"; you may add it to any move."""


class Model:
    """Answers from a list; an entry may be an exception, or None for no content."""

    def __init__(self, *replies, finish="stop"):
        self.replies, self.requests, self.finish = list(replies), [], finish

    async def chat(self, request):
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return {"choices": [{"message": {"role": "assistant", "content": reply}, "finish_reason": self.finish}]}


class Plays:
    def __init__(self, *moves):
        self.moves = list(moves)

    async def decide(self, context, actions):
        return self.moves.pop(0)


def takes(book, hat, ball, say=""):
    return Action("propose", {"offer": {"book": book, "hat": hat, "ball": ball}, "say": say})


async def talk(replies, moves, config, *, seat="a", seed=SEED_A, limits=None, finish="stop"):
    """The requests of a model in a seat, against another that makes the moves."""
    model = Model(*replies, finish=finish)
    env = envs.make(SCENARIO, seed=seed, limits=limits)
    agent = LLMAgent(model.chat, env="dnd", config=config, seed=11, model="tiny")
    await run(env, {seat: agent, "b" if seat == "a" else "a": Plays(*moves)})
    return model, agent, env


MOVES = [
    takes(0, 1, 3, "I like\nthe  balls <|im_end|>."),
    Action("message", {"say": ""}),
    Action("reject", {"say": "No."}),
    takes(1, 0, 3),
    Action("walk_away", {"say": "Bye."}),
]
REPLIES = [
    '{"move":"message","say":"Hello."}',
    '{"move":"propose","offer":{"book":1,"hat":2,"ball":0}}',
    "I do not know",
    '{"move":"propose","offer":{"book":1,"hat":2,"ball":9}}',
    '{"move":"propose","offer":{"book":1,"hat":2,"ball":0}}',
    '{"move":"message","say":"Well?"}',
    '{"move":"message","say":"Well?"}',
]


async def test_the_compact_prompt_to_the_letter():
    model, _, _ = await talk(REPLIES, MOVES, COMPACT)
    messages = model.requests[-1]["messages"]
    assert [message["role"] for message in messages] == ["system"] + ["user", "assistant"] * 6 + ["user"]
    assert messages[0]["content"] == "Split. count*my value: book 1*1 hat 2*3 ball 3*1"
    assert [message["content"] for message in messages if message["role"] == "user"] == [
        "1/10",
        "they offer: I like the balls ‹|im_end|›.\nfor me book 1 hat 1 ball 0 =4\n2/10",
        "they say:\nfor me book 1 hat 1 ball 0 =4\n3/10",
        "invalid: the answer cannot be read: it holds no JSON object; answer with one like "
        '{"move":"message","say":"…"}; tries left 2\nfor me book 1 hat 1 ball 0 =4\n3/10',
        "invalid: offer has 9 of ball, expected 0 to 3; tries left 1\nfor me book 1 hat 1 ball 0 =4\n3/10",
        "they reject: No.\nfor me book 1 hat 1 ball 0 =4\n4/10",
        "they offer:\nfor me book 0 hat 2 ball 0 =6\n5/10",
    ]


async def test_the_full_prompt_to_the_letter():
    model, _, _ = await talk(REPLIES, MOVES, FULL)
    messages = model.requests[-1]["messages"]
    assert messages[0] == {"role": "system", "content": FULL_SYSTEM}
    all_moves = "Possible now: message, propose, accept, reject, walk_away."
    told = [message["content"].split("\n") for message in messages if message["role"] == "user"]
    assert told[0] == [
        "There is no offer to accept.",
        "Your move 1 of 10; after it the other side has 10 moves left. Possible now: message, propose, walk_away.",
    ]
    assert told[1] == [
        'The other side offers: you get book 1, hat 1, ball 0. It says: "I like the balls ‹|im_end|›."',
        "If you accept, you get book 1, hat 1, ball 0, worth 4 of 10 to you.",
        f"Your move 2 of 10; after it the other side has 9 moves left. {all_moves}",
    ]
    assert told[2][0] == "The other side says nothing."
    assert told[3][0] == (
        "Your answer was not valid: the answer cannot be read: it holds no JSON object; answer with one like "
        '{"move":"message","say":"…"}. Answer again (2 tries left).'
    )
    assert told[4][0] == "Your answer was not valid: offer has 9 of ball, expected 0 to 3. Answer again (1 try left)."
    assert told[5][0] == 'The other side turns your offer down. It says: "No."'
    assert told[6][:2] == [
        "The other side offers: you get book 0, hat 2, ball 0.",
        "If you accept, you get book 0, hat 2, ball 0, worth 6 of 10 to you.",
    ]


async def test_both_prompts_are_short_where_they_should_be():
    system = len("Split. count*my value: book 1*1 hat 2*3 ball 3*1")
    assert system <= 60
    for number in range(20):
        env = envs.make(packaged("dnd", "test")[number], seed=number)
        seat = Transcribed(scripted("dnd", "boulware", seed=number), env="dnd", config=COMPACT)
        await run(env, {"a": seat, "b": scripted("dnd", "linear", seed=number)})
        views = [message["content"] for message in seat.messages if message["role"] == "user"]
        assert max(map(len, views)) <= 100


@pytest.mark.parametrize("config", [FULL, COMPACT])
async def test_each_calls_messages_continue_the_previous_ones_and_the_exact_reply(config):
    replies = [*REPLIES, " \n", '{"move":"accept"}']
    model, agent, _ = await talk(replies, [*MOVES[:4], Action("message", {"say": ""})], config)
    for before, after, reply in zip(model.requests, model.requests[1:], [*REPLIES, " \n"], strict=False):
        sent = before["messages"]
        assert after["messages"][: len(sent)] == sent
        assert after["messages"][len(sent)] == {"role": "assistant", "content": reply}
        assert len(after["messages"]) == len(sent) + 2
    assert agent.messages[-1] == {"role": "assistant", "content": '{"move":"accept"}'}


async def test_a_request_holds_what_an_engine_needs_and_no_more():
    model, _, _ = await talk(REPLIES, MOVES, COMPACT)
    for number, request in enumerate(model.requests, 1):
        assert set(request) == {"model", "messages", "temperature", "max_tokens", "seed"}
        assert (request["model"], request["temperature"], request["max_tokens"]) == ("tiny", 0.7, 40)
        assert request["seed"] == derive_seed(11, number)
    assert len({request["seed"] for request in model.requests}) == len(model.requests)


async def test_a_call_that_fails_leaves_no_trace_and_its_news_come_with_the_next():
    replies = ['{"move":"message","say":"Hello."}', EngineError("gone"), '{"move":"accept"}']
    model, _, env = await talk(replies, [takes(0, 1, 3, "Balls."), Action("message", {"say": "Well?"})], COMPACT)
    assert [answer.kind for answer in env.answers if answer.seat == "a"] == ["action", "error", "action"]
    last = model.requests[-1]["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert last[-1]["content"] == (
        "they offer: Balls.\nno answer in time\nthey say: Well?\nfor me book 1 hat 1 ball 0 =4\n3/10"
    )
    assert last[:3] == model.requests[0]["messages"] + [{"role": "assistant", "content": REPLIES[0]}]


async def test_a_call_that_is_cut_off_leaves_no_trace_either():
    class Slow(Model):
        async def chat(self, request):
            if len(self.requests) == 0:
                self.requests.append(request)
                await asyncio.sleep(30)
            return await super().chat(request)

    model = Slow('{"move":"walk_away"}')
    env = envs.make(SCENARIO, seed=SEED_A, limits=Limits(decide_timeout_s=0.02))
    agent = LLMAgent(model.chat, env="dnd", config=COMPACT, seed=1)
    await run(env, {"a": agent, "b": Plays(Action("message", {"say": "Hi."}))})
    assert [message["content"] for message in agent.messages[1:]] == [
        "no answer in time\nthey say: Hi.\n2/10",
        '{"move":"walk_away"}',
    ]


async def test_an_answer_that_was_cut_off_is_told_so():
    limits = Limits(retries=0)
    _, _, env = await talk(['{"move":"prop', '{"move":"walk_away"}'], MOVES, COMPACT, limits=limits, finish="length")
    (event,) = [event for event in env.channels["a"].events if event.type == "invalid_action"]
    assert event.payload["reason"].startswith("the answer was cut off after 40 tokens, be shorter; the answer cannot")
    assert event.payload["text"] == '{"move":"prop'


async def test_a_model_that_writes_only_nonsense_plays_on_with_inert_moves():
    model, _, env = await talk(["blah"] * 30, [Action("message", {"say": ""})] * 10, FULL)
    assert env.outcome.status == "timeout"
    assert sum(answer.kind == "invalid" for answer in env.answers) == 30
    last = model.requests[-1]["messages"][-1]["content"]
    assert last.startswith("Your answer was not valid")
    lost = "Answer with one JSON"
    assert lost in model.requests[-1]["messages"][0]["content"]
    sent = [
        m["content"] for m in model.requests[-1]["messages"] if "An empty message was sent for you." in m["content"]
    ]
    assert len(sent) == 9


@pytest.mark.parametrize("prompt", ["full", "compact"])
async def test_a_transcript_of_a_scripted_game_is_the_chat_a_model_would_have_had(prompt):
    """The same game twice: scripted and written down, then by a model that writes the same moves."""
    config = HarnessConfig(prompt=prompt)
    for number, policy in enumerate(names()):
        scenario = packaged("dnd", "test")[number]
        seat = Transcribed(scripted("dnd", policy, seed=1), env="dnd", config=config)
        env = envs.make(scenario, seed=number)
        await run(env, {"a": seat, "b": scripted("dnd", "linear", seed=2)})
        moves = [answer.action for answer in env.answers if answer.seat == "a"]
        if not moves:
            continue
        model = Model(*[write_action(move) for move in moves])
        agent = LLMAgent(model.chat, env="dnd", config=config, seed=1)
        again = envs.make(scenario, seed=number)
        await run(again, {"a": agent, "b": scripted("dnd", "linear", seed=2)})
        assert agent.messages == seat.messages
        assert again.outcome == env.outcome


async def test_the_pure_functions_are_what_the_harness_sends():
    model, _, env = await talk(REPLIES, MOVES, COMPACT, seat="b", seed=SEED_B)
    events = env.channels["b"].events
    asked = [i for i, event in enumerate(events) if event.kind == "notification"]
    first = opening("dnd", events[: asked[0] + 1], COMPACT)
    assert first == model.requests[0]["messages"]
    second = say_events("dnd", "b", events[asked[0] + 1 : asked[1] + 1], COMPACT)
    assert second == model.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (takes(1, 0, 2, "Hi."), '{"move":"propose","offer":{"book":1,"hat":0,"ball":2},"say":"Hi."}'),
        (takes(1, 0, 2), '{"move":"propose","offer":{"book":1,"hat":0,"ball":2}}'),
        (Action("accept"), '{"move":"accept"}'),
        (Action("accept", {"say": 'Ünd "so"'}), '{"move":"accept","say":"Ünd \\"so\\""}'),
        (Action("message", {"say": ""}), '{"move":"message","say":""}'),
    ],
)
def test_a_move_is_written_in_one_canonical_way(action, text):
    assert write_action(action) == text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "xml", "format is 'xml', expected json"),
        ("memory", "none", "memory is 'none', expected full"),
        ("prompt", "long", "prompt is 'long', expected full or compact"),
        ("temperature", -1, "temperature is -1, expected 0 to 10"),
        ("max_tokens", 0, "max_tokens is 0, expected at least 1"),
    ],
)
def test_a_harness_that_cannot_be_is_refused(key, value, message):
    with pytest.raises(ValueError, match=message):
        HarnessConfig(**{key: value})
