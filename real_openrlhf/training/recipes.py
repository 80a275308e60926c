"""Every row of the paper's tables as OpenRLHF flags: a recipe says where to train, an algorithm says with which loss.

Standard library only. Each value carries its origin and a note; text in “curly quotes” is the paper's own.
Composition is in one direction: recipe, then algorithm, then the user's flags, then what follows from all of these.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

PAPER, CODE, RECIPE, DERIVED, USER = "paper", "authors' code", "recipe", "derived", "user"

# Rows of the prepared training sets, for a dry run before they are on disk; a file that is there is counted.
TRAINING_ROWS = {"deepscaler": 40_315, "dapo17k": 17_398}

# OpenRLHF's own, where a check reads a flag that a recipe need not set.
OPENRLHF_DEFAULTS = {
    "--actor.num_nodes": "1",
    "--actor.num_gpus_per_node": "8",
    "--rollout.batch_size": "1024",
    "--rollout.n_samples_per_prompt": "1",
    "--train.batch_size": "128",
    "--train.num_episodes": "1",
    "--data.max_len": "2048",
    "--train.seed": "42",
    "--vllm.tensor_parallel_size": "1",
}

# What a method is made of. Between two algorithms of one recipe nothing else may differ.
METHOD_FLAGS = (
    "--actor.policy_loss_type",
    "--actor.eps_clip_low_high",
    "--actor.loss_agg_mode",
    "--algo.kl.",
    "--algo.real.",
)


@dataclass(frozen=True)
class Setting:
    """One flag's value as the words after it (none for a switch), and where it comes from."""

    words: tuple[str, ...]
    origin: str
    note: str = ""

    @property
    def text(self) -> str:
        return " ".join(self.words)


def _setting(origin: str, value: str, note: str) -> Setting:
    return Setting(tuple(value.split()), origin, note)


def paper(value: str, note: str) -> Setting:
    return _setting(PAPER, value, note)


def code(value: str, note: str) -> Setting:
    return _setting(CODE, value, note)


def own(value: str, note: str = "") -> Setting:
    return _setting(RECIPE, value, note)


@dataclass(frozen=True)
class Recipe:
    """A model, its data and everything that is the same for every algorithm."""

    name: str
    about: str
    model: str
    train_data: str
    eval_data: str
    settings: Mapping[str, Setting]
    gpus: int = 8
    nodes: int = 1
    on_cpu: bool = False  # runs on a machine without a GPU, where Ray is given logical ones


@dataclass(frozen=True)
class Algorithm:
    """The flags of one method, and where it stands in the paper."""

    name: str
    about: str
    settings: Mapping[str, Setting] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------------- algorithms

_NO_KL = {
    "--algo.kl.init_coef": paper(
        "0", "“REAL, DAPO and GSPO baselines are trained without an explicit KL penalty term”; no reference model"
    )
}


def _group_objective(objective: str, tau: Setting | None = None) -> dict[str, Setting]:
    settings = {
        "--actor.policy_loss_type": own("real", "selects the trainer for objectives over a prompt's whole group"),
        "--algo.real.objective": own(objective),
    }
    if tau:
        settings["--algo.real.tau"] = tau
    return settings


