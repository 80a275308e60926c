"""What OpenRLHF constructs and calls in a run: subclasses of its own, chosen here and nowhere in its files.

What makes OpenRLHF portable (cpu, engine, fixes, model, prompt_stream, run_strategy) knows REAL by this module alone.
"""

from typing import Any

__all__ = ["actor_trainer_class", "evaluate_by_label", "experience_maker_class", "trains_whole_groups"]


def trains_whole_groups(args) -> bool:
    return args.derived.whole_groups


def experience_maker_class(args) -> type:
    from real_openrlhf.hooks.controller.experience_maker import ExperienceMaker, UpstreamExperienceMaker

    return ExperienceMaker if args.derived.whole_groups else UpstreamExperienceMaker


def actor_trainer_class(args) -> type:
    if args.derived.whole_groups:
        from real_openrlhf.hooks.policy_trainer import PolicyTrainer

        return PolicyTrainer
    from real_openrlhf.hooks.upstream_trainer import EngineStartTrainer

    return EngineStartTrainer


def evaluate_by_label(samples_generator: Any) -> None:
    from real_openrlhf.hooks.controller import labels

    labels.evaluate_by_label(samples_generator)
