"""Check a model by its config.json, before every rank loads gigabytes of it."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed
from real_openrlhf.data.sources import is_hub_name
from real_openrlhf.hooks.model.model_support import PLAIN
from real_openrlhf.training.checks import Note

LINEAR = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"  # of plain models


class Unreachable(UserError):
    """The hub does not give the model, and it is not in its cache."""


def read_config(model: str) -> dict:
    """The model's config.json: of a folder, or from the hub."""
    path = Path(model).expanduser()
    if not is_hub_name(model, "model"):
        try:
            return dict(parsed((path / "config.json").read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or last_line(error)
            raise UserError(
                f"model {model} has no readable config.json ({reason}). Give an existing model folder, or a hub id "
                "such as Qwen/Qwen2.5-1.5B."
            ) from None
    try:
        return dict(parsed(_hub_file(model, "config.json").read_bytes()))
    except Exception as error:  # the hub's client raises a dozen unrelated types
        raise Unreachable(
            f"model {model} is no folder here, not in the cache, and the hub does not give it "
            f"({last_line(error)}). Check its name, the network, and `hf auth login`."
        ) from None


def _hub_file(model: str, name: str) -> Path:
    """From the hub; where it does not give it, from the cache."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    refused = None
    try:  # once: a download would try for half a minute
        get_hf_file_metadata(hf_hub_url(model, name), timeout=5)
    except Exception as error:
        refused = error
    try:
        return Path(hf_hub_download(model, name, local_files_only=refused is not None))
    except Exception as error:
        raise refused or error from None


def lacks_chat_template(model: str) -> bool:
    """Whether its tokenizer has none; False where the hub does not tell."""
    from huggingface_hub.errors import EntryNotFoundError

    for name in ("chat_template.jinja", "tokenizer_config.json"):
        try:
            file = _hub_file(model, name) if is_hub_name(model, "model") else Path(model).expanduser() / name
            if file.suffix == ".jinja" and file.exists() or "chat_template" in parsed(file.read_bytes()):
                return False
        except (EntryNotFoundError, FileNotFoundError):
            continue
        except Exception:
            return False
    return True


def model_problems(args: SimpleNamespace, config: dict) -> Iterator[str]:
    """Why this run would train the model wrongly."""
    model = args.actor.model_name_or_path
    if "auto_map" in config:
        yield Note(f"model {model} brings Python code of its own, which OpenRLHF runs")
    yield from (f"model {model}: {wrong}" for wrong in unfit_problems(args, config))
    if args.data.apply_chat_template and lacks_chat_template(model):
        yield f"model {model} has no chat template. Give --no-data.apply_chat_template, or a model that has one"
    names, typed = LINEAR.split(), args.ds.lora.target_modules
    wrong = [name for name in typed if name.rpartition(".")[2] not in names] if isinstance(typed, list) else []
    if args.ds.lora.rank and wrong and config.get("model_type") in PLAIN:  # PEFT would leave out one of several
        yield f"--ds.lora.target_modules {wrong[0]} is not trained in {model}. Choose from {', '.join(names)}"
    if args.actor.aux_loss_coef and not router_loss(config):
        yield f"--actor.aux_loss_coef is not read: {model} has no auxiliary loss of experts. Leave it out"


def router_loss(config: dict) -> bool:
    """Whether transformers' model has an auxiliary loss, by the field that OpenRLHF asks for."""
    from real_openrlhf.hooks.model.model_support import as_transformers_reads

    try:
        read, _ = as_transformers_reads(config)
    except Exception:  # Python code of the model's own
        return True
    return "output_router_logits" in read


def unfit_problems(args: SimpleNamespace, config: dict) -> Iterator[str]:
    """Reasons why packing, the attention or the fused head do not go with this model."""
    from real_openrlhf.hooks.model import model_support

    ds, train = args.ds, args.train
    packs = ds.packing_samples or train.dynamic_batch_enable or ds.ring_attn_size > 1  # OpenRLHF packs with either
    way = model_support.Features(ds.attn_implementation, packs, ds.fused_logprobs)
    try:
        read, model_class = model_support.as_transformers_reads(config)
    except Exception:  # Python code of the model's own, or a field that is missing: loading asks again
        read, model_class = config.get("text_config") or config, None
    yield from model_support.model_problems(way, read, model_class)
