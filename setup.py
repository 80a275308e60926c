"""Packaging metadata. The pinned stack lives in requirements/, the OpenRLHF pin in real_openrlhf/__init__.py."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
REPOSITORY = ""  # this repository's address, once it has one: its owner fills it in, here and in CITATION.cff


def version(folder: str) -> str:
    return re.search(r'^__version__ = "(.+)"$', (ROOT / folder / "__init__.py").read_text(), re.M).group(1)


setup(
    name="real-openrlhf",
    version=version("real_openrlhf"),
    description="REAL (Rewards as Labels) on OpenRLHF: RLVR as classification, exact in any layout",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    project_urls={
        name: REPOSITORY + path
        for name, path in (("Source", ""), ("Issues", "/issues"), ("Changelog", "/blob/main/CHANGELOG.md"))
        if REPOSITORY
    },
    python_requires=">=3.10",  # the loss; training: setup_env.sh takes 3.11 or 3.12
    # patches/ sits beside the package in a checkout and inside it in a wheel: real_openrlhf/patching.py looks in both
    packages=[*find_packages(include=["real_openrlhf", "real_openrlhf.*"]), "real_openrlhf.patches"],
    package_dir={"real_openrlhf.patches": "patches"},
    package_data={
        "real_openrlhf": ["py.typed", "report/*.j2", "report/published.json", "training/made/*"],
        "real_openrlhf.patches": ["README.md", "openrlhf-*/*"],
    },
    # the loss, and --help of every subcommand; what a subcommand needs beside that is an extra of its name
    # same-answer is the folder same_answer/ of this version: pip install ./same_answer .
    install_requires=["numpy", f"same-answer=={version('same_answer/src/same_answer')}", "torch>=2.4", "tqdm"],
    extras_require={
        # none for training: OpenRLHF asks for flash-attn, which pip would compile. examples/scripts/setup_env.sh
        "eval": ["math-verify==0.9.0", "vllm"],
        "data": ["datasets", "huggingface_hub", "pyarrow", "transformers"],
        "grade": ["math-verify==0.9.0"],
        "report": ["jinja2", "matplotlib", "mpmath", "pandas"],
        "dev": ["hypothesis", "mypy", "pre-commit", "pytest", "pytest-xdist", "ruff"],
    },
    entry_points={
        "console_scripts": ["real-openrlhf = real_openrlhf.cli:main"],
        "vllm.general_plugins": ["real_openrlhf = real_openrlhf.hooks.engine.plugin:start"],
    },
)
