"""`--ds.share_prompts`: the tokens that several rollouts have in common at their beginning go through the model once.

One row holds a prompt and then its answers; each answer attends to the prompt and to itself. Results are those of
separate rows, except for rounding. SmolLM2's micro-batch of 32 short answers takes 5.8 s of a core, forward and
backward, and 22.7 s without sharing; a step has two of them.
"""

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model.unfit_models import SHARING_REMEDY

# Limit of the mean difference, 0.25 nats in bf16. SmolLM2 in bf16 has 0.02 to 0.07, by CPU and batch; 0.9 to 1.2 if
# answers attend to each other, 1.6 to 2.5 if the model counts positions by itself.
ROUNDINGS = 32
SLACK = 1e-4  # nats: fp32 sums in another order
PADDING = -1


@dataclass(frozen=True)
class SharedPrompts:
    """A micro-batch (rollouts, tokens) laid out in rows that share prompts. Indices refer to flattened tables."""

    source: Tensor  # (rows, length): index in the micro-batch of the token at this place
    owner: Tensor  # (rows, length): 0 for shared tokens, then 1, 2, ... for each rollout's own tokens
    places: Tensor  # (rollouts, tokens): index in the rows of the token at this place
    attended: Tensor  # (rollouts, tokens)

    def laid_out(self, table: Tensor, padding: int = 0) -> Tensor:
        return table.flatten()[self.source].masked_fill(self.owner == PADDING, padding)

    def attention(self, dtype: torch.dtype) -> Tensor:
        """The mask that is added to attention scores: (rows, 1, queries, keys)."""
        mine = self.owner[:, :, None] == self.owner[:, None, :]
        unseen = ~(mine | (self.owner == 0)[:, None, :]).tril()[:, None]
        return torch.zeros(unseen.shape, dtype=dtype, device=unseen.device).masked_fill(unseen, torch.finfo(dtype).min)

    def own(self) -> Tensor:
        """(rollouts, tokens): the tokens that are not shared; only they could attend to too much or too little."""
        return (self.owner.flatten()[self.places] > 0) & self.attended

    def as_before(self, table: Tensor) -> Tensor:
        """Rearrange (rows, length, values) to (rollouts, tokens, values), with 0 at padding."""
        return table.flatten(0, 1)[self.places] * self.attended[..., None]


def share(sequences: Tensor, attention_mask: Tensor) -> SharedPrompts:
    attended = attention_mask.bool()
    where = [row.nonzero().flatten().tolist() for row in attended]
    rows = [[tokens[one] for one in places] for tokens, places in zip(sequences.tolist(), where, strict=True)]
    width, laid = sequences.shape[1], []
    for together, common in alike(rows):
        flat = [[row * width + one for one in where[row]] for row in together]
        parts = [flat[0][:common], *(one[common:] for one in flat)]
        laid.append((together, common, parts))
    length = max(sum(map(len, parts)) for _, _, parts in laid)
    source, owner = torch.zeros(len(laid), length, dtype=torch.long), torch.full((len(laid), length), PADDING)
    places = torch.zeros(sequences.shape, dtype=torch.long)
    for line, (together, common, parts) in enumerate(laid):
        used = sum(map(len, parts))
        source[line, :used] = torch.tensor(list(chain(*parts)), dtype=torch.long)
        owner[line, :used] = torch.tensor(list(chain(*([who] * len(part) for who, part in enumerate(parts)))))
        begin = line * length + common
        for row, own in zip(together, parts[1:], strict=True):
            now = [*range(line * length, line * length + common), *range(begin, begin + len(own))]
            places[row, where[row]] = torch.tensor(now, dtype=torch.long)
            begin += len(own)
    device = sequences.device
    return SharedPrompts(source.to(device), owner.to(device), places.to(device), attended)


def alike(rows: list[list[int]]) -> list[tuple[list[int], int]]:
    """Groups of rollouts with a common beginning, in any order, and its length: at least half of each rollout.

    The last common token is not shared, because the token that it predicts differs between rollouts.
    """
    runs: list[tuple[list[int], int]] = []
    for row in sorted(range(len(rows)), key=rows.__getitem__):  # sorting puts common beginnings side by side
        if runs:
            together, common = runs[-1]
            fewer = min(common, _common(rows[together[0]], rows[row]))
            if 2 * fewer >= max(len(rows[one]) for one in (row, *together)):
                runs[-1] = [*together, row], fewer
                continue
        runs.append(([row], max(len(rows[row]) - 1, 0)))
    return runs


def _common(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with, but for the last one."""
    pairs = enumerate(zip(one, other, strict=False))
    different = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    return max(different - 1, 0)


def refuse_another_model(found: Tensor, alone: Tensor, labelled: Tensor, dtype: torch.dtype) -> None:
    """Refuse a model that an attention mask does not control: with recurrent state, or with positions of its own."""
    difference = (found - alone)[labelled].abs().mean()
    if not bool(difference <= ROUNDINGS * torch.finfo(dtype).eps + SLACK):
        raise UserError(
            f"with shared prompts this model gives tokens log-probabilities that differ by {difference:.2g} nats on "
            f"average from those of rollouts alone: it ignores or changes the attention mask. "
            f"{SHARING_REMEDY}"
        )
