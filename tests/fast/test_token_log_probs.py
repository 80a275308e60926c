"""Log-probabilities, entropies and gradients without logits are those of plain arithmetic with logits."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from real_openrlhf import token_log_probs
from real_openrlhf.algorithm import token_log_probs as head
from real_openrlhf.algorithm.token_log_probs import factored_log_probs


@dataclass
class Given:
    hidden: Tensor
    weight: Tensor
    labels: Tensor
    bias: Tensor | None
    directions: Tensor  # of log-probabilities and entropies, for a gradient

    def to(self, dtype: torch.dtype) -> "Given":
        bias = None if self.bias is None else self.bias.to(dtype)
        return replace(self, hidden=self.hidden.to(dtype), weight=self.weight.to(dtype), bias=bias)


def draw(tokens, vocabulary, width, seed=0, bias=False, ignored=0.0) -> Given:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    labels = torch.randint(0, vocabulary, (tokens,), generator=generator)
    labels[torch.rand(tokens, generator=generator) < ignored] = -100
    labels[-1] = 0  # a word as any other
    weight = 3 * normal(vocabulary, width) / width**0.5
    return Given(normal(tokens, width), weight, labels, normal(vocabulary) if bias else None, normal(2, tokens))


def plain(hidden, weight, labels, *, temperature=1.0, bias=None):
    """All logits, in the format of the inputs."""
    logits = hidden @ weight.t()
    logits = (logits if bias is None else logits + bias) / temperature
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    picked = log_probs.gather(-1, labels.clamp(min=0)[:, None]).squeeze(-1)
    return torch.where(labels >= 0, picked, 0), torch.where(labels >= 0, entropy, 0)


def in_blocks(chunk):
    return lambda *args, **kwargs: token_log_probs(*args, **kwargs, chunk_tokens=chunk, entropy=True)


def in_fp32(hidden, weight, labels, *, temperature=1.0, bias=None):
    bias = None if bias is None else bias.float()
    return plain(hidden.float(), weight.float(), labels, temperature=temperature, bias=bias)


def solve(function, given: Given, temperature=1.0) -> dict[str, Tensor]:
    """Both results, and the gradients of their sum along the directions, as float64."""
    inputs = {name: getattr(given, name) for name in ("hidden", "weight", "bias")}
    inputs = {name: one.detach().clone().requires_grad_() for name, one in inputs.items() if one is not None}
    results = function(
        inputs["hidden"], inputs["weight"], given.labels, temperature=temperature, bias=inputs.get("bias")
    )
    sum((one * along).sum() for one, along in zip(results, given.directions, strict=True)).backward()
    found = {"log_probs": results[0], "entropy": results[1], **{name: one.grad for name, one in inputs.items()}}
    return {name: one.detach().double() for name, one in found.items()}


def errors(found, exact) -> dict[str, float]:
    return {name: float((found[name] - exact[name]).norm() / exact[name].norm()) for name in exact}


# (tokens, vocabulary, width), and how many tokens' logits at once
SHAPES = [((1, 7, 3), 1), ((50, 333, 20), 3), ((64, 3000, 96), None), ((12, 152_064, 16), 5)]


@pytest.mark.parametrize("shape, chunk", SHAPES)
@pytest.mark.parametrize("temperature, bias, ignored", [(1.0, False, 0.0), (0.6, True, 0.3), (1.7, False, 0.5)])
def test_fp32_inputs_give_what_float64_gives(shape, chunk, temperature, bias, ignored):
    given = draw(*shape, bias=bias, ignored=ignored if shape[0] > 1 else 0.0)
    exact = solve(plain, given.to(torch.float64), temperature)
    found = solve(in_blocks(chunk), given, temperature)
    assert max(errors(found, exact).values()) < 1e-5
    for name in ("log_probs", "entropy"):
        torch.testing.assert_close(found[name], exact[name], rtol=1e-5, atol=1e-6)
    unasked = given.labels < 0
    assert not any(found[name][unasked].any() for name in ("log_probs", "entropy", "hidden"))


@pytest.mark.parametrize("shape, chunk", SHAPES[1:])
@pytest.mark.parametrize("temperature, bias", [(1.0, False), (0.6, True)])
def test_bf16_inputs_give_what_fp32_arithmetic_on_them_gives(shape, chunk, temperature, bias):
    given = draw(*shape, seed=1, bias=bias, ignored=0.2).to(torch.bfloat16)
    exact = solve(plain, given.to(torch.float64), temperature)
    found, reference = (errors(solve(function, given, temperature), exact) for function in (in_blocks(chunk), in_fp32))
    for name, error in found.items():
        assert error < 1.01 * reference[name] + 1e-7, name


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_no_tensor_is_larger_than_a_chunk_of_logits(chunk):
    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            self.size = max([self.size, *(one.numel() for one in tree_leaves(result) if isinstance(one, Tensor))])
            return result

    given, seen = draw(64, 1024, 2), Largest()
    with seen:
        solve(in_blocks(chunk), given)
    assert seen.size == max(chunk, given.weight.shape[1]) * 1024  # the weight itself is as large as two tokens' logits


def test_a_sum_of_products_has_each_ones_gradient():
    """A layer with an adapter; the layer's weight is frozen."""
    given, small = draw(9, 30, 5, ignored=0.2).to(torch.float64), draw(9, 30, 2, seed=1).to(torch.float64)
    inputs = [given.hidden.requires_grad_(), small.hidden.requires_grad_(), small.weight.requires_grad_()]

    def of(hidden, inner, outer):
        factors = [(hidden, given.weight), (inner, outer)]
        return factored_log_probs(factors, given.labels, 0.7, True, logits_at_once=100)

    log_probs, entropy = of(*inputs)
    logits_of_both = torch.cat([given.hidden, small.hidden], 1), torch.cat([given.weight, small.weight], 1)
    expected = plain(*logits_of_both, given.labels, temperature=0.7)
    torch.testing.assert_close((log_probs, entropy), expected)
    assert torch.autograd.gradcheck(of, inputs)
    assert given.weight.grad is None


