"""The run's reward, asked by the run's own executor about texts whose verdict is known."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from real_openrlhf.hooks.engine.rewards import executor
from real_openrlhf.rehearsal.planted import Right, formatted, response, right_of
from real_openrlhf.rehearsal.rows import Finding, Row
from real_openrlhf.rewards.calls import AT_ONCE

SAMPLE = 200  # rows
PLAIN = "{}"
# by what a prompt says; one that ends with "Answer:" asks for no form
FORMS = {"\\boxed": "\\boxed{{{}}}", "<answer>": "<answer>{}</answer>", "####": "#### {}", "Answer: ": "Answer: {}"}
FIRST, BUDGET, PATIENCE = 3, 60.0, 30.0  # rows that are tried alone, seconds for all calls, seconds of one
TOGETHER = 64  # calls at once
SLOW = 5.0  # seconds of a call
FEW = 0.05  # a share of texts or rows that is no finding
LOOP = "Let me check that again. "
WRONG = {"other": "another row's gold", "nothing": "an empty response"}
WRONG |= {"prompt": "a copy of the prompt", "loop": "a loop without an answer"}


class Call(NamedTuple):
    row: int
    kind: str
    score: float  # nan: ungraded
    seconds: float

    @property
    def ungraded(self) -> bool:
        return self.score != self.score


def asked_form(row: Row) -> str:
    texts = (row.question.rstrip(), row.prompt)  # a template may have signs of its own
    return next((form for text in texts for sign, form in FORMS.items() if sign in text), PLAIN)


def gold_kinds(asked: str) -> dict[str, str]:
    """Kinds of gold texts with their forms, the asked one first."""
    others = [form for form in (*FORMS.values(), PLAIN) if form != asked]
    return {"gold": asked} | {f"gold as {form.format('X')}": form for form in others}


def texts(every: list[Row], length: int, right: Right | None) -> Iterator[tuple[Row, str, str]]:
    """Rows with kinds of texts, those first that decide most; `length`: characters of the longest response."""
    for place, row in enumerate(every):
        kinds = gold_kinds(asked_form(row))
        write = right or partial(formatted, kinds["gold"])
        yield row, "gold", write(row.prompt, row.label)
        if other := next((one for one in every[place + 1 :] + every[:place] if one.label != row.label), None):
            yield row, "other", write(row.prompt, other.label)
        wrong = {"nothing": "", "prompt": row.question, "loop": (LOOP * (length // len(LOOP) + 1))[:length]}
        yield from ((row, kind, text) for kind, text in wrong.items())
        for kind, form in [*kinds.items()][1:] if right is None else ():
            yield row, kind, formatted(form, row.prompt, row.label)


class Reward:
    def __init__(self, reward: list[str], tokenizer: Any) -> None:
        self.run, self.tokenizer, self.right = executor(reward), tokenizer, right_of(reward)
        self.run.calls.seconds = self.run.calls.limit = min(PATIENCE, self.run.calls.seconds)

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
        """Calls one after another; then calls at once, and how many end in a second."""
        asked = [(row, kind, self.query(row, kind, text)) for row, kind, text in texts(every, length, self.right)]
        last, deadline = every[:FIRST][-1].number, time.perf_counter() + BUDGET
        alone, together = list[Call](), list[Call]()
        for one in asked:
            if one[0].number <= last and time.perf_counter() < deadline:
                alone.append(await self.call(*one))
        rest = [one for one in asked if one[0].number > last]
        each, begin = statistics.median(call.seconds for call in alone), time.perf_counter()
        for start in range(0, len(rest) * (each < SLOW), TOGETHER):
            if time.perf_counter() < deadline:
                together += await asyncio.gather(*(self.call(*one) for one in rest[start : start + TOGETHER]))
        rate = len(together) / (time.perf_counter() - begin) if together else AT_ONCE / max(each, 1e-6)
        return alone, together, rate


def tried(rows: list[Row], args: SimpleNamespace, tokenizer: Any) -> tuple[dict, list[Finding]]:
    labelled = [row for row in rows if row.label not in (None, "", [])] or rows
    every = sorted(random.Random(0).sample(labelled, min(SAMPLE, len(labelled))), key=lambda row: row.number)
    reward = Reward(args.reward.remote_url, tokenizer)
    alone, together, rate = asyncio.run(reward.calls(every, 4 * (args.rollout.max_new_tokens or args.data.max_len)))
    calls, slow = alone + together, max(alone, key=lambda call: call.seconds)
    count = Counter(call.kind for call in calls)
    passed = [call for call in calls if call.score > args.derived.threshold]
    right = {kind: [call.row for call in passed if call.kind == kind] for kind in count}
    forms = [asked_form(row) for row in every]
    kinds = gold_kinds(max(forms, key=forms.count))
    best = max(kinds, key=lambda kind: len(right.get(kind, ())))
    sums = (f"{kind} {len(right[kind])}/{count[kind]}" for kind in ("gold", *WRONG) if kind in count)
    about: dict[str, Any] = {
        "form": kinds[best] if right.get(best) else None,
        "calls": f"{len(calls):,} calls on {len({call.row for call in calls}):,} rows; right: {', '.join(sums)}",
        "seconds": statistics.median(call.seconds for call in alone),
        "slowest": f"{slow.seconds:.2f} s (row {slow.row}, {slow.kind})",
        "rate": rate,
    }
    faults, file = reward.run.calls.details, args.reward.remote_url[0]
    found = [*_failures(calls, faults), *_slowness(about, args)]
    more = f". If a right response has another form, define right_response(prompt, label) in {file}"
    more *= file.endswith(".py") and not reward.right
    scores = {call.score for call in calls if not call.ungraded}
    if len(scores) == 1 and len(calls) > FIRST:
        text = f"the reward is constant: {scores.pop():g} for each of {len(calls)} texts, right or wrong"
        return about, [*found, Finding(1, text + more * (not passed), bool(passed or more))]
    wrong = [call.row for call in calls if call.kind == "gold" and call.row not in right["gold"]]
    asked, other = kinds["gold"], kinds[best] if best != "gold" and about["form"] else ""
    if wrong and other and asked == PLAIN:  # as in a task whose model has learnt the form
        about["calls"] += f"; no prompt asks for a form, and the gold is right as {other.format('X')}"
    elif len(wrong) > FEW * count["gold"] and not faults:
        text = "your right_response" if reward.right else f"the gold as {asked.format('X')}"
        text += f" is wrong in {len(wrong) / count['gold']:.0%} of the rows, first row {wrong[0]}"
        text += f"; as {other.format('X')} it is right" * bool(other)
        found.append(Finding(len(wrong) / count["gold"], text + more, bool(other)))
    for kind, name in WRONG.items():
        if len(right.get(kind, ())) > count[kind] * (0 if kind in ("nothing", "loop") else FEW):
            text = f"{name} is right in {len(right[kind])} of {count[kind]} rows, first row {right[kind][0]}"
            found.append(Finding(len(right[kind]) / count[kind], text))
    return about, found


def _failures(calls: list[Call], faults: dict[str, str]) -> Iterator[Finding]:
    failed = [call for call in calls if call.ungraded]
    share = len(failed) / len(calls)
    if faults:
        told = "; ".join(f"{kind}: {detail}" for kind, detail in faults.items())
        yield Finding(share, f"the reward {told}; {share:.0%} of {len(calls)} calls", share > FEW)
    elif share > FEW:
        first = f"first row {failed[0].row}, {failed[0].kind}"
        yield Finding(share, f"{share:.0%} of {len(calls)} texts are ungraded, and train nothing: {first}")


def _slowness(about: dict, args: SimpleNamespace) -> Iterator[Finding]:
    if about["seconds"] > SLOW:
        step = args.rollout.batch_size * args.rollout.n_samples_per_prompt / about["rate"]
        cost = f"{step:,.0f} s of each step, {step * args.train.max_steps / 3600:,.0f} hours in all"
        text = f"a call of the reward takes {about['seconds']:.1f} s, at most {about['slowest']}"
        yield Finding(1, text, True, cost)
