"""Memory of a training rank, from sizes alone. Standard library only: the dry run and the trainer both ask."""

LOGIT_BYTES = 12  # per word: fp32 logits, their softmax and its gradient; an estimate between 9 and 18 measured ones
HEAD_BYTES = 8  # per number of a hidden state, without logits: the last norm's input in fp32, and its two bf16 results
# Logits that a logit-free head holds, over all tokens: 67 MB in fp32. A GPU writes the hidden states' gradient
# once a block, so its blocks are larger.
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU = 2**24, 2**26
GATHERED_PARAMETERS = 1_000_000_000  # DeepSpeed's stage3_max_live_parameters


def graph_bytes_per_token(
    hidden: int, intermediate: int, layers: int, vocabulary: int, *, checkpointing: bool, logit_free: bool
) -> int:
    """Kept of a forward, bf16: each layer's input with checkpointing, else at most 12 hidden and 4 MLP vectors."""
    layer = 2 * hidden if checkpointing else 2 * (12 * hidden + 4 * intermediate)
    return layers * layer + (HEAD_BYTES * hidden if logit_free else LOGIT_BYTES * vocabulary)


def resident_bytes(
    parameters: int,
    trained: int,
    *,
    gpus: int,
    zero_stage: int,
    head: int = 0,
    gradient_bytes: int = 4,
    adam_offload: bool,
    reference: int,
) -> dict[str, float]:
    """Bytes on one of the policy's GPUs that stay while it trains. All but `gpus` and `zero_stage` count parameters:
    of the policy, trained, of its head, of a reference model on the same GPUs."""
    sharded = gpus if zero_stage >= 3 else 1
    memory = {"weights (bf16)": 2 * parameters / sharded}
    if zero_stage >= 3:
        memory["gathered for use, at most"] = 2 * min(parameters, max(GATHERED_PARAMETERS, head))
    gradients = gradient_bytes * trained / (gpus if zero_stage >= 2 else 1)
    memory[f"gradients, added up in {8 * gradient_bytes} bits"] = gradients
    if not adam_offload:
        memory["Adam: fp32 weights and two moments"] = 12 * trained / (gpus if zero_stage >= 1 else 1)
    if reference:
        memory["reference model (bf16)"] = 2 * reference / sharded
    return memory
