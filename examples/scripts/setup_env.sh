#!/usr/bin/env bash
# The environment for training, made once and then left alone: bash examples/scripts/setup_env.sh cpu|gpu|any
#   any                   what is there, whatever it was made for; where nothing is: gpu or cpu, as the machine is
#   REAL_LOCK=newest      newer vLLM, transformers, DeepSpeed and Ray than OpenRLHF asks for (requirements/README.md); `pinned`:
#                         those that it asks for. Unset: what the environment was made of, and `pinned` for a new one
#   REAL_VENV             where (default: .venv in the repository, or .venv-cpu, .venv-gpu, .venv-cpu-newest or
#                         .venv-gpu-newest where .venv is of another kind;
#                         `bash examples/scripts/setup_env.sh where cpu|gpu|any` prints it and does nothing else)
#                         An environment belongs to the checkout that made it, and no other changes or removes it.
#   REAL_PYTHON           which Python 3.11 or 3.12 (default: the first of these on PATH)
#   REAL_TORCH_INDEX      for cpu: an index that has PyTorch's builds for CPU, which are smaller
#   REAL_GPU_ELSEWHERE=1  for gpu: this machine has no GPU, but those that will train have (a login node)
#   bash examples/scripts/setup_env.sh run cpu|gpu|any COMMAND...   runs a command with it on PATH, made if need be.
#                         With --dry-run among the words nothing is made, completed or removed; it and --rehearse need no GPU
#   bash examples/scripts/setup_env.sh sourced COMMAND...   whether the `real-openrlhf` on PATH can run a command for GPUs
# It asks what it usually needs of the machine before it downloads anything.
# Run it again after a pull, a crash or a Ctrl-C: it does what is missing, which is mostly nothing. While a train, compare,
# eval or test uses the environment, it changes nothing there and says which process that is.
set -euo pipefail

if [ "${1:-}" = sourced ]; then
    there=$(command -v real-openrlhf) || exit
    if [[ " $* " == *" --rehearse "* || " $* " == *" --dry-run "* ]] || ! nvidia-smi -L >/dev/null 2>&1; then exit; fi
    ! grep -qs '^cpu' "${there%/bin/*}/.real_env" || exit # it was sourced for a CPU run
    exit 0
fi
if [ "${1:-}" = run ]; then
    mode=$2 check=
    shift 2
    if [[ " $* " == *" --dry-run "* ]]; then check=check mode=${mode/gpu/any}; fi
    if [[ " $* " == *" --rehearse "* ]]; then mode=${mode/gpu/any}; fi
    bash "${BASH_SOURCE[0]}" $check "$mode"
    PATH=$(bash "${BASH_SOURCE[0]}" where "$mode")/bin:$PATH
    exec "$@"
fi

unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_TARGET PIP_PREFIX
unset UV_SYSTEM_PYTHON UV_TARGET UV_PREFIX UV_NO_CACHE
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=hardlink

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
ONLY=
case ${1:-} in where | check) ONLY=$1 && shift ;; esac # check: is it there? for a dry run
MODE=${1:-}
case $MODE in
    cpu | gpu | any) ;;
    *) echo "usage: bash examples/scripts/setup_env.sh cpu|gpu|any" >&2; exit 2 ;;
esac
case ${REAL_LOCK:-} in
    '' | newest | pinned) ;;
    *) echo "setup_env: error: REAL_LOCK is $REAL_LOCK. Set it to newest or pinned." >&2; exit 2 ;;
esac
kind_of() { sed -n '2{s/ .*//;p}' "$1/.real_env" 2>/dev/null || true; } # cpu, gpu, cpu-newest or gpu-newest

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }

default_venv() { # environments of all kinds lie side by side: none takes another's place
    local there lock=$MODE
    there=$(kind_of "$ROOT/.venv")
    [ "${REAL_LOCK:-}" != newest ] || lock=$MODE-newest
    [ -n "${REAL_LOCK:-}" ] || there=${there%-newest}
    if [ "$MODE" = any ] && [ -n "$(kind_of "$ROOT/.venv-gpu")" ] && has_gpu; then echo "$ROOT/.venv-gpu" && return; fi
    [ "$MODE" = any ] || [ "${there:-$lock}" = "$lock" ] && echo "$ROOT/.venv" || echo "$ROOT/.venv-$lock"
}

