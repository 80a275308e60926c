"""What a forward pass keeps for its backward pass. Standard library only: the dry run and the trainer both ask."""

LOGIT_BYTES = 12  # per word: fp32 logits, their softmax and its gradient; an estimate between 9 and 18 measured ones
HEAD_BYTES = 8  # per number of a hidden state, without logits: the last norm's input in fp32, and its two bf16 results
LOGITS_AT_ONCE = 2**24  # that a logit-free head holds, over all tokens: 67 MB in fp32


def graph_bytes_per_token(
    hidden: int, intermediate: int, layers: int, vocabulary: int, *, checkpointing: bool, logit_free: bool
) -> int:
    """bf16 activations: with checkpointing each layer's input, without it some 16 hidden and 4 MLP vectors a layer."""
    layer = 2 * hidden if checkpointing else 2 * (16 * hidden + 4 * intermediate)
    return layers * layer + (HEAD_BYTES * hidden if logit_free else LOGIT_BYTES * vocabulary)
