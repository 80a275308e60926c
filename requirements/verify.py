"""Is everything that a requirements file pins installed, and whole? setup_env.sh asks this of the new environment.

A pip that was killed can leave a package that looks installed; its RECORD says which files should be there.
    python requirements/verify.py requirements/cpu.txt     prints what is wrong, exit 1 if anything is
    python requirements/verify.py --forget-broken          makes pip install again what is not whole
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path


def installed() -> list[Distribution]:
    return list(distributions(path=[sysconfig.get_paths()["purelib"]]))


def recorded_sizes(found: Iterable[Distribution]) -> dict[str, set[int]]:
    """Of each file as its distributions record it: some wheels leave a file of one name at the top of the folder.

    Others hold libraries that are larger than their RECORD says. A pip that was killed leaves shorter files.
    """
    sizes: dict[str, set[int]] = {}
    for distribution in found:
        for file in distribution.files or ():
            if file.size is not None:
                sizes.setdefault(str(file), set()).add(file.size)
    return sizes


def damage(distribution: Distribution, sizes: Mapping[str, set[int]]) -> str | None:
    """Why a distribution is not whole; pip writes INSTALLER after all the other files."""
    if not distribution.read_text("INSTALLER"):
        return "pip did not finish installing it"
    if distribution.name == "openrlhf":
        return None  # patched: its files are not those of its record, and setup_env.sh makes them anew
    for file in distribution.files or ():
        if file.size is not None and file.suffix != ".pyc":
            try:
                if os.stat(file.locate()).st_size < min(sizes[str(file)]):
                    return f"{file} is shorter than recorded"
            except FileNotFoundError:
                return f"{file} is missing"
    return None


def problems(requirements: Path) -> list[str]:
    from pip._vendor.packaging.requirements import Requirement  # an environment that is made has no pip at first
    from pip._vendor.packaging.utils import canonicalize_name

    found = {canonicalize_name(distribution.name): distribution for distribution in installed() if distribution.name}
    sizes = recorded_sizes(found.values())
    wrong = [f"{name}: {why}" for name, distribution in found.items() if (why := damage(distribution, sizes))]
    for line in requirements.read_text().splitlines():
        if not line or line.startswith("#") or line.lstrip().startswith("--hash"):
            continue
        wanted = Requirement(line.removesuffix(" \\"))
        distribution = found.get(canonicalize_name(wanted.name))
        if wanted.marker and not wanted.marker.evaluate():
            continue
        if not distribution or not wanted.specifier.contains(distribution.version, prereleases=True):
            wrong.append(f"{line} is wanted, {distribution.version if distribution else 'nothing'} is installed")
    if requirements.stem.startswith("cpu") and "torch" in found and found["torch"].version.endswith("+cpu"):
        cuda = [name for name in found if name.startswith("nvidia-") and name != "nvidia-ml-py"]
        wrong += [f"{name}: a CUDA package in an environment for CPU" for name in cuda]
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "--forget-broken":
        if not (Path(sys.prefix) / ".real_env").exists():
            sys.exit(f"{sys.prefix} was not made by setup_env.sh")
        sizes = recorded_sizes(every := installed())
        for distribution in every:
            if damage(distribution, sizes):
                shutil.rmtree(distribution._path)
    else:
        wrong = problems(Path(sys.argv[1]))
        print("\n".join(wrong))
        sys.exit(1 if wrong else 0)
