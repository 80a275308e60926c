"""One batch, cut in many ways: which trainers' optimizer step has one gradient?

    python benchmarks/one_gradient.py                     # all; writes one_gradient.md beside this script
    python benchmarks/one_gradient.py 'TRL 1.7.1' verl    # those whose names start so; prints, and writes nothing

16 responses of 1 to 24 tokens with stale old log-probabilities, one ungraded, two groups incomplete, float64, CPU.
Each cut's gradient is compared with that of the whole batch at once: the ratio of the norms and the cosine.

The wheels are pinned and go without their dependencies to build/one_gradient. Exit 1 if a number is not the expected.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE, WHEELS = Path(__file__).resolve().parent, Path("build/one_gradient").resolve()
VERL = "verl==0.9.1 tensordict==0.15.3 omegaconf==2.4.0 hydra-core==1.3.8 antlr4-python3-runtime==4.9.3"
VERL += " codetiming==1.4.0 pyvers==0.2.3 orjson==3.13.0"
QUIET = dict(CUDA_VISIBLE_DEVICES="", ACCELERATE_USE_CPU="true", TRL_EXPERIMENTAL_SILENCE="1", TQDM_DISABLE="1")
TRAINERS = {  # name: (module, wheels beside the environment's, what of the trainer runs)
    "TRL 1.7.1": ("trl_step", "trl==1.7.1", "its step, `GRPOTrainer.train()`; it takes whole groups only"),
    "TRL 1.16.0": ("trl_step", "trl==1.16.0", "the same"),
    "verl 0.9.1": ("verl_step", VERL, "its engine's loop, `forward_backward_batch`; advantages and forward are ours"),
    "OpenRLHF 0.11.2": ("openrlhf_step", "", "its loss and window counts, unpatched; loop and division repeated"),
    "real-openrlhf": ("ours_step", "", "its loss; the loop of its trainer repeated"),
}
HALF, DOUBLE = "4 steps a generation, 2 accumulated", "2 steps a generation, 4 accumulated"
PADDED, RANKS = {"padded to 64": dict(width=64)}, {"2 ranks, micro 2": dict(size=2, world=2)}
WINDOWS = {HALF: dict(size=4, per_generation=4, accumulate=2), DOUBLE: dict(size=8, per_generation=2, accumulate=4)}
CUTS = {  # of all, and of those whose name starts so
    "": {"micro 2": dict(size=2), "micro 1": dict(size=1)},
    "TRL": WINDOWS | PADDED | RANKS,
    # padded as in its earlier trainer; in today's nothing is
    "verl": {"packed to 40 tokens": dict(tokens=40), "padded to 64": dict(width=64, nested=False)} | RANKS,
    "OpenRLHF": PADDED | RANKS,
    "real": PADDED | {"2 ranks": dict(world=2)},
}
MEAN, NORM = dict(mode="seq-mean-token-mean"), dict(loss="vanilla", mode="seq-mean-token-sum-norm")
LOSSES: dict[str, dict[str, dict]] = {  # arguments of the module's `gradient`
    "TRL": {loss: dict(loss=loss) for loss in ("grpo", "dapo", "cispo", "vespo", "dr_grpo", "bnpo")},
    "verl": {
        "token-mean": dict(loss="vanilla"), "seq-mean-token-mean": dict(loss="vanilla", **MEAN),
        "seq-mean-token-sum-norm, factor 24": dict(**NORM, factor=24), "seq-mean-token-sum-norm": NORM,
        "cispo": dict(loss="cispo"), "gspo": dict(loss="gspo", **MEAN), "geo_mean": dict(loss="geo_mean", **MEAN),
        "kl_cov": dict(loss="kl_cov", kl_cov_ratio=0.1),
        # it draws tokens of its band at random: with ratio 1 it takes them all
        "clip_cov": dict(loss="clip_cov", clip_cov_ratio=1.0, clip_cov_lb=0.5, clip_cov_ub=50.0),
    },
    "OpenRLHF": {
        "token mean": dict(token_level_loss=True), "sequence mean": dict(token_level_loss=False),
        "gspo": dict(policy_loss_type="gspo"), "dual clip": dict(dual_clip=3.0),
        "TIS": dict(is_correction_level="token", is_correction_mode="clip"),
        "sequence mask": dict(is_correction_level="seq", is_correction_threshold=[0.9, 1.1]),
    },
    "real": {name: dict(objective=name) for name in ("real", "bce", "fixed_weights", "trpa")}
    | {n: dict(objective=f"examples/objectives/{n}.py:{n}") for n in ("listwise", "conspo", "rence", "oapl")},
}  # fmt: skip
# The ratio of the norms where it is not 1: 0.375, 0.5, 2, 4, 8 and 16 exactly, others of this model to three decimals
TWO, ONE, PACKED, RANK = "micro 2", "micro 1", "packed to 40 tokens", "2 ranks, micro 2"
BNPO = {TWO: 1.0412, ONE: 1.206, HALF: 0.9641, DOUBLE: 1.0493, RANK: 1.1476}
EXPECTED = {f"TRL 1.7.1 {loss}": {HALF: 0.5, DOUBLE: 2.0} for loss in ("dapo", "cispo", "vespo")} | {
    **dict.fromkeys(("TRL 1.7.1 bnpo", "TRL 1.16.0 bnpo"), BNPO),
    "verl 0.9.1 geo_mean": {TWO: 8.0, ONE: 16.0, PACKED: 7.2221, RANK: 4.0},
    "verl 0.9.1 kl_cov": {TWO: 1.0052, ONE: 1.0162, PACKED: 1.0094, RANK: 1.0094},
    "verl 0.9.1 clip_cov": {TWO: 1.1242, ONE: 1.156, PACKED: 1.1654, RANK: 1.1291},
    "verl 0.9.1 seq-mean-token-sum-norm":
    {TWO: 1.5172, ONE: 2.2684, PACKED: 1.5172, RANK: 1.5684, "padded to 64": 0.375},
}  # fmt: skip
WHY = {  # a fault, or so by definition, with the maintainers' own sentence
    "TRL bnpo": "by definition: “results may slightly vary depending on the local batch size” (`GRPOConfig`)",
    **dict.fromkeys(("TRL dapo", "TRL cispo", "TRL vespo"), "fault, TRL #6024; repaired by 1.9.2"),
    "verl geo_mean": "fault, verl #5614, #7913; repair proposed in #7916",
    "verl kl_cov": "fault, verl #7829; repair proposed in #7830",
    "verl clip_cov": "the same fault; no thread found",
    "verl seq-mean-token-sum-norm": "“If null, uses response_length”: now a micro-batch's longest; no thread found",
}


def child(module: str, jobs: list[tuple[str, dict]], out: str, store: str) -> None:
    import torch

    sys.path.insert(0, str(HERE / "one_gradient"))
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    step = importlib.import_module(module)
    if world > 1 and module != "trl_step":  # TRL starts its own
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    gradients = {key: step.gradient(**{**arguments, "rank": rank, "world": world}) for key, arguments in jobs}
    torch.save(gradients, f"{out}/{world}-{rank}.pt")


def measured(trainer: str, folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """{loss: {cut: (norm of its gradient over the whole one's, cosine)}}"""
    from torch import load

    module, wheels, _ = TRAINERS[trainer]
    target, jobs, gradients = WHEELS / trainer.replace(" ", "-"), {1: [], 2: []}, {}
    if wheels and not target.exists():
        uv = [Path(sys.executable).parent / "uv", "pip", "install", "-q", "--python", sys.executable, "--no-deps"]
        part = Path(f"{target}.part")  # renamed when whole: after an interrupt the command begins it again
        subprocess.run([*uv, "--reinstall", "--target", part, *wheels.split()], check=True)
        part.rename(target)
    cuts = {cut: how for name, listed in CUTS.items() if trainer.startswith(name) for cut, how in listed.items()}
    (losses,) = (losses for name, losses in LOSSES.items() if trainer.startswith(name))
    for title, arguments in losses.items():
        for cut, how in ({"whole": {}} | cuts).items():
            jobs[how.get("world", 1)].append((f"{title}|{cut}", {**arguments, **how}))
    for world, listed in jobs.items():
        store, port = folder / f"store-{world}", str(20000 + os.getpid() % 20000)
        environment = {**os.environ, "PYTHONPATH": str(target), "OMP_NUM_THREADS": "1", **QUIET}
        words = [sys.executable, "-W", "ignore", __file__, "--child", module, json.dumps(listed), folder, store]
        ranks = []
        for rank in map(str, range(world if listed else 0)):
            there = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            env = environment | (there if world > 1 else {})
            ranks.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL))
        if sum(rank.wait() != 0 for rank in ranks):
            sys.exit(f"{trainer} failed: see above")
        gradients |= load(folder / f"{world}-0.pt") if ranks else {}
    found = {}
    for key, cut in gradients.items():
        title, _, name = key.partition("|")
        found.setdefault(title, {})[name] = compared(gradients[f"{title}|whole"], cut)
    return found


def compared(whole, cut) -> tuple[float, float]:
    return float(cut.norm() / whole.norm()), float(whole @ cut / whole.norm() / cut.norm())


def row(trainer: str, title: str, numbers: dict[str, tuple[float, float]], problems: list[str]) -> str:
    expected, why = EXPECTED.get(f"{trainer} {title}", {}), WHY.get(f"{trainer.split()[0]} {title}", "")
    equal, unequal = [], []
    for cut, (ratio, cosine) in numbers.items():
        same = abs(ratio - 1) < 1e-6 and 1 - cosine < 1e-9
        (equal if same else unequal).append(cut if same else f"{cut}: {ratio:.4g} ({cosine:.3f})")
        wanted, exact = expected.get(cut, 1.0), 1 - cosine < 1e-9
        if same != (cut not in expected) or abs(ratio - wanted) > (1e-6 if exact else 6e-4):
            problems.append(f"{trainer}, {title}, {cut}: {ratio:.7g} ({cosine:.7g}), not {wanted}")
    return f"| {trainer} | {title} | {'; '.join(equal[1:])} | {'; '.join(unequal)} | {why * bool(unequal)} |"


def main(*names: str) -> int:
    problems: list[str] = []
    rows = ["| trainer | loss | equal | not equal: norm (cosine) | why |", "|---|---|---|---|---|"]
    chosen = [trainer for trainer in TRAINERS if not names or any(map(trainer.startswith, names))]
    for trainer in chosen:
        with tempfile.TemporaryDirectory() as folder:
            rows += [row(trainer, *loss, problems) for loss in measured(trainer, Path(folder)).items()]
    kinds = ["| trainer | what runs |", "|---|---|", *(f"| {name} | {TRAINERS[name][2]} |" for name in chosen)]
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "accelerate"))
    head, tail = "# One batch, many cuts, one gradient", f"Measured on {time.strftime('%d %B %Y')}; {versions}."
    text = "\n".join([head, "", (__doc__ or "").split("\n\n")[2], "", *kinds, "", *rows, "", tail, ""])
    print(text, *problems, f"{len(problems)} numbers are not as expected", sep="\n")
    if not names and not problems:
        (HERE / "one_gradient.md").write_text(text)
    return int(bool(problems))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], json.loads(sys.argv[3]), *sys.argv[4:6])
    else:
        sys.exit(main(*sys.argv[1:]))
