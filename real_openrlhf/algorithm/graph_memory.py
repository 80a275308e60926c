"""Memory of a training rank, from sizes alone. Standard library only: the dry run and the trainer both ask."""

LOGIT_BYTES = 12  # per word: fp32 logits, their softmax and its gradient; an estimate between 9 and 18 measured ones
HEAD_BYTES = 8  # per number of a hidden state, without logits: the last norm's input in fp32, and its two bf16 results
LOGITS_AT_ONCE = 2**24  # that a logit-free head holds, over all tokens: 67 MB in fp32
GATHERED_PARAMETERS = 1_000_000_000  # DeepSpeed's stage3_max_live_parameters


def graph_bytes_per_token(
    hidden: int, intermediate: int, layers: int, vocabulary: int, *, checkpointing: bool, logit_free: bool
) -> int:
    """Kept of a forward, bf16: each layer's input with checkpointing, else 16 hidden and 4 MLP vectors each."""
    layer = 2 * hidden if checkpointing else 2 * (16 * hidden + 4 * intermediate)
    return layers * layer + (HEAD_BYTES * hidden if logit_free else LOGIT_BYTES * vocabulary)


def resident_bytes(
    parameters: int, trained: int, *, ranks: int, zero_stage: int, gradient_bytes: int = 4, adam_offload: bool = False
) -> tuple[float, float, float]:
    """(bf16 weights, gradients, Adam's fp32 weights and moments) that stay on a rank from step to step."""
    return (
        2 * parameters / (ranks if zero_stage >= 3 else 1),
        gradient_bytes * trained / (ranks if zero_stage >= 2 else 1),
        0.0 if adam_offload else 12 * trained / (ranks if zero_stage >= 1 else 1),
    )
