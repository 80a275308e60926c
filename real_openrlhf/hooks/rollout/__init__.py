"""Where answers are drawn and graded: the order of prompts, seeds of samples, calls of the reward function."""
