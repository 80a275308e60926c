"""Warm SmolLM2 up on 64 worked examples, not 96, so that it has more to learn; print the folder of the task."""

from dataclasses import replace

from real_openrlhf.training.tasks import tasks

task = tasks.PRETRAINED["needle_haystack"]
assert task.warm_up is not None
print(tasks.prepare(replace(task, warm_up=replace(task.warm_up, steps=4))))
