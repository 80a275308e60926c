"""What a forward pass keeps for its backward pass. Standard library only: the dry run and the trainer both ask."""

LOGIT_BYTES = 12  # per word: fp32 logits, their softmax and its gradient; an estimate between 9 and 18 measured ones


def graph_bytes_per_token(hidden: int, intermediate: int, layers: int, vocabulary: int, checkpointing: bool) -> int:
    """bf16 activations: with checkpointing each layer's input, without it some 16 hidden and 4 MLP vectors a layer."""
    layer = 2 * hidden if checkpointing else 2 * (16 * hidden + 4 * intermediate)
    return layers * layer + LOGIT_BYTES * vocabulary
