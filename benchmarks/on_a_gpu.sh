#!/usr/bin/env bash
# Everything that only a GPU can show, on one GPU: bash benchmarks/on_a_gpu.sh [PART ...]
#   exact     REAL's gradient through the attention kernel (and flash-attn's, if it is installed), packing and bf16,
#             beside float64; with logits and without. Expected: at most 1.25 times as far off as plain bf16
#   head      memory and time of the head without logits, 4,096 tokens x 152,064 words at the width of 7B.
#             Expected: at most 0.35 of the memory with logits, and 1.5 of the time
#   kernels   attention, head and Adam, each beside float64
#   step      the actor's step at 1.5B shape with real and grpo, 8 prompts per step: seconds, memory, waits of the host; two
#             minutes on an H100 by arithmetic. Expected: no more memory than the estimate
#   train     three steps of the recipe on random weights, vLLM and all, once with each of vLLM's model runners; every
#             answer trains, at a high learning rate. Expected: vLLM follows the policy, with the second as with the first
#   hundred   100 steps of 32 prompts with REAL, its fixed-weight control and GRPO on the real model, with AIME24 before
#             and after: hours in docs/use/gpu.md. Expected: what benchmarks/README.md predicts. PROMPTS=128 takes the
#             paper's batch of prompts, in about three times as long; STEPS=N other steps; BENCHMARKS=FILE more problems
#   setup     a new environment by setup_env.sh: its time and size; downloads it all, so it is made only when named
#   first-day doctor and all of these but setup, each with a time limit, then a pack to send: OUT.tar.gz. The same command
#             continues after a stop. OUT=FOLDER is where (default: first-day)
# The recipe is qwen1.5b-1gpu; on a GPU below 60 GB lora-24gb, and `exact` has shorter answers: 17 GB
# in place of 43, by arithmetic. GPU_GB=N says the size.
# Each part says `ok` or `DIFFERS`, and fails where something differs. One that cannot run here is skipped, with the reason.
# SMALL=1 runs these parts small on CPU, without GRPO and vLLM's second model runner; SMALL=all with that.
# Uses the Python of the environment for GPUs, or else the one on PATH. Send us what it prints.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case " $* " in
*" --help "* | *" -h "*) sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' benchmarks/on_a_gpu.sh && exit ;;
esac
for part in "$@"; do # before anything runs
    case $part in
    exact | head | kernels | step | train | hundred | setup | doctor) ;;
    first-day) [ $# -eq 1 ] || { echo "first-day has all parts: give it alone" >&2 && exit 2; } ;;
    *) echo "no such part: $part. --help lists them" >&2 && exit 2 ;;
    esac
