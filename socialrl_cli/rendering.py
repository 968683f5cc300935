"""Chat messages → prompt tokens, through a tokenizer's own template; earlier turns keep their exact ids.

`extend` builds the next prompt of a conversation: the ids of the previous prompt and reply as they were, then only
the text that the template adds behind them, encoded on its own. Text is never decoded and encoded again, so a reply
that the tokenizer would split otherwise stays as it was sampled. It works when the template writes the earlier
conversation as before. One that does not (it strips reasoning or white space) has drifted: that is counted in
`drifted`, reported once with the template's name, and the caller renders afresh.

Only text is rendered. Left out: images and other parts, and templates that need more than messages and tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from algos.messages import plain
from scenarios.errors import ModelError
from socialrl_cli.calls import Call
from socialrl_cli.output import warn
from socialrl_cli.sessions import goes_on

Messages = Sequence[Mapping[str, Any]]


class Renderer:
    """A tokenizer's template. `name` is the tokenizer's; `drifted` counts prompts that could not be extended."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.name = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        self.drifted = 0
        self._takes_tools = False  # as far as is known
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(
                f"{self.name}: the tokenizer has no chat template; use a chat model, or put a chat_template.jinja "
                "into its folder"
            )
        self._markers = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items()}
        self._fast = getattr(tokenizer, "backend_tokenizer", None)

    def text(self, messages: Messages, tools: Sequence | None = None) -> str:
        """The prompt as the template writes it, up to where the assistant's reply begins."""
        try:
            told = [plain(message) for message in messages]
            text = self._template(told, list(tools) if tools else None)
            if tools and not self._takes_tools:
                if self._template(told, None) == text:
                    raise ModelError(f"{self.name}: its chat template writes no tools; ask for json or schema instead")
                self._takes_tools = True
            return text
        except ModelError:
            raise
        except Exception as error:  # templates raise whatever they like
            raise ModelError(f"{self.name}: its chat template refuses these messages: {error}") from error

    def _template(self, messages: Messages, tools: Sequence | None) -> str:
        return self.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)

    def written(self, call: Call) -> Mapping[str, Any]:
        """The call's answer as it was sampled, tool calls in the model's own text."""
        ids = [] if call.token_ids is None else call.token_ids.tolist()
        ended = bool(ids) and call.finish_reason != "length" and ids[-1] in self._markers
        return {"role": "assistant", "content": self.tokenizer.decode(ids[: len(ids) - ended])}

    def encode(self, text: str) -> list[int]:
        if self._fast is not None:
            return self._fast.encode(text, add_special_tokens=False).ids
        return self.tokenizer.encode(text, add_special_tokens=False)

    def render(self, messages: Messages, tools: Sequence | None = None) -> list[int]:
        """The prompt of a new conversation."""
        return self.encode(self.text(messages, tools))

    def extend(
        self,
        previous: Call,
        messages: Messages,
        tools: Sequence | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
    ) -> list[int] | None:
        """The prompt that goes on from `previous`, or None when `messages` do not, or the template does not.

        `before` and `after` are the texts of both prompts where the caller has them already.
        """
        if previous.prompt_ids is None or previous.token_ids is None or not goes_on(previous, messages):
            return None
        if (tools or None) != (previous.tools or None):
            return None
        before = self.text(previous.messages, previous.tools) if before is None else before
        after = self.text(messages, tools) if after is None else after
        suffix = self._suffix(previous, before, after)
        if suffix is None:
            if messages[len(previous.messages)].get("content") in (previous.reply, previous.message.get("content")):
                self._drift()
            return None
        return [*previous.prompt_ids.tolist(), *previous.token_ids.tolist(), *suffix]

    def _suffix(self, previous: Call, before: str, after: str) -> list[int] | None:
        """The ids behind the previous reply, or None when the texts do not line up."""
        assert previous.token_ids is not None
        ids = previous.token_ids.tolist()
        stop = self._markers.get(ids[-1]) if ids and previous.finish_reason != "length" else None
        if not after.startswith(before):
            return None
        for written in (previous.reply, None):
            if written is None:  # tool calls and reasoning: what the tokens themselves say
                written = self.tokenizer.decode(ids[:-1] if stop else ids, skip_special_tokens=False)
            if after.startswith(written + (stop or ""), len(before)):
                rest = after[len(before) + len(written) :]
                break
        else:
            return None
        if stop is None:  # cut off by length: the template's end marker is context
            return self.encode(rest)
        whole = self.encode(rest)  # encoded behind its marker, as in the whole text
        return whole[1:] if whole[:1] == ids[-1:] else None

    def _drift(self) -> None:
        self.drifted += 1
        if self.drifted == 1:
            warn(
                f"{self.name}: its chat template does not write an earlier reply as it was sampled (it strips "
                "reasoning or white space); such prompts are rendered afresh and begin new segments"
            )
