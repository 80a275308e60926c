"""Which of the three exact ways to have a group's scores before its weights is cheapest. All give the same gradient."""

from types import SimpleNamespace

GB = 1e9
SHARE_OF_FREE_MEMORY = 0.5  # that the graphs of a deferred backward may take


def step_before_gradient(real: SimpleNamespace) -> bool:
    """Whether a micro-batch's gradient needs more of the step than its own groups: DisCO's hinge is on the step's KL."""
    return real.objective.startswith("disco") and real.disco_kl_coef > 0


def whole_groups(args: SimpleNamespace, ranks: int) -> bool:
    """Whether groups are kept whole inside micro-batches: the controller's part of the choice, it decides the layout."""
    if args.algo.real.scoring != "auto":
        return args.algo.real.scoring == "micro_batch"
    if step_before_gradient(args.algo.real):
        return False
    group = args.rollout.n_samples_per_prompt
    even = (args.train.batch_size // group) % ranks == 0  # else a rank would idle while another trains a whole group
    if args.train.dynamic_batch_enable:
        return even and args.train.max_tokens_per_gpu >= group * args.data.max_len
    return even and args.train.micro_batch_size % group == 0


def updates_per_rollout(args: SimpleNamespace) -> int:
    rollouts = args.rollout.batch_size * args.rollout.n_samples_per_prompt
    return max(rollouts // args.train.batch_size, 1) * args.train.max_epochs


def scored_at_once(args: SimpleNamespace) -> int:
    """Training micro-batches that one forward without gradient takes: OpenRLHF has limits of their own for such."""
    limit = "max_tokens_per_gpu" if args.train.dynamic_batch_enable else "micro_batch_size"
    training, without_gradient = getattr(args.train, limit), getattr(args.rollout, limit)
    return max((without_gradient or training) // training, 1)


def graph_bytes_per_token(config: SimpleNamespace, checkpointing: bool) -> int:
    """What a forward keeps for its backward: fp32 logits, their softmax and gradient, and the layers' activations."""
    hidden, intermediate = config.hidden_size, getattr(config, "intermediate_size", 4 * config.hidden_size)
    layer = 2 * hidden if checkpointing else 2 * (16 * hidden + 4 * intermediate)
    return config.num_hidden_layers * layer + 12 * config.vocab_size


def choose_scoring(args: SimpleNamespace, ranks: int, config: SimpleNamespace, free_bytes: float) -> tuple[str, str]:
    """(way, why). `free_bytes` is the least that any rank has, so that all choose alike."""
    if args.algo.real.scoring != "auto":
        return args.algo.real.scoring, "as asked"
    if whole_groups(args, ranks):
        return "micro_batch", "whole groups fit in a micro-batch: the training forward's own scores do"
    if updates_per_rollout(args) == 1:
        return "separate", "one update per rollout: scores are known without a forward, nothing extra runs"
    tokens = args.train.batch_size / ranks * args.data.max_len
    need = tokens * graph_bytes_per_token(config, args.actor.gradient_checkpointing_enable)
    estimate = f"a step's graphs take up to {need / GB:.1f} GB a rank, {free_bytes / GB:.1f} GB are free"
    if need <= SHARE_OF_FREE_MEMORY * free_bytes:
        return "deferred", f"{estimate}: kept until the weights are known"
    return "separate", f"{estimate}: one forward more, without gradient"
