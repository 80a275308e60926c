#!/usr/bin/env bash
# REAL on the real stack (Ray, DeepSpeed ZeRO-3, vLLM) on any machine with two cores and no GPU:
#   bash examples/scripts/train_real_cpu.sh [--algo grpo] [--seed 1] [--max-steps 60] [any OpenRLHF flag]
# Sets the environment up, takes the tiny model and its task from the package, trains, evaluates before and after, draws the curves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec bash examples/scripts/setup_env.sh run cpu real-openrlhf train --recipe cpu "$@"
