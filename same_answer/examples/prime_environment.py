"""An environment of `verifiers` for prime-rl; a second function of weight 0 logs the share of ungraded responses."""

import verifiers as vf

from same_answer import verify


def load_environment(dataset):
    def judged(prompt, completion, answer):
        return verify(completion[-1]["content"], answer, prompt=prompt[-1]["content"])

    def right(prompt, completion, answer, **state):
        verdict = judged(prompt, completion, answer)
        return 0.0 if verdict.ignored else verdict.score

    def no_verdict(prompt, completion, answer, **state):
        return float(judged(prompt, completion, answer).ignored)

    rubric = vf.Rubric(funcs=[right, no_verdict], weights=[1.0, 0.0])
    return vf.SingleTurnEnv(dataset=dataset, rubric=rubric)
