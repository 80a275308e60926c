"""The process that runs the scorers of reasoning-gym on a model's text."""

from real_openrlhf.rewards.gym import tasks
from real_openrlhf.rewards.verifier import process

if __name__ == "__main__":
    process.serve({"gym": tasks.right}, prepare=tasks.library)
