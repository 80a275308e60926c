#!/usr/bin/env bash
# The experiment of PREDICTIONS.md beside this script: `run.sh tune` (seeds 301 and 302, both rates), then `run.sh test`, at
# the rates that are written here by then; `run.sh publish` after each. After an interrupt the same command continues; a
# second shell shares the runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
python=${REAL_VENV:-.venv}/bin/python
out=comparison/shared-errors
[ "${1:-}" != publish ] || exec "$python" examples/results/publish.py $out/runs examples/results/shared-errors --compact
export OMP_NUM_THREADS=1 # a run's numbers depend on it, and two runs at once are five times slower without
methods=(real grpo dapo 'examples/objectives/noise.py:unbiased_bce --algo.real.set fp_rate=0.096 fn_rate=0')
best=(2e-4 2e-4 2e-4 2e-4 2e-4 2e-4 2e-4 2e-4) # by `tune`, of each method: with random errors, and with a kind's

[ "${1:-}" != test ] || [ ${#best[@]} = 8 ] || { echo "run.sh: error: after 'run.sh tune' write best=(...) into it" >&2 && exit 2; }
mkdir -p $out
errors() { "$python" examples/labels/noisy_reward.py reverse "$out/$1.jsonl" --wrong-to-right "${@:2}"; }
errors random 0.096
errors kind 1 --kind '0}'

runs=()
for number in "${!methods[@]}"; do
    for error in random kind; do
        case "${1:-}" in
        tune) rates=(2e-4 3e-4) ;;
        test) [ $error = random ] && rates=("${best[2 * number]}") || rates=("${best[2 * number + 1]}") ;;
        *) echo "usage: run.sh tune | test [any flag of compare], run.sh publish" >&2 && exit 2 ;;
        esac
        for rate in "${rates[@]}"; do
            runs+=("${methods[number]} --data $out/$error.jsonl --actor.adam.lr $rate")
        done
    done
done
[ "$1" = tune ] && seeds=(--first-seed 301 --seeds 2) || seeds=(--first-seed 303 --seeds 10)
bash examples/scripts/compare_cpu.sh --out $out --steps 30 --eval.steps 10 --eval.n_samples_per_prompt 4 --train.micro_batch_size 16 \
    --ds.zero_stage 2 --actor.max_norm 100 --reward.remote_url examples/labels/noisy_reward.py "${seeds[@]}" \
    --algos "${runs[@]}" "${@:2}" --grid train.batch_size 64
