"""Kept answers on the report's page: held-out questions side by side, and groups with the weight of each answer."""

import html
from collections.abc import Iterable
from pathlib import Path

from real_openrlhf.answers.kept import Group, moments, read, short, steps

ABOUT = (
    "Every evaluation keeps its first answer to the same few held-out questions, which a hash of their text chose. "
    "Below them stand two training groups with right and wrong answers, of the first and of the last step that kept "
    "one. A score is the mean of log pi - log pi_old over an answer's tokens. A weight says how strongly the loss "
    "pushes the answer: above 0 up, below 0 down. Both are of the step's last update that trained the group. "
    "Built-in losses have neither."
)


def section(runs: Iterable[tuple[str, Path]]) -> str:
    """Of each setting its first run that kept answers; nothing where none did."""
    found: dict[str, tuple[str, list[Group]]] = {}
    for setting, folder in runs:
        if setting not in found and (groups := read(folder)):
            found[setting] = folder.name, groups
    parts = [
        f"<details{'' if number else ' open'}><summary>{_text(setting)}, run {_text(name)}</summary>"
        f"<div class=answers>{_held_out(groups)}{_trained(groups)}</div></details>"
        for number, (setting, (name, groups)) in enumerate(found.items())
    ]
    return f"<h3>Answers</h3><p class=soft>{_text(ABOUT)}</p>{''.join(parts)}" if parts else ""


def _held_out(groups: list[Group]) -> str:
    if not steps(groups, "eval"):
        return ""
    answered = {(group.prompt, group.gold, group.step): group for group in groups if group.phase == "eval"}
    rows = []
    for prompt, gold in dict.fromkeys((prompt, gold) for prompt, gold, _ in answered):
        of_steps = (answered.get((prompt, gold, step)) for step in moments(groups))
        cells = (_answer(group) if group else "<td></td>" for group in of_steps)
        rows.append(f"<td>{_text(prompt)}\n\nexpected: {_text(gold)}</td>{''.join(cells)}")
    return _table(["Held-out question", *(f"Step {step}" for step in moments(groups))], rows)


def _answer(group: Group) -> str:
    first = group.rollouts[0]
    verdict = f"<span class={first.verdict}>{first.verdict}</span>, {group.right} of {group.of} right"
    return f"<td>{verdict}\n{_text(first.answer)}</td>"


def _trained(groups: list[Group]) -> str:
    mixed = {group.step: group for group in groups if group.phase == "train" and 0 < group.right < group.of}
    return "".join(_weights(mixed[step]) for step in sorted({min(mixed), max(mixed)})) if mixed else ""


def _weights(group: Group) -> str:
    rows = []
    for rollout in group.rollouts:
        width = 5 * abs(rollout.weight) / group.largest
        bar = f"<span class='bar{' down' * (rollout.weight < 0)}' style='width:{width:.2f}rem'></span>"
        cells = (*map(rollout.shown, ("reward", "score")), f"{rollout.shown('weight')} {bar}")
        numbers = "".join(f"<td class=n>{cell}</td>" for cell in cells)
        verdict = f"<td class='n {rollout.verdict}'>{rollout.verdict}</td>"
        rows.append(f"{verdict}{numbers}<td>{_text(rollout.answer)}</td>")
    columns = ["Verdict", "Reward", "Score", "Weight", "Answer"]
    asked = f"<p>{group.title}\n{_text(group.prompt)}\nexpected: {_text(group.gold)}</p>"
    return asked + _table(columns, rows)


def _table(columns: list[str], rows: list[str]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(words: str) -> str:
    return html.escape(short(words))
