"""Each command line that cannot be meant ends at once with exit code 2, says what to do, and changes nothing.

Bad data, models, folders and reward files for `train` are in test_bad_inputs.py.
"""

import json
import re
import shlex

import pytest
from invented_runs import write_run

from real_openrlhf.cli import main

NONSENSE = "\u202e\x1b[31m; rm -rf \x00/".replace("\x00", "")
TRAIN = "train --data rows.jsonl --model model --max-steps 1"
QWEN = "train --recipe qwen7b"
MINE = "import sys\nfives = 5\ndef ends(scores, groups, settings):\n    sys.exit(0)\n"
COMPARE = "compare --algos real --seeds 1 --data rows.jsonl --model model"
TWICE = {"prompt": [{"role": "user", "content": "a"}] * 2, "answer": "1"}
BENCH = f"{COMPARE} --benchmarks problems.jsonl"
ALONE = "eval --model /no/model --out e"  # these are refused before the model is looked for, which takes half a minute
PROBLEMS = "eval --model model --out e --max-new-tokens 8 --benchmarks"
# Words, what is said with pieces left out at "…", and the text of the file `it` that the words name.
REFUSED = [
    ("", "compare   train algorithms x seeds"),
    ("trian", "there is no 'trian'"),
    (f"'{NONSENSE}'", "there is no"),
    (f"{TRAIN} --seed 1.5", "--train.seed 1.5: invalid int value"),
    (f"{TRAIN} --run-name a/b", "use letters, digits"),
    (f"{TRAIN} --algo.real.objective nothing.py:f", "nothing.py"),
    ("train --algo gpro", "Did you mean grpo?"),  # and not gspo, which is as near
    ("train --algo nowhere.py:hinge", "--algo.real.objective …nowhere.py:hinge: …cannot be read"),
    ("train --algo hinge", "Did you mean …examples/objectives/hinge.py:hinge?"),
    (f"{TRAIN} --ds.packing_samples", "needs a GPU, and this recipe is for CPU. Leave --ds.packing_samples out"),
    (f"{TRAIN} --vllm.enable_sleep", "is for CPU. Leave it out, or take a recipe for GPUs: --recipe qwen1.5b-1gpu"),
    (f"{TRAIN} --learning_rate 1e-4", "unknown flag --learning_rate. Did you mean --actor.adam.lr?"),
    (f"{TRAIN} --beta 0.1", "Did you mean --algo.kl.init_coef?"),
    (f"{TRAIN} --num-generations 4", "Did you mean --rollout.n_samples_per_prompt?"),
    (f"{TRAIN} --actor_rollout_ref.actor.kl_loss_coef 1", "Did you mean --algo.kl.init_coef?"),
    (f"{TRAIN} --pretrain m", "Did you mean --actor.model_name_or_path?"),
    (f"{TRAIN} --max_len 9", "Did you mean --data.max_len?"),
    (f"{TRAIN} --logger.wandb.key env", "WANDB_API_KEY is not set"),
    (f"{TRAIN} --ckpt.output_dir / --ckpt.load_enable", "and --resume: --ckpt.load_enable, --ckpt.output_dir. Leave"),
    (f"{TRAIN} --train.run_dir a --ckpt.path b", "--resume: --ckpt.path, --train.run_dir. Leave"),
    (f"{TRAIN} --actor.aux_loss_coef 0.01", "model has no auxiliary loss of experts"),
    (f"{TRAIN} --actor.aux_loss_coef -1", "--actor.aux_loss_coef -1: give 0 or more"),
    ("train --model gpt2", "model gpt2 is no folder here, not in the cache, and the hub does not give it"),
    ("train --model openai-community/gpt2", "model openai-community/gpt2 is no folder here, not in the cache, "),
    ("train --model no/such/folder", "or a hub id such as Qwen/Qwen2.5-1.5B."),
    ("train --model no/such-model --lr 1", "unknown flag --lr. Did you mean --actor.adam.lr?"),  # no hub is asked
    ("train --vllm.tensor_parallel_size 4", "--vllm.tensor_parallel_size 4 needs 4 GPUs of the policy, which has 1"),
    # what would crash a long run late
    (f"{QWEN} --ckpt.save_steps 0", "or -1 for never"),
    (f"{QWEN} --train.seed", "--train.seed : expected one argument."),
    (f"{QWEN} --actor.adam.lr nan", "--actor.adam.lr nan: give a number above 0"),
    (f"{QWEN} --adam.lr 1e-4", "unknown flag --adam.lr. Did you mean --actor.adam.lr?"),
    (f"{QWEN} --no-vllm.num_engines", "OpenRLHF's own checks fail on this combination (TypeError"),
    (f"{QWEN} --actor.adam.betas 0.9", "--actor.adam.betas 0.9: expected 2 arguments."),
    (f"{QWEN} --temperature 1", "unknown flag --temperature. Did you mean --rollout.temperature?"),
    (f"{QWEN} --rollout.max_new_tokens 9216", "--rollout.max_new_tokens 9216 is not below --data.max_len 9216"),
    (f"{QWEN} --algo.real.objective it.py:ends", "it raises SystemExit: 0, which ends the process", MINE),
    (f"{QWEN} --algo.real.objective it.py:fives", "'fives' is no function of …it.py", MINE),
    (f"{QWEN} --algo.real.truncated often", "--algo.real.truncated often: invalid choice: 'often' (choose from "),
    (f"{QWEN} --algo.real.max_live_micro_batches -1", "give auto, or a number of micro-batches of 0 or more"),
    (f"{QWEN} --train.max_steps=-1", "--train.max_steps -1: "),
    (f"{QWEN} --algo grpo --train.partial_rollout_enable",
     "OpenRLHF refuses this combination: --train.partial_rollout_enable"),
    (f"{QWEN} --algo grpo --train.batch_size 240", "into equal updates of whole groups. Give 256."),
    (f"{QWEN} --train.num_episodes 1", "ends after 314 steps, not after 1000"),  # 40,315 rows of 128 prompts
    ("compare --algos listwise", "Did you mean …examples/objectives/listwise.py:listwise?"),
    (f"{COMPARE} --algos real real", "--algos or --grid names real-s1 twice"),
    (f"""{COMPARE} --algos "real --algo.real.tau 'x" """, "Close each quote"),
    (f"""{COMPARE} --benchmarks problems.jsonl --eval-flags "'x" """, "Close each quote"),
    (f"{COMPARE} --grid actor.adam.lr", "--grid actor.adam.lr 1e-4 1e-3"),
    (f"{COMPARE} --algos 'real --logger.wandb.key K'", "a secret is in them"),
    (f"{COMPARE} --eval-flags '--k 4'", "--eval-flags: nothing is evaluated"),
    ("data aime24 --out o.jsonl --template none", "--template is for training sets"),
    (f"{TRAIN} --data=", "--data.prompt_dataset: its value is missing"),
    (f"{TRAIN} --run_name a", "unknown flag --run_name. Did you mean --run-name?"),  # as in a TOML file
    (f"{TRAIN} --no-resume", "unknown flag --resume. It is an option of this command"),
    (f"{TRAIN} --reward.remote_url reward.txt", "is neither a FILE.py nor an address"),
    ("eval", "missing: --model and --out. Or"),
    ("eval --model model --out e --temperature nan", "--temperature must be 0 or more"),
    ("eval --compare run", "expected 2 arguments"),
    ("data rows.jsonl --out rows.jsonl", "rows.jsonl exists, and real-openrlhf did not write it"),
    ("grade --input model --output x", "--input model cannot be read"),
    ("grade --input graded.jsonl --output ./graded.jsonl", "real-openrlhf did not write it"),
    ("report model --out x", "no run to report on"),
    ("report run --out rows.jsonl", "rows.jsonl"),
    ("show nothing", "has no responses: there is no such folder. Name"),
    ("doctor --nope", "error: unrecognized arguments: --nope. `real-openrlhf doctor --help`"),
    ("data rows.jsonl --out x.jsonl --templat none", "unrecognized arguments: --templat"),  # no prefix is a flag
    (f"{COMPARE} --benchmarks problems.jsonl --eval-flags '--kk 4'", "unrecognized arguments: --kk 4"),
    # comparisons, refused before the first training
    (f"{COMPARE} --algos grpoo", "--algos grpoo: unknown. Did you mean grpo?"),
    (f"{COMPARE} --benchmarks math50", "unknown benchmark math50. Did you mean math500?"),
    (f"{BENCH} --eval-flags '--top-p 0'", "--top-p above 0 and at most 1"),
    (f"{BENCH} --ds.lora.rank 4 --ds.fused_logprobs", "`eval` cannot load the adapter that a LoRA run saves"),
    (f"{COMPARE} --steps 50 --max-steps=100", "--steps and --max-steps are one setting"),
    (f"{COMPARE} --seed 3", "--seed is set for each run. Use --algos, --seeds, --first-seed, --out"),
    # it would win over the comparison's own words: all seeds in one folder
    ("compare --algos 'real --seed 7'", "--seed is set for each run"),
    ("compare --algos real 'real_bce --train.seed=7'", "--train.seed is set"),
    ("compare --algos 'real --no-train.seed'", "--train.seed is set"),
    ("compare --algos 'real --runs-dir D'", "--runs-dir is set"),
    ("compare --ckpt.path=D", "--ckpt.path is set"),
    ("compare --algos 'real --dry-run'", "--dry-run is set"),
    ("compare --grid train.seed 1 2", "--train.seed is set"),
    ("compare --grid algo real grpo", "--algo is set"),
    ("compare --algos ''", "--algos or --grid is empty"),
    ("compare --grid '' 1", "--algos or --grid is empty"),
    ("compare --algos 'real --algo.real.tau 0.1' 'real --algo.real.tau 0.1'", "names real-tau-0.1-s1 twice"),
    # evaluations
    (f"{ALONE} --benchmarks /no/such.jsonl", "no file or folder /no/such.jsonl"),
    (f"{ALONE} --grader guess", "unknown grader guess"),
    (f"{ALONE} --grader /no/such.py", "--grader /no/such.py does not exist"),
    ("eval --model model --out e --benchmarks problems.jsonl --max-new-tokens 62", "Use --max-new-tokens 61 or less"),
    (f"{PROBLEMS} it.jsonl", "row 1 has no column label", '{"prompt": "a"}'),
    (f"{PROBLEMS} it.jsonl", "the label text or a whole number", '{"prompt": "a", "label": 1.5}'),
    (f"{PROBLEMS} it.jsonl", "several problems share one id", '{"prompt": "a", "label": "1", "id": "x"}\n' * 2),
    # configuration files
    ("train --config none.toml", "none.toml cannot be read"),
    ("train --config it.toml", "cannot be read", "recipe = "),
    ("train --config it.toml", "train.seed 2026-01-01: invalid int value", "[flags]\ntrain.seed = 2026-01-01"),
    # training data
    ("data deepscalr --out o.jsonl", "known data set. Did you mean deepscaler? There are: "),
    ("data deepscaler --out o.jsonl", "cannot load agentica-org/DeepScaleR-Preview-Dataset from the hub"),
    ("data it.jsonl --out o.jsonl", "cannot be read (line 3: ",
     '{"problem": "p", "answer": "1"}\n\n{"problem": "'),
    ("data it.xml --out o.jsonl", "expected .parquet, .json, .jsonl, .csv", "a,b"),
    ("data it.jsonl --out o.jsonl", "no column with the problem", '{"text": "p"}'),
    ("data it.jsonl --out o.jsonl", "1 no gold answer", '{"problem": "p", "answer": ""}'),
    ("data it.jsonl --out o.jsonl", "row 1: the problem is a int", '{"problem": 3, "answer": "1"}'),
    ("data it.jsonl --out o.jsonl", "row 1: the gold answer is true or false", '{"problem": "p", "answer": true}'),
    ("data it.jsonl --out o.jsonl", "row 1: the prompt has 2 user messages", json.dumps(TWICE)),
    # answers to grade
    ("grade --input it.jsonl --output o.jsonl", "line 1 is no JSON object", "{"),
    ("grade --input it.jsonl --output o.jsonl", "line 1 is no JSON object", '{"response": 7, "label": "7"}'),
]  # fmt: skip


