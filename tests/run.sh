#!/usr/bin/env bash
# Sets everything up and runs all tests: `tests/run.sh`. One part of them: `tests/run.sh PART [pytest options]`.
#   maths  the algorithm alone, with any Python that has PyTorch, pytest and hypothesis; nothing is set up
#   fast   no Ray, no vLLM, a minute or two
#   slow   no Ray: gloo ranks, real ZeRO engines, set-up, other trainers, the verifier's processes
#   hostile  the worst inputs, a stranger's files, signals, full disks: a minute
#   smoke  every command that a page shows, each subcommand among them, in a shell without the environment; most helps
#          and repeated dry runs in forks
#   e2e    the real stack: Ray actors, a ZeRO-3 policy, a vLLM engine
#   every  all of these, and of the grids of methods, layouts and faults every cell, a cluster, an engine on two GPUs, a
#          broken weight sync: before a release, a new pin, a new patch, a change of set-up
set -euo pipefail
cd "$(dirname "$0")/.."
parts=(fast slow hostile smoke e2e)
maths=(tests/fast/test_{exactness,metrics,policy_loss,schedule,token_log_probs}.py)
if [ "${1:-}" = every ]; then
    export REAL_TEST_EVERY=1 && shift
fi
case "${1:-}" in maths | fast | slow | hostile | smoke | e2e) parts=("$1") && shift ;; esac
python="${REAL_VENV:-.venv}/bin/python"

if [ "${parts[*]}" = maths ]; then
    has='import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))'
    for candidate in "$python" python3 python; do
        "$candidate" -c "$has" torch pytest hypothesis 2>/dev/null || continue
        exec "$candidate" -m pytest "${maths[@]}" -q "$@"
    done
    echo "tests/run.sh: error: no Python here has what these tests need: pip install torch pytest hypothesis" >&2
    exit 1
fi

examples/scripts/setup_env.sh cpu
# Three processes share the tests, group by group (conftest.py): much of what they start waits for a single core. The
# longest begin; quick ones fill the rest.
places=()
for part in e2e smoke slow hostile fast; do
    [[ " ${parts[*]} " == *" $part "* ]] || continue
    for place in tests/$part same_answer/tests/$part; do [ ! -d "$place" ] || places+=("$place"); done # the verifier's own
done
exec "$python" -m pytest "${places[@]}" -q --durations=25 -n 3 --no-loadscope-reorder "$@"
