"""The file for OpenRLHF's `--reward.remote_url` with data of `real-openrlhf data gym`.

Scores and environment variables are as in math_reward.py, but for REAL_GRADER. The workers run the gym's scorers.
"""

from real_openrlhf.rewards import gym_tasks
from real_openrlhf.rewards.graders import reward_function

gym_tasks.require()
reward_func = reward_function("gym")
