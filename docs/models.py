"""Tries small random copies of architectures and writes docs/use/models.md, in about ten minutes.

    python docs/models.py

Each architecture runs in a process of its own, so that one that dies does not end the page. `--only NAME` prints one.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parent / "use" / "models.md"
EXACT = 5e-5  # nats, in fp32
GAP = 0.03  # nats per token between vLLM and policy in bf16, on average
SECONDS = 240  # for one architecture


class Published(NamedTuple):
    """A published model: its parameters in billions as its card says, and the fields of its config.json.

    The fields were written down by hand, without access to Hugging Face's hub. `dry_run` counts the parameters that
    they make, and fails if the card's number is another.
    """

    name: str
    billions: float
    fields: dict[str, Any]


SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def shape(*sizes: int, vocab: int, tied: bool = False, **more: Any) -> dict[str, Any]:
    return {**dict(zip(SIZES, sizes, strict=True)), "vocab_size": vocab, "tie_word_embeddings": tied, **more}


LFM2_LAYERS = [*["conv", "conv", "full_attention"] * 2, *["conv", "conv", "full_attention"]]
LFM2_LAYERS = [*LFM2_LAYERS, "conv", "full_attention", "conv", "full_attention", "conv", "full_attention", "conv"]
# architecture: (type in config.json, the published model, what its small copy has beside SMALL)
MODELS: dict[str, tuple[str, Published, dict[str, Any]]] = {
    "Qwen2, Qwen2.5": (
        "qwen2", Published("Qwen/Qwen2.5-7B", 7.62, shape(3584, 18944, 28, 28, 4, vocab=152064)), {}
    ),
    "DeepSeek's distills of Qwen": (
        "qwen2",
        Published("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.78, shape(1536, 8960, 28, 12, 2, vocab=151936)),
        {},
    ),
    "Qwen3": (
        "qwen3", Published("Qwen/Qwen3-8B", 8.19, shape(4096, 12288, 36, 32, 8, vocab=151936, head_dim=128)), {}
    ),
    "Qwen3-MoE": (
        "qwen3_moe",
        Published(
            "Qwen/Qwen3-30B-A3B", 30.5,
            shape(2048, 6144, 48, 32, 4, vocab=151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
                  moe_intermediate_size=768),
        ),
        dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
    ),
    "Qwen3.5": (
        "qwen3_5_text",
        Published(
            "Qwen/Qwen3.5-9B", 9.0,
            shape(4096, 12288, 32, 16, 4, vocab=248320, head_dim=256, linear_num_value_heads=32),
        ),
        dict(linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32),
    ),
    "Qwen3-Next": (
        "qwen3_next",
        Published(
            "Qwen/Qwen3-Next-80B-A3B-Instruct", 80.0,
            shape(2048, 5120, 48, 16, 2, vocab=151936, head_dim=256, num_experts=512, num_experts_per_tok=10,
                  moe_intermediate_size=512, shared_expert_intermediate_size=512, full_attention_interval=4),
        ),
        dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
             linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32),
    ),
    "Llama 3": (
        "llama", Published("meta-llama/Llama-3.1-8B", 8.03, shape(4096, 14336, 32, 32, 8, vocab=128256)), {}
    ),
    "SmolLM2": (
        "llama",
        Published("HuggingFaceTB/SmolLM2-1.7B", 1.71, shape(2048, 8192, 24, 32, 32, vocab=49152, tied=True)),
        dict(tie_word_embeddings=True),
    ),
    "SmolLM3": (
        "smollm3",
        Published("HuggingFaceTB/SmolLM3-3B", 3.08, shape(2048, 11008, 36, 16, 4, vocab=128256, tied=True)),
        dict(tie_word_embeddings=True),
    ),
    "Gemma 2": (
        "gemma2",
        Published("google/gemma-2-9b", 9.24, shape(3584, 14336, 42, 16, 8, vocab=256000, tied=True, head_dim=256)),
        dict(sliding_window=16, query_pre_attn_scalar=32, tie_word_embeddings=True),
    ),
    "Gemma 3, text": (
        "gemma3_text",
        Published(
            "google/gemma-3-1b-it", 1.0,
            shape(1152, 6912, 26, 4, 1, vocab=262144, tied=True, head_dim=256, sliding_window=512),
        ),
        dict(sliding_window=16, query_pre_attn_scalar=32, tie_word_embeddings=True),
    ),
    "Mistral": (
        "mistral",
        Published(
            "mistralai/Mistral-7B-v0.3", 7.25, shape(4096, 14336, 32, 32, 8, vocab=32768, sliding_window=None)
        ),
        dict(sliding_window=16),
    ),
    "OLMo 2": (
        "olmo2", Published("allenai/OLMo-2-1124-7B", 7.3, shape(4096, 11008, 32, 32, 32, vocab=100352)), {}
    ),
    "OLMo 3": (
        "olmo3",
        Published("allenai/Olmo-3-1025-7B", 7.3, shape(4096, 11008, 32, 32, 32, vocab=100278, sliding_window=4096)),
        dict(sliding_window=16),
    ),
    "Phi-3, Phi-4": (
        "phi3",
        Published("microsoft/Phi-4-mini-instruct", 3.84, shape(3072, 8192, 32, 24, 8, vocab=200064, tied=True)),
        {},
    ),
    "Granite 3": (
        "granite",
        Published(
            "ibm-granite/granite-3.3-8b-base", 8.17,
            shape(4096, 12800, 40, 32, 8, vocab=49152, tied=True, logits_scaling=16.0),
        ),
        dict(logits_scaling=4.0, attention_multiplier=0.2),
    ),
    "gpt-oss": (
        "gpt_oss",
        Published(
            "openai/gpt-oss-20b", 20.9,
            shape(2880, 2880, 24, 64, 8, vocab=201088, head_dim=64, num_local_experts=32, num_experts_per_tok=4),
        ),
        dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    ),
    "LFM2": (
        "lfm2",
        Published(
            "LiquidAI/LFM2-1.2B", 1.17,
            shape(2048, 12288, 16, 32, 8, vocab=65536, tied=True, layer_types=LFM2_LAYERS, block_ff_dim=12288,
                  block_auto_adjust_ff_dim=True),
        ),
        dict(layer_types=["conv", "conv", "full_attention", "conv"], conv_dim=64, tie_word_embeddings=True),
    ),
}  # fmt: skip
SMALL = dict(
    vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, head_dim=32,
    num_key_value_heads=1, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip

ENVIRONMENT = dict(
    VLLM_CPU_KVCACHE_SPACE="1", TORCHDYNAMO_DISABLE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1",
)  # fmt: skip
# vLLM runs these with transformers' own classes, which it changes: there it needs a process of its own.
CLASSES_OF_TRANSFORMERS = ("smollm3", "olmo2", "olmo3")


class Trial:
    """One architecture: each method gives a word for its column of the page."""

    def __init__(self, name: str, folder: Path) -> None:
        import torch
        from transformers import AutoConfig

        from real_openrlhf.hooks.model import flash_attention_torch

        flash_attention_torch.register()
        self.kind, self.published, more = MODELS[name]
        self.folder, self.flags = folder, set()
        self.config = AutoConfig.for_model(self.kind, **SMALL | more)
        self.rows = torch.randint(3, 256, (2, 24), generator=torch.Generator().manual_seed(0))
        self.plain = self.made("sdpa")
        self.alone = torch.cat([self.of_logits(self.plain, row[None])[0] for row in self.rows])

    def made(self, attention: str, seed: int = 0) -> Any:
        """The same weights for a seed, so large that an error shows; in fp32."""
        import torch
        from transformers import AutoModelForCausalLM

        for one in (attention, "eager"):
            torch.manual_seed(seed)  # for what is no matrix
            with contextlib.suppress(ValueError):  # a model without sdpa
                model = AutoModelForCausalLM.from_config(
                    deepcopy(self.config), attn_implementation=one, dtype=torch.float32
                )
                break
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.08, generator=draw)
        return model.eval()

    def of_logits(self, model: Any, tokens: Any, **named: Any) -> Any:
        import torch

        with torch.no_grad():
            logits = model(tokens, use_cache=False, **named).logits.float()
        return logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1)

    def head_of(self, model: Any) -> Any:
        from real_openrlhf.hooks.model.fused_logprobs import FusedLogprobsHead

        return FusedLogprobsHead(model, 1.0, rounded=False, say=lambda line: None)

    def same(self, found: Any, expected: Any) -> str:
        worst = float((found - expected).abs().max())
        return "exact" if worst < EXACT else f"differs by {worst:.1e} nats"

    def packed(self) -> str:
        import torch

        model = self.made("flash_attention_torch")
        places = torch.arange(24).repeat(2)[None]
        found = self.of_logits(model, self.rows.reshape(1, -1), attention_mask=None, position_ids=places)[0]
        return self.same(torch.cat([found[:23], found[24:]]), self.alone)

    def padded(self) -> str:
        """On both sides, with the attention of the GPU recipes where the model takes it."""
        import torch

        from real_openrlhf.base.errors import UserError

        model = self.plain
        with contextlib.suppress(UserError):
            model = self.made("flash_attention_torch")
        tokens, mask = (torch.nn.functional.pad(one, (5, 3)) for one in (self.rows, torch.ones_like(self.rows)))
        mask[0], tokens[0] = 1, tokens[0].clamp(min=3)
        positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        found = self.of_logits(model, tokens, attention_mask=mask, position_ids=positions)
        return self.same(found[1, 5 : 5 + 23], self.alone[23:])

    def head(self) -> str:
        import torch

        with torch.no_grad():
            scoring = self.head_of(self.plain).scoring(self.plain, self.rows.roll(-1, 1), False)
            found = scoring(self.rows, attention_mask=None)["logits"][:, :-1, 0]
        return self.same(found.flatten(), self.alone)

    def lora(self) -> tuple[str, Any]:
        """The head of a policy with adapters, and the merged weights that vLLM gets."""
        import peft
        import torch

        model = self.made("sdpa", seed=2)
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")).eval()
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, 0, 0.1, generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            found = self.of_logits(model, self.rows)
            from real_openrlhf.hooks.model.lora_weights import MergedWeights

            merged = self.made("sdpa", seed=2)
            missing = merged.load_state_dict({name: one.float() for name, one in MergedWeights(model)}, strict=False)
        unknown = ", ".join(missing.unexpected_keys[:2])
        return (self.same(self.of_logits(merged, self.rows), found) if not unknown else f"unknown: {unknown}"), merged

    def engine(self) -> dict[str, str]:
        """vLLM starts with other weights, gets the policy's as in a run, and samples; then the LoRA policy's."""
        import torch

        self.made("sdpa", seed=1).to(torch.bfloat16).save_pretrained(self.folder)
        (self.folder / "generation_config.json").unlink(missing_ok=True)
        from vllm import LLM

        engine = LLM(
            str(self.folder), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=64, seed=0,
            max_num_seqs=16,
        )  # fmt: skip
        other = self.made("sdpa", seed=1)
        first = self.gap(engine, other)
        found = {"started": f"{first:.4f}"}
        found["hand-over"], found["gap"] = self.handed(engine, self.plain, other)
        found["LoRA"], merged = self.lora()
        if found["LoRA"] == found["hand-over"] == "exact":
            found["LoRA"], _ = self.handed(engine, merged, self.plain)
        return found

    def handed(self, engine: Any, policy: Any, before: Any) -> tuple[str, str]:
        """(word, gap)"""
        weights = [(name, one.detach().bfloat16()) for name, one in policy.named_parameters()]

        def load(worker: Any) -> None:
            from real_openrlhf.hooks.cpu.vllm import take

            for number, (name, weight) in enumerate(weights, 1):
                take(worker, name, weight, last=number == len(weights))

        try:
            engine.collective_rpc(load)
        except Exception as error:
            print(f"hand-over: {type(error).__name__}: {error}", file=sys.stderr)
            return "fails", "-"
        gap, unrelated = self.gap(engine, policy), self.gap(engine, before)
        good = gap < GAP and gap < unrelated / 10
        return "exact" if good else "wrong", f"{gap:.4f}"

    def gap(self, engine: Any, policy: Any) -> float:
        import torch
        from vllm import SamplingParams

        params = [
            SamplingParams(max_tokens=16, seed=seed, logprobs=0, ignore_eos=True, detokenize=False)
            for seed in range(8)
        ]
        prompts = [{"prompt_token_ids": self.rows[seed % 2, : 8 + seed].tolist()} for seed in range(8)]
        bf16, differences = policy.to(torch.bfloat16), []
        for answer in engine.generate(prompts, params, use_tqdm=False):
            output, start = answer.outputs[0], len(answer.prompt_token_ids)
            said = [place[token].logprob for token, place in zip(output.token_ids, output.logprobs, strict=True)]
            whole = torch.tensor([[*answer.prompt_token_ids, *output.token_ids]])
            differences += (self.of_logits(bf16, whole)[0, start - 1 :] - torch.tensor(said)).abs().tolist()
        policy.float()
        return sum(differences) / len(differences)

    def dry_run(self) -> dict[str, str]:
        """Refusals of the published shape with `qwen7b`, and the flags that answer them."""
        import torch
        from safetensors.numpy import save_file
        from transformers import AutoConfig, AutoModelForCausalLM

        raw = {"model_type": self.kind, "max_position_embeddings": 40960, **self.published.fields}
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(self.kind, **self.published.fields))
        count = sum(one.numel() for one in model.parameters()) / 1e9
        if abs(count / self.published.billions - 1) > 0.02:
            raise ValueError(
                f"{self.published.name} has {self.published.billions} B parameters, the shape {count:.2f}"
            )
        place = self.folder / "published"
        place.mkdir()
        (place / "config.json").write_text(json.dumps(raw))
        save_file({}, place / "model.safetensors")  # what a dry run reads besides
        (place / "tokenizer.json").write_text("{}")
        (place / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": "-"}))
        problems = self.problems(place)
        flags = [flag for flag, parts in FLAGS.items() if any(part in one for part in parts for one in problems)]
        if left := self.problems(place, *" ".join(flags).split()):
            raise ValueError(f"{flags} do not help: {left}")
        return {"flags": " ".join(flags), "refusals": " ".join(problems)}

    def problems(self, model: Path, *flags: str) -> list[str]:
        """Of a dry run."""
        from real_openrlhf.cli import main

        out, err = io.StringIO(), io.StringIO()
        words = ("train", "--recipe", "qwen7b", "--model", str(model), "--dry-run", "--runs-dir", str(self.folder))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([*words, *flags])
        return [line.removeprefix("  - ") for line in err.getvalue().splitlines() if line[:4] == "  - "]


REFUSED = "refused"


def tried(name: str) -> dict[str, Any]:
    """The row of one architecture."""
    from real_openrlhf.base.errors import UserError

    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"} if MODELS[name][0] in CLASSES_OF_TRANSFORMERS else {}
    os.environ.update(ENVIRONMENT | own)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(name, Path(folder))
        row: dict[str, Any] = trial.dry_run()
        for column in ("packed", "padded", "head"):
            try:
                row[column] = getattr(trial, column)()
            except UserError:
                row[column] = REFUSED
        if "carry state" in row["refusals"]:
            row["leak"], row["packed"] = row["packed"], REFUSED
        try:
            row |= trial.engine()
        except Exception as error:
            row |= {"hand-over": "unsupported", "gap": "-"}
            row["why"] = f"{type(error).__name__}: {' '.join(str(error).split())[:250]}"
            row["LoRA"] = trial.lora()[0]
    return row


# flag: what a refusal says that it answers
FLAGS = {
    "--ds.attn_implementation eager": ("flash_attention_torch:",),
    "--no-ds.packing_samples --no-train.dynamic_batch_enable": ("flash_attention_torch:", "in packed responses"),
    "--no-ds.fused_logprobs": ("--ds.fused_logprobs:",),
}


def reason(errors: str) -> str:
    """The last error that Python printed, without what other libraries print when a process ends."""
    return next((line for line in reversed(errors.splitlines()) if "Error: " in line), errors[-300:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS)
    args = parser.parse_args()
    if args.only:
        print("\n" + json.dumps(tried(args.only)))
        return
    rows = {}
    for name in MODELS:
        command = [sys.executable, __file__, "--only", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            rows[name] = (
                json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"died": reason(done.stderr)}
            )
        except subprocess.TimeoutExpired:
            rows[name] = {"died": f"no result in {SECONDS} seconds"}
        print(name, json.dumps(rows[name]), flush=True)
    PAGE.write_text(page(rows))


COLUMNS = {
    "packed": "packed",
    "padded": "padded",
    "head": "no logits",
    "LoRA": "LoRA",
    "hand-over": "weights to vLLM",
}
TEXT = """# Which models work