VENV=$(realpath -m "${REAL_VENV:-$(default_venv)}")
[ "$ONLY" != where ] || { echo "$VENV" && exit; }
PYTHON=$VENV/bin/python
LOG=$VENV/setup.log
# Three lines: complete or not, what the environment was made for, and a hash of what it was made from.
STATE=$VENV/.real_env
IN_USE=$VENV/.in_use # what runs holds a shared lock on it (base/environment.py: hold_environment)

say() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

die() { # what is wrong, what to do
    printf 'setup_env: error: %s %s%s\n' "$1" "$2" "${STEP_AT:+ (log: $LOG)}" >&2
    exit 1
}

refuse_foreign() { # by the state's second line; one that names another folder is of a copy, which works nowhere
    local line owner
    line=$(sed -n 2p "$STATE" 2>/dev/null) || return 0
    owner=${line##*" $VENV "}
    [ "$owner" != "$line" ] && [ -e "$owner/examples/scripts/setup_env.sh" ] && ! [ "$owner" -ef "$ROOT" ] || return 0
    die "$VENV is the environment of $owner, and stays as it is." \
        "Name another folder, REAL_VENV=/path/to/venv, or delete this one yourself."
}

decide_mode() { # for `any`
    MODE=$(kind_of "$VENV")
    MODE=${MODE%-newest}
    if [ -n "$MODE" ]; then
        REAL_GPU_ELSEWHERE=1 REAL_LOCK= # both were decided when the environment was made
    elif has_gpu; then
        MODE=gpu
    else
        MODE=cpu
        [ -n "$ONLY" ] || say "nvidia-smi finds no GPU: making an environment for CPU in $VENV"
    fi
}

# An environment keeps its lock where REAL_LOCK does not say otherwise, so that a later plain call changes nothing.
decide_lock() {
    case ${REAL_LOCK:-}:$(kind_of "$VENV") in
        newest:* | ":$MODE-newest") LOCK=$MODE-newest ;;
        *) LOCK=$MODE ;;
    esac
    REQUIREMENTS=$ROOT/requirements/$LOCK.txt
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# A venv cannot be moved, so the places count; a Python that nobody asked for is the one that is there.
purpose() { echo "$LOCK $(version_of "${REAL_PYTHON:-$PYTHON}") $VENV $ROOT"; }

ingredients() {
    (cd "$ROOT" && cat "requirements/$LOCK.txt" setup.py real_openrlhf/__init__.py same_answer/{src/same_answer/__init__.py,pyproject.toml} \
        patches/openrlhf-*/*) | sha256sum
}

state_if_right() { echo complete && purpose && ingredients; }

patches() { (cd / && "$PYTHON" -m real_openrlhf.patching "$@"); }

finish_if_right() { # $1: `status`, which changes nothing, or `apply`
    if [ -f "$STATE" ] && [ "$(cat "$STATE")" = "$(state_if_right)" ] && patches "$1" >/dev/null 2>&1; then
        say "ready: source ${VENV#"$PWD"/}/bin/activate"
        exit 0
    fi
}

check() { # for a dry run
    [ "$(sed -n 1p "$STATE" 2>/dev/null)" = complete ] ||
        die "there is no finished environment in $VENV, and a dry run makes none." \
            "Make it: bash examples/scripts/setup_env.sh $MODE."
    [ "$(sed -n 3p "$STATE")" = "$(ingredients)" ] ||
        say "$VENV was made of other files. Renew it: bash examples/scripts/setup_env.sh $MODE" >&2
}

lock_out_what_runs() { # until this script ends
    local process
    exec 8>>"$IN_USE"
    flock -n 8 && return
    exec 8>&-
    process=$(find -L /proc/[0-9]*/fd -maxdepth 1 -samefile "$IN_USE" 2>/dev/null | cut -d/ -f3 | sort -n | head -n 1) || true
    [ -z "$process" ] || process="$process ($({ tr '\0' ' ' <"/proc/$process/cmdline" | cut -c1-120; } 2>/dev/null))" || true # it may end
    die "process ${process:-of another user or machine} uses $VENV." \
        "Run this again when it has ended, or name another folder: REAL_VENV=/path/to/venv."
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
    die "found no Python 3.11 or 3.12: tried ${candidates[*]}." \
        "Install Python 3.11, or name one: REAL_PYTHON=/path/to/python3.11."
}

