"""Reward of the tiny task, for `--reward.remote_url`: 1 if what follows the dots is the label, else 0."""


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
    answer = queries[0].removeprefix(prompts[0]).removesuffix("<eos>").lstrip(".")
    score = float(answer == labels[0])
    return {"rewards": score, "scores": score, "extra_logs": {}}
