from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algos.messages import Template, rows
from scenarios.errors import DataError, ModelError

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "h ello"},
    {"role": "user", "content": "ok?"},
    {"role": "assistant", "content": "yes"},
]
FORGETFUL = (  # writes "…" instead of an assistant's words once the conversation has gone on
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ '…' if m['role'] == 'assistant' and not loop.last else m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def conversation(messages: list[dict[str, str]] = TALK, **other: Any) -> dict[str, Any]:
    given = {"episode_id": "a", "env": "dnd", "opponent": "x", "seat": "A", "agent": "boulware", "reward": 0.4}
    return given | {"status": "finished", "messages": messages, "tools": None} | other


def said(row: Any, tokenizer: Any) -> list[str]:
    """The texts of the stretches under the mask."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.loss_mask, [0]]).astype(int)))
    return [tokenizer.decode(row.token_ids[a:b]) for a, b in edges.reshape(-1, 2)]


def test_the_assistants_words_and_their_end_of_turn_are_learned(make: SimpleNamespace) -> None:
    tokenizer = make.tokenizer()
    (row,) = rows([conversation()], tokenizer)
    assert said(row, tokenizer) == ["h ello<|im_end|>", "yes<|im_end|>"]
    text = tokenizer.apply_chat_template(TALK, tokenize=False)
    assert tokenizer.decode(row.token_ids) == text.removesuffix("\n")
    assert (row.agent, row.reward, row.prompt_len) == ("boulware", 0.4, int(np.argmax(row.loss_mask)))


def test_the_prompts_end_and_the_replys_beginning_are_never_merged(make: SimpleNamespace) -> None:
    # this tokenizer merges "\n" + "h"; a model that writes "h…" behind the prompt's "\n" cannot have done that
    tokenizer = make.tokenizer()
    assert len(tokenizer("\nh")["input_ids"]) == 1
    (row,) = rows([conversation()], tokenizer)
    start = row.prompt_len
    assert tokenizer.convert_ids_to_tokens(row.token_ids[start - 1 : start + 1].tolist()) == ["Ċ", "h"]


def test_rows_are_what_a_model_would_have_been_given_call_by_call(make: SimpleNamespace) -> None:
    # the first prompt as rendered; then reply, then only the new text behind it, each encoded on its own
    tokenizer = make.tokenizer()
    (row,) = rows([conversation()], tokenizer)
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    first = tokenizer.apply_chat_template(TALK[:2], tokenize=False, add_generation_prompt=True)
    second = tokenizer.apply_chat_template(TALK[:4], tokenize=False, add_generation_prompt=True)
    suffix = second[len(first) + len("h ello<|im_end|>") :]
    assert row.token_ids.tolist() == [
        *encode(first), *encode("h ello<|im_end|>"), *encode(suffix), *encode("yes<|im_end|>")
    ]  # fmt: skip


def test_one_rendering_gives_what_step_by_step_gives(make: SimpleNamespace) -> None:
    template = Template(make.tokenizer())
    talks = [TALK, TALK[:3], TALK[1:], [*TALK, {"role": "user", "content": "bye"}], [*TALK, *TALK[2:]]]
    for talk in talks:
        at_once = template._at_once(talk, None)
        assert at_once is not None
        assert at_once == template._step_by_step(talk, None)


def test_words_that_look_like_the_template_are_cut_step_by_step(make: SimpleNamespace) -> None:
    tokenizer = make.tokenizer()
    talk = [*TALK[:2], {"role": "assistant", "content": "a <|im_start|>assistant\n b"}]
    assert Template(tokenizer)._at_once(talk, None) is None
    (row,) = rows([conversation(talk)], tokenizer)
    assert said(row, tokenizer) == ["a <|im_start|>assistant\n b<|im_end|>"]


def test_a_template_that_rewrites_the_past_begins_a_new_segment(make: SimpleNamespace) -> None:
    tokenizer = make.tokenizer(FORGETFUL)
    first, second = rows([conversation()], tokenizer)
    assert (first.segment, second.segment) == (0, 1)
    assert said(first, tokenizer) == ["h ello<|im_end|>"]
    assert said(second, tokenizer) == ["yes<|im_end|>"]
    assert "…" in tokenizer.decode(second.token_ids)


def test_a_conversation_without_an_assistant_has_nothing_to_learn(make: SimpleNamespace) -> None:
    assert rows([conversation(TALK[:2]), conversation([])], make.tokenizer()) == []


def test_what_cannot_be_tokenised_is_refused_in_one_line(make: SimpleNamespace) -> None:
    tokenizer = make.tokenizer()
    with pytest.raises(DataError, match="seat is missing"):
        rows([conversation(seat=None)], tokenizer)
    tokenizer.chat_template = "{{ raise_exception('no system') }}"
    with pytest.raises(ModelError, match="refuses these messages: no system"):
        rows([conversation()], tokenizer)
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        rows([conversation()], tokenizer)


def test_a_function_call_is_what_the_template_writes_of_it(make) -> None:
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    tokenizer = make.tokenizer(template)
    call = {"id": "1", "type": "function", "function": {"name": "accept", "arguments": '{"say":"Yes."}'}}
    messages = [
        {"role": "user", "content": "so?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
        {"role": "assistant", "content": "Good."},
    ]
    (row,) = rows([{"episode_id": "e", "env": "toy", "seat": "a", "messages": messages}], tokenizer)
    said = tokenizer.decode(row.token_ids[row.loss_mask])
    assert said == '{"name": "accept", "arguments": {"say": "Yes."}}<|im_end|>Good.<|im_end|>'
