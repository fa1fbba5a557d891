"""Runs every operator on simulated tensors: the numbers by the host's kernel, the rest by the world. Imports torch."""

from functools import partial
from typing import Any

import torch

from framework.platforms.sim.block import Write
from framework.platforms.sim.cost import kernel_seconds
from framework.platforms.sim.recipes import Recipe, learn
from framework.platforms.sim.streams import Stream
from framework.platforms.sim.tensor import SimTensor, alias, fresh, poison
from framework.platforms.sim.transfers import copy, to_device, to_host, to_other_device
from framework.platforms.sim.world import Device, current, device_of

aten = torch.ops.aten

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_INERT = frozenset({int, float, bool, type(None), torch.dtype})


class _Call:
    """One operator call with its simulated tensors taken out: `raw` and `options` go to the host's kernel.

    `foreign`: another tensor subclass takes part and must decide. `host_result`: the caller asked for another device.
    """

    __slots__ = ("device", "foreign", "host_result", "options", "raw", "recipe", "sims", "target")

    def __init__(self, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.recipe = recipe
        self.sims: list[SimTensor] = []
        self.foreign = self.host_result = False
        self.raw: list[Any] = []
        for value in args:
            kind = type(value)
            if kind is SimTensor:
                self.sims.append(value)
                self.raw.append(value.raw)
            else:
                self.raw.append(value if kind in _INERT else self._take(value))
        self.options = {name: self._take(value) for name, value in kwargs.items()} if kwargs else kwargs
        self.device = self.target = self._one_device()
        if kwargs:
            self._place()

    def _take(self, value: Any) -> Any:
        if isinstance(value, SimTensor):  # also one that is a parameter class as well
            self.sims.append(value)
            return value.raw
        if isinstance(value, torch.Tensor):
            if type(value) not in _PLAIN:
                self.foreign = True
            elif value.dim():
                raise _mismatch("sim", str(value.device), self.recipe.name)
            return value
        if isinstance(value, (list, tuple)):
            return [self._take(self._bring(entry)) for entry in value]
        return value

    def _bring(self, entry: Any) -> Any:
        """Indices may lie on the host, as on CUDA: they are copied."""
        if self.recipe.indexes and type(entry) is torch.Tensor and self.sims:
            return to_device(entry, self.sims[0].block.device)
        return entry

    def _one_device(self) -> Device:
        device = self.sims[0].block.device
        if device.world is not current():
            raise RuntimeError(f"{self.recipe.name}: a tensor belongs to an earlier simulated machine")
        for sim in self.sims:
            if sim.block.device is not device:
                raise _mismatch(device.name, sim.block.device.name, self.recipe.name)
        return device

    def _place(self) -> None:
        """Read the `device` of a factory such as `zeros_like`; the host's kernel always works on the host."""
        wanted = self.options.pop("device", None)
        self.options.pop("pin_memory", None)
        if wanted is not None:
            wanted = torch.device(wanted)
            self.host_result = wanted.type != "sim"
            self.options["device"] = wanted if self.host_result else torch.device("cpu")
            if not self.host_result and wanted.index is not None:
                self.target = device_of(wanted)
        elif self.recipe.allocates_only:
            self.options["device"] = torch.device("cpu")

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[SimTensor]:
        found: list[SimTensor] = []
        values = [args[i] for i in self.recipe.writes if i < len(args)]
        values += [kwargs[name] for name in self.recipe.writes_named if name in kwargs]
        for value in values:
            entries = value if isinstance(value, (list, tuple)) else (value,)
            found += [entry for entry in entries if isinstance(entry, SimTensor)]
        return found


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func`; raises `SimRace`, `SimOOM`, or `RuntimeError` for operands on different devices."""
    recipe = _KNOWN.get(func)
    if recipe is None:
        recipe = _KNOWN[func] = _meet(func)
    if type(recipe) is not Recipe:
        return recipe(*args, **kwargs)
    call = _Call(recipe, args, kwargs)
    if call.foreign:
        return NotImplemented
    if recipe.view:
        return _view(func, call)
    if call.host_result or recipe.allocates_only:
        return _allocate(func, call)
    return _kernel(func, call, args, kwargs)


def _meet(func: Any) -> Any:
    """Return what to do with an operator that is new: its recipe, or for one made of others what takes it apart."""
    recipe = learn(func)
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if not recipe.composite:
        return recipe
    return func.decompose if key in func.py_kernels else partial(func._op_dk, key)  # the same, but looked up once


def _view(func: Any, call: _Call) -> Any:
    out = func(*call.raw, **call.options)
    base = call.sims[0]
    if isinstance(out, torch.Tensor):
        return alias(out, base)
    return [alias(part, base) for part in out]


def _allocate(func: Any, call: _Call) -> Any:
    out = func(*call.raw, **call.options)
    if call.host_result:
        return out
    poison(out)
    return fresh(out, call.target)


def _kernel(func: Any, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recipe, stream = call.recipe, call.device.current
    world = call.device.world
    written = call.written(args, kwargs) if recipe.writes or recipe.writes_named else []
    world.launch(stream)
    size_bytes = _order(call, stream, written)
    folding = recipe.folds and _needs_folding(recipe, call, args)
    out = _fold(func, args) if folding else func(*call.raw, **call.options)
    if recipe.reshapes:
        _check_shapes(written, recipe)
    if isinstance(out, torch.Tensor):
        result: Any = _wrap(out, call, stream, written)
        if not written:
            size_bytes += out.numel() * out.element_size()
    elif isinstance(out, (tuple, list)):
        result, added = _wrap_all(out, call, stream, written)
        size_bytes += added
    else:
        result = out
    world.run_kernel(stream, kernel_seconds(world.profile, size_bytes, recipe.flops, args, out))
    if recipe.waits or isinstance(out, (bool, int, float)) or (recipe.indexes and _has_mask(args[1])):
        stream.synchronize()
    return result


def _needs_folding(recipe: Recipe, call: _Call, args: tuple[Any, ...]) -> bool:
    if not any(sim.requires_grad for sim in call.sims):
        return False
    raw = call.raw[0]
    one_kernel = recipe.name == "linear" and len(args) > 2 and args[2] is not None and raw.dim() in (2, 3)
    return not (one_kernel and raw.is_contiguous())


def _fold(func: Any, args: tuple[Any, ...]) -> torch.Tensor:
    """Run `func` as it would run above the dispatcher, where a view of a weight still says that it requires grad."""
    with torch.inference_mode(False):
        raw = [_flagged(a) if isinstance(a, SimTensor) and not a.is_inference() else getattr(a, "raw", a) for a in args]
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView):
        exclude = exclude.remove(key)
    with torch.no_grad(), torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude):
        out: torch.Tensor = func(*raw)
    return out


def _flagged(sim: SimTensor) -> torch.Tensor:
    return sim.raw.detach().requires_grad_(sim.requires_grad)


def _order(call: _Call, stream: Stream, written: list[SimTensor]) -> int:
    """Check every access against the clocks; return the bytes touched."""
    recipe = call.recipe
    size_bytes = 0
    for sim in call.sims:
        lo, hi = sim._span or sim.span()
        size_bytes += min(hi - lo, sim.raw.numel() * sim.raw.element_size())
        if written and any(sim is one for one in written):
            if recipe.reads_written and sim.block.retired:
                sim.block.read(lo, hi, stream, recipe.name)
            sim.block.write(lo, hi, stream, recipe.name)
        else:
            sim.block.read(lo, hi, stream, recipe.name)
    return size_bytes


def _wrap(out: torch.Tensor, call: _Call, stream: Stream, written: list[SimTensor]) -> SimTensor:
    for sim in written:
        if out is sim.raw:
            return sim
    storage = out.untyped_storage()
    ptr = storage.data_ptr()
    if ptr:
        for sim in call.sims:
            if sim.block.ptr == ptr:
                return alias(out, sim)
    made = fresh(out, call.target, storage)
    block = made.block
    block.writes = [Write(0, block.nbytes, stream.number, stream.sequence, call.recipe.name)]
    return made


def _wrap_all(
    outs: tuple[Any, ...] | list[Any], call: _Call, stream: Stream, written: list[SimTensor]
) -> tuple[Any, int]:
    """Wrap several results, some of which may share one storage, or be no tensors at all."""
    results: list[Any] = []
    size_bytes = 0
    for out in outs:
        if not isinstance(out, torch.Tensor):
            results.append(out)
            continue
        ptr = out.untyped_storage().data_ptr()
        shared = next((made for made in results if ptr and type(made) is SimTensor and made.block.ptr == ptr), None)
        results.append(_wrap(out, call, stream, written) if shared is None else alias(out, shared))
        size_bytes += out.numel() * out.element_size()
    return (tuple(results) if isinstance(outs, tuple) else results), size_bytes


def _check_shapes(written: list[SimTensor], recipe: Recipe) -> None:
    for sim in written:
        if sim.raw.shape != sim.shape or sim.raw.stride() != sim.stride():
            raise RuntimeError(f"{recipe.name}: a simulated tensor cannot change its shape in place")


def _has_mask(indices: Any) -> bool:
    return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in indices)


def _mismatch(one: str, other: str, name: str) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}! (in {name})"
    )


# --- operators with a meaning of their own


def _copy_(dst: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> Any:
    if type(dst) not in (SimTensor, *_PLAIN) or type(src) not in (SimTensor, *_PLAIN):
        return NotImplemented
    if isinstance(dst, SimTensor) and dst.block.device.world is not current():
        raise RuntimeError("copy_: a tensor belongs to an earlier simulated machine")
    copy(dst, src, non_blocking=non_blocking)
    return dst


def _to_copy(
    src: SimTensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    dtype = dtype or src.dtype
    keep = memory_format or torch.preserve_format
    wanted = None if device is None else torch.device(device)
    if wanted is not None and wanted.type != "sim":
        if wanted.type != "cpu":
            return src.raw.to(wanted, dtype)  # meta: nothing is copied
        return to_host(src, dtype, keep, non_blocking)
    here = src.block.device
    target = here if wanted is None or wanted.index is None else device_of(wanted)
    if target is not here:
        return to_other_device(src, target, dtype)
    out = fresh(torch.empty_like(src.raw, dtype=dtype, memory_format=keep), here)
    copy(out, src, non_blocking=False)
    return out


def item(src: SimTensor) -> Any:
    device = src.block.device
    stream = device.current
    device.world.launch(stream)
    src.block.read(*src.span(), stream, "item")
    device.world.run_kernel(stream, 0.0)
    stream.synchronize()
    return src.raw.item()


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("a simulated tensor can neither be resized nor be given other storage")


def _incompatible(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """`Module.to` asks whether `.data =` would do; it puts in a new parameter instead."""
    return False


# What to do with an operator: a function of its own, or the recipe learnt when it was first met.
_KNOWN: dict[Any, Any] = {
    aten._has_compatible_shallow_copy_type.default: _incompatible,
    aten.copy_.default: _copy_,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: item,
    aten.resize_.default: _refuse,
    aten.set_.source_Tensor: _refuse,
    aten.set_.source_Storage_storage_offset: _refuse,
    aten.set_.source_Storage: _refuse,
}

SimTensor.handler = staticmethod(dispatch)
