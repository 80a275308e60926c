"""Sampling and grading of responses: seeds, one prefill per prompt on a CPU, agents, calls of the reward function."""
