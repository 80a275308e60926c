"""What a rehearsal tries before it trains: a copy of the model, all rows, the reward.

    python -m real_openrlhf.rehearsal.trial ASKED FOLDER

A process of its own, in another folder, with a run's variables: a reward that exits, forks or hangs ends this one.
Whatever ends it, FOLDER/trial.json has what was found before.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import write_json
from real_openrlhf.base.model_tokenizer import load_tokenizer
from real_openrlhf.flags import parser
from real_openrlhf.rehearsal import known_texts, rows, small_model
from real_openrlhf.rehearsal.rows import Finding
from real_openrlhf.runs.provenance import PACKAGE

EVALUATED = 4  # rows of the validation


def main(asked: list, folder: Path) -> None:
    argv, files, validation, count = asked
    args, _ = parser.resolved(argv)
    data, name, reward = args.data, args.actor.model_name_or_path, args.reward.remote_url
    room, model = data.max_len - (args.rollout.max_new_tokens or 1), folder / "model"
    told: dict[str, Any] = {"findings": [], "notes": []}

    def tell(findings: Iterable[Finding], **parts: Any) -> None:
        told["findings"] += [finding._asdict() for finding in findings]
        told.update(parts)
        write_json(folder / "trial.json", told)

    try:
        about = small_model.copy_of(name, model, args.rollout.temperature)
    except Exception as error:  # of the hub, or of an architecture with other fields
        why = f"{name} cannot be copied ({last_line(error)[:160]}), and a small Qwen2 of bytes stands in"
        told["notes"].append(f"{why}: tokenizer, chat template and architecture are not rehearsed")
        about = small_model.copy_of(small_model.model_of_bytes(folder / "bytes"), model, args.rollout.temperature)
    tokenizer = load_tokenizer(str(model))
    every, held_out = (rows.read(names, data, tokenizer) for names in (files, validation))
    longest = rows.trained(every, count, room, data, folder / "train.jsonl")
    if held_out:
        longest = max(longest, rows.trained(held_out, EVALUATED, room, data, folder / "eval.jsonl"))
    agent = args.train.agent_func_path
    ours = not agent and PACKAGE in Path(reward[0]).parents
    parts = {"about": about, "rows": rows.about(every, room), "end": tokenizer.decode([tokenizer.eos_token_id])}
    tell(rows.findings(every, room, ours), **parts, longest=longest, trial={})
    if not agent:  # which needs an engine: the trained steps have one
        trial, findings = known_texts.tried(every, args, tokenizer)
        tell(findings, trial=trial)
    tell((), ended=True)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]), Path(sys.argv[2]))
    except (UserError, ValueError) as error:  # of rows, or of a file that cannot be loaded
        sys.exit(str(error))
    sys.stdout.flush()
    os._exit(0)  # a call that hangs keeps its thread, and others may not be daemons
