#!/usr/bin/env bash
# What examples/scripts/train_real_smollm2.sh does in its environment: make model, questions and a warm-up once, then train.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}" # `train` gives a process one on CPU

task=${REAL_CACHE:-$HOME/.cache/real_openrlhf}/smollm2
from=$task
if [ ! -e "$task/model" ] && [[ " $* " == *" --dry-run "* ]]; then # the tiny model's task takes its place
    from=$(python -c 'from real_openrlhf.training.tiny_task import task_folder; print(task_folder())')
elif [ ! -e "$task/model" ]; then
    python examples/smollm2/smollm2.py "$task"
fi
# Answers are short, so most of the time goes into prompts. 3e-5 was the best of three rates for REAL and for GRPO
# (examples/results/archive).
flags=(--model "$from/model" --data "$from/train.jsonl" --eval.dataset "$from/eval.jsonl"
    --reward.remote_url examples/gym/gym_reward.py --data.apply_chat_template
    --rollout.batch_size 8 --train.batch_size 32 --rollout.max_new_tokens 16 --data.max_len 160
    --rollout.temperature 1.0 --eval.temperature 1.0 --eval.n_samples_per_prompt 2 --eval.steps 10
    --actor.adam.lr 3e-5 --actor.max_norm 1 --max-steps 30 --ckpt.save_steps 10 --ds.zero_stage 2)
machine=(--train.micro_batch_size 32 --rollout.micro_batch_size 32 --ds.attn_implementation sdpa)
[[ " $* " != *" --recipe qwen1.5b-1gpu "* ]] || machine=(--train.max_tokens_per_gpu 4096 --rollout.max_tokens_per_gpu 8192)
[ "$from" != "$task" ] || exec real-openrlhf train "${flags[@]}" "${machine[@]}" "$@"
made="what is made before training"
echo "note: $made is in $task, of a download of 93 MB. On two cores training takes 11 GB of memory and" \
    "5 to 18 minutes with AMX, 0.5 to 3 hours without"
real-openrlhf train "${flags[@]}" "${machine[@]}" "$@" |
    sed "s#$from#$task#g; /^note: .*memory per /d; /$made/!s/^Flags OK. Not checked: /&$made, /"
