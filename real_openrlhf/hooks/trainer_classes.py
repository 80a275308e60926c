"""The classes that OpenRLHF constructs for a run: its own or ours, chosen here and nowhere in its files."""

from real_openrlhf.algorithm.token_weights import TOKEN_WEIGHTS


def deals_itself(args) -> bool:
    """Whether the experience maker gives each rank its rollouts: OpenRLHF must not sort them by length again."""
    return args.train.deal == "groups"


def experience_maker_class(args) -> type:
    if deals_itself(args):
        from real_openrlhf.hooks.controller.experience_maker import DealtExperienceMaker, RealExperienceMaker

        return RealExperienceMaker if args.actor.policy_loss_type == "real" else DealtExperienceMaker
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    return RemoteExperienceMaker


def actor_trainer_class(args) -> type:
    if args.actor.policy_loss_type == "real":
        from real_openrlhf.hooks.actor.real_trainer import RealActorTrainer

        return RealActorTrainer
    if deals_itself(args):
        from real_openrlhf.hooks.actor.dealt_trainer import DealtActorTrainer

        return DealtActorTrainer
    if args.train.run_dir or args.actor.policy_loss_type in TOKEN_WEIGHTS:
        from real_openrlhf.hooks.actor.logged_trainer import LoggedActorTrainer

        return LoggedActorTrainer
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

    return ActorPPOTrainer
