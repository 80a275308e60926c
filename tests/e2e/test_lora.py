"""A LoRA policy on the real stack: vLLM samples from the base model with the adapters added in, step after step."""

from small_runs import LEARNING

FLAGS = (*LEARNING, "--ds.lora.rank", "16", "--ds.lora.alpha", "32", "--actor.adam.lr", "5e-4")


def test_a_lora_policy_learns_in_what_vllm_samples(train):
    run = train("lora", "--max-steps", "12", "--no-eval.at_start", "--no-eval.at_end", *FLAGS)
    rates = run.values("rollout/pass_rate")
    assert rates[0] < 0.2  # adapters begin at zero: the base model
    assert sum(rates[-3:]) / 3 > 0.35  # vLLM's own rollouts are right more often: it has the trained weights
    assert max(run.values("mismatch/mean")) < 1 / 16  # what vLLM says of its samples is what the policy says
    assert (run.folder / "model" / "adapter_config.json").exists()
