"""One arithmetic of a step's seconds and a run's hours: for the forecast before a start, and for docs/use/gpu.md.

Standard library only. Rates, lengths and rents are assumptions; nobody has compared the sums with a GPU yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import NamedTuple

from real_openrlhf.base.files import amount
from real_openrlhf.base.parsing import number_of
from real_openrlhf.forecast.memory import Shape, checkpoint

Span = tuple[float, float]  # at least, at most
MEAN_SHARES = (1 / 3, 2 / 3)  # of --rollout.max_new_tokens: the mean response, at least and at most
UNIFORM = 0.45  # share of rollouts in groups that are all right or all wrong: without a gradient
SQUARES = 1.3  # mean square of a length, of the squared mean: lognormal lengths (0.6), cut at the limit
PROMPT = 150  # tokens
DECODING = 0.002  # seconds of a decoding step beside its memory traffic: launches, sampler, scheduler
OTHER = 20.0  # seconds of a step: sleep, wake, hand-over of weights, grading
DISK = 1e9  # bytes that all ranks together write per second; `real-openrlhf doctor` measures a disk
NETWORK_DISK = 0.125e9  # of a slow one
SLOWER = 3  # times as long public runs may take, by docs/use/gpu.md


@dataclass(frozen=True)
class Card:
    name: str
    gb: float
    flops: float  # bf16 a second that training reaches, about 0.4 of the data sheet's
    bandwidth: float  # bytes per second that decoding reads, about 0.8 of the data sheet's
    dollars: float  # rent of an hour


CARDS = (
    Card("H100", 80, 350e12, 2.6e12, 3.0),
    Card("A100", 80, 140e12, 1.6e12, 2.0),
    Card("A10", 24, 50e12, 0.47e12, 1.0),
    Card("B200", 180, 800e12, 6.4e12, 5.0),
    Card("H200", 141, 350e12, 3.8e12, 3.5),
    Card("L40S", 48, 145e12, 0.69e12, 1.0),
    Card("RTX 5090", 32, 84e12, 1.4e12, 0.7),
    Card("RTX 4090", 24, 66e12, 0.8e12, 0.4),
    Card("L4", 24, 48e12, 0.24e12, 0.5),
)


def card_of(names: Sequence[str], gb: float) -> Card:
    """The card of these names, else one of the first three by its memory, which says for what it stands."""
    for name in names:
        if named := [card for card in CARDS if f" {card.name} " in f" {name.replace('-', ' ')} "]:
            return named[0]
    like = [*(card for card in CARDS[:3] if card.gb <= gb), CARDS[2]][0]
    return replace(like, name=f"{names[0]} (taken for an {like.name})") if names else like


def longest(args: SimpleNamespace) -> int:
    return args.rollout.max_new_tokens or args.data.max_len


def step_seconds(shape: Shape, args: SimpleNamespace, card: Card, mean: float) -> float:
    """One training step with responses of this mean length."""
    layout, lora = args.derived.layout, bool(args.ds.lora.rank)
    products = shape.vocabulary * shape.hidden  # the head's numbers, then those of all linear layers
    products += shape.layers * shape.hidden * (2 * (shape.attention_width + shape.kv_width) + 3 * shape.intermediate)
    context = SQUARES * mean / 2  # tokens that a token attends to
    forward = 2 * products + 4 * shape.layers * shape.attention_width * context  # floating-point operations of a token
    rollouts = args.rollout.batch_size * args.rollout.n_samples_per_prompt
    trained = rollouts * args.train.max_epochs * (1 - UNIFORM if args.derived.skips else 1)
    passes = 3 + bool(args.actor.gradient_checkpointing_enable) - lora  # adapters: no gradients of the other weights
    passes += args.derived.score is not None and not args.derived.in_waves  # scored first
    scoring = rollouts * (args.derived.reads_old + args.derived.reference)
    training = (passes * trained + scoring) * (mean + PROMPT) * forward / (card.flops * layout.ranks)

    gpus = args.vllm.tensor_parallel_size
    each = rollouts / (1 - UNIFORM if args.algo.dynamic_filtering_enable else 1) / (args.vllm.num_engines or 1)
    cache = 4 * shape.layers * shape.kv_width  # bytes of a token's keys and values
    held = (args.vllm.gpu_memory_utilization * card.gb * 1e9 * gpus - 2 * shape.parameters) / (cache * context)
    at_once = max(min(each, args.vllm.max_num_seqs or each, held), 1)
    steps = longest(args) + max(each / at_once - 1, 0) * mean  # the longest response ends the last batch
    traffic = steps * 2 * products + each * mean * context * cache
    generation = (
        traffic / (card.bandwidth * gpus) + each * mean * 2 * products / (card.flops * gpus) + steps * DECODING
    )
    both = max(generation, training) if args.train.async_enable else generation + training
    return OTHER + both + saving_seconds(shape, args, DISK)


def saving_seconds(shape: Shape, args: SimpleNamespace, rate: float) -> float:
    """A step's part of the checkpoints, for which all GPUs wait."""
    model = 2 * shape.parameters if args.ckpt.save_hf else 0
    return (checkpoint(shape, args) + model) / rate / args.ckpt.save_steps if args.ckpt.save_steps > 0 else 0.0