@pytest.fixture
def runs(here):
    """Beside what is there, a run that failed."""
    write_run(here, name="failed", status="failed", reason="MemoryError: too large")


def ends(capsys, words: str) -> tuple[int, str]:
    """The exit code, and all that is said."""
    given = shlex.split(words)
    if given[:1] and given[0] in ("train", "compare"):
        given.append("--dry-run")  # what is accepted shall not start
    try:
        code = main(given)
    except SystemExit as end:
        code = end.code
    return code, "".join(capsys.readouterr())


@pytest.mark.parametrize("case", REFUSED, ids=[f"{words or 'nothing'}: {part}" for words, part, *_ in REFUSED])
def test_a_command_that_cannot_be_meant_is_refused_and_changes_nothing(here, runs, capsys, case):
    words, expected, *text = case
    if text:
        (name,) = re.findall(r"\bit\.\w+", words)
        (here / name).write_text(text[0])
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    code, said = ends(capsys, words)
    assert code == 2 and re.search(".*".join(map(re.escape, expected.split("…"))), said, re.DOTALL), said
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
    assert not words.startswith("train") or said.count("\n") == 1  # nothing comes before the error
    assert "Traceback" not in said and "\x1b" not in said and max(map(len, said.splitlines())) < 2500


def test_what_can_be_meant_is_accepted(here, capsys):
    """Otherwise the table would prove nothing."""
    code, said = ends(capsys, f"{TRAIN} --seed ٣")
    assert code == 0 and "OK. " in said