`--model` takes any of these architectures. Where a part is refused, the last column has the flags to add to a GPU
recipe.

{table}

Each architecture is tried as a small random copy, on CPU with {versions}:

- **packed**: several responses in one sequence, as the GPU recipes train them. Layers with linear attention or
  convolutions would carry state from one response into the next ({leaks} in these copies), and capped
  scores or attention sinks need another kernel;
- **padded**: one response per row;
- **no logits**: `--ds.fused_logprobs`, against the model's own logits;
- **LoRA**: adapters on every linear layer, merged for vLLM;
- **weights to vLLM**: a vLLM engine with other weights gets the policy's and samples. *Unsupported*: by vLLM's CPU
  build.

*Exact* means at most {exact:g} nats per token in fp32; for vLLM in bf16, a mean difference below {gap:g}.

`python docs/models.py` makes this page. Nobody has tried models with experts on a GPU. `--actor.aux_loss_coef` trains
their auxiliary loss, which no number logs.
"""


def page(rows: dict[str, dict]) -> str:
    from importlib.metadata import version

    good = {name: row for name, row in rows.items() if "died" not in row}
    body: dict[tuple[str, ...], list[str]] = {}  # the cells of a row, and the architectures that have them
    for name, row in rows.items():
        flags = row.get("flags")
        cells = *(row.get(column, "died") for column in COLUMNS), f"`{flags}`" if flags else "none"
        body.setdefault(cells, []).append(name)
    leaks = sorted(float(row["leak"].split()[2]) for row in good.values() if "leak" in row)
    return TEXT.format(
        versions=" and ".join(f"{name} {version(name)}" for name in ("transformers", "vllm_cpu")),
        exact=EXACT,
        gap=GAP,
        table=table(
            ["architecture", *COLUMNS.values(), "flags"], [["; ".join(names), *cells] for cells, names in body.items()]
        ),
        leaks=f"by up to {leaks[0]:.2g} to {leaks[-1]:.2g} nats",
    )


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"|{'|'.join(cells)}|" for cells in lines)


if __name__ == "__main__":
    main()
