"""Check a model by its files' headers, before every rank loads gigabytes of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed
from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks.findings import Note
from real_openrlhf.training.checks.preflight import HUB_ID

CPU_HEAD_WIDTHS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)  # vLLM's CPUAttentionBackend has this list
WEIGHTS, SHARDS = "model.safetensors", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


class Unreachable(UserError):
    """The hub does not answer, and the model is not in its cache."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}. Check the network, or give a folder with --model.")
        self.said = said


def read_config(model: str) -> dict:
    """The model's config.json. Raises for a path that does not exist, and for a hub id that the hub does not have."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"model {model} is a folder without config.json. Give a Hugging Face model folder.")
        return _json(path / "config.json")
    if path.is_file() or path.is_absolute() or model.startswith((".", "~")) or not HUB_ID.fullmatch(model):
        wrong = "is a file" if path.is_file() else "does not exist"
        raise UserError(f"model {model} {wrong}. Give an existing folder, or a hub id such as Qwen/Qwen2.5-1.5B.")
    return _hub_config(model)


def _json(path: Path) -> dict:
    try:
        value = parsed(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"model {path} is not JSON ({last_line(error)}). Download the model again.") from None
    if not isinstance(value, dict):
        raise UserError(f"model {path} is not a JSON object. Download the model again.")
    return value


def _hub_config(model: str) -> dict:
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    config = try_to_load_from_cache(model, "config.json")
    try:
        if not isinstance(config, str):
            HfApi().model_info(model, timeout=10)  # unlike a download, this does not try again for half a minute
            config = hf_hub_download(model, "config.json")
    except GatedRepoError:
        raise UserError(
            f"model {model} needs a login. Run `hf auth login` with an account that may read it."
        ) from None
    except RepositoryNotFoundError:
        raise UserError(f"model {model} is no folder here, and not on the hub. Check the name.") from None
    except Exception as error:  # the hub's client raises a dozen unrelated types for one missing network
        said = f"{model} is no folder here, not in the cache, and the hub cannot be asked ({last_line(error)})"
        raise Unreachable(said) from None
    return _json(Path(config))


def heads_problem(config: dict) -> str | None:
    """Refuse heads that vLLM cannot compute on CPU. Its engine would fail after a minute, with a traceback."""
    config = config.get("text_config") or config
    heads = config.get("num_attention_heads")
    width = config.get("head_dim") or (config.get("hidden_size", 0) // heads if heads else None)
    if width in (None, *CPU_HEAD_WIDTHS):
        return None
    widths = ", ".join(map(str, CPU_HEAD_WIDTHS))
    return f"its heads are {width} wide, and vLLM's attention on CPU takes {widths}. Take a model with one of these."


def problems(plan: Plan, config: dict, on_cpu: bool, elsewhere: bool) -> Iterator[str]:
    """Why this run cannot train the model: its files, its class, its heads on CPU."""
    yield from folder_problems(plan, config, elsewhere)
    heads = heads_problem(config) if on_cpu else None
    for wrong in filter(None, (*unfit_problems(plan, config), heads)):
        yield f"model {plan.args.actor.model_name_or_path}: {wrong}"


def unfit_problems(plan: Plan, config: dict) -> Iterator[str]:
    """Reasons why packing, the attention or the logit-free head do not go with this model."""
    from real_openrlhf.hooks.model import unfit_models

    ds, train = plan.args.ds, plan.args.train
    way = unfit_models.Way(
        attention=ds.attn_implementation,
        packs=ds.packing_samples or train.dynamic_batch_enable or ds.ring_attn_size > 1,  # OpenRLHF packs with either
        logit_free=ds.logit_free,
    )
    try:
        read, model_class = unfit_models.as_transformers_reads(config)
    except Exception:  # Python code of the model's own, or a field that is missing: loading asks again
        read, model_class = config.get("text_config") or config, None
    yield from unfit_models.problems(way, read, model_class)


def folder_problems(plan: Plan, config: dict, elsewhere: bool) -> Iterator[str]:
    """Check a model in a folder: whole weights that fit configuration, tokenizer and flags."""
    folder = Path(plan.args.actor.model_name_or_path).expanduser()
    if not folder.is_dir():
        return
    if "auto_map" in config:
        yield Note(f"model {folder} brings Python code of its own, which OpenRLHF runs")
    if not any((folder / name).exists() for name in (WEIGHTS, SHARDS)):
        wrong = f"it has neither {WEIGHTS} nor {SHARDS}. Download the model again."
        if pickled := sorted(path.name for path in folder.glob("*.bin")):
            wrong = (
                f"its weights are Python pickles ({pickled[0]}), which can run code when they are loaded, and are not "
                "loaded. Save the model as safetensors."
            )
        # a dry run for another machine needs only the configuration
        yield Note(f"model {folder}: {wrong}") if elsewhere else f"model {folder}: {wrong}"
        return
    for check in (_weights, _tokenizer, _context):
        try:
            yield from (f"model {folder}: {wrong}" for wrong in check(folder, config, plan))
        except UserError as error:
            yield from error.problems


def _weights(folder: Path, config: dict, plan: Plan) -> Iterator[str]:
    index, files = WEIGHTS, [WEIGHTS]
    if (folder / SHARDS).exists():
        where = _json(folder / SHARDS).get("weight_map")
        if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
            raise UserError(f"model {folder / SHARDS} has no weight_map. Download the model again.")
        index, files = SHARDS, sorted(set(where.values()))
    shapes: dict[str, list] = {}
    for name in files:
        if Path(name).name != name or not (folder / name).is_file():
            yield f"{name}, which {index} names, is missing. Download the model again."
            return
        shapes |= tensor_shapes(folder / name)
    yield from _head(shapes, config)


def tensor_shapes(path: Path) -> dict[str, list]:
    """Names and shapes in a safetensors file; refuses a file whose length differs from its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}
    except SafetensorError as error:
        raise UserError(
            f"model {path} is not a safetensors file, or it is cut off ({last_line(error)}). Download it again."
        ) from None


