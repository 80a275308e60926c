"""Data sets of the Hugging Face hub, as OWNER/NAME or OWNER/NAME@FOLDER, OpenRLHF's form for one folder of a set."""

import os
from collections.abc import Iterator

from real_openrlhf.base.errors import last_line
from real_openrlhf.training.checks.findings import Note


def check(name: str, flag: str, elsewhere: bool) -> Iterator[str]:
    """Ask the hub whether it has the set. Its rows are not read: that would be the download."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    repo = name.partition("@")[0]
    prepare = f"`real-openrlhf data {repo} --out FILE.jsonl` writes a file that is checked"
    try:
        HfApi().dataset_info(repo, timeout=10)
    except GatedRepoError:
        yield f"{flag} {name} needs a login. Run `hf auth login` with an account that may read it."
    except RepositoryNotFoundError:
        yield f"{flag} {name} is neither a file here nor a data set of the hub. Check the name."
    except Exception as error:  # the hub's client raises a dozen unrelated types for one missing network
        said = f"{flag} {name} is no file here, and the hub cannot be asked about it ({last_line(error)})"
        if elsewhere:
            yield Note(f"{said}: its existence was not checked")
        elif not cached(repo):
            yield f"{said}. Check the network, or name a file."
    yield Note(
        f"{flag} {name} comes from the hub and its rows were not checked; a set of several configurations needs the "
        f"folder of one, as {repo}@main. {prepare}"
    )


def cached(repo: str) -> bool:
    """Whether `datasets` has made the set before."""
    from datasets.config import HF_DATASETS_CACHE

    return os.path.isdir(os.path.join(HF_DATASETS_CACHE, repo.replace("/", "___")))
