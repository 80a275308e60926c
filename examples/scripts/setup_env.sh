#!/usr/bin/env bash
# The environment for training, made once and then left alone: bash examples/scripts/setup_env.sh cpu|gpu
#   REAL_VENV         where (default: .venv in the repository)
#   REAL_PYTHON       which Python 3.10 to 3.12 (default: the first of 3.11, 3.12 and 3.10 on PATH)
#   REAL_TORCH_INDEX  for cpu: an index that has PyTorch's CPU wheels, if your own does not
# Run it again after a pull, a crash or a Ctrl-C: it does what is missing, which is mostly nothing.
set -euo pipefail
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
MODE=${1:-}
case $MODE in
    cpu) ROOM_GB=6 ;;  # 4.2 GB measured, and the downloads while it is made
    gpu) ROOM_GB=20 ;; # an estimate
    *) echo "usage: bash examples/scripts/setup_env.sh cpu|gpu" >&2; exit 2 ;;
esac
REQUIREMENTS=$ROOT/requirements/$MODE.txt
VENV=$(realpath -m "${REAL_VENV:-$ROOT/.venv}")
PYTHON=$VENV/bin/python
LOG=$VENV/setup.log
# Three lines: complete or not, what the environment was made for, and a hash of what it was made from.
STATE=$VENV/.real_env

say() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

die() { # what is wrong, what to do
    printf 'setup_env: error: %s %s%s\n' "$1" "$2" "${STEP_AT:+ (log: $LOG)}" >&2
    exit 1
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# A venv cannot be moved, so the places count; a Python that nobody asked for is the one that is there.
purpose() { echo "$MODE $(version_of "${REAL_PYTHON:-$PYTHON}") $VENV $ROOT"; }

ingredients() {
    (cd "$ROOT" && cat "requirements/$MODE.txt" setup.py real_openrlhf/__init__.py patches/openrlhf-*/*) | sha256sum
}

state_if_right() { echo complete && purpose && ingredients; }

patches() { (cd / && "$PYTHON" -m real_openrlhf.patching "$@"); }

finish_if_right() {
    if [ -f "$STATE" ] && [ "$(cat "$STATE")" = "$(state_if_right)" ] && patches apply >/dev/null 2>&1; then
        say "ready: source ${VENV#"$PWD"/}/bin/activate"
        exit 0
    fi
}

choose_python() {
    local candidates=(python3.11 python3.12 python3.10 python3) candidate version
    [ -z "${REAL_PYTHON:-}" ] || candidates=("$REAL_PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$(version_of "$candidate") || continue
        case $version in 3.10 | 3.11 | 3.12) ;; *) continue ;; esac
        "$candidate" -c 'import ensurepip, venv' 2>/dev/null ||
            die "$candidate cannot make environments." "Install its venv module (on Debian: apt install python$version-venv)."
        echo "$candidate"
        return
    done
    die "Python 3.10, 3.11 or 3.12 is needed, and none of these is one: ${candidates[*]}." \
        "Install Python 3.11, or name one: REAL_PYTHON=/path/to/python3.11."
}

check_room() {
    local used free missing
    used=$(du -sk "$VENV" | cut -f1)
    free=$(df -Pk "$VENV" | awk 'NR == 2 { print $4 }')
    missing=$((ROOM_GB * 1048576 - used))
    [ "$free" -ge "$missing" ] ||
        die "$VENV needs $((missing / 1048576 + 1)) GB of free space, and there is $((free / 1048576)) GB." \
            "Free some, or name another place with REAL_VENV."
}

pip() { "$PYTHON" -m pip install --progress-bar off "$@" >>"$LOG" 2>&1; }

step() {
    STEP_AT=$(($(stat -c %s "$LOG") + 1))
    say "$*"
}

logged() { tail -c "+$STEP_AT" "$LOG" | grep -q "$@"; }

network_failed() {
    logged -E 'NewConnectionError|NameResolutionError|Max retries|Connection refused|timed out|ProxyError|unreachable'
}

explain() { # what failed; the reason from what pip logged in this step
    if logged 'No space left on device'; then
        die "the disk is full." "Free some space and run this again."
    elif network_failed; then
        die "$1 failed: a package index does not answer." "Check the network and 'pip config list', then run this again."
    fi
    die "$1 failed: $(tail -c "+$STEP_AT" "$LOG" | grep '^ERROR' | tail -n 1)." "See the log, and run this again."
}

# Two pips side by side, in small portions: a run that is killed keeps the portions that are done.
install_without_dependencies() {
    local parts=$TMPDIR/parts lane lanes=() failed=0
    mkdir "$parts"
    awk -v to="$parts/" '/^[^#]/ { print > (to n++ % 8) }' "$1"
    set -m # a process group each, so that stopping a lane stops its pip
    for lane in 0 1; do
        (for part in "$parts"/*; do
            [ $((${part##*/} % 2)) = "$lane" ] || continue
            # --use-pep517: what has no wheel is built apart; DeepSpeed's setup.py fails where it sees a torch
            pip --no-deps --use-pep517 -r "$part" || exit 1
        done) &
        lanes+=($!)
    done
    trap 'kill -- "${lanes[@]/#/-}" 2>/dev/null; exit 130' INT TERM
    for lane in "${lanes[@]}"; do wait "$lane" || failed=1; done
    trap - INT TERM
    set +m
    return "$failed"
}

