"""The harness beyond JSON in the text: function calls, schemas, memories, and the theory-of-mind scaffold."""

import json

import pytest

import envs
from envs.agents.harness import HarnessConfig, HarnessOverride
from envs.agents.llm import LLMAgent, Transcribed
from envs.agents.scripted import scripted
from envs.agents.tom import Note, probes
from envs.core import Action, Limits, run
from scenarios.core import Scenario
from scenarios.errors import EngineError

SCENARIO = Scenario(
    "s1", "dnd", "test", "here",
    {
        "counts": {"book": 1, "hat": 2, "ball": 3},
        "values": {"a": {"book": 1, "hat": 3, "ball": 1}, "b": {"book": 2, "hat": 1, "ball": 2}},
    },
)  # fmt: skip
SEED = next(seed for seed in range(9) if envs.make(SCENARIO, seed=seed).order[0] == "a")
WAIT = '{"move":"message","say":"Well?"}'


class Model:
    """Answers with messages (or their text) from a list; an entry may be an exception."""

    def __init__(self, *replies, finish="stop"):
        self.replies, self.requests, self.finish = list(replies), [], finish

    async def chat(self, request):
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        return {"choices": [{"message": message, "finish_reason": self.finish}]}


class Plays:
    def __init__(self, *moves):
        self.moves = list(moves)

    async def decide(self, context, actions):
        return self.moves.pop(0)


def calls(*functions, content=None):
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(functions)
        ],
    }


def takes(book, hat, ball, say=""):
    return Action("propose", {"offer": {"book": book, "hat": hat, "ball": ball}, "say": say})


async def talk(replies, moves, *, limits=None, finish="stop", **config):
    model = Model(*replies, finish=finish)
    env = envs.make(SCENARIO, seed=SEED, limits=limits)
    agent = LLMAgent(model.chat, env="dnd", config=HarnessConfig(**config), seed=11, model="m")
    await run(env, {"a": agent, "b": Plays(*moves)})
    return model, agent, env


def reasons(env):
    return [event.payload["reason"] for event in env.channels["a"].events if event.type == "invalid_action"]


BALLS = takes(0, 1, 3, "I like balls.")
OFFER = ("propose", '{"offer": {"book": 1, "hat": 2, "ball": 0}, "say": "Please."}')


async def test_each_move_is_a_function_and_its_result_is_what_happens_next():
    model, agent, env = await talk([calls(OFFER), calls(("accept", "{}"))], [BALLS], format="tools")
    first, second = model.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == list(envs.module("dnd").MOVES)
    propose = first["tools"][1]["function"]["parameters"]
    assert list(propose["properties"]) == ["offer", "say"]
    assert propose["required"] == ["offer"]
    assert "Answer by calling exactly one of the functions" in first["messages"][0]["content"]
    assert "JSON" not in first["messages"][0]["content"]
    assert second["messages"][: len(first["messages"])] == first["messages"]  # the prefix goes on
    assert second["tools"] == first["tools"]
    reply, result = second["messages"][-2:]
    assert reply == {**calls(OFFER), "content": ""}
    assert (result["role"], result["tool_call_id"]) == ("tool", "c0")
    assert result["content"].startswith(
        'The other side offers: you get book 1, hat 1, ball 0. It says: "I like balls."'
    )
    assert [answer.action.move for answer in env.answers if answer.seat == "a"] == ["propose", "accept"]
    assert env.outcome.agreement == {"a": {"book": 1, "hat": 1, "ball": 0}, "b": {"book": 0, "hat": 1, "ball": 3}}
    assert agent.messages[-1] == {**calls(("accept", "{}")), "content": ""}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (
            "I accept.",
            "it holds no function call that can be read; call exactly one of the functions message, propose, ",
        ),
        ("", "the answer is empty; call exactly one of the functions message, propose, walk_away"),
        (calls(OFFER, ("walk_away", "{}")), "it calls 2 functions; call exactly one of message, propose, walk_away"),
        (calls(("propose", '{"offer": {')), 'the arguments of "propose" are not a JSON object: "{\\"offer\\": {"'),
        (calls(("propose", "[1]")), 'the arguments of "propose" are not a JSON object'),
        (calls(("propose", "{}")), "propose needs the field 'offer'"),
        (calls(("accept", "{}")), 'the move "accept" is not possible now; possible moves: message, propose, walk_away'),
        (calls(("sing", "{}")), 'the move "sing" is not possible now'),
        (calls(("propose", '{"offer": {"book": 9, "hat": 0, "ball": 0}}')), "offer has 9 of book, expected 0 to 1"),
        (calls(("propose", '{"offer": {"book": "many", "hat": 0, "ball": 0}}')), "offer.book: "),
        (calls(("message", '{"say": "a", "say": "b"}')), "the JSON object has the field 'say' twice"),
        (
            {"content": "x", "tool_calls": [{"id": "c0", "type": "function"}]},
            "the call names no function; call exactly one of",
        ),
    ],
)
async def test_a_malformed_call_is_told_in_words_and_may_be_mended(reply, reason):
    model, _, env = await talk([reply, calls(("walk_away", "{}"))], [], format="tools")
    (told,) = reasons(env)
    assert told.startswith(reason) or reason in told
    last = model.requests[-1]["messages"][-1]
    assert last["content"].startswith("Your answer was not valid: ")
    assert last["role"] == ("tool" if isinstance(reply, dict) else "user")
    if isinstance(reply, dict) and len(reply["tool_calls"]) == 2:  # each call gets a result
        assert [m.get("tool_call_id") for m in model.requests[-1]["messages"][-2:]] == ["c0", "c1"]
    assert env.outcome.status == "walk_away"


