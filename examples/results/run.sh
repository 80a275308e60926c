#!/usr/bin/env bash
# Runs one of the experiments of docs/results.md, writes its report, and puts what is committed here beside this script:
#   bash examples/results/run.sh mixed|knobs|hard|more|deal|tune|tune-hard|tune-sums|map|stale [any flag of compare_cpu.sh]
# The runs go to comparison/NAME. Interrupted, the same command goes on. A run is the same, bit for bit, on one machine,
# but for those of stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name="${1:?which experiment? mixed, knobs, hard, more, deal, tune, tune-hard, tune-sums, map or stale}"
shift
compare() {
    bash examples/scripts/compare_cpu.sh --out "comparison/$name" --publish "examples/results/$name" --eval.steps 10 "$@"
}
# Many runs: two sessions for all, a run that is dead ends at once. On one rank ZeRO-2 computes what ZeRO-3 does, faster.
# No update is clipped while a run is sound: at a norm of 1 nearly all of REAL's are, and few of GRPO's.
sweep() {
    compare --jobs 2 --steps 30 --eval.n_samples_per_prompt 4 --ds.zero_stage 2 --actor.max_norm 100 \
        --train.micro_batch_size 16 --train.hopeless_steps 8 --train.hopeless end "$@"
}
many() { sweep --compact "$@"; } # hundreds are committed
rates=(3e-5 1e-4 3e-4 1e-3) # at 3e-3 every method of the map is dead
at_best_rates() { # runs that varied the rate, then flags of compare
    local best runs=()
    while [ -d "${1:-}" ]; do runs+=("$1") && shift; done
    mapfile -t best < <("${REAL_VENV:-.venv}/bin/python" examples/results/best_rates.py "${runs[@]}")
    many --first-seed 11 --seeds 5 --algos "${best[@]}" "$@"
}
case "$name" in
mixed) # the methods on a task where groups are mixed
    compare --steps 40 --seeds 5 --algos real real_constant grpo "$@"
    compare --steps 40 --seeds 3 --algos real_bce real_no_anchor dapo gspo "$@"
    ;;
knobs) # temperature and KL; refresh.py sets the REAL runs of `mixed` beside them
    compare --steps 40 --seeds 3 --algos 'real --algo.real.tau 0.1' 'real --algo.real.tau 1.0' \
        'real --algo.kl.use_loss --algo.kl.estimator k3 --algo.kl.init_coef 0.001' \
        'real --algo.real.kl_old_coef 0.001' "$@"
    ;;
hard) # the same task, but most groups are all wrong at first
    compare --steps 60 --seeds 3 --skill 0.05 \
        --algos real 'real --algo.real.uniform_groups keep' real_constant grpo "$@"
    ;;
more) # the other algorithms, one seed: they train
    compare --steps 40 --seeds 1 --algos trpa disco_logl disco_lratio "$@"
    ;;
deal) # the same updates of whole prompts for every method, beside OpenRLHF's own deal
    compare --steps 20 --seeds 3 --algos real grpo dapo gspo \
        'grpo --train.deal upstream' 'dapo --train.deal upstream' 'gspo --train.deal upstream' "$@"
    ;;
map) # rate x updates a rollout (1, 4, 16) x method: where each works and where it breaks
    six=(real real_constant real_balanced grpo cispo gspo)
    many --seeds 2 --algos "${six[@]}" --grid actor.adam.lr "${rates[@]}" 3e-3 --grid train.batch_size 256 64 16 "$@"
    # three more where the first two disagree
    many --first-seed 3 --seeds 3 --algos "${six[@]}" --grid actor.adam.lr 3e-4 --grid train.batch_size 64 16 "$@"
    many --first-seed 3 --seeds 3 --algos "${six[@]}" --grid actor.adam.lr 1e-3 --grid train.batch_size 64 "$@"
    ;;
tune) # every method at its best rate of four on seeds 11 to 15; the map, which has most of these rates, comes first
    [ -d comparison/map/runs ] || { echo "comparison/map/runs is missing: run.sh map comes first" >&2; exit 2; }
    name=tune-rates many --seeds 2 --algos dapo reinforce --grid actor.adam.lr "${rates[@]}" "$@"
    at_best_rates comparison/{map,tune-rates}/runs "$@"
    ;;
tune-hard | tune-sums) # the same on other tasks: four rates on seed 1, then the best one on seeds 11 to 15
    methods=(real real_constant real_balanced grpo) && grid=(1e-4 2e-4 4e-4 8e-4)
    case "$name" in
    tune-hard) flags=(--steps 40 --skill 0.05) && methods+=(reinforce) ;;
    tune-sums) flags=(--steps 20 --task sums) && grid+=(5e-5) ;;
    esac
    name=$name-rates many "${flags[@]}" --seeds 1 --algos "${methods[@]}" --grid actor.adam.lr "${grid[@]}" "$@"
    at_best_rates "comparison/$name-rates/runs" "${flags[@]}" "$@"
    # on seed 1 its 1e-4 was level with its 5e-5, of which the lower one is taken
    [ "$name" = tune-hard ] || many "${flags[@]}" --first-seed 11 --seeds 5 --algos 'real_balanced --actor.adam.lr 1e-4' "$@"
    ;;
stale) # how old the policy may be that rollouts are drawn by: batches that wait in the asynchronous trainer's queue
    sweep --seeds 1 --steps 20 --algos real grpo cispo --no-train.colocate_all --vllm.num_engines 1 --train.async_enable \
        --train.hopeless fail --train.hopeless_steps 0 \
        --grid actor.adam.lr 1e-4 4e-4 --grid train.async_queue_size 1 2 4 8 "$@"
    ;;
*)
    echo "no experiment $name: mixed, knobs, hard, more, deal, tune, tune-hard, tune-sums, map or stale" >&2
    exit 2
    ;;
esac