def _head(shapes: dict[str, list], config: dict) -> Iterator[str]:
    tied = config.get("tie_word_embeddings", True)
    if shapes and not tied and "lm_head.weight" not in shapes and any("embed_tokens" in name for name in shapes):
        yield (
            "config.json says that its head has weights of its own (tie_word_embeddings false), and no file has "
            "lm_head.weight: the head would be random. Set tie_word_embeddings to true, or add the weights."
        )
    words = config.get("vocab_size")
    for name, shape in shapes.items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight")) and words and shape[:1] != [words]:
            yield (
                f"{name} has {shape[0] if shape else 0} rows, and config.json says vocab_size {words}. Files of two "
                "models are in one folder: download it again."
            )
            return


def _tokenizer(folder: Path, config: dict, plan: Plan) -> Iterator[str]:
    if not any((folder / name).is_file() for name in TOKENIZERS):
        yield f"it has no tokenizer ({', '.join(TOKENIZERS)}). Copy the model's own into the folder."
        return
    settings = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    if not settings.get("pad_token") and not settings.get("eos_token"):
        yield "its tokenizer has no pad_token and no eos_token to pad with. Name one in tokenizer_config.json."
    templates = (folder / "chat_template.jinja").exists() or (folder / "chat_template.json").exists()
    if plan.args.data.apply_chat_template and not (settings.get("chat_template") or templates):
        yield (
            "it has no chat template, which --data.apply_chat_template needs. Add chat_template to "
            "tokenizer_config.json, or give --no-data.apply_chat_template and prompts that are text."
        )
    if (folder / "tokenizer.json").is_file():
        yield from _vocabulary(_json(folder / "tokenizer.json"), config.get("vocab_size"))


def _vocabulary(tokenizer: dict, words: Any) -> Iterator[str]:
    vocabulary = (tokenizer.get("model") or {}).get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else range(len(vocabulary or ()))
    added = [token.get("id") for token in tokenizer.get("added_tokens") or () if isinstance(token, dict)]
    highest = max((number for number in (*ids, *added) if isinstance(number, int)), default=-1)
    if isinstance(words, int) and highest >= words:
        yield (
            f"its tokenizer has token {highest}, and config.json says vocab_size {words}: that token would have no "
            "embedding. Use the tokenizer of this model."
        )


def _context(folder: Path, config: dict, plan: Plan) -> Iterator[str]:
    limit, longest = config.get("max_position_embeddings"), plan.args.data.max_len
    if isinstance(limit, int) and not config.get("rope_scaling") and longest > limit:
        yield (
            f"it was made for {limit} tokens (max_position_embeddings), and --data.max_len is {longest}. Give "
            f"{limit} or less."
        )
