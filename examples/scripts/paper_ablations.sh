#!/usr/bin/env bash
# The paper's further analysis, parts of REAL, its temperature, two KL terms, with the 1.5B model on DeepScaleR, on 8 GPUs:
#   bash examples/scripts/paper_ablations.sh [--dry-run] [any flag of compare]
# Runs, evaluations and report go to paper_ablations/. Environment and sharing: see compare_gpu.sh, which this calls.
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare_gpu.sh" --recipe qwen1.5b --algos real real_bce real_no_anchor \
    'real --algo.real.tau 0.1' 'real --algo.real.tau 1.0' \
    'real --algo.kl.use_loss --algo.kl.estimator k3 --algo.kl.init_coef 0.001' 'real --algo.real.kl_old_coef 0.001' \
    --seeds 1 --first-seed 42 --benchmarks all --out paper_ablations "$@"
