"""The prompt of the next turn is the ids of the earlier ones and nothing encoded twice."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios.errors import ModelError
from socialrl_cli.calls import Call
from socialrl_cli.rendering import Renderer

OPENING = ({"role": "system", "content": "be fair"}, {"role": "user", "content": "hello there"})
THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'].split('</think>')[-1] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def with_template(tokenizer: Any, template: str | None) -> Any:
    other = copy.deepcopy(tokenizer)
    other.chat_template = template
    return other


def answered(renderer: Renderer, ids: list[int], text: str) -> Call:
    """The opening with a reply of these tokens."""
    prompt = np.array(renderer.render(OPENING), np.int32)
    tokens = {"prompt_ids": prompt, "token_ids": np.array(ids, np.int32)}
    return Call("s", 0, messages=OPENING, reply=text, message={"role": "assistant", "content": text}, **tokens)


def onwards(call: Call, text: str) -> tuple:
    return (*call.answered(), {"role": "user", "content": text})


def test_a_reply_in_an_unusual_split_keeps_its_tokens(tokenizer: Any, reply: Any) -> None:
    renderer = Renderer(tokenizer)
    ids, _ = reply("I propose one book", bytewise=True)  # 19 tokens where the tokenizer would use a few
    before = answered(renderer, ids, "I propose one book")
    prompt = renderer.extend(before, onwards(before, "no deal"))
    assert prompt is not None
    fresh = renderer.render(onwards(before, "no deal"))
    assert prompt[: len(before.full_ids())] == before.full_ids().tolist()
    assert prompt != fresh
    assert tokenizer.decode(prompt) == tokenizer.decode(fresh)
    assert prompt[-20:] == fresh[-20:]  # the suffix is what the whole text gives there


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.text(max_size=30), then=st.text(max_size=30))
def test_with_usual_tokens_extending_equals_rendering(tokenizer: Any, reply: Any, said: str, then: str) -> None:
    renderer = Renderer(tokenizer)
    before = answered(renderer, reply(said)[0], said)
    messages = onwards(before, then)
    assert renderer.extend(before, messages) == renderer.render(messages)
    assert renderer.drifted == 0


def test_a_reply_that_was_cut_off_is_closed_by_the_template(tokenizer: Any, reply: Any) -> None:
    renderer = Renderer(tokenizer)
    ids, _ = reply("I propose", finish="length")
    before = answered(renderer, ids, "I propose")
    prompt = renderer.extend(before, onwards(before, "go on"))
    assert prompt is not None
    assert prompt[: len(before.full_ids()) + 1] == [*before.full_ids().tolist(), tokenizer.eos_token_id]
    assert prompt == renderer.render(onwards(before, "go on"))


def test_markers_inside_a_reply_stay_in_its_tokens(tokenizer: Any, reply: Any) -> None:
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    renderer = Renderer(tokenizer)
    ids = [*reply("yes", finish="length")[0], start, *reply(" no")[0]]
    before = answered(renderer, ids, "yes no")  # an engine's text leaves markers out
    prompt = renderer.extend(before, onwards(before, "hm"))
    assert prompt is not None
    assert prompt[: len(before.full_ids())] == before.full_ids().tolist()


def test_a_marker_at_the_end_of_a_reply_that_was_cut_off_is_no_stop(tokenizer: Any, reply: Any) -> None:
    renderer = Renderer(tokenizer)
    ids = [*reply("yes", finish="length")[0], tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    before = replace(answered(renderer, ids, "yes"), finish_reason="length")
    prompt = renderer.extend(before, onwards(before, "hm"))
    assert prompt is not None
    assert prompt[: len(before.full_ids()) + 1] == [*before.full_ids().tolist(), tokenizer.eos_token_id]


def test_a_template_that_strips_reasoning_is_named_once(tokenizer: Any, reply: Any, capsys: Any) -> None:
    renderer = Renderer(with_template(tokenizer, THINKING))
    text = "<think>two hats</think>deal"
    before = answered(renderer, reply(text)[0], text)
    for _ in range(3):
        assert renderer.extend(before, onwards(before, "no")) is None
    assert renderer.drifted == 3
    warned = capsys.readouterr().err.strip().splitlines()
    assert len(warned) == 1
    assert "small-chatml" in warned[0]
    assert "chat template" in warned[0]


def test_another_stop_token_than_the_templates_does_not_continue(tokenizer: Any, reply: Any) -> None:
    renderer = Renderer(tokenizer)
    ids = [*reply("deal", finish="length")[0], tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    before = answered(renderer, ids, "deal")
    assert renderer.extend(before, onwards(before, "no")) is None
    assert renderer.drifted == 1


@pytest.mark.parametrize(
    "messages",
    [
        OPENING,
        (*OPENING, {"role": "user", "content": "again"}),
        (OPENING[1], {"role": "assistant", "content": "deal"}, {"role": "user", "content": "no"}),
        ({"role": "system", "content": "summary"}, *OPENING),
    ],
    ids=["the same question", "no answer in between", "shortened", "rewritten"],
)
def test_another_conversation_is_not_drift(tokenizer: Any, reply: Any, messages: tuple) -> None:
    renderer = Renderer(tokenizer)
    before = answered(renderer, reply("deal")[0], "deal")
    assert renderer.extend(before, messages) is None
    assert renderer.drifted == 0


def test_an_edited_reply_is_the_clients_doing_not_the_templates(tokenizer: Any, reply: Any, capsys: Any) -> None:
    renderer = Renderer(tokenizer)
    before = answered(renderer, reply(" deal ")[0], " deal ")
    edited = (*OPENING, {"role": "assistant", "content": "deal"}, {"role": "user", "content": "no"})
    assert renderer.extend(before, edited) is None
    assert renderer.drifted == 0
    assert capsys.readouterr().err == ""


def test_parts_of_text_are_joined_and_other_parts_refused(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer)
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": "there"}]
    assert renderer.render([{"role": "user", "content": parts}]) == renderer.render(
        [{"role": "user", "content": "hello\nthere"}]
    )
    with pytest.raises(ModelError, match="only parts of type text"):
        renderer.render([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_a_tokenizer_without_template_is_named(tokenizer: Any) -> None:
    with pytest.raises(ModelError, match="small-chatml: the tokenizer has no chat template"):
        Renderer(with_template(tokenizer, None))
