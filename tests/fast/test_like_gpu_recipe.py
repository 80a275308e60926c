"""The recipe that tries a GPU run's paths on CPU: what it shares with GPU recipes."""

import pytest

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES

LIKE_GPU = RECIPES["cpu-like-gpu"]
ON_GPUS = [name for name in RECIPES if name.startswith("qwen")]

# What a GPU run uses and no CPU run can, with its reason.
NOT_HERE = {
    "--vllm.enable_sleep": "vLLM's CPU worker has no memory to give back",
    "--vllm.sync_backend": "NCCL needs GPUs; weights go over gloo",
    "--ds.lora.rank": "tests/e2e/test_lora.py trains with adapters",
    "--ds.lora.alpha": "as its rank",
    "--ds.zero_stage": "tests/slow runs stage 2; this recipe has the 7B run's 3",
}
# How large things are, where a run goes, and what the layout decides.
SIZES = {
    *("--actor.model_name_or_path", "--actor.num_gpus_per_node", "--actor.num_nodes", "--actor.adam.lr"),
    *("--rollout.batch_size", "--train.batch_size", "--train.max_steps"),
    *("--rollout.max_new_tokens", "--data.max_len", "--vllm.gpu_memory_utilization"),
    *("--train.max_tokens_per_gpu", "--rollout.max_tokens_per_gpu"),
    *("--ref.num_nodes", "--ref.num_gpus_per_node", "--vllm.num_engines"),
}


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("recipe", ON_GPUS)
def test_every_flag_of_a_gpu_recipe_is_tried_or_listed(recipe, algo):
    on_gpus, here = (compose(RECIPES[name], ALGORITHMS[algo], {}).flags for name in (recipe, LIKE_GPU.name))
    other = {flag for flag in on_gpus if flag not in here or here[flag].words != on_gpus[flag].words}
    assert other <= NOT_HERE.keys() | SIZES


def test_the_list_has_nothing_that_could_be_tried():
    here = compose(LIKE_GPU, ALGORITHMS["real"], {}).flags
    for flag in NOT_HERE:
        assert any(
            flag in recipe.settings and (flag not in here or recipe.settings[flag].words != here[flag].words)
            for recipe in (RECIPES[name] for name in ON_GPUS)
        )
