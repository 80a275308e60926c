#!/usr/bin/env bash
# The experiment of PREDICTIONS.md beside this script: `run.sh`, `run.sh publish`. After an interrupt the same command continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
runs=comparison/smollm2-page/runs
if [ "${1:-}" = publish ]; then
    exec "${REAL_VENV:-.venv}/bin/python" examples/results/publish.py $runs examples/results/smollm2-page --compact
fi
for seed in 1 2 3 4 5; do
    for algo in real grpo; do
        [ ! -e $runs/$algo-s$seed/.finished ] || continue
        bash examples/scripts/train_real_smollm2.sh --algo $algo --seed $seed --eval.steps 5 --runs-dir $runs --run-name $algo-s$seed --resume
    done
done
