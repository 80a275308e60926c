"""The classes that OpenRLHF constructs for a run: its own or ours, chosen here and nowhere in its files."""


def deals_itself(args) -> bool:
    """Whether the experience maker gives each rank its rollouts: OpenRLHF must not sort them by length again."""
    return args.train.deal == "groups"


def experience_maker_class(args) -> type:
    if deals_itself(args):
        from real_openrlhf.hooks.controller.experience_maker import ExperienceMaker

        return ExperienceMaker
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    return RemoteExperienceMaker


def actor_trainer_class(args) -> type:
    if deals_itself(args):
        from real_openrlhf.hooks.actor.policy_trainer import PolicyTrainer

        return PolicyTrainer
    from real_openrlhf.hooks.actor.policy_trainer import EngineStartTrainer

    return EngineStartTrainer