_TAU = paper("0.5", "“the temperature parameter is fixed at τ=0.5”")
_DROP = {
    "--algo.real.uniform_groups": code(
        "drop", "an all-right or all-wrong group has loss 0 and stays in the denominator; `keep` is the equation"
    )
}
_DISCO = {
    **_DROP,
    "--algo.real.disco_kl_coef": _setting("DisCO's code", "1000", "beta of the squared hinge on KL(old policy)"),
    "--algo.real.disco_kl_delta": _setting("DisCO's code", "1e-4", "delta, the free radius of the hinge"),
    "--algo.kl.init_coef": _setting("DisCO's code", "0", "no reference model; the hinge is its own constraint"),
}

ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "real",
            "the paper's method, Eq. REAL: anchored softmax classification of a prompt's rollouts",
            {**_group_objective("real", _TAU), **_DROP, **_NO_KL},
        ),
        Algorithm(
            "real_bce",
            "ablation: binary cross-entropy in place of the softmax loss",
            {
                **_group_objective("bce", _TAU),
                "--algo.real.bce_reduction": paper(
                    "sum", "Eq. BCE sums, “L_BCE = L_+ + L_-”; the code takes the mean"
                ),
                **_DROP,
                **_NO_KL,
            },
        ),
        Algorithm(
            "real_no_anchor",
            "ablation: REAL without the anchor logits",
            {**_group_objective("no_anchor", _TAU), **_DROP, **_NO_KL},
        ),
        Algorithm(
            "real_constant",
            "control, not in the paper: REAL's weights frozen at score 0, what is left if scores stay small",
            {**_group_objective("constant", _TAU), **_DROP, **_NO_KL},
        ),
        Algorithm(
            "grpo",
            "baseline: GRPO with a reference model",
            {
                "--actor.policy_loss_type": own("ppo", "the clipped token ratio of PPO and GRPO"),
                "--actor.eps_clip_low_high": paper("0.2 0.2", "“GRPO uses clipping ε = 0.2”"),
                "--actor.loss_agg_mode": own("seq-mean-token-mean", "the paper's Eq. GRPO: 1/|o| times the token sum"),
                "--algo.kl.use_loss": paper("", "the KL term of Eq. GRPO, “for GRPO, we set the KL penalty”"),
                "--algo.kl.init_coef": paper("0.001", "“we set the KL penalty coefficient to β=0.001”"),
                "--algo.kl.estimator": code("k3", "low_var_kl"),
            },
        ),
        Algorithm(
            "dapo",
            "baseline: GRPO with clip-higher and the token mean, which is what the paper takes of DAPO",
            {
                "--actor.policy_loss_type": own("ppo", "the clipped token ratio of PPO and GRPO"),
                "--actor.eps_clip_low_high": paper(
                    "0.2 0.28", "“the asymmetric clipping thresholds ε_low=0.2 and ε_high=0.28”"
                ),
                "--actor.loss_agg_mode": paper("token-mean", "“employing token-mean normalization”"),
                **_NO_KL,
            },
        ),
        Algorithm(
            "gspo",
            "baseline: the clipped ratio of whole responses",
            {
                "--actor.policy_loss_type": own("gspo"),
                "--actor.eps_clip_low_high": paper(
                    "3e-4 4e-4", "“thresholds are set to ε_low=3 × 10^-4 and ε_high=4 × 10^-4”"
                ),
                **_NO_KL,
            },
        ),
        Algorithm(
            "trpa",
            "baseline the paper cites from DisCO: preference pairs against a reference model",
            {
                **_group_objective("trpa"),
                **_DROP,
                "--algo.real.trpa_beta": _setting("TRPA's code", "0.1", "scale of the preference logit"),
                "--algo.real.kl_old_coef": _setting("TRPA's code", "0.001", "KL to the old policy in the loss"),
                "--algo.kl.init_coef": _setting(
                    "TRPA's code", "0", "its score needs the reference model, its loss has no KL to it"
                ),
            },
        ),
        Algorithm(
            "disco_logl",
            "DisCO, score log-likelihood: the stronger row of the table from which the paper cites",
            {**_group_objective("disco_logl", _setting("DisCO's code", "10", "tau of the log-L variant")), **_DISCO},
        ),
        Algorithm(
            "disco_lratio",
            "DisCO, score likelihood ratio",
            {
                **_group_objective("disco_lratio", _setting("DisCO's code", "1", "tau of the L-ratio variant")),
                **_DISCO,
            },
        ),
    )
}

# ------------------------------------------------------------------------------------------------------- recipes

