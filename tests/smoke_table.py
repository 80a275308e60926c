"""What is run for each command that is shown. A command that is new on a page goes into one of these tables.

`real-openrlhf` runs in an empty folder, which is $OUT, with the environment that the README activates. All else runs in
the checkout. Commands of a lane run one after another, lanes side by side.
"""

# Without a change. They find the folders and files that they name: the test makes them, or a command before.
AS_TYPED = """
bash examples/scripts/setup_env.sh cpu
bash examples/scripts/train_real_gpu.sh qwen1.5b-1gpu --max-steps 3 --dry-run
bash examples/scripts/train_real_qwen1.5b.sh --algo grpo --data dapo17k --dry-run
bash examples/scripts/train_real_qwen7b.sh --algo gspo --dry-run
bash examples/scripts/train_real_qwen7b.sh --dry-run
eval "$(python requirements/uv_settings.py)"
less runs/NAME/train.log
pip config list
python -c "from real_openrlhf.rewards import math_reward; print(math_reward.__file__)"
python -m openrlhf.cli.train_ppo_ray --help
python docs/refresh.py --check
python examples/results/refresh.py --check
real-openrlhf data my.parquet --out data/my.jsonl
real-openrlhf doctor --json
real-openrlhf eval --compare runs/one/eval runs/two/eval
real-openrlhf grade --input in.jsonl --output out.jsonl
real-openrlhf patch apply
real-openrlhf patch status
real-openrlhf report runs/ --out report/
real-openrlhf report runs/* --out report
real-openrlhf train --help
source .venv/bin/activate
"""

# With --dry-run behind: they train for minutes, or on GPUs.
DRY_RUN = """
bash examples/scripts/train_real_cpu.sh --algo grpo
real-openrlhf train --algo.real.objective examples/objectives/hinge.py:hinge
real-openrlhf train --algo.real.tau 0.1
real-openrlhf train --recipe cpu-like-gpu
"""

# With --help behind: they measure for minutes or on a GPU, change the environment, need a cluster or a package index,
# or are the name of a subcommand.
HELP = """
pip install --force-reinstall --no-deps openrlhf==0.11.2
pip install atheris
python -m real_openrlhf.patching
python benchmarks/fuzz.py [--minutes 5] [--seed 0]
python benchmarks/gpu_step.py
python benchmarks/gpu_step.py --recipe cpu-like-gpu --prompts 8
python benchmarks/head_agreement.py
python benchmarks/head_agreement.py --model FOLDER --vocabulary 15
python benchmarks/head_memory.py
python benchmarks/head_memory.py --tokens 9216 --width 3584 --device cuda
python benchmarks/head_memory.py --ways plain ours
python benchmarks/kill_campaign.py --out DIR [--trials 40] [--seed 0] [--victims trainer engine] [--kinds real/1]
python benchmarks/kill_campaign.py --out campaign --trials 40
python benchmarks/packed_exactness.py
python benchmarks/packed_exactness.py --device cpu
python benchmarks/step_time.py
python benchmarks/step_time.py --ranks 1 --updates 4 --rounds 5
python benchmarks/verifier_agreement.py
python benchmarks/verifier_agreement.py [--errors]
python benchmarks/verifier_speed.py
python benchmarks/verifier_speed.py [--golds FILE.jsonl ...]
python benchmarks/verifier_fuzz.py [--minutes 10] [--seed 0]
python benchmarks/zero3_start.py --gloo
python benchmarks/zero3_start.py --ways last all fix --starts 20 --loads 5
ray job submit
ray start --num-cpus N
real-openrlhf data
real-openrlhf eval
real-openrlhf report
real-openrlhf train
"""

SMALL = " --rollout.batch_size 8 --train.batch_size 16 --train.micro_batch_size 8 --rollout.micro_batch_size 16"
SMALL += " --eval.n_samples_per_prompt 1"
# What the first hour does, in small: they go to their end.
TRAIN = 'bash examples/scripts/train_real_cpu.sh --max-steps 2 --runs-dir "$OUT/runs" --run-name NAME' + SMALL
EVAL = "real-openrlhf eval --model runs/NAME/model --benchmarks sums.jsonl --out runs/NAME/eval"
EVAL += " --k 2 --max-new-tokens 8 --think optional && mkdir runs/one runs/two"
EVAL += " && cp -r runs/NAME/eval runs/one && cp -r runs/NAME/eval runs/two"  # for eval --compare
COMPARE = 'bash examples/scripts/compare_cpu.sh --algos real grpo --seeds 1 --steps 1 --out "$OUT/comparison"' + SMALL
PARTS = "bash tests/run.sh timed --collect-only"  # this part is one of them
EXIT = {  # where it is not 0
    "bash examples/results/run.sh NAME": 2,
    "bash examples/scripts/eval_math.sh": 2,
    "bash examples/scripts/setup_env.sh": 2,
    "bash examples/scripts/train_real_gpu.sh": 2,
    "SMALL=1 bash benchmarks/on_a_gpu.sh PART": 1,
    "python requirements/verify.py requirements/cpu.txt": 1,  # it names OpenRLHF, which is patched by now
    "SLURM_SUBMIT_DIR=$PWD bash examples/scripts/slurm_real.sbatch": 2,
}

