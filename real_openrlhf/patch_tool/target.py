"""The OpenRLHF to patch: a folder that contains openrlhf/, most often site-packages, found without an import."""

import importlib.metadata
import json
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base.errors import UserError
from real_openrlhf.patch_tool.series import UNKNOWN, Series

REINSTALL = f"`pip install --force-reinstall --no-deps openrlhf=={OPENRLHF_VERSION}`"


def find_target(root: Path | None, series: Series) -> tuple[Path, str | None]:
    """The installed one, or the one in `root`; `UserError` for another version than the series is for.

    With it, if this OpenRLHF is not ours to change, the reason and how its owner applies the series instead.
    """
    if root is not None:
        root = root.expanduser().resolve()
        if not (root / "openrlhf").is_dir():
            raise UserError(f"{root} contains no folder openrlhf. Give --root the folder that contains it.")
        found = list(importlib.metadata.distributions(name="openrlhf", path=[str(root)]))
        if not found:
            return root, None
        distribution = found[0]
    else:
        try:
            distribution = importlib.metadata.distribution("openrlhf")
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"openrlhf is not installed for {sys.executable}. Install openrlhf=={OPENRLHF_VERSION} "
                "(examples/scripts/setup_env.sh does it), or name a folder with --root."
            ) from None
        root = Path(str(distribution.locate_file(""))).resolve()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    foreign, am = None, f"`git am {series.folder}/*.patch`"
    if origin.get("dir_info", {}).get("editable"):
        checkout = Path(unquote(urlparse(origin["url"]).path))
        foreign = f"openrlhf is an editable install of {checkout}. Use git there: {am}, or `git revert`."
        root = checkout if (checkout / "openrlhf").is_dir() else root
    elif "vcs_info" in origin:
        foreign = f"openrlhf was installed from {origin['url']}. In a clone of it: {am}, then `pip install .` there."
    if not (root / "openrlhf").is_dir():
        raise UserError(f"the openrlhf folder is missing from {root}. Reinstall it: {REINSTALL}.")
    if distribution.version != OPENRLHF_VERSION:
        raise UserError(
            f"{root} has openrlhf {distribution.version}, the patches are for {OPENRLHF_VERSION}. "
            f"Install that: `pip install openrlhf=={OPENRLHF_VERSION}`."
        )
    return root, foreign


def refuse_unknown(root: Path, states: dict[str, str]) -> None:
    unknown = [path for path, state in states.items() if state == UNKNOWN]
    if unknown:
        raise UserError(
            f"changed by something else in {root}, or patched by another series: {', '.join(unknown)}. "
            f"Nothing was written. Reinstall openrlhf ({REINSTALL}), then apply again."
        )
