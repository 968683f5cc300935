"""Conversations → rows: chat messages tokenised with the student's own template, loss on the assistant's words.

Each reply is tokenised on its own, behind the prompt that the template opens for it, exactly as a model would have
written it: the prompt's last token and the reply's first are never merged. The end-of-turn token that the template
puts behind a reply belongs to the reply. A template that writes an earlier part of the conversation differently once
it has gone on (it strips reasoning, say) begins a new segment there, as the recorder does.

Left out: images, and templates that need more than messages and tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from algos.rows import Row
from scenarios.errors import ModelError

Messages = Sequence[Mapping[str, Any]]


class Template:
    """A tokenizer's chat template as text pieces."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.name = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(f"{self.name}: the tokenizer has no chat template, so conversations cannot be tokenised")

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt
            )
        except Exception as error:  # templates raise whatever they like
            raise ModelError(f"{self.name}: its chat template refuses these messages: {error}") from error

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


def segments(template: Template, messages: Messages, tools: Any = None) -> list[tuple[list[int], list[bool]]]:
    """(token ids, loss mask) of each segment; usually one."""
    end = template.tokenizer.eos_token_id
    out: list[tuple[list[int], list[bool]]] = []
    before = None  # the text up to and including the last reply, as the template wrote it then
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = template.text(messages[:i], tools, prompt=True)
        whole = template.text(messages[: i + 1], tools)
        if not whole.startswith(prompt):
            raise ModelError(f"{template.name}: its chat template does not continue its own generation prompt")
        if before is None or not prompt.startswith(before):
            out.append(([], []))
            before = ""
        ids, mask = out[-1]
        context = template.encode(prompt[len(before) :])
        reply = template.encode(whole[len(prompt) :])
        said = reply.index(end) + 1 if end in reply else len(reply)
        ids += context + reply
        mask += [False] * len(context) + [True] * said + [False] * (len(reply) - said)
        before = whole
    return out


def rows(conversations: Iterable[Mapping[str, Any]], tokenizer: Any) -> list[Row]:
    """Distillation rows as the buffer reads them (`messages`, `tools`, and whose they are) → rows to train on."""
    template = Template(tokenizer)
    out = []
    for talk in conversations:
        for number, (ids, mask) in enumerate(segments(template, talk["messages"], talk.get("tools"))):
            reward = talk.get("reward")
            out.append(
                Row(
                    episode_id=talk["episode_id"],
                    env=talk["env"],
                    opponent=talk.get("opponent") or "",
                    seat=talk["seat"],
                    segment=number,
                    token_ids=np.array(ids, np.int32),
                    prompt_len=mask.index(True) if True in mask else len(mask),
                    loss_mask=np.array(mask, bool),
                    logprobs=np.zeros(len(ids), np.float32),
                    temperature=1.0,
                    reward=0.0 if reward is None else float(reward),
                    status=talk.get("status") or "finished",
                    agent=talk.get("agent") or "",
                )
            )
    return out
