"""`--ds.fused_logprobs`: a forward of the whole model whose head gives log-probabilities and entropies, never logits.

ZeRO-3 gathers the head's weight for as long as the head runs, once forward and once backward. So the model calls its
head as always, and only the head's `forward` is replaced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from real_openrlhf.algorithm.token_log_probs import factored_log_probs, head_factors
from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model import model_support

IGNORED = -100
CHECKED_TOKENS = 8
SLACK = 1e-4  # nats: fp32 sums in another order


def attach(actor: Any, strategy) -> None:
    """Refuse a model that the run would train wrongly; give OpenRLHF's Actor a fused head, if asked for."""
    model, ds = actor.model, strategy.args.ds
    features = model_support.Features(ds.attn_implementation, ds.packing_samples, ds.fused_logprobs)
    if problems := [*model_support.model_problems(features, text_config(model), type(model))]:
        raise UserError(*problems)
    if ds.fused_logprobs:
        actor.fused_logprobs = FusedLogprobsHead(actor.model, actor.temperature, rounded=True, say=strategy.print)
        actor.fused_logprobs.trains_entropy = bool(strategy.args.actor.entropy_coef)


class FusedLogprobsHead:
    """Runs a model so that its output's `logits` are a table: [..., 0] log-probabilities, [..., 1] entropies."""

    def __init__(self, model: Any, temperature: float, rounded: bool, say: Callable[[str], None]) -> None:
        self.head, self.temperature, self.rounded, self.say = model.get_output_embeddings(), temperature, rounded, say
        self.layer = getattr(self.head, "base_layer", self.head)  # the linear layer inside, if LoRA wraps it
        self.checked = False
        self.trains_entropy = True
        refuse_unknown(text_config(model), self.head, self.layer)

    def scoring(self, model: Callable, labels: Tensor, entropy: bool) -> Callable:
        """A callable with the arguments of `model`; `labels` has one label for each input token, at its position."""
        return partial(self.run, model, labels, entropy)

    def run(self, model: Callable, labels: Tensor, entropy: bool, *inputs, attention_mask: Tensor | None, **named):
        if attention_mask is not None:
            labels = labels.masked_fill(attention_mask == 0, IGNORED)
        forward = partial(model, *inputs, attention_mask=attention_mask, **named)
        if not self.checked:
            self.check(forward, labels)
            self.checked = True

        def table(hidden: Tensor) -> Tensor:
            log_probs, entropies = self.log_probs(hidden.flatten(0, -2), labels.flatten(), entropy)
            if entropies is not None and not self.trains_entropy:  # detached, it costs nothing in the backward pass
                entropies = entropies.detach()
            return torch.stack(
                [column.view(labels.shape) for column in (log_probs, entropies) if column is not None], -1
            )

        with self.replaced(table):
            return forward()

    @contextmanager
    def replaced(self, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
        forward = self.head.forward
        self.head.forward = function
        try:
            yield
        finally:
            self.head.forward = forward

    def log_probs(self, hidden: Tensor, labels: Tensor, entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities and entropies of hidden states (tokens, width); runs inside the head's forward."""
        factors = head_factors(hidden, self.layer.weight, self.layer.bias)
        if self.head is not self.layer:
            for name in self.head.active_adapters:
                inner, outer, dropout = (
                    part[name] for part in (self.head.lora_A, self.head.lora_B, self.head.lora_dropout)
                )
                small = inner(dropout(hidden.to(inner.weight.dtype))) * self.head.scaling[name]
                factors.append((small, outer.weight))
        return factored_log_probs(factors, labels, self.temperature, entropy, rounded=self.rounded)

    @torch.no_grad()
    def check(self, forward: Callable, labels: Tensor) -> None:
        """Compare a few tokens in one forward: log-probabilities of this head and of the model's own logits."""
        rows = (labels.flatten() >= 0).nonzero().squeeze(1)
        rows = rows[:: max(len(rows) // CHECKED_TOKENS, 1)][:CHECKED_TOKENS]
        few, parts, plain_head = labels.flatten()[rows], [], self.head.forward

        def both_ways(hidden: Tensor) -> Tensor:
            hidden = hidden.flatten(0, -2)[rows]
            parts.append(self.log_probs(hidden, few, entropy=False)[0])
            return plain_head(hidden[None])

        with self.replaced(both_ways):
            logits = forward()["logits"]
        if not parts:
            raise UserError(f"this model's forward does not call its output embeddings. {model_support.HEAD_REMEDY}")
        logits = logits.flatten(0, -2).float() / self.temperature
        plain, label_logits = (values.gather(1, few[:, None]).squeeze(1) for values in (logits.log_softmax(1), logits))
        rounding = torch.finfo(self.layer.weight.dtype).eps  # twice a logit's largest rounding error
        explained = rounding * (label_logits.abs() + (logits.softmax(1) * logits.abs()).sum(1)) + SLACK
        compare(parts[0], plain, explained, f"{self.layer.weight.dtype}", self.say)


def compare(own: Tensor, plain: Tensor, explained: Tensor, number_format: str, say: Callable[[str], None]) -> None:
    """Stop where the two ways differ by more than the number format explains; otherwise say by how much they do."""
    differences = (own - plain).abs()
    if not bool((differences <= explained).all()):
        worst = int((differences - explained).nan_to_num(torch.inf).argmax())
        raise UserError(
            f"the fused head gives a token the log-probability {own[worst]:.4f}, the model's own logits "
            f"{plain[worst]:.4f}; {number_format} explains {explained[worst]:.4f} of it. {model_support.HEAD_REMEDY}, "
            "and report it in this repository's issue tracker"
        )
    if len(own):
        say(
            f"fused head: {len(own)} tokens differ from the model's own logits by at most "
            f"{differences.max():.2g} nats ({number_format} explains {explained.max():.2g})"
        )


def text_config(model: Any) -> dict:
    return model.config.get_text_config().to_dict()


def refuse_unknown(config: dict, head: nn.Module, layer: nn.Module) -> None:
    """Refuse a model whose log-probabilities are not the softmax of a linear layer."""
    if problem := model_support.head_problem(config):
        raise UserError(problem)
    adapted = head is not layer and not (hasattr(head, "lora_B") and not head.lora_variant)
    if adapted or getattr(type(layer), "forward", None) is not nn.Linear.forward:
        raise UserError(
            f"--ds.fused_logprobs needs a linear head, with plain LoRA or without, not {type(head).__name__} of "
            f"{type(layer).__name__}. {model_support.HEAD_REMEDY}"
        )
