"""A reward for verl, which asks for one response: an ungraded one is incorrect there, and `no_verdict` counts it."""

from same_answer import verify


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    verdict = verify(solution_str, ground_truth, prompt=(extra_info or {}).get("question", ""))
    score = 0.0 if verdict.ignored else verdict.score  # nan would make every advantage of the group nan
    return {"score": score, "no_verdict": float(verdict.ignored), "copied": float(verdict.reason == "copied")}
