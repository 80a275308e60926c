#!/usr/bin/env bash
# Algorithms side by side on GPUs: bash examples/scripts/compare_gpu.sh --recipe RECIPE [any flag of `real-openrlhf compare`]
# Run it again to continue; in several shells it shares the runs. On SLURM: slurm_compare.sbatch.
# Its environment: as for train_real_gpu.sh.
set -euo pipefail
set_up=$(dirname "${BASH_SOURCE[0]}")/setup_env.sh
bash "$set_up" sourced "$@" || exec bash "$set_up" run gpu bash "$0" "$@"
exec real-openrlhf compare "$@"