_BATCH = {
    "--rollout.batch_size": paper("128", "prompts; “We employ a global batch size of 128”"),
    "--rollout.n_samples_per_prompt": paper("8", "“with G=8 rollouts sampled per prompt”"),
    "--train.batch_size": paper("256", "samples, 32 prompts x 8: four updates a step; “(mini-batch size 32)”"),
    "--train.max_epochs": code("1", "each rollout is trained on once"),
}
_SAMPLING = {
    "--rollout.max_new_tokens": paper("8192", "“the maximum context length is set to 8,192 tokens”"),
    "--data.max_len": code("9216", "1,024 tokens of prompt beside the 8,192 of response"),
    "--rollout.temperature": paper("0.6", "“The sampling temperature is 0.6 for both training and inference”"),
    "--rollout.top_p": code("1.0", "in training and in-training validation; final evaluation uses 0.95"),
    "--eval.temperature": paper("0.6", "“The sampling temperature is 0.6 for both training and inference”"),
}
_OPTIMIZER = {
    "--actor.optim": paper("adam", "OpenRLHF's name for “AdamW”"),
    "--actor.adam.weight_decay": paper("0.01", "“AdamW with a weight decay of 0.01”"),
    "--actor.adam.betas": code("0.9 0.999", "OpenRLHF's default is 0.9 0.95"),
    "--actor.lr_scheduler": code("constant", "OpenRLHF's default is a cosine"),
    "--actor.lr_warmup_ratio": code("0.0", "OpenRLHF's default is 0.03"),
    "--actor.max_norm": code("1.0", "gradient clipping"),
    "--actor.entropy_coef": code("0.0", "0 only logs the entropy"),
    "--algo.advantage.estimator": own("group_norm", "no critic; group objectives put labels in its place"),
}
_VALIDATION = {
    "--eval.n_samples_per_prompt": paper("8", "“Pass@1 on AIME 2024, averaged over 8 samples”"),
    "--eval.steps": code("20", "validate every 20 steps"),
    "--eval.at_start": code("", "validate before the first step"),
    "--eval.at_end": own("", "and after the last"),
}
_GPU_MACHINERY = {
    "--data.input_key": own("prompt"),
    "--data.label_key": own("label"),
    "--data.apply_chat_template": own("", "the model's own chat template around the problem"),
    "--train.colocate_all": own("", "policy, reference and vLLM share every GPU in turn"),
    "--vllm.enable_sleep": own("", "vLLM gives its memory back while the policy trains"),
    "--ds.enable_sleep": own("", "optimizer states wait in host memory during generation"),
    "--vllm.tensor_parallel_size": own("1"),
    "--vllm.sync_backend": own("nccl"),
    "--vllm.gpu_memory_utilization": own("0.7"),
    "--ds.param_dtype": own("bf16"),
    "--ds.attn_implementation": own("flash_attention_2"),
    "--ds.packing_samples": own("", "no padding tokens"),
    "--train.dynamic_batch_enable": own("", "micro-batches by tokens, not by samples"),
    "--train.max_tokens_per_gpu": own("18432", "two of the longest samples"),
    "--rollout.max_tokens_per_gpu": own("36864", "log-probs without gradients take twice as many"),
    "--actor.gradient_checkpointing_enable": own(""),
    "--ckpt.save_steps": own("20", "what a crash can cost at most; as often as validation"),
    "--ckpt.max_num": own("2", "DeepSpeed checkpoints kept"),
    "--ckpt.best_metric_key": own("none", "no extra checkpoint at each best AIME24 score: it is a test set"),
    "--logger.logging_steps": own("1"),
    "--train.seed": own("42"),
    "--rollout.seeded_order": own("", "the same prompts in the same step for every method"),
}
_LESS_MEMORY = {
    "--train.max_tokens_per_gpu": own("9216", "one of the longest samples"),
    "--rollout.max_tokens_per_gpu": own("18432", "log-probs without gradients take twice as many"),
}
_PAPER_RUN = {**_BATCH, **_SAMPLING, **_OPTIMIZER, **_VALIDATION, **_GPU_MACHINERY}

