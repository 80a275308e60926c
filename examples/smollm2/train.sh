#!/usr/bin/env bash
# What examples/scripts/train_real_smollm2.sh does in its environment: make model, questions and a warm-up once, then train.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}" # `train` gives a process one on CPU

task=${REAL_CACHE:-$HOME/.cache/real_openrlhf}/smollm2
if [ ! -e "$task/model" ]; then
    [[ " $* " != *" --dry-run "* ]] || { echo "$task has no model yet: the first run without --dry-run makes it" >&2; exit 2; }
    python examples/smollm2/smollm2.py "$task"
fi
source examples/smollm2/flags.sh
machine=("${smollm2_cpu[@]}")
[[ " $* " != *" --recipe qwen1.5b-1gpu "* ]] || machine=(--train.max_tokens_per_gpu 4096 --rollout.max_tokens_per_gpu 8192)
exec real-openrlhf train "${smollm2[@]}" "${machine[@]}" "$@"
