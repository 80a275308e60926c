"""The verdicts in Ray actors, plain and threaded."""

import json
import os
import subprocess
import sys

import places
import pytest

ACTORS = """
import json, logging, ray, places
ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
class Actor:
    def verdicts(self):
        return places.verdicts()
made = [ray.remote(Actor).options(max_concurrency=count).remote() for count in (1, 2)]
print(json.dumps(ray.get([actor.verdicts.remote() for actor in made])))
"""


@pytest.mark.skipif("REAL_TEST_EVERY" not in os.environ, reason="in a training: tests/e2e/test_train_on_two_ranks.py")
def test_the_verdicts_in_ray_actors_are_those_of_the_main_thread():
    pytest.importorskip("ray")
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    variables |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-c", ACTORS], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout.splitlines()[-1]):
        assert [*map(tuple, found)] == places.verdicts()
