"""PyTorch's operators on "cuda" tensors, computed on the CPU in place: a paper card's memory is host memory.

With PAPER_LIMIT=N, tensors of more than N floats go to PyTorch's own CUDA code, whose kernels do nothing: the results
have the right shapes, and their memory is never touched. What a stream captures is computed again when its graph runs.
"""

import ctypes
import os
import sys
import warnings
from functools import partial
from itertools import pairwise

import torch

LIMIT = int(os.environ.get("PAPER_LIMIT", 0))
NATIVE = {  # only describe memory, or allocate and copy bytes
    *"empty.memory_format empty_strided as_strided view _reshape_alias set_.source_Storage set_".split(),
    *"set_.source_Tensor set_.source_Storage_storage_offset resize_ record_stream is_set_to".split(),
    *"_local_scalar_dense is_pinned _pin_memory".split(),
    *"view_as_real view_as_complex unfold _efficientzerotensor alias lift _has_same_storage_numel".split(),
}
MAKES_BIG = "mm", "linear", "index", "embedding", "gather", "expand", "repeat", "flash"  # out of two small ones
HOST_TOO = "copy_", "_to_copy", "index.Tensor", "index_put", "_index_put_impl_", "set_", "resize"  # take both devices
NO_NUMBERS_FROM_HOST = tuple("cat stack gather scatter index_select index_copy index_add mm embedding".split())
CPU = torch.device("cpu")
# as they are now: where DeepSpeed makes a model it puts its own in their places
MAKERS = torch.empty, torch.zeros, torch.ones, torch.tensor
empty, zeros, ones, scalar = (partial(one, device=CPU) for one in MAKERS)
cuda = ctypes.CDLL(None)  # preloaded
cuda.paper_asleep.argtypes = [ctypes.c_void_p]
cuda.cudaMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
graphs: dict[int, list] = {}  # by number: (function, arguments, results) of each operator that was captured


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def launched(graph: int) -> None:
    with torch.no_grad():
        for function, args, named, results in graphs.get(graph, ()):
            new = function(*args, **named)
            for old, one in zip(results, tensors_of(new), strict=True):
                if old is not None:
                    old.copy_(one)


def tensors_of(tree) -> list:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [one for part in tree for one in tensors_of(part)]
    return []


def mapped(function, tree):
    if isinstance(tree, (list, tuple)):
        parts = [mapped(function, one) for one in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return function(tree)


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor on the CPU."""
    storage = tensor.untyped_storage()
    size, place = storage.nbytes(), storage.data_ptr()
    if not size:
        return empty(tensor.size(), dtype=tensor.dtype)  # an `out` without memory: it is resized
    if cuda.paper_asleep(place):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered (paper card: it is asleep)")
    base = torch.frombuffer((ctypes.c_char * size).from_address(place), dtype=torch.uint8)
    made = empty(0, dtype=tensor.dtype)
    made.set_(base.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    return made.conj() if tensor.is_conj() else made


def on_the_cpu(name: str, compute, native=None):
    """`compute` for tensors on the card; `native` is PyTorch's own code for it."""
    plain = name.partition("::")[2]
    host_too = plain.startswith(HOST_TOO) or "foreach" in plain
    strict = any(word in plain for word in NO_NUMBERS_FROM_HOST)

    def run(keys, *args, **named):
        tensors = tensors_of((args, list(named.values())))
        if LIMIT and native and goes_to_cuda(plain, tensors):
            kinds = [str(one.type) for one in compute._schema.arguments]
            args = [  # a number where the operator takes a tensor
                scalar(one) if isinstance(one, (int, float)) and kind == "Tensor" else one
                for one, kind in zip(args, kinds, strict=False)
            ]
            return native.call_boxed(keys, *args, **named)
        device = None
        for one in tensors:
            if one.is_cuda:
                device = one.device
        if device and not host_too:
            for one in tensors:
                if one.is_cpu and (one.dim() or strict):
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two devices, "
                        f"{device} and cpu! (paper card, {name})"
                    )
        given = {}

        def down(one):
            nonlocal device
            if isinstance(one, torch.Tensor) and one.is_cuda:
                result = alias(one)
                given[id(result)] = one, result
                return result
            if isinstance(one, torch.device) and one.type == "cuda":
                number = torch.cuda.current_device() if one.index is None else one.index
                device = device or torch.device("cuda", number)
                return CPU
            return None if isinstance(one, torch.Generator) else one

        args = mapped(down, args)
        named = {key: mapped(down, one) for key, one in named.items() if key != "pin_memory"}
        results: list = []

        def up(one):
            if not isinstance(one, torch.Tensor):
                return one
            if id(one) in given:
                there = given[id(one)][0]
                if there.size() != one.size():
                    alias(there.resize_(one.size())).copy_(one)
                results.append(None)
                return there
            if device is None or not one.is_cpu:
                return one
            there = torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device=device)
            results.append(alias(there).copy_(one))
            return there

        made = mapped(up, compute(*args, **named))
        if graph := cuda.paper_capturing():
            graphs.setdefault(graph, []).append((compute, args, named, results))
        return made

    return run