@pytest.mark.parametrize(
    "reply",
    [
        {"content": None},
        {"content": [{"type": "text"}], "tool_calls": "propose"},
        {"content": 3, "tool_calls": [None, "x"]},
        {"content": "", "tool_calls": [{"id": None, "function": "propose"}]},
        {"content": "", "tool_calls": [{"function": {"name": ["propose"], "arguments": 7}}]},
    ],
)
async def test_what_is_not_even_a_message_is_told_too(reply):
    _, _, env = await talk([reply, calls(("walk_away", "{}"))], [], format="tools")
    assert [answer.kind for answer in env.answers] == ["invalid", "action"]
    assert "call exactly one of" in reasons(env)[0]


async def test_numbers_in_calls_are_read_as_people_mean_them():
    call = ("propose", '{"offer": {"book": "one", "hat": "2", "ball": 0.0}}')
    _, _, env = await talk([calls(call), calls(("walk_away", ""))], [Action("message", {"say": ""})], format="tools")
    assert env.answers[0].action.fields["offer"] == {"book": 1, "hat": 2, "ball": 0}


async def test_a_schema_says_which_moves_are_legal_now():
    model, _, _ = await talk(['{"move":"message","say":"Hm."}', '{"move":"accept"}'], [BALLS], format="schema")
    found = []
    for request in model.requests:
        form = request["response_format"]
        assert form["type"] == "json_schema"
        assert form["json_schema"]["strict"] is True
        found.append({one["properties"]["move"]["const"]: one for one in form["json_schema"]["schema"]["anyOf"]})
        assert "tools" not in request
    assert list(found[0]) == ["message", "propose", "walk_away"]
    assert list(found[1]) == ["message", "propose", "accept", "reject", "walk_away"]
    offer = found[0]["propose"]
    assert list(offer["properties"]) == ["move", "offer", "say"]
    assert offer["required"] == ["move", "offer"]
    assert offer["properties"]["offer"]["properties"]["hat"] == {"type": "integer", "minimum": 0, "maximum": 2}
    json.dumps(model.requests)


async def test_a_constrained_answer_that_was_cut_off_is_told_so():
    limits = Limits(retries=1, moves_per_seat=1)
    replies = ['{"move":"message","say":"well, I', '{"move":"walk_away"}']
    model, _, env = await talk(replies, [], format="schema", limits=limits, finish="length", max_tokens=9)
    assert reasons(env)[0].startswith("the answer was cut off after 9 tokens, be shorter; ")
    assert "be shorter" in model.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize("format", ["json", "tools"])
