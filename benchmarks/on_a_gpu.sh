#!/usr/bin/env bash
# Everything that only a GPU can show, on one GPU: bash benchmarks/on_a_gpu.sh [PART ...]
#   exact   REAL's gradient through the attention kernel (and flash-attn's, if it is installed), packing and bf16,
#           beside float64; with logits and without.
#           Expected: at most 1.25 times as far off as plain bf16
#   head    memory and time of the head without logits, 4,096 tokens x 152,064 words at the width of 7B.
#           Expected: at most 0.35 of the memory with logits, and 1.5 of the time
#   step    the actor's step at 1.5B shape with real and grpo: seconds, memory beside the estimate, waits of the host.
#           Expected: no more memory than the estimate
#   train   three steps of the recipe on random weights, vLLM and all; every answer trains, at a high learning rate.
#           Expected: vLLM follows the policy (expected.py)
# The recipe is qwen1.5b-1gpu; on a GPU below 60 GB lora-24gb, and `exact` has shorter answers: 17 GB
# in place of 43, by arithmetic. GPU_GB=N says the size.
#   setup   a new environment by setup_env.sh: its time and size; downloads it all, so it is made only when named
# Each part says `ok` or `DIFFERS`, and fails where something differs. One whose packages are missing is skipped.
# SMALL=1 runs the same parts on CPU, in small.
# Uses the Python of the environment for GPUs, or else the one on PATH. Send us what it prints.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-$(bash examples/scripts/setup_env.sh where "$([ -n "${SMALL:-}" ] && echo cpu || echo gpu)")/bin/python}
[ -x "$python" ] || python=python3
parts=("$@")
[ $# -gt 0 ] || parts=(exact head step train)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ -n "${SMALL:-}" ]; then
    export DS_ACCELERATOR=cpu
    rate=1e-4 exact=(--device cpu) setup=cpu head=(--tokens 256 --vocabulary 20000 --rounds 1)
    step=(--recipe cpu-like-gpu --prompts 8) train=(--recipe cpu-like-gpu)
else
    memory='import torch; print(torch.cuda.get_device_properties(0).total_memory // 10**9)'
    gb=${GPU_GB:-$("$python" -c "$memory" 2>/dev/null)}
    gb=${gb:-80}
    if [ "$gb" -lt 22 ]; then
        echo "this GPU has $gb GB, and the smallest recipe here is for 24 GB: nothing was run" >&2
        exit 2
    fi
    recipe=qwen1.5b-1gpu rate=1e-4 exact=() setup=gpu head=(--device cuda --width 3584) train=()
    [ "$gb" -ge 60 ] || recipe=lora-24gb rate=1e-3 exact=(--longest 192)
    step=(--recipe "$recipe")
    echo "a GPU of $gb GB: step and train take recipe $recipe, exact takes ${exact[*]:-its longest answers}"
fi

has() { # has PACKAGE...: names those that are missing
    "$python" -c 'import sys
from importlib.util import find_spec
missing = [name for name in sys.argv[1:] if not find_spec(name)]
print(*missing)
sys.exit(bool(missing))' "$@"
}

random_model() { # random weights in the recipe's shape with R1-Distill's tokenizer, if that is in the cache
    "$python" - "$folder/model" <<'PYTHON'
import sys
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from real_openrlhf.training.checks.memory_estimate import KNOWN_CONFIGS
name = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
tokenizer = AutoTokenizer.from_pretrained(name)
with torch.device("cuda"):
    Qwen2ForCausalLM(Qwen2Config(**KNOWN_CONFIGS[name], max_position_embeddings=16384)).bfloat16().save_pretrained(sys.argv[1])
tokenizer.save_pretrained(sys.argv[1])
PYTHON
}

run_part() {
    case $1 in
    setup)
        REAL_VENV="$folder/venv" bash examples/scripts/setup_env.sh "$setup" && du -sh "$folder/venv"
        ;;
    exact)
        "$python" benchmarks/packed_exactness.py "${exact[@]}" &&
            "$python" benchmarks/packed_exactness.py "${exact[@]}" --logit-free
        ;;
    head) "$python" benchmarks/head_memory.py "${head[@]}" ;;
    step) "$python" benchmarks/gpu_step.py "${step[@]}" ;;
    train)
        if [ -z "${SMALL:-}" ]; then
            # random weights hardly ever draw the end of an answer, so answers are short by the limit
            random_model && train=(--recipe "$recipe" --model "$folder/model" --rollout.max_new_tokens 1024
                --data.max_len 2048) || return 1
        fi
        # Left to the recipe, not a token would train: nothing is right, so no answer has a gradient.
        "$python" -m real_openrlhf.cli train "${train[@]}" --runs-dir "$folder/runs" --run-name run --max-steps 3 \
            --no-eval.at_start --no-eval.at_end --no-train.skip_weightless --algo.real.uniform_groups keep \
            --actor.adam.lr "$rate" && "$python" benchmarks/expected.py "$folder/runs/run"
        ;;
    *)
        echo "no such part: $1" >&2
        return 2
        ;;
    esac
}

"$python" -m real_openrlhf.cli doctor 2>/dev/null | head -30
skipped=() failed=()
for part in "${parts[@]}"; do
    echo "== $part"
    needed=(torch transformers deepspeed openrlhf)
    [ "$part" != head ] || needed=(torch)
    [ "$part" != setup ] || needed=()
    [ "$part" != train ] || needed+=(vllm)
    if ! missing=$(has "${needed[@]}"); then
        echo "skipped: not installed: $missing"
        skipped+=("$part")
        continue
    fi
    started=$SECONDS
    run_part "$part" || failed+=("$part")
    echo "-- $part: $((SECONDS - started)) s"
done
echo "${#parts[@]} parts, ${#skipped[@]} skipped (${skipped[*]:-none}), ${#failed[@]} failed (${failed[*]:-none})"
[ ${#failed[@]} -eq 0 ]