_QWEN_1_5B = Recipe(
    name="qwen1.5b",
    about="the paper's 1.5B runs: DeepSeek-R1-Distill-Qwen-1.5B on DeepScaleR, 8 GPUs",
    model="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    train_data="deepscaler",
    eval_data="aime24",
    settings={
        **_PAPER_RUN,
        "--actor.adam.lr": paper("2e-6", "“For the 1.5B model, we use a learning rate of 2 × 10^-6”"),
        "--train.max_steps": paper("1400", "rollout steps; “and train for 1,400 steps”"),
        "--ds.zero_stage": own("2", "the weights fit on every GPU"),
    },
)
_QWEN_7B = Recipe(
    name="qwen7b",
    about="the paper's 7B runs: DeepSeek-R1-Distill-Qwen-7B on DeepScaleR, 8 GPUs",
    model="deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    train_data="deepscaler",
    eval_data="aime24",
    settings={
        **_PAPER_RUN,
        **_LESS_MEMORY,
        "--actor.adam.lr": paper("1e-6", "“for the 7B model, the learning rate is 1 × 10^-6”"),
        "--train.max_steps": paper("1000", "rollout steps; “over 1,000 steps”"),
        "--ds.zero_stage": own("3"),
    },
)
_LORA = {
    "--ds.lora.rank": own("64", "LoRA is not in the paper"),
    "--ds.lora.alpha": own("64"),
    "--ds.zero_stage": own("2", "one rank: nothing to shard"),
    "--vllm.gpu_memory_utilization": own("0.5", "the whole 7B model stays beside vLLM"),
    "--actor.adam.lr": own("1e-5", "ten times the paper's rate, as is usual for LoRA; not in the paper"),
}

_CPU = Recipe(
    name="cpu",
    about="the whole stack on a tiny model and task, on two cores without a GPU",
    model="tiny",
    train_data="tiny",
    eval_data="tiny",
    gpus=1,
    on_cpu=True,
    settings={
        "--rollout.batch_size": own("32", "prompts"),
        "--rollout.n_samples_per_prompt": _BATCH["--rollout.n_samples_per_prompt"],
        "--train.batch_size": own("64", "samples, 8 prompts x 8: four updates a step, as in the paper"),
        "--train.max_epochs": _BATCH["--train.max_epochs"],
        "--train.micro_batch_size": own("32", "samples: fits one and two ranks"),
        "--rollout.micro_batch_size": own("64"),
        "--rollout.max_new_tokens": own("12", "the task's longest answer is 11"),
        "--data.max_len": own("32"),
        "--rollout.temperature": own("1.0"),
        "--rollout.top_p": own("1.0"),
        "--eval.temperature": own("1.0"),
        **_OPTIMIZER,
        "--actor.adam.lr": own("1e-4", "a model ten thousand times smaller"),
        "--train.max_steps": own("60"),
        "--rollout.seeded": own("", "runs with one seed draw the same prompts and rollouts"),
        "--eval.n_samples_per_prompt": own("8"),
        "--eval.steps": own("20"),
        "--eval.at_start": _VALIDATION["--eval.at_start"],
        "--eval.at_end": _VALIDATION["--eval.at_end"],
        "--data.input_key": own("prompt"),
        "--data.label_key": own("label"),
        "--train.colocate_all": own("", "one logical GPU for all roles"),
        "--vllm.tensor_parallel_size": own("1"),
        "--vllm.sync_backend": own("gloo"),
        "--vllm.gpu_memory_utilization": own("0.3"),
        "--vllm.enforce_eager": own("", "nothing to compile"),
        "--ds.zero_stage": own("3", "as for 7B"),
        "--ds.param_dtype": own("bf16"),
        "--ds.attn_implementation": own("eager"),
        "--ckpt.save_steps": own("20"),
        "--ckpt.max_num": own("2"),
        "--ckpt.best_metric_key": own("none"),
        "--logger.logging_steps": own("1"),
        "--train.seed": own("42"),
    },
)


def _variant(
    recipe: Recipe, name: str, about: str, settings: Mapping[str, Setting] | None = None, **changes
) -> Recipe:
    return replace(recipe, name=name, about=about, settings={**recipe.settings, **(settings or {})}, **changes)


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _CPU,
        _QWEN_1_5B,
        _QWEN_7B,
        _variant(
            _QWEN_1_5B,
            "qwen1.5b-dapo17k",
            "the paper's second data set: the 1.5B model on DAPO-Math-17k",
            train_data="dapo17k",
        ),
        _variant(
            _QWEN_1_5B,
            "qwen1.5b-1gpu",
            "the 1.5B run on one 80 GB GPU: the same updates, eight times slower",
            _LESS_MEMORY,
            gpus=1,
        ),
        _variant(
            _QWEN_7B,
            "qwen7b-lora",
            "the 7B model with LoRA adapters on one 80 GB GPU",
            _LORA,
            gpus=1,
        ),
    )
}

