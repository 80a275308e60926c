#!/usr/bin/env bash
# The environment for training, made once and then left alone: bash examples/scripts/setup_env.sh cpu|gpu|any
#   any                   what is there, whatever it was made for; where nothing is: gpu or cpu, as the machine is
#   REAL_VENV             where (default: .venv in the repository)
#   REAL_PYTHON           which Python 3.11 or 3.12 (default: the first of these on PATH)
#   REAL_TORCH_INDEX      for cpu: an index that has PyTorch's builds for CPU, which are smaller
#   REAL_GPU_ELSEWHERE=1  for gpu: this machine has no GPU, but those that will train have (a login node)
# Run it again after a pull, a crash or a Ctrl-C: it does what is missing, which is mostly nothing.
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_TARGET PIP_PREFIX
unset UV_SYSTEM_PYTHON UV_TARGET UV_PREFIX UV_NO_CACHE
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=hardlink

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
MODE=${1:-}
case $MODE in
    cpu | gpu | any) ;;
    *) echo "usage: bash examples/scripts/setup_env.sh cpu|gpu|any" >&2; exit 2 ;;
esac
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

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }

decide_mode() { # for `any`
    MODE=$(sed -n '2s/ .*//p' "$STATE" 2>/dev/null) || true
    if [ -n "$MODE" ]; then
        REAL_GPU_ELSEWHERE=1 # it was decided when the environment was made
    elif has_gpu; then
        MODE=gpu
    else
        MODE=cpu
        say "no GPU here and no environment in $VENV: making the one for CPU"
    fi
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

supported() { case $1 in 3.11 | 3.12) ;; *) return 1 ;; esac; }

