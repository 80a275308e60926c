"""The process of one vLLM engine. Nothing heavy is imported at the top: it chooses its devices first."""

import contextlib
import os
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from real_openrlhf.base.errors import first_line
from real_openrlhf.base.signals import ENDING
from real_openrlhf.evaluation.questions import Question
from real_openrlhf.evaluation.store import Sample, sample_seed
from real_openrlhf.hooks.engine import plugin
from real_openrlhf.machine import nvidia
from real_openrlhf.training.launch_target import THREADS, threads_each

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from vllm import LLM


Pair = tuple[Question, int]  # a problem, and the number of one of its samples


@dataclass(frozen=True)
class Engine:
    model: str
    temperature: float
    top_p: float
    max_new_tokens: int
    max_model_len: int
    seed: int
    dtype: str
    tensor_parallel: int
    gpu_memory_utilization: float | None = None  # None: vLLM's own


class _Stopped(BaseException):
    """The parent process sent SIGTERM to this engine process."""


def run_engine(results: "Queue", pairs: list[Pair], engine: Engine, devices: list[str], engines: int) -> None:
    """The main function of an engine process. It catches every ending, so that vLLM's own processes end too."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would break the clean-up
        results.cancel_join_thread()  # the parent no longer reads the pipe
        raise _Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process: the parent decides
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    defaults = {} if devices else {**plugin.ON_CPU, THREADS: str(threads_each(engines))}
    # vLLM's C++ warns of the memory's place
    defaults |= {"VLLM_LOGGING_LEVEL": "ERROR", "TORCH_CPP_LOG_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    os.environ |= defaults | {**os.environ} | plugin.ENVIRONMENT
    with contextlib.suppress(_Stopped):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # held since the start
        try:
            from vllm import LLM

            llm = LLM(**engine_arguments(engine, on_cpu=not devices))
            try:
                for sample in _samples(llm, pairs, engine):
                    results.put(sample)
            finally:
                llm.llm_engine.engine_core.shutdown()
        except Exception as error:
            if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
                return  # it was stopped, and an import of numpy or others made another error of that
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing may interrupt the clean-up
            traceback.print_exc()
            results.put(first_line(error))


def engine_arguments(engine: Engine, on_cpu: bool) -> dict[str, Any]:
    """What vLLM's LLM is made of, for this process's GPUs."""
    memory = engine.gpu_memory_utilization
    return {
        "model": engine.model,
        "tensor_parallel_size": engine.tensor_parallel,
        "max_model_len": engine.max_model_len,
        "dtype": engine.dtype,
        "enforce_eager": on_cpu,
        "enable_prefix_caching": not on_cpu,  # on CPU cached prefixes would change samples
        "seed": 0,
        "use_tqdm_on_load": False,
        **({"gpu_memory_utilization": memory} if memory else {}),
        **nvidia.engine_arguments(),
    }


def _samples(llm: "LLM", pairs: list[Pair], engine: Engine) -> Iterator[Sample]:
    """Finished samples until all are drawn. hooks/engine/plugin.py ends the process with its parent."""
    from vllm import SamplingParams, TokensPrompt

    prompts = [TokensPrompt(prompt_token_ids=list(question.tokens)) for question, _ in pairs]
    # some models close their thinking with a special token
    how: dict[str, Any] = {"temperature": engine.temperature, "top_p": engine.top_p, "skip_special_tokens": False}
    seeds = [sample_seed(engine.seed, question.identity, number) for question, number in pairs]
    sampling = [SamplingParams(max_tokens=engine.max_new_tokens, seed=seed, **how) for seed in seeds]
    names = llm.enqueue(prompts, sampling, use_tqdm=False)  # "17-0f3a..": vLLM's number and a random ending
    waiting = {name.partition("-")[0]: pair for name, pair in zip(names, pairs, strict=True)}
    while waiting:
        for output in llm.llm_engine.step():
            if output.finished:
                (question, number), completion = waiting.pop(output.request_id), output.outputs[0]
                seed = sample_seed(engine.seed, question.identity, number)
                tokens, truncated = len(completion.token_ids), completion.finish_reason == "length"
                yield Sample(question.identity, number, seed, completion.text, tokens, truncated)
