#!/usr/bin/env bash
# Algorithms side by side on the real stack, on any machine with two cores and no GPU, and the report on them:
#   bash examples/scripts/compare_cpu.sh [--algos real grpo 'real --algo.real.tau 0.1'] [--seeds 3] [--steps 40]
#                                        [--out DIR] [any OpenRLHF flag]
# The same command after an interrupt goes on with what is missing; with more seeds it adds them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec bash examples/scripts/setup_env.sh run cpu real-openrlhf compare "$@"