def spans(shape: Shape, args: SimpleNamespace, card: Card) -> list[Span]:
    """Of the shorter to the longer mean response: seconds of a step, hours of all steps, and their rent."""
    low, high = (step_seconds(shape, args, card, share * longest(args)) for share in MEAN_SHARES)
    hours = args.train.max_steps / 3600
    rent = hours * args.derived.layout.gpus * card.dollars
    return [(low * each, high * each) for each in (1, hours, rent)]


def text(span: Span) -> str:
    """Two digits of each: 88 to 200, 1.6 to 2.1."""
    return " to ".join(dict.fromkeys(f"{float(f'{each:.2g}'):,g}" for each in span))


def forecast(shape: Shape, args: SimpleNamespace, card: Card) -> str:
    """A line for a dry run, with everything that it assumes."""
    a_step, hours, dollars = map(text, spans(shape, args, card))
    lengths = " to ".join(f"{share * longest(args):,.0f}" for share in MEAN_SHARES)
    run = f", {hours} hours and ${dollars} for {args.train.max_steps:,} steps" * bool(args.train.max_steps)
    without = f"{100 * UNIFORM:.0f} % of responses without gradient" if args.derived.skips else "all trained"
    rates = f"{card.flops / 1e12:.0f} TFLOP/s, {card.bandwidth / 1e12:.2g} TB/s and ${card.dollars:g} per GPU-hour"
    saves = f"checkpoints of {amount(checkpoint(shape, args))} every {args.ckpt.save_steps} steps: "
    saves += ", ".join(f"{saving(shape, args, card, rate)} at {rate / 1e9:g} GB/s" for rate in (DISK, NETWORK_DISK))
    saves += " (`real-openrlhf doctor` measures your disk)"
    return (
        f"time: {a_step} s per step of {args.rollout.batch_size} prompts x {args.rollout.n_samples_per_prompt} on "
        f"{args.derived.layout.gpus} x {card.name}{run} (estimate, not compared with a GPU yet; allow for up to "
        f"{SLOWER} times as much). Assumed: mean response {lengths} tokens, {without}, {rates}; "
        f"{saves if args.ckpt.save_steps > 0 else 'no checkpoints'}; no evaluation"
    )


def saving(shape: Shape, args: SimpleNamespace, card: Card, rate: float) -> str:
    """What checkpoints take of the run, or of a step."""
    seconds = saving_seconds(shape, args, rate)
    hours = seconds * args.train.max_steps / 3600
    rent = hours * args.derived.layout.gpus * card.dollars
    return f"{text((hours, hours))} hours and ${text((rent, rent))}" if hours else f"{seconds:.2g} s of each step"


class Bill(NamedTuple):
    """Of a run: at least and at most, and bytes."""

    hours: Span
    dollars: Span
    disk: float


def in_all(bills: Sequence[Bill]) -> str:
    hours, dollars = (
        text((sum(low for low, _ in spans), sum(high for _, high in spans)))
        for spans in ([bill.hours for bill in bills], [bill.dollars for bill in bills])
    )
    disk = amount(sum(bill.disk for bill in bills))
    return (
        f"in all: {hours} hours, ${dollars} and {disk} of disk for {number_of(len(bills), 'run')}, without evaluation"
    )
