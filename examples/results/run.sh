#!/usr/bin/env bash
# This is how the records were made, by the code that each of them names (`tree`). Today's code lacks some of these flags:
# check that tree out to run one again. New runs are published by publish.py.
# Runs one of the campaigns of archive/README.md, writes its report, and puts what is committed here beside this script:
#   bash examples/results/run.sh NAME [any flag of compare_cpu.sh]    # without a name it lists them
# The runs go to comparison/NAME. After an interrupt the same command continues. A run is the same, bit for bit, on one
# machine, but for those of stale. Commit first: runs of uncommitted code are not published. To replace a campaign,
# remove its three files and commit that too. Those in rates/ and weights/ stay: pages read a new folder NAME first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
campaigns=$(sed -nE 's/^([a-z0-9]+[a-z0-9 |-]*)\) .*#.*/\1/p' "$0" | sed 's/ | /\n/' | paste -sd, | sed 's/,/, /g')
name="${1:?which campaign? $campaigns}"
shift
# A run that is dead ends at once. On one rank ZeRO-2 computes what ZeRO-3 does, faster. No update is clipped while a run
# is sound: at a norm of 1 nearly all of REAL's are, and few of GRPO's.
sweep() {
    bash examples/scripts/compare_cpu.sh --out "comparison/$name" --eval.steps 10 \
        --steps 30 --eval.n_samples_per_prompt 4 --ds.zero_stage 2 --actor.max_norm 100 \
        --train.micro_batch_size 16 --train.hopeless_steps 8 --train.hopeless end "${every_rollout[@]}" "$@"
}
# The committed runs of all campaigns but tune are older than --train.skip_weightless and trained every rollout.
every_rollout=(--no-train.skip_weightless)
# The last command of a campaign publishes all its runs. Before, the files here stay as they were committed.
published() { sweep --publish "examples/results/$name" "$@"; }
rates=(3e-5 1e-4 3e-4 1e-3) # at 3e-3 every method of the map is dead
at_best_rates() { # runs that varied the rate, then flags of compare
    local best runs=()
    while [[ "${1:-}" == [a-z]*/* ]]; do runs+=("$1") && shift; done
    mapfile -t best < <("${REAL_VENV:-.venv}/bin/python" examples/results/best_rates.py "${runs[@]}")
    sweep --first-seed 11 --seeds 5 --algos "${best[@]}" "$@"
}
sampler='--algo.real.set score=log_ratio_rollout'
four_wait=(--no-train.colocate_all --vllm.num_engines 1 --train.async_enable --train.async_queue_size 4
    --train.hopeless fail --train.hopeless_steps 0)
smollm2=(--recipe cpu-smollm2 --train.micro_batch_size 32 --eval.n_samples_per_prompt 2)
short_warm_up() { "${REAL_VENV:-.venv}/bin/python" examples/results/smollm2/short_warm_up.py | tail -n 1; }
case "$name" in
map) # rate x updates a rollout (1, 4, 16) x method: where each works and where it breaks
    six=(real real_constant real_balanced grpo cispo gspo)
    sweep --seeds 2 --algos "${six[@]}" --grid actor.adam.lr "${rates[@]}" 3e-3 --grid train.batch_size 256 64 16 "$@"
    # three more where the first two disagree
    sweep --first-seed 3 --seeds 3 --algos "${six[@]}" --grid actor.adam.lr 3e-4 --grid train.batch_size 64 16 "$@"
    published --compact --first-seed 3 --seeds 3 --algos "${six[@]}" --grid actor.adam.lr 1e-3 \
        --grid train.batch_size 64 "$@"
    ;;
tune-rates) # four rates for two methods that the map lacks
    published --compact --seeds 2 --algos dapo reinforce --grid actor.adam.lr "${rates[@]}" "$@"
    ;;
tune) # every method at its best rate of four on seeds 11 to 15; the rates of most are those of the two campaigns before
    every_rollout=()
    tried=(--seeds 2 --algos listwise conspo maxrl --grid actor.adam.lr "${rates[@]}" "$@")
    name=tune-losses sweep "${tried[@]}"
    at_best_rates examples/results/{map,rates/tune-rates} comparison/tune-losses/runs "$@" --publish examples/results/tune
    name=tune-losses published --compact "${tried[@]}"
    ;;
tune-hard | tune-sums) # the same on other tasks: four rates on seed 1, then the best one on seeds 11 to 15
    methods=(real real_constant real_balanced grpo) && grid=(1e-4 2e-4 4e-4 8e-4)
    case "$name" in
    tune-hard) flags=(--steps 40 --skill 0.05) && methods+=(reinforce) ;;
    tune-sums) flags=(--steps 20 --recipe cpu-sums) && grid+=(5e-5) ;;
    esac
    tried=("${flags[@]}" --seeds 1 --algos "${methods[@]}" --grid actor.adam.lr "${grid[@]}" "$@")
    name=$name-rates sweep "${tried[@]}"
    if [ "$name" = tune-hard ]; then
        at_best_rates "comparison/$name-rates/runs" "${flags[@]}" "$@" --publish "examples/results/$name"
    else # on seed 1 its 1e-4 was level with its 5e-5, of which the lower one is taken
        at_best_rates "comparison/$name-rates/runs" "${flags[@]}" "$@"
        published "${flags[@]}" --first-seed 11 --seeds 5 --algos 'real_balanced --actor.adam.lr 1e-4' "$@"
    fi
    name=$name-rates published --compact "${tried[@]}"
    ;;
tune-hard-rate) # the hard task again, REAL, balanced REAL and GRPO at one rate: is it the rate or the form?
    published --compact --steps 40 --skill 0.05 --first-seed 11 --seeds 5 \
        --algos real real_balanced grpo --actor.adam.lr 2e-4 "$@"
    ;;
weights-small) # one cell of weights, at a rate where the scores spread: predictions in weights/PREDICTIONS.md
    every_rollout=()
    published --compact --first-seed 11 --seeds 5 --eval.steps 5 --train.batch_size 16 --actor.adam.lr 3e-4 \
        --algos real real_constant real_permuted real_shrunk grpo "$@"
    ;;
weights-seeds) # the cell of weights-small on nine fresh seeds: does it matter which answer gets the weight?
    every_rollout=()
    published --compact --first-seed 16 --seeds 9 --eval.steps 5 --train.batch_size 16 --actor.adam.lr 3e-4 \
        --algos real real_permuted real_shrunk real_constant grpo "$@"
    ;;
weights-sums) # REAL on sums of log-ratios, at the tuned rate and four updates
    every_rollout=()
    on_sums=(--algo.real.set score=sum_log_ratio_old)
    published --compact --first-seed 11 --seeds 5 --eval.steps 5 --actor.adam.lr 3e-4 \
        --algos real "real ${on_sums[*]}" "real_constant ${on_sums[*]}" "real_permuted ${on_sums[*]}" \
        "real_shrunk ${on_sums[*]}" "$@"
    ;;
weights-age) # four batches wait: REAL against the old policy and against the sampler, at two temperatures
    every_rollout=()
    published --compact --first-seed 11 --seeds 5 --eval.steps 5 --actor.adam.lr 3e-4 "${four_wait[@]}" \
        --algos real "real $sampler" 'real --algo.real.tau 0.1' "real $sampler --algo.real.tau 0.1" real_constant cispo "$@"
    ;;
demo) # four batches wait: seven methods, each at the best of three rates or more on seeds 1 and 2, then on five fresh seeds
    every_rollout=()
    # GRPO's usual correction for old answers: a token counts by its ratio to the sampler, at most twice
    corrected='--algo.advantage.is_correction_level token --algo.advantage.is_correction_mode clip'
    corrected+=' --algo.advantage.is_correction_threshold 2'
    tuned=("${four_wait[@]}" --eval.steps 5 --seeds 2)
    low=(real real_constant grpo "grpo $corrected" dapo) # at their lowest rate they were best, so half of it is tried too
    name=demo-rates sweep "${tuned[@]}" --algos "real $sampler --algo.real.tau 0.1" gspo "${low[@]}" \
        --grid actor.adam.lr 1e-4 2e-4 4e-4 "$@"
    half=("${tuned[@]}" --algos "${low[@]}" --grid actor.adam.lr 5e-5 "$@")
    name=demo-rates sweep "${half[@]}"
    name=demo-rates sweep "${tuned[@]}" --algos 'real_constant --actor.adam.lr 2.5e-5' "$@" # it was best at 5e-5 again
    mapfile -t best < <("${REAL_VENV:-.venv}/bin/python" examples/results/best_rates.py --over-training comparison/demo-rates/runs)
    published --compact "${four_wait[@]}" --eval.steps 5 --first-seed 31 --seeds 5 --algos "${best[@]}" "$@"
    name=demo-rates published --compact "${half[@]}"
    ;;
noise) # a share of the training verdicts is wrong; each method at its rate of tune
    every_rollout=()
    mkdir -p comparison/noisy
    for noise in 'right-to-wrong 0' 'right-to-wrong 0.4' 'wrong-to-right 0.2'; do
        "${REAL_VENV:-.venv}/bin/python" examples/labels/noisy_reward.py reverse "comparison/noisy/${noise/ /-}.jsonl" "--${noise% *}" "${noise#* }"
    done
    published --compact --first-seed 11 --seeds 5 --eval.steps 5 --actor.adam.lr 3e-4 \
        --reward.remote_url "$PWD/examples/labels/noisy_reward.py" --grid data comparison/noisy/{right-to-wrong-0,right-to-wrong-0.4,wrong-to-right-0.2}.jsonl \
        --algos real 'real_constant --actor.adam.lr 1e-4' grpo "$@"
    ;;
weights-control) # one update a step and no age: REAL's weights are constants, so all four must log the same numbers
    published --compact --steps 3 --seeds 1 --eval.steps 3 --train.batch_size 256 \
        --algos real real_constant real_permuted real_shrunk "$@"
    ;;
weights) # where REAL's weights act, predictions in weights/PREDICTIONS.md: tau x updates x age x arm. WEIGHTS_SEEDS, default 5
    every_rollout=()
    seeds=(--first-seed 11 --seeds "${WEIGHTS_SEEDS:-5}" --eval.steps 5)
    queue=(--no-train.colocate_all --vllm.num_engines 1 --train.async_enable --train.hopeless fail --train.hopeless_steps 0)
    against='--algo.real.set score=log_ratio_rollout'
    arms=(grpo cispo)
    for tau in 0.5 0.1 0.02; do
        for arm in real real_constant real_permuted real_shrunk; do
            arms+=("$arm --algo.real.tau $tau")
        done
        arms+=("real --algo.real.tau $tau $against")
    done
    arms+=('real --algo.real.set score=sum_log_ratio_old' 'real --algo.real.set score=sum_log_ratio_rollout')
    grid=(--algos "${arms[@]}" --grid train.batch_size 64 16 256)
    sweep "${seeds[@]}" "${grid[@]}" "$@"
    published --compact "${seeds[@]}" "${queue[@]}" "${grid[@]}" --grid train.async_queue_size 1 4 "$@"
    ;;
stale) # how old the policy may be that rollouts are drawn by: batches that wait in the asynchronous trainer's queue
    published --seeds 1 --steps 20 --algos real grpo cispo --no-train.colocate_all --vllm.num_engines 1 \
        --train.async_enable --train.hopeless fail --train.hopeless_steps 0 \
        --grid actor.adam.lr 1e-4 4e-4 --grid train.async_queue_size 1 2 4 8 "$@"
    ;;
smollm2-controls) # beside smollm2, on its seeds and at its rate: right answers only, listwise targets, constant weights
    every_rollout=()
    flags=("${smollm2[@]}" --actor.max_norm 1 --steps 20)
    right='--algo.real.labels examples/labels/rules.py:positives_only --algo.real.uniform_groups keep'
    sweep "${flags[@]}" --first-seed 11 --seeds 3 --algos "real --actor.adam.lr 3e-5 $right" \
        'listwise --actor.adam.lr 3e-5' "$@"
    published "${flags[@]}" --first-seed 11 --seeds 5 --algos 'real_constant --actor.adam.lr 3e-5' "$@"
    ;;
smollm2) # a pretrained model: three rates on seeds 1 and 2, then the best one on seeds 11 to 15 beside random labels
    every_rollout=()
    flags=("${smollm2[@]}" --actor.max_norm 1)
    tried=("${flags[@]}" --steps 12 --no-eval.at_start --eval.steps 12 --seeds 2 --algos real grpo
        --grid actor.adam.lr 1e-5 3e-5 1e-4 "$@")
    name=smollm2-rates sweep "${tried[@]}"
    mapfile -t best < <("${REAL_VENV:-.venv}/bin/python" examples/results/best_rates.py comparison/smollm2-rates/runs)
    real=$(printf '%s\n' "${best[@]}" | grep '^real ') # random labels have its rate
    best+=("$real --algo.real.labels examples/labels/rules.py:random_labels")
    published "${flags[@]}" --steps 20 --first-seed 11 --seeds 5 --algos "${best[@]}" "$@"
    name=smollm2-rates published --compact "${tried[@]}"
    ;;
smollm2-demo) # a short warm-up, 128 answers a step: five methods at their best rates of seed 1 (three are published, see archive/README.md)
    every_rollout=()
    place=$(short_warm_up)
    flags=("${smollm2[@]}" --actor.model_name_or_path "$place/model" --data.prompt_dataset "$place/train.jsonl"
        --eval.dataset "$place/eval.jsonl" --rollout.batch_size 16 --no-eval.at_start)
    short=("${flags[@]}" --steps 5 --eval.steps 5 --seeds 1)
    tried=("${short[@]}" --algos real real_constant grpo dapo gspo --grid actor.adam.lr 1.5e-5 3e-5 6e-5 "$@")
    name=smollm2-demo-rates sweep "${tried[@]}"
    name=smollm2-demo-rates sweep "${short[@]}" --algos grpo gspo dapo --grid actor.adam.lr 1.2e-4 "$@" # best at 6e-5, the edge
    mapfile -t best < <("${REAL_VENV:-.venv}/bin/python" examples/results/best_rates.py comparison/smollm2-demo-rates/runs)
    published "${flags[@]}" --steps 20 --eval.steps 2 --first-seed 11 --seeds 2 --algos "${best[@]}" "$@"
    name=smollm2-demo-rates published --compact "${tried[@]}"
    ;;
smollm2-mixed) # questions that the model solves now and then: two or three rates a method on seed 1, then four methods on seeds 11 to 15
    every_rollout=()
    place=$(short_warm_up)
    questions="$PWD/comparison/mixed.jsonl"
    mkdir -p comparison
    [ -s "$questions" ] || "${REAL_VENV:-.venv}/bin/python" examples/results/smollm2/solvable.py "$questions" "$place" 320
    # a run takes five minutes, so its only checkpoint is that of the last step
    flags=("${smollm2[@]}" --actor.model_name_or_path "$place/model" --data.prompt_dataset "$questions" --eval.dataset "$place/eval.jsonl"
        --rollout.batch_size 16 --no-eval.at_start --steps 10 --ckpt.save_steps 100)
    tried=("${flags[@]}" --eval.steps 10 --seeds 1)
    name=smollm2-mixed-rates sweep "${tried[@]}" --algos real --grid actor.adam.lr 1.5e-5 3e-5 "$@" # at 6e-5 it breaks down
    name=smollm2-mixed-rates sweep "${tried[@]}" --algos grpo gspo --grid actor.adam.lr 1.5e-5 3e-5 6e-5 "$@"
    mapfile -t best < <("${REAL_VENV:-.venv}/bin/python" examples/results/best_rates.py comparison/smollm2-mixed-rates/runs)
    real=$(printf '%s\n' "${best[@]}" | grep '^real ') # constant weights are its control, at its rate
    for seed in 11 12 13 14 15; do # whole seeds: what an interrupt leaves can be compared
        sweep "${flags[@]}" --eval.steps 2 --first-seed "$seed" --seeds 1 --algos "${best[@]}" "real_constant ${real#real }" "$@"
    done
    published --compact "${flags[@]}" --eval.steps 2 --first-seed 11 --seeds 5 --algos "${best[@]}" "real_constant ${real#real }" "$@"
    name=smollm2-mixed-rates published --compact "${tried[@]}" --algos grpo gspo --grid actor.adam.lr 1.5e-5 3e-5 6e-5 "$@"
    ;;
smollm2-solvable) # a sanity test: 32 questions that the warmed-up model solves now and then, four times each
    every_rollout=()
    mkdir -p comparison
    "${REAL_VENV:-.venv}/bin/python" examples/results/smollm2/solvable.py comparison/solvable.jsonl
    published "${smollm2[@]}" --actor.max_norm 1 --eval.n_samples_per_prompt 8 \
        --steps 16 --seeds 1 --algos 'real --actor.adam.lr 3e-5' 'grpo --actor.adam.lr 3e-5' --eval.steps 8 \
        --data.prompt_dataset "$PWD/comparison/solvable.jsonl" --eval.dataset "$PWD/comparison/solvable.jsonl" "$@"
    ;;
*)
    echo "no campaign $name: $campaigns" >&2
    exit 2
    ;;
esac
