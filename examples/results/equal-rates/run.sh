#!/usr/bin/env bash
# The experiment of PREDICTIONS.md beside this script: `run.sh [any flag of compare]`, `run.sh publish`. Runs go to
# comparison/equal-rates, seed by seed; after an interrupt the same command continues, and a second shell shares the work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
if [ "${1:-}" = publish ]; then
    exec "${REAL_VENV:-.venv}/bin/python" examples/results/publish.py comparison/equal-rates/runs examples/results/equal-rates --compact
fi
export OMP_NUM_THREADS=1 # a run's numbers depend on it, and two runs at once are five times slower without
bash examples/scripts/compare_cpu.sh --out comparison/equal-rates --steps 30 --eval.steps 2 --eval.n_samples_per_prompt 4 \
    --train.micro_batch_size 16 --ds.zero_stage 2 --actor.max_norm 100 --first-seed 201 --seeds 16 \
    --algos 'real --actor.adam.lr 2e-4' 'grpo --actor.adam.lr 2e-4' 'real --actor.adam.lr 3e-4' 'grpo --actor.adam.lr 3e-4' "$@" --grid train.batch_size 64
