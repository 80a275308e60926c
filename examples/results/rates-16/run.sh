#!/usr/bin/env bash
# The experiment of PREDICTIONS.md beside this script: `run.sh PART [any flag of compare]`. Runs go to comparison/rates-16; after an
# interrupt the same command continues. A second shell may run the same part at the same time: each run folder has a lock.
#   first                     seed 1, every arm at five learning rates
#   more RATE... -- ARM...    seeds 1 to 3 of chosen arms at chosen rates
#   test 'ARM --actor.adam.lr RATE'...   seeds 91 to 106
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
part=${1:?first, more or test} && shift
sweep() {
    bash examples/scripts/compare_cpu.sh --out comparison/rates-16 --steps 30 --eval.steps 5 --eval.n_samples_per_prompt 4 \
        --train.batch_size 16 --train.micro_batch_size 16 --ds.zero_stage 2 --actor.max_norm 100 "$@"
}
own='real --algo.real.objective examples/objectives'
none="$own/ratios.py:ratio_none"
arms=(real real_constant "$own/controls.py:balanced" grpo gspo 'gspo --actor.eps_clip_low_high 0.02 0.03'
    'gspo --actor.eps_clip_low_high 0.2 0.3' "$none" "$none --algo.real.set low=1e9 high=1e9")
case "$part" in
first) sweep --seeds 1 --algos "${arms[@]}" --grid actor.adam.lr 5e-5 1e-4 1.5e-4 2e-4 3e-4 "$@" ;;
more)
    rates=()
    while [ "$1" != -- ]; do rates+=("$1") && shift; done
    sweep --seeds 3 --algos "${@:2}" --grid actor.adam.lr "${rates[@]}"
    ;;
test) sweep --first-seed 91 --seeds 16 --algos "$@" ;;
*) echo "no part $part: first, more, test" >&2 && exit 2 ;;
esac
