from __future__ import annotations

import pytest
import torch
from torch import nn

from algos.logprobs import Allowed, logprobs_and_entropy


def inputs(bias: bool = False) -> tuple[torch.Tensor, nn.Linear, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    head = nn.Linear(12, 30, bias=bias)
    return torch.randn(17, 12), head, torch.randint(0, 30, (17,)), torch.rand(17) + 0.5


def plain(hidden: torch.Tensor, head: nn.Linear, targets: torch.Tensor, temperature: torch.Tensor) -> tuple:
    every = (head(hidden) / temperature[:, None]).log_softmax(-1)
    return every.gather(1, targets[:, None])[:, 0], -(every.exp() * every).sum(-1)


@pytest.mark.parametrize("chunk", [1, 5, 17, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_chunks_equal_a_plain_log_softmax_with_its_gradients(chunk: int, bias: bool) -> None:
    hidden, head, targets, temperature = inputs(bias)
    weights = torch.randn(17)
    found = []
    for function in (plain, lambda *args: logprobs_and_entropy(*args, chunk=chunk)):
        states = hidden.clone().requires_grad_()
        head.zero_grad()
        logprobs, entropy = function(states, head, targets, temperature)
        (weights * logprobs).sum().backward()
        found.append((logprobs, entropy, states.grad, *(p.grad.clone() for p in head.parameters())))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_a_frozen_output_layer_gets_no_gradient_and_passes_it_on() -> None:
    hidden, head, targets, temperature = inputs()
    head.requires_grad_(False)
    states = hidden.clone().requires_grad_()
    logprobs_and_entropy(states, head, targets, temperature, chunk=4)[0].sum().backward()
    other = hidden.clone().requires_grad_()
    plain(other, head, targets, temperature)[0].sum().backward()
    assert head.weight.grad is None
    torch.testing.assert_close(states.grad, other.grad, rtol=1e-5, atol=1e-6)


def test_no_tensor_of_all_tokens_by_all_words_is_ever_made() -> None:
    hidden, head, targets, temperature = inputs()
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.ndim == 2 and out.shape[-1] == 30:
                largest = max(largest, out.shape[0])
            return out

    with Watch():
        states = hidden.requires_grad_()
        logprobs_and_entropy(states, head, targets, temperature, chunk=4)[0].sum().backward()
    assert largest == 4


def test_impossible_logits_stay_finite() -> None:
    head = nn.Linear(2, 3, bias=False)
    head.weight.data = torch.tensor([[1e4, 0.0], [0.0, 1e4], [0.0, 0.0]])
    states = torch.tensor([[1.0, 0.0]], requires_grad=True)
    logprobs, entropy = logprobs_and_entropy(states, head, torch.tensor([1]), torch.ones(1))
    logprobs.sum().backward()
    assert logprobs.item() == pytest.approx(-1e4)
    assert entropy.item() == pytest.approx(0.0)
    assert states.grad is not None
    assert states.grad.isfinite().all()


def test_a_word_that_is_ruled_out_has_no_share_in_the_entropy() -> None:
    # −inf logits (a mask): 0·(−inf) must count as 0
    head = nn.Linear(1, 3)
    head.weight.data.zero_()
    head.bias.data = torch.tensor([0.0, 0.0, -torch.inf])
    logprobs, entropy = logprobs_and_entropy(torch.ones(1, 1), head, torch.tensor([0]), torch.ones(1))
    assert logprobs.item() == pytest.approx(-0.693147, abs=1e-5)
    assert entropy.item() == pytest.approx(0.693147, abs=1e-5)


@pytest.mark.parametrize("chunk", [1, 5, 17])
def test_under_masks_they_are_a_log_softmax_over_the_allowed_tokens_with_its_gradients(chunk: int) -> None:
    hidden, head, targets, temperature = inputs(bias=True)
    masks = torch.rand(4, 30) < 0.3
    masks[0] = True
    index = torch.arange(17) % 4
    targets = torch.stack([torch.multinomial(masks[i].float(), 1)[0] for i in index])
    words = torch.zeros(4, 1, dtype=torch.int32)
    for i, token in masks.nonzero().tolist():
        words[i, 0] |= 1 << token
    allowed = Allowed(words, index)

    def masked(states: torch.Tensor) -> tuple:
        z = (head(states) / temperature[:, None]).masked_fill(~masks[index], -torch.inf)
        every = z.log_softmax(-1)
        return every.gather(1, targets[:, None])[:, 0], -(every.exp() * every.clamp_min(-1e9)).sum(-1)

    weights, found = torch.randn(17), []
    for function in (
        masked,
        lambda states: logprobs_and_entropy(states, head, targets, temperature, allowed=allowed, chunk=chunk),
    ):
        states = hidden.clone().requires_grad_()
        head.zero_grad()
        logprobs, entropy = function(states)
        (weights * logprobs).sum().backward()
        found.append((logprobs, entropy, states.grad, *(p.grad.clone() for p in head.parameters())))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_the_32nd_bit_of_a_word_is_a_token_like_the_others() -> None:
    words = torch.tensor([[-(1 << 31), 1]], dtype=torch.int32)  # tokens 31 and 32
    (row,) = Allowed(words, torch.zeros(1, dtype=torch.int64)).unpacked(slice(0, 1), 40).tolist()
    assert [i for i, bit in enumerate(row) if bit] == [31, 32]


def test_a_forced_token_has_log_probability_and_entropy_zero() -> None:
    hidden, head, _, temperature = inputs()
    allowed = Allowed(torch.tensor([[1 << 7]], dtype=torch.int32), torch.zeros(17, dtype=torch.int64))
    targets = torch.full((17,), 7)
    logprobs, entropy = logprobs_and_entropy(hidden, head, targets, temperature, allowed=allowed)
    assert (logprobs == 0).all()
    assert (entropy == 0).all()
