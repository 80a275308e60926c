"""Our own files on a GPU, each beside float64: attention, the head, Adam.

    python benchmarks/our_kernels.py [attention adam head]

Each line says ok or DIFFERS; `info` lines have no limit. Without a GPU it runs small, with stand-ins.
"""

import sys
import time

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# query heads, shared heads, their width, window
ATTENTION = {
    "1.5B": (12, 2, 128, None),
    "7B": (28, 4, 128, None),
    "135M": (9, 3, 64, None),
    "window": (12, 2, 128, 512),
}
# tokens, width, words
HEADS = {"1.5B": (8192, 1536, 151_936), "7B": (8192, 3584, 152_064)} if CUDA else {"small": (64, 32, 5000)}
failed = 0


def say(what: str, value: float, limit: float) -> None:
    global failed
    fine = value <= limit  # nan is not
    failed += not fine
    print(f"{'ok     ' if fine else 'DIFFERS'} {what}: {value:.3g}, at most {limit:.3g}", flush=True)


def off(values: torch.Tensor, exact: torch.Tensor) -> float:
    return float((values.detach().double() - exact.detach()).norm() / exact.detach().norm())


def seconds(run, rounds: int = 3) -> float:
    times = []
    for _ in range(rounds + 1):
        if CUDA:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        if CUDA:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return sorted(times[1:])[rounds // 2]


def attention() -> None:
    from real_openrlhf.hooks.model.flash_attention_torch import Sequences, by_kernel, one_by_one

    kernel = by_kernel if CUDA else one_by_one
    lengths = torch.tensor([1, 17, 1024, 3100, 4096] if CUDA else [1, 5, 40])
    packed = Sequences.from_lengths(lengths, device=DEVICE)
    for name, (heads, shared, width, window) in ATTENTION.items():
        torch.manual_seed(0)
        count = int(lengths.sum())
        q, k, v = (torch.randn(count, n, width, device=DEVICE, dtype=torch.bfloat16) for n in (heads, shared, shared))
        grad = torch.randn(count, heads, width, device=DEVICE, dtype=torch.bfloat16)

        given = q, k, v, grad, packed, window
        exact = with_gradients(one_by_one, torch.float64, *given)
        plain = with_gradients(one_by_one, torch.bfloat16, *given)
        ours, again = (with_gradients(kernel, torch.bfloat16, *given) for _ in range(2))
        for part, own, other, right in zip(("out", "dq", "dk", "dv"), ours, plain, exact, strict=True):
            say(f"attention {name}, {part} from float64", off(own, right), max(1.25 * off(other, right), 2e-3))
        same = [bool(one.equal(two)) for one, two in zip(ours, again, strict=True)]
        print(f"info    attention {name}: twice the same bits in out, dq, dk, dv: {same}")
        del exact, plain, ours, again
        if CUDA and window is None:
            speed(name, heads, shared, width)


def with_gradients(way, kind, q, k, v, grad, packed, window) -> list[torch.Tensor]:
    given = [one.detach().to(kind).requires_grad_() for one in (q, k, v)]
    result = way(*given, packed, None, window)
    return [result, *torch.autograd.grad(result, given, grad.to(kind))]


def speed(name: str, heads: int, shared: int, width: int, tokens: int = 9216) -> None:
    from real_openrlhf.hooks.model.flash_attention_torch import Sequences, by_kernel

    packed = Sequences.from_lengths(torch.tensor([tokens] * 4), device=DEVICE)
    q, k, v = (
        torch.randn(4 * tokens, count, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        for count in (heads, shared, shared)
    )
    forward = seconds(lambda: by_kernel(q, k, v, packed, None, None))
    result = by_kernel(q, k, v, packed, None, None)
    ones = torch.ones_like(result)
    backward = seconds(lambda: torch.autograd.grad(result, (q, k, v), ones, retain_graph=True))
    work = 4 * 4 * tokens**2 / 2 * heads * width / 1e12  # TFLOP
    print(
        f"info    attention {name}, 4 x {tokens:,} tokens: forward {forward * 1e3:.1f} ms ({work / forward:.0f} "
        f"TFLOP/s), backward {backward * 1e3:.1f} ms ({2.5 * work / backward:.0f})"
    )


def head() -> None:
    from real_openrlhf import token_log_probs

    for name, (count, width, words) in HEADS.items():
        torch.manual_seed(0)
        hidden = torch.randn(count, width, device=DEVICE, dtype=torch.bfloat16).requires_grad_()
        weight = (2 * torch.randn(words, width, device=DEVICE) / width**0.5).bfloat16().requires_grad_()
        labels = torch.randint(0, words, (count,), device=DEVICE)
        grad = torch.randn(count, device=DEVICE)
        log_probs, entropy = token_log_probs(hidden, weight, labels, temperature=0.6, entropy=True)
        log_probs.backward(grad)
        wide, of_hidden, of_weight = weight.detach().double(), [], torch.zeros_like(weight, dtype=torch.float64)
        distance = gap = 0.0
        for rows in torch.arange(count, device=DEVICE).split(256):
            own = hidden.detach()[rows].double()
            log_p = (own @ wide.t() / 0.6).log_softmax(-1)
            at_label = log_p.gather(1, labels[rows, None])[:, 0]
            distance = max(distance, float((at_label - log_probs.detach()[rows]).abs().max()))
            gap = max(gap, float((-(log_p.exp() * log_p).sum(-1) - entropy.detach()[rows]).abs().max()))
            slope = log_p.exp_().mul_(-1)
            slope.scatter_add_(1, labels[rows, None], torch.ones_like(slope[:, :1]))
            slope.mul_(grad[rows, None].double() / 0.6)
            of_hidden.append(slope @ wide)
            of_weight.addmm_(slope.t(), own)
        say(f"head {name}, largest error of a log-probability, nats", distance, 1e-3)
        say(f"head {name}, largest error of an entropy, nats", gap, 1e-3)
        say(f"head {name}, gradient of hidden states", off(hidden.grad, torch.cat(of_hidden)), 6e-3)
        say(f"head {name}, gradient of the weight", off(weight.grad, of_weight), 6e-3)


def adam() -> None:
    from real_openrlhf.hooks.fixes.deepspeed_optimizers import AdamW

    torch.manual_seed(0)
    start, grads = torch.randn(1_000_003, device=DEVICE), [torch.randn(1_000_003, device=DEVICE) for _ in range(5)]
    one, two = start.clone().requires_grad_(), start.double().requires_grad_()
    settings = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    ours = AdamW([{"params": [one]}], **settings)
    exact = torch.optim.AdamW([two], foreach=False, fused=False, **settings)
    for grad in grads:
        one.grad, two.grad = grad.clone(), grad.double()
        ours.step(), exact.step()
    print(f"info    AdamW is fused: {ours.defaults['fused']}")
    change = one.detach().double() - start.double()
    say("AdamW, five steps, the change from float64's", off(change, two.detach() - start.double()), 1e-3)


if __name__ == "__main__":
    for part in sys.argv[1:] or ("attention", "adam", "head"):
        begun = time.perf_counter()
        try:
            globals()[part]()
        except Exception as error:  # the other parts are worth their seconds
            failed += 1
            print(f"DIFFERS {part}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        print(f"-- {part}: {time.perf_counter() - begun:.0f} s", flush=True)
    sys.exit(bool(failed))
