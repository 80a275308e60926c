#!/usr/bin/env bash
# Train on GPUs: bash examples/scripts/train_real_gpu.sh RECIPE [any flag of `real-openrlhf train`]
# Recipes and algorithms: real-openrlhf train --help, or docs/use/training.md. Run it again to continue where it stopped.
#   ALGO=grpo  MODEL=/models/mine  DATA=dapo17k  SEED=1  GPUS=4  NODES=2   as the flags of the same names
#   DATA_DIR=data  RUNS_DIR=runs                                          where data and run folders are
#   RESUME=0                                                              start a new run beside an unfinished one
#   RAY_ADDRESS=head:6379                                                 a Ray cluster; without it, this machine
# Uses the `real-openrlhf` on PATH; where there is none, or on a machine with GPUs one for CPU, makes an environment first
# (setup_env.sh). A dry run takes the environment that there is, makes none, and needs no GPU; a rehearsal takes any.
set -euo pipefail

[ $# -gt 0 ] || { sed -n '2,9s/^# //p' "$0" >&2; exit 2; }
set_up=$(dirname "${BASH_SOURCE[0]}")/setup_env.sh
bash "$set_up" sourced "$@" || exec bash "$set_up" run gpu bash "$0" "$@"

flags=(--recipe "$1")
shift
for name in ALGO MODEL DATA SEED GPUS NODES DATA_DIR RUNS_DIR; do
    flag=${name,,}
    [ -z "${!name:-}" ] || flags+=("--${flag//_/-}" "${!name}")
done
[ "${RESUME:-1}" = 0 ] || flags+=(--resume)

exec real-openrlhf train "${flags[@]}" "$@"