async def test_a_window_keeps_the_briefing_and_the_last_exchanges(format):
    reply = WAIT if format == "json" else calls(("message", '{"say": "Well?"}'))
    says = [Action("message", {"say": f"number {n}"}) for n in range(1, 10)]
    model, agent, _ = await talk([reply] * 10, [*says, says[-1]], format=format, memory="window", window=2)
    for number, request in enumerate(model.requests):
        messages = request["messages"]
        kept = min(number, 2)
        assert [m["role"] == "assistant" for m in messages] == [False] + [False, True] * kept + [False]
        assert messages[0] == model.requests[0]["messages"][0]
        assert messages[1]["role"] == "user"  # also where it answered a call that is no longer there
        told = "\n".join(m["content"] for m in messages[1:])
        assert [f"number {n}" in told for n in range(1, number + 1)] == [
            n >= number - kept for n in range(1, number + 1)
        ]
    assert len(agent.messages) == 1 + 2 * 2


async def test_a_summary_stands_for_what_was_said_before():
    says = [Action("message", {"say": f"number {n} {'x' * 200}"}) for n in range(1, 10)]
    replies = [WAIT, WAIT, "They said one,\ntwo.", WAIT, '{"move":"walk_away"}']
    model, agent, env = await talk(replies, says, memory="summary", summary_chars=1500)
    first, second, asked, after, last = (request["messages"] for request in model.requests)
    assert asked[: len(second)] == second  # the question continues the conversation
    assert asked[-1]["content"].startswith("Before you go on, sum up")
    assert after[0] == first[0]
    assert [m["role"] for m in after] == ["system", "user"]
    assert after[1]["content"].startswith(
        'What happened so far, in your own words: They said one, two.\n\nThe other side says: "number 2'
    )
    assert last[: len(after)] == after  # and goes on from there
    assert agent.messages[: len(after)] == after
    assert [answer.kind for answer in env.answers if answer.seat == "a"] == ["action"] * 4
    assert len({request["seed"] for request in model.requests}) == 5


async def test_a_summary_that_fails_is_asked_for_again():
    says = [Action("message", {"say": "x" * 300}) for _ in range(9)]
    replies = [WAIT, WAIT, EngineError("gone"), "Nothing.", '{"move":"walk_away"}']
    model, _, env = await talk(replies, says, memory="summary", summary_chars=1500, format="schema")
    assert [answer.kind for answer in env.answers if answer.seat == "a"] == ["action", "action", "error", "action"]
    assert "response_format" not in model.requests[3]  # a summary is free text
    assert "no answer" in model.requests[4]["messages"][1]["content"]


BELIEF = {"book": 2, "hat": 1, "ball": 2}


def thought(move, infer=None, anticipate=None):
    return json.dumps({"infer": infer or BELIEF, **move, "anticipate": anticipate or {"reply": "message"}})


async def test_the_scaffold_asks_for_a_belief_a_move_and_a_prediction():
    replies = [thought({"move": "message", "say": "Hm."}), thought({"move": "accept"})]
    model, agent, env = await talk(replies, [BALLS], scaffold="tom")
    system = model.requests[0]["messages"][0]["content"]
    assert 'First "infer": what one of each item is worth to the other party, as you believe it now' in system
    assert '"anticipate":{"reply":"propose","offer":"better"}' in system
    assert env.outcome.status == "agreement"
    assert agent.notes == [
        Note(0, 2, BELIEF, {"reply": "message"}),
        Note(1, len(env.channels["a"].events) - 2, BELIEF, {"reply": "message"}),
    ]
    said = [event.payload for event in env.channels["b"].events]
    assert not any("infer" in str(dict(payload)) for payload in said)  # it stays with its seat


async def test_beliefs_and_predictions_get_the_truth_beside_them():
    replies = [
        thought({"move": "message", "say": "Hm."}, anticipate={"reply": "propose", "offer": "worse"}),
        thought({"move": "reject"}, {**BELIEF, "hat": 3}, {"reply": "propose", "offer": "better"}),
        thought({"move": "reject"}, {"book": "two", "hat": 1, "ball": 2}, {"reply": "accept"}),
        thought({"move": "walk_away"}),
    ]
    _, agent, env = await talk(replies, [BALLS, takes(0, 0, 3), takes(1, 2, 3)], scaffold="tom")
    found = probes(agent.notes, scenario=SCENARIO, seat="a", events=env.channels["a"].events)
    assert [(probe["turn"], probe["name"], probe["value"]["right"]) for probe in found] == [
        (0, "infer", True), (0, "anticipate", True),  # a first offer: there is none to compare it with
        (1, "infer", False), (1, "anticipate", True),
        (2, "infer", True), (2, "anticipate", False),
        (3, "infer", True), (3, "anticipate", None),  # nothing came any more
    ]  # fmt: skip
    assert found[3]["value"]["said"] == {"reply": "propose", "offer": "better"}


