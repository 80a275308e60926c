#!/usr/bin/env bash
# The experiments of PREDICTIONS.md beside this script: `run.sh tune` (three rates, seeds 401 and 402), then `run.sh test`, at
# what is written here by then; `run.sh publish` after each. The first is of CELLS="24 0 5", the second, by default, of a model
# that writes 24 rounds alone, and `run.sh again` is the third. After an interrupt the same command continues; a second shell
# shares the runs. Another machine goes on where records end: `run.sh again --first-seed 414 --seeds 13`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
python=${REAL_VENV:-.venv}/bin/python
out=comparison/scratchpad
export OMP_NUM_THREADS=1 # a run's numbers depend on it, and two runs at once are five times slower without
declare -A rate=([0]=4e-4 [5]=2e-4 [24]=2e-4 [alone]=1e-4) tau=([0]=0.19 [5]=0.057 [24]=0.065 [alone]=0.011) # by `tune`

case "${1:-}" in
tune) seeds=(--first-seed 401 --seeds 2) ;;
test) seeds=(--first-seed 403 --seeds 8) ;;
again) seeds=(--first-seed 411 --seeds 16) CELLS=alone ;;
publish) ;;
*) echo "usage: run.sh tune | test | again [any flag of compare], run.sh publish" >&2 && exit 2 ;;
esac

for cell in ${CELLS:-alone}; do
    if [ "$1" = publish ]; then
        "$python" examples/results/publish.py $out/$cell/runs examples/results/scratchpad/$cell --compact
        continue
    fi
    runs=('real --actor.adam.lr 1e-4' 'real --actor.adam.lr 2e-4' 'real --actor.adam.lr 4e-4')
    if [ "$1" = test ]; then
        at="--actor.adam.lr ${rate[$cell]:?after 'run.sh tune' write rate and tau into run.sh}"
        runs=("real $at" "real $at --algo.real.tau ${tau[$cell]}" "real_fixed_weights $at")
    fi
    if [ "$1" = again ]; then # no update is clipped
        runs=('real --actor.adam.lr 1e-4 --algo.real.tau 0.011 --actor.max_norm 4545' 'real_fixed_weights --actor.adam.lr 1e-4')
    fi
    task=$out/task data=$out/task/$cell rounds=(0 5 24)
    [ $cell != alone ] || task=$out/task-alone data=$out/task-alone/24 rounds=(24)
    mkdir -p $out
    (
        flock 9 # of two shells one makes it
        [ -e $task/model/tokenizer.json ] || "$python" examples/results/scratchpad/scratchpad.py $task --rounds "${rounds[@]}"
    ) 9> $out/making
    bash examples/scripts/compare_cpu.sh --out $out/$cell --model $task/model --data $data/train.jsonl \
        --eval.dataset $data/eval.jsonl --rollout.max_new_tokens 140 --data.max_len 160 --steps 20 --eval.steps 5 \
        --eval.n_samples_per_prompt 4 --rollout.batch_size 16 --train.batch_size 32 --train.micro_batch_size 16 \
        --ds.zero_stage 2 --actor.max_norm 100 "${seeds[@]}" --algos "${runs[@]}" "${@:2}"
done
