#!/usr/bin/env bash
# What examples/scripts/train_real_smollm2.sh does in its environment: make model, questions and a warm-up once, then train.
set -euo pipefail
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}" # `train` gives a process one on CPU

task=${REAL_CACHE:-$HOME/.cache/real_openrlhf}/smollm2
if [ ! -e "$task/model" ]; then
    [[ " $* " != *" --dry-run "* ]] || { echo "$task has no model yet: the first run without --dry-run makes it" >&2; exit 2; }
    python examples/smollm2/smollm2.py "$task"
fi
# Answers are short, so most of the time goes into prompts. 3e-5 was the best of three rates for REAL and for GRPO
# (examples/results/archive).
flags=(--model "$task/model" --data "$task/train.jsonl" --eval.dataset "$task/eval.jsonl"
    --reward.remote_url examples/gym/gym_reward.py --data.apply_chat_template
    --rollout.batch_size 8 --train.batch_size 32 --rollout.max_new_tokens 16 --data.max_len 160
    --rollout.temperature 1.0 --eval.temperature 1.0 --eval.n_samples_per_prompt 2 --eval.steps 10
    --actor.adam.lr 3e-5 --actor.max_norm 1 --max-steps 30 --ckpt.save_steps 10 --ds.zero_stage 2)
machine=(--train.micro_batch_size 32 --rollout.micro_batch_size 32 --ds.attn_implementation sdpa)
[[ " $* " != *" --recipe qwen1.5b-1gpu "* ]] || machine=(--train.max_tokens_per_gpu 4096 --rollout.max_tokens_per_gpu 8192)
exec real-openrlhf train "${flags[@]}" "${machine[@]}" "$@"
