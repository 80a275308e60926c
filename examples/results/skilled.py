"""The flags of runs on a tiny model that answers right with this probability:

python examples/results/skilled.py 0.05
"""

import sys

from real_openrlhf.training.tasks.reverse_task import ReverseTask
from real_openrlhf.training.tasks.tiny_model import prepare

folder = prepare(ReverseTask(skill=float(sys.argv[1])))
print(f"--model {folder}/model --data {folder}/train.jsonl --eval.dataset {folder}/eval.jsonl")