# --------------------------------------------------------------------------------------------------- composition


@dataclass(frozen=True)
class Change:
    """A flag on which the user overruled the recipe or the algorithm; None stands for OpenRLHF's default."""

    flag: str
    before: Setting | None
    after: Setting | None


@dataclass(frozen=True)
class Plan:
    """The flags of one run with their origins, and what the user changed."""

    flags: dict[str, Setting]
    changes: list[Change]

    def text(self, flag: str, default: str = "") -> str:
        return self.flags[flag].text if flag in self.flags else default

    def argv(self) -> list[str]:
        return [word for flag in self.flags for word in self.typed(flag)]

    def typed(self, flag: str) -> list[str]:
        """A flag as it is typed; with `=` where argparse would take a value such as -1e-3 for a flag."""
        words = self.flags[flag].words
        return [f"{flag}={words[0]}"] if len(words) == 1 and words[0].startswith("-") else [flag, *words]

    def number(self, flag: str) -> int:
        """A whole number, with OpenRLHF's default where the plan has none."""
        return int(self.text(flag, OPENRLHF_DEFAULTS.get(flag, "0")))

    @property
    def layout(self) -> tuple[int, int]:
        """(nodes, GPUs a node) of the policy."""
        return self.number("--actor.num_nodes"), self.number("--actor.num_gpus_per_node")

    @property
    def needs_reference(self) -> bool:
        """OpenRLHF starts a reference model for a KL to it; TRPA's score is measured against one."""
        return float(self.text("--algo.kl.init_coef", "0.01")) > 0 or self.text("--algo.real.objective") == "trpa"

    @property
    def gpus(self) -> int:
        """What Ray has to offer for all roles together."""
        policy = math.prod(self.layout)
        if "--train.colocate_all" in self.flags:
            return policy
        engines = self.number("--vllm.num_engines") * self.number("--vllm.tensor_parallel_size")
        shared = "--train.colocate_actor_ref" in self.flags or not self.needs_reference
        return policy + engines + (0 if shared else policy)


def compose(
    recipe: Recipe,
    algorithm: Algorithm,
    user: Mapping[str, tuple[str, ...]],
    removed: Iterable[str] = (),
    launcher: Mapping[str, Setting] | None = None,
    rows: int | None = None,
) -> Plan:
    """The run's flags; `launcher` has those of the run folder and data, `rows` is the size of the training set."""
    flags = {
        "--actor.model_name_or_path": own(recipe.model),
        "--actor.num_nodes": own(str(recipe.nodes)),
        "--actor.num_gpus_per_node": own(str(recipe.gpus)),
        **(launcher or {}),
        **recipe.settings,
        **algorithm.settings,
    }
    changes = []
    for flag, words in user.items():
        before, after = flags.get(flag), Setting(tuple(words), USER)
        if before is None or before.words != after.words:
            changes.append(Change(flag, before, after))
            flags[flag] = after
    for flag in removed:
        changes.append(Change(flag, flags.pop(flag, None), None))
    plan = Plan(flags, changes)
    for flag, setting in _derived(plan, rows).items():
        if flag not in removed:
            flags.setdefault(flag, setting)
    return plan


def _derived(plan: Plan, rows: int | None) -> dict[str, Setting]:
    """What follows from the layout, the number of steps and the size of the data."""
    derived = {}
    try:
        nodes, gpus = plan.layout
        derived["--ref.num_nodes"] = _setting(DERIVED, str(nodes), "as the policy")
        derived["--ref.num_gpus_per_node"] = _setting(DERIVED, str(gpus), "as the policy")
        engines = nodes * gpus // plan.number("--vllm.tensor_parallel_size")
        derived["--vllm.num_engines"] = _setting(DERIVED, str(engines), "one for each tensor-parallel group of GPUs")
        steps, prompts = plan.number("--train.max_steps"), plan.number("--rollout.batch_size")
        if rows and steps:
            passes = math.ceil(steps / max(rows // prompts, 1))
            derived["--train.num_episodes"] = _setting(
                DERIVED, str(passes), f"passes over {rows:,} rows for all steps"
            )
    except (ValueError, ZeroDivisionError):
        pass  # a value that makes no sense is the parser's to report, with all others
    return derived
