"""Numbers measured by others, each with its source: printed beside ours, never mixed with them.

None of them has a standard error (one training run each), so none is ever set in bold as a win.
"""

from dataclasses import dataclass

PAPER = "“Rewards as Labels: Revisiting RLVR from a Classification Perspective”"
DISCO = "DisCO, “Reinforcing Large Reasoning Models with Discriminative Constrained Optimization” (arXiv 2505.12366)"


@dataclass(frozen=True)
class Block:
    """Rows of one published table: pass@1 per benchmark in the order of `data.benchmarks`, then the average."""

    title: str
    source: str
    rows: dict[str, tuple[float | None, ...]]


def _disco(model: str, *averages: float) -> Block:
    """Its table has more; only the averages are here."""
    methods = ("GRPO", "DAPO", "TRPA", "DisCO L-ratio", "DisCO log-L")
    return Block(
        f"DisCO's own table: DeepSeek-R1-Distill-Qwen-{model} on DeepScaleR",
        f"{DISCO}, averages of the {model} table; the REAL paper cites this table without its DisCO rows",
        {name: (*[None] * 6, average) for name, average in zip(methods, averages, strict=True)},
    )


BENCHMARK_BLOCKS = (
    Block(
        "Paper: DeepSeek-R1-Distill-Qwen-1.5B on DeepScaleR",
        f"{PAPER}, table of the 1.5B results; * cited there from other work",
        {
            "OpenAI-o1-Preview*": (0.400, None, 0.814, None, None, None, None),
            "DS-Distill-Qwen-1.5B*": (0.181, 0.215, 0.758, 0.515, 0.237, 0.353, 0.376),
            "DSR-1.5B-Preview*": (0.358, 0.258, 0.860, 0.679, 0.297, 0.473, 0.488),
            "GRPO": (0.235, 0.229, 0.824, 0.600, 0.264, 0.435, 0.431),
            "DAPO": (0.298, 0.215, 0.837, 0.663, 0.295, 0.448, 0.459),
            "TRPA*": (0.354, 0.235, 0.835, 0.653, 0.283, 0.458, 0.470),
            "GSPO": (0.377, 0.296, 0.877, 0.730, 0.326, 0.506, 0.519),
            "REAL": (0.406, 0.321, 0.877, 0.734, 0.310, 0.508, 0.526),
        },
    ),
    Block(
        "Paper: DeepSeek-R1-Distill-Qwen-7B on DeepScaleR",
        f"{PAPER}, table of the 7B results; * cited there from other work",
        {
            "DS-Distill-Qwen-7B*": (0.402, 0.292, 0.873, 0.688, 0.355, 0.471, 0.513),
            "GRPO*": (0.498, 0.394, 0.916, 0.807, 0.381, 0.555, 0.592),
            "DAPO*": (0.454, 0.335, 0.907, 0.799, 0.388, 0.535, 0.570),
            "TRPA*": (0.510, 0.367, 0.898, 0.779, 0.379, 0.534, 0.578),
            "GSPO": (0.525, 0.396, 0.926, 0.852, 0.402, 0.588, 0.615),
            "REAL": (0.571, 0.433, 0.929, 0.858, 0.402, 0.602, 0.632),
        },
    ),
    Block(
        "Paper: DeepSeek-R1-Distill-Qwen-1.5B on DAPO-Math-17k",
        f"{PAPER}, table of the DAPO-Math-17K results; * cited there from other work",
        {
            "GRPO": (0.342, 0.256, 0.842, 0.672, 0.267, 0.458, 0.473),
            "DAPO": (0.275, 0.229, 0.812, 0.653, 0.256, 0.441, 0.444),
            "TRPA*": (0.346, 0.279, 0.836, 0.683, 0.281, 0.450, 0.479),
            "GSPO": (0.365, 0.290, 0.867, 0.736, 0.313, 0.499, 0.511),
            "REAL": (0.402, 0.306, 0.866, 0.759, 0.312, 0.495, 0.523),
        },
    ),
    _disco("1.5B", 0.457, 0.473, 0.470, 0.524, 0.533),
    _disco("7B", 0.592, 0.570, 0.578, 0.627, 0.625),
)

# (method, deviation as settings.py words it; "…" stands for any value) -> (the paper's words, average pass@1)
ABLATION_SOURCE = f"{PAPER}, table of the further analysis: average pass@1 (%) over the six benchmarks, 1.5B model"
ABLATIONS = {
    ("real_bce", ""): ("w/ BCE loss", 50.4),
    ("real_no_anchor", ""): ("w/o Anchor Logits", 51.4),
    ("real", "τ = 0.1"): ("τ = 0.1", 52.3),
    ("real", "τ = 1"): ("τ = 1.0", 51.5),
    ("real", "KL to reference …"): ("KL w/ reference model", 52.1),
    ("real", "KL to old policy …"): ("KL w/ old policy", 51.9),
    ("real", ""): ("REAL", 52.6),
}

# class, range -> (percent of the class's tokens, mean gradient magnitude; None where clipping makes it zero)
RATIO_SOURCE = f"{PAPER}, Table 1: GRPO with ε = 0.2"
RATIOS = {
    ("pos", "below"): (0.22, 0.6943),
    ("pos", "low"): (4.83, 0.9788),
    ("pos", "high"): (94.63, 1.0010),
    ("pos", "above"): (0.32, None),
    ("neg", "below"): (0.24, None),
    ("neg", "low"): (5.47, 0.9774),
    ("neg", "high"): (93.95, 1.0012),
    ("neg", "above"): (0.34, 1.3553),
}
