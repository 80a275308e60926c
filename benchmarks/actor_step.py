"""The actor's side of a step: OpenRLHF's controller and policy actor on a real ZeRO engine, without Ray and vLLM.

Every rank plays the controller alike. step_time.py compares methods with it on CPU, gpu_step.py a recipe's on a GPU.
"""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path


def rollouts(lengths: Sequence[int], prompt_tokens: int, group: int, vocabulary: int, uniform: float = 0) -> list:
    """Random prompts and answers of these lengths, every second one right, as the sampler hands them over.

    A share of the groups, the first ones, is `uniform`: all right.
    """
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience

    draw, samples = torch.Generator().manual_seed(0), []
    for position, length in enumerate(lengths):
        if position % group == 0:
            prompt = torch.randint(3, vocabulary, (prompt_tokens,), generator=draw)
        tokens = torch.cat([prompt, torch.randint(3, vocabulary, (length,), generator=draw)])
        right = float(position % 2 or position < uniform * len(lengths))
        samples.append(
            Experience(
                sequences=tokens[None],
                attention_mask=torch.ones_like(tokens)[None],
                action_mask=(torch.arange(1, len(tokens)) >= prompt_tokens).long()[None],
                prompts=[str(position // group)],
                labels=[""],
                images=[None],
                mm_train_inputs=[None],
                rewards=torch.tensor([right]),
                scores=torch.tensor([right]),
                response_length=torch.tensor([length]),
                total_length=torch.tensor([float(len(tokens))]),
                truncated=torch.tensor([False]),
                info={"reward": torch.tensor([right])},
            )
        )
    return samples


class Step:
    """One method: its engines on this rank, and the controller."""

    def __init__(self, args, ranks: int) -> None:
        from openrlhf.trainer.ray.launcher import ReferenceModelActor
        from openrlhf.trainer.ray.ppo_actor import PolicyModelActor
        from openrlhf.utils.utils import get_strategy

        self.args, self.ranks = args, ranks
        model = args.actor.model_name_or_path
        self.policy, reference = (
            actor.__ray_metadata__.modified_class for actor in (PolicyModelActor, ReferenceModelActor)
        )
        self.policy = self.policy.__new__(self.policy)
        self.policy.init_model_from_pretrained(get_strategy(args), model, max_steps=10_000)
        self.reference = None
        if args.derived.reference:
            self.reference = reference.__new__(reference)
            self.reference.init_model_from_pretrained(get_strategy(args), model)
        self.maker = self._maker()

    def _maker(self):
        """The method's experience maker, whose models are this process's: each rank runs its own share of batches."""
        import torch.distributed as dist
        from openrlhf.trainer.ppo_utils import experience_maker

        from real_openrlhf.hooks.trainer_classes import experience_maker_class

        rank, ranks = dist.get_rank(), self.ranks

        class Maker(experience_maker_class(self.args)):
            def send(self, plan):
                self.actor_model_group.call_trainer("set_plan", plan)

            def _dispatch_forward(self, group, sync_condition, **columns):
                count = len(columns["sequences"]) // ranks
                share = slice(rank * count, (rank + 1) * count)
                own = [
                    group.forward(*row)
                    for row in zip(
                        *(columns[name][share] for name in ("sequences", "action_mask", "attention_mask")), strict=True
                    )
                ]
                every = [None] * ranks
                dist.all_gather_object(every, own)
                return every

            def _flatten_results(self, refs, duplicate_factor):
                return [row for own in refs for row in own]

        experience_maker.ray = NoRay
        maker = Maker(
            self.policy, None, None, self.reference, _Kl(self.args), self.policy.strategy, self.policy.tokenizer
        )
        if hasattr(maker, "live_tokens"):
            maker.live_tokens = self.policy.call_trainer("live_tokens")
        return maker

    def train(self, samples: list) -> None:
        import torch.distributed as dist

        experiences = self.maker.make_experience_batch(samples)
        count = len(experiences) // self.ranks
        rank = dist.get_rank()
        for experience in experiences[rank * count : (rank + 1) * count]:
            self.policy.append(experience)
        if self.args.ds.enable_sleep:
            self.policy.reload_states()
        self.policy.fit(self.args.algo.kl.init_coef)
        if self.args.ds.enable_sleep:
            self.policy.offload_states()

    def measured(self, samples: list) -> tuple[float, float, float]:
        """(wall seconds, processor seconds, peak megabytes) of experience and training on this rank."""
        import torch.distributed as dist

        dist.barrier()
        base = reset_peak()
        wall, own = time.perf_counter(), time.process_time()
        self.train(samples)
        dist.barrier()
        return time.perf_counter() - wall, time.process_time() - own, peak() - base


class _Kl:
    def __init__(self, args) -> None:
        self.value = args.algo.kl.init_coef


class NoRay:
    """Upstream's maker wraps its placeholders in Ray references."""

    @staticmethod
    def put(value):
        return value

    @staticmethod
    def get(value):
        return value


def reset_peak() -> float:
    """Give freed memory back, start counting the peak anew; megabytes in use now."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
