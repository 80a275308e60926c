"""Names that changed: old command lines still work, and old run folders are read with today's names."""

import json

import invented_runs as invented

from real_openrlhf.base import old_names
from real_openrlhf.recipes.run import recorded_flags
from real_openrlhf.report.read_runs import read_run
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command

OLD = "--algo real_constant --train.deal upstream --no-train.skip_weightless --algo.real.uniform_groups drop"


def test_an_old_command_line_is_the_new_one():
    new = "--algo real_fixed_weights --train.batching upstream --no-train.skip_zero_gradient"
    new += " --algo.real.uniform_groups zero_loss"
    old, new = (command.request_of(words.split()) for words in (OLD, new))
    assert old.args.algo == new.args.algo and recorded_flags(old.run) == recorded_flags(new.run)


def test_an_old_run_folder_is_read_with_todays_names(tmp_path):
    flags = {"--train.deal": "groups", "--algo.real.uniform_groups": "drop", "--ds.logit_free": True}
    folder = invented.write_run(tmp_path, "real_fixed_weights", 1, flags=flags)
    old = json.loads((folder / "run.json").read_text()) | {"algo": "real_constant"}
    (folder / "run.json").write_text(json.dumps(old))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line | {"mismatch/mean": 0.01} for line in lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run, record = read_run(folder), run_folder.read(folder)
    assert run.algo == record["algo"] == "real_fixed_weights"
    assert run.flags.items() >= {"--train.batching": "whole_groups", "--ds.fused_logprobs": True}.items()
    assert record["flags"]["--algo.real.uniform_groups"] == "zero_loss"
    assert set(run.logged["train"]["sampling/logprob_diff_mean"]) == {0.01}
    assert not set(run.logged["train"]) & set(old_names.METRICS)