install_cpu() {
    local torch
    torch=$(grep '^torch==' "$REQUIREMENTS")
    step "$torch"
    if ! pip --no-deps "$torch"; then
        if [ -n "${REAL_TORCH_INDEX:-}" ]; then
            pip --no-deps --index-url "$REAL_TORCH_INDEX" "$torch" || explain "installing $torch from REAL_TORCH_INDEX"
        elif logged 'No matching distribution' && ! network_failed; then
            die "your package index has no $torch." \
                "Set REAL_TORCH_INDEX to the CPU wheel index that PyTorch's install page shows for pip, and run this again."
        else
            explain "installing $torch"
        fi
    fi
    step "the other packages of requirements/cpu.txt"
    install_without_dependencies "$REQUIREMENTS" || explain "installing the packages"
}

install_gpu() {
    local flash cuda
    flash=$(grep '^flash-attn' "$REQUIREMENTS")
    grep -v -e '^openrlhf' -e '^flash-attn' "$REQUIREMENTS" >"$TMPDIR/first.txt"
    step "vLLM, and the PyTorch that it pins"
    pip -r "$TMPDIR/first.txt" || explain "installing vLLM"
    cuda=$("$PYTHON" -c 'import torch; print(torch.version.cuda or "")' 2>>"$LOG") || explain "importing torch"
    [ -n "$cuda" ] || die "pip installed a PyTorch without CUDA." "Take its CPU wheels out of pip's index settings (pip config list)."
    step "$flash: compiling it can take an hour, MAX_JOBS limits the memory that this takes"
    if ! pip --only-binary :all: --no-deps "$flash"; then
        "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" --version 2>/dev/null | grep -q "release ${cuda%%.*}\." ||
            die "flash-attn must be compiled, and CUDA_HOME has no nvcc of CUDA ${cuda%%.*} (PyTorch's is $cuda)." \
                "Install that toolkit, or use an image that has it, and run this again."
        pip --no-build-isolation "$flash" || explain "compiling flash-attn"
    fi
    step "OpenRLHF"
    pip -r "$REQUIREMENTS" || explain "installing OpenRLHF"
}

finish_if_right

[ "$MODE" = cpu ] || nvidia-smi -L >/dev/null 2>&1 ||
    die "nvidia-smi finds no GPU." "On a machine without one: bash examples/scripts/setup_env.sh cpu."
python=$(choose_python) || exit 1
mkdir -p "$VENV" 2>/dev/null && [ -w "$VENV" ] || die "cannot write to $VENV." "Name another place with REAL_VENV."
exec 9<"$VENV"
if ! flock -n 9; then
    say "another run works on $VENV: waiting for it"
    flock 9
    finish_if_right
fi
[ -f "$STATE" ] || [ -z "$(ls -A "$VENV")" ] ||
    die "$VENV was not made by this script." "Delete it, or name another place with REAL_VENV."
check_room

if [ "$(sed -n 2p "$STATE" 2>/dev/null)" = "$(purpose)" ]; then
    : >"$LOG"
    step "completing $VENV"
else
    echo incomplete >"$STATE"
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name "${STATE##*/}" -exec rm -rf {} +
    : >"$LOG"
    step "making $VENV ($MODE, $("$python" --version))"
    "$python" -m venv "$VENV" >>"$LOG" 2>&1 || die "python -m venv failed." "Name another Python with REAL_PYTHON."
fi
{ echo incomplete && purpose; } >"$STATE"
export TMPDIR=$VENV/tmp # a small /tmp must not stop pip
rm -rf "$TMPDIR" && mkdir "$TMPDIR"
rm -rf "$VENV"/lib/python3*/site-packages/openrlhf # another series may be on it
"$PYTHON" "$ROOT/requirements/verify.py" --forget-broken >>"$LOG" 2>&1 || explain "looking for half-done packages"

"install_$MODE"
step "real_openrlhf, and its patches to OpenRLHF"
pip --no-deps --no-build-isolation -e "$ROOT" || explain "installing real_openrlhf"
"$PYTHON" "$ROOT/requirements/verify.py" "$REQUIREMENTS" >>"$LOG" 2>&1 ||
    die "not what ${REQUIREMENTS#"$ROOT"/} asks for: $(tail -n 1 "$LOG")." "Run this again, or delete $VENV first."
patches apply >>"$LOG" 2>&1 || die "cannot patch OpenRLHF: $(tail -n 1 "$LOG")" "Delete $VENV and run this again."
rm -rf "$TMPDIR"
state_if_right >"$STATE"
finish_if_right
die "the environment is not right though every step was." "Delete $VENV and run this again."
