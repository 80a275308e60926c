#!/usr/bin/env bash
# The paper's table of the 1.5B model on DeepScaleR, on 8 GPUs: bash examples/scripts/paper_table_1.5b.sh [--dry-run] [any flag of compare]
# Runs, evaluations and report go to paper_table_1.5b/. Environment and sharing: see compare_gpu.sh, which this calls.
exec bash "$(dirname "${BASH_SOURCE[0]}")/compare_gpu.sh" --recipe qwen1.5b --algos real grpo dapo gspo trpa \
    --seeds 1 --first-seed 42 --benchmarks all --out paper_table_1.5b "$@"
