"""What a rehearsal tries before it trains: a copy of the model, all rows, the reward or the agent.

    python -m real_openrlhf.rehearsal.tried ASKED.json FOUND.json

A process of its own, in another folder, with a run's variables: a reward that exits, forks or hangs ends this one.
"""

import asyncio
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed, write_json
from real_openrlhf.base.model_tokenizer import load_tokenizer
from real_openrlhf.base.user_files import raised
from real_openrlhf.flags import parser
from real_openrlhf.rehearsal import rows, small_model
from real_openrlhf.rehearsal.planted import golds, response
from real_openrlhf.rehearsal.rows import Finding, Row
from real_openrlhf.rewards.calls import AT_ONCE
from real_openrlhf.runs.provenance import PACKAGE

SAMPLE, EVALUATED = 200, 4  # rows on which the reward is tried, rows of the validation
FORMS = {"\\boxed": "\\boxed{{{}}}", "<answer>": "<answer>{}</answer>", "####": "#### {}"}  # by what a prompt says
PLAIN = "{}"
FIRST, BUDGET, PATIENCE = 3, 60.0, 30.0  # rows that are tried alone, seconds for all calls, seconds of one
TOGETHER = 64  # calls at once
SLOW = 5.0  # seconds of a call
FEW = 0.05  # a share of texts or rows that is no finding
LOOP = "Let me check that again. "
WRONG = {"other": "another row's gold", "nothing": "an empty response"}
WRONG |= {"prompt": "a copy of the prompt", "loop": "a loop without an answer"}
TURN = 64  # tokens of an agent's turn, at most
EPISODE = ("observation_tokens", "action_ranges", "reward", "scores", "truncated")


class Call(NamedTuple):
    row: int
    kind: str
    score: float  # nan: ungraded
    seconds: float


def asked_form(prompt: str) -> str:
    return next((form for sign, form in FORMS.items() if sign in prompt), PLAIN)


