#!/usr/bin/env bash
# Algorithms side by side on GPUs: bash examples/scripts/compare_gpu.sh --recipe RECIPE [any flag of `real-openrlhf compare`]
# Run it again to continue; in several shells it shares the runs. On SLURM: slurm_compare.sbatch.
# Uses the `real-openrlhf` on PATH; where there is none, makes an environment first (setup_env.sh). A dry run takes the
# environment that there is, and needs no GPU.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! command -v real-openrlhf >/dev/null; then
    environment=gpu
    [[ " $* " != *" --dry-run "* ]] || environment=any
    bash "$ROOT/examples/scripts/setup_env.sh" "$environment"
    PATH=$(bash "$ROOT/examples/scripts/setup_env.sh" where "$environment")/bin:$PATH
fi
exec real-openrlhf compare "$@"
