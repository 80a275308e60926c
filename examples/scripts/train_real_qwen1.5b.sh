#!/usr/bin/env bash
# The paper's 1.5B run on 8 GPUs: bash examples/scripts/train_real_qwen1.5b.sh [--algo grpo] [--data dapo17k] [--dry-run]
# Variables and further flags: see train_real_gpu.sh, which this calls.
exec bash "$(dirname "${BASH_SOURCE[0]}")/train_real_gpu.sh" qwen1.5b "$@"
