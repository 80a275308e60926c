"""Many trainings one after another in one Ray with one vLLM engine, whose start takes most of a tiny run's time.

It saves 16 s of a core a run: `compare` with four runs of three steps took 89 s of a core, and 137 s without it.

OpenRLHF's own `train(args)` runs each of them. It begins by making a placement group and engines. Here all later
trainings get those of the first. Each training has a small process that passes on its flags and output; when that
process ends, so does the training.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.training.launch import forked_workers
from real_openrlhf.training.launch.process import scratch

MODULE = "real_openrlhf.training.launch.shared_ray"
START_SECONDS = 300
END_SECONDS = 6  # for Ray's own clean-up; what is left ends with the session's process


@contextlib.contextmanager
def opened(path: Path, environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen]:
    """A session that listens at `path`; Ray and the engine start with its first training."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(scratch(environment))
        python, environment = stack.enter_context(forked_workers.started(own.environment))
        output = stack.enter_context(log.open("a"))
        process = subprocess.Popen(
            [python, "-m", MODULE, "serve", str(path)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        own.keep = True
        try:
            deadline = time.monotonic() + START_SECONDS
            while not path.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise UserError(
                        f"the session did not start. Read {log}; `real-openrlhf doctor` checks the machine."
                    )
                time.sleep(0.1)
            yield process
            own.keep = process.poll() not in (None, 0, signal.SIGTERM, -signal.SIGTERM)  # it failed
        except KeyboardInterrupt:
            own.keep = False
            raise
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()
            path.unlink(missing_ok=True)


def command(session: Path, flags: list[str]) -> list[str]:
    """The process that trains with these flags in the session that listens there."""
    return [sys.executable, "-m", MODULE, "run", str(session), *flags]


def submit(path: str, flags: list[str]) -> int:
    """Train in the session, which writes to our standard output; return the training's exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    socket.send_fds(connection, [json.dumps(flags).encode() + b"\n"], [sys.stdout.fileno()])
    if not (answer := connection.recv(16)):
        print("ConnectionError: the session of this training was killed", file=sys.stderr)
    return int(answer or b"1")


def serve(path: str) -> int:
    """Train for each request until one fails. Then the session ends, because Ray may still hold its resources."""
    from openrlhf.cli import train_ppo_ray
    from ray.util import remove_placement_group

    _reuse(train_ppo_ray)
    groups = _noted_groups()
    draft = f"{path}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(draft)
    listener.listen()
    os.rename(draft, path)  # the path appears only when the socket listens
    threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    while True:
        connection, _ = listener.accept()
        words, (output,), _, _ = socket.recv_fds(connection, 1 << 20, 1)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        answered = threading.Event()
        threading.Thread(target=_end_with, args=(connection.fileno(), answered), daemon=True).start()
        code = _train(train_ppo_ray, json.loads(words))
        answered.set()
        if not code:  # else the session ends, and whatever Ray still holds with it
            gc.collect()  # Ray 2.60 keeps an actor until the cycle that its handle is part of is collected
            while groups:  # OpenRLHF's process ends after a training; the session's next one would wait for these GPUs
                remove_placement_group(groups.pop())
        connection.sendall(str(code).encode())
        connection.shutdown(socket.SHUT_RDWR)
        if code:
            return code


def _train(train_ppo_ray: Any, flags: list[str]) -> int:
    from real_openrlhf.hooks.flags import arguments

    def parse() -> Any:
        args = train_ppo_ray.parse_args(flags)
        if not args.rollout.seeded:
            sys.exit("a session's engine serves several runs: only --rollout.seeded makes them repeatable. Add it")
        return args

    try:
        arguments.to_the_end(train_ppo_ray.train, parse)
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()


def _end_with(other_end: int, answered: threading.Event | None = None) -> None:
    """When the process at the other end is gone before it was answered, end this session and its training."""
    with contextlib.suppress(OSError):
        os.read(other_end, 1)
    if answered is None or not answered.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _reuse(train_ppo_ray: Any) -> None:
    """Give every training the first one's placement group and engines."""
    first: dict[str, tuple[object, object]] = {}  # name -> (arguments of the first call, its result)

    def once(name: str, key_of: Callable[[tuple, dict], object]) -> None:
        make = getattr(train_ppo_ray, name)

        def again(*args: Any, **kwargs: Any) -> object:
            key = key_of(args, kwargs)
            if name not in first:
                first[name] = key, make(*args, **kwargs)
            if first[name][0] != key:
                sys.exit("a session keeps its layout and engines: flags of vLLM, GPUs and model must stay the same")
            return first[name][1]

        setattr(train_ppo_ray, name, again)

    once("placement_group", lambda args, kwargs: (args, kwargs))
    # args[3] is the seed. An engine that draws fewer answers at once than a later run asks for draws the same ones.
    once("create_vllm_engines", lambda args, kwargs: (args[:3] + args[4:], {**kwargs, "max_num_seqs": None}))

    class Group(train_ppo_ray.RayActorGroup):
        """An engine holds the last training's weights until the new policy hands over its own."""

        def async_init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> list:
            refs = super().async_init_model_from_pretrained(*args, **kwargs)
            if self.ray_actor_type is not train_ppo_ray.PolicyModelActor:
                return refs
            import ray

            ray.get(refs)
            return self.async_run_method("broadcast_to_vllm")

    train_ppo_ray.RayActorGroup = Group
    _control_here()


def _noted_groups() -> list:
    """A list to which each later placement group is added: those of models with several ranks or GPUs of their own."""
    from openrlhf.trainer.ray import launcher

    groups: list = []
    make = launcher.placement_group

    def noted(*args: Any, **kwargs: Any) -> object:
        groups.append(make(*args, **kwargs))
        return groups[-1]

    launcher.placement_group = noted
    return groups


def _control_here() -> None:
    """Run the controller in this process. As an actor it would import the stack again."""
    import ray
    from openrlhf.trainer import ppo_trainer

    controller = ppo_trainer.PPOTrainer.__ray_metadata__.modified_class

    class Here:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.trainer = controller(*args, **kwargs)

        def __getattr__(self, method: str) -> SimpleNamespace:
            call = getattr(self.trainer, method)
            return SimpleNamespace(remote=lambda *args, **kwargs: ray.put(call(*args, **kwargs)))

    ppo_trainer.PPOTrainer = SimpleNamespace(remote=Here)


if __name__ == "__main__":
    action, socket_path, *words = sys.argv[1:]
    sys.exit(serve(socket_path) if action == "serve" else submit(socket_path, words))
