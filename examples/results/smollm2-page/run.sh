#!/usr/bin/env bash
# The experiment of PREDICTIONS.md beside this script: `run.sh`, then `run.sh publish`. After an interrupt the same command
# continues; a second shell shares the runs, and another machine makes those that are not published. ALGOS=real makes REAL's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
runs=comparison/smollm2-page/runs
if [ "${1:-}" = publish ]; then
    exec "${REAL_VENV:-.venv}/bin/python" examples/results/publish.py $runs examples/results/smollm2-page --compact
fi
export OMP_NUM_THREADS=1 # two runs at a time; alone a run is a third faster with two
mkdir -p $runs
for seed in 1 2 3 4 5; do
    for algo in ${ALGOS:-real grpo}; do
        name=$algo-s$seed
        (
            flock -n 9 || exit 0 # another shell's
            [ ! -e $runs/$name/.finished ] || exit 0
            ! grep -qs "^$name," examples/results/smollm2-page/runs.csv || exit 0 # it ran on another machine
            bash examples/scripts/train_real_smollm2.sh --algo $algo --seed $seed --eval.steps 5 --runs-dir $runs --run-name $name --resume
        ) 9> $runs/$name.lock
    done
done
