"""OpenRLHF's strategy with atomic checkpoints, and with a prompt order that a resumed run continues."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from openrlhf.models import Actor
from openrlhf.utils.deepspeed import DeepspeedStrategy

from real_openrlhf.base import atomic_dirs
from real_openrlhf.base.files import write_json, write_text
from real_openrlhf.base.run_files import enter
from real_openrlhf.hooks.cpu import bf16_products
from real_openrlhf.hooks.cpu.zero3 import waits_for_each_gather
from real_openrlhf.hooks.fixes.deepspeed_optimizers import compile_less, flags_kept, forget_host_buffers
from real_openrlhf.hooks.fixes.nonfinite_guard import refuse_nonfinite_gradients
from real_openrlhf.hooks.fixes.process_starts import keep_stores_here
from real_openrlhf.hooks.model import flash_attention_torch
from real_openrlhf.hooks.prompt_stream import PromptStream

# OpenRLHF reads these keys of a loaded checkpoint's state before it checks whether there was a checkpoint.
NOTHING_YET = {"episode": 0, "global_step": 0, "total_consumed_prompts": 0, "data_loader_state_dict": {}}
BEST = "best"
DRAFT = ".writing"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none can be read; finished checkpoints stay in the folder."""


class RunStrategy(DeepspeedStrategy):
    """Without --train.run_dir checkpoints are upstream's. Without --rollout.seeded_order upstream orders prompts."""

    def setup_distributed(self, *args: Any, **named: Any) -> None:
        derived = getattr(self.args, "derived", None)  # of a training run; other commands of OpenRLHF have none
        compile_less(derived is not None and derived.whole_groups)
        flash_attention_torch.register()
        keep_stores_here()
        bf16_products.widen()
        super().setup_distributed(*args, **named)

    def get_ds_train_config(self, *args: Any, **named: Any) -> dict:
        return waits_for_each_gather(super().get_ds_train_config(*args, **named))

    def get_ds_eval_config(self, *args: Any, **named: Any) -> dict:
        """Without a batch size, which a reference model does not use and which may not be a multiple of the ranks."""
        config = waits_for_each_gather(super().get_ds_eval_config(*args, **named))
        config.pop("train_batch_size")
        return config

    def _ds_init_train_model(self, model: Any, cfg: dict) -> tuple:
        made, *rest = super()._ds_init_train_model(model, cfg)
        refuse_nonfinite_gradients(made.model if isinstance(made, Actor) else made)
        return made, *rest

    def reseed(self, updates: int) -> None:
        """Seed torch by the run's seed, the updates so far and the rank: a resume needs no generator's state."""
        mixed = (self.args.train.seed * 1_000_003 + updates) * 1_000_003 + dist.get_rank()
        torch.manual_seed(mixed % 2**64)  # torch takes 64 bits

    def setup_dataloader(
        self, data: Any, batch_size: int, pin_memory: bool = False, shuffle: bool = True, *rest: Any, **named: Any
    ) -> Any:
        loader = super().setup_dataloader(data, batch_size, pin_memory, shuffle, *rest, **named)
        if not shuffle or not hasattr(self.args, "rollout"):  # for an evaluation or another command of OpenRLHF
            return loader
        if self.args.rollout.seeded_order:
            loader.sampler.generator = torch.Generator().manual_seed(self.args.train.seed)
        return PromptStream(loader)

    def save_ckpt(
        self,
        model: Any,
        save_dir: str,
        tag: str,
        max_num: int = 3,
        max_mem: float = 1000,
        client_state: dict | None = None,
        **metric: Any,
    ) -> None:
        if not self.in_run_folder(save_dir):
            super().save_ckpt(model, save_dir, tag, max_num, max_mem, client_state, **metric)
            return
        self.on_first(lambda: enter(self.args.train.run_dir, "checkpoint"))
        target, draft, state = Path(save_dir), Path(save_dir) / DRAFT, client_state or {}
        try:
            self.on_first(lambda: self.empty(draft))
            model.save_checkpoint(str(draft), tag=tag, client_state=state, save_latest=False)
            self.on_first(lambda: write_json(draft / tag / self.CKPT_METRIC_FILENAME, metric))
            files = atomic_dirs.read(draft / tag, atomic_dirs.names(draft / tag)[self.own_files])
            every = {name: entry for part in self.gathered(files) for name, entry in part.items()}
            step, ranks = int(state.get("global_step", 0)), dist.get_world_size()
            about = {"global_step": step, "ranks": ranks, "run": Path(self.args.train.run_dir).name}
            self.on_first(lambda: atomic_dirs.publish(draft / tag, target / tag, every, about))
            self.on_first(lambda: self.tidy(target, tag, max_num, max_mem * 1024**3))
        except (OSError, RuntimeError) as error:
            free = shutil.disk_usage(next(parent for parent in (target, *target.parents) if parent.is_dir())).free
            shutil.rmtree(draft, ignore_errors=True)
            raise CheckpointError(
                f"{target / tag} could not be written ({error}); {free / 1e9:.1f} GB were free there. Make room and "
                "resume: the one before it is whole"
            ) from error

    def load_ckpt(self, model: Any, load_dir: str, tag: str | None = None, **named: Any) -> tuple[str | None, dict]:
        """Load the newest complete checkpoint; damaged ones are reported and stay in the folder."""
        checkpoints = Path(load_dir)
        # rank 0's on all ranks, which might see the folder at different moments
        folders = self.gathered(atomic_dirs.newest_first(checkpoints) if self.is_rank_0() else None)[0]
        listed = any((folder / atomic_dirs.MANIFEST).exists() for folder in folders)
        if not self.in_run_folder(load_dir) or self.use_ds_universal_ckpt or (folders and not listed):
            path, states = super().load_ckpt(model, load_dir, tag, **named)
            return path, NOTHING_YET | states
        damaged: list[str] = []
        for folder in folders:
            wrong = next(filter(None, self.gathered(atomic_dirs.damage(folder, self.own_files))), None)
            if wrong is None:
                with flags_kept(model):
                    path, states = super().load_ckpt(model, load_dir, folder.name, **named)
                forget_host_buffers(model.basic_optimizer)
                return path, NOTHING_YET | states | {"checkpoint": folder.name, "damaged": damaged}
            damaged.append(f"{folder.name}: {wrong}")
            self.print(f"checkpoint {folder} is not whole and not used: {wrong}")
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {checkpoints} is whole ({'; '.join(damaged)}). Put one back, or move that folder "
                "away to begin again"
            )
        return None, dict(NOTHING_YET)

    def save_model(self, model: Any, tokenizer: Any, output_dir: str, **named: Any) -> None:
        """Save weights in Hugging Face's format: the final ones, and those of --ckpt.save_hf."""
        target = Path(output_dir)
        free = not target.exists() or atomic_dirs.may_be_replaced(target)
        if not (self.in_run_folder(output_dir) and self.gathered(free)[0]):
            super().save_model(model, tokenizer, output_dir, **named)
            return
        draft = target.with_name(f"{DRAFT}-{target.name}")
        self.on_first(lambda: self.empty(draft))
        super().save_model(model, tokenizer, str(draft), **named)
        self.on_first(lambda: atomic_dirs.move(draft, target))

    def tidy(self, checkpoints: Path, tag: str, max_num: int, max_bytes: float) -> None:
        """After a new checkpoint: move DeepSpeed's scripts, write `latest`, delete old checkpoints over the limits."""
        for script in (checkpoints / DRAFT).iterdir():
            script.replace(checkpoints / script.name)
        (checkpoints / DRAFT).rmdir()
        write_text(checkpoints / "latest", [tag])  # where OpenRLHF's and DeepSpeed's own tools look for the newest one
        listed = [folder for folder in atomic_dirs.newest_first(checkpoints) if atomic_dirs.manifest(folder)]
        others = [folder for folder in listed if folder.name != tag]  # other folders are not ours
        best = [folder for folder in others if folder.name.startswith(BEST)]
        regular = [folder for folder in others if folder not in best]
        if tag.startswith(BEST):
            for folder in best:
                self.remove(folder, "a better checkpoint was saved")
            best = []
        room = max(max_num, 1) - (not tag.startswith(BEST))
        while regular and (
            len(regular) > room or atomic_dirs.size_of([checkpoints / tag, *best, *regular]) > max_bytes
        ):
            # as upstream: without a metric first, then the worst, then the oldest
            metrics = {folder: self._read_ckpt_metric(folder) for folder in regular}
            least = min(reversed(regular), key=lambda folder: (metrics[folder] is not None, metrics[folder] or 0.0))
            regular.remove(least)
            self.remove(least, "more than --ckpt.max_num or --ckpt.max_mem")

    def remove(self, folder: Path, why: str) -> None:
        shutil.rmtree(folder)
        self.print(f"Deleted checkpoint {folder} ({why})")

    def in_run_folder(self, folder: str) -> bool:
        """Whether it is written whole; elsewhere, where a command of OpenRLHF may write, as the release does."""
        run_dir: str = getattr(self.args.train, "run_dir", None) or ""
        return bool(run_dir) and Path(folder).resolve().is_relative_to(Path(run_dir).resolve())

    def empty(self, folder: Path) -> None:
        """Make an empty folder; files of an interrupted write go first."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    @property
    def own_files(self) -> slice:
        """The files that this rank reads: all ranks together read each one once."""
        return slice(dist.get_rank(), None, dist.get_world_size())

    def on_first(self, action: Callable[[], None]) -> None:
        """Run the action on rank 0; all ranks wait for it."""
        if self.is_rank_0():
            action()
        dist.barrier()

    def gathered(self, value: Any) -> list:
        values: list = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values
