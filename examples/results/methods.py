"""The methods of the records by the names that they had: some are files in `examples/objectives/` now.

`install` makes the report name them, and flags that are gone, as the pages of the records do.
"""

from dataclasses import dataclass
from types import SimpleNamespace

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.report.settings import WORDS

REAL = {
    "--actor.policy_loss_type": "real",
    "--algo.real.tau": "0.5",
    "--algo.real.uniform_groups": "zero_loss",
    "--algo.kl.init_coef": "0",
}
OBJECTIVE = {flag: value for flag, value in REAL.items() if flag != "--algo.real.tau"}
DISCO = {"--algo.real.disco_kl_coef": "1000", "--algo.real.disco_kl_delta": "1e-4"}
CLIP, MEAN = "--actor.eps_clip_low_high", "--actor.loss_agg_mode"


@dataclass(frozen=True)
class Look:
    colour: str
    line: str | tuple
    marker: str


@dataclass(frozen=True)
class Method:
    label: str
    look: Look
    settings: dict[str, str]  # flag: its words
    of_real: bool = False


def _real(label: str, objective: str, look: Look, **more: str) -> Method:
    return Method(label, look, {**REAL, "--algo.real.objective": objective, **more}, of_real=True)


def _group(label: str, objective: str, look: Look, flags: dict[str, str]) -> Method:
    return Method(label, look, {**OBJECTIVE, "--algo.real.objective": objective, **flags})


def _token(label: str, loss: str, look: Look, flags: dict[str, str]) -> Method:
    return Method(label, look, {"--actor.policy_loss_type": loss, "--algo.kl.init_coef": "0", **flags})


SET = "--algo.real.set"
# Colours that colour-blind readers can distinguish (Okabe and Ito's palette, darkened where weak on white, and a few
# more); line style and marker distinguish the methods without colour.
METHODS = {
    "real": _real("REAL", "real", Look("#0072B2", "-", "o")),
    "real_bce": _real("REAL with BCE", "bce", Look("#56B4E9", "--", "s"), **{SET: "reduction=sum"}),
    "real_no_anchor": _real("REAL without anchor", "no_anchor", Look("#CC79A7", "-.", "^")),
    "real_fixed_weights": _real("REAL, constant weights", "fixed_weights", Look("#7F7F7F", ":", "D")),
    "real_permuted": _real("REAL, permuted weights", "permuted", Look("#6A8A22", (0, (5, 2, 1, 2)), "2")),
    "real_shrunk": _real("REAL, shrunk weights", "shrunk", Look("#B05A7A", (0, (2, 2)), "1")),
    "real_balanced": _real("REAL, balanced", "balanced", Look("#882255", (0, (5, 1, 1, 1)), "p")),
    "grpo": _token(
        "GRPO",
        "ppo",
        Look("#D55E00", "--", "v"),
        {
            CLIP: "0.2 0.2",
            MEAN: "seq-mean-token-mean",
            "--algo.kl.use_loss": "",
            "--algo.kl.init_coef": "0.001",
            "--algo.kl.estimator": "k3",
        },
    ),
    "dapo": _token("DAPO", "ppo", Look("#E69F00", "-.", "P"), {CLIP: "0.2 0.28", MEAN: "token-mean"}),
    "gspo": _token("GSPO", "gspo", Look("#009E73", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "X"), {CLIP: "3e-4 4e-4"}),
    "cispo": _token("CISPO", "cispo", Look("#332288", (0, (2, 1)), "d"), {CLIP: "1.0 4.0", MEAN: "token-mean"}),
    "reinforce": _token("REINFORCE", "reinforce", Look("#2F4F2F", (0, (4, 1, 1, 1, 1, 1)), "8"), {MEAN: "token-mean"}),
    "trpa": _group(
        "TRPA", "trpa", Look("#A89600", (0, (3, 1)), "<"), {SET: "beta=0.1", "--algo.real.kl_old_coef": "0.001"}
    ),
    "disco_logl": _group(
        "DisCO log-L", "disco_logl", Look("#8C564B", (0, (1, 1)), ">"), {"--algo.real.tau": "10", **DISCO}
    ),
    "disco_lratio": _group(
        "DisCO L-ratio", "disco_lratio", Look("#7B3FA0", (0, (8, 2)), "*"), {"--algo.real.tau": "1", **DISCO}
    ),
    "listwise": _group(
        "Listwise target", "listwise", Look("#B8336A", (0, (7, 1)), "h"), {SET: "eta=1.0 score=sum_log_ratio_old"}
    ),
    "conspo": _group(
        "ConSPO", "conspo", Look("#5C4033", (0, (3, 1, 1, 1)), "H"), {"--algo.real.tau": "0.5", SET: "margin=0.0"}
    ),
    "maxrl": _group("MaxRL", "maxrl", Look("#00736B", (0, (1, 2)), "."), {SET: "score=sum_log_ratio_old"}),
}
REAL_FAMILY = tuple(name for name, method in METHODS.items() if method.of_real)


def install() -> None:
    ALGORITHMS.clear()
    for name, method in METHODS.items():
        settings = {flag: SimpleNamespace(words=tuple(words.split())) for flag, words in method.settings.items()}
        ALGORITHMS[name] = SimpleNamespace(name=name, label=method.label, settings=settings)  # type: ignore[assignment]
    WORDS["--algo.real.labels"] = "labels {}"