done
python=${PYTHON:-$(bash examples/scripts/setup_env.sh where "$([ -n "${SMALL:-}" ] && echo cpu || echo gpu)")/bin/python}
[ -x "$python" ] || python=python3
parts=("$@")
[ $# -gt 0 ] || parts=(exact head kernels step train)
model=deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B

if [ -n "${SMALL:-}" ]; then
    export DS_ACCELERATOR=cpu TORCHDYNAMO_DISABLE=1
    recipe=cpu-like-gpu rate=1e-4 exact=(--device cpu) setup=cpu step=(--algos real)
    head=(--tokens 64 --vocabulary 5000 --rounds 1 --ways plain ours liger)
    train=(--rollout.batch_size 4 --train.batch_size 16)
    steps=1 algos=(real real_fixed_weights)
    hundred=(--rollout.batch_size 8 --train.batch_size 64 --eval.n_samples_per_prompt 1)
    [ -z "${BENCHMARKS:-}" ] || hundred+=("--eval-flags=--k 2 --max-new-tokens 14 --think optional")
else
    memory='import torch; print(torch.cuda.get_device_properties(0).total_memory // 10**9)'
    gb=${GPU_GB:-$("$python" -c "$memory" 2>/dev/null)}
    gb=${gb:-80}
    if [ "$gb" -lt 22 ]; then
        echo "this GPU has $gb GB, and the smallest recipe here is for 24 GB: nothing was run" >&2
        exit 2
    fi
    recipe=qwen1.5b-1gpu rate=1e-4 exact=() setup=gpu head=(--device cuda --width 3584) step=() steps=${STEPS:-100}
    algos=(real real_fixed_weights grpo)
    [ "$gb" -ge 60 ] || recipe=lora-24gb rate=1e-3 exact=(--longest 192)
    hundred=(--rollout.batch_size "${PROMPTS:-32}" --train.batch_size $((${PROMPTS:-32} * 2))) # four updates per step
    echo "a GPU of $gb GB: step and train take recipe $recipe, exact takes ${exact[*]:-its longest answers}"
fi

has() { # has PACKAGE...: names those that are missing
    "$python" -c 'import sys
from importlib.util import find_spec
missing = [name for name in sys.argv[1:] if not find_spec(name)]
print(*missing)
sys.exit(bool(missing))' "$@"
}

cli() { "$python" -m real_openrlhf.cli "$@"; }

three_steps() { # three_steps RUNNER: 0 or 1, the first or the second of vLLM's model runners
    local python=("$python")
    [ -d "$folder/three/v$1" ] && rm -r "${folder:?}/three/v$1" # of a call that was stopped
    local more=()
    if [ -n "${SMALL:-}" ]; then # the engine may sleep on a CPU too; V2's kernels are interpreted; forks of another server
        python=(env -u REAL_WORKER_PYTHON "PYTHONPATH=$PWD/tests/gpu_engine:${PYTHONPATH:-}")
        [ "$1" = 0 ] || python+=(TRITON_INTERPRET=1)
        python+=("$(bash examples/scripts/setup_env.sh where cpu)/bin/python" tests/forked_workers.py sh -c '"$PYTHON" "$@"' -)
        more=(--vllm.enable_sleep)
    fi
    # Left to the recipe, not a token would train: nothing is right, so no answer has a gradient.
    VLLM_USE_V2_MODEL_RUNNER=$1 "${python[@]}" -m real_openrlhf.cli train --recipe "$recipe" "${train[@]}" --runs-dir "$folder/three" --run-name "v$1" \
        --max-steps 3 --no-eval.at_start --no-eval.at_end --no-train.skip_zero_gradient \
        --algo.real.uniform_groups keep --actor.adam.lr "$rate" "${more[@]}"
}

# What a part needs beside its packages: prints what is missing, nothing if all is there.
lacks() {
    case $1 in
    kernels) has torch real_openrlhf ;;
    exact) has torch transformers deepspeed openrlhf ;;
    head) has torch deepspeed openrlhf ;;
    step) has torch transformers deepspeed openrlhf ray vllm ;;
    train) has torch transformers deepspeed openrlhf ray vllm ;;
    hundred)
        has torch transformers deepspeed openrlhf ray vllm || return
        [ -n "${SMALL:-}" ] || "$python" -c "from huggingface_hub import snapshot_download as get; get('$model')" \
            >/dev/null 2>"$folder/hub" || { echo "the model: $(tail -n 1 "$folder/hub" | cut -c1-200)" && return 1; }
        ;;
    esac
}

