#!/usr/bin/env bash
# One checkpoint on the paper's six benchmarks: bash examples/scripts/eval_math.sh MODEL OUT [any option of eval]
#   BENCHMARKS  folder of the benchmarks (default: data/benchmarks, made from the hub if it is not there)
#   TP, DP      GPUs an engine, and engines (default: 1, and as many as the visible GPUs carry)
# Uses the `real-openrlhf` on PATH; where there is none, makes an environment first (setup_env.sh).
# Run it again after a crash or a Ctrl-C: finished samples are kept.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
command -v real-openrlhf >/dev/null || exec bash "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh" run any bash "$0" "$@"
MODEL=$1 OUT=$2
shift 2
BENCHMARKS=${BENCHMARKS:-data/benchmarks}

[ -e "$BENCHMARKS/olympiadbench.jsonl" ] || [ -e "$BENCHMARKS/olympiad_bench.parquet" ] ||
    real-openrlhf data benchmarks --out "$BENCHMARKS"

real-openrlhf eval --model "$MODEL" --out "$OUT" \
    --benchmarks all --data-dir "$BENCHMARKS" \
    --k 16 --temperature 0.6 --top-p 0.95 --max-new-tokens 8192 \
    --grader robust \
    --tensor-parallel "${TP:-1}" ${DP:+--data-parallel "$DP"} "$@"
