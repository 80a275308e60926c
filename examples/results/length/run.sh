#!/usr/bin/env bash
# The runs of PREDICTIONS.md beside this script, to comparison/length: REAL at 9, 64 and 256 tokens, a seed after the other.
# After an interrupt the same command continues. 2 GB of disk a run.
#   run.sh MODEL      MODEL: `untrained` in the folder that examples/smollm2/smollm2.py makes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
here=examples/results/length
data=$PWD/comparison/length/data
"${REAL_VENV:-.venv}/bin/python" $here/letters.py "$data"
export OMP_NUM_THREADS=2
for seed in 2 3 4; do
    for tokens in 9 64 256; do
        bash examples/scripts/setup_env.sh run cpu real-openrlhf train --resume \
            --runs-dir comparison/length/runs --run-name "real-tokens-$tokens-s$seed" --seed "$seed" \
            --model "$1" --data "$data/train.jsonl" --eval.dataset "$data/eval.jsonl" --no-eval.at_start \
            --eval.steps 100 --eval.n_samples_per_prompt 1 --reward.remote_url $here/letters.py --data.apply_chat_template \
            --rollout.max_new_tokens "$tokens" --data.max_len 320 --rollout.batch_size 4 --rollout.n_samples_per_prompt 8 \
            --train.batch_size 16 --train.micro_batch_size 8 --rollout.micro_batch_size 8 --max-steps 5 \
            --ckpt.save_steps 100 --ds.zero_stage 2 --ds.attn_implementation sdpa --rollout.temperature 1.0 \
            --actor.adam.lr 3e-5 --actor.max_norm 100 --algo.real.kl_old_coef 1e-12
    done
done