def goes_to_cuda(name: str, tensors: list) -> bool:
    sizes = [one.numel() for one in tensors if one.is_floating_point()]
    return any(size > LIMIT for size in sizes) or (any(word in name for word in MAKES_BIG) and sum(sizes) > LIMIT)


# What has no code for the CPU


def mm_dtype(left, right, out_dtype):
    return left.to(out_dtype) @ right.to(out_dtype)


def mm_dtype_out(left, right, out_dtype, *, out):
    return out.copy_(left.to(out_dtype) @ right.to(out_dtype))


def addmm_dtype(total, left, right, out_dtype, *, beta=1, alpha=1):
    return beta * total + alpha * (left.to(out_dtype) @ right.to(out_dtype))


def addmm_dtype_out(total, left, right, out_dtype, *, beta=1, alpha=1, out):
    return out.copy_(addmm_dtype(total, left, right, out_dtype, beta=beta, alpha=alpha))


def scores(q, k, v, bounds, scale, left):
    """Of each packed sequence: (where, q, k, v of all heads, softmax, scale)."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    assert left in (None, -1)
    times = q.shape[1] // k.shape[1]
    for begin, end in pairwise(bounds.tolist()):
        x = q[begin:end].transpose(0, 1).float()
        y, z = (one[begin:end].transpose(0, 1).float().repeat_interleave(times, 0) for one in (k, v))
        seen = ones(end - begin, end - begin, dtype=torch.bool).tril()
        p = (x @ y.mT * scale).masked_fill(~seen, float("-inf")).softmax(-1)
        yield slice(begin, end), x, y, z, p, scale


def flash(q, k, v, bounds, _k, mq, mk, p, causal, debug=False, *, scale=None, window_size_left=None, **_):
    out = torch.empty_like(q)
    for where, _x, _y, z, p, _s in scores(q, k, v, bounds, scale, window_size_left):
        out[where] = (p @ z).transpose(0, 1).to(out.dtype)
    nothing = zeros(2, dtype=torch.uint64)
    return out, zeros(q.shape[1], len(q)), nothing, zeros(()), zeros(())


def flash_back(
    go, q, k, v, out, lse, bounds, _k, mq, mk, p, causal, rng, unused, *, scale=None, window_size_left=None, **_
):
    results = [torch.empty_like(one) for one in (q, k, v)]
    for where, x, y, z, p, by in scores(q, k, v, bounds, scale, window_size_left):
        g = go[where].transpose(0, 1).float()
        dp = g @ z.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * by
        for place, part in zip(results, (ds @ y, ds.mT @ x, p.mT @ g), strict=True):
            part = part.unflatten(0, (place.shape[1], -1)).sum(1)
            place[where] = part.transpose(0, 1).to(place.dtype)
    return tuple(results)


def zero(tensor):
    """Large memory is not touched for it: vLLM's cache of keys and values is most of a card."""
    place, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if size < 2**20 or not tensor.is_contiguous():
        return tensor.fill_(0)
    cuda.cudaMemset(place, 0, size)
    return tensor


SPECIAL = {
    "aten::_fused_sdp_choice": lambda *_, **__: 0,  # by plain products
    "aten::zero_": zero,
    "aten::_flash_attention_forward": flash,
    "aten::_flash_attention_backward": flash_back,
    "aten::mm.dtype": mm_dtype,
    "aten::mm.dtype_out": mm_dtype_out,
    "aten::addmm.dtype": addmm_dtype,
    "aten::addmm.dtype_out": addmm_dtype_out,
}
libraries: dict[str, torch.library.Library] = {}


def without(name: str):
    def refuse(keys, *args, **named):
        raise NotImplementedError(f"paper card: {name} has no code for the CPU")

    return refuse


def give(full: str, function) -> None:
    space, _, name = full.partition("::")
    library = libraries.setdefault(space, torch.library.Library(space, "IMPL"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl(name, function, "CUDA", with_keyset=True, allow_override=True)


def install(torch) -> None:
    cuda.paper_on_launch(launched)
    if "PAPER_FORKS" in os.environ:  # a card does not survive a fork, a paper card does
        torch.cuda._is_in_bad_fork = lambda: False
    told = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a warning in C++ for each operator
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        if space != "aten" or name in NATIVE or not (has(full, "CUDA") or name == "copy_"):
            continue
        if full not in SPECIAL and not has(full, "CPU") and not has(full, "CompositeExplicitAutograd"):
            if not LIMIT:
                give(full, without(full))
            continue
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        compute = SPECIAL.get(full, op)
        if full in SPECIAL:
            compute._schema = op._schema
        give(full, on_the_cpu(full, compute, torch.library.get_kernel(full, "CUDA") if LIMIT else None))
    sys.stderr.flush()
    os.dup2(told, 2)
    os.close(told)
