"""The masks of rows that were sampled under a grammar, replayed by the trainer."""

from __future__ import annotations

import numpy as np
import pytest

from algos.grammars import Grammar, Guide, allows, ending_tokens, json_grammar, masks, unpacked
from algos.rows import actor_tokens
from scenarios.errors import DataError

SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 23]}}, "required": ["n"], "additionalProperties": False}
END = 2


@pytest.fixture(scope="module")
def grammar() -> Grammar:
    return Grammar("g-1", json_grammar(SCHEMA), version="1")


@pytest.fixture
def guide(make) -> Guide:
    return Guide(make.tokenizer(), 270, {END})


def ids(make, text: str) -> list[int]:
    return make.tokenizer().encode(text, add_special_tokens=False)


def constrained(make, grammar: Grammar, answer: str, **other):
    prompt, said = ids(make, "so?"), [*ids(make, answer), END]
    return make.row(
        ids=[*prompt, *said], prompt=len(prompt), grammars=((len(prompt), len(prompt) + len(said), grammar),), **other
    )


def test_each_actor_token_gets_the_tokens_that_were_allowed(make, grammar, guide) -> None:
    free = make.row("b", ids=[*ids(make, "so?"), 9, 10], prompt=3)
    batch = actor_tokens([constrained(make, grammar, '{"n":23}'), free])
    found = masks(batch, guide)
    bits = unpacked(found.table[found.index], 270)
    letters = make.tokenizer().convert_ids_to_tokens
    assert ["".join(letters(np.flatnonzero(row).tolist())) for row in bits[:5]] == ["{", '"', "n", '"', ":"]
    assert letters(np.flatnonzero(bits[5]).tolist()) == ["1", "2"]
    assert [np.flatnonzero(row).tolist() for row in bits[6:9]] == [ids(make, "3"), ids(make, "}"), [END]]
    assert bits[9:].all()
    assert found.index[9:].tolist() == [0, 0]
    assert len(found.table) < len(found.index)  # equal masks are kept once


def test_rows_of_one_batch_share_their_masks(make, grammar, guide) -> None:
    one = masks(actor_tokens([constrained(make, grammar, '{"n":23}')]), guide)
    many = [constrained(make, grammar, '{"n":23}', episode=f"e{n}") for n in range(20)]
    assert len(masks(actor_tokens(many), guide).table) == len(one.table)


def test_greedy_answers_need_no_mask(make, grammar, guide) -> None:
    row = constrained(make, grammar, "no JSON", mask=[False] * 11)
    other = make.row("b", ids=[5, 6, 7], prompt=1)
    assert masks(actor_tokens([row, other]), guide).index.tolist() == [0, 0]


@pytest.mark.parametrize("answer", ['{"n":3}', "so", '{"n":1}}'])
def test_a_token_that_the_grammar_forbids_is_refused(make, grammar, guide, answer) -> None:
    with pytest.raises(DataError, match=r"episode a, seat A, grammar g-1: token .* is not allowed by it"):
        masks(actor_tokens([constrained(make, grammar, answer)]), guide)


def test_grammars_of_other_backends_and_broken_ones_are_refused(make, guide) -> None:
    for other, reason in (
        (Grammar("g-2", "root ::= x", "server"), "its backend is server"),
        (Grammar("g-3", "no grammar"), "cannot read it"),
    ):
        with pytest.raises(DataError, match=reason):
            masks(actor_tokens([constrained(make, other, '{"n":1}')]), guide)


def test_packed_and_plain_masks_say_the_same() -> None:
    mask = np.random.default_rng(0).integers(-(2**31), 2**31, 5, np.int64).astype(np.int32)
    assert unpacked(mask, 150).tolist() == [allows(mask, token) for token in range(150)]


def test_every_token_that_ends_an_answer_is_known(make) -> None:
    model = make.qwen3()
    model.generation_config.eos_token_id = [7, 8]
    assert ending_tokens(model, make.tokenizer()) == {7, 8, END}
