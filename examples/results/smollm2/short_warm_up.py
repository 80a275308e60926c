"""SmolLM2 warmed up on 64 worked examples, not 96, so that it has more to learn; the last line is its folder."""

from dataclasses import replace

from real_openrlhf.training.tasks import tasks

if __name__ == "__main__":
    task = tasks.PRETRAINED["needle_haystack"]
    print(tasks.prepare(replace(task, warm_up=replace(task.warm_up, steps=4))))
