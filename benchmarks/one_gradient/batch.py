"""One fixed batch and one tiny model, in float64 on one thread."""

import torch
from torch import Tensor

torch.set_num_threads(1)
EOS, VOCAB, UNGRADED = 1, 64, 5
GROUPS = (4, 4, 4, 3, 1)  # four responses are a whole group; two groups are incomplete
LENGTHS = (3, 17, 8, 24, 5, 5, 12, 2, 20, 9, 1, 14, 7, 23, 11, 6)
REWARDS = (1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0)
CUT_OFF = (3, 9)  # responses without an end token


def model() -> torch.nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(3)
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2)
    sizes |= dict(num_attention_heads=2, num_key_value_heads=1)
    words = dict(vocab_size=VOCAB, max_position_embeddings=512, eos_token_id=EOS, pad_token_id=0, bos_token_id=None)
    # in float64 eager attention is nan in a row that is padded to the left
    net = Qwen2ForCausalLM(Qwen2Config(**sizes, **words, attn_implementation="sdpa")).double()
    for weight in net.parameters():
        if weight.dim() > 1:
            weight.data.mul_(20)  # far from uniform, so that rows differ
    return net


def rows(rank: int = 0, world: int = 1) -> list[dict]:
    """16 rows, a group's one after another; a rank's are every `world`-th, so two ranks have parts of every group.
    `old` is stale: the model's log-probability and noise."""
    draw = torch.Generator().manual_seed(7)
    net, found = model(), []
    for group, size in enumerate(GROUPS):
        prompt = torch.randint(2, VOCAB, (3 + group,), generator=draw).tolist()
        numbers = range(len(found), len(found) + size)
        known = torch.tensor([float(REWARDS[n]) for n in numbers if n != UNGRADED])
        spread = known.std(correction=1) if len(known) > 1 else torch.zeros(())
        for n in numbers:
            response = torch.randint(2, VOCAB, (LENGTHS[n],), generator=draw).tolist()
            response[-1] = response[-1] if n in CUT_OFF else EOS
            row = dict(n=n, group=group, prompt=prompt, response=response, reward=None, advantage=0.0)
            if n != UNGRADED:
                row |= dict(reward=float(REWARDS[n]), advantage=float((REWARDS[n] - known.mean()) / (spread + 1e-4)))
            ids, attention, mask = padded([row])
            noise = 0.25 * torch.randn(LENGTHS[n], generator=draw, dtype=torch.float64)
            with torch.no_grad():
                row["old"] = (logprobs(net, ids, attention, mask)[0] + noise).tolist()
            row["rollout"] = (torch.tensor(row["old"]) + noise.flip(0)).tolist()
            found.append(row)
    return found[rank::world]


def padded(part: list[dict], width: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, attention mask and response mask: prompts to the left, responses to the right."""
    left = max(len(row["prompt"]) for row in part)
    right = max(width, *(len(row["response"]) for row in part), 0)
    ids = torch.zeros(len(part), left + right, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for i, row in enumerate(part):
        span = slice(left - len(row["prompt"]), left + len(row["response"]))
        ids[i, span], attention[i, span] = torch.tensor(row["prompt"] + row["response"]), 1
    return ids, attention, attention[:, left:]


def logprobs(net: torch.nn.Module, ids: Tensor, attention: Tensor, mask: Tensor) -> Tensor:
    width = mask.shape[1]
    position = (attention.cumsum(1) - 1).clamp(min=0)
    logits = net(input_ids=ids, attention_mask=attention, position_ids=position).logits[:, -width - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[:, -width:, None]).squeeze(-1)


def column(part: list[dict], key: str, mask: Tensor) -> Tensor:
    """A row's number, or its list of one per token, as a tensor of the mask's shape."""
    values = torch.zeros(mask.shape, dtype=torch.float64)
    for i, row in enumerate(part):
        values[i, : len(row["response"])] = torch.as_tensor(row[key], dtype=torch.float64)
    return values


def gradient(net: torch.nn.Module) -> Tensor:
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in net.parameters()])


def over_ranks(flat: Tensor, world: int) -> Tensor:
    """The mean, as DDP, FSDP and DeepSpeed average gradients."""
    if world > 1:
        torch.distributed.all_reduce(flat)
    return flat / world
