"""Conversations → rows: chat messages tokenised with the student's own template, loss on the assistant's words.

A conversation becomes pieces of text, context and reply in turn, and each piece is tokenised on its own: the prompt's
last token and the reply's first are never merged, so the row is what a model would have written token by token. The
end-of-turn token that the template puts behind a reply belongs to the reply. A template that writes an earlier part
of the conversation differently once it has gone on (it strips reasoning, say) begins a new segment there, as the
recorder does.

Left out: images, and templates that need more than messages and tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from algos.rows import Row
from scenarios.errors import DataError, ModelError

Messages = Sequence[Mapping[str, Any]]
Pieces = list[str]  # context, reply, context, reply, …


class Template:
    """A tokenizer's chat template, as text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.name = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(f"{self.name}: the tokenizer has no chat template, so conversations cannot be tokenised")
        added = tokenizer.added_tokens_decoder.values()
        self.markers = sorted({str(token) for token in added if token.special} | set(tokenizer.all_special_tokens))

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool = False) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                [plain(message) for message in messages], tools=tools, tokenize=False, add_generation_prompt=prompt
            )
        except Exception as error:  # templates raise whatever they like
            raise ModelError(f"{self.name}: its chat template refuses these messages: {error}") from error

    def reply(self, written: str, content: str) -> str:
        """The part of what the template wrote for a reply that the model has to write: up to its end of turn."""
        start = len(content) if written.startswith(content) else 0
        ends = [(written.find(marker, start), marker) for marker in self.markers]
        place, marker = min(((at, marker) for at, marker in ends if at >= 0), default=(len(written), ""))
        return written[:place] + marker

    def segments(self, messages: Messages, tools: Any = None) -> list[Pieces]:
        """The conversation cut into pieces, as one segment unless the template rewrites what it wrote before."""
        if not any(message["role"] == "assistant" for message in messages):
            return []
        return self._at_once(messages, tools) or self._step_by_step(messages, tools)

    def _at_once(self, messages: Messages, tools: Any) -> list[Pieces] | None:
        """From one rendering, cut where the generation prompt stands; None where that is not sure to be right."""
        replies = [_content(message) for message in messages if message["role"] == "assistant"]
        whole = self.text(messages, tools)
        opened = self.text(messages, tools, prompt=True)
        opening = opened[len(whole) :]
        first, *rest = whole.split(opening) if opening and opened.startswith(whole) else [whole]
        if len(rest) != len(replies) or not all(map(str.startswith, rest, replies)):
            return None
        pieces, context = [], first
        for text, content in zip(rest, replies, strict=True):
            said = self.reply(text, content)
            pieces += [context + opening, said]
            context = text[len(said) :]
        return [pieces]

    def _step_by_step(self, messages: Messages, tools: Any) -> list[Pieces]:
        """From two renderings a reply: the prompt before it, and the conversation with it."""
        out: list[Pieces] = []
        before: str | None = None  # the conversation up to the last reply's end of turn, as it was written then
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self.text(messages[:i], tools, prompt=True)
            whole = self.text(messages[: i + 1], tools)
            if not whole.startswith(prompt):
                raise ModelError(f"{self.name}: its chat template does not go on from its own generation prompt")
            if before is None or not prompt.startswith(before):
                out.append([])
                before = ""
            said = self.reply(whole[len(prompt) :], _content(message))
            out[-1] += [prompt[len(before) :], said]
            before = prompt + said
        return out


def plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message as templates take it: its content one string (parts of text joined by newlines), the arguments of
    its tool calls an object. Raises ValueError for parts that are not text."""
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, str) and not calls:
        return message
    if not isinstance(content, str):
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in content or ()):
            raise ValueError("only parts of type text can be rendered")
        message = {**message, "content": "\n".join(part["text"] for part in content or ())}
    return {**message, "tool_calls": [_parsed(call) for call in calls]} if calls else message


def _parsed(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function") or {}
    try:
        return {**call, "function": {**function, "arguments": orjson.loads(function["arguments"])}}
    except (KeyError, TypeError, ValueError):  # an object already, or nothing that can be one
        return call


def _content(message: Mapping[str, Any]) -> str:
    return str(plain(message)["content"])


def rows(conversations: Iterable[Mapping[str, Any]], tokenizer: Any) -> list[Row]:
    """Distillation rows as the buffer reads them (`messages`, `tools`, and whose they are) → rows to train on."""
    template = Template(tokenizer)
    pieces: list[tuple[Mapping[str, Any], int, Pieces]] = []
    for talk in conversations:
        for name in ("episode_id", "env", "seat", "messages"):
            if talk.get(name) is None:
                raise DataError(f"conversation {talk.get('episode_id', '?')}: {name} is missing")
        for number, segment in enumerate(template.segments(talk["messages"], talk.get("tools"))):
            pieces.append((talk, number, segment))
    texts = sorted({text for _, _, segment in pieces for text in segment})
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    ids_of = {text: np.array(ids, np.int32) for text, ids in zip(texts, encoded, strict=True)}
    return [_row(talk, number, [ids_of[text] for text in segment]) for talk, number, segment in pieces]


def _row(talk: Mapping[str, Any], number: int, pieces: list[np.ndarray]) -> Row:
    ids = np.concatenate(pieces)
    said = [np.full(len(piece), i % 2 == 1) for i, piece in enumerate(pieces)]
    return Row(
        episode_id=talk["episode_id"],
        env=talk["env"],
        opponent=talk.get("opponent") or "",
        seat=talk["seat"],
        segment=number,
        token_ids=ids,
        prompt_len=len(pieces[0]),
        loss_mask=np.concatenate(said),
        logprobs=np.zeros(len(ids), np.float32),
        temperature=1.0,
        reward=float(talk.get("reward") or 0.0),
        status=talk.get("status") or "finished",
        agent=talk.get("agent") or "",
    )