def texts(every: list[Row], length: int) -> Iterator[tuple[Row, str, str]]:
    """Rows with kinds of texts, those first that decide most; `length`: characters of the longest response."""
    for place, row in enumerate(every):
        form, gold = asked_form(row.prompt), golds(row.label)[0]
        others = (golds(one.label)[0] for one in every[place + 1 :] + every[:place] if one.label != row.label)
        said = {"gold": form.format(gold)}
        if (other := next(others, None)) is not None:
            said["other"] = form.format(other)
        said |= {"nothing": "", "prompt": row.question, "loop": (LOOP * (length // len(LOOP) + 1))[:length]}
        said |= {f"gold as {one.format('X')}": one.format(gold) for one in (*FORMS.values(), PLAIN) if one != form}
        yield from ((row, kind, text) for kind, text in said.items())


class Reward:
    """The run's own executor, asked about texts."""

    def __init__(self, reward: list[str], tokenizer: Any) -> None:
        from real_openrlhf.hooks.engine.requests import executor

        self.run, self.tokenizer = executor(reward), tokenizer
        self.run.calls.seconds = self.run.calls.limit = min(PATIENCE, self.run.calls.seconds)
        self.faults: dict[str, str] = {}
        keep = self.run.calls.failed

        def failed(fault: Any, prompt: str) -> dict:
            self.faults.setdefault(fault.kind, str(fault))
            return keep(fault, prompt)

        self.run.calls.failed = failed

    def query(self, row: Row, kind: str, text: str) -> str:
        """As the run makes it: tokens with the end, decoded."""
        answer = text if kind in ("nothing", "loop") else response(row.prompt, text)
        parts = self.tokenizer([row.prompt, answer], add_special_tokens=False)["input_ids"]
        return self.tokenizer.decode([*parts[0], *parts[1], self.tokenizer.eos_token_id], skip_special_tokens=False)

    async def call(self, row: Row, kind: str, query: str) -> Call:
        fetch = self.run._fetch_rewards_via_func if self.run.reward_func else self.run._fetch_rewards_via_http
        begin = time.perf_counter()
        (result,) = await fetch([query], [row.prompt], [row.label])
        return Call(row.number, kind, result["scores"], time.perf_counter() - begin)

    async def calls(self, every: list[Row], length: int) -> tuple[list[Call], list[Call], float]:
        """Calls one after another, the first of them twice; then calls at once, and how many end in a second."""
        asked = [(row, kind, self.query(row, kind, text)) for row, kind, text in texts(every, length)]
        first, deadline = every[:FIRST][-1].number, time.perf_counter() + BUDGET
        alone = [await self.call(*asked[0])]
        for one in asked:
            if one[0].number <= first and time.perf_counter() < deadline:
                alone.append(await self.call(*one))
        rest, together = [one for one in asked if one[0].number > first], list[Call]()
        each, begin = statistics.median(call.seconds for call in alone), time.perf_counter()
        for start in range(0, len(rest) * (each < SLOW), TOGETHER):
            if time.perf_counter() < deadline:
                together += await asyncio.gather(*(self.call(*one) for one in rest[start : start + TOGETHER]))
        rate = len(together) / (time.perf_counter() - begin) if together else AT_ONCE / max(each, 1e-6)
        return alone, together, rate


def tried(every: list[Row], args: SimpleNamespace, tokenizer: Any) -> tuple[dict, list[Finding]]:
    reward = Reward(args.reward.remote_url, tokenizer)
    alone, together, rate = asyncio.run(reward.calls(every, 4 * (args.rollout.max_new_tokens or args.data.max_len)))
    calls, slow = alone[1:] + together or alone, max(alone, key=lambda call: call.seconds)
    right: dict[str, list[int]] = defaultdict(list)  # rows by kind
    count: dict[str, int] = defaultdict(int)
    for call in calls:
        count[call.kind] += 1
        right[call.kind] += [call.row] * (call.score > args.derived.threshold)
    forms = [asked_form(row.prompt) for row in every]
    form = max({*forms}, key=forms.count)
    kinds = {"gold": form} | {f"gold as {one.format('X')}": one for one in (*FORMS.values(), PLAIN) if one != form}
    best = max(kinds, key=lambda kind: len(right[kind]))
    about = {
        "form": kinds[best] if right[best] else None,
        "calls": f"{len(calls):,} calls on {len({call.row for call in calls}):,} rows; right: "
        + ", ".join(f"{kind} {len(right[kind])}/{count[kind]}" for kind in ("gold", *WRONG) if count[kind]),
        "seconds": statistics.median(call.seconds for call in alone),
        "slowest": f"{slow.seconds:.2f} s (row {slow.row}, {slow.kind})",
        "rate": rate,
    }
    found = [*_failures(alone, calls, reward.faults), *_slowness(about, args)]
    scores = {call.score for call in calls if call.score == call.score}
    if len(scores) == 1 and len(calls) > FIRST:
        constant = f"the reward is constant: {scores.pop():g} for each of {len(calls)} texts, right or wrong"
        return about, [*found, Finding(1, constant, True)]
    share = 1 - len(right["gold"]) / count["gold"]
    if share > FEW and not reward.faults:
        first = next(call.row for call in calls if call.kind == "gold" and call.row not in right["gold"])
        other = f"; as {kinds[best].format('X')} it is right" * (best != "gold" and bool(right[best]))
        unasked = "no prompt asks for a form, and " * (form == PLAIN and bool(other))
        wrong = (
            f"{unasked}the gold as {form.format('X')} is wrong in {share:.0%} of the rows, first row {first}{other}"
        )
        found.append(Finding(share, wrong, bool(other) and form != PLAIN))
    for kind, name in WRONG.items():
        if len(right[kind]) > count[kind] * (0 if kind in ("nothing", "loop") else FEW):
            text = f"{name} is right in {len(right[kind])} of {count[kind]} rows, first row {right[kind][0]}"
            found.append(Finding(len(right[kind]) / count[kind], text))
    return about, found


def _failures(alone: list[Call], calls: list[Call], faults: dict[str, str]) -> Iterator[Finding]:
    failed = [call for call in calls if call.score != call.score]
    share = len(failed) / len(calls)
    for kind, detail in faults.items():
        yield Finding(share, f"the reward {kind}: {detail}; {share:.0%} of {len(calls)} calls", share > FEW)
    if share > FEW and not faults:
        first = f"first row {failed[0].row}, {failed[0].kind}"
        yield Finding(share, f"{share:.0%} of {len(calls)} texts are ungraded, and train nothing: {first}")
    (once, again), known = (call.score for call in alone[:2]), alone[0].score == alone[0].score
    if known and once != again:
        yield Finding(1, f"the reward, asked twice about the gold of row {alone[0].row}, says {once:g} and {again:g}")


def _slowness(about: dict, args: SimpleNamespace) -> Iterator[Finding]:
    if about["seconds"] > SLOW:
        step = args.rollout.batch_size * args.rollout.n_samples_per_prompt / about["rate"]
        cost = f"{step:,.0f} s of each step, {step * args.train.max_steps / 3600:,.0f} hours in all"
        yield Finding(
            1, f"a call of the reward takes {about['seconds']:.1f} s, at most {about['slowest']}", True, cost
        )


# An agent: two episodes with an engine that answers what it is told


class Engine:
    def __init__(self, tokenizer: Any, text: str) -> None:
        self.tokenizer, self.text = tokenizer, text

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        ids = self.tokenizer(self.text, add_special_tokens=False)["input_ids"][: TURN - 1]
        ids = [*ids, self.tokenizer.eos_token_id][: sampling_params.max_tokens or TURN]
        log_probs = [{token: SimpleNamespace(logprob=-1.0)} for token in ids]
        answer = SimpleNamespace(token_ids=ids, text=self.text, finish_reason="stop", logprobs=log_probs)
        return SimpleNamespace(prompt_token_ids=prompt_token_ids, outputs=[answer], finished=True)


def played(every: list[Row], args: SimpleNamespace, tokenizer: Any) -> tuple[dict, list[Finding]]:
    from vllm import SamplingParams

    from real_openrlhf.hooks.engine.requests import agent_executor

    file, scores = args.train.agent_func_path, []
    agent = agent_executor(file)
    for row, text in ((every[0], golds(every[0].label)[0]), (every[-1], "I do not know.")):
        episode = agent.execute(
            prompt=row.prompt,
            label=row.label,
            sampling_params=SamplingParams(max_tokens=args.rollout.max_new_tokens, logprobs=0),
            max_length=args.data.max_len,
            hf_tokenizer=tokenizer,
            llm_engine=Engine(tokenizer, response(row.prompt, text)),
            images=None,
        )
        try:
            result = asyncio.run(asyncio.wait_for(episode, BUDGET))
            scores.append(float(result["scores"]))
            wrong = [*_episode_faults(result, args.rollout.mismatch != "off")]
        except Exception as error:
            wrong = [Finding(1, f"an episode of row {row.number} fails: {raised(error, file)}", True)]
        if wrong:
            return {}, [one._replace(text=f"{file}: {one.text}") for one in wrong]
    return {"scores": scores}, []


def _episode_faults(result: dict, compared: bool) -> Iterator[Finding]:
    if missing := [key for key in EPISODE if result.get(key) is None]:
        yield Finding(1, f"an episode lacks {', '.join(missing)}", True)
        return
    tokens, log_probs = len(result["observation_tokens"]), result.get("rollout_log_probs")
    if compared and log_probs is None:
        yield Finding(1, "no rollout_log_probs: that vLLM and the policy differ is not seen, nor corrected")
    elif log_probs is not None and len(log_probs) != tokens:
        yield Finding(1, f"{len(log_probs)} rollout_log_probs for {tokens} tokens", True)
    if not all(0 < start < end <= tokens for start, end in result["action_ranges"]):
        yield Finding(1, f"action_ranges {result['action_ranges']} do not lie in its {tokens} tokens", True)


def main(asked: dict, file: Path) -> None:
    args, _ = parser.resolved(asked["argv"])
    data, folder, model = args.data, Path(asked["folder"]), args.actor.model_name_or_path
    room, reward = data.max_len - (args.rollout.max_new_tokens or 1), args.reward.remote_url
    found: dict[str, Any] = {"findings": [], "notes": []}
    place = (Path(asked["cache"]), args.rollout.temperature)

    def tell(findings: Iterable[Finding], **parts: Any) -> None:
        """Whatever ends this process later, this is known."""
        found["findings"] += [finding._asdict() for finding in findings]
        found.update(parts)
        write_json(file, found)

    try:
        small = small_model.copy_of(model, *place)
    except Exception as error:  # of the hub, or of an architecture with other fields
        why = f"{model} cannot be copied ({last_line(error)[:160]}), and a small Qwen2 of bytes stands in"
        found["notes"].append(f"{why}: tokenizer, chat template and architecture are not rehearsed")
        small = small_model.stand_in(*place)
    tokenizer = load_tokenizer(str(small))
    try:
        every, held_out = (rows.read(asked[name], data, tokenizer) for name in ("files", "validation"))
    except UserError as error:
        return tell([Finding(1, str(error), True)], ended=True)
    keys = [key for key in (data.input_key, data.label_key, "datasource") if key]
    longest = rows.trained(every, asked["count"], room, keys, folder / "train.jsonl")
    if held_out:
        evaluated = rows.trained(held_out, min(EVALUATED, len(held_out)), room, keys, folder / "eval.jsonl")
        longest = max(longest, evaluated)
    agent = args.train.agent_func_path
    ours = not agent and PACKAGE in Path(reward[0]).parents
    told = {"model": str(small), "about": small_model.about(small), "rows": rows.about(every, room)}
    end = tokenizer.decode([tokenizer.eos_token_id])
    tell(rows.findings(every, room, ours), **told, longest=longest, end=end)
    labelled = [row for row in every if row.label not in (None, "", [])] or every
    some = sorted(random.Random(0).sample(labelled, min(SAMPLE, len(labelled))), key=lambda row: row.number)
    try:
        about, findings = (played if agent else tried)(some, args, tokenizer)
    except Exception as error:  # of a file that cannot be loaded
        about, findings = {}, [Finding(1, raised(error, agent or ""), True)]
    return tell(findings, trial=about, ended=True)


if __name__ == "__main__":
    main(parsed(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # a call that hangs keeps its thread, and others may not be daemons
