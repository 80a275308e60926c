"""Every method that a recipe can train with: all objectives, and OpenRLHF's own losses as baselines.

Standard library only. A new objective in `algorithm/formulas.py` becomes an algorithm here without further code.
"""

import re

from real_openrlhf.algorithm.formulas import OBJECTIVES, Objective
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import did_you_mean
from real_openrlhf.base.user_files import example_of
from real_openrlhf.recipes.run import OBJECTIVE, SET, Algorithm, FlagValue, code, own, paper

_NO_KL = {
    "--algo.kl.init_coef": paper(
        "0", "“REAL, DAPO and GSPO baselines are trained without an explicit KL penalty term”"
    )
}

# Flags that each family sets in addition to its objective.
_FAMILIES = {
    "REAL": _NO_KL,
    "TRPA": {
        "--algo.real.kl_old_coef": FlagValue.of_text("TRPA's code", "0.001", "KL to the old policy in the loss"),
        "--algo.kl.init_coef": FlagValue.of_text(
            "TRPA's code", "0", "its score needs the reference model, its loss has no KL to it"
        ),
    },
}
_TAU = paper("0.5", "“the temperature parameter is fixed at τ=0.5”")

# Values of --algo.real.set that come from the paper or from other authors' code.
_OWN = {
    "bce": paper("reduction=sum", "Eq. BCE sums, “L_BCE = L_+ + L_-”; the code takes the mean"),
    "trpa": FlagValue.of_text("TRPA's code", "beta=0.1", "scale of the preference logit"),
}


def _of_objective(name: str, objective: Objective) -> Algorithm:
    """The algorithm that trains an objective. A variant of REAL is called real_NAME, any other objective NAME."""
    defaults = " ".join(f"{setting}={value}" for setting, value in objective.spelled_out.items())
    flags = {
        "--actor.policy_loss_type": own("real", "selects the trainer for losses of whole groups"),
        "--algo.real.objective": own(name),
        **({"--algo.real.tau": _TAU} if "tau" in objective.settings else {}),
        **({SET: _OWN.get(name, own(defaults))} if defaults else {}),
        "--algo.real.uniform_groups": code(
            "zero_loss", "a group of equal labels has loss 0 and stays in the denominator; `keep` is the paper's"
        ),
        **_FAMILIES[objective.family],
    }
    variant = objective.family == "REAL" and name != "real"
    called = f"real_{name}" if variant else name
    return Algorithm(called, objective.label, objective.about, objective.source, flags, objective.family)


_BASELINES = (
    Algorithm(
        "grpo",
        "GRPO",
        "baseline: GRPO with a reference model, clip 0.2, KL 0.001",
        "OpenRLHF's loss, the paper's settings",
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
        "DAPO",
        "baseline: GRPO with clip-higher and the token mean, as the paper runs DAPO",
        "OpenRLHF's loss, the paper's settings",
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
        "GSPO",
        "baseline: the clipped ratio of whole responses",
        "OpenRLHF's loss, the paper's settings",
        {
            "--actor.policy_loss_type": own("gspo"),
            "--actor.eps_clip_low_high": paper(
                "3e-4 4e-4", "“thresholds are set to ε_low=3 × 10^-4 and ε_high=4 × 10^-4”"
            ),
            **_NO_KL,
        },
    ),
)

_GROUP = [_of_objective(name, objective) for name, objective in OBJECTIVES.items()]

ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        *(algorithm for algorithm in _GROUP if algorithm.family == "REAL"),
        *_BASELINES,
        *(algorithm for algorithm in _GROUP if algorithm.family != "REAL"),
    )
}


def method_of(option: str, name: str) -> tuple[str, ...]:
    """The algorithm of this name, and its flags; FILE.py:NAME is a loss of the user's own, in REAL's place."""
    if re.fullmatch(r".+\.py:\w+", name):
        return "real", OBJECTIVE, name
    if name not in ALGORITHMS:
        near = example_of(name) or did_you_mean(name, ALGORITHMS)
        raise UserError(f"{option} {name}: unknown. {near}Name one of {', '.join(ALGORITHMS)}, or FILE.py:NAME.")
    return (name,)
