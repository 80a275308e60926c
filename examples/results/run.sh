#!/usr/bin/env bash
# Runs one of the experiments of docs/results.md, writes its report, and puts what is committed here beside this script:
#   bash examples/results/run.sh mixed|knobs|hard|more|deal [any flag of compare_cpu.sh]
# The runs go to comparison/NAME. Interrupted, the same command goes on. A run is the same, bit for bit, on one machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name="${1:?which experiment? mixed, knobs, hard, more or deal}"
shift
compare() {
    bash examples/scripts/compare_cpu.sh --out "comparison/$name" --publish "examples/results/$name" --eval.steps 10 "$@"
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
*)
    echo "no experiment $name: mixed, knobs, hard, more or deal" >&2
    exit 2
    ;;
esac
