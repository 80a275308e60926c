"""The same inputs wherever a trainer may grade: each place returns the verdicts that it gives."""

import asyncio
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import hostile_inputs

from same_answer import verify

INPUTS = (
    *((hostile_inputs.COMPUTATIONS["tower of nines"], gold) for gold in ("7", r"\sqrt{2}")),
    (r"\frac{2}{4}", "0.5"), ("3", "4"), (r"\sqrt{50}", r"5\sqrt{2}"), (r"\sqrt{51}", r"5\sqrt{2}"),
    (r"(\sqrt{2}+1)^{100}+1", r"(3+2\sqrt{2})^{50}"), (r"\sin(2x)", r"2\sin x\cos x"), ("5", r"\int_0^1 x\,dx"),
    ("7" * 2_000, "7"), ("(" * 30 + "7" + ")" * 30, "7"), (r"\text{no}", r"\text{yes}"), ("2x=3", "3"), ("7", ""),
    (r"\begin{pmatrix} \sqrt{8} & 1 \end{pmatrix}", r"\begin{pmatrix} 2\sqrt{2} & 1 \end{pmatrix}"),
)  # fmt: skip


def verdicts() -> list[tuple[str, str]]:
    found = [verify(f"so \\boxed{{{answer}}}", gold) for answer, gold in INPUTS]
    return [(str(one.score), one.reason) for one in found]


def in_threads() -> list:
    with ThreadPoolExecutor(4) as executor:
        first, *others = [one.result() for one in [executor.submit(verdicts) for _ in range(4)]]
    assert all(one == first for one in others)
    return first


async def _beside_a_loop() -> list:
    return await asyncio.to_thread(verdicts)


async def _in_a_loop() -> list:
    return verdicts()


def _put(queue) -> None:
    queue.put(verdicts())


def _in_child(method: str, daemon: bool) -> list:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_put, args=(queue,), daemon=daemon)
    child.start()
    found = queue.get(timeout=300)
    child.join()
    return found


PLACES = {
    "threads": in_threads,
    "asyncio": lambda: asyncio.run(_beside_a_loop()),
    "inside asyncio": lambda: asyncio.run(_in_a_loop()),
    **{
        f"{method}{' daemon' * daemon}": lambda method=method, daemon=daemon: _in_child(method, daemon)
        for method in ("fork", "spawn", "forkserver")
        for daemon in (False, True)
    },
}
