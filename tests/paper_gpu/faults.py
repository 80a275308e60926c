"""Planted faults, by PAPER_FAULT=MODULE:FUNCTION of this file: each gets the module after its import."""


def other_order(strategy) -> None:
    """On rank 1 a collective of another kind comes first."""
    import os

    import torch
    import torch.distributed as dist

    train = strategy.PolicyTrainer.train

    def first(self, *args, **named):
        if os.environ["RANK"] == "1":
            dist.all_reduce(torch.ones(3, device="cuda"))
        return train(self, *args, **named)

    strategy.PolicyTrainer.train = first


def on_the_host(formulas) -> None:
    """A loss's labels stay on the host."""
    raise NotImplementedError


def before_awake(actor) -> None:
    """Weights are handed over to an engine that sleeps."""
    actor.batch_vllm_engine_call = lambda *_, **__: None
