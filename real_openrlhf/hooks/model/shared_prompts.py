"""`--ds.share_prompts`: what the answers to a prompt begin with in common goes through the model once.

A prompt's answers stand behind it in one row, each attending to the prompt and to itself. Everything is as it would be
row by row, but for rounding; of 8 answers of 9 tokens to a prompt of 113 a fifth of the tokens is left.
"""

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from real_openrlhf.base.errors import UserError

REMEDY = "Leave --ds.share_prompts out (recipes: --no-ds.share_prompts)"
ROUNDINGS = 8  # of a logit, on average over tokens; a model that sees the other answers too has more
SLACK = 1e-4  # nats: fp32 sums in another order
PADDING = -1


@dataclass(frozen=True)
class SharedPrompts:
    """A micro-batch (rollouts, tokens) in other rows. Indices count in flattened tables."""

    source: Tensor  # (rows, length): which token of the micro-batch stands here
    owner: Tensor  # (rows, length): 0 for what is shared, then 1, 2, ... for each rollout's own part
    places: Tensor  # (rollouts, tokens): where that token stands now
    attended: Tensor  # (rollouts, tokens)

    def laid_out(self, table: Tensor, padding: int = 0) -> Tensor:
        return table.flatten()[self.source].masked_fill(self.owner == PADDING, padding)

    def attention(self, dtype: torch.dtype) -> Tensor:
        """What is added to attention's scores: (rows, 1, queries, keys)."""
        mine = self.owner[:, :, None] == self.owner[:, None, :]
        unseen = ~(mine | (self.owner == 0)[:, None, :]).tril()[:, None]
        return torch.zeros(unseen.shape, dtype=dtype, device=unseen.device).masked_fill(unseen, torch.finfo(dtype).min)

    def own(self) -> Tensor:
        """(rollouts, tokens): what no other rollout shares; only there may a model see too much or too little."""
        return (self.owner.flatten()[self.places] > 0) & self.attended

    def as_before(self, table: Tensor) -> Tensor:
        """(rows, length, values) as (rollouts, tokens, values); 0 for what is not attended to."""
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
    """Rollouts that begin alike, wherever they stand, and how much they share: of each at least half.

    The last common token is not shared: what it predicts is each rollout's own.
    """
    runs: list[tuple[list[int], int]] = []
    for row in sorted(range(len(rows)), key=rows.__getitem__):  # side by side are those that begin alike
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
    """Some models remember or place tokens in a way that a mask of attention does not tell."""
    difference = (found - alone)[labelled].abs().mean()
    if not bool(difference <= ROUNDINGS * torch.finfo(dtype).eps + SLACK):
        raise UserError(
            f"with shared prompts this model gives tokens log-probabilities that differ by {difference:.2g} nats on "
            f"average from those of rollouts alone: it does not read a mask of attention as it stands. {REMEDY}"
        )
