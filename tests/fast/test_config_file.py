"""`train --config FILE.toml`, and the file that each run folder gets."""

import pytest

from real_openrlhf.recipes.plan import recorded_flags
from real_openrlhf.training import command, config_file

FILE = """
recipe = "cpu"
algo = "grpo"
seed = 3
max-steps = 12

[flags]
actor.adam.lr = 5e-4
actor.adam.betas = [0.9, 0.95]
"eval.steps" = -1
ds.overlap_comm = true
train.deal = false

[flags.rollout]
batch_size = 16
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def settings(*words):
    """(recipe, algorithm, all flags and removed ones) of a command line."""
    request = command.request_of(list(map(str, words)))
    return request.recipe.name, request.args.algo, recorded_flags(request.plan()), request.removed


def test_a_file_is_the_command_line_that_it_says(file):
    typed = "--recipe cpu --algo grpo --seed 3 --max-steps 12 --actor.adam.lr 5e-4 --actor.adam.betas 0.9 0.95"
    typed += " --eval.steps=-1 --ds.overlap_comm --no-train.deal --rollout.batch_size 16"
    expected = settings(*typed.split())
    found = settings("--config", file)
    assert found == expected
    assert found[2]["--actor.adam.lr"] == 5e-4 and found[2]["--eval.steps"] == -1 and found[2]["--train.seed"] == 3


@pytest.mark.parametrize(
    "typed, flag, value",
    [
        (["--actor.adam.lr", "1e-3"], "--actor.adam.lr", 1e-3),
        (["--actor.adam.lr=1e-3"], "--actor.adam.lr", 1e-3),
        (["--train.seed", "9"], "--train.seed", 9),  # the file says `seed`
        (["--seed", "9"], "--train.seed", 9),
        (["--train.deal", "upstream"], "--train.deal", "upstream"),  # the file removes it
        (["--no-ds.overlap_comm"], "--ds.overlap_comm", None),
    ],
)
def test_typed_words_win(file, typed, flag, value):
    for words in (["--config", file, *typed], [*typed, f"--config={file}"]):
        assert settings(*words)[2].get(flag) == value
    assert settings("--config", file, "--algo", "real")[1] == "real"


def test_the_file_of_a_run_folder_gives_the_same_settings(tmp_path, file):
    typed = ["--actor.adam.betas", "0.8", "0.9", "--algo.real.tau", "0.1", '--eval.dataset=a "quoted" \\ näme.jsonl']
    words = ["--config", str(file), "--algo", "real", "--no-ds.zero_stage", *typed, "--logger.wandb.key", "hush"]
    request = command.request_of(words)
    written = config_file.text(request.recipe.name, request.args.algo, request.user, request.removed)
    (tmp_path / "again.toml").write_text(written)
    assert "hush" not in written
    expected, found = settings(*words), settings("--config", tmp_path / "again.toml")
    assert found[:3] == expected[:3] and sorted(found[3]) == sorted(expected[3])