choose_python() {
    local candidates=(python3.11 python3.12 python3) candidate version
    [ -z "${REAL_PYTHON:-}" ] || candidates=("$REAL_PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$(version_of "$candidate") && supported "$version" || continue
        "$candidate" -c 'import ensurepip, venv' 2>/dev/null || die "$candidate cannot make environments." \
            "Install its venv module (on Debian: apt install python$version-venv)."
        echo "$candidate"
        return
    done
    die "Python 3.11 or 3.12 is needed, and none of these is one: ${candidates[*]}." \
        "Install Python 3.11, or name one: REAL_PYTHON=/path/to/python3.11."
}

check_room() { # GB that the environment takes while it is made
    local used free missing
    used=$(du -sk "$VENV" | cut -f1)
    free=$(df -Pk "$VENV" | awk 'NR == 2 { print $4 }')
    missing=$(($1 * 1048576 - used))
    [ "$free" -ge "$missing" ] ||
        die "$VENV needs $((missing / 1048576 + 1)) GB of free space, and there is $((free / 1048576)) GB." \
            "Free some, or name another place with REAL_VENV."
}

step() {
    STEP_AT=$(($(stat -c %s "$LOG") + 1))
    say "$*"
}

logged() { tail -c "+$STEP_AT" "$LOG" | grep "$@"; }

no_answer() {
    logged -qiE 'client error .Connect|dns error|NewConnection|NameResolution|Max retries|ProxyError|timed out'
}

explain() { # what failed; the reason from what pip or uv logged in this step
    if logged -qi 'no space left on device'; then
        die "the disk is full." "Free some space and run this again."
    elif no_answer; then
        die "$1 failed: a package index does not answer." \
            "Check the network and 'pip config list', then run this again."
    fi
    local reason
    reason=$(logged -iE '^ *(error|cause)' | sed -n 's/^ *//;1p;1!{$p}' | paste -sd ' ') || true
    die "$1 failed: ${reason:-$(tail -n 1 "$LOG")}" "See the log, and run this again."
}

# In a process group of its own, so that stopping this script stops what uv has started, a compiler too.
uv() {
    local code=0
    set -m
    "$VENV/bin/uv" pip install --python "$PYTHON" "${UV_FLAGS[@]}" "$@" >>"$LOG" 2>&1 &
    set +m
    trap "kill -- -$! 2>/dev/null; exit 130" INT TERM
    wait $! || code=$?
    trap - INT TERM
    return $code
}

has() { "$PYTHON" -c 'import sys; from importlib.metadata import version; version(sys.argv[1])' "$1" 2>/dev/null; }

install_uv() { # pip brings it and lends it its settings
    local wanted pip
    wanted=$(grep '^uv==' "$REQUIREMENTS")
    step "uv, which installs the rest"
    pip=$("$PYTHON" "$ROOT/requirements/bundled_pip.py" 2>>"$LOG") || explain "looking for pip"
    UV_FLAGS=(--index-strategy unsafe-best-match) # as pip chooses
    has uv && [ "$("$VENV/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" = "${wanted#uv==}" ] ||
        "$PYTHON" "$pip/pip" install --progress-bar off "$wanted" >>"$LOG" 2>&1 || explain "installing uv"
    has pip || uv --no-deps "$pip" || explain "installing pip"
    eval "$("$PYTHON" "$ROOT/requirements/uv_settings.py")"
}

install_cpu() {
    local torch index=()
    torch=$(grep '^torch==' "$REQUIREMENTS")
    [ -z "${REAL_TORCH_INDEX:-}" ] || index=(--index "$REAL_TORCH_INDEX")
    step "$torch+cpu"
    if ! uv --no-deps "${index[@]}" "$torch+cpu"; then
        logged -q 'No solution found' && [ -z "${REAL_TORCH_INDEX:-}" ] || explain "installing $torch+cpu"
        check_room 10
        step "$torch, which brings CUDA, 3 GB more: your package index has no build for CPU (or set REAL_TORCH_INDEX)"
        uv --override "$REQUIREMENTS" "$torch" || explain "installing $torch"
    fi
    step "the other packages of requirements/cpu.txt"
    uv --no-deps -r "$REQUIREMENTS" || explain "installing the packages"
}

install_gpu() {
    local flash cuda reason
    flash=$(grep '^flash-attn' "$REQUIREMENTS")
    grep -v -e '^openrlhf' -e '^flash-attn' "$REQUIREMENTS" >"$TMPDIR/first.txt"
    step "vLLM, and the PyTorch that it pins"
    uv -r "$TMPDIR/first.txt" || explain "installing vLLM"
    cuda=$("$PYTHON" -c 'import torch; print(torch.version.cuda or "")' 2>>"$LOG") || explain "importing torch"
    if [ -z "$cuda" ]; then
        "$VENV/bin/uv" pip uninstall --python "$PYTHON" torch >>"$LOG" 2>&1
        die "pip's settings give a PyTorch without CUDA." "Take its CPU wheels out of them (pip config list)."
    fi
    [ -n "${REAL_GPU_ELSEWHERE:-}" ] ||
        reason=$(cd "$ROOT" && "$PYTHON" -m real_openrlhf.nvidia 2>>"$LOG") || die "${reason%%. *}." "${reason#*. }"
    step "$flash: compiling it can take an hour; MAX_JOBS limits the memory, FLASH_ATTN_CUDA_ARCHS=90 the work (Hopper)"
    if ! uv --only-binary :all: --no-deps "$flash"; then
        "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" --version 2>/dev/null | grep -q "release ${cuda%%.*}\." ||
            die "flash-attn must be compiled, and CUDA_HOME has no nvcc of CUDA ${cuda%%.*} (PyTorch's is $cuda)." \
                "Install that toolkit, or use an image that has it, and run this again."
        uv --no-build-isolation "$flash" || explain "compiling flash-attn"
    fi
    step "OpenRLHF"
    uv --no-build-isolation-package flash-attn -r "$REQUIREMENTS" || explain "installing OpenRLHF"
}

[ "$MODE" != any ] || decide_mode
REQUIREMENTS=$ROOT/requirements/$MODE.txt
[ "$MODE" = cpu ] && ROOM_GB=6 || ROOM_GB=20 # for gpu an estimate
finish_if_right

[ "$MODE" = cpu ] || [ -n "${REAL_GPU_ELSEWHERE:-}" ] || has_gpu ||
    die "nvidia-smi finds no GPU." \
        "To train without one: setup_env.sh cpu. On a login node of machines that have them: set REAL_GPU_ELSEWHERE=1."
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
check_room "$ROOM_GB"

if supported "$(version_of "$PYTHON")" && [ "$(sed -n 2p "$STATE" 2>/dev/null)" = "$(purpose)" ]; then
    : >"$LOG"
    step "completing $VENV"
else
    echo incomplete >"$STATE"
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name "${STATE##*/}" -exec rm -rf {} +
    : >"$LOG"
    step "making $VENV ($MODE, $("$python" --version))"
    "$python" -m venv --without-pip "$VENV" >>"$LOG" 2>&1 || die "python -m venv failed." "Name another Python with REAL_PYTHON."
fi
{ echo incomplete && purpose; } >"$STATE"
export TMPDIR=$VENV/tmp UV_CACHE_DIR=$VENV/tmp/uv # a small /tmp stops nothing; what a killed run unpacked is used
mkdir -p "$TMPDIR"
rm -rf "$VENV"/lib/python3*/site-packages/openrlhf # another series may be on it
"$PYTHON" "$ROOT/requirements/verify.py" --forget-broken >>"$LOG" 2>&1 || explain "looking for half-done packages"

install_uv
"install_$MODE"
step "real_openrlhf, and its patches to OpenRLHF"
uv --no-deps --no-build-isolation -e "$ROOT" || explain "installing real_openrlhf"
"$PYTHON" "$ROOT/requirements/verify.py" "$REQUIREMENTS" >>"$LOG" 2>&1 ||
    die "not what ${REQUIREMENTS#"$ROOT"/} asks for: $(tail -n 1 "$LOG")." "Run this again, or delete $VENV first."
patches apply >>"$LOG" 2>&1 || die "cannot patch OpenRLHF: $(tail -n 1 "$LOG")" "Delete $VENV and run this again."
if [ -z "${REAL_GPU_ELSEWHERE:-}" ]; then
    step "a first import of it all"
    "$PYTHON" "$ROOT/requirements/first_import.py" "$MODE" >>"$LOG" 2>&1 ||
        die "the environment cannot be imported: $(tail -n 1 "$LOG")." "See the log."
fi
rm -rf "$TMPDIR"
state_if_right >"$STATE"
finish_if_right
die "the environment is not right though every step was." "Delete $VENV and run this again."