# Other words: smaller, in another place, or what a script says of itself where it has no --help.
INSTEAD = {
    # the first hour
    "bash examples/scripts/train_real_cpu.sh": TRAIN,
    "real-openrlhf eval --model runs/NAME/model --benchmarks all --out runs/NAME/eval": EVAL,
    "real-openrlhf eval --model runs/my-run/model --benchmarks all --data-dir data/benchmarks "
    "--out runs/my-run/eval": EVAL,
    "real-openrlhf eval --out RUN_DIR/eval": EVAL,
    "bash examples/scripts/compare_cpu.sh --algos real grpo gspo --seeds 3": COMPARE,
    "bash examples/scripts/compare_cpu.sh": COMPARE,
    "bash examples/scripts/compare_cpu.sh [--algos real grpo 'real --algo.real.tau 0.1'] [--seeds 3] [--steps 40]": (
        COMPARE
    ),
    "real-openrlhf compare": "real-openrlhf compare --help",
    "real-openrlhf doctor": "real-openrlhf doctor --quick",
    "real-openrlhf report runs/ --out report/ --map actor.adam.lr train.batch_size": (
        "real-openrlhf report comparison/runs/ --out map/ --map actor.adam.lr train.batch_size"
    ),
    "real-openrlhf train ... --dry-run": "real-openrlhf train --algo.real.tau 0.1 --dry-run",
    "real-openrlhf train --recipe qwen1.5b": (  # to which each row of a table adds its flags
        "bash examples/scripts/train_real_qwen1.5b.sh --algo grpo --data dapo17k --dry-run"
    ),
    "real-openrlhf train [--recipe NAME] [--algo NAME] [--dry-run] [any OpenRLHF flag]": "real-openrlhf train --help",
    "real-openrlhf train --algo real --algo.real.objective hinge.py:hinge": (
        "real-openrlhf train --algo.real.objective examples/objectives/hinge.py:hinge --dry-run"
    ),
    # data
    "real-openrlhf data deepscaler --out data/deepscaler.jsonl --tokenizer deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": (
        "real-openrlhf data deepscaler --out data/deepscaler.jsonl --tokenizer runs/NAME/model --source my.parquet"
    ),
    "real-openrlhf data dapo17k --out data/dapo17k.jsonl": (
        "real-openrlhf data dapo17k --out data/dapo17k.jsonl --source my.parquet"
    ),
    "real-openrlhf data benchmarks --out data/benchmarks": (
        "real-openrlhf data benchmarks --out data/benchmarks --source benchmarks"
    ),
    # patches, on a copy of OpenRLHF; the last three as for a new release
    "real-openrlhf patch export DIR": "real-openrlhf patch export DIR",
    "real-openrlhf patch export /shared/openrlhf-real": "real-openrlhf patch export DIR",
    "cd /shared/openrlhf-real": 'cd "$OUT/DIR"',
    "real-openrlhf patch revert": "real-openrlhf patch revert --root DIR",
    "real-openrlhf patch record --root": "real-openrlhf patch record --help",
    "pip download --no-deps openrlhf==X && unzip openrlhf-X-*.whl -d openrlhf-X && cd openrlhf-X": "pip download --help",
    "git init -q && git add -A && git commit -qm X && git tag upstream": (
        'cd "$OUT/DIR" && git init -q && git add -A && git commit -qm X && git tag upstream'
    ),
    "git am -3 .../patches/openrlhf-0.11.2/*.patch": (
        'patches=$PWD/patches && cd "$OUT/DIR" && git am -3 "$patches"/openrlhf-0.11.2/*.patch'
    ),
    "git format-patch --zero-commit --no-signature --full-index -o .../patches/openrlhf-X upstream": (
        'cd "$OUT/DIR" && git format-patch --zero-commit --no-signature --full-index -o ../openrlhf-X upstream'
    ),
    "real-openrlhf data FILE": "real-openrlhf data my.parquet --out data/my.jsonl",
    "real-openrlhf data NAME": "real-openrlhf data my.parquet --out data/my.jsonl",
    # scripts
    "bash examples/scripts/setup_env.sh cpu|gpu|any": "bash examples/scripts/setup_env.sh",
    "bash examples/scripts/setup_env.sh gpu": "bash examples/scripts/setup_env.sh",
    "REAL_GPU_ELSEWHERE=1 bash examples/scripts/setup_env.sh gpu": "bash examples/scripts/setup_env.sh",
    "bash examples/scripts/train_real_cpu.sh [--algo grpo] [--seed 1] [--max-steps 60] [any OpenRLHF flag]": (
        TRAIN
    ),
    "bash examples/scripts/train_real_gpu.sh RECIPE [any flag of `real-openrlhf train`]": (
        "bash examples/scripts/train_real_gpu.sh"
    ),
    "bash examples/scripts/train_real_qwen1.5b.sh [--algo grpo] [--data dapo17k] [--dry-run]": (
        "bash examples/scripts/train_real_qwen1.5b.sh --algo grpo --data dapo17k --dry-run"
    ),
    "bash examples/scripts/train_real_qwen7b.sh [--algo grpo] [--data dapo17k] [--dry-run]": (
        "bash examples/scripts/train_real_qwen7b.sh --algo gspo --dry-run"
    ),
    "bash examples/scripts/eval_math.sh MODEL OUT [any option of eval]": "bash examples/scripts/eval_math.sh",
    "bash examples/results/run.sh NAME": "bash examples/results/run.sh NAME",
    "bash examples/results/run.sh mixed|knobs|hard|more|deal|tune|tune-hard|tune-sums|map|stale "
    "[any flag of compare_cpu.sh]": "bash examples/results/run.sh NAME",
    "python examples/results/best_rates.py comparison/map/runs comparison/tune-rates/runs": (
        'python examples/results/best_rates.py "$OUT/comparison/runs"'
    ),
    "sbatch --nodes 2 examples/scripts/slurm_real.sbatch qwen7b --algo real": (
        "SLURM_SUBMIT_DIR=$PWD bash examples/scripts/slurm_real.sbatch"
    ),
    "sbatch --nodes 2 --gpus-per-node 8 examples/scripts/slurm_real.sbatch qwen7b [any flag of `real-openrlhf train`]": (
        "SLURM_SUBMIT_DIR=$PWD bash examples/scripts/slurm_real.sbatch"
    ),
    "bash benchmarks/on_a_gpu.sh": "SMALL=1 bash benchmarks/on_a_gpu.sh PART",
    "bash benchmarks/on_a_gpu.sh [PART ...]": "SMALL=1 bash benchmarks/on_a_gpu.sh PART",
    "SMALL=1 bash benchmarks/on_a_gpu.sh": "SMALL=1 bash benchmarks/on_a_gpu.sh PART",
    # the checks of a change
    ".ci/gates": "bash -n .ci/gates",
    ".ci/run": "bash -n .ci/run",
    **{f"bash tests/run.sh{part}": PARTS for part in ("", " every", " fast", " slow", " e2e")},
    "bash tests/run.sh maths": "bash tests/run.sh maths --collect-only",
    "pytest tests/fast/test_objective.py": "pytest tests/fast/test_objective.py --collect-only",
    "pip install pre-commit && pre-commit install": "pip install --help",
    'pip install "real-openrlhf[report]"': "pip install --help",
    # benchmarks and pictures
    "python benchmarks/verifier_fuzz_coverage.py -max_total_time=600 [-timeout=2] [CORPUS_FOLDER]": (
        "python -m py_compile benchmarks/verifier_fuzz_coverage.py"  # needs a package that is not pinned
    ),
    "python docs/draw_architecture.py": 'cp -r docs "$OUT" && python "$OUT/docs/draw_architecture.py"',
    "python docs/draw_waves.py": 'cp -r docs "$OUT" && python "$OUT/docs/draw_waves.py"',
    "python docs/refresh.py": "python docs/refresh.py --check",
    "python examples/results/refresh.py": "python examples/results/refresh.py --check",
    "python requirements/first_import.py cpu|gpu": "bash examples/scripts/setup_env.sh cpu",  # which calls it once
    "python requirements/verify.py --forget-broken": "python requirements/verify.py requirements/cpu.txt",
    "python requirements/verify.py requirements/cpu.txt": "python requirements/verify.py requirements/cpu.txt",
    # OpenRLHF's own commands, and Ray's
    "python -m openrlhf.cli.train_ppo_ray": "python -m openrlhf.cli.train_ppo_ray --help",
    "python -m openrlhf.cli.train_ppo_ray FLAGS": "python -m openrlhf.cli.train_ppo_ray --help",
    "python -m openrlhf.cli.lora_combiner --model_path BASE --lora_path runs/NAME/model --output_path OUT": (
        "python -m openrlhf.cli.lora_combiner --help"
    ),
    "ray job submit --runtime-env-json '{\"working_dir\": \"/shared/openrlhf-real\", "
    "\"pip\": [\"math-verify==0.9.0\"]}' -- python -m real_openrlhf.cli train ...": "ray job submit --help",
    "--reward.remote_url .../real_openrlhf/rewards/math_reward.py": (
        "real-openrlhf train --algo.real.tau 0.1 --dry-run"  # whose reward is this file
    ),
    "python benchmarks/report_speed.py": "python -m py_compile benchmarks/report_speed.py",
}
