"""The controller's work around OpenRLHF's steps: the log, evaluations at both ends, and the resume."""

from types import SimpleNamespace
from typing import Any

import ray
from torch import Tensor

from real_openrlhf.base.run_files import enter
from real_openrlhf.hooks.controller.rollout_logger import RolloutLogger
from real_openrlhf.hooks.controller.run_log import RunLog
from real_openrlhf.hooks.run_strategy import BEST


class RunController:
    """One per trainer. An asynchronous trainer passes as `generator` the actor that holds its samples generator."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.args: SimpleNamespace = trainer.args
        self.evaluated: int | None = None  # the last step that was evaluated
        self.log: RunLog | None = None
        self.keeper: RolloutLogger | None = None
        if self.args.train.run_dir:  # replaces TensorBoard's logger and forwards calls to it
            self.log = trainer.tensorboard_logger = RunLog(self.args, trainer.tensorboard_logger)
            if self.args.logger.rollout_groups:
                self.keeper = RolloutLogger(self.args, trainer.tokenizer)

    def restore(self, states: dict) -> None:
        """Set the counters that steps depend on, and let the log drop lines of steps that will be repeated."""
        self.trainer.experience_maker.rollout_step = states["global_step"]
        if self.args.algo.kl.target:  # else it is --algo.kl.init_coef, which a resume may change
            self.trainer.kl_ctl.value = states.get("kl_coef", self.trainer.kl_ctl.value)
        if self.log:
            again = evaluation_is_missing(self.args, states) or nothing_is_left(self.args, states)
            self.log.resume(states, evaluates=again)

    def evaluate_first(self, step: int, states: dict, generator: Any = None) -> None:
        """Evaluate the initial policy if --eval.at_start, or a resumed step that its checkpoint left unevaluated."""
        if step == 0 and self.args.eval.at_start:
            self.evaluate(step, generator)
        elif evaluation_is_missing(self.args, states):
            self.trainer.save_best_checkpoint(self.evaluate(step, generator), step, states)

    def evaluate_due(self, step: int, states: dict, generator: Any) -> bool:
        """Evaluate this step of an asynchronous run if --eval.steps asks for it."""
        due = is_due(self.args, step)
        if due:
            self.trainer.save_best_checkpoint(self.evaluate(step, generator), step, states)
        return due

    def evaluate_last(self, step: int, generator: Any = None) -> None:
        if self.args.eval.at_end and self.evaluated != step:
            self.evaluate(step, generator)

    def evaluate(self, step: int, generator: Any) -> dict:
        self.evaluated = step
        enter(self.args.train.run_dir, "evaluation")
        if generator is None:
            own = {name: getattr(self.args.eval, name) for name in ("temperature", "n_samples_per_prompt")}
            return self.trainer.evaluate(step, **{**self.trainer.generate_kwargs, **own})
        ray.get(self.trainer.vllm_lock.acquire.remote())
        try:
            metrics = ray.get(generator._run_eval.remote())
        finally:
            ray.get(self.trainer.vllm_lock.release.remote())
        for logger in filter(None, (self.trainer.wandb_logger, self.trainer.tensorboard_logger)):
            logger.log_eval(step, metrics)
        return metrics

    def group_stats(self, samples: list) -> dict[str, float]:
        """Statistics of all rollouts; upstream's own cover only rollouts that ranks hold."""
        own = self.trainer._compute_rollout_stats(samples) if self.args.derived.skips else {}
        if self.log:
            own |= self.log.group_stats(samples)
        if self.log and self.keeper:
            tables: list[Tensor] = []
            if self.args.derived.whole_groups:  # from the first rank: all are equal
                tables = ray.get(self.trainer.actor_model_group.async_run_method("call_trainer", "take_tables"))[0]
            self.log.groups = self.keeper.of_step(samples, tables)
        return own


def is_due(args: SimpleNamespace, step: int) -> bool:
    return bool(args.eval.dataset) and step > 0 and args.eval.steps > 0 and step % args.eval.steps == 0


def evaluation_is_missing(args: SimpleNamespace, states: dict) -> bool:
    """Whether a resumed step lacks its evaluation: a checkpoint is written before it, the best one after it."""
    resumed = "checkpoint" in states and not states["checkpoint"].startswith(BEST)
    return resumed and is_due(args, states["global_step"])


def nothing_is_left(args: SimpleNamespace, states: dict) -> bool:
    """Whether the resumed run had no steps left, so that only its last evaluation remains."""
    stream = states["data_loader_state_dict"]
    last = args.train.max_steps and states["global_step"] >= args.train.max_steps
    drained = stream.get("drained") and not stream.get("ahead") and states["episode"] + 1 >= args.train.num_episodes
    return bool(args.eval.at_end and (last or drained))
