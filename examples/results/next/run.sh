#!/usr/bin/env bash
# This is how the records were made, by the code that each of them names (`tree`). Today's code lacks some of these flags:
# check that tree out to run one again. New runs are published by ../publish.py.
# The next experiments, one block at a time, in the order of PREDICTIONS.md beside this script. Commit first.
#   bash examples/results/next/run.sh BLOCK [any flag of compare_cpu.sh]     # all: every block, most information an hour first
# Runs go to comparison/next/BLOCK-MACHINE, seed by seed, all arms of a seed on one machine. After an interrupt the same
# command continues. On another machine set FIRST to the first seed that is not done, and tune there again: a machine
# is a block of the report, which subtracts inside blocks only. LAST ends early. SMOKE=1 tries every cell for two steps.
# A second shell at the same time: its own FIRST and LAST, and LANE=1, with which nothing is published. RATES=done skips
# the tuning, AGES='0 1' names the ages of `old`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
order=(ratio group-weights old ratio-old table pretrained)
block="${1:?which block? ${order[*]}, or all}"
shift
python="${REAL_VENV:-.venv}/bin/python"
machine=$(grep -E -m2 '^(model name|flags|CPU part|Features)' /proc/cpuinfo | sha256sum | cut -c1-8)
if [ "$block" = all ]; then
    for one in "${order[@]}"; do bash "$0" "$one" "$@"; done
    exit
fi
folder() { echo "comparison/next/${SMOKE:+smoke-}$1-$machine"; }
# No update is clipped, so that methods have steps of the size that Adam gives; a dead run ends at once.
sweep() { # NAME, flags of compare
    local out
    out=$(folder "$1") && shift
    bash examples/scripts/compare_cpu.sh --out "$out" --steps 30 --eval.steps 5 --eval.n_samples_per_prompt 4 \
        --ds.zero_stage 2 --actor.max_norm 100 --train.micro_batch_size 16 \
        --train.hopeless_steps 8 --train.hopeless end "$@" ${SMOKE:+--steps 2 --eval.steps 2}
}
seed_by_seed() { # NAME FIRST LAST, flags of compare
    local name=$1 first=${FIRST:-$2} last=${LAST:-$3} seed
    shift 3
    [ -z "${SMOKE:-}" ] || last=$first
    for ((seed = first; seed <= last; seed++)); do
        sweep "$name" --first-seed "$seed" --seeds 1 "$@" || { code=$? && [[ ! $code =~ ^1(29|30|43)$ ]]; }
    done
    # once more over all seeds, which are finished, to publish them together
    publish "$name" --first-seed "$first" --seeds $((last - first + 1)) "$@"
}
publish() { # NAME, flags of compare
    local name=$1
    shift
    [ -n "${SMOKE:-}${LANE:-}" ] || sweep "$name" "$@" --publish "examples/results/next/$name-$machine" --compact
}
tuned() { # NAME SEEDS, flags of compare with --grid: then `best` has an arm a line, each with its best rate
    local name=$1 seeds=$2
    shift 2
    best=("${arms[@]}")
    [ -z "${SMOKE:-}" ] || return 0
    [ -n "${RATES:-}" ] || sweep "$name" --seeds "$seeds" "$@"
    publish "$name" --seeds "$seeds" "$@"
    mapfile -t best < <("$python" examples/results/best_rates.py --over-training "--seeds=$seeds" --any-updates "$(folder "$name")/runs")
}
sampler='--algo.real.set score=log_ratio_rollout'
corrected='--algo.advantage.is_correction_level token --algo.advantage.is_correction_mode clip'
corrected+=' --algo.advantage.is_correction_threshold 2'
ratios=() # GRPO's surrogate without its KL
for side in both right wrong none; do ratios+=("real --algo.real.objective examples/objectives/ratios.py:ratio_$side"); done
waits() { # batches that wait: how old an answer may be
    echo --no-train.colocate_all --vllm.num_engines 1 --train.async_enable --train.async_queue_size "$1" \
        --train.hopeless fail --train.hopeless_steps 0
}
others=()
for name in oapl vespo rence; do others+=("real --algo.real.objective examples/objectives/$name.py:$name"); done
case "$block" in
ratio) # 16 updates: what survives, and is it the ratio in GRPO's gradient that kills?
    seed_by_seed ratio 25 46 --train.batch_size 16 --actor.adam.lr 3e-4 \
        --algos real real_constant real_balanced grpo gspo cispo reinforce "${ratios[@]}" "$@"
    ;;
group-weights) # one update a step: z is 0, so REAL differs from others by the weights of groups alone
    flags=(--skill 0.05 --steps 40 --train.batch_size 256)
    arms=(real real_balanced grpo reinforce)
    tuned group-weights-rates 2 "${flags[@]}" --algos "${arms[@]}" --grid actor.adam.lr 3e-4 6e-4 1.2e-3 "$@"
    seed_by_seed group-weights 51 62 "${flags[@]}" --algos "${best[@]}" "$@"
    ;;
old) # answers of several steps ago: tau or anchor, and the losses made for them, each at its own rate
    arms=(real 'real --algo.real.tau 0.1' "real $sampler" "real $sampler --algo.real.tau 0.1" "grpo $corrected" cispo "${others[@]}")
    # shellcheck disable=SC2046 # words, on purpose
    tuned old-rates 2 $(waits 4) --algos "${arms[@]}" --grid actor.adam.lr 5e-5 1e-4 2e-4 "$@"
    [ -z "${SMOKE:-}" ] || AGES='4 0'
    for age in ${AGES:-4 0 1 8 2}; do # the one that is cut first runs last
        # shellcheck disable=SC2046
        seed_by_seed "old-$age" 71 $((age == 4 ? 80 : 75)) $([ "$age" = 0 ] || waits "$age") --algos "${best[@]}" "$@"
    done
    ;;
ratio-old) # the ratio again, with old answers
    # shellcheck disable=SC2046
    seed_by_seed ratio-old 81 96 $(waits 4) --actor.adam.lr 1e-4 --algos "${ratios[@]}" "$@"
    ;;
table) # today's table: eight methods tuned on today's code, then ten seeds on each of two starting models
    arms=(real real_constant real_balanced grpo dapo gspo cispo reinforce)
    tuned table-rates 3 --algos "${arms[@]}" --grid actor.adam.lr 3e-5 1e-4 2e-4 3e-4 6e-4 "$@"
    seed_by_seed table 61 70 --algos "${best[@]}" "$@"
    seed_by_seed table-hard 61 70 --skill 0.05 --algos "${best[@]}" "$@"
    ;;
pretrained) # SmolLM2 on questions that it solves now and then: level with REAL, or not
    questions="$PWD/comparison/mixed.jsonl"
    place=$("$python" examples/results/smollm2/short_warm_up.py | tail -n 1)
    mkdir -p comparison
    [ -s "$questions" ] || "$python" examples/results/smollm2/solvable.py "$questions" "$place" 320
    flags=(--recipe cpu-smollm2 --train.micro_batch_size 32 --eval.n_samples_per_prompt 2 --steps 10 --eval.steps 2
        --actor.model_name_or_path "$place/model" --data.prompt_dataset "$questions" --eval.dataset "$place/eval.jsonl"
        --rollout.batch_size 16 --no-eval.at_start --ckpt.save_steps 100)
    seed_by_seed pretrained 16 23 "${flags[@]}" --actor.adam.lr 3e-5 --algos real grpo dapo gspo real_constant "$@" # rate of `smollm2-mixed`
    ;;
*)
    echo "no block $block: ${order[*]}" >&2
    exit 2
    ;;
esac
