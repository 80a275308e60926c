"""Data sets of the Hugging Face hub, as OWNER/NAME or OWNER/NAME@FOLDER, OpenRLHF's form for one folder of a set."""

import os

from real_openrlhf.base.errors import last_line
from real_openrlhf.training.checks.preflight import Findings


def findings_of(name: str, flag: str, findings: Findings) -> None:
    """Ask the hub whether it has the set. Its rows are not read: that would be the download."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    repo = name.partition("@")[0]
    prepare = f"`real-openrlhf data {repo} --out FILE.jsonl` writes a file that is checked"
    try:
        HfApi().dataset_info(repo, timeout=10)
    except GatedRepoError:
        findings.problems.append(f"{flag} {name} needs a login. Run `hf auth login` with an account that may read it.")
    except RepositoryNotFoundError:
        findings.problems.append(f"{flag} {name} is neither a file here nor a data set of the hub. Check the name.")
    except Exception as error:  # the hub's client raises a dozen unrelated types for one missing network
        said = f"{flag} {name} is no file here, and the hub cannot be asked about it ({last_line(error)})"
        if findings.elsewhere:
            findings.notes.append(f"{said}: its existence was not checked")
        elif not cached(repo):
            findings.problems.append(f"{said}. Check the network, or name a file.")
    findings.notes.append(
        f"{flag} {name} comes from the hub and its rows were not checked; a set of several configurations needs the "
        f"folder of one, as {repo}@main. {prepare}"
    )


def cached(repo: str) -> bool:
    """Whether `datasets` has made the set before."""
    from datasets.config import HF_DATASETS_CACHE

    return os.path.isdir(os.path.join(HF_DATASETS_CACHE, repo.replace("/", "___")))