run_part() {
    case $1 in
    doctor) cli doctor ;;
    setup)
        REAL_VENV="$folder/venv" bash examples/scripts/setup_env.sh "$setup" && du -sh "$folder/venv"
        ;;
    exact) "$python" benchmarks/packed_exactness.py "${exact[@]}" ;;
    head) "$python" benchmarks/head_memory.py "${head[@]}" ;;
    kernels) "$python" benchmarks/our_kernels.py ;;
    step) "$python" benchmarks/gpu_step.py --recipe "$recipe" --prompts 8 --steps 1 "${step[@]}" ;;
    train)
        if [ -z "${SMALL:-}" ]; then
            # Without a network: random weights and a task made here. Random weights hardly ever draw the end of an
            # answer, so answers are short by the limit.
            "$python" benchmarks/gpu_step.py --recipe "$recipe" --folder "$folder/model" || return 1
            train=(--model "$folder/model" --data "$folder/model/train.jsonl" --eval.dataset "$folder/model/eval.jsonl"
                --rollout.max_new_tokens 1024 --data.max_len 2048)
        fi
        if [ "${SMALL:-}" = 1 ]; then
            echo "skipped: V2, which takes minutes to interpret: SMALL=all"
            three_steps 0 && "$python" benchmarks/expected.py "$folder/three/v0"
            return
        fi
        three_steps 1 && "$python" benchmarks/expected.py "$folder/three/v1" || return 1
        three_steps 0 && "$python" benchmarks/expected.py "$folder/three/v0" "$folder/three/v1"
        ;;
    hundred)
        [ -z "${SMALL:-}" ] || echo "skipped: GRPO: the predictions are of the other two"
        cli compare --recipe "$recipe" --algos "${algos[@]}" --seeds 1 --steps "$steps" --benchmarks "${BENCHMARKS:-none}" \
            --out "$folder" "${hundred[@]}" && "$python" benchmarks/expected.py --hundred "$folder"
        ;;
    esac
}

parts_of_the_day() { # each part by itself, so that one that hangs or breaks costs only its own time
    local part limit status=0
    for part in "$@"; do
        limit=${part#*:} part=${part%:*}
        if [ -e "$folder/$part.done" ]; then
            echo "== $part: done before"
        elif OUT=$folder timeout -k 60 "$limit" bash benchmarks/on_a_gpu.sh "$part" 2>&1 | tee "$folder/$part.log"; then
            grep -q '^skipped: missing' "$folder/$part.log" || touch "$folder/$part.done"
        else
            status=1
        fi
    done
    return $status
}

first_day() {
    mkdir -p "$folder"
    { git rev-parse HEAD; date -u; nvidia-smi; lscpu; "$python" -m pip freeze; } >"$folder/machine.txt" 2>&1
    local status=0 short=(doctor:300 exact:1200 head:1200 kernels:1200 step:1800 train:5400) long=hundred:180000
    if [ -n "${SMALL:-}" ]; then # each of two cores takes a half
        parts_of_the_day "${short[@]}" &
        parts_of_the_day "$long" || status=1
        wait $! || status=1
    else
        parts_of_the_day "${short[@]}" "$long" || status=1
    fi
    # records, curves and logs, without weights
    (cd "$folder" && find . -maxdepth 3 -type f -size -20M ! -path './model/*' ! -name '*.safetensors') |
        tar czf "$folder.tar.gz" -C "$folder" -T - && echo "send us $folder.tar.gz ($(du -h "$folder.tar.gz" | cut -f1))"
    return $status
}

if [ "${parts[*]}" = first-day ] && ! has torch vllm >/dev/null; then
    mode=$([ -n "${SMALL:-}" ] && echo cpu || echo gpu)
    echo "there is no environment to run in: make it with 'bash examples/scripts/setup_env.sh $mode'" >&2
    exit 2
fi
if [ "${parts[*]}" = first-day ] && [ -n "${SMALL:-}" ] && [ -z "${REAL_FORKS_START_FORKS:-}" ]; then
    exec "$python" tests/forked_workers.py bash benchmarks/on_a_gpu.sh first-day # nine starts of the stack: half the time
fi
if [ "${parts[*]}" = first-day ]; then
    folder=$(realpath -m "${OUT:-first-day}")
    first_day
    exit
fi
if [ -n "${OUT:-}" ]; then
    folder=$(realpath -m "$OUT") && mkdir -p "$folder"
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cli doctor 2>/dev/null | head -30
fi
skipped=() failed=()
for part in "${parts[@]}"; do
    echo "== $part"
    if ! missing=$(lacks "$part"); then
        echo "skipped: missing: $missing"
        skipped+=("$part")
        continue
    fi
    started=$SECONDS
    run_part "$part" || failed+=("$part")
    echo "-- $part: $((SECONDS - started)) s"
done
echo "${#parts[@]} parts, ${#skipped[@]} skipped (${skipped[*]:-none}), ${#failed[@]} failed (${failed[*]:-none})"
[ ${#failed[@]} -eq 0 ]