def test_without_entropy_there_is_none_and_the_rest_is_the_same():
    given = draw(20, 50, 4)
    log_probs, entropy = token_log_probs(given.hidden, given.weight, given.labels)
    assert entropy is None
    assert log_probs.equal(token_log_probs(given.hidden, given.weight, given.labels, entropy=True)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [-100] * 5}, r"labels \(tokens,\) and .*, got \[\(6, 4\), \(50, 4\), \(5,\), \(50,\)\]"),
        ({"labels": [0.0] * 6}, r"labels must be int32 or int64, .* got torch\.float32 and None"),
        ({"weight": [[0.0] * 50] * 4}, r"weight \(vocabulary, width\), .*, got \[\(6, 4\), \(4, 50\)"),
        ({"bias": [0.0]}, r"bias \(vocabulary,\), got "),
        ({"chunk_tokens": 0}, "chunk_tokens 1 or more, got torch.int64 and 0"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(change, message):
    """Of five labels with one to ignore, the log-probabilities would be those of other tokens, in silence."""
    given = draw(6, 50, 4)
    call = {"hidden": given.hidden, "weight": given.weight, "labels": given.labels}
    change = {name: torch.tensor(value) if isinstance(value, list) else value for name, value in change.items()}
    with pytest.raises(ValueError, match=message):
        token_log_probs(**{**call, **change})


def test_nothing_asked_is_zero_and_still_part_of_the_graph():
    """A rank that has no tokens of its own must still run its backward: ZeRO-3 gathers there."""
    given = draw(6, 50, 4, bias=True)
    given.labels[:] = -100
    found = solve(in_blocks(2), given)
    assert {name: tuple(one.shape) for name, one in found.items()} == {
        "log_probs": (6,), "entropy": (6,), "hidden": (6, 4), "weight": (50, 4), "bias": (50,),
    }  # fmt: skip
    assert not any(one.any() for one in found.values())


def test_large_logits_do_not_overflow_and_certain_tokens_keep_their_digits():
    hidden, weight = torch.tensor([[1.0], [3.0e4]]), torch.tensor([[0.0], [12.0], [-12.0]])
    labels = torch.tensor([1, 1])
    log_probs, entropy = token_log_probs(hidden, weight, labels, entropy=True, chunk_tokens=1)
    exact, exact_entropy = plain(hidden.double(), weight.double(), labels)
    assert -1e-5 < float(exact[0]) < -1e-6
    torch.testing.assert_close(log_probs.double(), exact, rtol=0.02, atol=0)  # fp32 knows 1 + 6e-6 to two digits
    torch.testing.assert_close(entropy.double(), exact_entropy, rtol=0.02, atol=0)


class OnGpu(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize("error, goes_on", [(RuntimeError("no Python.h"), True), (torch.OutOfMemoryError(), False)])
def test_a_compiler_that_fails_costs_one_warning_and_a_full_gpu_ends_the_run(monkeypatch, error, goes_on):
    def fails(*_):
        raise error

    monkeypatch.setattr(head, "_compiled", lambda function: fails)
    monkeypatch.setattr(head, "_uncompiled", [])
    logits, offset = torch.randn(3, 5).as_subclass(OnGpu), torch.zeros(3)
    block = head._slopes, 0.5, torch.float32, logits, offset
    if not goes_on:
        pytest.raises(torch.OutOfMemoryError, head._one_kernel, *block)
        return
    with pytest.warns(UserWarning, match="uncompiled.*no Python.h") as told:
        found = [head._one_kernel(*block) for _ in range(2)]
    assert len(told) == 1 and all(torch.equal(one, (0.5 * logits).exp()) for one in found)
