"""Resolves gpu.in to gpu.txt: every package with the hashes of the files that Python 3.11 and 3.12 take on Linux.

python requirements/lock.py            the environment's uv asks the package index; what is in gpu.txt stays if it can
python requirements/lock.py newest     the same for gpu-newest.in, whose pins go before those of OpenRLHF's metadata
"""

import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "-".join(["gpu", *sys.argv[1:]])
PYTHONS = ("3.11", "3.12")
# The oldest that PyTorch's and vLLM's wheels run with, and a new one: some packages have another wheel for it.
GLIBCS = ("2_28", "2_40")
# Imported by nothing here. flash-attn and pycosat would be compiled.
LEFT_OUT = {
    "openrlhf": ("flash-attn", "transformers-stream-generator"),
    "reasoning-gym": ("cellpylib", "pycosat", "zss"),
}
# reasoning-gym pins 0.9.0 of it, and imports it for a task that is left out.
FREE = ("tabulate",)
HEADER = """\
# The whole training stack on a machine with NVIDIA GPUs, for Python 3.11 and 3.12 on Linux x86_64, glibc {glibc} or
# later. Made of {name}.in by lock.py; {variable}examples/scripts/setup_env.sh gpu installs it.
# Left out on purpose, and nothing here imports it: {left_out}.
# Download: {gb:.1f} GB
"""


def resolve(python: str, glibc: str, folder: Path) -> list[dict]:
    overrides, lock = (
        folder / "overrides.txt",
        folder / f"pylock.py{python.replace('.', '')}-{glibc.replace('_', '-')}.toml",
    )
    never = [f'{name}; sys_platform == "never"' for names in LEFT_OUT.values() for name in names]
    asked = (HERE / f"{NAME}.in").read_text().splitlines()
    own = [line for line in asked if "==" in line and not line.startswith("openrlhf")]
    overrides.write_text("\n".join([*never, *FREE, *own]) + "\n")
    held, lock_file = folder / "held.txt", HERE / f"{NAME}.txt"
    lines = lock_file.read_text().splitlines() if lock_file.exists() else []
    held.write_text("\n".join(line.removesuffix(" \\") for line in lines if line[:1].isalnum()))
    subprocess.run(
        [
            *(Path(sys.executable).with_name("uv"), "pip", "compile", HERE / f"{NAME}.in", "-q", "-o", lock),
            *("--override", overrides, "--constraint", held, "--format", "pylock.toml"),
            *("--python-version", python, "--python-platform", f"x86_64-manylinux_{glibc}"),
        ],
        check=True,
    )
    return tomllib.loads(lock.read_text())["packages"]


def files(package: dict) -> list[dict]:
    """Its wheels; of what has none, which is plain Python, the source."""
    return package.get("wheels") or [package["sdist"]]


def size(package: dict) -> int:
    """Of its file for one Python. Some indexes leave it out, and the file's own server tells."""
    file = files(package)[-1]
    if "size" not in file:
        with urllib.request.urlopen(urllib.request.Request(file["url"], method="HEAD"), timeout=60) as answer:
            file["size"] = int(answer.headers["Content-Length"])
    return file["size"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        locks = [resolve(python, glibc, Path(folder)) for glibc in GLIBCS for python in PYTHONS]
    found: dict[str, set[str]] = {}
    for package in (package for lock in locks for package in lock):
        hashes = found.setdefault(f"{package['name']}=={package['version']}", set())
        hashes |= {file["hashes"]["sha256"] for file in files(package)}
    with ThreadPoolExecutor(8) as ask:
        gb = sum(ask.map(size, locks[0])) / 1e9
    left_out = ";\n# ".join(f"{', '.join(names)} (asked for by {asks})" for asks, names in LEFT_OUT.items())
    variable = "REAL_LOCK=newest " if NAME == "gpu-newest" else ""
    header = {"name": NAME, "variable": variable, "glibc": GLIBCS[0].replace("_", "."), "left_out": left_out}
    lines = [HEADER.format(**header, gb=gb).rstrip()]
    for name, hashes in sorted(found.items()):
        lines.append(" \\\n    ".join([name, *(f"--hash=sha256:{one}" for one in sorted(hashes))]))
    (HERE / f"{NAME}.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(found)} packages, {gb:.1f} GB")


if __name__ == "__main__":
    main()
