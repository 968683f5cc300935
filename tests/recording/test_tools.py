"""A conversation of function calls keeps its tokens, however oddly the model wrote its calls."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import envs
from envs.agents.llm import HarnessConfig, LLMAgent
from envs.agents.scripted import scripted as scripted_agent
from envs.core import run
from scenarios.core import packaged
from scenarios.errors import ModelError
from socialrl_cli.cast import check_tools
from socialrl_cli.engines.base import Capabilities, Sampling, write_answer
from socialrl_cli.recorder import Recorder
from socialrl_cli.sessions import segments

HERMES = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% endif %}{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>' + m.content + "
    "'</tool_response><|im_end|>\n' }}{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '<tool_call>\n' }}{{ {'name': c.function.name, 'arguments': "
    "c.function.arguments} | tojson }}{{ '\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
REPLIES = [  # the last two are written as the template would not write them
    '<tool_call>\n{"name": "message", "arguments": {"say": "Hello."}}\n</tool_call>',
    '<tool_call>{"name":"propose","arguments":{"offer":{"book":1,"hat":1,"ball":1},"say":"So?"}}</tool_call>',
    'Well.<tool_call>{"arguments":  {"say": "No?"}, "name": "message"}</tool_call>',
    "I do not know.",
    '<tool_call>{"name": "walk_away", "arguments": {}}</tool_call>',
]


class Speaker:
    """Says what it is told, token by token of the tokenizer."""

    model, policy_version = "speaker", 0
    capabilities = Capabilities(token_ids=True, logprobs=True, token_input=True)

    def __init__(self, tokenizer: Any, replies: list[str]) -> None:
        self.tokenizer, self.replies = tokenizer, list(replies)

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ids = self.tokenizer.encode(self.replies.pop(0), add_special_tokens=False)
        end = self.tokenizer.eos_token_id
        asked = Sampling(np.array(request["prompt_token_ids"], np.int32), 9999, 1.0, 0, frozenset([end]))
        about = {"request_id": "x", "model": self.model, "policy_version": 0}
        return write_answer(asked, [*ids, end], [-1.0] * (len(ids) + 1), self.tokenizer, request, **about)


@pytest.fixture
def hermes(tokenizer: Any) -> Any:
    other = copy.deepcopy(tokenizer)
    other.chat_template = HERMES
    return other


async def test_calls_go_back_as_they_were_sampled(hermes: Any, tmp_path: Path) -> None:
    recorder = Recorder(Speaker(hermes, REPLIES), tmp_path)
    scenario = packaged("dnd", "val")[0]
    env = envs.make(scenario, seed=3)
    config = HarnessConfig(format="tools")
    agent = LLMAgent(lambda request: recorder.chat("ep", request), env="dnd", config=config, seed=1)
    await run(env, {"a": agent, "b": scripted_agent("dnd", "hardliner", seed=5, options={})})
    moves = [answer.action.move if answer.action else answer.kind for answer in env.answers if answer.seat == "a"]
    assert moves == ["message", "propose", "message", "invalid", "walk_away"]
    calls = recorder.finish("ep")
    (segment,), counters = segments(calls)
    assert (counters.continued, counters.drifted, counters.restarted) == (4, 0, 0)
    text = hermes.decode(segment.token_ids)
    assert all(reply in text for reply in REPLIES)
    assert text.count('"name": "propose", "description"') == 1  # the functions stand in the prompt, once
    assert "<tool_response>" in text
    assert calls[2].message["content"] == "Well."
    assert calls[2].message["tool_calls"][0]["function"]["name"] == "message"


async def test_other_clients_calls_are_written_by_the_template(hermes: Any, tmp_path: Path) -> None:
    recorder = Recorder(Speaker(hermes, ["Good."]), tmp_path)
    function = {"name": "look", "arguments": '{"at": 3}'}
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "nothing"},
    ]
    await recorder.chat("s", {"messages": messages})
    (call,) = recorder.finish("s")
    text = hermes.decode(call.prompt_ids)
    assert '<tool_call>\n{"name": "look", "arguments": {"at": 3}}\n</tool_call>' in text


async def test_a_template_that_writes_no_functions_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    recorder = Recorder(Speaker(tokenizer, REPLIES), tmp_path)
    tools = [{"type": "function", "function": {"name": "accept", "parameters": {"type": "object", "properties": {}}}}]
    with pytest.raises(ModelError, match="its chat template writes no tools; ask for json or schema instead"):
        await recorder.chat("s", {"messages": [{"role": "user", "content": "hello"}], "tools": tools})


def test_such_a_template_is_refused_before_the_first_game(tokenizer: Any) -> None:
    engine: Any = SimpleNamespace(tokenizer=tokenizer)
    with pytest.raises(ModelError, match="its chat template writes no tools"):
        check_tools(engine, HarnessConfig(format="tools"))
    check_tools(engine, HarnessConfig(format="json"))


async def test_a_server_elsewhere_gets_functions_and_schemas_as_they_were_asked(scripted: Any, tmp_path: Path) -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": '{"move":"accept"}'}, "finish_reason": "stop"}]}
    engine = scripted([reply, reply], token_input=False, ids=False)
    recorder = Recorder(engine, tmp_path, mode="distill")
    tools = [{"type": "function", "function": {"name": "accept", "parameters": {"type": "object", "properties": {}}}}]
    form = {"type": "json_schema", "json_schema": {"name": "move", "schema": {"const": 1}}}
    messages = [{"role": "user", "content": "hello"}]
    await recorder.chat("s", {"messages": messages, "tools": tools})
    await recorder.chat("s", {"messages": messages, "response_format": form})
    assert engine.asked[0]["tools"] == tools
    assert engine.asked[1]["response_format"] == form
    calls = recorder.finish("s")
    assert [call.tools for call in calls] == [tools, None]
    assert [call.grammar is None for call in calls] == [True, False]
