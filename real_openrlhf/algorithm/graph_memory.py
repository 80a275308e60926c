"""Estimate the memory of a training rank from model sizes. Standard library only, because the dry run imports it."""

LOGIT_BYTES = 12  # per logit: fp32 logit, softmax and gradient; an estimate, measurements gave 9 to 18
HEAD_BYTES = (
    8  # per entry of a hidden state, with fused log-probs: the last norm's input in fp32, and its two bf16 results
)
# Logits that a fused head holds at once, over all tokens: 67 MB in fp32. Each block of words updates the whole
# gradient of the hidden states, so blocks are larger on a GPU.
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU = 2**24, 2**26
GATHERED_PARAMETERS = 1_000_000_000  # DeepSpeed's stage3_max_live_parameters
BUCKET = 500_000_000  # numbers of a gradient that DeepSpeed collects before ranks exchange them (reduce_bucket_size)
RUNTIME_BYTES = 5e9  # of a GPU: CUDA contexts of policy and sleeping vLLM, NCCL's buffers, fragmentation; a guess
LIVE_SHARE = 0.6  # of what states and runtime leave, for kept graphs; the rest is for a micro-batch's temporaries


def graph_bytes_per_token(
    hidden: int, intermediate: int, layers: int, vocabulary: int, *, checkpointing: bool, fused_logprobs: bool
) -> int:
    """Bytes that a forward keeps: with checkpointing each layer's input, else at most 12 hidden and 4 MLP vectors."""
    layer = 2 * hidden if checkpointing else 2 * (12 * hidden + 4 * intermediate)
    return layers * layer + (HEAD_BYTES * hidden if fused_logprobs else LOGIT_BYTES * vocabulary)


def live_tokens(left: float, per_token: int) -> float:
    """Tokens whose graphs are kept at once, at most, in this many bytes beside states and runtime."""
    return max(LIVE_SHARE * left, 0.0) // per_token


def resident_bytes(
    parameters: int,
    trained: int,
    *,
    gpus: int,
    zero_stage: int,
    head: int = 0,
    gradient_bytes: int = 4,
    overlap_comm: bool = False,
    adam_offload: bool,
    reference: int,
) -> dict[str, float]:
    """Bytes on one of the policy's GPUs that are there throughout a micro-batch's backward pass, by part.

    `parameters`, `trained`, `head` and `reference` are numbers of parameters: policy, trained part, output layer,
    reference model on the same GPUs."""
    sharded = gpus if zero_stage >= 3 else 1
    memory = {"weights (bf16)": 2 * parameters / sharded}
    if zero_stage >= 3:
        memory["gathered for use, at most"] = 2 * min(parameters, max(GATHERED_PARAMETERS, head))
    gradients = gradient_bytes * trained / (gpus if zero_stage >= 2 else 1)
    memory[f"gradients, added up in {8 * gradient_bytes} bits"] = gradients
    memory["buckets of gradients (bf16)"] = 2 * BUCKET * (2 if overlap_comm and zero_stage < 3 else 1)
    if zero_stage < 3 and not adam_offload:
        memory["a micro-batch's gradients (bf16)"] = 2 * trained / gpus
    if not adam_offload:
        memory["Adam: fp32 weights and two moments"] = 12 * trained / (gpus if zero_stage >= 1 else 1)
    if reference:
        memory["reference model (bf16)"] = 2 * reference / sharded
    return memory
