#!/usr/bin/env bash
# Algorithms side by side on GPUs: bash examples/scripts/compare_gpu.sh --recipe RECIPE [any flag of `real-openrlhf compare`]
# Run it again to continue; in several shells it shares the runs. On SLURM: slurm_compare.sbatch.
# Uses the `real-openrlhf` on PATH; where there is none, makes an environment first (setup_env.sh). A dry run takes the
# environment that there is, makes none, and needs no GPU.
set -euo pipefail
command -v real-openrlhf >/dev/null || exec bash "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh" run gpu bash "$0" "$@"
exec real-openrlhf compare "$@"
