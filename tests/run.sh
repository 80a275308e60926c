#!/usr/bin/env bash
# Sets everything up and runs all tests: `tests/run.sh`. One part of them: `tests/run.sh fast|slow|e2e [pytest options]`.
#   fast  no Ray, no vLLM, under a minute         slow  no Ray: gloo ranks, real ZeRO engines, the data, hostile answers
#   e2e   the real stack: Ray actors, a ZeRO-3 policy, a vLLM engine
set -euo pipefail
cd "$(dirname "$0")/.."
parts=(fast slow e2e)
case "${1:-}" in fast | slow | e2e) parts=("$1") && shift ;; esac

examples/scripts/setup_env.sh cpu
python="${REAL_VENV:-.venv}/bin/python"
export OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu TORCHDYNAMO_DISABLE=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
TORCH_EXTENSIONS_DIR=$(realpath "$(dirname "$python")/..")/torch_extensions # DeepSpeed compiles its Adam once
export TORCH_EXTENSIONS_DIR
status=0
for part in "${parts[@]}"; do
    echo "== tests/$part"
    # fast tests share the cores; the others start processes of their own
    workers=() && [ "$part" = fast ] && workers=(-n 2 --dist loadfile)
    "$python" -m pytest "tests/$part" -q --durations=5 "${workers[@]}" "$@" || status=1
done
exit $status