no_room() { # GB that the environment takes while it is made; says so where they are not there
    local used free missing
    used=$(du -sk "$VENV" | cut -f1)
    free=$(df -Pk "$VENV" | awk 'NR == 2 { print $4 }')
    missing=$(($1 * 1048576 - used))
    [ "$free" -lt "$missing" ] &&
        echo "$VENV needs $(((missing + 1048575) / 1048576)) GB, and $((free / 1048576)) GB are free there." \
            "Free some space, or name another folder: REAL_VENV=/larger/disk/venv."
}

LACKS=()
lacks() { LACKS+=("$*"); } # what is wrong. What to do.

ask_for_gpus() { # what NVIDIA's GPUs and the pinned wheels need; $1: the Python, if there is one
    local glibc driver cuda least
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || true
    printf '%s\n' "glibc 2.28" "${glibc:-none}" | sort -CV ||
        lacks "The wheels need glibc 2.28 or newer, and this system has ${glibc:-none}. Use a newer system, or the" \
            "container."
    [ -z "${REAL_GPU_ELSEWHERE:-}" ] || return 0
    if has_gpu; then
        driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1) || true
        cuda=$(nvidia-smi | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p' | head -n 1) || true
        [ "${driver%%.*}" -ge 580 ] || [ "${cuda:-0}" -ge 13 ] || # a compat package raises the second
            lacks "The NVIDIA driver is $driver, and CUDA 13 needs 580 or newer. Update it, or on a data-centre GPU" \
                "install cuda-compat-13-0 and put its folder on LD_LIBRARY_PATH."
        least=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -V | head -n 1) || true
        [[ $least != [0-9]* ]] || [ "${least%%.*}" -ge 8 ] || # an old driver does not know the question
            lacks "A GPU has compute capability $least, and bf16 needs 8.0 or higher. Use an A100 or newer."
    else
        lacks "nvidia-smi finds no GPU. To train without a GPU, run setup_env.sh cpu. On a login node of a GPU" \
            "cluster, set REAL_GPU_ELSEWHERE=1."
    fi
    command -v ${CC:-gcc cc clang} >/dev/null || # Triton compiles what starts its kernels
        lacks "There is no C compiler${CC:+ $CC}. Install gcc (on Debian: apt install gcc)."
    [ -z "$1" ] || [ -e "$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
        lacks "$1 has no Python.h, which Triton needs. Install Python's headers (on Debian: apt install" \
            "python$(version_of "$1")-dev)."
}

