#!/usr/bin/env bash
# The experiment of PREDICTIONS.md beside this script: `run.sh PART [any flag of compare]`. Runs go to comparison/endings, seed by seed;
# after an interrupt the same command continues. A second shell may run another part, or the same one, at the same time.
#   rates               GRPO without its KL at the learning rates beside GRPO's own, seeds 1 to 3
#   4 RATE, 16 RATE     the test with 4 or 16 updates, seeds 201 to 232; RATE: the best one of GRPO without its KL there
#   publish             all runs that ended, as records beside this script; then `endings.py` prints the rates and the tables
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
part=${1:?rates, 4, 16 or publish} && shift
python=${REAL_VENV:-.venv}/bin/python
declare -A batch=([4]=64 [16]=16) real=([4]=2e-4 [16]=1e-4) grpo=([4]=3e-4 [16]=1e-4)
no_kl='grpo --algo.kl.init_coef 0'
sweep() { # UPDATES, flags of compare
    bash examples/scripts/compare_cpu.sh --out comparison/endings --steps 30 --eval.steps 2 --eval.n_samples_per_prompt 4 \
        --train.micro_batch_size 16 --ds.zero_stage 2 --actor.max_norm 100 "${@:2}" \
        --grid train.batch_size "${batch[$1]}" # a grid of one, for the names of the runs
}
case "$part" in
rates)
    sweep 4 --seeds 3 --algos "$no_kl" --grid actor.adam.lr 1e-4 2e-4 3e-4 6e-4 "$@"
    sweep 16 --seeds 3 --algos "$no_kl" --grid actor.adam.lr 5e-5 1e-4 1.5e-4 "$@"
    ;;
4 | 16)
    own=${1:?the best rate of GRPO without its KL} && shift
    arms=("real --actor.adam.lr ${real[$part]}" "grpo --actor.adam.lr ${grpo[$part]}" "$no_kl --actor.adam.lr $own")
    # is a difference from GRPO the KL, or the rate?
    [ "$own" = "${grpo[$part]}" ] || arms+=("$no_kl --actor.adam.lr ${grpo[$part]}")
    sweep "$part" --first-seed 201 --seeds 32 --algos "${arms[@]}" "$@"
    ;;
publish) "$python" examples/results/publish.py comparison/endings/runs examples/results/endings --compact ;;
*) echo "no part $part: rates, 4, 16, publish" >&2 && exit 2 ;;
esac
