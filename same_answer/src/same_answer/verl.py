"""A reward for verl: `reward.custom_reward_function.path=pkg://same_answer.verl`."""

from same_answer import verify


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None, **settings: object
) -> dict[str, float]:
    """verl has no third value, and nan would make every advantage of a group nan: ungraded is 0, and counted."""
    verdict = verify(solution_str, ground_truth, prompt=str((extra_info or {}).get("question", "")))
    score = 0.0 if verdict.ungraded else verdict.score
    return {"score": score, "ungraded": float(verdict.ungraded), "copied": float(verdict.reason == "copied")}