ask_all() {
    local found room
    found=$(choose_python 2>&1) || { lacks "${found#setup_env: error: }" && found=; }
    [ "$MODE" = cpu ] || ask_for_gpus "$found"
    if mkdir -p "$VENV" 2>/dev/null && [ -w "$VENV" ]; then
        ! room=$(no_room "$ROOM_GB") || lacks "$room"
    else
        lacks "cannot write to $VENV. Name another folder: REAL_VENV=/path/to/venv."
    fi
    python=$found
    [ ${#LACKS[@]} -gt 0 ] || return 0
    rmdir "$VENV" 2>/dev/null || true
    [ ${#LACKS[@]} -gt 1 ] || die "${LACKS[0]%%. *}." "${LACKS[0]#*. }"
    printf 'setup_env: error: %d things are missing, and nothing was downloaded.\n' ${#LACKS[@]} >&2
    printf '  - %s\n' "${LACKS[@]}" >&2
    [ "$MODE" = cpu ] || echo "  Or build the Dockerfile: its image has all of this but the GPUs and their driver." \
        "See docs/use/gpu.md." >&2
    exit 1
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
        die "the disk of $VENV is full." "Free some space and run this again."
    elif no_answer; then
        die "$1 failed: a package index does not answer." \
            "Check the network and 'pip config list', then run this again."
    elif [ "$MODE" = gpu ] && logged -q 'torch==[0-9.]*+cpu'; then
        die "pip's settings offer a PyTorch without CUDA." \
            "Remove its CPU wheels from these settings ('pip config list', PIP_FIND_LINKS), then run this again."
    fi
    local reason
    reason=$(logged -iE '^ *(error|cause)' | sed -n 's/^ *//;1p;1!{$p}' | paste -sd ' ') || true
    die "$1 failed: ${reason:-$(tail -n 1 "$LOG")}" "Read the log, then run this again."
}

interrupted() {
    [ -z "${INSTALLS:-}" ] || kill -- "-$INSTALLS" 2>/dev/null
    echo "setup_env: interrupted. Run this again: it does what is missing." >&2
    exit 130
}

# In a process group of its own, so that stopping this script stops what uv has started, a compiler too.
uv() {
    local code=0
    set -m
    "$VENV/bin/uv" pip install --python "$PYTHON" "${UV_FLAGS[@]}" "$@" >>"$LOG" 2>&1 &
    INSTALLS=$!
    set +m
    trap interrupted TERM
    wait $! || code=$?
    trap - TERM
    INSTALLS=
    return $code
}

has() { "$PYTHON" -c 'import sys; from importlib.metadata import version; version(sys.argv[1])' "$1" 2>/dev/null; }

install_uv() { # pip brings it and lends it its settings
    local wanted pip
    wanted=$(grep -o '^uv==[^ ]*' "$REQUIREMENTS")
    step "installing uv, which installs the rest"
    pip=$("$PYTHON" "$ROOT/requirements/bundled_pip.py" 2>>"$LOG") || explain "looking for pip"
    UV_FLAGS=(--index-strategy unsafe-best-match) # as pip chooses
    has uv && [ "$("$VENV/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" = "${wanted#uv==}" ] ||
        "$PYTHON" "$pip/pip" install --progress-bar off "$wanted" >>"$LOG" 2>&1 || explain "installing uv"
    has pip || uv --no-deps "$pip" || explain "installing pip"
    eval "$("$PYTHON" "$ROOT/requirements/uv_settings.py" 2>>"$LOG")"
}

install_cpu() {
    local torch room index=()
    torch=$(grep '^torch==' "$REQUIREMENTS")
    [ -z "${REAL_TORCH_INDEX:-}" ] || index=(--index "$REAL_TORCH_INDEX")
    step "installing $torch+cpu"
    if ! uv --no-deps "${index[@]}" "$torch+cpu"; then
        logged -q 'No solution found' && [ -z "${REAL_TORCH_INDEX:-}" ] || explain "installing $torch+cpu"
        ! room=$(no_room 10) || die "${room%%. *}." "${room#*. }"
        step "installing $torch with CUDA, 3 GB more: your package index has no CPU build. Set REAL_TORCH_INDEX to one" \
            "that has"
        uv --override "$REQUIREMENTS" "$torch" || explain "installing $torch"
    fi
    step "installing the other packages of requirements/$LOCK.txt"
    uv --no-deps -r "$REQUIREMENTS" || explain "installing the packages"
}

install_gpu() {
    local reason
    step "installing the packages of requirements/$LOCK.txt: $(sed -n 's/^# Download: //p' "$REQUIREMENTS") to download"
    # DeepSpeed alone has no wheel; it is plain Python
    uv --no-deps --require-hashes --only-binary :all: --no-binary deepspeed -r "$REQUIREMENTS" ||
        explain "installing the packages"
    [ -n "${REAL_GPU_ELSEWHERE:-}" ] ||
        reason=$(cd "$ROOT" && "$PYTHON" -m real_openrlhf.machine.nvidia 2>>"$LOG") || die "${reason%%. *}." "${reason#*. }"
}

renew_openrlhf() { # another series may be on the one that is there: a new one beside it, patched, then in its place
    local new=$TMPDIR/new
    rm -rf "$new" "$TMPDIR/old" # of a call that ended here
    awk '/^openrlhf==/ { on = 1 } on { print; if (!/\\$/) exit }' "$REQUIREMENTS" >"$TMPDIR/openrlhf.txt" # and its hashes
    uv --no-deps --target "$new" -r "$TMPDIR/openrlhf.txt" || explain "installing openrlhf"
    patches apply --root "$new" >>"$LOG" 2>&1 ||
        die "cannot patch OpenRLHF: $(tail -n 1 "$LOG")" "Delete $VENV and run this again."
    (cd "$VENV"/lib/python3*/site-packages && "$PYTHON" -c 'import os, sys
os.path.exists("openrlhf") and os.rename("openrlhf", sys.argv[2])
os.rename(sys.argv[1], "openrlhf")' "$new/openrlhf" "$TMPDIR/old") 2>>"$LOG"
}

trap interrupted INT
refuse_foreign
[ "$MODE" != any ] || decide_mode
decide_lock
[ "$ONLY" != check ] || { check && exit; }
[ "$MODE" = cpu ] && ROOM_GB=6 || ROOM_GB=20 # for gpu an estimate
finish_if_right status

ask_all
exec 9<"$VENV"
if ! flock -n 9; then
    say "another setup_env.sh works on $VENV: waiting for it"
    flock 9
    decide_lock
    finish_if_right status
fi
refuse_foreign
[ -f "$STATE" ] || [ -z "$(ls -A -I "${IN_USE##*/}" "$VENV")" ] ||
    die "$VENV was not made by this script." "Name a new folder, REAL_VENV=/path/to/new/venv. What is in this one stays as it is."
lock_out_what_runs
finish_if_right apply
MADE_OF=$(ingredients)
if supported "$(version_of "$PYTHON")" && [ "$(sed -n 2p "$STATE" 2>/dev/null)" = "$(purpose)" ]; then
    : >"$LOG"
    step "completing $VENV"
else
    printf '%s\n' incomplete "$LOCK" >"$STATE"
    find "$VENV" -mindepth 1 -maxdepth 1 ! -name "${STATE##*/}" ! -name "${IN_USE##*/}" -exec rm -rf {} +
    : >"$LOG"
    step "making $VENV ($LOCK, $("$python" --version))"
    "$python" -m venv --without-pip "$VENV" >>"$LOG" 2>&1 ||
        die "$python -m venv failed." "Name another Python: REAL_PYTHON=/path/to/python3.11."
fi
{ echo incomplete && purpose; } >"$STATE"
export TMPDIR=$VENV/tmp UV_CACHE_DIR=$VENV/tmp/uv # a small /tmp stops nothing; what a killed run unpacked is used
mkdir -p "$TMPDIR"
"$PYTHON" "$ROOT/requirements/verify.py" --forget-broken >>"$LOG" 2>&1 || explain "looking for half-done packages"

install_uv
"install_$MODE"
step "installing real_openrlhf, and patching OpenRLHF"
uv --no-deps --no-build-isolation -e "$ROOT/same_answer" || explain "installing same_answer"
# As a folder on Python's path: with a finder of its own, Python in the folder above takes the clone for an empty package.
uv --no-deps --no-build-isolation -C editable_mode=compat -e "$ROOT" || explain "installing real_openrlhf"
"$PYTHON" "$ROOT/requirements/verify.py" "$REQUIREMENTS" >>"$LOG" 2>&1 ||
    die "the packages are not those of ${REQUIREMENTS#"$ROOT"/}: $(tail -n 1 "$LOG")." \
        "Run this again, or delete $VENV first."
renew_openrlhf
if [ -z "${REAL_GPU_ELSEWHERE:-}" ]; then
    step "importing all packages once"
    "$PYTHON" "$ROOT/requirements/first_import.py" >>"$LOG" 2>&1 ||
        die "a package cannot be imported: $(tail -n 1 "$LOG")." "Delete $VENV and run this again."
fi
rm -rf "$TMPDIR"
{ echo complete && purpose && echo "$MADE_OF"; } >"$STATE"
finish_if_right status
die "files of the checkout or of $VENV changed while this script ran." "Run this again."
