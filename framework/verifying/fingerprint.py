"""Hashes what a run computes: after each step and stage, or of every module in one part of it. Imports torch."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from framework.memory.absent import Placeholder
from framework.memory.hooks import uncompiled
from framework.platforms.protocol import Platform
from framework.runtime import events
from framework.verifying.marks import INPUT, OUTPUT, VALUE, WEIGHT, Mark, Place


class Fingerprint:
    """A sink of run events; `marks` has the hashes in the order of the run. Give it to `execute` too.

    `closely` is a part of the run in which every module of every component is looked at, with its weights as they are
    on the device when it is called. What is hashed is copied to the host, so that a run takes longer and its copies
    fall elsewhere: the bytes are the same.
    """

    def __init__(self, closely: Place | None = None) -> None:
        self.marks: list[Mark] = []
        self._closely = closely
        self._request, self._stage, self._num_steps = 0, "", 0

    # What `execute` asks

    def watch(self, platform: Platform) -> Platform:
        return platform

    @contextmanager
    def layers(
        self, modules: Mapping[str, nn.Module], paths: Mapping[str, tuple[str, ...]], compiled: bool = False
    ) -> Iterator[None]:
        """In this block every call of a module is looked at, where the run has come to the part that is wanted."""
        handles = []
        for component, module in modules.items() if self._closely is not None else ():
            for name, part in module.named_modules():
                before, after = self._before(component, name), self._after(component, name)
                before, after = (uncompiled(before), uncompiled(after)) if compiled else (before, after)
                handles.append(part.register_forward_pre_hook(before, with_kwargs=True))
                handles.append(part.register_forward_hook(after))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, component: str, name: str) -> Callable[..., None]:
        def look(module: nn.Module, args: Any, kwargs: Any) -> None:
            if self._is_wanted():
                own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
                for tensor_name, tensor in own:
                    self._add(WEIGHT, f"{name}.{tensor_name}".lstrip("."), tensor, component)
                if not name:
                    self._add(INPUT, "input", (args, dict(kwargs)), component)

        return look

    def _after(self, component: str, name: str) -> Callable[..., None]:
        def look(module: nn.Module, args: Any, output: Any) -> None:
            if self._is_wanted():
                self._add(OUTPUT, name or "output", output, component)

        return look

    def _is_wanted(self) -> bool:
        return Place(self._request, self._stage, self._num_steps) == self._closely

    # What it hears

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RequestStarted(index=index):
                self._request = index
            case events.StageStarted(stage=stage):
                self._stage, self._num_steps = stage, 0
            case events.StepDone(step=step, values=values):
                self._num_steps += 1
                self._add(VALUE, "latents" if isinstance(values, Tensor) else "values", values, step=step)
            case events.StageFinished(values=values):
                for name, value in (values or {}).items():
                    self._add(VALUE, name, value)

    def _add(self, kind: str, name: str, value: Any, component: str | None = None, step: int | None = None) -> None:
        for tensor_name, tensor in tensors_of(value, name):
            sha256 = tensor_sha256(tensor)
            if sha256 is not None:
                place = (self._request, self._stage, step, self._num_steps)
                self.marks.append(Mark(*place, kind, tensor_name, sha256, component))


def tensors_of(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor inside `value` with its dotted name; what is no tensor is passed over."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_of(item, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors_of(item, f"{name}[{index}]")
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name), f"{name}.{field.name}")


def tensor_sha256(tensor: Tensor) -> str | None:
    """Hash shape, dtype and bytes; None for a weight that is not there, or a class of tensor without plain bytes."""
    if isinstance(tensor, Placeholder):
        return None
    try:
        data = tensor.detach().cpu().contiguous()
        digest = hashlib.sha256(f"{tuple(data.shape)} {data.dtype}\n".encode())
        digest.update(data.reshape(-1).view(torch.uint8).numpy().data if data.numel() else b"")
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    return digest.hexdigest()
