"""A small ChatML tokenizer, engines that answer what they are told, and calls made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from socialrl_cli.calls import Call
from socialrl_cli.engines.base import Capabilities, chat_response

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = "hello there I propose one book and two hats please deal with the ball thank you for the offer no yes "


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([TEXT] * 10, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", chat_template=CHATML)
    made.name_or_path = "small-chatml"
    return made


class Scripted:
    """Answers each call with the next of `replies`: (token ids, finish reason), an exception, or a response."""

    def __init__(self, tokenizer: Any, replies: Sequence[Any], *, token_input: bool = True, ids: bool = True) -> None:
        self.tokenizer, self.replies, self.asked = tokenizer, list(replies), []
        self.model, self.policy_version, self.gate = "scripted-engine", 3, None
        self.capabilities = Capabilities(ids, ids, False, False, False, False, token_input)

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(dict(request))
        number = len(self.asked)
        reply = self.replies.pop(0)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, dict):
            return reply
        token_ids, finish = reply
        stopped = finish == "stop"
        text = self.tokenizer.decode(token_ids[: len(token_ids) - stopped])
        prompt = request.get("prompt_token_ids")
        if prompt is None:
            prompt = self.tokenizer.apply_chat_template(
                list(request["messages"]), add_generation_prompt=True, return_dict=False
            )
        logprobs = (-np.arange(1, len(token_ids) + 1, dtype=np.float32) / 7).tolist()
        content = [{"token": "", "logprob": p, "bytes": [], "top_logprobs": []} for p in logprobs]
        response = chat_response(
            request_id=f"call-{number}",
            model=self.model,
            policy_version=self.policy_version,
            prompt_ids=prompt,
            token_ids=token_ids,
            text=text,
            finish_reason=finish,
            logprobs={"content": content} if request.get("logprobs") is True else None,
            token_logprobs=logprobs if request.get("logprobs") == "tokens" else None,
        )
        if not self.capabilities.token_ids:
            for name in ("token_ids", "token_logprobs"):
                response["choices"][0].pop(name, None)
            del response["prompt_token_ids"]
        return response


@pytest.fixture
def scripted(tokenizer: Any) -> Callable[..., Scripted]:
    return lambda replies, **options: Scripted(tokenizer, replies, **options)


@pytest.fixture
def reply(tokenizer: Any) -> Callable[..., tuple[list[int], str]]:
    """A text as a reply that stopped: its canonical tokens, or one token a byte."""

    def make(text: str, *, bytewise: bool = False, finish: str = "stop") -> tuple[list[int], str]:
        pieces = list(text) if bytewise else [text]
        ids = [i for piece in pieces for i in tokenizer.encode(piece, add_special_tokens=False)]
        return ids + [tokenizer.eos_token_id] * (finish == "stop"), finish

    return make


def same_column(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(scope="session")
def same_call() -> Callable[[Call, Call], bool]:
    """Equal field by field, arrays bit by bit."""

    def same(a: Call, b: Call) -> bool:
        for name in Call.__slots__:
            x, y = getattr(a, name), getattr(b, name)
            if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
                if not same_column(x, y):
                    return False
            elif name == "messages":
                if list(x) != list(y):
                    return False
            elif x != y:
                return False
        return True

    return same


@pytest.fixture(scope="session")
def call() -> Callable[..., Call]:
    """A call by hand: prompt and reply ids, everything else filled in."""

    def make(prompt: Sequence[int], tokens: Sequence[int], index: int = 0, **fields: Any) -> Call:
        ids = np.array(tokens, np.int32)
        fields.setdefault("session", "s")
        fields.setdefault("logprobs", -np.arange(len(ids), dtype=np.float32) - 0.5)
        fields.setdefault("completion_tokens", len(ids))
        return Call(index=index, prompt_ids=np.array(prompt, np.int32), token_ids=ids, **fields)

    return make