@pytest.mark.parametrize(
    "answer",
    [
        '{"move":"walk_away"}',
        '{"infer":"hats","move":"walk_away","anticipate":"accept"}',
        '{"infer":{"book":2,"hat":1},"move":"walk_away","anticipate":{"reply":"sing"}}',
        '{"infer":{"book":2,"hat":1,"ball":99},"move":"walk_away","anticipate":{"reply":"propose","offer":"nice"}}',
    ],
)
async def test_a_belief_that_cannot_be_read_costs_no_move(answer):
    _, agent, env = await talk([answer], [], scaffold="tom")
    assert env.outcome.status == "walk_away"
    (note,) = agent.notes
    assert (note.infer, note.anticipate) == (None, None)


@pytest.mark.parametrize(
    "answer",
    [
        '{"infer":{},"move":"reject","say":"No.","anticipate":{"reply":"accept"}',
        '{"infer":{"move":"accept"},"move":"propose","offer":{"book":1,"hat":2,"ball":0},"say":"So',
        '{"infer":{},"move":"propose" "offer":{"book":1},"anticipate":{"reply":"accept"}}',
        '{"plan":{"move":"accept"},"move":"propose","offer":',
    ],
)
async def test_a_piece_of_a_broken_answer_is_no_move(answer):
    _, _, env = await talk([WAIT, answer, '{"move":"walk_away"}'], [BALLS], scaffold="tom")
    assert [a.kind for a in env.answers if a.seat == "a"] == ["action", "invalid", "action"]
    assert env.outcome.status == "walk_away"


@pytest.mark.parametrize("format", ["tools", "schema"])
async def test_the_scaffold_is_part_of_functions_and_schemas(format):
    arguments = json.dumps({"infer": BELIEF, "anticipate": {"reply": "reject"}})
    replies = {
        "tools": calls(("walk_away", arguments)),
        "schema": thought({"move": "walk_away"}, None, {"reply": "reject"}),
    }
    model, agent, _ = await talk([replies[format]], [], format=format, scaffold="tom")
    (request,) = model.requests
    one = (
        request["tools"][4]["function"]["parameters"]
        if format == "tools"
        else request["response_format"]["json_schema"]["schema"]["anyOf"][-1]
    )
    assert list(one["properties"]) == ["infer", *(["move"] if format == "schema" else []), "say", "anticipate"]
    assert {"infer", "anticipate"} <= set(one["required"])
    assert (agent.notes[0].infer, agent.notes[0].anticipate) == (BELIEF, {"reply": "reject"})


async def test_a_scripted_game_can_be_written_down_as_function_calls():
    seat = Transcribed(
        scripted("dnd", "linear", seed=1), env="dnd", config=HarnessConfig(format="tools", scaffold="tom")
    )
    env = envs.make(SCENARIO, seed=SEED)
    await run(env, {"a": seat, "b": scripted("dnd", "boulware", seed=2)})
    moves = [answer.action for answer in env.answers if answer.seat == "a"]
    said = [m for m in seat.messages if m["role"] == "assistant"]
    assert [m["tool_calls"][0]["function"]["name"] for m in said] == [move.move for move in moves]
    assert len({m["tool_calls"][0]["id"] for m in said}) == len(said)
    assert [tool["function"]["name"] for tool in seat.tools] == list(envs.module("dnd").MOVES)
    assert "infer" not in str(seat.tools)


def test_a_run_lays_its_settings_over_a_models_own():
    own = HarnessConfig(prompt="compact", temperature=0.7, max_tokens=64)
    assert HarnessOverride().over(own) == own
    laid = HarnessOverride(format="schema", memory="window", window=3).over(own)
    assert (laid.format, laid.memory, laid.window, laid.prompt, laid.max_tokens) == (
        "schema",
        "window",
        3,
        "compact",
        64,
    )
    for wrong in ({"format": "xml"}, {"window": 0}, {"scaffold": "bdi"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
            HarnessOverride(**wrong)
